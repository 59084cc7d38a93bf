"""What every structured model has in common: fitting, answers in batches, saving."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sointer._support import containers
from sointer._support.validation import check_positive_int, check_random_state
from sointer.data.inputs import InputFormat
from sointer.errors import InputError, LoadError
from sointer.io.storage import DAMAGE, Storage, check_shapes
from sointer.zoo.model_networks import Fitting, FrozenNetwork, LabelNetwork, column_moments, relaxed_f1, score_of

STORAGE = Storage("model", "model.json", 2, oldest=1)

AnySaved = TypeVar("AnySaved", bound="SavedModel")


class SavedModel(BaseEstimator):
    """A model that can be saved and loaded.

    Subclasses say what else they know (`_facts`, and `_restore`, which takes it back and gives a network that waits for
    its weights), and how to make a network the one that answers (`_adopt`).
    """

    network_: nn.Module
    history_: list[dict[str, Any]]

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the fitted model to a directory (JSON and safetensors), whole or not at all."""
        check_is_fitted(self)
        facts = {
            "model": type(self).__name__,
            "parameters": plain_parameters(self),
            **self._facts(),
            "history": self.history_,
        }
        STORAGE.write(directory, facts, dict(self.network_.state_dict()))

    @classmethod
    def load(cls: type[AnySaved], directory: str | os.PathLike[str]) -> AnySaved:
        """Read a model that `save` wrote."""
        facts, tensors = STORAGE.read(directory)
        if facts.get("model") != cls.__name__:
            raise LoadError(f"{directory} holds a {facts.get('model')}, expected a {cls.__name__}. Use its own load.")
        try:
            parameters = facts["parameters"]  # JSON has lists for tuples
            model = cls(**{name: tuple(it) if isinstance(it, list) else it for name, it in parameters.items()})
            model._check_parameters()
            model.history_ = facts["history"]
            with torch.device("meta"):  # a size, but no memory, until it is known to be that of the weights
                check_shapes(model._restore(facts), tensors)
            network = model._restore(facts)
            network.load_state_dict(tensors)
        except DAMAGE as error:
            raise LoadError(
                f"{directory} does not hold a whole {cls.__name__} ({type(error).__name__}: {error}). Save it again."
            ) from error
        model._adopt(network)
        return model

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _facts(self) -> dict[str, Any]:
        raise NotImplementedError

    def _restore(self, facts: dict[str, Any]) -> nn.Module:
        raise NotImplementedError

    def _adopt(self, network: Any) -> None:
        raise NotImplementedError


def plain_parameters(model: BaseEstimator) -> dict[str, Any]:
    """The constructor's parameters as JSON knows them; a generator given as random_state becomes None."""
    plain = {}
    for name, value in model.get_params(deep=False).items():
        value = value.item() if isinstance(value, np.generic) else value
        plain[name] = value if isinstance(value, (bool, int, float, str, tuple, list)) else None
    return plain


def check_number(value: object, what: str, *, zero: bool = False) -> None:
    """Raise unless `value` is a positive, finite number (or zero, where that is allowed)."""
    fits = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or value < 0 or (value == 0 and not zero):  # type: ignore[operator]
        raise InputError(f"{what} must be a positive number{' or zero' if zero else ''}, got {value!r}.")


def check_share(value: object, what: str) -> None:
    """Raise unless `value` is a number from 0 to less than 1."""
    check_number(value, what, zero=True)
    if not value < 1:  # type: ignore[operator]
        raise InputError(f"{what} must be a share of at least 0 and below 1, got {value!r}.")


