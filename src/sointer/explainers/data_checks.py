"""What explainers refuse or warn of when they see data and predictions: outputs, features and rows that mislead."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from sointer._support.containers import is_sparse
from sointer._support.validation import is_integer, message_of, some
from sointer.blackbox.box import BlackBox
from sointer.blackbox.replies import read_outputs
from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.data.reading import MAX_CLASSES, refuse_too_many_mask_classes
from sointer.data.sequences import TokenOutputs
from sointer.data.targets import target_values
from sointer.data.text_tables import TextTableFormat
from sointer.errors import (
    ConstantFeatureWarning,
    ConstantOutputWarning,
    FarInputWarning,
    InputError,
    NoOppositeWarning,
    SointerWarning,
    warn_caller,
)
from sointer.explainers.novelty import BY_CHANCE, UNWARNED, FarRows
from sointer.explanation import Explanation
from sointer.masking.removal import Removal
from sointer.masking.rows import ExplainedRows

MIN_RANGE = 3e-36
"""Of a column, as single precision ends at 1.2e-38."""
BYTES_PER_CELL = 14
"""What explaining takes at least, for every target and unit: scores, effects and their order."""


def refuse_beyond_memory(n_rows: int, n_units: int) -> None:
    """InputError, before the model is queried, for explanations that this machine has no room for."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return  # it does not say how much memory it has
    wanted = BYTES_PER_CELL * n_rows * n_units
    if wanted > memory > 0:
        raise InputError(
            f"explain: {n_rows:,} targets x {n_units:,} features, or groups of them, need at least "
            f"{wanted / 2**30:,.0f} GB for scores and effects, and this machine has {memory / 2**30:,.0f} GB. Explain "
            "fewer samples at a time, or use sointer.io.stream.stream_explain, which does so and writes them to a file."
        )


def refuse_too_many_classes(outputs: Outputs) -> None:
    """InputError if an output has more classes than can be learned."""
    if outputs.shape is not None:
        refuse_too_many_mask_classes(outputs.n_classes[0])
        return
    for name, kind, n_classes in zip(outputs.names, outputs.kinds, outputs.n_classes, strict=True):
        if kind == "categorical" and n_classes > MAX_CLASSES:
            labels = outputs.label_sets[outputs.names.index(name)]
            is_text = labels is not None and all(map(_is_words, labels.labels))
            such = f", such as {labels.labels[0]!r:.60}" if is_text and labels is not None else ""
            remedy = (
                "Give a function that returns labels, or a number for each of a few questions, such as whether a word "
                "is in the text that the model writes."
                if is_text
                else "Give a function that leaves it out or, if its values are numbers, set output_kind='continuous' "
                "for it."
            )
            raise InputError(
                f"output {name!r} has {n_classes} different values{such}, too many for classes (at most "
                f"{MAX_CLASSES}). {remedy}"
            )


def _is_words(label: object) -> bool:
    if not isinstance(label, str):
        return False
    try:
        float(label)
    except ValueError:
        return True
    return False


def refuse_model_without_missing(black_box: BlackBox, form: InputFormat, data: Any, removal: Removal) -> None:
    """Refuse missing values that the model cannot take, before it is queried.

    The sample with most of them, and one with everything missing where removal makes it so, are shown to the model,
    without counting; where it fails, the same sample with nothing missing tells why.
    """
    values, table = values_of(data, form)
    if table is None or not len(columns := table.missing_columns):
        return
    missing = values[:, columns] > 0
    most, without = int(missing.sum(axis=1).argmax()), np.flatnonzero(~missing.any(axis=1))[:1]
    impute = "impute them before fit, or let a pipeline do it in the model"
    shown = [(data[[most]], missing[most], "X has missing values", impute)]
    if removal.name == "nan":
        made = removal.references(1, np.random.default_rng(0))
        shown.append((made, made[0, columns] > 0, "removal='nan' makes features missing", "choose another removal"))
    for row, gone, what, remedy in shown:
        problem = _problem(black_box, form.decode(row)) if gone.any() else None
        if problem is None or (len(without) and _problem(black_box, form.decode(data[without])) is not None):
            continue
        names = [table.feature_names[i] for i in np.unique(table.column_feature[columns[gone]])]
        raise InputError(
            f"fit: {what} (such as {some(names)}), but the model does not take them: {problem}. If it should, see why "
            f"it fails; else {remedy}."
        )


def _problem(black_box: BlackBox, X: Any) -> str | None:
    """What goes wrong when a model is called, if anything does."""
    try:
        read_outputs(black_box.predict(X), 1, None)
    except Exception as error:
        return f"{type(error).__name__}: {message_of(error, limit=200)}"
    return None


def warn_about_outputs(outputs: Outputs, raw: NDArray[Any]) -> None:
    """Say which outputs never changed."""
    if outputs.shape is not None:
        _warn_about_masks(outputs, raw)
        return
    if outputs.constant.any():
        constant = [outputs.names[i] for i in np.flatnonzero(outputs.constant)]
        warn_caller(
            f"{len(constant)} of {outputs.n_outputs} outputs never changed in {len(raw)} predictions: "
            f"{some(constant)}. Their explanations mean little: no feature decided them. Give data on which they vary.",
            ConstantOutputWarning,
        )


def _warn_about_masks(outputs: Outputs, raw: NDArray[Any]) -> None:
    """That some pixels never change is usual, such as the corners of pictures; that none does is not."""
    if outputs.constant.all():
        warn_caller(
            f"no pixel of the masks ever changed in {len(raw)} predictions. Explanations mean little: nothing decided "
            "them. Give images on which the masks vary.",
            ConstantOutputWarning,
        )


