"""fit(checkpoint=...): whatever stops it, the same call goes on, asks nothing twice and gives the same explainer."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import resource
import signal
import threading
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import sointer
from quick import QUICK
from repo_scripts import run_apart
from sointer import BlackBox, SOInter, TrainingConfig
from sointer._support.containers import row_keys
from sointer.blackbox.journal import Journal
from sointer.blackbox.records import RecordFile
from sointer.errors import BlackBoxError, CheckpointError, CheckpointWarning, InputError, SointerWarning

X = np.random.default_rng(0).normal(size=(60, 4))
N_QUERIES = QUICK["query_budget"]


def two_outputs(batch):
    dense = batch.toarray() if sp.issparse(batch) else np.asarray(batch)
    return (dense[:, :2] > 0).astype(int)


class Model:
    """Records the rows queried, and fails when there are enough of them."""

    def __init__(self, reply=two_outputs, *, stops_after=None):
        self.reply, self.stops_after = reply, stops_after
        self.queried = []

    def __call__(self, batch):
        if self.stops_after is not None and len(self.queried) + batch.shape[0] > self.stops_after:
            raise OSError("the connection was lost")
        self.queried += row_keys(batch)
        return self.reply(batch)


def make(model, **changes):
    return SOInter(BlackBox(model, batch_size=16, retries=0), **QUICK | changes)


def fit(explainer, data=X, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        return explainer.fit(data, **more)


def same(one, two, data=X):
    a, b = (explainer.explain(data, target=0, query=False) for explainer in (one, two))
    weights = [one.energy_.state_dict(), two.energy_.state_dict()]
    return np.array_equal(a.scores, b.scores) and all(bool((weights[0][n] == weights[1][n]).all()) for n in weights[0])


@functools.cache
def n_queried() -> int:
    """How many rows a fit that nothing disturbed asks about: the budget, but for checks that are not needed."""
    n = fit(make(Model())).n_queries_
    assert 0.9 * N_QUERIES < n <= N_QUERIES
    return n


@pytest.fixture(scope="module")
def peace():
    """A fit that nothing disturbed."""
    model = Model()
    explainer = fit(make(model))
    return explainer, model.queried


def stopped(directory, after, data=X, **changes):
    with pytest.raises(BlackBoxError, match="connection was lost"):
        fit(make(Model(stops_after=after), **changes), data, checkpoint=directory)


# --- going on ----------------------------------------------------------------------------------------------


def test_a_checkpoint_changes_nothing(peace, tmp_path):
    explainer, queried = peace
    model = Model()
    kept = fit(make(model), checkpoint=tmp_path / "fit")
    assert same(explainer, kept)
    assert model.queried == queried
    assert (kept.n_queries_, kept.n_queries_replayed_) == (n_queried(), 0)


def test_a_fit_that_failed_goes_on_where_it_was(peace, tmp_path):
    explainer, queried = peace
    first, second = Model(stops_after=60), Model(stops_after=70)
    for model in (first, second):
        with pytest.raises(BlackBoxError, match="connection was lost"):
            fit(make(model), checkpoint=tmp_path / "fit")
    last = Model()
    kept = fit(make(last), checkpoint=tmp_path / "fit")
    assert same(explainer, kept)
    assert sorted(first.queried + second.queried + last.queried) == sorted(queried)
    assert kept.n_queries_ == len(last.queried) > 0
    assert kept.n_queries_replayed_ == len(first.queried) + len(second.queried) > 60
    assert Journal(tmp_path / "fit" / "journal.bin").n_known == n_queried()


def test_a_finished_fit_is_not_done_again(peace, tmp_path):
    fit(make(Model()), checkpoint=tmp_path / "fit")
    model = Model(stops_after=0)
    again = fit(make(model), checkpoint=tmp_path / "fit")
    assert same(peace[0], again)
    assert (again.n_queries_, again.n_queries_replayed_, model.queried) == (0, n_queried(), [])
    model.stops_after = None
    assert again.explain(X[:3], target=1).verify().n_queries > 0  # it has its black box
    loaded = sointer.load(tmp_path / "fit" / "explainer")
    assert loaded.n_queries_ == n_queried()


@pytest.mark.parametrize("damage", ["half saved", "damaged"])
def test_a_finished_explainer_that_is_not_whole_is_made_again_from_the_outputs(damage, peace, tmp_path):
    fit(make(Model()), checkpoint=tmp_path / "fit")
    metadata = tmp_path / "fit" / "explainer" / "explainer.json"
    if damage == "half saved":
        metadata.unlink()  # as a kill leaves it
    else:
        metadata.write_text(metadata.read_text().replace('"k": 2', '"k": 3'))
    model = Model(stops_after=0)
    again = make(model)
    with pytest.warns(CheckpointWarning, match="fitted again") if damage == "damaged" else contextlib.nullcontext():
        again.fit(X, checkpoint=tmp_path / "fit")
    assert same(peace[0], again)
    assert model.queried == []
    assert sointer.load(metadata.parent).n_queries_ == n_queried()


def test_without_a_seed_the_first_one_is_kept(tmp_path):
    stopped(tmp_path / "fit", 90, random_state=None)
    model = Model()
    fit(make(model, random_state=None), checkpoint=tmp_path / "fit")
    assert len(model.queried) <= n_queried() - 60  # another seed would send other queries
    other = Model()
    fit(make(other, random_state=None), checkpoint=tmp_path / "other")
    assert not set(other.queried) >= set(model.queried)


def test_a_generator_counts_by_its_state(tmp_path):
    stopped(tmp_path / "fit", 90, random_state=np.random.default_rng(3))
    model = Model()
    fit(make(model, random_state=np.random.default_rng(3)), checkpoint=tmp_path / "fit")
    assert len(model.queried) <= n_queried() - 60
    with pytest.raises(CheckpointError, match="random_state"):
        fit(make(Model(), random_state=np.random.default_rng(4)), checkpoint=tmp_path / "fit")


FRAME = pd.DataFrame({"colour": np.where(X[:, 0] > 0, "red", "blue"), "a": X[:, 1], "b": X[:, 2]})


def named(frame):
    return pd.DataFrame(
        {"is red": np.where(frame["colour"] == "red", "yes", "no"), "a": np.where(frame["a"] > 0, 1, 0)}
    )


def mixed(batch):
    table = np.empty((len(batch), 2), dtype=object)
    table[:, 0], table[:, 1] = np.where(batch[:, 0] > 0, "yes", "no"), (batch[:, 1] > 0).astype(int)
    return table


IMAGES = np.random.default_rng(1).random((30, 1, 4, 4))
SHORT = {"query_budget": 120}
PAPER = {"preset": "paper", "interpreter": None, "training": TrainingConfig(n_rounds=1, n_pretraining_steps=10)}


@pytest.mark.parametrize(
    ("data", "reply", "target", "changes"),
    [
        (FRAME, named, "is red", {}),
        (sp.csr_array(np.where(X > 0, X, 0.0)), two_outputs, 1, {}),
        (X, mixed, 0, {}),
        (X, lambda batch: batch[:, :2] * 3.0, 1, {}),
        (IMAGES, lambda batch: (batch[:, 0] > 0.5).astype(int), (1, 2), SHORT),
        (X, two_outputs, 1, PAPER),
    ],
    ids=["frame", "csr", "mixed labels", "numbers", "masks", "paper"],
)
def test_all_kinds_of_queries_and_outputs(data, reply, target, changes, tmp_path):
    plain, first, rest = Model(reply), Model(reply, stops_after=70), Model(reply)
    explainer = fit(make(plain, **changes), data)
    with pytest.raises(BlackBoxError, match="connection was lost"):
        fit(make(first, **changes), data, checkpoint=tmp_path / "fit")
    kept = fit(make(rest, **changes), data, checkpoint=tmp_path / "fit")
    assert sorted(first.queried + rest.queried) == sorted(plain.queried)
    assert len(first.queried) >= 48
    one, two = explainer.explain(data, target), kept.explain(data, target)
    assert np.array_equal(one.scores, two.scores)
    assert list(one.value) == list(two.value)
    assert kept.output_names_ == explainer.output_names_


def test_a_cache_and_a_budget_of_the_black_box_hold_as_without(tmp_path):
    few = np.repeat(X[:10], 3, axis=0)  # the same rows again and again

    def attempt(stops_after, **more):
        model = Model(stops_after=stops_after)
        box = BlackBox(model, batch_size=8, cache=True, query_budget=90, retries=0)
        explainer = make(model, query_budget=None).set_params(model=box)
        return model, lambda: fit(explainer, few, **more)

    plain, run = attempt(None)
    explainer = run()
    first, run = attempt(40, checkpoint=tmp_path / "fit")
    with pytest.raises(BlackBoxError):
        run()
    second, run = attempt(None, checkpoint=tmp_path / "fit")
    assert same(explainer, run(), few)
    assert sorted(first.queried + second.queried) == sorted(plain.queried)
    # In the same process, with what is left of the same budget.
    model, run = attempt(40, checkpoint=tmp_path / "same")
    with pytest.raises(BlackBoxError):
        run()
    model.stops_after = None
    assert same(explainer, run(), few)
    assert len(model.queried) == len(plain.queried)


# --- another fit, another place ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "data", "words"),
    [
        ({"k": 3}, X, "k was 2, is 3"),
        ({"query_budget": 150}, X, "query_budget was 200, is 150"),
        ({"random_state": 1}, X, "random_state was 0, is 1"),
        ({"removal": "mean"}, X, "removal differ"),
        ({"training": TrainingConfig(n_epochs=2)}, X, "TrainingConfig.n_epochs was 1, is 2"),
        ({}, X[:-1], "data differ"),
        ({}, X + 1e-12, "data differ"),
        ({"feature_names": ["a", "b", "c", "d"]}, X, "features differ"),
    ],
)
def test_another_fit_is_refused(changes, data, words, tmp_path):
    stopped(tmp_path / "fit", 40)
    model = Model()
    with pytest.raises(CheckpointError, match=f"another fit: .*{words}.*choose another directory"):
        fit(make(model, **changes), data, checkpoint=tmp_path / "fit")
    assert model.queried == []


def test_what_decides_nothing_may_change(peace, tmp_path):
    stopped(tmp_path / "fit", 90)
    model = Model()
    box = BlackBox(model, batch_size=7)
    kept = fit(make(model, verbose=False).set_params(model=box), checkpoint=tmp_path / "fit")
    assert same(peace[0], kept)
    assert len(model.queried) <= n_queried() - 60


def test_places_that_are_no_checkpoint(tmp_path):
    (tmp_path / "thesis.txt").write_text("irreplaceable")
    with pytest.raises(CheckpointError, match="nothing was written"):
        fit(make(Model()), checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="is a file"):
        fit(make(Model()), checkpoint=tmp_path / "thesis.txt")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "journal.bin").write_text("Dear diary")
    with pytest.raises(CheckpointError, match="no journal"):
        fit(make(Model()), checkpoint=tmp_path / "other")
    assert (tmp_path / "other" / "journal.bin").read_text() == "Dear diary"


def test_one_fit_at_a_time(tmp_path):
    journal, late = Journal(tmp_path / "journal.bin"), Journal(tmp_path / "journal.bin")
    journal.begin({})
    with pytest.raises(CheckpointError, match="in use"):
        Journal(tmp_path / "journal.bin")
    with pytest.raises(CheckpointError, match="in use"):
        late.begin({})
    journal.close()
    Journal(tmp_path / "journal.bin").close()


# --- the file ----------------------------------------------------------------------------------------------


def test_wherever_a_kill_cut_the_journal_what_is_whole_is_used(peace, tmp_path):
    stopped(tmp_path / "fit", 90)
    journal = tmp_path / "fit" / "journal.bin"
    content = journal.read_bytes()
    file = RecordFile(journal)
    records = [(record.start + record.n_bytes, record.metadata.get("shape", [0])[0]) for record in file.records()]
    file.close()
    ends = [end for end, _ in records]
    for cut in (*range(0, len(content), 397), *ends, *(end - 1 for end in ends), *(end + 3 for end in ends)):
        journal.write_bytes(content[:cut])
        opened = Journal(journal)
        assert opened.n_known == sum(n_rows for end, n_rows in records if end <= cut)
        assert opened.damage == []
        opened.begin({}) if opened.metadata is None else None  # what was cut off is gone, so one can go on writing
        opened.close()
        assert Journal(journal).metadata is not None
    journal.write_bytes(content[: ends[3] + 5])
    assert same(peace[0], fit(make(Model()), checkpoint=tmp_path / "fit"))


def test_damage_in_the_middle_is_said_and_costs_only_what_is_lost(peace, tmp_path):
    stopped(tmp_path / "fit", 90)
    journal = tmp_path / "fit" / "journal.bin"
    opened = Journal(journal)
    n_before = opened.n_known
    opened.close()
    content = bytearray(journal.read_bytes())
    content[len(content) // 2] ^= 1
    journal.write_bytes(content)
    model = Model()
    explainer = make(model)
    with pytest.warns(CheckpointWarning, match=r"1 of its records are lost, at bytes \d+ to \d+"):
        explainer.fit(X, checkpoint=tmp_path / "fit")
    assert same(peace[0], explainer)
    assert len(model.queried) == n_queried() - n_before + 16  # one batch


def test_a_refused_fit_changes_nothing_on_the_disk(tmp_path):
    stopped(tmp_path / "fit", 90)
    journal = tmp_path / "fit" / "journal.bin"
    content = bytearray(journal.read_bytes())
    content[len(content) // 2] ^= 1
    for damaged in (bytes(content), bytes(content[:-3])):
        journal.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="another fit"):
            fit(make(Model(), k=3), checkpoint=tmp_path / "fit")
        assert journal.read_bytes() == damaged
    with pytest.raises(InputError):
        fit(make(Model()), X * np.inf, checkpoint=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_full_disk_stops_the_fit_and_loses_nothing(peace, tmp_path):
    """A real limit on file sizes, in a process of its own."""
    gc.collect()  # what other tests left behind, such as threads of onnxruntime, cannot be ended in a fork
    child = os.fork()
    if child == 0:
        gc.disable()
        code = 3
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
            fit(make(Model()), checkpoint=tmp_path / "fit")
        except CheckpointError as error:
            code = 0 if "make room, then call fit again" in str(error) else 4
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    model = Model()
    kept = fit(make(model), checkpoint=tmp_path / "fit")
    assert same(peace[0], kept)
    assert kept.n_queries_replayed_ + len(model.queried) == n_queried()
    assert kept.n_queries_replayed_ >= 32


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")
def test_full_disks_cost_only_the_file_that_is_written():
    """A small version of `make faults`."""
    found = run_apart("faults", "full_disk", part=1, n=12)
    assert found["stopped"] >= 6
    assert (found["done once there is room"], found["full disks"]) == (12, 12)
    assert not found["spoiled"] + found["drafts left"] + found["unclear errors"], found


def test_an_interrupt_leaves_no_finished_explainer(peace, tmp_path):
    done = threading.Event()

    def interrupts(batch):
        if len(model.queried) > 100 and not done.is_set():
            done.set()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return two_outputs(batch)

    model = Model(interrupts)
    with contextlib.suppress(KeyboardInterrupt):  # or not, if it came late enough
        fit(make(model), checkpoint=tmp_path / "fit")
    assert not (tmp_path / "fit" / "explainer").exists()
    n_known = Journal(tmp_path / "fit" / "journal.bin").n_known
    assert n_known >= 100
    rest = Model()
    assert same(peace[0], fit(make(rest), checkpoint=tmp_path / "fit"))
    assert len(rest.queried) == n_queried() - n_known


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork") or not Path("/proc/self/stat").exists(), reason="needs Linux")
def test_killed_at_random_moments():
    """A small version of `make faults`."""
    found = run_apart("faults", "kill", part=1, problem="names", n_kills=5)
    assert (found["kills"], found["identical"], found["paid_twice"]) == (5, 5, 0)
    assert found["asked_in_vain"] <= 5 * 16


def test_an_explainer_that_cannot_be_saved_costs_no_outputs(peace, tmp_path, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sointer.io.storage, "put", full)
        with pytest.raises(CheckpointError, match=r"could not be saved.*No space left.*call fit again"):
            fit(make(Model()), checkpoint=tmp_path / "fit")
    model = Model(stops_after=0)
    assert same(peace[0], fit(make(model), checkpoint=tmp_path / "fit"))
    assert model.queried == []
