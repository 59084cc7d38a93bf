"""Targets: what a user may point at, outputs or places in a mask; and the value that is explained there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sointer._support import containers
from sointer._support.validation import is_integer, resolve_targets
from sointer.data.labels import table_labels
from sointer.errors import InputError

if TYPE_CHECKING:
    from sointer.data.outputs import Outputs
    from sointer.data.reading import Kind

IntArray = npt.NDArray[np.int64]
Regions: TypeAlias = npt.NDArray[np.bool_]
"""Which outputs belong to each region: (n_regions, n_outputs)."""

NO_REGIONS: Regions = np.zeros((0, 0), dtype=bool)


def at_targets(table: npt.NDArray[Any], targets: IntArray, regions: Regions = NO_REGIONS) -> npt.NDArray[Any]:
    """The entry of a table (rows, n_outputs) at each row's target; of a region, the mean of its outputs: (rows,)."""
    n_outputs = table.shape[1]
    single = targets < n_outputs
    if single.all():
        return np.asarray(table[np.arange(len(table)), targets])
    values = np.empty(len(targets))
    values[single] = table[np.flatnonzero(single), targets[single]]
    for target in np.unique(targets[~single]):
        rows = np.flatnonzero(targets == target)
        values[rows] = table[np.ix_(rows, np.flatnonzero(regions[target - n_outputs]))].mean(axis=1)
    return values


def target_columns(table: npt.NDArray[Any], targets: IntArray, regions: Regions = NO_REGIONS) -> npt.NDArray[Any]:
    """Every row of a table (rows, n_outputs) at every target: (rows, targets)."""
    n_outputs = table.shape[1]
    single = targets < n_outputs
    if single.all():
        return np.asarray(table[:, targets])
    values = np.empty((len(table), len(targets)))
    values[:, single] = table[:, targets[single]]
    for place in np.flatnonzero(~single):
        values[:, place] = table[:, regions[targets[place] - n_outputs]].mean(axis=1)
    return values


def majority(codes: npt.NDArray[Any], targets: IntArray, regions: Regions = NO_REGIONS) -> IntArray:
    """The code of each row's target; of a region, that of most of its outputs, the smallest if several are: (rows,)."""
    n_outputs = codes.shape[1]
    single = targets < n_outputs
    chosen = np.empty(len(targets), dtype=np.int64)
    chosen[single] = codes[np.flatnonzero(single), targets[single]]
    for target in np.unique(targets[~single]):
        rows = np.flatnonzero(targets == target)
        inside = codes[np.ix_(rows, np.flatnonzero(regions[target - n_outputs]))]
        present = np.unique(inside)
        counts = np.stack([(inside == code).sum(axis=1) for code in present], axis=1)
        chosen[rows] = present[counts.argmax(axis=1)]
    return chosen


def outputs_of(targets: IntArray, n_outputs: int, regions: Regions = NO_REGIONS) -> IntArray:
    """All outputs that are a target or belong to one, sorted."""
    inside = np.zeros(n_outputs, dtype=bool)
    inside[targets[targets < n_outputs]] = True
    for target in np.unique(targets[targets >= n_outputs]):
        inside |= regions[target - n_outputs]
    return np.flatnonzero(inside)


FORMS = (
    "a pixel (row, column), a box np.s_[4:10, 8:20], a set of pixels {(3, 4), (3, 5)}, a boolean mask of the size of "
    "the image, or a list with one of these per image"
)


@dataclass(frozen=True, eq=False)
class Targets:
    """The target of every row: a pixel by its number, or n_outputs + the number of a region."""

    index: IntArray
    regions: Regions
    region_names: list[str]


def resolve_mask_targets(target: Any, names: Sequence[str], shape: tuple[int, int], n_rows: int) -> Targets:
    """The targets of `n_rows` masks of height and width `shape`; outputs may also be given by number or name."""
    reader = _Reader(names, shape)
    target = _as_numpy(target)
    if target is None:
        raise InputError(f"target must be {FORMS}, got None. Say which pixel to explain, such as target=(0, 0).")
    if reader.is_one(target):
        index = np.full(n_rows, reader.read(target), dtype=np.int64)
    else:
        each = reader.split(target)
        if len(each) != n_rows:
            raise InputError(
                f"target must hold one pixel or region per image ({n_rows}), got {len(each)}. Give one for all images, "
                "a pixel as a tuple (row, column), or exactly one per image."
            )
        index = reader.read_all(each)
    return Targets(index, reader.regions(), list(reader.region_names))


