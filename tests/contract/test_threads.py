"""One explainer in many threads and processes: the answers of one."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import numpy as np
import pytest
import torch

import sointer
from quick import QUICK, SENTENCES, TABLE, WIDE, labels, quick_explainer, weather
from sointer import SOInter
from sointer._support.torch_state import one_thread
from sointer.explainers.baselines import HideAndSeek
from sointer.masking.rows import ExplainedRows

pytestmark = [
    pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning"),  # warnings.catch_warnings is not for threads
    pytest.mark.usefixtures("quick_paths"),
]
N_THREADS = 8


def fit(data, model=labels, seed=0):
    return SOInter(model, **QUICK | {"random_state": seed}).fit(data)


@pytest.fixture(scope="module")
def table():
    return fit(TABLE)


@pytest.fixture
def wide():
    return quick_explainer("wide")


def at_once(work, n=N_THREADS):
    """What `work` gives in n threads that start together."""
    start = threading.Barrier(n)

    def run(number):
        start.wait()
        return work(number)

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(run, range(n)))


def everything(explainer, data, target):
    """All that can be asked of an explainer, as arrays."""
    explanation = explainer.explain(data, target)
    refined = explainer.explain(data, target, refine=6)
    checked = explanation.verify(n_draws=3)
    paths = explanation.paths(n_draws=2)
    smallest = explainer.explain(data, target, k="auto")
    counts = np.array([checked.n_queries])
    return [explanation.scores, refined.selected, checked.agreement, counts, paths.total, paths.direct, smallest.mask]


def assert_equal(one, two):
    for place, (a, b) in enumerate(zip(one, two, strict=True)):
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), place


# --- threads -----------------------------------------------------------------------------------------------


def test_eight_threads_give_the_answers_of_one(table):
    alone = [everything(table, TABLE[:20], target) for target in range(3)]
    table._tracer = None  # all threads find that the networks for paths are still to be learned
    before = table.n_explain_queries_
    together = at_once(lambda number: everything(table, TABLE[:20], number % 3))
    for number, found in enumerate(together):
        assert_equal(alone[number % 3], found)
    during = table.n_explain_queries_ - before
    before = table.n_explain_queries_
    for number in range(N_THREADS):
        everything(table, TABLE[:20], number % 3)
    assert table.n_explain_queries_ - before == during


def test_wide_and_narrow_explainers_at_once(table, wide):
    expected = table.explain(TABLE, 1).scores, wide.explain(WIDE, 1).scores
    found = at_once(lambda number: (wide.explain(WIDE, 1) if number % 2 else table.explain(TABLE, 1)).scores)
    for number, scores in enumerate(found):
        assert np.array_equal(scores, expected[number % 2])


def test_fits_at_once_are_fits_alone(table):
    other = fit(TABLE, seed=1)
    expected = [table.explain(TABLE, 1).scores, other.explain(TABLE, 1).scores]
    found = at_once(lambda number: fit(TABLE, seed=number % 2).explain(TABLE, 1).scores, n=4)
    for number, scores in enumerate(found):
        assert np.array_equal(scores, expected[number % 2])


def test_loading_at_once_leaves_the_global_generator_alone(table, tmp_path):
    table.save(tmp_path / "why")
    before = torch.random.get_rng_state()
    loaded = at_once(lambda number: sointer.load(tmp_path / "why"))
    assert torch.equal(before, torch.random.get_rng_state())
    for one in loaded:
        assert np.array_equal(one.explain(TABLE, 1).scores, table.explain(TABLE, 1, query=False).scores)


def test_the_number_of_threads_is_given_back(table):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        at_once(lambda number: table.explain(TABLE, 1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# --- processes ---------------------------------------------------------------------------------------------


def in_a_fork(work, place, most_seconds=120):
    """What `work` gives in a forked process."""
    gc.collect()  # what other tests left behind, such as threads of onnxruntime, cannot be ended in a fork
    child = os.fork()
    if child == 0:
        gc.disable()
        code = 1
        try:
            signal.alarm(most_seconds)
            np.savez(place, *work())
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with np.load(place) as found:
        return [found[name] for name in found.files]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_gives_the_same_answers(table, wide, tmp_path):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        torch.ones(600, 600) @ torch.ones(600, 600)  # torch's own threads are there, and will not be after a fork
        expected = everything(table, TABLE[:20], 1)
        expected_wide = [wide.explain(WIDE, 1).scores]
        assert_equal(in_a_fork(lambda: everything(table, TABLE[:20], 1), tmp_path / "a.npz"), expected)
        assert_equal(in_a_fork(lambda: [wide.explain(WIDE, 1).scores], tmp_path / "b.npz"), expected_wide)
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_other_threads_explain(table, tmp_path):
    expected = [table.explain(TABLE, 1).scores]
    stop = threading.Event()

    def keep_explaining():
        while not stop.is_set():
            table.explain(TABLE, 1)

    threads = [threading.Thread(target=keep_explaining) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(5):
            found = in_a_fork(lambda: [table.explain(TABLE, 1).scores], tmp_path / f"{number}.npz")
            assert_equal(found, expected)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_rows_that_another_thread_is_busy_with_hold_up_nobody(table, tmp_path):
    """Python 3.11 would lock what is computed once for all objects of a class, and for ever in a fork."""
    expected = [table.explain(TABLE, 1).scores]
    is_busy, may_go_on = threading.Event(), threading.Event()

    class BusyRows(ExplainedRows):
        @property
        def n_samples(self):
            is_busy.set()
            may_go_on.wait(120)
            return 1

    busy = BusyRows(**{field.name: getattr(table._source(TABLE, None), field.name) for field in fields(ExplainedRows)})
    waiting = threading.Thread(target=lambda: busy.sample_of_row)
    waiting.start()
    found = []
    try:
        assert is_busy.wait(60)
        beside = threading.Thread(target=lambda: found.append(table.explain(TABLE, 1).scores), daemon=True)
        beside.start()
        beside.join(20)
        assert_equal(in_a_fork(lambda: [table.explain(TABLE, 1).scores], tmp_path / "a.npz", 20), expected)
        assert_equal(found, expected)
    finally:
        may_go_on.set()
        waiting.join()


FRESH = """
import sys, numpy, sointer
data = numpy.load(sys.argv[2])
numpy.save(sys.argv[3], sointer.load(sys.argv[1]).explain(data, 1).scores)
"""


def test_a_fresh_process_gives_the_same_answers(table, tmp_path):
    table.save(tmp_path / "why")
    np.save(tmp_path / "data.npy", TABLE)
    arguments = [tmp_path / "why", tmp_path / "data.npy", tmp_path / "scores.npy"]
    subprocess.run([sys.executable, "-c", FRESH, *map(str, arguments)], check=True, timeout=300)
    assert np.array_equal(np.load(tmp_path / "scores.npy"), table.explain(TABLE, 1, query=False).scores)


# --- numbers too small for full precision ------------------------------------------------------------------------


def sees_denormals() -> bool:
    return float(torch.tensor(torch.finfo(torch.float32).tiny) / 2) > 0


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor does not flush denormals")
def test_our_networks_do_without_denormals_and_the_black_box_and_the_caller_keep_them():
    seen, inside = [], []

    def asking(batch):
        seen.append(sees_denormals())
        return labels(batch)

    with one_thread():
        inside.append(sees_denormals())
        with one_thread():
            pass
        inside.append(sees_denormals())
    fit(TABLE, asking).explain(TABLE[:5], 1)
    assert inside == [False, False]
    assert set(seen) == {True}
    assert sees_denormals()


@pytest.mark.parametrize("kind", ["table", "sequences", "HideAndSeek"])
def test_threads_that_begin_during_a_fit_have_their_own_number_of_torch_threads(kind, monkeypatch):
    found, is_done = [], threading.Event()

    def look():
        while not is_done.is_set():
            other = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
            other.start()
            other.join()
            is_done.wait(0.002)

    monkeypatch.setattr("sointer.training.sequences.MIN_STEPS", 50)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    looking = threading.Thread(target=look)
    looking.start()
    n_fits = 0
    try:
        while n_fits < 10 and len(found) < 20:  # a quick fit on a busy machine is seen by few
            n_fits += 1
            if kind == "table":
                fit(TABLE)
            elif kind == "sequences":
                SOInter(weather, query_budget=300, random_state=0).fit(SENTENCES)
            else:
                HideAndSeek(labels, k=2, n_epochs=60, random_state=0).fit(TABLE)
            assert torch.get_num_threads() == 3
    finally:
        is_done.set()
        looking.join()
        torch.set_num_threads(before)
    assert len(found) >= 4
    # The moment between the setting for fit and the one for others is that of a thread's start.
    assert len(found) - found.count(3) <= 2 * n_fits + 0.1 * len(found)
