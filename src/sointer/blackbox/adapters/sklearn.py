"""Fitted scikit-learn estimators, and whatever else has `predict`, as functions X -> Y; the columns they expect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from sointer._support import containers
from sointer._support.validation import some
from sointer.blackbox.call import CopiedAsItself
from sointer.blackbox.replies import ClassProbabilities, NamedTable, read_outputs
from sointer.data.reading import NO_CLASSES
from sointer.errors import BlackBoxError, InputError

METHODS = ("predict", "predict_proba")
TIE = 1e-6
"""Probabilities this close to the threshold, or outside [0, 1] by so little, are so by rounding."""

FloatTable = npt.NDArray[np.float64]


class EstimatorPredict(CopiedAsItself):
    """Calls one method of an estimator, which is held frozen: copies share it, still fitted.

    With method=None it is chosen by the first rows seen: predict_proba where its most probable labels are those that
    predict returns, else predict. Of an output with two classes, the probability is that of the second. Where an output
    has more, all outputs are those of predict, and `class_probabilities` gives their probabilities; with
    method="predict_proba" outputs of two classes are probabilities beside the most probable labels of the others.
    """

    def __init__(self, model: Any, method: str | None = None) -> None:
        if method is not None and method not in METHODS:
            raise InputError(
                f"method must be one of {METHODS} or None, got {method!r}. Leave it out to have it chosen: "
                "predict_proba where it agrees with predict."
            )
        if isinstance(model, BaseEstimator):
            try:
                check_is_fitted(model)
            except NotFittedError as exc:
                raise InputError(
                    f"model is a {type(model).__name__} that is not fitted, expected a fitted one. "
                    "Call its fit(X, Y) first."
                ) from exc
        is_fitted = getattr(model, "is_fitted", None)  # of catboost
        if callable(is_fitted) and not isinstance(model, type) and not is_fitted():
            raise InputError(
                f"model is a {type(model).__name__} that is not fitted, expected a fitted one. "
                "Call its fit(X, Y) first."
            )
        if not callable(getattr(model, method or "predict", None)):
            raise InputError(
                f"model is a {type(model).__name__} without {method}, expected one that has it. Use "
                f"method={'predict' if method == 'predict_proba' else 'predict_proba'!r}, or give a function."
            )
        self.model = model
        self.method = method
        if method is None and not callable(getattr(model, "predict_proba", None)):
            self.method = "predict"
        self._is_ready = self.method == "predict" and not _may_have_many_classes(model)
        self.class_probabilities: ClassProbabilities | None = None
        self._predicted: _Predicted | None = None
        """What `predict` returns, as far as it says how to read the probabilities."""

    @property
    def declared_kind(self) -> str | list[str | None] | None:
        """The kind of the outputs, where the method says it; a list with one for each where only some are known."""
        if self.method != "predict_proba":
            return NO_CLASSES if isinstance(self.model, BaseEstimator) and is_regressor(self.model) else None
        n_outputs = 0 if self._predicted is None else self._predicted.table.shape[1]
        is_many = [len(self._classes(output) or ()) > 2 for output in range(n_outputs)]
        if n_outputs > 1 and any(is_many):
            return [None if many else "probability" for many in is_many]
        return "probability"

    def choose_method(self, X: Any) -> str | None:
        """Choose the method by some rows, unless that was done; what the user should know of the choice, if anything.

        Nothing is raised: what an estimator cannot do comes to light when it is called.
        """
        if self._is_ready:
            return None
        was_open = self.method is None
        note = self._choose(X)
        self._is_ready = True
        return note if was_open else None

    def _choose(self, X: Any) -> str | None:
        try:
            self._predicted = _Predicted.of(self.model.predict(X), containers.n_rows(X))
        except Exception:
            self._predicted = None  # the call itself will say why
        given, self.method = self.method, self.method or "predict"
        if self._predicted is None or given == "predict_proba":
            return None
        try:
            tables = self._tables(self.model.predict_proba(X))
        except Exception:  # such as a part of the model that has no probabilities
            return None
        has_many = any(table.shape[1] > 2 for table in tables)
        if all(np.isin(table, (0, 1)).all() for table in tables) or (given == "predict" and not has_many):
            return None  # labels say as much, or are wanted
        name = type(self.model).__name__
        labels = [self._classes(output) for output in range(len(tables))]
        if has_many and [len(own or ()) for own in labels] != [table.shape[1] for table in tables]:
            return None  # whose probabilities they are is not known
        if any(len(table) != len(self._predicted.table) or not np.isfinite(table).all() for table in tables):
            return (
                f"predict_proba of {name} returned NaN, infinite values or too few rows, so what predict returns is "
                "explained. Set method='predict' to say that this is meant, or see why predict_proba fails."
            )
        or_numbers = ", or method='predict_proba' with output_kind='continuous' to explain these numbers"
        or_probabilities = ", or method='predict_proba' to explain the probabilities"
        if has_many and len(tables) > 1:  # only outputs of two classes have a probability
            or_numbers = ""
            or_probabilities = or_probabilities if any(table.shape[1] <= 2 for table in tables) else ""
        shown = np.column_stack([table if has_many else table[:, -1] for table in tables])
        low, high = shown.min(), shown.max()
        if low < -TIE or high > 1 + TIE:
            return (
                f"predict_proba of {name} returned numbers from {low:g} to {high:g}, outside [0, 1], so what predict "
                f"returns is explained. Set method='predict' to say that this is meant{or_numbers}."
            )
        differs = self._disagreement(tables)
        if differs.any():
            return (
                f"predict and predict_proba of {name} disagree: for {int(differs.sum())} of {len(differs)} samples "
                "predict does not return the most probable label, as with a threshold other than 0.5. What predict "
                f"returns is explained. Set method='predict' to say that this is meant{or_probabilities}."
            )
        if has_many:
            kind = self._predicted.table.dtype
            classes = tuple(np.array(own, dtype=None if kind.kind == "U" else kind) for own in labels)
            self.class_probabilities = ClassProbabilities(self.of_classes, classes)
        else:
            self.method = "predict_proba"
        return None

    def of_classes(self, X: Any) -> Any:
        """The probabilities of the classes of all outputs: (rows, classes)."""
        assert self.class_probabilities is not None
        tables = self._tables(self.model.predict_proba(X))
        got, wanted = [table.shape[1] for table in tables], [len(own) for own in self.class_probabilities.classes]
        if got != wanted:
            raise BlackBoxError(f"predict_proba gave {got} classes for the outputs, expected {wanted} as before.")
        names = None if self._predicted is None else self._predicted.names
        table = _within(np.column_stack(tables))
        return table if names is None else NamedTable(table, names)

    def __call__(self, X: Any) -> Any:
        """The outputs for X, as the estimator returns them or, for probabilities, of the positive class."""
        if reads_by_place(self.model, X):
            refuse_other_columns(self.model, X)
        self.choose_method(X)
        try:
            outputs = getattr(self.model, self.method or "predict")(X)
        except Exception as error:
            if _ABOUT_COLUMNS.search(str(error)):
                refuse_other_columns(self.model, X)
            raise
        if self.method != "predict_proba":
            return outputs
        if not self._is_one_per_output(outputs):
            return self._named(_within(np.asarray(outputs, dtype=np.float64)), None)
        tables = self._tables(outputs)
        if len(tables) == 1 and tables[0].shape[1] > 2:  # chosen explicitly: one output for each class
            classes = self._classes(0)
            names = None if classes is None else [str(label) for label in classes]
            return self._named(_within(tables[0]), names)
        columns = [
            self._most_probable(table, output) if table.shape[1] > 2 else _within(self._positive(table, output))
            for output, table in enumerate(tables)
        ]
        if any(table.shape[1] > 2 for table in tables):
            columns = [column.astype(object) for column in columns]  # numbers beside labels
        return self._named(np.column_stack(columns), self._names(len(tables)))

    def _most_probable(self, table: FloatTable, output: int) -> npt.NDArray[Any]:
        """The labels that probabilities of more than two classes speak for."""
        labels = self._classes(output)
        if labels is None or len(labels) != table.shape[1]:
            raise InputError(
                f"predict_proba gave an array of shape {table.shape} for output {output}, expected (n, 2): two "
                "classes, as the estimator does not say which classes it has (classes_). Use method='predict', which "
                "explains outputs with any number of classes."
            )
        return np.asarray(np.array(labels, dtype=object)[table.argmax(axis=1)])

    def _is_one_per_output(self, outputs: Any) -> bool:
        """Whether probabilities come with a column for each class, rather than for each output."""
        if isinstance(outputs, list):
            return True
        predicted = self._predicted
        n_columns = np.shape(outputs)[1] if np.ndim(outputs) == 2 else 0
        return predicted is not None and (predicted.is_flat or (predicted.table.shape[1] == 1 and n_columns > 1))

    def _tables(self, outputs: Any) -> list[FloatTable]:
        """Probabilities as one table (rows, classes) per output; of two classes the second alone may be there."""
        parts = outputs if isinstance(outputs, list) else [outputs]
        tables = [np.asarray(part, dtype=np.float64) for part in parts]
        if any(table.ndim != 2 for table in tables):
            shapes = ", ".join(str(table.shape) for table in tables[:3])
            raise InputError(
                f"predict_proba gave arrays of shape {shapes}, expected (n, classes) for each output. "
                "Use method='predict'."
            )
        if self._is_one_per_output(outputs):
            return tables
        (table,) = tables
        return [np.column_stack([1 - table[:, j], table[:, j]]) for j in range(table.shape[1])]

    def _positive(self, table: FloatTable, output: int) -> npt.NDArray[np.float64]:
        """The probability of the second class, or of the only one, unless that is the negative one."""
        if table.shape[1] == 2:
            return table[:, 1]
        classes = self._classes(output)
        # Only one class was seen in training: its probability is 1.
        is_positive = classes is not None and (isinstance(classes[0], str) or classes[0] not in (0, -1))
        return table[:, 0] if is_positive else 1.0 - table[:, 0]

    def _classes(self, output: int) -> list[Any] | None:
        """The labels of an output, as the estimator knows them."""
        known = getattr(self.model, "classes_", None)
        if known is None:
            return None
        is_flat = self._predicted is not None and self._predicted.is_flat
        try:
            labels = known if is_flat and np.ndim(known[0]) == 0 else known[output]
            return None if np.ndim(labels) != 1 else np.asarray(labels).tolist()
        except (IndexError, TypeError, ValueError):
            return None

    def _names(self, n_outputs: int) -> list[str] | None:
        """Whose probability each output is, where that is not simply the label 1 (or True)."""
        names = []
        for output in range(n_outputs):
            classes = self._classes(output)
            label = None if not classes or len(classes) > 2 else classes[-1]
            if label is None or (not isinstance(label, str) and label in (0, 1, -1)):
                names.append(f"y{output}")
            else:
                is_alone = n_outputs == 1 and isinstance(label, str)
                names.append(label if is_alone else f"y{output}={label}")
        return names if any(name != f"y{output}" for output, name in enumerate(names)) else None

    def _named(self, table: npt.NDArray[Any], names: list[str] | None) -> Any:
        own = None if self._predicted is None else self._predicted.names
        if own is not None and len(own) == table.shape[1]:
            names = own
        return table if names is None else NamedTable(table, names)

    def _disagreement(self, tables: list[FloatTable]) -> npt.NDArray[np.bool_]:
        """Samples of which some output's most probable label is not the one predicted: (rows,)."""
        assert self._predicted is not None
        predicted = self._predicted.table
        if predicted.shape[1] != len(tables):
            return np.ones(len(predicted), dtype=bool)
        differs = np.zeros(len(predicted), dtype=bool)
        for output, table in enumerate(tables):
            labels = self._classes(output)
            if labels is None or len(labels) != table.shape[1]:
                labels = [0, 1] if table.shape[1] == 2 else [predicted[0, output]]
            likely = np.asarray(labels, dtype=object)[table.argmax(axis=1)]
            best = np.sort(table, axis=1)[:, -2:]
            is_tie = (table.shape[1] > 1) & (best[:, -1] - best[:, 0] <= 2 * TIE)
            differs |= (likely != predicted[:, output].astype(object)) & ~is_tie
        return differs

    def __repr__(self) -> str:
        return f"{type(self.model).__name__}.{self.method or 'predict'}"


