"""The smallest selection that suffices, found without queries: nothing, one unit, or as few as elimination finds."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sointer.masking.selection import Likely, first_units

SUFFICES, OF_WHOLE, AT_LEAST = 0.65, 0.95, 0.5
"""A selection suffices if the value is at least so probable; or, where that is less, at least so probable as with
everything there, but never less than the last."""
IN_MOST_DRAWS = 0.9
"""Instead of the first, where removal is random: the value should stay whatever is drawn, as `verify` checks."""
N_SINGLES, N_IN_PAIRS = 48, 16
"""So many of the best units are tried alone, and in pairs."""
MAX_NUMBERS = 2**24

Sets = list[tuple[int, NDArray[np.int64]]]
"""Selections: a row and its units."""


def smallest_sufficient(
    likely: Likely,
    rows: NDArray[np.int64],
    ranking: NDArray[np.int64],
    n_units: int,
    least: float = SUFFICES,
) -> NDArray[np.bool_]:
    """For each of some rows, few units that suffice for the value to stay: (rows, units).

    In the ranking of a row, -1 stands for no unit, at the end. `least` is how probable the value must be.
    """
    n_rows = len(ranking)
    units = [one[one >= 0] for one in ranking]
    found = first_units(ranking, np.full(n_rows, ranking.shape[1]), n_units)
    search = _Search(likely, rows, n_units, np.zeros(n_rows))
    whole = search.probabilities([(row, units[row]) for row in range(n_rows)])
    search.enough[:] = np.maximum(np.minimum(least, OF_WHOLE * whole), AT_LEAST)
    nothing = np.zeros(0, dtype=np.int64)
    rest = list(range(n_rows))
    for tried in (
        lambda row: [nothing],
        lambda row: [units[row][i : i + 1] for i in range(min(N_SINGLES, len(units[row])))],
    ):
        best = search.best([(row, one) for row in rest for one in tried(row)])
        for row, chosen in best.items():
            found[row] = False
            found[row, chosen] = True
        rest = [row for row in rest if row not in best]
    # Sets that suffice, from which one unit after the other is taken.
    sets = dict.fromkeys(rest, nothing)
    growing, size = rest, 2
    while growing:
        sets |= {row: units[row][:size] for row in growing}
        suffices = search.suffice([(row, sets[row]) for row in growing])
        growing = [row for row, good in zip(growing, suffices, strict=True) if not good and len(units[row]) > size]
        size *= 2
    shrinking = [row for row in rest if len(sets[row]) > 1]
    while shrinking:
        shrinking = search.shrink(sets, shrinking)
    large = [row for row in rest if len(sets[row]) > 2]
    pairs = [(row, np.array(two)) for row in large for two in combinations(units[row][:N_IN_PAIRS].tolist(), 2)]
    sets |= search.best(pairs)
    for row, chosen in sets.items():
        found[row] = False
        found[row, chosen] = True
    return found


class _Search:
    def __init__(self, likely: Likely, rows: NDArray[np.int64], n_units: int, enough: NDArray[np.float64]) -> None:
        self.likely, self.rows, self.n_units, self.enough = likely, rows, n_units, enough

    def probabilities(self, sets: Sets) -> NDArray[np.float64]:
        """Of the values, with these selections."""
        at_once = max(1, MAX_NUMBERS // self.n_units)
        parts = [np.zeros(0)]
        for start in range(0, len(sets), at_once):
            batch = sets[start : start + at_once]
            keep = np.zeros((len(batch), self.n_units), dtype=bool)
            owner = np.repeat(np.arange(len(batch)), [len(units) for _, units in batch])
            keep[owner, np.concatenate([units for _, units in batch])] = True
            parts.append(np.exp(self.likely(self.rows[[row for row, _ in batch]], keep)))
        return np.concatenate(parts)

    def suffice(self, sets: Sets) -> NDArray[np.bool_]:
        return np.asarray(self.probabilities(sets) >= self.enough[[row for row, _ in sets]])

    def best(self, sets: Sets) -> dict[int, NDArray[np.int64]]:
        """For each row with selections that suffice, the one with which the value is most probable."""
        found: dict[int, tuple[float, NDArray[np.int64]]] = {}
        for (row, units), p in zip(sets, self.probabilities(sets).tolist(), strict=True):
            if p >= self.enough[row] and (row not in found or p > found[row][0]):
                found[row] = (p, units)
        return {row: units for row, (_, units) in found.items()}

    def shrink(self, sets: dict[int, NDArray[np.int64]], rows: list[int]) -> list[int]:
        """Take as many units from each set as it can do without, judged one by one; rows whose sets became smaller."""
        alone = self.probabilities([(row, np.delete(sets[row], i)) for row in rows for i in range(len(sets[row]))])
        tried, start = [], 0
        for row in rows:
            order = np.argsort(-alone[start : start + len(sets[row])], kind="stable")
            start += len(sets[row])
            n = len(order) - 1
            while n >= 1:
                tried.append((row, np.delete(sets[row], order[:n])))
                n //= 2
        smaller = []
        for (row, units), good in zip(tried, self.suffice(tried), strict=True):
            if good and row not in smaller:  # the smallest is tried first
                sets[row] = units
                smaller.append(row)
        return [row for row in smaller if len(sets[row]) > 1]
