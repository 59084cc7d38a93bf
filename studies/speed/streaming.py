"""How much memory, and how long, does it take to explain more rows than fit into it?

Sparse rows (1,000 features, 1 % of them not zero) are written to a Parquet file in a temporary folder, part by part. An
explainer is fitted on a few of them and saved. A fresh process loads it and explains the file; its peak resident memory
and its rows per second are what is reported.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import sointer
from sointer import SOInter
from sointer.io.parquet import write_sparse_parquet
from sointer.io.stream import stream_explain
from studies.frame.apart import apart, peak_gigabytes
from studies.frame.study import Case, Row, Study

N_FEATURES, DENSITY, N_TAGS, WORDS_PER_TAG, K = 1000, 0.01, 8, 5, 10
PART_ROWS = 50_000


def sparse_rows(n_rows: int, seed: int) -> Any:
    """Counts of words: each row has about ten of the thousand."""
    rng = np.random.default_rng(seed)
    n_entries = rng.binomial(N_FEATURES, DENSITY, n_rows)
    row = np.repeat(np.arange(n_rows), n_entries)
    column = rng.integers(0, N_FEATURES, n_entries.sum())
    counts = rng.integers(1, 4, n_entries.sum()).astype(np.float32)
    return sparse.csr_array(sparse.coo_array((counts, (row, column)), shape=(n_rows, N_FEATURES)))


def parts(n_rows: int) -> Iterator[Any]:
    for number, start in enumerate(range(0, n_rows, PART_ROWS)):
        yield sparse_rows(min(PART_ROWS, n_rows - start), seed=1 + number)


def tags(X: Any) -> NDArray[np.int64]:
    """The black box: a tag for each few words, and the last one if two others are there."""
    counts = np.column_stack(
        [np.asarray(X[:, range(t * WORDS_PER_TAG, (t + 1) * WORDS_PER_TAG)].sum(axis=1)).ravel() for t in range(N_TAGS)]
    )
    found = counts > 0
    found[:, -1] |= found[:, 0] & found[:, 1]
    return found.astype(int)


def explain_file(folder: str) -> dict[str, Any]:
    """Explain the file with the saved explainer; meant for a process of its own, whose memory is measured."""
    where = Path(folder)
    explainer = sointer.load(where / "explainer")
    loaded, used_before = int(peak_gigabytes() * 2**30), time.process_time()
    result = stream_explain(explainer, where / "rows.parquet", where / "why.parquet", target=N_TAGS - 1, progress=False)
    return {
        "rows": result.n_rows,
        "records": result.n_records,
        "rows_per_second": round(result.rows_per_second),
        "rows_per_cpu_second": round(result.n_rows / (time.process_time() - used_before)),
        "explain_seconds": round(result.seconds, 1),
        "peak_bytes": int(peak_gigabytes() * 2**30),
        "peak_bytes_before": loaded,
    }


def cases(smoke: bool) -> Iterator[Case]:
    yield {"n_rows": 500 if smoke else 1_000_000}


def run(n_rows: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sparse_parquet(parts(n_rows), folder / "rows.parquet")
        started = time.perf_counter()
        explainer = SOInter(tags, k=K, query_budget=min(5000, n_rows), random_state=0, verbose=False)
        explainer.fit(sparse_rows(min(5000, n_rows), seed=0)).save(folder / "explainer")
        fit_seconds = time.perf_counter() - started
        return apart(explain_file, folder=name) | {
            "source_bytes": (folder / "rows.parquet").stat().st_size,
            "dense_bytes": n_rows * N_FEATURES * 8,
            "written_bytes": (folder / "why.parquet").stat().st_size,
            "fit_seconds": round(fit_seconds, 1),
        }


def page(rows: list[Row], images: Path) -> str:
    """Nothing but the line among what was reached, in the beginning of the page."""
    return ""


STUDY = Study("streaming", cases, run, page)
