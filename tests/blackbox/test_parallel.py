"""Batches spread over threads, processes and a real dask cluster: the same outputs, and nothing lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from scipy import sparse

import forking
from quick import quick_fit
from sointer import BlackBox, CommandBlackBox, HTTPBlackBox, ONNXBlackBox
from sointer.blackbox.parallel import MIN_ROWS, rows_per_batch
from sointer.errors import BlackBoxError, InputError, QueryBudgetExceeded

X = np.random.default_rng(0).normal(size=(90, 3))


def slow_model(X: Any, seconds: float = 0.0, log: Path | None = None) -> np.ndarray:
    """Says for each row what it is, takes its time, and writes down which process computed how many rows."""
    dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
    time.sleep(seconds * len(dense))
    if log is not None:
        with log.open("a") as file:
            file.write(f"{os.getpid()} {len(dense)}\n")
    return np.column_stack([dense[:, 0] > 0, dense.sum(axis=1) > 0])


EXPECTED = slow_model(X)


def logged(log: Path) -> dict[int, int]:
    """How many rows each process computed."""
    totals: dict[int, int] = {}
    for line in log.read_text().splitlines():
        pid, n = map(int, line.split())
        totals[pid] = totals.get(pid, 0) + n
    return totals


def test_rows_per_batch_keep_all_workers_busy() -> None:
    assert rows_per_batch(1000, 1, 1024) == 1024
    assert rows_per_batch(1000, 2, 1024) == 500
    assert rows_per_batch(3000, 2, 1024) == 750  # not 1024, 1024, 952
    assert rows_per_batch(7, 4, 1024) == MIN_ROWS
    assert rows_per_batch(7, 4, 3) == 3
    for n, workers, size in ((1, 8, 5), (99, 7, 10), (10_000, 3, 1000)):
        rows = rows_per_batch(n, workers, size)
        assert 1 <= rows <= size
        n_batches = -(-n // rows)
        assert n_batches % workers == 0 or n < workers * MIN_ROWS or rows * (n_batches - 1) < n


# --- joblib ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix])
def test_threads_give_the_same_outputs_at_the_same_time(make: Any) -> None:
    here = threading.Barrier(3, timeout=20)

    def meets(batch: Any) -> np.ndarray:
        here.wait()  # passes only when three calls are under way
        return slow_model(batch)

    box = BlackBox(meets, n_jobs=3, batch_size=10, query_budget=90)
    with joblib.parallel_config(backend="threading"):
        np.testing.assert_array_equal(box(make(X)), EXPECTED)
    assert (box.n_queries, box.remaining, box.n_failures) == (90, 0, 0)


def test_processes_give_the_same_outputs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    box = BlackBox(partial(slow_model, seconds=0.002, log=log), n_jobs=2, batch_size=10, cache=True)
    np.testing.assert_array_equal(box(X), EXPECTED)
    assert sum(logged(log).values()) == box.n_queries == 90
    assert os.getpid() not in logged(log)
    np.testing.assert_array_equal(box(X), EXPECTED)
    assert box.n_queries == 90


def test_backends_that_give_all_results_at_the_end() -> None:
    from joblib._parallel_backends import ThreadingBackend

    class AtTheEnd(ThreadingBackend):
        supports_return_generator = False

    joblib.register_parallel_backend("at the end", AtTheEnd)
    box = BlackBox(slow_model, n_jobs=2, batch_size=7)
    with joblib.parallel_config(backend="at the end"):
        np.testing.assert_array_equal(box(X), EXPECTED)
    assert box.n_queries == 90


def test_a_failure_in_a_worker_is_told_here() -> None:
    def fails(batch: np.ndarray) -> np.ndarray:
        if (batch[:, 0] == X[45, 0]).any():
            raise ZeroDivisionError("by design")
        return slow_model(batch)

    heard: list[int] = []
    box = BlackBox(fails, n_jobs=2, batch_size=9, retries=1, query_budget=1000)
    with (
        joblib.parallel_config(backend="threading"),
        pytest.raises(BlackBoxError, match=r"fails raised ZeroDivisionError: by design.* It was tried 2 times"),
    ):
        box(X, on_answer=lambda rows, table: heard.extend(rows))
    assert (box.n_failures, box.n_retries, box.n_retried_rows) == (2, 1, 9)
    assert box.n_queries == len(heard) + 9  # what was under way is not lost
    assert box.remaining == 1000 - box.n_queries
    assert not set(heard) & set(range(45, 54))


def test_what_cannot_be_sent_is_said() -> None:
    lock = threading.Lock()
    box = BlackBox(lambda batch: lock and slow_model(batch), n_jobs=2, batch_size=10, query_budget=90)
    with (
        joblib.parallel_config(backend="loky"),
        pytest.raises(InputError, match=r"cannot be pickled.*n_jobs and client"),
    ):
        box(X)


def test_a_budget_is_refused_before_anything_is_sent() -> None:
    box = BlackBox(slow_model, n_jobs=2, query_budget=89)
    with pytest.raises(QueryBudgetExceeded):
        box(X)
    assert box.n_queries == 0


# --- dask --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        forking.dask_workers(),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_cluster_gives_the_same_outputs(client: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    box = BlackBox(partial(slow_model, seconds=0.002, log=log), client=client, batch_size=20, query_budget=180)
    heard: list[int] = []
    np.testing.assert_array_equal(box(X, on_answer=lambda rows, table: heard.extend(rows)), EXPECTED)
    assert sorted(heard) == list(range(90))
    totals = logged(log)
    assert len(totals) == 2, "a worker had nothing to do"
    assert min(totals.values()) >= 30, "a worker had little to do"
    assert os.getpid() not in totals
    assert sum(totals.values()) == box.n_queries == 90
    np.testing.assert_array_equal(box(sparse.csr_matrix(X)), EXPECTED)
    assert box.remaining == 0


def test_fit_asks_the_cluster_and_learns_the_same(client: Any) -> None:
    box = BlackBox(slow_model, client=client, batch_size=50)
    there = quick_fit(box, X).explain(X, target=1)
    here = quick_fit(slow_model, X).explain(X, target=1)
    np.testing.assert_array_equal(there.scores, here.scores)
    assert 180 <= box.n_queries - len(X) <= 200


def test_joblib_finds_the_cluster_too(client: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    box = BlackBox(partial(slow_model, log=log), n_jobs=2, batch_size=20)
    with joblib.parallel_config(backend="dask"):
        np.testing.assert_array_equal(box(X), EXPECTED)
    workers = set(client.run(os.getpid).values())
    assert set(logged(log)) <= workers
    assert box.n_queries == 90


def test_a_failing_model_on_a_cluster(client: Any) -> None:
    def fails(batch: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("by design")

    box = BlackBox(fails, client=client, retries=1, batch_size=10, query_budget=90)
    with pytest.raises(BlackBoxError, match=r"fails raised ZeroDivisionError: by design.* It was tried 2 times"):
        box(X)
    assert box.remaining == 90 - box.n_queries
    assert box.n_failures == 2 * box.n_retries > 0
    lock = threading.Lock()
    with pytest.raises(InputError, match="cannot be pickled"):
        BlackBox(lambda batch: lock and slow_model(batch), client=client)(X)


def test_a_worker_killed_half_way_loses_nothing(client: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    box = BlackBox(partial(slow_model, seconds=0.01, log=log), client=client, batch_size=5)
    victim = next(iter(client.run(os.getpid).values()))
    heard: list[int] = []

    def kill_once(rows: np.ndarray, table: np.ndarray) -> None:
        heard.extend(rows)
        if len(heard) == len(rows) * 6:
            os.kill(victim, signal.SIGKILL)

    np.testing.assert_array_equal(box(X, on_answer=kill_once), EXPECTED)
    assert sorted(heard) == list(range(90))
    assert box.n_queries == 90
    client.wait_for_workers(2, timeout=30)
    assert victim not in client.run(os.getpid).values()
    np.testing.assert_array_equal(box(X), EXPECTED)  # the model reaches the new worker


def test_models_elsewhere_are_reached_from_the_workers(client: Any, tmp_path: Path) -> None:
    from skl2onnx import to_onnx
    from sklearn.linear_model import LinearRegression

    from model_server import ModelServer, model, serve

    rows = np.random.default_rng(1).normal(size=(40, 4)).astype(np.float32)
    server = ModelServer()
    with serve(server.app) as url:
        box: BlackBox = HTTPBlackBox(url, client=client, batch_size=10)
        assert box(rows[:1]).shape == (1, 3)
        np.testing.assert_array_equal(box(rows), model(rows))
    assert server.n_requests == 5
    truth = LinearRegression().fit(rows, rows[:, :2] @ np.ones((2, 3)))
    (tmp_path / "m.onnx").write_bytes(to_onnx(truth, rows[:1]).SerializeToString())
    box = ONNXBlackBox(tmp_path / "m.onnx", client=client, batch_size=10)
    np.testing.assert_allclose(box(rows), truth.predict(rows), atol=1e-5)
    loop = "for line in sys.stdin: print(json.dumps({'outputs': json.loads(line)['rows']}), flush=True)"
    code = f"import json, sys; exec({loop!r})"
    box = CommandBlackBox([sys.executable, "-S", "-c", code], client=client, batch_size=10)
    np.testing.assert_allclose(box(rows), rows)


def test_wrong_workers() -> None:
    for options, words in (
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"n_jobs": True}, "n_jobs must be"),
        ({"client": 3}, "client must be a dask"),
        ({"client": object(), "n_jobs": 2}, "Give one of the two"),
    ):
        with pytest.raises(InputError, match=words):
            BlackBox(slow_model, **options)  # type: ignore[arg-type]
