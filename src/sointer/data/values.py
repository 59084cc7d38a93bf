"""The value that is explained: what the model returned for each sample's target, unchanged, or what is expected."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sointer.data.labels import table_labels
from sointer.data.outputs import Outputs
from sointer.data.reading import Kind
from sointer.data.targets import NO_REGIONS, Regions, at_targets, majority

ValueSource = Literal["model", "given", "expected"]
"""Where a value comes from: the model was queried, the caller gave its prediction, or the explainer expects it."""

Targets = npt.NDArray[np.int64]


def target_values(
    outputs: Outputs,
    predicted: npt.NDArray[Any],
    targets: Targets,
    regions: Regions = NO_REGIONS,
    sample: npt.NDArray[np.int64] | None = None,
) -> npt.NDArray[np.object_]:
    """What the model returned (samples, outputs), at each target: (targets,), as Python objects.

    `sample` is the sample that each target is about; default: one after the other. Of a region: the label of most of
    its pixels, or the mean of their numbers or probabilities.
    """
    sample = np.arange(len(targets)) if sample is None else sample
    values = np.empty(len(targets), dtype=object)
    single = np.flatnonzero(targets < outputs.n_outputs)
    values[single] = predicted[sample[single], targets[single]].astype(object)
    several = np.flatnonzero(targets >= outputs.n_outputs)
    if len(several) and outputs.graded.all():
        numbers = predicted[sample[several]].astype(np.float64)
        values[several] = at_targets(numbers, targets[several], regions).astype(object)
    elif len(several):
        inside = predicted[sample[several]]
        labels = np.empty(len(known := table_labels(inside)), dtype=object)
        labels[:] = known
        code_of = {label: code for code, label in enumerate(known)}
        codes = np.array([code_of[label] for label in inside.ravel().tolist()], dtype=np.int64).reshape(inside.shape)
        values[several] = labels[majority(codes, targets[several], regions)]
    return values


def with_values(
    outputs: Outputs,
    predicted: npt.NDArray[Any],
    values: npt.NDArray[Any],
    targets: Targets,
    regions: Regions = NO_REGIONS,
) -> npt.NDArray[Any]:
    """A copy of predictions (samples, outputs) in which each sample's target, or all of its region, has its value."""
    is_number = outputs.graded.all()
    table = predicted.astype(np.float64 if is_number else object)
    for row, (target, value) in enumerate(zip(targets.tolist(), values.tolist(), strict=True)):
        table[row, target if target < outputs.n_outputs else regions[target - outputs.n_outputs]] = value
    return table


def is_value(values: npt.NDArray[Any], value: Any, outputs: Outputs, targets: Targets) -> npt.NDArray[np.bool_]:
    """Which values are the one asked about; of probabilities, which are on its side of 0.5."""
    same = np.array([one == value for one in values.tolist()], dtype=bool)
    rows = of_kind("probability", outputs, targets)
    if isinstance(value, int | float | np.number):
        same[rows] = (values[rows].astype(np.float64) > 0.5) == (value > 0.5)
    return same


def by_side(values: npt.NDArray[Any], outputs: Outputs, targets: Targets) -> npt.NDArray[Any]:
    """Values to group samples by: probabilities as 0 or 1, everything else as it is."""
    grouped: npt.NDArray[Any] = values.copy()
    rows = of_kind("probability", outputs, targets)
    grouped[rows] = (values[rows].astype(np.float64) > 0.5).astype(np.int64).astype(object)
    return grouped


def of_kind(kind: Kind, outputs: Outputs, targets: Targets) -> npt.NDArray[np.bool_]:
    """Samples whose target is of this kind; all pixels of masks, and so their regions, are of one kind."""
    same = np.array([one == kind for one in outputs.kinds], dtype=bool)
    return np.asarray(same[np.minimum(targets, outputs.n_outputs - 1)])


def effects_on(outputs: Outputs, target: int, value: Any) -> str:
    """What effects are effects on, in words: the number, the probability, or the probability of the label explained."""
    if outputs.shape is not None:
        return "the log-odds that a mixture of two images follows this one"
    name = outputs.names[target]
    kind = outputs.kinds[target]
    if kind == "continuous":
        return name
    return f"the probability of {name}" if kind == "probability" else f"the probability that {name} is {value}"


def effects_from(removal: str, *, is_text: bool, is_image: bool = False) -> str:
    """Where effects begin, in words: a sample with everything removed, by the name of the removal."""
    if is_image:
        return "where nothing is known of either"
    if removal in ("marginal", "conditional"):
        return "on average"
    if is_text:
        return "without any words, on average" if removal.endswith(", marginal") else "without any words"
    if removal == "zero":
        return "where all is zero"
    if removal == "nan":
        return "where all is missing"
    return "where all is at its mean" if removal == "mean" else "with everything removed"


def tolerance_of(outputs: Outputs, targets: Targets) -> float | None:
    """By how many standard deviations numbers may differ and still agree; None unless all targets are numbers."""
    single = targets[targets < outputs.n_outputs]
    are_numbers = len(single) == len(targets) and all(outputs.kinds[t] == "continuous" for t in np.unique(single))
    return outputs.tolerance if are_numbers else None


def effects_on_output(
    effects: npt.NDArray[Any], value: npt.NDArray[Any], outputs: Outputs, target: int
) -> npt.NDArray[np.float64] | None:
    """(samples, units) effects towards a larger output; None where there is no larger, among three labels or more."""
    kind = outputs.kinds[target]
    if kind in ("probability", "continuous"):
        return effects
    labels = outputs.label_sets[target]
    if outputs.n_classes[target] != 2 or labels is None:
        return None
    return np.where(labels.encode(value)[:, None] == 1, effects, -effects)
