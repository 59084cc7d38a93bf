"""What does loading make of explainers whose sizes all agree, and are meant to fill the memory or never to end?"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import sointer
from sointer.errors import SointerError
from studies.faults import fuzz_load
from studies.faults.consistent import GROWTHS, make_consistent
from studies.faults.consistent_words import OF_SEQUENCES, OF_TEXTS
from studies.faults.counting import total
from studies.faults.fuzzing import MAX_SECONDS, OUTCOMES, fuzz, n_tried, section
from studies.faults.mutations import fresh_copy
from studies.frame.study import Case, Row, Study

PER_PART, N_PARTS, N_WORDY_PARTS = 200, 40, 10
FREE, TIMES = 2**28, 4
"""Bytes that loading may ask for: so many, and so many times the size of the directory."""
FOLDER = Path()
OF_WORDS = {"texts": OF_TEXTS, "text columns": OF_TEXTS, "sequences": OF_SEQUENCES}


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "n": 20 if smoke else PER_PART}
    for part in range(1 if smoke else N_WORDY_PARTS):
        yield {"part": part, "n": 20 if smoke else PER_PART, "kinds": "texts and sequences"}


def make(rng: np.random.Generator, which: str = "tables and images") -> tuple[str, Callable[[], str], int]:
    name = str(rng.choice(list(fuzz_load.KINDS[which])))
    place = FOLDER / "grown"
    fresh_copy(FOLDER / "saved" / name, place)
    what = make_consistent(place, rng, OF_WORDS.get(name, GROWTHS))
    n_bytes = sum(path.stat().st_size for path in place.iterdir())

    def attempt() -> str:
        try:
            sointer.load(place)
        except SointerError as error:
            if "MemoryError" in str(error) or "allocate" in str(error):
                raise MemoryError(str(error)) from error
            return "refused"
        return "accepted"

    return f"{name}: {what} ({n_bytes:,} bytes)", attempt, FREE + TIMES * n_bytes


def run(part: int, n: int, kinds: str = "tables and images") -> dict[str, Any]:
    global FOLDER
    with tempfile.TemporaryDirectory() as folder:
        FOLDER = Path(folder)
        fuzz_load.saved_explainers(FOLDER / "saved", kinds)
        return fuzz(partial(make, which=kinds), part, n)


def verdict(rows: list[Row]) -> tuple[str, str]:
    found = total(rows, OUTCOMES)
    return f"{n_tried(rows):,} hostile saved explainers whose sizes and checksums agree", (
        f"{found['crashes']} crashes, {found['hangs']} loads over {MAX_SECONDS} s, {found['memory']} over {TIMES} "
        f"times the size of the files plus {FREE // 2**20} MB; {found['accepted']:,} loaded"
    )


def page(rows: list[Row], images: Path) -> str:
    lead = (
        "Sizes in the JSON files of valid explainers are changed, and everything else, including checksums, is made "
        "consistent: "
        f"{', '.join(GROWTHS | OF_TEXTS | OF_SEQUENCES)}, one to three at a time. Then they are loaded. Memory: "
        f"{TIMES} times the size of the directory and {FREE // 2**20} MB."
    )
    return section("Hostile sizes", lead, rows)


STUDY = Study("fuzz_sizes", cases, run, page)
