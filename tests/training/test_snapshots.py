"""States of training in a checkpoint: a fit that was killed takes no step twice, and gives the same files."""

from __future__ import annotations

import functools
import json
import os
import signal
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import scipy.sparse as sp
import torch

import quick
from sointer import InterpreterConfig, SOInter, TrainingConfig
from sointer._support.progress import History
from sointer.errors import CheckpointWarning, SointerWarning
from sointer.training import paper, sequences, snapshots, sparse_rows
from sointer.training.optim import Adam
from sointer.training.sequences import Learner
from sointer.training.snapshots import Snapshots
from studies.faults.killing import content

PAPER = {"preset": "paper", "query_budget": 1000, "energy": None}
PAPER |= {
    "training": TrainingConfig(n_rounds=25, n_pretraining_steps=8),
    "interpreter": InterpreterConfig(batch_size=64),
}

KINDS = {
    "table": (quick.labels, quick.TABLE, {}),
    "sparse": (quick.first_words, sp.csr_array(np.where(quick.WIDE > 1.5, 1.0, 0.0)), {}),
    "images": (quick.masks, quick.IMAGES, {"training": TrainingConfig(n_epochs=6)}),
    "texts": (lambda texts: np.array([["rain" in t, "sun" in t] for t in texts]).astype(int), quick.TEXTS, {}),
    "paper": (quick.labels, quick.TABLE, PAPER),
    "paper, rows drawn": (quick.labels, quick.TABLE, {**PAPER, "removal": "marginal", "structured": False}),
    "sequences": (quick.weather, quick.SENTENCES, {"query_budget": 400, "energy": None, "training": None, "k": "auto"}),
}
STEPS = [(Adam, "step"), (paper.losses, "value_network_loss"), (paper.Rounds, "update_interpreter"), (Learner, "step")]
"""What is called once for each step, or round of the paper's recipe."""


def fit(kind, checkpoint, log=None, kill_at=None):
    """Fit; every step writes a byte to the log; step number `kill_at` never comes to its end."""

    def logged(take_step):
        def step(*args):
            if kill_at is not None and os.path.exists(log) and os.path.getsize(log) >= kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            loss = take_step(*args)
            with open(log, "ab") as file:
                file.write(b".")
            return loss

        return step

    model, data, changes = KINDS[kind]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        warnings.simplefilter("error", CheckpointWarning)
        if log is not None:
            for owner, name in STEPS:
                patch.setattr(owner, name, logged(getattr(owner, name)))
        return SOInter(model, **{**quick.QUICK, **changes}).fit(data, checkpoint=checkpoint)


@functools.cache
def in_peace(kind):
    """How many steps a fit takes that nothing disturbs, and its files."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        fit(kind, os.path.join(folder, "fit"), log)
        return os.path.getsize(log), content(Path(folder, "fit", "explainer"))


def killed(*args):
    """Run the fit in a process of its own, which must end by SIGKILL."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            fit(*args)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(sparse_rows, "N_STEPS", (20, 40))
    monkeypatch.setattr(sequences, "MIN_STEPS", 20)
    monkeypatch.setattr(sequences, "MIN_PSEUDO_FROM", 100)


