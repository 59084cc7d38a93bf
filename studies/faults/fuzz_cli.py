"""What does the command line make of arguments that make no sense?"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sointer import SOInter, TrainingConfig
from sointer.apps.cli import main
from studies.faults.fuzzing import fuzz, n_tried, section, what_held
from studies.frame.study import Case, Row, Study

PER_PART, N_PARTS = 500, 20
PRINTED = 300
COMMANDS = ("explain", "info", "report", "evaluate", "fit")
OPTIONS = (
    *("--data", "--out", "--target", "-t", "--k", "--model", "--refine", "--verify", "--method", "--header", "--text"),
    *("--chunk-rows", "--force", "--json", "--quiet", "--verbose", "--no-query", "--seed", "--removal", "--preset"),
    *("--drop", "--output-names", "--feature-names", "--output-kind", "--batch-size", "--checkpoint", "--at-least"),
    *("--targets", "--n-samples", "--title", "--help", "--version", "-o", "-d", "-k", "-q", "-v", "--", "-x"),
)
# All paths are relative: what is written stays in a temporary folder.
VALUES = (
    *("", " ", "-", "--", "0", "1", "2", "-1", "1.5", "nan", "1e400", "9" * 40, "auto", "all", "y0", "y1", "a", "a,b"),
    *("X.csv", "X.npy", "broken.csv", "empty.csv", "text.txt", "missing.csv", "why", "why/", "nowhere/", "."),
    *("model:predict", "model:nothing", "model:", ":predict", "model", "nothing:predict", "model:number", "m.onnx"),
    *("out.csv", "out.jsonl", "out.parquet", "out.html", "out.xyz", "new/", "no/such/out.csv", "zero", "paper"),
    *("a: b", "nocolon", "x: ${MISSING}", "binary", "@X.csv", "@missing", "12,20", "é", "\udcff", "\x1b[31m"),
    *("http://", "http://[", "ftp://x", "https://:x", "predict_proba", "%s", "{0}", "<script>", "a\nb", "x" * 3000),
)
MODEL = """
import numpy as np
number = 7
def predict(X):
    X = np.asarray(X, dtype=float)
    return np.column_stack([X[:, 0] > 0, X[:, 1] > 0]).astype(int)
"""


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "n": 20 if smoke else PER_PART}


def furnish(folder: Path) -> None:
    """What arguments can name: data, a model, an explainer, and things that are none."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    np.save(folder / "X.npy", X)
    (folder / "X.csv").write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in X[:8]))
    (folder / "broken.csv").write_bytes(b'a,b\n1,"2\n\xff,3,4\n')
    (folder / "empty.csv").write_text("")
    (folder / "text.txt").write_text("hello")
    (folder / "m.onnx").write_bytes(b"not a model")
    (folder / "model.py").write_text(MODEL)
    quick = {"training": TrainingConfig(n_epochs=1)}

    def predict(X: Any) -> Any:
        return np.column_stack([X[:, 0] > 0, X[:, 1] > 0]).astype(int)

    SOInter(predict, k=2, query_budget=100, random_state=0, verbose=False, **quick).fit(X).save(folder / "why")


def make(rng: np.random.Generator) -> tuple[str, Callable[[], str]]:
    """A command that would work, with some of its arguments changed, lost, doubled or added."""
    name = str(rng.choice(COMMANDS, p=[0.45, 0.15, 0.15, 0.15, 0.1]))
    arguments = {
        "explain": ["why", "--data", "X.csv", "--target", "y1", "--out", "out.csv", "--force"],
        "info": ["why"],
        "report": ["why", "--data", "X.csv", "--out", "out.html", "--force"],
        "evaluate": ["why", "--model", "model:predict", "--data", "X.csv"],
        "fit": ["--model", "model:nothing", "--data", "X.csv", "--out", "new/", "--query-budget", "50"],
    }[name]
    for _ in range(int(rng.integers(1, 5))):
        kind, place = int(rng.integers(4)), int(rng.integers(len(arguments) + 1))
        if kind == 0 and place < len(arguments):
            arguments[place] = str(rng.choice(VALUES))
        elif kind == 1 and place < len(arguments):
            del arguments[place]
        elif kind == 2:
            arguments[place:place] = [str(rng.choice(OPTIONS)), str(rng.choice(VALUES))]
        else:
            arguments.insert(place, str(rng.choice((*OPTIONS, *VALUES))))
    arguments = [name, *arguments]
    return " ".join(arguments).encode("ascii", "backslashreplace").decode()[:PRINTED], lambda: attempt(arguments)


def attempt(arguments: list[str]) -> str:
    """Exit codes and messages as promised, or an error."""
    out, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    before, sys.argv = sys.argv, ["sointer", *arguments]
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = before
    said = errors.getvalue()
    if code not in (0, None, 1, 2, 3):
        raise RuntimeError(f"exit code {code}: {said[-PRINTED:]}")
    if "this should not happen" in said or ("Traceback" in said and not {"--verbose", "-v"} & set(arguments)):
        raise RuntimeError(said[-1000:])
    if code in (1, 2) and "rror" not in said:
        raise RuntimeError(f"exit code {code} without a reason: {said[-PRINTED:]}")
    return "accepted" if code in (0, None, 3) else "refused"


def run(part: int, n: int) -> dict[str, Any]:
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        furnish(Path(folder))
        os.chdir(folder)
        try:
            return fuzz(make, part, n)
        finally:
            os.chdir(here)


def verdict(rows: list[Row]) -> tuple[str, str]:
    return f"{n_tried(rows):,} commands with invalid arguments", what_held(rows)


def page(rows: list[Row], images: Path) -> str:
    lead = (
        f"`sointer {' | '.join(COMMANDS)}` with arguments changed, dropped, duplicated and added. A crash is a "
        "traceback, an "
        "undocumented exit code, or an error without a message."
    )
    return section("The command line", lead, rows)


STUDY = Study("fuzz_cli", cases, run, page)
