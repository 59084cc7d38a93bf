"""From scores to a selection: which units can be chosen, how they rank, how few are confirmed or suffice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from sointer.masking.groups import Groups
from sointer.masking.removal import Removal

MAX_ONE_BY_ONE, SHARE_ONE_BY_ONE = 24, 0.25
"""So many units, and so large a share of all, are quicker found one after the other than by sorting."""
RANKED_NUMBERS = 2**21
"""Ranked at a time."""
DOUBT = 0.05
"""How often a bound of a share of draws may be wrong."""


@dataclass(frozen=True, eq=False)
class Scored:
    """What is known of the units of rows, all (rows, units), and of the values that are explained, (rows,)."""

    scores: NDArray[np.float32]
    """Larger is more relevant."""
    values: NDArray[Any]
    """The encoded value of each row's target."""
    key: NDArray[np.float32] | None = None
    """What units are ranked by, where that is not the scores."""
    effects: NDArray[np.float32] | None = None
    """Signed, in the unit of the output."""
    base: NDArray[np.float32] | None = None
    """(rows,) what the output is on average, from which effects lead away."""
    needed: NDArray[np.bool_] | None = None
    """Units that matter."""
    locality: NDArray[np.int64] | None = None
    """(rows,) the node of the locality table that each row lies in."""
    n_opposite: NDArray[np.int64] | None = None
    """(rows,) of images: how many of those in fit have another label at the target."""

    @property
    def ranked_by(self) -> NDArray[np.float32]:
        """Units that are needed come before all others."""
        key = self.scores if self.key is None else self.key
        if self.needed is None:
            return key
        low, high = key.min(axis=1, keepdims=True), key.max(axis=1, keepdims=True)
        # The others move down: keys may be in any unit, tiny or huge, and those of units that are needed stay exact.
        size = np.maximum(np.abs(low), np.abs(high)).astype(np.float64)
        down = 1.001 * (high.astype(np.float64) - low) + 1e-6 * size + 1e-30
        moved = np.empty_like(key)
        np.subtract(key, down, out=moved, casting="same_kind")  # in double precision, but not all of it at a time
        np.copyto(moved, key, where=self.needed)
        return moved


class Confirms(Protocol):
    """Queries the model whether a row reduced to a selection keeps its target's value."""

    def agreement(
        self, keep_units: NDArray[np.bool_], targets: NDArray[np.int64], *, rows: Any, n_draws: int, seed: int
    ) -> NDArray[np.float64]:
        """The share of draws in which the prediction stays, for each row: (rows,)."""


