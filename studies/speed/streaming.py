"""How much memory, and how long, does it take to explain more rows than fit into it?

    python -m studies.speed.streaming [--rows 1000000] [--out studies/results/speed/streaming.json]

Sparse rows (1,000 features, 1 % of them not zero) are written to a Parquet file in a temporary folder, part by part. An
explainer is fitted on a few of them and saved. A fresh process loads it and explains the file; its peak resident memory
and its rows per second are what is reported.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from studies.speed.apart import peak_gigabytes

N_FEATURES, DENSITY, N_TAGS, WORDS_PER_TAG, K = 1000, 0.01, 8, 5, 10
PART_ROWS = 50_000
MAX_BYTES = 2e9


def sparse_rows(n_rows: int, seed: int) -> Any:
    """Counts of words: each row has about ten of the thousand."""
    from scipy import sparse

    rng = np.random.default_rng(seed)
    n_entries = rng.binomial(N_FEATURES, DENSITY, n_rows)
    row = np.repeat(np.arange(n_rows), n_entries)
    column = rng.integers(0, N_FEATURES, n_entries.sum())
    counts = rng.integers(1, 4, n_entries.sum()).astype(np.float32)
    return sparse.csr_array(sparse.coo_array((counts, (row, column)), shape=(n_rows, N_FEATURES)))


def parts(n_rows: int) -> Iterator[Any]:
    for number, start in enumerate(range(0, n_rows, PART_ROWS)):
        yield sparse_rows(min(PART_ROWS, n_rows - start), seed=1 + number)


def tags(X: Any) -> np.ndarray:
    """The black box: a tag for each few words, and the last one if two others are there."""
    counts = np.column_stack(
        [np.asarray(X[:, range(t * WORDS_PER_TAG, (t + 1) * WORDS_PER_TAG)].sum(axis=1)).ravel() for t in range(N_TAGS)]
    )
    found = counts > 0
    found[:, -1] |= found[:, 0] & found[:, 1]
    return found.astype(int)


def explain_file(folder: Path) -> dict[str, float]:
    """Explain the file with the saved explainer; meant for a process of its own, whose memory is measured."""
    import sointer
    from sointer.io.stream import stream_explain

    explainer = sointer.load(folder / "explainer")
    loaded, used_before = int(peak_gigabytes() * 2**30), time.process_time()
    result = stream_explain(
        explainer, folder / "rows.parquet", folder / "why.parquet", target=N_TAGS - 1, progress=False
    )
    return {
        "rows": result.n_rows,
        "records": result.n_records,
        "rows_per_second": round(result.rows_per_second),
        "rows_per_cpu_second": round(result.n_rows / (time.process_time() - used_before)),
        "seconds": round(result.seconds, 1),
        "peak_bytes": int(peak_gigabytes() * 2**30),
        "peak_bytes_before": loaded,
        "n_threads": int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)),
    }


def measure(n_rows: int, folder: Path) -> dict[str, float]:
    import sointer
    from sointer import SOInter
    from sointer.io.parquet import write_sparse_parquet

    write_sparse_parquet(parts(n_rows), folder / "rows.parquet")
    started = time.perf_counter()
    SOInter(tags, k=K, query_budget=5000, random_state=0, verbose=False).fit(sparse_rows(5000, seed=0)).save(
        folder / "explainer"
    )
    fit_seconds = time.perf_counter() - started
    told = subprocess.run(
        [sys.executable, "-m", "studies.speed.streaming", "--explain", str(folder)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    facts: dict[str, float] = json.loads(told.stdout)
    return facts | {
        "source_bytes": (folder / "rows.parquet").stat().st_size,
        "dense_bytes": n_rows * N_FEATURES * 8,
        "written_bytes": (folder / "why.parquet").stat().st_size,
        "fit_seconds": round(fit_seconds, 1),
        "sointer": sointer.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path("studies/results/speed/streaming.json"))
    parser.add_argument("--explain", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.explain is not None:
        print(json.dumps(explain_file(arguments.explain)))
        return
    with tempfile.TemporaryDirectory() as folder:
        facts = measure(arguments.rows, Path(folder))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))
    if facts["peak_bytes"] > MAX_BYTES:
        sys.exit(f"peak memory {facts['peak_bytes'] / 1e9:.2f} GB is above {MAX_BYTES / 1e9:.0f} GB")


if __name__ == "__main__":
    main()