def check_labels(
    Y: Any, n_rows: int, caller: str, *, n_labels: int | None = None, relaxed: bool = False
) -> NDArray[np.float32]:
    """Y as float32 (rows, labels), of 0 and 1 or, relaxed, of numbers between."""
    given = containers.describe(Y)
    if containers.is_sparse(Y):
        Y = Y.toarray()
    elif containers.is_tensor(Y):
        Y = containers.tensor_to_numpy(Y)
    try:
        table = np.asarray(Y).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{caller}: Y is {given} that cannot be read as numbers ({error}), expected a table of 0 and 1. "
            "Encode labels with sklearn.preprocessing.MultiLabelBinarizer."
        ) from error
    if table.ndim != 2 or table.shape[0] != n_rows or not table.shape[1] or n_labels not in (None, table.shape[1]):
        raise InputError(
            f"{caller}: Y has shape {table.shape}, expected ({n_rows}, {n_labels or 'one or more'}). "
            "Give one row of labels for each row of X."
        )
    fits = (table >= 0) & (table <= 1) if relaxed else (table == 0) | (table == 1)
    if not fits.all():
        wanted = "numbers from 0 to 1" if relaxed else "only 0 and 1"
        raise InputError(
            f"{caller}: Y holds {float(table[~fits][0])!r}, expected {wanted}. "
            "Encode labels with sklearn.preprocessing.MultiLabelBinarizer."
        )
    return table.astype(np.float32)


def label_names(Y: Any, n_labels: int) -> list[str]:
    """The column names of a DataFrame; y0, y1, ... otherwise."""
    return [str(name) for name in Y.columns] if containers.is_frame(Y) else [f"y{i}" for i in range(n_labels)]


BLOCK_ROWS = 512
PADDING = 64  # matrix products of so many rows give a row the same bits whatever stands in the others

Model = TypeVar("Model", bound="StructuredModel")