@pytest.fixture
def every_step(monkeypatch):
    """A state is kept after every step, however long that takes."""
    monkeypatch.setattr(snapshots, "SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(snapshots, "MAX_SHARE", np.inf)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_fit_takes_no_step_twice_and_gives_the_same_files(kind, tmp_path, every_step):
    n_steps, expected = in_peace(kind)
    assert n_steps > 5
    log = tmp_path / "log"
    for kill_at in (1, n_steps // 3, n_steps - 1):
        killed(kind, tmp_path / "fit", log, kill_at)
        assert os.path.getsize(log) == kill_at
    assert list((tmp_path / "fit" / "training").iterdir())
    fit(kind, tmp_path / "fit", log)
    assert os.path.getsize(log) == n_steps  # of all four processes together
    assert content(tmp_path / "fit" / "explainer") == expected
    assert not (tmp_path / "fit" / "training").exists()


def test_finished_stages_are_kept_at_once_and_others_from_time_to_time(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "SECONDS_BETWEEN", 3600.0)
    n_steps, expected = in_peace("table")
    killed("table", tmp_path / "fit", tmp_path / "log", n_steps - 1)
    assert len(list((tmp_path / "fit" / "training").iterdir())) == 3  # the last stage of four was under way
    fit("table", tmp_path / "fit", tmp_path / "again.log")
    assert 0 < os.path.getsize(tmp_path / "again.log") <= n_steps / 2
    assert content(tmp_path / "fit" / "explainer") == expected


@pytest.mark.parametrize("damage", ["bit", "cut", "empty", "other fit", "other stage", "larger", "pipe", "folder"])
def test_a_state_that_cannot_be_used_costs_its_stage_and_one_warning(damage, tmp_path):
    _, expected = in_peace("table")
    killed("table", tmp_path / "fit", tmp_path / "log", 30)
    first, second = sorted((tmp_path / "fit" / "training").iterdir())[:2]
    whole = first.read_bytes()
    if damage == "bit":
        place = len(whole) // 2
        first.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    elif damage == "cut":
        first.write_bytes(whole[:-9])
    elif damage == "empty":
        first.write_bytes(b"")
    elif damage == "other fit":
        first.write_bytes(whole.replace(b"sha256:", b"sha255:", 1))
    elif damage == "other stage":
        first.write_bytes(second.read_bytes())
        second.write_bytes(whole)  # both are of a step that the other stage does not have
    elif damage == "larger":
        first.write_bytes(whole + bytes(2**23))
    elif damage == "pipe":
        first.unlink()
        os.mkfifo(first)
    else:
        first.unlink()
        first.mkdir()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        again = SOInter(quick.labels, **quick.QUICK).fit(quick.TABLE, checkpoint=tmp_path / "fit")
    about = [str(w.message) for w in found if issubclass(w.category, CheckpointWarning)]
    assert len(about) == 1
    assert "cannot be used" in about[0]
    assert again.n_queries_replayed_ > 0
    assert content(tmp_path / "fit" / "explainer") == expected


def kept_state(tmp_path, n_steps=10):
    tensors = {"w": torch.zeros(3), "n": torch.zeros((), dtype=torch.int64)}
    history = History(False)
    stage = Snapshots(tmp_path / "s", "one").stage(tensors, n_steps, history)
    return tensors, history, stage


def test_a_state_holds_tensors_history_and_the_number_of_steps(tmp_path, every_step):
    tensors, history, stage = kept_state(tmp_path)
    tensors["w"] += 2
    history.record(stage="x", loss=float("nan"))
    stage.keep(4)
    more, rows, again = kept_state(tmp_path)
    assert again.n_done == 4
    assert more["w"].tolist() == [2, 2, 2]
    assert json.dumps(rows.rows) == json.dumps(history.rows)
    files = list((tmp_path / "s").iterdir())
    assert [file.name for file in files] == ["stage-001.safetensors"]
    assert files[0].stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[]",
        '{"stage": "stage-001 of one"}',
        '{"stage": "stage-001 of one", "n_done": 1.5, "history": []}',
        '{"stage": "stage-001 of one", "n_done": 3, "history": [7]}',
    ],
)
def test_states_that_make_no_sense_cost_their_stage(text, tmp_path):
    tensors = {"w": torch.zeros(3), "n": torch.zeros((), dtype=torch.int64)}
    (tmp_path / "s").mkdir()
    file = tmp_path / "s" / "stage-001.safetensors"
    file.write_bytes(safetensors.torch.save(tensors, {"snapshot": text, "blake2b": snapshots.digest(text, tensors)}))
    with pytest.warns(CheckpointWarning, match="cannot be used"):
        _, history, stage = kept_state(tmp_path)
    assert stage.n_done == 0
    assert history.rows == []


def test_states_are_bounded_in_size(tmp_path, every_step, monkeypatch):
    monkeypatch.setattr(snapshots, "MAX_BYTES", 400)
    kept = Snapshots(tmp_path / "s", "one")
    for number, warned in enumerate([False, True, False]):  # the second file is one too many; it is said once
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            kept.stage({"w": torch.zeros(3)}, 2, History(False)).keep(2)
        assert bool(found) == warned, number
    assert len(list((tmp_path / "s").iterdir())) == 1


def test_a_full_disk_stops_keeping_not_training(tmp_path, every_step, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    _, _, stage = kept_state(tmp_path)
    monkeypatch.setattr(snapshots, "put", full)
    with pytest.warns(CheckpointWarning, match="No space left"):
        stage.keep(1)
    stage.keep(2)  # in silence