class _Predicted(NamedTuple):
    """What `predict` returned for some rows."""

    table: npt.NDArray[Any]
    names: list[str] | None
    is_flat: bool
    """Whether it was one label a row, not a table."""

    @classmethod
    def of(cls, outputs: Any, n_rows: int) -> _Predicted:
        table, _, names = read_outputs(outputs, n_rows, None)
        shape = getattr(outputs, "shape", None)
        return cls(table, names, len(np.shape(outputs) if shape is None else shape) == 1)


def _may_have_many_classes(model: Any) -> bool:
    """Whether some output may have more than two classes, and probabilities of them."""
    known = getattr(model, "classes_", None)
    if known is None or not callable(getattr(model, "predict_proba", None)):
        return False
    return len(known) > 2 or any(np.size(labels) > 2 for labels in known)


def _within(table: FloatTable) -> FloatTable:
    """Probabilities that are outside [0, 1] by rounding alone, inside it."""
    inside = np.clip(table, 0.0, 1.0)
    return np.where(np.abs(inside - table) <= TIE, inside, table)


_PLACES = ("feature_names_in_", "feature_names_", "feature_names", "feature_name")
"""Where estimators and boosters of scikit-learn, catboost, xgboost and lightgbm hold the names."""
_NUMBERED = re.compile(r"(Column_)?\d+")
"""Names that lightgbm and catboost make where they are given none."""
_ABOUT_COLUMNS = re.compile("feature|columns are missing", re.IGNORECASE)
"""In errors of models that complain about the columns that they were given."""
MAX_WRITTEN = 8
"""So many names are written into a message, as what to do."""


