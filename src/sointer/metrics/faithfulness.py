"""Does the model say the same on the selected features alone? Measures on predictions already computed."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Average: TypeAlias = Literal["macro", "micro", "example"]


class PostHocF1(NamedTuple):
    """Three comparisons of the truth, the predictions, and the predictions on selected features alone."""

    plain: float
    """The truth against the predictions: how good the model is."""
    post_hoc: float
    """The truth against the predictions on selected features."""
    relative_post_hoc: float
    """The predictions against the predictions on selected features: how good the explanations are."""


def f1(truth: npt.ArrayLike, prediction: npt.ArrayLike, average: Average = "macro") -> float:
    """F1 of 0/1 labels, one row per sample and one column per tag.

    "macro" averages over the tags, "example" over the samples, in both cases those with at least one positive
    on either side; "micro" counts all labels together. Without any positive the result is NaN.
    """
    expected, given = _as_labels(truth), _as_labels(prediction)
    if expected.shape != given.shape:
        raise ValueError(f"the two sides differ in shape: {expected.shape} and {given.shape}")
    if average == "macro":
        axis: int | None = 0
    elif average == "example":
        axis = 1
    elif average == "micro":
        axis = None
    else:
        raise ValueError(f'average must be "macro", "micro" or "example", got {average!r}')
    in_both = np.atleast_1d((expected & given).sum(axis=axis))
    positives = np.atleast_1d(expected.sum(axis=axis) + given.sum(axis=axis))
    counted = positives > 0
    if not counted.any():
        return float("nan")
    return float(np.mean(2 * in_both[counted] / positives[counted]))


def post_hoc_f1(
    truth: npt.ArrayLike, original: npt.ArrayLike, explained: npt.ArrayLike, average: Average = "macro"
) -> PostHocF1:
    """Plain, post-hoc and relative post-hoc F1 of 0/1 labels, one row per sample and one column per tag.

    original holds the model's labels on whole inputs. Column t of explained holds its label for tag t when
    only the features selected for tag t are left; see target_columns.
    """
    return PostHocF1(
        plain=f1(truth, original, average),
        post_hoc=f1(truth, explained, average),
        relative_post_hoc=f1(original, explained, average),
    )


def target_columns(outputs_by_target: npt.ArrayLike, targets: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
    """From all outputs under each target's selection, keep that target's own output.

    outputs_by_target has axes (target, sample, output); the result has one row per sample, one column per
    target. Without targets, there must be one for each output, in order.
    """
    outputs = np.asarray(outputs_by_target)
    if outputs.ndim != 3:
        raise ValueError(f"outputs_by_target needs the axes (target, sample, output), got shape {outputs.shape}")
    chosen = np.arange(outputs.shape[2]) if targets is None else np.asarray(targets, dtype=np.int64)
    if chosen.shape != (outputs.shape[0],):
        raise ValueError(f"{outputs.shape[0]} selections need as many targets, got {chosen.size}")
    columns: npt.NDArray[Any] = outputs[np.arange(len(chosen)), :, chosen].T
    return columns


def agreement(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Share of equal entries of two arrays of one shape; on the labels of a target, this is its fidelity."""
    left, right = np.asarray(a), np.asarray(b)
    if left.shape != right.shape:
        raise ValueError(f"the two sides differ in shape: {left.shape} and {right.shape}")
    if left.size == 0:
        raise ValueError("agreement is undefined on empty arrays")
    return float(np.mean(left == right))


def _as_labels(values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    labels = np.asarray(values)
    if labels.ndim != 2:
        raise ValueError(f"labels need one row per sample and one column per tag, got shape {labels.shape}")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("labels must be 0 or 1")
    return labels.astype(np.bool_)
