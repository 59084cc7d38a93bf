"""Does a fit survive a power failure: everything lost that was not synced, at any moment?"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sointer
from sointer.errors import SointerError
from studies.faults.counting import total
from studies.faults.killing import content, journaled, make_explainer, make_problem
from studies.faults.losing_disk import LosingDisk, after_power_failure
from studies.frame.markdown import sections, table
from studies.frame.study import Case, Row, Study

N_PARTS, PER_PART, RESUMED_EVERY = 10, 100, 20
COUNTED = ("failures", "lost", "wrong", "refused", "resumed", "identical")


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        problem = ("numbers", "names")[part % 2]
        yield {"part": part, "problem": problem, "n": 20 if smoke else PER_PART}


def run(part: int, problem: str, n: int) -> dict[str, Any]:
    """One fit on a disk that is watched; then n power failures at random moments of it."""
    rng, found = np.random.default_rng(part), Counter[str]()
    data, model = make_problem(problem)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root = Path(folder, "disk")
        root.mkdir()
        disk, n_answered = LosingDisk(root), 0

        def marked(X: Any) -> Any:
            nonlocal n_answered
            disk.mark(n_answered)  # whoever asks again has kept what was answered before
            n_answered += len(X)
            return model(X)

        with disk:
            make_explainer(marked).fit(data, checkpoint=root / "new" / "fit")
        expected = content(root / "new" / "fit" / "explainer")
        for number in range(n):
            events = disk.events[: int(rng.integers(len(disk.events) + 1))]
            place = Path(folder, "after")
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            (place / str(root).lstrip("/")).mkdir(parents=True)
            after_power_failure(events, place, rng)
            checkpoint = place / str(root / "new" / "fit").lstrip("/")
            n_kept = max((event.more for event in events if event.what == "mark"), default=0)
            found += _found(checkpoint, n_kept, expected)
            if number % RESUMED_EVERY == 0:
                make_explainer(lambda X: model(X)).fit(data, checkpoint=checkpoint)
                found["resumed"] += 1
                found["identical"] += content(checkpoint / "explainer") == expected
    return {"n_events": len(disk.events), **{name: found[name] for name in COUNTED}}


def _found(checkpoint: Path, n_kept: int, expected: dict[str, Any]) -> Counter[str]:
    """Whether all kept outputs are there, and the explainer is whole or not there."""
    found = Counter(failures=1)
    try:
        found["lost"] += max(0, n_kept - journaled(checkpoint))
        if os.path.exists(checkpoint / "explainer" / "explainer.json"):
            sointer.load(checkpoint / "explainer")
            found["wrong"] += content(checkpoint / "explainer") != expected
    except SointerError:
        found["refused"] += 1
    return found


def verdict(rows: list[Row]) -> tuple[str, str]:
    found = total(rows, COUNTED)
    return f"{found['failures']:,} power failures at random moments of a fit", (
        f"{found['lost']} kept outputs lost, {found['refused']} checkpoints or explainers unreadable, {found['wrong']} "
        f"explainers changed; {found['identical']} of {found['resumed']} resumed fits identical to an uninterrupted one"
    )


def page(rows: list[Row], images: Path) -> str:
    found = total(rows, COUNTED)
    lines = [
        ["", "count"],
        ["power failures", f"{found['failures']:,}"],
        ["outputs lost that fit had already used", f"{found['lost']:,}"],
        ["checkpoints or saved explainers that could not be read", f"{found['refused']:,}"],
        ["saved explainers that differed", f"{found['wrong']:,}"],
        ["fits resumed", f"{found['resumed']:,}"],
        ["resumed fits identical to an uninterrupted one", f"{found['identical']:,}"],
    ]
    return sections(
        "## Power failures",
        "Everything that a fit with a checkpoint writes, syncs, renames and deletes is logged. Then the disk is "
        "reconstructed as a power failure at a random moment could leave it: everything synced is present; every other "
        "512-byte sector and directory entry is present at random.",
        table(lines[0], lines[1:]),
    )


STUDY = Study("power", cases, run, page)
