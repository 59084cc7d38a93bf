"""Splits of localities: where to cut, and which units a cut switches off."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

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
N_COMPONENTS, N_SUMMED_AT_FIRST, MAX_SUMMED, MAX_SPREADS = 3, 24, 8, 3.0
"""Of weighted sums: in how many directions shares are looked at, how many columns a sum may begin with and keep, and
how many standard deviations of a column count."""
MIN_WEIGHT, N_ERRORS, NEARLY_ALL = 0.1, 3.5, 0.98
"""Of the weight of a column, in standard deviations: its least share of the largest, and how many of its standard
errors; and the share of the explained variance below which a sum without a column explains less."""
MIN_REFITTED, MARGIN = 50, 1_000.0
"""Of weighted sums, too: how many redraws it takes to refit them, and the inverse of the penalty on weights."""
N_PLACES, N_TRIED, MAX_CONDITIONS = 20, 24, 300
"""Of two cuts together: how many places to try, in how many conditions two of one, and in how many one each of two."""
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


@dataclass(frozen=True, eq=False)
class Mixtures:
    """Whole samples with any units redrawn together."""

    row: IntArray
    kept: BoolArray
    """(mixtures, units)."""
    change: FloatArray


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """A sum of a few numeric columns, for splits that no single column can make."""

    columns: IntArray
    weights: FloatArray
    """The first is 1."""

    def of(self, conditions: FloatArray) -> FloatArray:
        return np.asarray(conditions[:, self.columns] @ self.weights)


def weighted_sums(conditions: FloatArray, columns: IntArray, shares: FloatArray) -> list[WeightedSum]:
    """The sums of columns that best predict the main directions in which shares vary, if it takes several columns."""
    values = conditions[:, columns]
    spread = values.std(axis=0)
    columns, values, spread = columns[spread > 0], values[:, spread > 0], spread[spread > 0]
    values = np.clip((values - values.mean(axis=0)) / spread, -MAX_SPREADS, MAX_SPREADS)
    found: list[WeightedSum] = []
    for component in main_components(shares):
        place, weights = _clear_weights(values, component)
        if len(place) > 1:
            place, weights = _without_idle(values, place, weights, component, shares)
        if len(place) > 1:
            found.append(WeightedSum(columns[place], _rounded(weights / spread[place])))
    return found


def refitted(
    found: WeightedSum, threshold: float, conditions: FloatArray, belongs_right: BoolArray, size: FloatArray
) -> tuple[WeightedSum, float]:
    """The sum and the threshold that best tell on which side units matter, by samples that their redraws changed."""
    values = conditions[:, found.columns]
    middle, spread = values.mean(axis=0), values.std(axis=0)
    if len(values) < MIN_REFITTED or not spread.all() or belongs_right.all() or not belongs_right.any():
        return found, threshold
    from sklearn.linear_model import LogisticRegression  # not above: it takes a third of a second, and few need it

    scaled = (values - middle) / spread
    line = LogisticRegression(C=MARGIN, max_iter=1000).fit(scaled, belongs_right, size / size.mean())
    weights = line.coef_[0] / spread
    if weights[0] <= 0:
        return found, threshold
    return WeightedSum(found.columns, _rounded(weights)), float((weights @ middle - line.intercept_[0]) / weights[0])


def _rounded(weights: FloatArray) -> FloatArray:
    """As they are shown: relative to the first, with three digits."""
    return np.array([float(f"{weight:.3g}") for weight in weights / weights[0]])


def main_components(shares: FloatArray) -> FloatArray:
    """The directions in which shares vary most: (directions, samples)."""
    components, size, _ = np.linalg.svd(shares - shares.mean(axis=0), full_matrices=False)
    return np.asarray((components * size).T[:N_COMPONENTS])


def _clear_weights(values: FloatArray, component: FloatArray) -> tuple[IntArray, FloatArray]:
    """The columns that clearly take part in the linear prediction of a component, heaviest first, and their weights."""
    place = np.argsort(-np.abs(values.T @ component), kind="stable")[:N_SUMMED_AT_FIRST]
    while True:
        own = values[:, place]
        weights = np.linalg.lstsq(own, component, rcond=None)[0]
        error = np.square(component - own @ weights).sum() / max(len(component) - len(place), 1)
        surely = np.abs(weights) >= N_ERRORS * np.sqrt(error * np.diag(np.linalg.pinv(own.T @ own)))
        keep = surely & (np.abs(weights) >= MIN_WEIGHT * np.abs(weights).max(initial=0.0))
        order = np.argsort(-np.abs(weights), kind="stable")
        order = order[keep[order]][:MAX_SUMMED]
        if len(order) == len(place) or len(order) < 2:
            return place[order], weights[order]
        place = place[order]


def _without_idle(
    values: FloatArray, place: IntArray, weights: FloatArray, component: FloatArray, shares: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Without the columns without which a split of the sum explains as much: effects also vary within its sides."""
    gain = _gain_of(values[:, place] @ weights, shares)
    while len(place) > 1:
        fewer = place[:-1]
        fitted = np.asarray(np.linalg.lstsq(values[:, fewer], component, rcond=None)[0], dtype=np.float64)
        if (own := _gain_of(values[:, fewer] @ fitted, shares)) < NEARLY_ALL * gain:
            break
        place, weights, gain = fewer, fitted, max(own, gain)
    return place, weights


