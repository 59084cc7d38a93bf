"""Which studies there are, in families that share models and a folder."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from studies.frame.study import Study


@dataclass(frozen=True)
class Family:
    """Studies of one folder: studies/<family>/<study>.py has a `STUDY`, its results are in studies/results/<family>."""

    about: str
    """What is measured, how long it takes on one core, and what it needs."""
    studies: tuple[str, ...]
    method: str | None
    """Whose version its rows name: a kind of data of `studies.frame.method`; None if the method does not matter."""
    page: str | None = None
    """The one page on which all of them have a section, in the order above; studies/<family>/page.py has its
    `opening`, and may have a `closing` and `inserts` for other pages. Without it every study has a page of its own."""


FAMILIES = {
    "synthetic": Family(
        "Synthetic problems whose deciding features are known. Hours.",
        ("accuracy", "problems", "mediated", "paths", "leakage", "removal", "sensitivity", "explaining_time"),
        "tables",
    ),
    "instancewise": Family(
        "Relevant features that differ from sample to sample. Two hours.", ("instancewise",), "tables"
    ),
    "tables": Family(
        "Models of real tables, and whether it pays to learn all outputs together. Hours; emotions and scene from "
        "SOINTER_DATA.",
        ("tables", "structure"),
        "tables",
    ),
    "text": Family(
        "Models that tag texts: the paper's Tables 1 and 2. Hours; data sets that are not in SOINTER_DATA and cannot "
        "be downloaded are left out.",
        ("text", "strings"),
        "texts",
    ),
    "horses": Family(
        "Single pixels of segmented horses. An hour and a half; the horses from SOINTER_DATA.",
        ("planted", "coupled", "unseen", "segmenters", "large", "speed"),
        "images",
        page="horses",
    ),
    "text_detector": Family(
        "A text detector on drawn words with known strokes. An hour; needs pip install 'sointer[ocr,plot]'.",
        ("text_detector",),
        "images",
    ),
    "usaddress": Family(
        "Tokens behind the labels of a published tagger of addresses, and planted chains. Half an hour; needs pip "
        "install 'sointer[addresses,baselines]' and usaddress.jsonl.gz in SOINTER_DATA.",
        ("sets", "chains", "speed"),
        "sequences",
        page="usaddress",
    ),
    "speed": Family(
        "Speed, queries and memory against other packages. An hour, on a machine that does nothing else.",
        ("peers", "scaling", "explain", "slow_black_box", "streaming", "fan_out", "imports"),
        "tables",
        page="benchmarks",
    ),
    "faults": Family(
        "Faults on purpose, and what becomes of them; also the tables in docs/concepts/{reliability,trust}.md. "
        "Half an hour.",
        (
            "kill",
            "power",
            "full_disk",
            "decay",
            "flaky",
            "extremes",
            "servers",
            "fuzz_load",
            "fuzz_sizes",
            "fuzz_empty",
            "honesty",
            "serve",
            "lockout",
            "forks",
            "fuzz_serve",
            "large_texts",
            "fuzz_readers",
            "fuzz_records",
            "fuzz_cli",
            "leaks",
            "interrupts",
            "rows",
            "threads",
        ),
        None,
        page="faults",
    ),
}


def load_study(family: str, name: str) -> Study:
    """A study, imported only now: each needs other packages."""
    found: Study = importlib.import_module(f"studies.{family}.{name}").STUDY
    return found


def load_page(family: str) -> Any:
    """The module of a family's one page."""
    return importlib.import_module(f"studies.{family}.page")
