"""Faults on purpose, and what becomes of them: results, the page, and the table in docs/reliability.md.

    python faults/run.py                        # all that is left: some twenty minutes on one core
    python faults/run.py kill                   # one study
    python faults/run.py --list                 # which cases are left to run
    python faults/run.py --pages                # only the page and the table, from the results there are
    python faults/run.py --smoke --out /tmp/x   # a minute, to see that all of it works

Cases that have a result are not run again: delete a line of results/<study>.jsonl to repeat it, or give --again.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "experiments" / "frame")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

from command import OnePage, run_studies  # noqa: E402
from study import Row, read  # noqa: E402
from tables import sections, table  # noqa: E402

import sointer.errors  # noqa: E402, F401

NAMES = (
    "kill",
    "power",
    "decay",
    "flaky",
    "extremes",
    "servers",
    "fuzz_load",
    "fuzz_sizes",
    "honesty",
    "serve",
    "fuzz_serve",
    "fuzz_readers",
    "fuzz_cli",
    "leaks",
)
"""Each a module with a STUDY, and a `verdict` of its results: what was done, and what held."""
BEGIN, END = "<!-- faults: made by make faults -->", "<!-- end of faults -->"


def verdicts(found: dict[str, list[Row]]) -> str:
    lines = [["faults", "what held"]]
    return table(lines + [list(importlib.import_module(name).verdict(rows)) for name, rows in found.items()])


def opening(found: dict[str, list[Row]]) -> str:
    return sections("# Faults", "Made by `make faults`; all numbers from `faults/results`.", verdicts(found))


def update_pages(docs: Path) -> None:
    """Put the table of verdicts, and that of the study of honesty, between their marks."""
    found = {name: rows for name in NAMES if (rows := read(HERE / "results", name))}
    if found:
        put(docs / "reliability.md", BEGIN, END, verdicts(found))
    if "honesty" in found:
        honesty = importlib.import_module("honesty")
        put(docs / "trust.md", honesty.BEGIN, honesty.END, honesty.verdicts_table(found["honesty"]))


def put(page: Path, begin: str, end: str, content: str) -> None:
    text = page.read_text()
    if begin in text:
        before, rest = text.split(begin)
        page.write_text(f"{before}{begin}\n{content}\n{end}{rest.split(end)[1]}")


def main() -> int:
    code = run_studies(__doc__, NAMES, HERE, one_page=OnePage("faults", opening), n_threads=1)
    if "--out" not in " ".join(sys.argv):
        update_pages(HERE.parent / "docs")
    return code


if __name__ == "__main__":
    sys.exit(main())
