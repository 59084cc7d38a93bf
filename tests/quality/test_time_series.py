"""Time series as windows, one feature per step and variable: the cells behind each step's output are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sointer import SOInter, TrainingConfig

DELAY = 3
VARIABLES = ("rain", "wind", "heat")


def windows(n: int, n_steps: int, n_variables: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    series = np.column_stack([rng.gamma(1.0, size=n), *rng.normal(size=(n_variables - 1, n))])
    cut = np.lib.stride_tricks.sliding_window_view(series, n_steps, axis=0).transpose(0, 2, 1)
    names = [f"{variable}[{t}]" for t in range(n_steps) for variable in VARIABLES[:n_variables]]
    return pd.DataFrame(cut.reshape(len(cut), -1), columns=names)


def levels(X: pd.DataFrame) -> np.ndarray:
    """The level of a river at each step: 0.6 of the level before, and the rain three steps ago."""
    rain = X[[name for name in X if name.startswith("rain")]].to_numpy()
    found = [rain[:, 0]]
    for t in range(1, rain.shape[1] - DELAY):
        found.append(0.6 * found[-1] + rain[:, t])
    return np.column_stack(found)


def fit(X: pd.DataFrame, n_queries: int, **options: Any) -> SOInter:
    names = [f"level[{t}]" for t in range(DELAY, levels(X[:1]).shape[1] + DELAY)]
    return SOInter(levels, output_names=names, query_budget=n_queries, random_state=0, verbose=False, **options).fit(X)


def exact(explainer: SOInter, X: pd.DataFrame, t: int) -> float:
    """Share of samples where the cells selected for the level at step t are the rain up to three steps before."""
    truth = {f"rain[{s}]" for s in range(t - DELAY + 1)}
    why = explainer.explain(X, target=f"level[{t}]")
    return float(np.mean([{X.columns[unit] for unit in row if unit >= 0} == truth for row in why.selected]))


def test_cells_of_a_short_window_are_found() -> None:
    X = windows(700, 5, 2)
    explainer = fit(X[:600], 1000, training=TrainingConfig(n_epochs=20))  # a third of the default
    assert exact(explainer, X[600:650], 3) >= 0.95
    assert exact(explainer, X[600:650], 4) >= 0.95


@pytest.mark.slow
def test_cells_of_every_step_are_found() -> None:
    X = windows(2000, 8, 3)
    explainer = fit(X[:1500], 3000)
    for t in range(DELAY, 8):
        assert exact(explainer, X[1600:1700], t) >= 0.95


@pytest.mark.slow
def test_windows_of_a_variable_stand_or_fall_together() -> None:
    X = windows(2000, 8, 3)
    groups = {
        f"{variable} {t}-{t + 1}": [f"{variable}[{t}]", f"{variable}[{t + 1}]"]
        for variable in VARIABLES
        for t in range(0, 8, 2)
    }
    explainer = fit(X[:1500], 3000, groups=groups)
    why = explainer.explain(X[1600:1700], target="level[6]")
    chosen = [{why.feature_names[unit] for unit in row if unit >= 0} for row in why.selected]
    assert np.mean([one == {"rain 0-1", "rain 2-3"} for one in chosen]) >= 0.95
