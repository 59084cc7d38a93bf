"""Paths are shortened where that changes nothing, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from sointer import InterpreterConfig, SOInter
from sointer.datasets import paper_e1, paper_e2
from sointer.metrics import exact_match


@pytest.fixture(scope="module")
def easy():
    problem = paper_e1(8)
    explainer = SOInter(problem, k=4, query_budget=2500, random_state=0, verbose=False)
    return problem, explainer.fit(problem.sample(1000, random_state=0))


def with_steps(explainer, n_steps, rows, target):
    kept, explainer.interpreter_.n_path_steps = explainer.interpreter_.n_path_steps, n_steps
    try:
        return explainer.explain(rows, target).mask
    finally:
        explainer.interpreter_.n_path_steps = kept


def test_an_easy_problem_is_explained_by_shorter_paths_just_as_well(easy):
    problem, explainer = easy
    full, kept = explainer.config_.interpreter.n_path_steps, explainer.interpreter_.n_path_steps
    assert kept < full
    rows = problem.sample(500, random_state=1)
    for target in problem.targets:
        short, long = (with_steps(explainer, n, rows, target) for n in (kept, full))
        assert (short == long).all(axis=1).mean() > 0.97
        assert exact_match(short, problem.relevant_rows(rows, target)) > 0.97


def test_the_trial_is_in_the_history(easy):
    _, explainer = easy
    trials = [row for row in explainer.history_ if row.get("stage") == "path length"]
    assert [row["kept"] for row in trials] == [False] * (len(trials) - 1) + [True]
    assert trials[-1]["n_path_steps"] == explainer.interpreter_.n_path_steps


def test_an_energy_that_knows_little_keeps_its_paths():
    problem = paper_e2(20)
    explainer = SOInter(problem, k=4, query_budget=300, random_state=0, verbose=False)
    explainer.fit(problem.sample(300, random_state=0))
    trials = [row for row in explainer.history_ if row.get("stage") == "path length"]
    assert trials
    assert not any(row["kept"] for row in trials if row["same"] < 0.995)


def test_paths_are_never_made_longer():
    problem = paper_e1(8)
    config = InterpreterConfig(n_path_steps=3, n_residual_steps=0)
    explainer = SOInter(problem, k=4, query_budget=300, random_state=0, verbose=False, interpreter=config)
    rows = problem.sample(300, random_state=0)
    assert explainer.fit(rows).interpreter_.n_path_steps == 3
    assert np.isfinite(explainer.explain(rows[:5], 0).scores).all()
