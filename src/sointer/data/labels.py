"""The labels of one output: plain Python values in a fixed order, whatever dtype they come in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Label: TypeAlias = "str | int | float | bool"

CHUNK_ENTRIES = 2**16
MANY_NUMBERS = 1000
MAX_SPAN = 2**16  # of whole labels that are looked up in an array


def column_labels(column: npt.NDArray[Any]) -> list[Label]:
    """The different values of a column, sorted; numbers before strings if it holds both."""
    if column.dtype.kind != "O":
        return list(np.unique(column).tolist())
    return sorted(set(column.tolist()), key=lambda value: (isinstance(value, str), value))


def table_labels(table: npt.NDArray[Any]) -> list[Label]:
    """The different values of a whole table, sorted; only some of them where there are thousands of numbers."""
    found: set[Label] = set()
    step = max(1, CHUNK_ENTRIES // max(1, table.shape[1]))
    for start in range(0, len(table), step):
        found.update(column_labels(table[start : start + step].ravel()))
        if table.dtype.kind == "f" and len(found) > MANY_NUMBERS:
            break  # numbers, not labels
    return sorted(found, key=lambda value: (isinstance(value, str), value))


@dataclass(frozen=True)
class Classes:
    """The labels of one output in the order of their codes."""

    labels: tuple[Label, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_zero_one(self) -> bool:
        """True for exactly 0 and 1 (or False and True), in that order."""
        return self.labels == (0, 1)

    def values(self) -> npt.NDArray[Any]:
        """The labels as an array: (n_classes,)."""
        if len({isinstance(label, str) for label in self.labels}) > 1:
            mixed = np.empty(len(self.labels), dtype=object)
            mixed[:] = self.labels
            return mixed
        return np.array(self.labels)

    def encode(self, column: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The code of every value of a column, -1 where it is not a known label."""
        code_of = {label: code for code, label in enumerate(self.labels)}
        span = self._span() if column.dtype.kind in "biu" and column.dtype != np.uint64 else None
        if span is not None:
            return self._look_up(column, *span)
        if column.dtype.kind == "O":
            return np.array([code_of.get(value, -1) for value in column.tolist()], dtype=np.int64)
        found, where = np.unique(column, return_inverse=True)
        codes = np.array([code_of.get(value, -1) for value in found.tolist()], dtype=np.int64)
        return np.asarray(codes[where.reshape(-1)] if len(found) else codes)

    def _span(self) -> tuple[int, int] | None:
        """The smallest and largest label, if all are whole numbers that lie near each other."""
        if not self.labels or not all(isinstance(one, (int, float)) and one == int(one) for one in self.labels):
            return None
        low, high = int(min(self.labels)), int(max(self.labels))
        return (low, high) if high - low < MAX_SPAN else None

    def _look_up(self, column: npt.NDArray[Any], low: int, high: int) -> npt.NDArray[np.int64]:
        code_of = np.full(high - low + 3, -1, dtype=np.int64)  # one place more on either side, for what is not known
        for code, label in enumerate(self.labels):
            code_of[int(label) - low + 1] = code
        return np.asarray(code_of[np.clip(column.astype(np.int64), low - 1, high + 1) - low + 1])

    def extend(self, labels: Sequence[Label]) -> Classes:
        """These labels, then those that are new; existing codes do not move."""
        return Classes((*self.labels, *(label for label in labels if label not in self.labels)))

    def to_json(self) -> list[Any]:
        """Plain JSON, which keeps str, int, float and bool apart by itself."""
        return [pack(label) for label in self.labels]

    @classmethod
    def from_json(cls, data: list[Any]) -> Classes:
        """The inverse of `to_json`."""
        return cls(tuple(_known(unpack(label)) for label in data))


def pack(label: Label | None) -> Any:
    """A label for JSON; numpy scalars become Python's own."""
    return label.item() if isinstance(label, np.generic) else label


