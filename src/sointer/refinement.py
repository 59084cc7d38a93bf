"""Spending a few questions on a row to find a selection that the black box confirms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sointer.selection import Confirms, first_units

N_PROPOSALS = 64
N_SWAPPED = 8
N_DRAWS = 5  # where removal is random
LEAST_NOISE, MOST_NOISE = 0.1, 1.0

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
    n_questions: int,
    n_draws: int,
    seed: int,
) -> NDArray[np.int64]:
    """Rankings whose first k units the black box confirms, where one is found within n_questions for each row.

    Rows that are confirmed as they are cost one question (of n_draws draws). For the others, variations of the
    ranking are proposed, the energy orders them, and the black box is asked about the most promising first.
    """
    n_rows, n_units = ranking.shape
    order: NDArray[np.int64] = ranking.copy()
    rng = np.random.default_rng(seed)

    def confirmed(rows: NDArray[np.int64], tried: NDArray[np.int64]) -> NDArray[np.bool_]:
        keep = first_units(tried, np.full(len(tried), k), n_units)
        return np.asarray(source.agreement(keep, targets[rows], rows=rows, n_draws=n_draws, seed=seed) == 1.0)

    n_rounds = n_questions // n_draws
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
    noise = np.linspace(LEAST_NOISE, MOST_NOISE, N_PROPOSALS)[:, None] * spread
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
