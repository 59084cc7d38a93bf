"""From what users give to what explainers work on: the model, the data, predictions and targets, all checked."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import as_pandas, describe, is_dask, is_frame, row_labels
from sointer._support.validation import check_k, check_random_state, resolve_targets, some
from sointer.blackbox.adapters import as_black_box
from sointer.blackbox.box import N_COMPARED, BlackBox
from sointer.blackbox.mask_replies import WRONG, labels_of
from sointer.blackbox.replies import read_outputs, refuse_other_labels, refuse_other_order
from sointer.data.checks import refuse_one_dimension
from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.data.targets import NO_REGIONS, Targets, outputs_of, pixels_of_targets, resolve_mask_targets
from sointer.data.text_tables import TextTableFormat, chosen_text_columns
from sointer.data.texts import TextFormat, is_text
from sointer.errors import BlackBoxError, InputError, TextColumnWarning, warn_caller
from sointer.explainers.data_checks import (
    check_columns,
    refuse_model_without_missing,
    refuse_too_many_classes,
    values_of,
)
from sointer.masking.build import make_groups, make_removal
from sointer.masking.groups import Groups
from sointer.masking.removal import Background, Removal
from sointer.masking.rows import ExplainedRows, MaskableRows, Subject

AUTO_K = 10
ALL = "all"
N_IMAGES = 8
"""Images by which an estimator chooses its method."""


class ReadsModelAndData:
    """What an explainer knows about the model and the data, read by fit and by explain."""

    model: Any
    k: int | Literal["auto"]
    removal: Any
    feature_names: Sequence[str] | None
    output_names: Sequence[str] | None
    output_kind: str | None
    tolerance: float | None
    groups: Any
    method: str | None
    batch_size: int | None
    random_state: Any
    method_: str | None = None
    """Of an estimator, the method that is explained, "predict" or "predict_proba"."""
    n_explain_queries_: int = 0
    """Rows sent to the black box by all calls of explain since fit."""

    @property
    def reads_text(self) -> bool:
        """Whether it was fitted on a list of texts; see `has_words` for tables with text columns too."""
        return self.input_format_.kind == "text"

    @property
    def has_words(self) -> bool:
        """Whether words are among its features: fitted on texts, or on a table with text columns."""
        return self.input_format_.has_words

    def _read(self, X: Any, removal: Any, *, seed: int | None = None) -> Subject:
        """Check and encode what the user gave; called by fit itself, so that warnings point to its caller.

        `seed` replaces a random_state that was left open.
        """
        if is_dask(X):
            raise InputError(
                f"fit: X is a dask {type(X).__name__}, expected rows in memory; some thousand rows are enough to learn "
                "from. Fit on a sample, such as X.sample(frac=0.01, random_state=0).compute() of a dataframe or "
                "X[:10_000].compute() of an array; sointer.integrations.dask.explain() takes the whole collection."
            )
        refuse_one_dimension(X, "fit")
        groups = self.groups
        columns = self._text_columns(X)
        if is_text(X):
            if self.feature_names is not None:
                raise InputError("feature_names has no effect on texts, whose words are their names; leave it out.")
            input_format: InputFormat = TextFormat.of(list(X), groups)
            data = input_format.encode(X, caller="fit")
        elif columns:
            if self.feature_names is not None:
                raise InputError(
                    "feature_names cannot be given with text columns, whose words are features too; rename the columns "
                    "of X instead."
                )
            input_format, data = TextTableFormat.read_frame(X, columns, groups)
        else:
            may_miss = isinstance(removal, str) and removal == "nan"
            input_format, data = InputFormat.read(X, feature_names=self.feature_names, may_miss=may_miss)
        if input_format.has_words:
            groups = None if callable(groups) or isinstance(groups, str) else groups
        groups = make_groups(groups, input_format.feature_names, input_format.column_feature, input_format)
        k = check_k(self.k, groups.n_units)
        rng = check_random_state(self.random_state if seed is None else seed)
        made = make_removal(removal, data, input_format, rng=rng)
        if input_format.has_words:
            data.token = getattr(made, "token", None)
        check_columns(*values_of(data, input_format))
        trained_k = min(AUTO_K, groups.n_units) if k == "auto" else k
        black_box = self._black_box(self.method or self._method_for_kind())
        compared = np.unique(np.linspace(0, data.shape[0] - 1, N_COMPARED if input_format.image is None else N_IMAGES))
        black_box.prepare(input_format.decode(data[compared.astype(np.int64)]))
        refuse_model_without_missing(black_box, input_format, data, made)
        return Subject(MaskableRows(data, black_box, input_format, groups, made), trained_k, rng)

    def _text_columns(self, X: Any) -> list[Hashable]:
        """The columns of a DataFrame whose words are features: those that the user names, else found by their look."""
        wanted: Any = getattr(self, "text_columns", None)
        table = as_pandas(X)
        if not is_frame(table):
            if wanted is not None:
                raise InputError(
                    f"text_columns={wanted!r} is for DataFrames, but X is {describe(X)}; leave it out, or give one."
                )
            return []
        found = chosen_text_columns(table, wanted)
        if found and wanted is None:
            warn_caller(
                f"{'column' if len(found) == 1 else 'columns'} {some(found)} read as text, so that words are features; "
                f"pass text_columns={found!r} to confirm, or text_columns=[] to read no column so.",
                TextColumnWarning,
            )
        return found

    def _method_for_kind(self) -> str | None:
        """The method of an estimator that returns outputs of the kind that the user wants, if that says it."""
        is_estimator = hasattr(self.model, "predict_proba") and not isinstance(self.model, BlackBox)
        if not is_estimator or self.output_kind is None:
            return None
        kinds: Any = self.output_kind.values() if isinstance(self.output_kind, Mapping) else self.output_kind
        if isinstance(kinds, str):
            return "predict_proba" if kinds == "probability" else "predict"
        return "predict_proba" if "probability" in kinds else None

    def _black_box(self, method: str | None) -> BlackBox:
        if isinstance(self.model, BlackBox) and self.batch_size is not None:
            raise InputError(
                f"batch_size={self.batch_size!r} was given together with a BlackBox, which has its own "
                f"({self.model.batch_size}); set it there."
            )
        return as_black_box(self.model, method=method, batch_size=self.batch_size)

    def _black_box_again(self) -> BlackBox:
        """The model of a fitted explainer as a black box, queried for what fit queried: labels or probabilities."""
        of_kind = "predict_proba" if self.outputs_.kind == "probability" else "predict"
        method = self.method_ or of_kind
        if not isinstance(self.model, BlackBox) and callable(getattr(self.model, "predict_proba", None)):
            return self._black_box(method)
        black_box = self._black_box(None)
        black_box.settle_method(method)
        return black_box

    def _outputs(self, raw: NDArray[Any], black_box: BlackBox) -> Outputs:
        """What the outputs are, judging by many predictions."""
        names, shape = self._names(black_box), black_box.output_shape
        kind = self._kind_of(black_box)
        outputs = Outputs.infer(raw, names=names, kind=kind, tolerance=self.tolerance, shape=shape)
        refuse_too_many_classes(outputs)
        return outputs

    def _check_first(self, raw: NDArray[Any], black_box: BlackBox, targets: Any) -> None:
        """Refuse wrong names and targets; a few predictions say too little about the outputs to refuse more."""
        names, shape = self._names(black_box), black_box.output_shape
        fitted_targets(targets, Outputs.infer(raw, names=names, kind=self._kind_of(black_box), shape=shape))

    def _kind_of(self, black_box: BlackBox) -> Any:
        """The kind of the outputs as the user says, else as the model does; None where neither does."""
        return black_box.declared_kind if self.output_kind is None else self.output_kind

    def _names(self, black_box: BlackBox) -> Sequence[str] | None:
        return self.output_names if self.output_names is not None else black_box.output_names

    def _adopt_subject(self, subject: Subject, outputs: Outputs, targets: list[int]) -> None:
        self.black_box_: BlackBox | None = subject.rows.model
        self.method_ = subject.rows.model.method
        self.input_format_: InputFormat = subject.rows.input_format
        self.groups_: Groups = subject.rows.groups
        self.removal_: Removal = subject.rows.removal
        self.background_ = Background.of(subject.rows.data, subject.rng)
        self.outputs_: Outputs = outputs
        self.targets_ = targets
        self.n_features_in_ = subject.rows.input_format.n_features
        self.feature_names_in_ = np.array(subject.rows.input_format.feature_names, dtype=object)
        self.n_outputs_ = outputs.n_outputs
        self.output_names_ = list(outputs.names)
        self.n_explain_queries_ = 0

    def _source(self, X: Any, predicted: Any) -> ExplainedRows:
        refuse_one_dimension(X, "explain")
        labels = row_labels(X)
        if not self.reads_text and (isinstance(X, str) or is_text(X)):
            raise InputError(
                "explain: X holds strings, but the explainer was not fitted on strings; give what fit was given."
            )
        data = self.input_format_.encode(X, caller="explain")
        if self.has_words:
            data.token = getattr(self.removal_, "token", None)
        if predicted is not None:
            predicted = self._read_predicted(predicted, data.shape[0], X)
        return ExplainedRows(
            data,
            self.black_box_,
            self.input_format_,
            self.groups_.bind(data),
            self.removal_,
            self.outputs_,
            self.background_,
            predicted,
            index=labels,
        )

    def _read_predicted(self, predicted: Any, n_rows: int, X: Any = None) -> NDArray[Any]:
        shape = self.outputs_.shape
        many = "s" * (n_rows != 1)
        each = (
            f"row{many} of {self.n_outputs_} outputs"
            if shape is None
            else f"mask{many} of {shape[0]} x {shape[1]} pixels"
        )
        wanted = f"explain: predicted must be what the model predicts for X, {n_rows} {each}"
        predicted = as_pandas(predicted)
        if is_frame(predicted):
            names = [str(column) for column in predicted.columns]
            if sorted(names) == sorted(self.output_names_):
                predicted = predicted.iloc[:, [names.index(name) for name in self.output_names_]]
            elif any(isinstance(column, str) for column in predicted.columns):
                raise InputError(f"{wanted}, got the columns {some(names)}; name them {some(self.output_names_)}.")
        if self.outputs_.kind == "probability":
            predicted = _of_second_class(predicted, self.n_outputs_)
        try:
            refuse_other_order(predicted, X)
            refuse_other_labels(predicted, X)
            table = labels_of(read_outputs(predicted, n_rows, self.n_outputs_, shape).table)
            self.outputs_.encode(table)
        except BlackBoxError as error:
            got = str(error).removeprefix(WRONG).split(". ")[0]
            call = self.method_ or "predict"
            raise InputError(f"{wanted}; got {got}. Pass model.{call}(X), whole and in the order of X.") from error
        return table

    def _with_targets(self, source: ExplainedRows, target: Any) -> tuple[ExplainedRows, NDArray[np.int64]]:
        """The source with the regions that are explained, and the target of every row."""
        if isinstance(target, str) and target == ALL and ALL not in self.output_names_:
            return source.for_each(self._every_target())
        found = self._resolve(target, source.n_samples)
        return replace(source, regions=found.regions, region_names=found.region_names), found.index

    def _every_target(self) -> list[int]:
        """What target="all" stands for."""
        if self.outputs_.shape is not None:
            raise InputError(
                f'target="all" would explain all {self.n_outputs_} pixels of every image; give a list of pixels or '
                "regions."
            )
        return self.targets_

    def _resolve(self, target: Any, n_rows: int) -> Targets:
        """The target of each of n_rows rows, refused where fit did not learn it."""
        shape, fitted = self.outputs_.shape, [self.output_names_[t] for t in self.targets_]
        if target is None:
            if len(self.targets_) != 1:
                raise InputError(
                    f"target is missing; choose one of the outputs {some(fitted)} by name or number, or give one per "
                    "row."
                )
            target = self.targets_[0]
        if shape is None:
            found = Targets(resolve_targets(target, self.output_names_, n_rows), NO_REGIONS, [])
        else:
            found = resolve_mask_targets(target, self.output_names_, shape, n_rows)
        wanted = outputs_of(found.index, self.n_outputs_, found.regions)
        unknown = wanted[~np.isin(wanted, self.targets_)]
        if len(unknown):
            raise InputError(
                f"target {self.output_names_[unknown[0]]!r} was not among the targets given to fit ({some(fitted)}); "
                "fit again with it, or without targets= for all outputs."
            )
        return found


def _of_second_class(predicted: Any, n_outputs: int) -> Any:
    """What predict_proba returned as one column per output: a table (samples, 2) of each, or the only one."""
    if isinstance(predicted, list) and len(predicted) == n_outputs and all(np.ndim(p) == 2 for p in predicted):
        tables = [np.asarray(one) for one in predicted]
        return np.column_stack([one[:, 1] for one in tables]) if all(one.shape[1] == 2 for one in tables) else predicted
    if n_outputs == 1 and isinstance(predicted, np.ndarray) and predicted.ndim == 2 and predicted.shape[1] == 2:
        return predicted[:, 1]
    return predicted


def fitted_targets(targets: Any, outputs: Outputs) -> list[int]:
    """The outputs that fit is to explain, by number; by default all of them.

    In masks, these are all pixels of the pixels, boxes, sets and masks that it was given.
    """
    if targets is None:
        return list(range(outputs.n_outputs))
    if outputs.shape is not None:
        return [int(pixel) for pixel in pixels_of_targets(targets, outputs.names, outputs.shape)]
    if isinstance(targets, str | int | np.integer):
        raise InputError(f"fit: targets must be a list of outputs, got {targets!r}; write targets=[{targets!r}].")
    chosen = list(dict.fromkeys(int(t) for t in resolve_targets(list(targets), outputs.names, len(targets))))
    if not chosen:
        raise InputError("fit: targets is empty; name at least one output, or leave it out for all.")
    return chosen
