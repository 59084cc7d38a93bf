"""How much faster does a slow black box answer on two dask workers than on one? The ratio first, seconds beside it.

    python -m studies.speed.fan_out [--out studies/results/speed/fan-out.json]

The black box sleeps 10 ms for every row, as a remote or heavy model would take, so a busy machine hardly matters. The
same rows are asked in the same run of this process alone, of one worker, and of two; answers are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import sointer
from sointer import BlackBox

SECONDS_PER_ROW, N_ROWS, N_REPEATS = 0.010, 400, 3


def slow_model(X: Any) -> np.ndarray:
    """Three labels of a row, after 10 ms for each row."""
    time.sleep(SECONDS_PER_ROW * len(X))
    return np.column_stack([X[:, 0] > 0, X[:, 1] + X[:, 2] > 0, X.sum(axis=1) > 0])


def median_seconds(box: BlackBox, X: np.ndarray) -> float:
    """Of asking about all rows; a first call, not timed, brings the model to the workers."""
    box(X[:8])
    times = []
    for _ in range(N_REPEATS):
        started = time.perf_counter()
        answers = box(X)
        times.append(time.perf_counter() - started)
        assert (answers == EXPECTED).all()
    return statistics.median(times)


def measure() -> dict[str, Any]:
    """Seconds here, on one worker and on two, and their ratios."""
    from distributed import Client, LocalCluster

    seconds = {"here": median_seconds(BlackBox(slow_model), X)}
    for n_workers in (1, 2):
        options = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
        with LocalCluster(processes=True, **options) as cluster, Client(cluster) as client:
            seconds[f"workers_{n_workers}"] = median_seconds(BlackBox(slow_model, client=client), X)
    threads = BlackBox(slow_model, n_jobs=2)
    import joblib

    with joblib.parallel_config(backend="threading"):
        seconds["threads_2"] = median_seconds(threads, X)
    bare = SECONDS_PER_ROW * N_ROWS
    return {
        "two_workers_over_one": round(seconds["workers_1"] / seconds["workers_2"], 3),
        "two_workers_over_none": round(seconds["here"] / seconds["workers_2"], 3),
        "share_of_time_in_the_black_box": round(bare / 2 / seconds["workers_2"], 3),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "seconds_per_row": SECONDS_PER_ROW,
        "n_rows": N_ROWS,
        "n_repeats": N_REPEATS,
    }


X = np.random.default_rng(0).normal(size=(N_ROWS, 8))
EXPECTED = np.column_stack([X[:, 0] > 0, X[:, 1] + X[:, 2] > 0, X.sum(axis=1) > 0])

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("studies/results/speed/fan-out.json"))
    arguments = parser.parse_args()
    result = {"version": sointer.__version__, **measure()}
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
