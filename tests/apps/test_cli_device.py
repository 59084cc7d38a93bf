"""`--device` of every command: where networks are computed, or one sentence if that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

pytest.importorskip("typer")
pytest.importorskip("pyarrow")

from typer.testing import CliRunner

import sointer.apps.cli.fit
import sointer.apps.cli.inputs
import sointer.explainers.fitting
import sointer.io.explainers
from quick import TABLE, quick_explainer, short_training
from sointer.apps.cli.app import build_app
from tests.support.elsewhere import Elsewhere, elsewhere

APP = build_app()
MODEL = """
import numpy as np

def predict(X):
    dense = np.asarray(X)
    return np.column_stack([dense[:, 0] > 0, dense[:, 0] * dense[:, 1] > 0, dense[:, 2] > 0.3]).astype(int)
"""
COMMANDS = {
    "fit": ["fit", "--data", "X.csv", "--out", "new", "--query-budget", "200"],
    "explain": ["explain", "why", "--data", "X.csv", "--target", "0", "--out", "new.csv"],
    "evaluate": ["evaluate", "why", "--data", "X.csv"],
    "report": ["report", "why", "--data", "X.csv", "--out", "new.html"],
    "serve": ["serve", "why"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    pd.DataFrame(TABLE[:40], columns=[f"x{j}" for j in range(TABLE.shape[1])]).to_csv("X.csv", index=False)
    quick_explainer("table").save("why")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("cuda", "device='cuda' is not there: torch finds none but the CPU. Give device=\"cpu\""),
        ("gpu", 'device must be "auto", "cpu", "cuda", "mps" or such as "cuda:1", got \'gpu\''),
    ],
)
def test_a_device_that_is_not_there_is_refused_before_the_model_is_loaded(
    command: str, device: str, words: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (folder / "never_imported.py").write_text("raise RuntimeError('the model was loaded')")
    result = CliRunner().invoke(APP, [*COMMANDS[command], "--model", "never_imported:predict", "--device", device])
    assert result.exit_code == 1, result.output
    assert words in result.stderr.splitlines()[-1]
    assert not list(folder.glob("new*"))


def test_networks_are_computed_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "device_model.py").write_text(MODEL)
    model = ["--model", "device_model:predict"]
    loaded: list[Any] = []

    def load(*arguments: Any, **settings: Any) -> Any:
        loaded.append(sointer.io.explainers.load(*arguments, **settings))
        return loaded[-1]

    monkeypatch.setattr(sointer.apps.cli.inputs, "load", load)
    run = CliRunner().invoke
    assert run(APP, [*COMMANDS["explain"], *model]).exit_code == 0
    with elsewhere(monkeypatch) as device:
        result = run(APP, [*COMMANDS["explain"][:-1], "there.csv", *model, "--device", device])
        assert result.exit_code == 0, result.output
    here, there = ([isinstance(p, Elsewhere) for p in one.energy_.parameters()] for one in loaded)
    assert not any(here)
    assert all(there)
    pd.testing.assert_frame_equal(pd.read_csv("there.csv"), pd.read_csv("new.csv"), rtol=1e-3)


def test_auto_is_the_cpu_where_there_is_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    (folder / "device_model.py").write_text(MODEL)
    with short_training():
        for device in ("auto", "cpu"):
            given = ["--model", "device_model:predict", "--device", device, "--seed", "0"]
            result = CliRunner().invoke(APP, [*COMMANDS["fit"][:4], device, *COMMANDS["fit"][5:], *given])
            assert result.exit_code == 0, result.output
    one, two = (sointer.load(device).explain(TABLE[:5], 0, query=False) for device in ("auto", "cpu"))
    assert one.scores.tolist() == two.scores.tolist()
