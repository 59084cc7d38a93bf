"""The command on images: what it says of the quality of a fit, and of fidelity."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from quick import quick_fit

pytest.importorskip("typer")

from typer.testing import CliRunner, Result

from sointer.apps.cli.app import build_app

MODEL = """import numpy as np

def predict(X):
    return (np.roll(np.asarray(X)[:, 0], 2, axis=2) > 0.5).astype(int)
"""

FIT = ["fit", "--model", "segmenter:predict", "--data", "X.npy", "--out", "why"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), list(arguments))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model and images."""
    (tmp_path / "segmenter.py").write_text(MODEL)
    np.save(tmp_path / "X.npy", np.random.default_rng(0).random((40, 1, 6, 6)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_what_was_learned_is_set_beside_a_rule_that_sees_no_image(here: Path) -> None:
    fitted = run(*FIT, "--query-budget", "600")
    assert fitted.exit_code == 0, fitted.stderr
    assert "a rule that only counts pixels, in all or around the target" in fitted.stdout
    reported = run("info", "why").stdout
    assert "a rule that only counts pixels, in all or around the target" in reported
    assert "most common value" not in reported


def test_what_nothing_was_held_out_of_is_not_known(here: Path) -> None:
    fitted = run(*FIT, "--query-budget", "3", "--json")
    assert fitted.exit_code == 0, fitted.stderr
    assert '"held_out_agreement": null' in fitted.stdout
    assert "not known" in run("info", "why").stdout


def test_fidelity_of_images_alone_is_no_proof(here: Path) -> None:
    def segmenter(X):
        return (np.roll(np.asarray(X)[:, 0], 2, axis=2) > 0.5).astype(int)

    quick_fit(segmenter, np.load("X.npy")).save(here / "why")
    ask = ["evaluate", "why", "--model", "segmenter:predict", "--data", "X.npy", "--target", "(3, 3)", "--rows", "4"]
    judged = run(*ask, "--against", "none", "--at-least", "0")
    assert judged.exit_code == 0, judged.stderr
    assert "a mask can keep by its shape alone: see J above" in judged.stderr
    assert "shape alone" not in run(*ask, "--against", "none").stderr
    ask = [
        "explain",
        "why",
        "--model",
        "segmenter:predict",
        "--data",
        "X.npy",
        "--target",
        "(3, 3)",
        "--out",
        "w.csv",
    ]
    explained = run(*ask, "--verify", "4")
    assert "by its shape alone: sointer evaluate gives J" in explained.stdout + explained.stderr
