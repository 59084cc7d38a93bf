"""The black boxes of the paper's problems: the exact minimiser of the energy, and a SPEN trained on its answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sointer.zoo import ALL_PROBLEMS, fit_or_load, shuffled
from sointer.zoo.problem import Problem
from sointer.zoo.structured_models import SPEN
from studies.frame.study import model_cache

N_SPEN_ROWS = 50_000
N_CHECKED_ROWS = 10_000


def planted(name: str, n_features: int, seed: int) -> Problem:
    """A problem with its features in an order of the seed's own."""
    return shuffled(ALL_PROBLEMS[name](n_features), 20_000 + seed)


def with_spen(problem: Problem, seed: int, *, quick: bool = False) -> Problem:
    """The same problem, its black box replaced by a network that learned it from examples, as in the paper."""
    X = problem.sample(2000 if quick else N_SPEN_ROWS, random_state=30_000 + seed)
    steps = (200, 200) if quick else (3000, 3000)
    model = SPEN(
        n_pretraining_steps=steps[0],
        n_steps=steps[1],
        pretraining_rate=0.05,
        batch_size=500,
        weight_decay=1e-5,
        random_state=seed,
        verbose=False,
    )
    fitted = fit_or_load(model, X, problem(X), model_cache())
    return replace(problem, name=f"{problem.name}_spen", black_box=fitted.predict)


def agreement(learned: Problem, exact: Problem, seed: int) -> NDArray[np.float64]:
    """For every output, the share of fresh rows on which the learned black box says what the exact one says."""
    X = exact.sample(N_CHECKED_ROWS, random_state=40_000 + seed)
    return np.asarray((learned(X) == exact(X)).mean(axis=0))


def changes_by_feature(problem: Problem, target: int, seed: int, n_rows: int = 2000) -> NDArray[np.float64]:
    """For every feature, the share of rows whose target changes when another row's value replaces its own."""
    X = problem.sample(n_rows, random_state=50_000 + seed)
    donors = problem.sample(n_rows, random_state=60_000 + seed)
    before = problem(X)[:, target]
    shares = np.empty(problem.n_features)
    for feature in range(problem.n_features):
        changed = X.copy()
        changed[:, feature] = donors[:, feature]
        shares[feature] = np.mean(problem(changed)[:, target] != before)
    return shares
