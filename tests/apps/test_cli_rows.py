"""sointer fit --rows: what the saved files hold of the training data."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

import sointer
from quick import short_training
from sointer.apps.cli.app import build_app

MODEL = """
import pathlib

def predict(X):
    pathlib.Path("called").touch()
    return (X[:, :2] > 0).astype(int)
"""


def test_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "rows_model.py").write_text(MODEL)
    np.save("X.npy", np.random.default_rng(0).normal(size=(80, 3)))
    arguments = ["fit", "--model", "rows_model:predict", "--data", "X.npy", "--query-budget", "150", "--out", "why"]
    wrong = CliRunner().invoke(build_app(), [*arguments, "--rows", "all"])
    assert wrong.exit_code != 0
    assert not (tmp_path / "called").exists()
    with short_training():
        done = CliRunner().invoke(build_app(), [*arguments, "--rows", "none"])
    assert done.exit_code == 0, done.output
    assert sointer.load("why").background_.rows.shape == (0, 3)