class StructuredModel(ClassifierMixin, SavedModel):
    """A multi-label classifier that scores label sets by eq. 17-3 and finds the best by gradient steps.

    Subclasses say how to train (`_train`), how to infer (`_infer`), and the sign that makes the score an energy.
    """

    energy_sign: ClassVar[float]
    hidden: tuple[int, ...]
    label_units: int
    n_steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    n_inference_steps: int
    step_size: float
    random_state: Any
    verbose: bool | None

    def fit(self: Model, X: Any, Y: Any) -> Model:
        """Learn from inputs X (rows, features) and 0/1 labels Y (rows, labels)."""
        self._check_parameters()
        generator = torch.Generator().manual_seed(int(check_random_state(self.random_state).integers(2**63)))
        self.input_format_ = sparse_format(X)
        rows = self._rows(X, "fit")
        labels = check_labels(Y, rows.shape[0], "fit")
        self.label_names_ = label_names(Y, labels.shape[1])
        self.threshold_ = 0.5
        network = LabelNetwork(rows.shape[1], labels.shape[1], tuple(self.hidden), self.label_units)
        network.initialise(generator).standardise(*column_moments(rows))
        fitting = Fitting(generator, self.batch_size, self.weight_decay, self.verbose)
        self._train(network, rows, labels, fitting)
        if not all(bool(weights.isfinite().all()) for weights in network.parameters()):
            raise InputError(f"Training diverged with learning_rate={self.learning_rate}. Choose a smaller one.")
        self.history_ = fitting.history
        self._adopt(network)
        return self

    def _train(self, network: LabelNetwork, X: Any, Y: NDArray[np.float32], fitting: Fitting) -> None:
        raise NotImplementedError

    def _infer(self, unary: Tensor, network: FrozenNetwork) -> Tensor:
        raise NotImplementedError

    def _check_parameters(self) -> None:
        if not isinstance(self.hidden, (tuple, list)) or not self.hidden:
            raise InputError(f"hidden must be a tuple of layer widths such as (150,), got {self.hidden!r}.")
        for width in self.hidden:
            check_positive_int(width, "hidden")
        for name in ("label_units", "n_steps", "batch_size", "n_inference_steps"):
            check_positive_int(getattr(self, name), name)
        for name in ("learning_rate", "step_size"):
            check_number(getattr(self, name), name)
        check_number(self.weight_decay, "weight_decay", zero=True)

    def _adopt(self, network: LabelNetwork) -> None:
        """Make a trained network the one that answers."""
        self.network_ = network.requires_grad_(False)
        self.frozen_ = FrozenNetwork(network)
        self.n_features_in_ = self.input_format_.n_features
        if self.input_format_.columns:
            self.feature_names_in_ = np.array(self.input_format_.feature_names, dtype=object)
        self.n_outputs_ = len(self.label_names_)
        self.classes_ = np.arange(self.n_outputs_)

    # --- answers -----------------------------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray[np.int64]:
        """0/1 labels: (rows, labels)."""
        return (self.predict_proba(X) >= self.threshold_).astype(np.int64)

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Relaxed labels after inference, in [0, 1]: (rows, labels)."""
        check_is_fitted(self)
        return self._relaxed_labels(self.frozen_, self._rows(X, "predict"))

    def energy(self, X: Any, Y: Any) -> NDArray[np.float32]:
        """How badly each row of labels (0/1 or relaxed) fits its input, the lower the better: (rows,)."""
        check_is_fitted(self)
        rows = self._rows(X, "energy")
        labels = check_labels(Y, rows.shape[0], "energy", n_labels=self.n_outputs_, relaxed=True)
        answers = np.empty(rows.shape[0], dtype=np.float32)
        with torch.inference_mode():
            for block, unary in _unary_blocks(self.frozen_, rows):
                y = torch.zeros_like(unary)
                n_real = len(answers[block])
                y[:n_real] = torch.from_numpy(labels[block])
                answers[block] = self.energy_sign * score_of(unary, y, self.frozen_.coupling)[:n_real].numpy()
        return answers

    def score(self, X: Any, Y: Any, sample_weight: Any = None) -> float:
        """Mean example-F1 of the predictions (1 for a row without labels, rightly predicted so)."""
        predicted = torch.from_numpy(self.predict(X)).double()
        truth = check_labels(Y, len(predicted), "score", n_labels=self.n_outputs_)
        each = relaxed_f1(predicted, torch.from_numpy(truth).double()).numpy()
        return float(np.average(each, weights=sample_weight))

    def _relaxed_labels(self, network: FrozenNetwork, rows: Any) -> NDArray[np.float32]:
        answers = np.empty((rows.shape[0], network.n_labels), dtype=np.float32)
        with torch.inference_mode():
            for block, unary in _unary_blocks(network, rows):
                answers[block] = self._infer(unary, network)[: len(answers[block])].numpy()
        return answers

    def _rows(self, X: Any, caller: str) -> Any:
        """X as a float32 CSR matrix, whatever it came in."""
        rows = self.input_format_.encode(X, caller)
        with np.errstate(over="ignore"):
            entries = rows.data.astype(np.float32)
        if not np.isfinite(entries).all():
            raise InputError(
                f"{caller}: X holds {rows.data[~np.isfinite(entries)][0]}, expected numbers below 3e38 in size. "
                "Rescale that column, or remove the value."
            )
        return containers.csr_array((entries, rows.indices, rows.indptr), shape=rows.shape)

    # --- saving ------------------------------------------------------------------------------------------

    def _facts(self) -> dict[str, Any]:
        return {
            "input_format": self.input_format_.to_json(),
            "labels": self.label_names_,
            "threshold": self.threshold_,
        }

    def _restore(self, facts: dict[str, Any]) -> LabelNetwork:
        self.input_format_ = InputFormat.from_json(facts["input_format"])
        self.label_names_ = [str(name) for name in facts["labels"]]
        self.threshold_ = float(facts["threshold"])
        n_columns = self.input_format_.n_columns
        return LabelNetwork(n_columns, len(self.label_names_), tuple(self.hidden), self.label_units)

    def _fingerprint(self, X: Any, Y: Any) -> tuple[list[Any], list[NDArray[Any]]]:
        """What a trained model depends on besides its parameters: facts, and arrays."""
        input_format = sparse_format(X)
        rows = input_format.encode(X, "fit_or_load")
        labels = check_labels(Y, rows.shape[0], "fit_or_load")
        facts = [input_format.to_json(), label_names(Y, labels.shape[1]), rows.shape, labels.shape]
        return facts, [rows.indptr, rows.indices, rows.data, np.packbits(labels > 0)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags


def _unary_blocks(network: FrozenNetwork, rows: Any) -> Iterator[tuple[slice, Tensor]]:
    """a_i' F(x) a block of rows at a time, padded with rows to be dropped."""
    for start in range(0, rows.shape[0], BLOCK_ROWS):
        block = slice(start, min(start + BLOCK_ROWS, rows.shape[0]))
        n_padded = -(-(block.stop - start) // PADDING) * PADDING
        yield block, network.unary(rows[block], n_padded)


def sparse_format(X: Any) -> InputFormat:
    """The format of X, changed to give sparse rows whatever X comes in."""
    return replace(InputFormat.infer(X), kind="csr")
