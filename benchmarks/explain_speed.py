"""How close is `explain` to the bare interpreter, and how long does fit take? Ratios first, seconds beside them.

    python benchmarks/explain_speed.py [--out docs/results/explain-speed.json]

Three things are timed in one run, on E1: fit; `explain` on 10,000 rows; and the bare interpreter's forward pass on the
same rows already converted to tensors, in chunks of the same size, with the same number of threads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import sointer
from sointer import SOInter
from sointer.datasets import paper_e1
from sointer.explainer import CHUNK_ROWS
from sointer.threads import one_thread

N_ROWS, N_REPEATS = 10_000, 5


def median_seconds(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(N_REPEATS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def measure(n_features: int) -> dict[str, float]:
    problem = paper_e1(n_features)
    X = problem.sample(2000, random_state=0)
    explainer = SOInter(problem, k=4, random_state=0, verbose=False)
    started = time.perf_counter()
    explainer.fit(X)
    fit_seconds = time.perf_counter() - started
    rows = problem.sample(N_ROWS, random_state=1)
    x = torch.from_numpy(rows.astype("float32"))
    targets = torch.ones(N_ROWS, dtype=torch.long)

    def bare() -> None:
        with torch.no_grad(), one_thread():
            for part, target in zip(x.split(CHUNK_ROWS), targets.split(CHUNK_ROWS), strict=True):
                explainer.interpreter_(part, target)

    explain_seconds = median_seconds(lambda: explainer.explain(rows, target=1))
    bare_seconds = median_seconds(bare)
    return {
        "n_features": n_features,
        "explain_over_bare": round(explain_seconds / bare_seconds, 3),
        "explain_seconds": round(explain_seconds, 3),
        "bare_seconds": round(bare_seconds, 3),
        "fit_seconds": round(fit_seconds, 2),
        "n_queries": explainer.n_queries_,
        "n_threads": 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results/explain-speed.json"))
    arguments = parser.parse_args()
    rows = []
    for n_features in (20, 200):
        rows.append(measure(n_features))
        print(json.dumps(rows[-1]), flush=True)
    facts = {
        "n_rows": N_ROWS,
        "torch": torch.__version__.split("+")[0],
        "sointer": sointer.__version__,
        "results": rows,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
