"""Splits of localities: where to cut, and which units a cut switches off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

MIN_SWITCHED_OFF, MIN_BOTH_OFF = 0.2, 0.4
"""Share of one side's effects that must belong to units that are off on the other side; the second where it is less
sure: where the split explains little, and where labels, far from where they change, seem to need fewer units."""
MIN_REDRAWS = 8
CLEARLY_ON = 0.35
"""Share of the largest effect on the energy at which a unit matters, where the black box is noisy."""
MIN_NOISY_UNITS, N_NOISE_ROUNDS, MAX_QUIET = 3, 4, 2.0
MIN_SAVED, MAX_LEAK = 0.2, 0.02
"""Of a clean split: what redraws must confirm to be switched off, for a sample on average, and how little may leak."""
LEAK_PRICE = 10.0
"""Of splits, that is best which switches most off; units that are off but still change the target cost so much."""


@dataclass(frozen=True, eq=False)
class Redraws:
    """Samples with one unit redrawn: what the black box changed."""

    row: IntArray
    """Which of the whole samples it was."""
    unit: IntArray
    change: FloatArray
    """Absolute change of the target's code."""

    def condition_of(self, conditions: FloatArray, condition: int) -> FloatArray:
        """What splits on a condition look at, for each redraw."""
        return np.asarray(conditions[self.row, condition])


@dataclass(frozen=True, eq=False)
class Mixtures:
    """Whole samples with any units redrawn together."""

    row: IntArray
    kept: BoolArray
    """(mixtures, units)."""
    change: FloatArray


@dataclass(frozen=True, eq=False)
class Split:
    """A condition and a threshold, and which units it switches off."""

    condition: int
    threshold: float
    band: float
    off_left: BoolArray
    off_right: BoolArray
    off: tuple[float, float]
    """Share of the left side's effects that belongs to units off on the right, and the other way round."""
    confirmed: tuple[float, float]
    """The same, of units about which redraws tell."""
    leak: float
    """Mean squared change by units where they are off, against where they are on."""
    left: float
    """Share of the samples that are on the left."""

    @property
    def saved(self) -> float:
        """Share of effects that is switched off, for a sample on average; the less, the less cleanly."""
        saved = (1 - self.left) * self.off[0] + self.left * self.off[1]
        return saved * max(0.0, 1 - LEAK_PRICE * self.leak)

    @property
    def is_clean(self) -> bool:
        """Whether redraws alone say that much is switched off, and that next to nothing of it still matters there."""
        confirmed = (1 - self.left) * self.confirmed[0] + self.left * self.confirmed[1]
        return confirmed >= MIN_SAVED and self.leak <= MAX_LEAK

    def switches(self, *, clearly: bool) -> bool:
        """Whether enough is switched off: on one side, or on both where the split explains less.

        There redraws must tell it, or it must be more.
        """
        if clearly:
            return max(self.off) >= MIN_SWITCHED_OFF
        return min(self.confirmed) >= MIN_SWITCHED_OFF or min(self.off) >= MIN_BOTH_OFF


def split_gains(conditions: FloatArray, shares: FloatArray, n_least: int) -> tuple[FloatArray, FloatArray]:
    """For every condition, the variance of shares that its best split explains, and the threshold of that split."""
    n, n_conditions = conditions.shape
    gains, thresholds = np.full(n_conditions, -np.inf), np.zeros(n_conditions)
    n_left = np.arange(1, n)
    usable = (n_left >= n_least) & (n - n_left >= n_least)
    whole = float((shares.mean(axis=0) ** 2).sum())
    for j in range(n_conditions):
        order = np.argsort(conditions[:, j], kind="stable")
        values = conditions[order, j]
        possible = usable & (values[1:] > values[:-1])
        if not possible.any():
            continue
        left = np.cumsum(shares[order], axis=0)[:-1]
        right = left[-1] + shares[order[-1]] - left
        explained = (left**2).sum(axis=1) / n_left + (right**2).sum(axis=1) / (n - n_left)
        best = int(np.argmax(np.where(possible, explained, -np.inf)))
        gains[j], thresholds[j] = explained[best] / n - whole, (values[best] + values[best + 1]) / 2
    return gains, thresholds


def best_threshold(at: FloatArray, belongs_right: BoolArray, size: FloatArray, threshold: float) -> float:
    """Where to cut so that the least change lies on the side on which its unit is off: the middle, if anywhere."""
    order = np.argsort(at, kind="stable")
    at, right = at[order], np.where(belongs_right, size, 0.0)[order]
    left = size[order] - right
    # Cutting before place i leaves the first i on the left.
    wrong = np.concatenate([[0.0], np.cumsum(right)]) + np.concatenate([[0.0], np.cumsum(left[::-1])])[::-1]
    cuts = np.concatenate([[-np.inf], (at[:-1] + at[1:]) / 2, [np.inf]])
    wrong[1:-1][at[:-1] == at[1:]] = np.inf  # there is no cut between equal values
    best = np.flatnonzero(wrong <= wrong.min() + 1e-9 * size.sum())
    nearest = cuts[best[np.argmin(np.abs(cuts[best] - threshold))]]
    return float(nearest) if np.isfinite(nearest) else threshold


def mean_by_unit(unit: IntArray, values: NDArray[Any], n_units: int) -> tuple[IntArray, FloatArray]:
    """How many values each unit has, and their mean."""
    count = np.bincount(unit, minlength=n_units)
    return count, np.bincount(unit, weights=values, minlength=n_units) / np.maximum(count, 1)


def noise_floor(unit: NDArray[np.int64], changes: NDArray[np.float64], effects: NDArray[np.float64]) -> float:
    """How often labels change by noise alone: as often as by redraws of most units, if others stand out on the energy.

    A model that is wrong in a way that looks random, but is always the same, gives the same label when queried again;
    what redraws of irrelevant units change is noise. (If these units are not irrelevant but weak, redrawing all of them
    together changes more than that, and the others will not be found to suffice.)
    """
    asked, rate = mean_by_unit(unit, changes, len(effects))
    order = [i for i in np.argsort(rate, kind="stable").tolist() if asked[i] >= MIN_REDRAWS]
    n_least = max(MIN_NOISY_UNITS, (len(order) + 1) // 2)
    alike = np.array(order[:n_least], dtype=np.int64)
    for _ in range(N_NOISE_ROUNDS if len(order) > n_least else 0):
        share = float((rate * asked)[alike].sum() / asked[alike].sum())
        high = share + 2.5 * np.sqrt(share * (1 - share) / np.maximum(asked, 1))
        alike = np.array([i for i in order if rate[i] <= high[i]], dtype=np.int64)
        quiet = (rate[alike] == 0) & (share * asked[alike] >= MAX_QUIET)  # noise would have changed something there too
        if share == 0 or len(alike) < n_least or quiet.any():
            return 0.0
    rest = alike[effects[alike] < CLEARLY_ON * effects.max()]
    return float((rate * asked)[rest].sum() / asked[rest].sum()) if len(rest) >= n_least else 0.0