def pixels_of_targets(targets: Any, names: Sequence[str], shape: tuple[int, int]) -> IntArray:
    """All pixels of the targets that were given to fit, in any form and number; sorted."""
    reader = _Reader(names, shape)
    targets = _as_numpy(targets)
    each = [targets] if reader.is_one(targets) else reader.split(targets)
    if len(each) == 0:
        raise InputError("fit: targets is empty; name at least one pixel, or leave it out for all.")
    return outputs_of(reader.read_all(each), len(names), reader.regions())


@dataclass
class _Reader:
    """Reads targets one by one and gives equal regions the same number."""

    names: Sequence[str]
    shape: tuple[int, int]
    region_names: list[str] = field(default_factory=list)
    _masks: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    _number_of: dict[bytes, int] = field(default_factory=dict)
    _times_named: Counter[str] = field(default_factory=Counter)

    def is_one(self, target: Any) -> bool:
        """Whether this is one target, rather than one for each image."""
        if isinstance(target, np.ndarray):
            return target.ndim == 0 or (target.ndim == 2 and target.dtype == np.bool_)
        if isinstance(target, tuple):
            return len(target) == 2 and all(is_integer(one) or isinstance(one, slice) for one in target)
        return isinstance(target, (str, bytes, set, frozenset, dict, slice)) or not hasattr(target, "__len__")

    def split(self, target: Any) -> list[Any]:
        """Targets in a list or array, one per image."""
        if isinstance(target, np.ndarray):
            pairs = target.ndim == 2 and target.shape[1] == 2 and target.dtype.kind in "iu"
            masks = target.ndim == 3 and target.dtype == np.bool_
            if not (pairs or masks or target.ndim == 1):
                raise InputError(
                    f"target is {containers.describe(target)}, expected {FORMS}; as an array, integers of shape (n, 2) "
                    "or booleans of shape (height, width) or (n, height, width). Convert a mask with mask.astype(bool)."
                )
            return [tuple(pair) for pair in target.tolist()] if pairs else list(target)
        return list(target)

    def read_all(self, each: list[Any]) -> IntArray:
        return np.array([self.read(_as_numpy(one)) for one in each], dtype=np.int64)

    def read(self, target: Any) -> int:
        """The number of one pixel or region."""
        if isinstance(target, tuple) and len(target) == 2 and all(is_integer(one) for one in target):
            return self._pixel(target)
        if isinstance(target, tuple) and len(target) == 2 and any(isinstance(one, slice) for one in target):
            return self._box(target)
        if isinstance(target, (set, frozenset)):
            return self._set(target)
        if isinstance(target, np.ndarray) and target.ndim == 2 and target.dtype == np.bool_:
            return self._mask(target)
        if isinstance(target, str) or is_integer(target):
            return int(resolve_targets(target, self.names, 1)[0])
        raise InputError(f"target must be {FORMS}, got {target!r:.80} of type {type(target).__name__}.")

    def regions(self) -> Regions:
        return np.stack(self._masks) if self._masks else np.zeros((0, len(self.names)), dtype=bool)

    def _pixel(self, pixel: Any) -> int:
        row, column = (int(one) for one in pixel)
        height, width = self.shape
        if not (0 <= row < height and 0 <= column < width):
            raise InputError(
                f"target ({row}, {column}) lies outside the image, which has {height} rows and {width} columns; "
                f"expected (row, column) from (0, 0) to ({height - 1}, {width - 1})."
            )
        return row * width + column

    def _box(self, box: tuple[Any, Any]) -> int:
        rows, columns = (_span(one) for one in box)
        height, width = self.shape
        words = f"box {_in_words(rows, height)}, {_in_words(columns, width)}"
        for span, side in ((rows, height), (columns, width)):
            if not all(end is None or -side <= end <= side for end in (span.start, span.stop)):
                raise InputError(
                    f"target {words} reaches outside the image, which has {height} rows and {width} columns. "
                    "Give a box within it."
                )
        mask = np.zeros(self.shape, dtype=bool)
        mask[rows, columns] = True
        if not mask.any():
            raise InputError(f"target {words} is empty, expected at least one pixel. Give start < stop on both sides.")
        return self._add(mask, words)

    def _set(self, pixels: Any) -> int:
        if not pixels:
            raise InputError("target is an empty set, expected at least one pixel (row, column).")
        wrong = [p for p in pixels if not (isinstance(p, tuple) and len(p) == 2 and all(is_integer(one) for one in p))]
        if wrong:
            raise InputError(f"target as a set must hold pixels (row, column), got {wrong[0]!r:.60} in it.")
        mask = np.zeros(len(self.names), dtype=bool)
        mask[[self._pixel(pixel) for pixel in pixels]] = True
        return self._add(mask.reshape(self.shape), None)

    def _mask(self, mask: npt.NDArray[np.bool_]) -> int:
        height, width = self.shape
        if mask.shape != self.shape:
            raise InputError(
                f"target is a mask of {mask.shape[0]} x {mask.shape[1]} pixels, but the images have {height} x "
                f"{width}. Give a mask of the size of the images."
            )
        if not mask.any():
            raise InputError("target is a mask without any True pixel, expected at least one.")
        return self._add(mask, None)

    def _add(self, mask: npt.NDArray[np.bool_], name: str | None) -> int:
        pixels = np.flatnonzero(mask)
        if len(pixels) == 1:
            return int(pixels[0])
        key = np.packbits(mask).tobytes()
        if key not in self._number_of:
            self._number_of[key] = len(self._masks)
            self._masks.append(mask.ravel())
            self.region_names.append(self._unused(name or _around(mask)))
        return len(self.names) + self._number_of[key]

    def _unused(self, name: str) -> str:
        """Different regions have different names."""
        self._times_named[name] += 1
        times = self._times_named[name]
        return name if times == 1 else f"{name} [{times}]"