def _gain_of(condition: FloatArray, shares: FloatArray) -> float:
    gains, _ = split_gains(condition[:, None], shares, max(10, len(shares) // 20))
    return float(gains[0])


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

    @property
    def swaps(self) -> bool:
        """Whether other units matter on either side, by redraws alone.

        Sums and pairs of cuts, of which there are many, must do that: far from any decision hardly anything matters.
        """
        return min(self.confirmed) >= MIN_SWITCHED_OFF

    def switches(self, *, clearly: bool) -> bool:
        """Whether enough is switched off: on one side, or on both where the split explains less.

        There redraws must tell it, or it must be more.
        """
        if clearly:
            return max(self.off) >= MIN_SWITCHED_OFF
        return min(self.confirmed) + min(self.off) >= MIN_BOTH_OFF


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


class Cut(NamedTuple):
    """Where samples are divided: at or below the threshold, and above it."""

    condition: int
    threshold: float


def two_cuts(conditions: FloatArray, shares: FloatArray) -> tuple[float, Cut, Cut]:
    """Where two cuts together tell how effects are shared out, and one alone may not: what they explain, and both.

    Two of one condition, the lower first, where both small and large values differ from those between; or one each of
    two, as in exclusive or.
    """
    varies = np.flatnonzero(conditions.std(axis=0) > 0)
    best = (0.0, Cut(-1, 0.0), Cut(-1, 0.0))
    if not 0 < len(varies) <= MAX_CONDITIONS:
        return best
    n, places = len(shares), np.linspace(0, 1, N_PLACES + 1)[1:-1]
    counted, whole = np.column_stack([np.ones(n), shares]), float((shares.mean(axis=0) ** 2).sum())
    from_middle, components = conditions[:, varies] - np.median(conditions[:, varies], axis=0), main_components(shares)

    @lru_cache
    def cut(j: int) -> tuple[FloatArray, IntArray]:
        cuts = np.unique(np.quantile(conditions[:, j], places))
        return cuts, np.searchsorted(cuts, conditions[:, j])

    def add(i: int, j: int, explained: FloatArray) -> None:
        nonlocal best
        gain = float(explained.max()) / n - whole
        if gain > best[0]:
            a, b = np.unravel_index(np.argmax(explained), explained.shape)
            best = gain, Cut(i, float(cut(i)[0][a])), Cut(j, float(cut(j)[0][b]))

    far = np.abs(from_middle) - np.abs(from_middle).mean(axis=0)
    related = np.abs(components @ (far / np.maximum(far.std(axis=0), 1e-12))).max(axis=0)
    for i in varies[np.argsort(-related, kind="stable")[:N_TRIED]].tolist():
        cuts, cell = cut(i)
        low = np.zeros((len(cuts) + 1, counted.shape[1]))
        np.add.at(low, cell, counted)
        low = low.cumsum(axis=0)
        below, above = low[:-1, None], low[-1] - low[None, :-1]
        explained = _explained(below) + _explained(above) + _explained(low[-1] - below - above)
        add(i, i, np.triu(explained, 1))
    signs = np.sign(from_middle)
    for component in components if len(varies) > 1 else ():
        together = np.abs(np.triu((signs * component[:, None]).T @ signs, 1))
        i, j = (int(varies[place]) for place in np.unravel_index(np.argmax(together), together.shape))
        (cuts, cell), (others, other_cell) = cut(i), cut(j)
        sums = np.zeros((len(cuts) + 1, len(others) + 1, counted.shape[1]))
        np.add.at(sums, (cell, other_cell), counted)
        low, explained = sums.cumsum(axis=0)[:-1], np.zeros((len(cuts), len(others)))
        for side in (low, sums.sum(axis=0) - low):
            lower = side.cumsum(axis=1)[:, :-1]
            explained += _explained(lower) + _explained(side.sum(axis=1, keepdims=True) - lower)
        add(i, j, explained)
    return best


def _explained(sums: FloatArray) -> FloatArray:
    """The squared mean shares of parts, times how many there are: sums are (..., 1 + units), the number first."""
    return np.asarray((sums[..., 1:] ** 2).sum(axis=-1) / np.maximum(sums[..., 0], 1))


def best_threshold(at: FloatArray, belongs_right: BoolArray, size: FloatArray, threshold: float) -> float:
    """Where to cut so that the least of what belongs to one side lies on the other: the middle, if anywhere."""
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
    n_redraws, rate = mean_by_unit(unit, changes, len(effects))
    order = [i for i in np.argsort(rate, kind="stable").tolist() if n_redraws[i] >= MIN_REDRAWS]
    n_least = max(MIN_NOISY_UNITS, (len(order) + 1) // 2)
    alike = np.array(order[:n_least], dtype=np.int64)
    for _ in range(N_NOISE_ROUNDS if len(order) > n_least else 0):
        share = float((rate * n_redraws)[alike].sum() / n_redraws[alike].sum())
        high = share + 2.5 * np.sqrt(share * (1 - share) / np.maximum(n_redraws, 1))
        alike = np.array([i for i in order if rate[i] <= high[i]], dtype=np.int64)
        quiet = (rate[alike] == 0) & (
            share * n_redraws[alike] >= MAX_QUIET
        )  # noise would have changed something there too
        if share == 0 or len(alike) < n_least or quiet.any():
            return 0.0
    rest = alike[effects[alike] < CLEARLY_ON * effects.max()]
    return float((rate * n_redraws)[rest].sum() / n_redraws[rest].sum()) if len(rest) >= n_least else 0.0
