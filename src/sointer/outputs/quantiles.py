"""Numbers by their place among those seen: a code in (0, 1) that outliers and units cannot upset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

N_KNOTS = 65
LOWEST = 0.01
"""The code of the least number; the largest has one minus this."""
FENCE = 5.0
"""Numbers count as at most so many interquartile ranges beyond the quartiles (7.4 deviations of a normal output)."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Quantiles:
    """A distribution function, piecewise linear between knots; numbers beyond the outermost, such as outliers, count as
    these."""

    values: FloatArray
    """Rising."""
    levels: FloatArray
    deviation: float
    """The standard deviation of the numbers, those beyond the outermost knots counting as these; 1 if all are equal."""

    @classmethod
    def of(cls, numbers: npt.NDArray[Any]) -> Quantiles:
        column = _without_outliers(numbers.astype(np.float64))
        levels = np.linspace(LOWEST, 1 - LOWEST, N_KNOTS)
        knots = np.quantile(column, levels)
        # Numbers that occur often make knots equal: these become one, at the middle of their levels.
        values, place = np.unique(knots, return_inverse=True)
        levels = np.bincount(place, weights=levels) / np.bincount(place)
        deviation = float(np.clip(column, values[0], values[-1]).std())
        return cls(values, levels, deviation if deviation > 0 else float(column.std()) or 1.0)

    def encode(self, numbers: npt.NDArray[Any]) -> FloatArray:
        return np.asarray(np.interp(numbers, self.values, self.levels))

    def decode(self, codes: npt.NDArray[Any]) -> FloatArray:
        return np.asarray(np.interp(codes, self.levels, self.values))

    def to_json(self) -> dict[str, Any]:
        return {"values": self.values.tolist(), "levels": self.levels.tolist(), "deviation": self.deviation}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Quantiles:
        """The inverse of `to_json`; ValueError if it is no such curve."""
        values, levels = (np.asarray(data[name], dtype=np.float64) for name in ("values", "levels"))
        rising = all(
            part.ndim == 1 and np.isfinite(part).all() and (np.diff(part) > 0).all() for part in (values, levels)
        )
        if not rising or not 0 < len(values) == len(levels) <= N_KNOTS or not 0 < float(data["deviation"]) < np.inf:
            raise ValueError("quantiles are no rising curve")
        return cls(values, levels, float(data["deviation"]))


def _without_outliers(column: FloatArray) -> FloatArray:
    """Numbers drawn in to the fences: else a few that are a million times larger would be all that counts.

    Where half of the numbers are equal there are no fences: what is usual and what is far cannot be told apart.
    """
    low, high = np.quantile(column, [0.25, 0.75])
    return np.clip(column, low - FENCE * (high - low), high + FENCE * (high - low)) if high > low else column
