"""How much faster does a slow black box predict on two dask workers than on one? The ratio first, seconds beside it.

The black box sleeps 10 ms for every row, as a remote or heavy model would take, so a busy machine hardly matters. The
same rows are queried in the same run in this process alone, on one worker, and on two; outputs are compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from sointer import BlackBox
from studies.frame.study import Case, Row, Study

SECONDS_PER_ROW = 0.010


def labels(X: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.column_stack([X[:, 0] > 0, X[:, 1] + X[:, 2] > 0, X.sum(axis=1) > 0])


def slow_model(X: Any) -> NDArray[np.bool_]:
    """Three labels of a row, after 10 ms for each row."""
    time.sleep(SECONDS_PER_ROW * len(X))
    return labels(X)


def median_seconds(box: BlackBox, X: NDArray[np.float64], n_repeats: int) -> float:
    """Of querying all rows; a first call, not timed, brings the model to the workers."""
    box(X[:8])
    times = []
    for _ in range(n_repeats):
        started = time.perf_counter()
        outputs = box(X)
        times.append(time.perf_counter() - started)
        assert (outputs == labels(X)).all()
    return statistics.median(times)


def cases(smoke: bool) -> Iterator[Case]:
    yield {"n_rows": 40, "n_repeats": 1} if smoke else {"n_rows": 400, "n_repeats": 3}


def run(n_rows: int, n_repeats: int) -> dict[str, Any]:
    """Seconds here, on one worker and on two, and their ratios."""
    from distributed import Client, LocalCluster

    X = np.random.default_rng(0).normal(size=(n_rows, 8))
    found = {"here": median_seconds(BlackBox(slow_model), X, n_repeats)}
    for n_workers in (1, 2):
        options = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
        with LocalCluster(processes=True, **options) as cluster, Client(cluster) as client:
            found[f"workers_{n_workers}"] = median_seconds(BlackBox(slow_model, client=client), X, n_repeats)
    with joblib.parallel_config(backend="threading"):
        found["threads_2"] = median_seconds(BlackBox(slow_model, n_jobs=2), X, n_repeats)
    return {
        "two_workers_over_one": round(found["workers_1"] / found["workers_2"], 3),
        "two_workers_over_none": round(found["here"] / found["workers_2"], 3),
        "share_of_time_in_the_black_box": round(SECONDS_PER_ROW * n_rows / 2 / found["workers_2"], 3),
        "seconds_by_place": {name: round(value, 3) for name, value in found.items()},
        "seconds_per_row": SECONDS_PER_ROW,
    }


def page(rows: list[Row], images: Path) -> str:
    """Nothing but the line among what was reached, in the beginning of the page."""
    return ""


STUDY = Study("fan_out", cases, run, page)