def warn_about_no_opposite(explanation: Explanation) -> None:
    """Say for how many targets of images nothing could be learned."""
    if explanation.n_opposite is None:
        return
    n = int((explanation.n_opposite == 0).sum())
    if n:
        warn_caller(
            f"{n} of {len(explanation)} targets: no image in fit has another label there, so nothing could be learned "
            "about what decides them; what is said is a guess from other targets. explanation.n_opposite == 0 marks "
            "them. Give fit images on which the mask differs there.",
            NoOppositeWarning,
        )


def values_of(data: Any, input_format: InputFormat) -> tuple[Any, InputFormat | None]:
    """Encoded rows and their format; of tables with texts, those of the other columns; no format where all is words."""
    if isinstance(input_format, TextTableFormat):
        return data.values, input_format.table
    return data, None if input_format.has_words else input_format


def check_columns(data: Any, input_format: InputFormat | None) -> None:
    """Refuse columns too small for single precision, before anything is queried; warn of constant ones."""
    if input_format is None:
        return
    low, high = data.min(axis=0), data.max(axis=0)
    if is_sparse(data):
        low, high = low.toarray().ravel(), high.toarray().ravel()
    tiny = input_format.column_feature[(high > low) & (high - low < MIN_RANGE)]
    if len(tiny):
        names = [input_format.feature_names[feature] for feature in np.unique(tiny)]
        raise InputError(
            f"fit: {len(names)} of {input_format.n_features} features vary by less than {MIN_RANGE:g} in X, which "
            f"single precision cannot tell from constant ones: {some(names)}. Multiply them by a large number, as in "
            "another unit, or drop them."
        )
    varies = np.bincount(input_format.column_feature, weights=(low != high).astype(float)) > 0
    if input_format.image is not None and varies.any():
        return  # the corners of pictures are often all alike
    if not varies.all():
        names = [input_format.feature_names[i] for i in np.flatnonzero(~varies)]
        warn_caller(
            f"{len(names)} of {input_format.n_features} features are constant in X and can never be selected: "
            f"{some(names)}. Drop them, or give data on which they vary.",
            ConstantFeatureWarning,
        )


def warn_about_unseen_labels(source: ExplainedRows, targets: NDArray[np.int64], known: NDArray[np.bool_]) -> None:
    """Say which labels the model predicts that it never did during fit: nothing was learned about them."""
    if known.all() or source.predicted is None:
        return
    new = np.flatnonzero(~known)
    sample = source.sample_of_row[new]
    labels = target_values(source.outputs, source.predicted, targets[new], source.regions, sample)
    warn_caller(
        f"for {len(new)} of {len(known)} samples the model predicts labels that it never did during fit: "
        f"{some(sorted(set(labels.tolist()), key=str))}. `value` is what it predicts, but the features shown are those "
        "for the label that the explainer expects. Fit on data where every label occurs.",
        SointerWarning,
    )


def warn_about_number(target: Any, names: list[str]) -> None:
    """Say which output an integer means that is the index of one and the name of another, as of classes 1, 2, 3."""
    if is_integer(target) and 0 <= target < len(names) and str(target) in names and names[target] != str(target):
        warn_caller(
            f"target={target} is the index of output {names[target]!r}, which is explained; the output named "
            f"{str(target)!r} is another. Write target={names[target]!r} or target={str(target)!r} to say which is "
            "meant.",
            SointerWarning,
        )


def warn_about_far_rows(explanation: Explanation) -> None:
    """Say how many rows are unlike the training data."""
    if explanation.distance is not None:
        FarRows().add(explanation.distance).warn()


class OtherLabels:
    """Counts tokens to which the model gave another label than the explainer expects, over many parts; warns once.

    Parameters
    ----------
    outputs : the labels that fit saw.
    share : how often this happens in held-out sequences.
    """

    def __init__(self, outputs: TokenOutputs, share: float) -> None:
        self.outputs, self.share = outputs, min(max(share, 0.0), 1.0)
        self.n, self.unseen, self.other = 0, list[Any](), list[str]()

    def add(
        self,
        tokens: list[list[str]],
        labels: list[list[Any]],
        given: NDArray[np.int64],
        expected: NDArray[np.int64],
        wanted: NDArray[np.bool_],
    ) -> None:
        """Count the targets of these sequences of one length: codes and `wanted` are (sequences, n)."""
        self.n += int(wanted.sum())
        self.unseen += [labels[row][j] for row, j in np.argwhere(given < 0)]
        slack = 1 if self.outputs.kind == "number" else 0  # the ranges of a number have no clear limits
        differ = wanted & (given >= 0) & (abs(given - expected) > slack)
        for row, j in np.argwhere(differ).tolist():
            instead = self.outputs.classes[expected[row, j]]
            self.other.append(f"{tokens[row][j]!r:.40} ({labels[row][j]!r:.40}, expected {instead!r:.40})")

    def warn(self) -> None:
        """If labels are new, or more of them differ than chance explains."""
        if self.unseen:
            warn_caller(
                f"the model gave {len(self.unseen)} tokens labels that it never gave during fit: "
                f"{some(sorted(set(self.unseen), key=str))}. `value` is what it predicts, but the tokens shown are "
                "those for the label that the explainer expects. Fit on data where every label occurs.",
                SointerWarning,
            )
        if self.other and bdtrc(len(self.other) - 1, self.n, self.share) <= BY_CHANCE and not UNWARNED.get():
            warn_caller(
                f"the model gave {len(self.other)} of {self.n} targets another label than the explainer expects (of "
                f"held-out labels, {self.share:.1%}), such as {self.other[0]}, so the tokens shown for these may be "
                "wrong. Check them with explanation.verify(), or fit on data that hold such tokens.",
                FarInputWarning,
            )
