"""Spending a few questions on a row to find a selection that the black box confirms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sointer.selection import Confirms, first_units

N_PROPOSALS = 64
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
    n_rounds = n_questions // n_draws
    open_rows = np.arange(n_rows)
    rng = np.random.default_rng(seed)
    proposals: NDArray[np.int64] | None = None
    for round_number in range(n_rounds):
        if len(open_rows) == 0:
            break
        tried = ranking[open_rows] if proposals is None else proposals[open_rows, round_number - 1]
        keep = first_units(tried, np.full(len(tried), k), n_units)
        agrees = source.agreement(keep, targets[open_rows], rows=open_rows, n_draws=n_draws, seed=seed) == 1.0
        order[open_rows[agrees]] = tried[agrees]
        open_rows = open_rows[~agrees]
        if proposals is None and n_rounds > 1:
            proposals = np.repeat(ranking[:, None], n_rounds - 1, axis=1)
            for row in open_rows:
                proposals[row] = _propose(row, likely, ranking[row], scores[row], k, n_rounds - 1, rng)
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
    """The n most promising variations of a row's ranking: (n, units)."""
    allowed = ranking[ranking >= 0]
    own = scores[allowed].astype(np.float64)
    spread = np.std(own[: max(2, 3 * k)]) or 1.0
    noise = np.linspace(LEAST_NOISE, MOST_NOISE, N_PROPOSALS)[:, None] * spread
    shuffled = allowed[np.argsort(-(own + noise * rng.gumbel(size=(N_PROPOSALS, len(own)))), axis=1)]
    _, first = np.unique(np.sort(shuffled[:, :k], axis=1), axis=0, return_index=True)
    shuffled = shuffled[np.sort(first)]
    keep = first_units(shuffled, np.full(len(shuffled), k), len(scores))
    best = np.argsort(-likely(np.full(len(shuffled), row), keep), kind="stable")[:n]
    result = np.repeat(ranking[None], n, axis=0)
    result[: len(best), : len(allowed)] = shuffled[best]
    return result
