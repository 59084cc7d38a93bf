"""Partial effects: how the effect of a unit depends on its value, over many samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from sointer.masking.unit_values import UnitValues

MAX_UNITS, MAX_POINTS, MAX_CATEGORIES = 8, 60, 12
MAX_NUMBERS = 80_000
"""Values and effects of one page, about."""
MIN_TREND = 0.6


@dataclass(frozen=True, eq=False)
class PartialEffect:
    """Of one unit and target: values of some samples, and the unit's effect on the output there."""

    values: NDArray[Any]
    """Numbers; of a category, numbers of `categories`."""
    effects: NDArray[np.float64]
    """Towards a larger output: a number, a probability, or the probability of the second label."""
    categories: tuple[str, ...] = ()
    size: float = 0.0
    """The mean size of the effect, over all samples."""
    trend: float = 0.0
    """Rank correlation of value and effect, from -1 to 1; 0 for categories."""

    @property
    def direction(self) -> int:
        """1 where larger values raise the output, -1 where they lower it, 0 where neither holds throughout."""
        return int(np.sign(self.trend)) if abs(self.trend) >= MIN_TREND else 0


def points_per_effect(n_targets: int) -> int:
    """How many samples are drawn of each unit and target: fewer where there are many targets."""
    return max(10, min(MAX_POINTS, MAX_NUMBERS // (2 * MAX_UNITS * max(n_targets, 1))))


def partial_effects(
    effects: NDArray[np.float64] | None, needed: NDArray[np.bool_], values: UnitValues, n_targets: int
) -> dict[int, PartialEffect]:
    """The units needed in most samples, and how their effects (samples, units) depend on their values."""
    if effects is None:
        return {}
    counts = needed.sum(axis=0)
    n_points, found = points_per_effect(n_targets), {}
    for unit in np.argsort(-counts, kind="stable")[:MAX_UNITS].tolist():
        column = values.column(unit) if counts[unit] else None
        if column is not None:
            found[unit] = _partial(column, effects[:, unit], n_points)
    return found


def _partial(values: NDArray[Any], effects: NDArray[np.float64], n_points: int) -> PartialEffect:
    size = float(np.abs(effects).mean())
    if values.dtype == object:
        names, counts = np.unique(values.astype(str), return_counts=True)
        kept = names[np.argsort(-counts, kind="stable")][:MAX_CATEGORIES]
        mean = np.array([effects[values == name].mean() for name in kept])
        order = np.argsort(mean)
        return PartialEffect(np.arange(len(kept)), mean[order], tuple(kept[order].tolist()), size)
    there = np.isfinite(values)
    if not there.any():
        return PartialEffect(np.array([0]), np.array([effects.mean()]), ("missing",), size)
    values, effects, trend = values[there], effects[there], 0.0
    if len(np.unique(values)) >= 2 and effects.std() > 0:
        trend = float(np.corrcoef(rankdata(values), rankdata(effects))[0, 1])
    shown = np.unique(np.linspace(0, len(values) - 1, n_points).astype(np.int64))
    order = shown[np.argsort(values[shown], kind="stable")]
    return PartialEffect(values[order], effects[order], (), size, trend)
