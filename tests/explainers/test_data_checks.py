"""What explainers refuse when they see data."""

from __future__ import annotations

import os

import numpy as np
import pytest

from quick import QUICK
from sointer import SOInter
from sointer.errors import InputError
from sointer.explainers.baselines import Random


def test_explanations_that_the_machine_has_no_room_for_are_refused_before_any_query(monkeypatch) -> None:
    X, n_rows = np.random.default_rng(0).normal(size=(100, 4)), 0

    def model(batch):
        nonlocal n_rows
        n_rows += len(batch)
        return (batch[:, :2] > 0).astype(int)

    explainer = SOInter(model, **QUICK).fit(X)
    n_before, memory = n_rows, 14 * 4 * 150  # bytes: enough for 150 targets of four features
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 8, "SC_PHYS_PAGES": memory // 8}[name])
    with pytest.raises(InputError, match=r"200 targets x 4 features.*stream_explain"):
        explainer.explain(X, target="all")
    assert n_rows == n_before
    assert len(explainer.explain(X, target=0)) == 100


def test_only_targets_that_were_fitted_are_suggested() -> None:
    X = np.random.default_rng(0).normal(size=(30, 4))
    explainer = Random(lambda X: X[:, :3] > 0, k=2, output_names=["warm", "wet", "odd"], random_state=0)
    with pytest.raises(InputError, match="choose one of the outputs 'wet', 'odd' by name"):
        explainer.fit(X, targets=["wet", "odd"]).explain(X)