def unpack(value: Any) -> Label | None:
    """A label read from JSON."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(f"a label must be a string, number, boolean or null, got {value!r}")


def _known(label: Label | None) -> Label:
    if label is None:
        raise TypeError("a class label must not be null")
    return label


SMALL = 1e-100
"""Squares of numbers below may be too small for double precision."""
N_KNOTS = 65
LOWEST = 0.01
"""The code of the least number; the largest has one minus this."""
FENCE = 5.0
"""Numbers count as at most so many interquartile ranges beyond the quartiles (7.4 deviations of a normal output)."""
WIDE_FENCE = 3.0
"""Of skewed numbers: so many times the distance of the outermost fiftieth from the median, beyond the former."""
RANK_WEIGHT = 0.2
"""How much ranks count in codes that are nearly linear: enough to distinguish numbers that lie close together."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Quantiles:
    """How numbers are encoded: piecewise linear between knots, by default as their distribution function.

    Numbers beyond the outermost, such as outliers, count as these.
    """

    values: FloatArray
    """Rising."""
    levels: FloatArray
    """The code of each."""
    deviation: float
    """The standard deviation of the numbers, outliers left out; 1 if all are equal."""
    shares: FloatArray
    """The share of all numbers that lie below each."""

    @classmethod
    def of(cls, numbers: npt.NDArray[Any]) -> Quantiles:
        """The distribution of these numbers, outliers left out."""
        column = _without_outliers(numbers.astype(np.float64))
        levels = np.linspace(LOWEST, 1 - LOWEST, N_KNOTS)
        knots = np.quantile(column, levels)
        # Numbers that occur often make knots equal: these become one, at the middle of their levels.
        values, place = np.unique(knots, return_inverse=True)
        levels = np.bincount(place, weights=levels) / np.bincount(place)
        deviation = _deviation(np.clip(column, values[0], values[-1])) or _deviation(column) or 1.0
        return cls(values, levels, deviation, levels)

    def nearly_linear(self, numbers: npt.NDArray[Any]) -> Quantiles:
        """Codes that rise nearly in proportion to these numbers, so that a change of the code is one of the number.

        Ranks, of numbers in two distant clusters, rise most within the clusters and not at all between them.
        """
        column = _without_outliers(numbers.astype(np.float64), wide=True)
        shares = np.linspace(0.0, 1.0, N_KNOTS)
        values, place = np.unique(np.quantile(column, shares), return_inverse=True)
        if len(values) == 1:
            return self
        shares = np.bincount(place, weights=shares) / np.bincount(place)
        linear = (values - values[0]) / (values[-1] - values[0])
        levels = LOWEST + (1 - 2 * LOWEST) * (RANK_WEIGHT * shares + (1 - RANK_WEIGHT) * linear)
        if not (np.diff(levels) > 0).all():  # numbers too close to be distinguished
            return self
        return Quantiles(values, levels, self.deviation, shares)

    def encode(self, numbers: npt.NDArray[Any]) -> FloatArray:
        """Numbers as levels from 0 to 1."""
        return np.asarray(np.interp(numbers, self.values, self.levels))

    def decode(self, codes: npt.NDArray[Any]) -> FloatArray:
        """Levels as numbers: the inverse of `encode`."""
        return np.asarray(np.interp(codes, self.levels, self.values))

    def rank(self, codes: npt.NDArray[Any]) -> FloatArray:
        """The share of all numbers that lie below those with these codes."""
        return np.asarray(np.interp(codes, self.levels, self.shares))

    @property
    def middle(self) -> float:
        """The code of the median."""
        return float(np.interp(0.5, self.shares, self.levels))

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `from_json`."""
        curve = {name: getattr(self, name).tolist() for name in ("values", "levels", "shares")}
        return {**curve, "deviation": self.deviation}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Quantiles:
        """The inverse of `to_json`; ValueError if it is no such curve."""
        curve = [data["values"], data["levels"], data.get("shares", data["levels"])]  # earlier versions have no shares
        values, levels, shares = (np.asarray(part, dtype=np.float64) for part in curve)
        rising = all(
            part.ndim == 1 and np.isfinite(part).all() and (np.diff(part) > 0).all()
            for part in (values, levels, shares)
        )
        alike = 0 < len(values) == len(levels) == len(shares) <= N_KNOTS
        if not rising or not alike or not 0 < float(data["deviation"]) < np.inf:
            raise ValueError("quantiles are no rising curve")
        return cls(values, levels, float(data["deviation"]), shares)


def _deviation(column: FloatArray) -> float:
    """The standard deviation, also of numbers whose squares would be too small to be distinguished from 0."""
    size = float(np.abs(column).max(initial=0.0))
    return float((column / size).std()) * size if 0 < size < SMALL else float(column.std())


def _without_outliers(column: FloatArray, *, wide: bool = False) -> FloatArray:
    """Numbers drawn in to the fences: else a few that are a million times larger would be all that counts.

    Where half of the numbers are equal there are no fences: typical and distant values cannot be distinguished.
    """
    lowest, low, middle, high, highest = np.quantile(column, [0.02, 0.25, 0.5, 0.75, 0.98])
    if low == high:
        return column
    least, most = low - FENCE * (high - low), high + FENCE * (high - low)
    if wide:
        least = min(least, lowest - WIDE_FENCE * (middle - lowest))
        most = max(most, highest + WIDE_FENCE * (highest - middle))
    return np.clip(column, least, most)