def _as_numpy(target: Any) -> Any:
    return containers.tensor_to_numpy(target) if containers.is_tensor(target) else target


def _span(one: Any) -> slice:
    return one if isinstance(one, slice) else slice(int(one), int(one) + 1)


def _in_words(span: slice, side: int) -> str:
    start, stop, step = span.indices(side)
    outside = span.stop is not None and span.stop > side
    end = span.stop if outside else stop
    return f"{start}:{end}" + (f":{step}" if step != 1 else "")


def _around(mask: npt.NDArray[np.bool_]) -> str:
    rows, columns = np.nonzero(mask)
    return f"{len(rows)} pixels around ({round(float(rows.mean()))}, {round(float(columns.mean()))})"


ValueSource = Literal["model", "given", "expected"]
"""Where a value comes from: the model was queried, the caller gave its prediction, or the explainer expects it."""


def target_values(
    outputs: Outputs,
    predicted: npt.NDArray[Any],
    targets: IntArray,
    regions: Regions = NO_REGIONS,
    sample: IntArray | None = None,
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
    targets: IntArray,
    regions: Regions = NO_REGIONS,
) -> npt.NDArray[Any]:
    """A copy of predictions (samples, outputs) in which each sample's target, or all of its region, has its value."""
    is_number = outputs.graded.all()
    table = predicted.astype(np.float64 if is_number else object)
    for row, (target, value) in enumerate(zip(targets.tolist(), values.tolist(), strict=True)):
        table[row, target if target < outputs.n_outputs else regions[target - outputs.n_outputs]] = value
    return table


def is_value(values: npt.NDArray[Any], value: Any, outputs: Outputs, targets: IntArray) -> npt.NDArray[np.bool_]:
    """Which values are the one asked about; of probabilities, which are on its side of 0.5."""
    same = np.array([one == value for one in values.tolist()], dtype=bool)
    rows = of_kind("probability", outputs, targets)
    if isinstance(value, int | float | np.number):
        same[rows] = (values[rows].astype(np.float64) > 0.5) == (value > 0.5)
    return same


def by_side(values: npt.NDArray[Any], outputs: Outputs, targets: IntArray) -> npt.NDArray[Any]:
    """Values to group samples by: probabilities as 0 or 1, everything else as it is."""
    grouped: npt.NDArray[Any] = values.copy()
    rows = of_kind("probability", outputs, targets)
    grouped[rows] = (values[rows].astype(np.float64) > 0.5).astype(np.int64).astype(object)
    return grouped


def of_kind(kind: Kind, outputs: Outputs, targets: IntArray) -> npt.NDArray[np.bool_]:
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


def tolerance_of(outputs: Outputs, targets: IntArray) -> float | None:
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