def allowed_units(removal: Removal, groups: Groups, rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Units of dense encoded rows that differ from their reference, the only ones that can be chosen: (rows, units).

    Groups that differ from row to row must be those of these rows.
    """
    return groups.any_column(removal.differs(rows))


def rank_units(scores: NDArray[np.float32], allowed: NDArray[np.bool_], n: int | None = None) -> NDArray[np.int64]:
    """The n (or all) best units of each row, best first; units that equal their reference are -1, at the end.

    Of equal scores the first comes first, however many are ranked.
    """
    n = scores.shape[1] if n is None else min(n, scores.shape[1])
    few = n <= min(MAX_ONE_BY_ONE, SHARE_ONE_BY_ONE * scores.shape[1])
    order, at_once = np.empty((len(scores), n), dtype=np.int64), max(1, RANKED_NUMBERS // max(1, scores.shape[1]))
    for start in range(0, len(scores), at_once):  # ranking takes six times the memory of the scores
        rows = slice(start, start + at_once)
        key = np.where(allowed[rows], scores[rows], np.float32(-np.inf))
        order[rows] = _one_by_one(key, n) if few else _sorted(key, n)
    return order


def _one_by_one(scores: NDArray[np.float32], n: int) -> NDArray[np.int64]:
    rows, nothing = np.arange(len(scores)), np.float32(-np.inf)
    order = np.empty((len(scores), n), dtype=np.int64)
    for place in range(n):
        best = scores.argmax(axis=1)
        order[:, place] = np.where(scores[rows, best] == nothing, -1, best)
        scores[rows, best] = nothing
    return order


def _sorted(scores: NDArray[np.float32], n: int) -> NDArray[np.int64]:
    bits = (scores + np.float32(0.0)).view(np.int32)  # no -0.0
    rising = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)  # whole numbers in the order of the scores
    places = (~rising.astype(np.int64) << 32) | np.arange(scores.shape[1])  # so no two are equal
    if n < places.shape[1]:
        places = np.partition(places, n - 1, axis=1)[:, :n]
    places.sort(axis=1)
    order: NDArray[np.int64] = places & 0xFFFFFFFF
    if not np.isneginf(scores).any():
        return order
    return np.where(np.take_along_axis(scores, order, axis=1) == -np.inf, -1, order)


def first_units(ranking: NDArray[np.int64], sizes: NDArray[np.int64], n_units: int) -> NDArray[np.bool_]:
    """Boolean mask (rows, units) of the first `sizes` units of each row's ranking."""
    positions = np.arange(ranking.shape[1])
    used = (positions < sizes[:, None]) & (ranking >= 0)
    mask = np.zeros((len(ranking), n_units + 1), dtype=bool)
    rows = np.broadcast_to(np.arange(len(ranking))[:, None], ranking.shape)
    mask[rows[used], ranking[used]] = True
    return mask[:, :n_units]


@dataclass(frozen=True)
class EnergyConfirms:
    """Takes the energy's word for the black box's, so that explaining costs no query."""

    likely: Callable[[NDArray[np.int64], NDArray[np.bool_]], NDArray[np.float64]]
    """Log-probability that reduced rows keep their target's value."""
    least: float = 0.9

    def agreement(
        self, keep_units: NDArray[np.bool_], targets: NDArray[np.int64], *, rows: Any, n_draws: int, seed: int
    ) -> NDArray[np.float64]:
        """1 where the energy finds the prediction likely enough, else 0: (rows,)."""
        return np.asarray(self.likely(rows, keep_units) >= np.log(self.least), dtype=np.float64)


def smallest_confirmed(
    source: Confirms,
    ranking: NDArray[np.int64],
    targets: NDArray[np.int64],
    *,
    n_draws: int = 5,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Per row, how many of the best units suffice for the black box to repeat its target in every draw.

    Sizes are doubled until they suffice and the last gap is then halved. A row that is not confirmed even
    with all its units (a black box that changes its mind) keeps them all.
    """
    n_rows, n_units = ranking.shape
    most = np.maximum((ranking >= 0).sum(axis=1), 1)

    def confirmed(rows: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
        keep = first_units(ranking[rows], sizes, n_units)
        return np.asarray(source.agreement(keep, targets[rows], rows=rows, n_draws=n_draws, seed=seed) == 1.0)

    low = np.zeros(n_rows, dtype=np.int64)  # not confirmed (or nothing)
    high = most.copy()  # confirmed (or everything)
    size = np.ones(n_rows, dtype=np.int64)
    found = np.zeros(n_rows, dtype=bool)
    growing = np.arange(n_rows)
    while len(growing):
        suffices = confirmed(growing, size[growing])
        done = suffices | (size[growing] >= most[growing])
        found[growing[suffices]] = True
        high[growing[suffices]] = size[growing[suffices]]
        low[growing[~done]] = size[growing[~done]]
        growing = growing[~done]
        size[growing] = np.minimum(2 * size[growing], most[growing])
    low[~found] = most[~found] - 1  # not confirmed even whole: keep everything, query no more
    halving = np.flatnonzero(high - low > 1)
    while len(halving):
        middle = (low[halving] + high[halving]) // 2
        suffices = confirmed(halving, middle)
        high[halving[suffices]] = middle[suffices]
        low[halving[~suffices]] = middle[~suffices]
        halving = halving[high[halving] - low[halving] > 1]
    return np.asarray(high, dtype=np.int64)


N_PROPOSALS = 64
N_SWAPPED = 8
N_DRAWS = 5  # where removal is random
MIN_NOISE, MAX_NOISE = 0.1, 1.0

Likely = Callable[[NDArray[np.int64], NDArray[np.bool_]], NDArray[np.float64]]
"""For rows and selections of them, how likely it is that the target keeps its value."""


def refine_ranking(
    source: Confirms,
    likely: Likely,
    ranking: NDArray[np.int64],
    scores: NDArray[np.float32],
    targets: NDArray[np.int64],
    k: int,
    *,
    n_queries: int,
    n_draws: int,
    seed: int,
) -> NDArray[np.int64]:
    """Rankings whose first k units the black box confirms, where one is found within n_questions for each row.

    Rows that are confirmed as they are cost one query (of n_draws draws). For the others, variations of the
    ranking are proposed, the energy orders them, and the model is queried about the most promising first.
    """
    n_rows, n_units = ranking.shape
    order: NDArray[np.int64] = ranking.copy()
    rng = np.random.default_rng(seed)

    def confirmed(rows: NDArray[np.int64], tried: NDArray[np.int64]) -> NDArray[np.bool_]:
        keep = first_units(tried, np.full(len(tried), k), n_units)
        return np.asarray(source.agreement(keep, targets[rows], rows=rows, n_draws=n_draws, seed=seed) == 1.0)

    n_rounds = n_queries // n_draws
    if n_rounds == 0:
        return order
    rows = np.arange(n_rows)
    rows = rows[~confirmed(rows, ranking)]
    proposals = {row: _propose(row, likely, ranking[row], scores[row], k, n_rounds - 1, rng) for row in rows.tolist()}
    for round_number in range(n_rounds - 1):
        rows = np.array([row for row in rows.tolist() if len(proposals[row]) > round_number], dtype=np.int64)
        if len(rows) == 0:
            break
        tried = np.stack([proposals[row][round_number] for row in rows.tolist()])
        agrees = confirmed(rows, tried)
        for row, best in zip(rows[agrees].tolist(), tried[agrees], strict=True):
            order[row] = np.concatenate([best, ranking[row][~np.isin(ranking[row], best)]])[:n_units]
        rows = rows[~agrees]
    return order


def _propose(
    row: int,
    likely: Likely,
    ranking: NDArray[np.int64],
    scores: NDArray[np.float32],
    k: int,
    n: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """The n most promising other selections of a row, or as many as there are: (n, k), best unit first."""
    allowed = ranking[ranking >= 0]
    if len(allowed) <= k:
        return np.empty((0, k), dtype=np.int64)  # all of them are selected already
    own = scores[allowed].astype(np.float64)
    spread = np.std(own[: max(2, 3 * k)]) or 1.0
    noise = np.linspace(MIN_NOISE, MAX_NOISE, N_PROPOSALS)[:, None] * spread
    varied = np.argsort(-(own + noise * rng.gumbel(size=(N_PROPOSALS, len(own)))), axis=1)[:, :k]
    varied = np.unique(np.sort(np.vstack([varied, _swaps(k, len(own))]), axis=1), axis=0)
    varied = varied[(varied != np.arange(k)).any(axis=1)]  # sorted positions: the best unit stands first
    keep = first_units(allowed[varied], np.full(len(varied), k), len(scores))
    best = np.argsort(-likely(np.full(len(varied), row), keep), kind="stable")[:n]
    return np.asarray(allowed[varied[best]])


def _swaps(k: int, n: int) -> NDArray[np.int64]:
    """Positions 0 to k - 1 with one of the last taken out and one of the next n - k put in: (swaps, k)."""
    out, into = np.arange(max(0, k - N_SWAPPED), k), np.arange(k, min(n, k + N_SWAPPED))
    swaps = np.tile(np.arange(k), (len(out) * len(into), 1))
    swaps[np.arange(len(swaps)), np.repeat(out, len(into))] = np.tile(into, len(out))
    return swaps


def most_needed(chosen: NDArray[np.bool_], scores: NDArray[np.float32], n: int) -> list[tuple[int, float]]:
    """The n units that most rows have chosen, with the share of rows; of equal shares, the higher scores first."""
    share, strength = chosen.mean(axis=0), np.abs(scores).mean(axis=0)
    order = np.lexsort((-strength, -share))[:n].tolist()
    return [(unit, float(share[unit])) for unit in order if share[unit] > 0]


def share_bounds(share: NDArray[np.float64], n_draws: int) -> NDArray[np.float64]:
    """Bounds of Clopper and Pearson (rows, 2) of shares measured by so many draws; each is wrong in DOUBT of cases."""
    agreed = share * n_draws
    low = betaincinv(np.maximum(agreed, 1e-9), n_draws - agreed + 1, DOUBT)
    high = betaincinv(agreed + 1, np.maximum(n_draws - agreed, 1e-9), 1 - DOUBT)
    return np.stack([np.where(agreed > 0, low, 0.0), np.where(agreed < n_draws, high, 1.0)], axis=1)


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
