"""How long does importing sointer take, next to `import torch`, which it needs?"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from studies.frame.apart import ONE_THREAD
from studies.frame.markdown import sections, table
from studies.frame.study import Case, Row, Study

TORCH = "import torch"
NEEDED = "import torch, scipy.sparse, sklearn.base"
OURS = ("import sointer", "from sointer import SOInter")
STATEMENTS = (TORCH, NEEDED, *OURS)
"""`import sointer` may put off what the last one cannot: loading the libraries that are needed."""
N_REPEATS = 7
BAR = 1.3
"""Times `import torch`: what is required."""


def cases(smoke: bool) -> Iterator[Case]:
    yield {"n_repeats": 1 if smoke else N_REPEATS}


def run(n_repeats: int) -> dict[str, Any]:
    """Fresh interpreters that take turns; the very first of each reads the files from the disk and is not counted."""
    times: dict[str, list[float]] = {statement: [] for statement in STATEMENTS}
    for turn in range(n_repeats + (n_repeats > 1)):
        for statement in STATEMENTS:
            seconds = seconds_of(statement)
            if turn or n_repeats == 1:
                times[statement].append(seconds)
    found = {statement: statistics.median(seconds) for statement, seconds in times.items()}
    return {"medians": found, "times": times, "ratios": {name: found[name] / found[TORCH] for name in found}}


def seconds_of(statement: str) -> float:
    code = f"import time; started = time.perf_counter(); {statement}; print(time.perf_counter() - started)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True, check=True)
    return float(done.stdout)


# --- the page ----------------------------------------------------------------------------------------------


def page(rows: list[Row], images: Path) -> str:
    found, ratios = rows[-1]["medians"], rows[-1]["ratios"]
    lines = [[f"`{name}`", f"{seconds:.2f}", f"{ratios[name]:.2f}"] for name, seconds in found.items()]
    return sections(
        "## Importing",
        f"Median of {rows[-1]['n_repeats']} runs in fresh interpreters. `import sointer` loads modules when they are "
        "first used; the explainer itself needs torch, scipy and scikit-learn.",
        table(["", "seconds", f"times `{TORCH}`"], lines),
    )


STUDY = Study("imports", cases, run, page)