def trained_columns(model: Any) -> list[str] | None:
    """The names of the columns that a model was trained on, in their order; None where it does not say."""
    for place in _PLACES:
        names: Any = None
        try:
            names = getattr(model, place, None)
            names = names() if callable(names) else names
        except Exception:  # such as of a part that is not fitted
            continue
        if (isinstance(names, Sequence) or getattr(names, "ndim", 0) == 1) and len(names):
            found = [str(name) for name in names]
            return None if all(_NUMBERED.fullmatch(name) for name in found) else found
    return None


def refuse_other_columns(model: Any, X: Any) -> None:
    """Refuse a table whose columns are known to be others than a model was trained on, or in another order."""
    parts = list(getattr(model, "estimators_", ()))[:1]
    wanted, given = trained_columns(model) or next(map(trained_columns, parts), None), _columns(X)
    if wanted is None or given is None or list(map(_key, given)) == list(map(_key, wanted)):
        return
    own = {_key(column): column for column in given}  # as they are written in X
    name, lacking = type(model).__name__, [column for column in wanted if _key(column) not in own]
    if lacking:
        raise InputError(
            f"X lacks {len(lacking)} of the {len(wanted)} columns that the {name} was trained on: {some(lacking)}; it "
            f"has {some(given)}. Add or rename them."
        )
    names = [own[_key(column)] for column in wanted]
    other = [column for column in given if column not in names]
    if other:
        what = f"columns that the {name} was not trained on: {some(other)}"
    else:
        what = f"its columns in another order than the {name} was trained on: {some(names)}"
    columns = f"X[{names!r}]" if len(names) <= MAX_WRITTEN else "X[names], with the names of these"
    raise InputError(f"X has {what}. Give fit the columns that the model takes, in its order: {columns}.")


def reads_by_place(model: Any, X: Any) -> bool:
    """Whether a model would take columns for others of its own: lightgbm never looks at names."""
    parts = (model, *list(getattr(model, "estimators_", ()))[:1])  # such as of a MultiOutputClassifier
    if not any(base.__module__.split(".")[0] == "lightgbm" for part in parts for base in type(part).__mro__):
        return False
    wanted, given = trained_columns(model) or trained_columns(parts[-1]), _columns(X)
    if wanted is None or given is None:
        return False
    keys, own = list(map(_key, given)), list(map(_key, wanted))
    return keys != own and sorted(keys) == sorted(own)


def _columns(X: Any) -> list[str] | None:
    if not (containers.is_frame(X) or containers.backend_of(X) is not None):
        return None
    return [str(column) for column in (X.column_names if containers.backend_of(X) == "pyarrow" else X.columns)]


def _key(name: str) -> str:
    """What two ways to write a name have in common: lightgbm puts underscores for blanks."""
    return re.sub(r"\s", "_", name)
