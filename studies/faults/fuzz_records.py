"""What does checking records make of those that were changed, damaged, or are none?"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import sointer
from sointer import SOInter, TrainingConfig
from sointer.errors import SointerError
from studies.faults.fuzz_load import EXPLAINERS, WORDY
from studies.faults.fuzzing import fuzz, n_tried, section, what_held
from studies.faults.mutations import HOSTILE, some_place
from studies.frame.study import Case, Row, Study

PER_PART, N_PARTS = 1000, 5
KINDS = ("table", "frame", "images", "texts", "sequences")
MORE = ("token 1", "token -1", "token " + "9" * 5000, "y0", "box 0:2, 0:2", "expected", "given", 1, "auto", 10**30)


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "n": 60 if smoke else PER_PART}


@cache
def good_records(kinds: tuple[str, ...]) -> dict[str, tuple[Any, Any, list[dict[str, Any]]]]:
    """Of every kind an explainer, a few samples, and their records."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in kinds:
            data, model, target, settings = (EXPLAINERS | WORDY)[kind]
            quick = {"k": 2, "query_budget": 120, "random_state": 0, "training": TrainingConfig(n_epochs=1)} | settings
            explainer, few = SOInter(model, **quick).fit(data), data[:3]
            found[kind] = explainer, few, explainer.explain(few, target).record()
    return found


def make(rng: np.random.Generator, kinds: tuple[str, ...] = KINDS) -> tuple[str, Callable[[], str]]:
    kind = str(rng.choice(kinds))
    explainer, few, records = good_records(kinds)[kind]
    record = json.loads(json.dumps(records[int(rng.integers(len(records)))]))
    for _ in range(int(rng.integers(1, 4))):
        holder, key = some_place(record, rng)
        if rng.random() < 0.3:
            del holder[key]
        else:
            values = (*HOSTILE, *MORE)
            holder[key] = values[int(rng.integers(len(values)))]

    def attempt() -> str:
        try:
            return "accepted" if sointer.verify_record(record, explainer, few).holds else "refused"
        except SointerError:
            return "refused"

    return kind, attempt


def run(part: int, n: int, kinds: tuple[str, ...] = KINDS) -> dict[str, Any]:
    kinds = tuple(kinds)  # a list, where it comes from JSON
    good_records(kinds)
    return fuzz(partial(make, kinds=kinds), part, n)


def verdict(rows: list[Row]) -> tuple[str, str]:
    return f"{n_tried(rows):,} damaged and hostile records checked", what_held(rows)


def page(rows: list[Row], images: Path) -> str:
    lead = (
        f"Records about explanations of {len(KINDS)} kinds ({', '.join(KINDS)}) with fields lost and changed. Accepted "
        "are those whose changes are in fields that say nothing about the explanation."
    )
    return section("Records", lead, rows)


STUDY = Study("fuzz_records", cases, run, page)
