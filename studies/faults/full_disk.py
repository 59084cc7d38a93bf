"""Does a disk that is full, at any moment of writing, cost anything but the file that was being written?"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import sointer
from sointer import SOInter
from sointer.apps.serve.response import RecordLog
from sointer.errors import SointerError
from sointer.io.stream import stream_explain
from sointer.io.writers import TextWriter
from studies.faults.counting import count_table, total
from studies.faults.killing import content, make_explainer, make_problem
from studies.frame.markdown import sections
from studies.frame.study import Case, Row, Study

N_PARTS, PER_PART = 2, 100
FULL = (errno.EFBIG, errno.ENOSPC)
DRAFTS = "-draft-"
COUNTED = (
    "full disks",
    "not reached",
    "stopped",
    "unclear errors",
    "spoiled",
    "drafts left",
    "done once there is room",
)
"""Of all: those on which the work was stopped, and those where its files were small enough; both are done again."""
Work = Callable[[Path], None]


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "n": 8 if smoke else PER_PART}


@cache
def explainer() -> SOInter:
    data, model = make_problem("numbers")
    return make_explainer(model).fit(data)


def fit(place: Path) -> None:
    data, model = make_problem("numbers")
    make_explainer(model).fit(data, checkpoint=place)


def save(place: Path) -> None:
    explainer().save(place)


def report(place: Path) -> None:
    explainer().report(make_problem("numbers")[0][:4], place / "report.html", paths=False)


def stream(place: Path) -> None:
    data = make_problem("numbers")[0]
    stream_explain(explainer(), data, place / "why.parquet", target="all", records=place / "records.jsonl")


def stream_text(place: Path) -> None:
    stream_explain(explainer(), make_problem("numbers")[0], TextWriter(place / "why.csv"), target="all")


def log(place: Path) -> None:
    """As a server does: a record at a time, of which the first ones fit."""
    found, records = explainer().explain(make_problem("numbers")[0][:8], target=0), RecordLog(place / "log.jsonl")
    for record in found.record():
        records.add([record])


WORKS: dict[str, tuple[Work, int]] = {
    "fit": (fit, 100_000),
    "save": (save, 100_000),
    "report": (report, 300_000),
    "stream": (stream, 60_000),
    "stream of text": (stream_text, 60_000),
    "records": (log, 20_000),
}
"""What is done, and about how large its largest file is."""


def on_a_full_disk(work: Work, place: Path, max_bytes: int) -> tuple[str, str]:
    """Do it in a forked process in which files may have so many bytes; the kind of error that it ended with, if any."""
    told = place.parent / "told"
    child = os.fork()
    if child == 0:
        found = ["", ""]
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, resource.RLIM_INFINITY))
            work(place)
        except (SointerError, OSError) as error:
            is_full = isinstance(error, SointerError) or error.errno in FULL or "File too large" in str(error)
            found = ["full" if is_full and str(error) else "unclear", f"{type(error).__name__}: {error}"]
        except BaseException as error:
            found = ["unclear", f"{type(error).__name__}: {error}"]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            told.write_text(json.dumps(found))
            os._exit(0)
    os.waitpid(child, 0)
    kind, what = json.loads(told.read_text())
    return kind, what


def state(place: Path) -> dict[str, Any]:
    """What is there, by the names of files, but for what differs from run to run and what fit keeps for itself."""
    found: dict[str, Any] = {}
    for inside in ("", "explainer"):
        if (place / inside / "explainer.json").exists():
            sointer.load(place / inside)
            found |= {f"{inside} {name}": part for name, part in content(place / inside).items()}
    names = ("why.parquet", "why.csv")
    return found | {name: (place / name).read_bytes() for name in names if (place / name).exists()}


def run(part: int, n: int) -> dict[str, Any]:
    rng, found, unclear = np.random.default_rng(part), Counter[str](), []
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        wanted = {}
        for name, (work, _) in WORKS.items():  # what there is where nothing happens
            place = Path(folder, name)
            place.mkdir()
            work(place)
            wanted[name] = state(place)
        for number in range(n):
            name = str(rng.choice(list(WORKS)))
            work, largest = WORKS[name]
            place = Path(folder, str(number), "place")
            place.mkdir(parents=True)
            before: dict[str, Any] = {}
            if name != "fit" and rng.random() < 0.5:  # something was there before
                work(place)
                before = state(place)
            found["full disks"] += 1
            kind, what = on_a_full_disk(work, place, int(np.exp(rng.uniform(np.log(50), np.log(largest)))))
            found["stopped" if kind else "not reached"] += 1
            if kind == "unclear":
                found["unclear errors"] += 1
                unclear.append(f"{name}: {what}"[:300])
            try:
                found["spoiled"] += bool(kind) and state(place) != before
                found["drafts left"] += any(DRAFTS in path.name for path in place.rglob("*"))
                work(place)
                is_done = state(place) == wanted[name] and logs_are_whole(place)
                found["done once there is room"] += is_done
            except SointerError as error:
                unclear.append(f"{name}, again: {error}"[:300])
    return {name: found[name] for name in COUNTED} | {"unclear": unclear[:10]}


def logs_are_whole(place: Path) -> bool:
    """Whether the records after a torn one are whole: of the last eight, each is a line of its own."""
    path = place / "log.jsonl"
    return not path.exists() or all(map(json.loads, path.read_text().splitlines()[-8:]))


# --- the page ----------------------------------------------------------------------------------------------


def verdict(rows: list[Row]) -> tuple[str, str]:
    found = total(rows, COUNTED)
    return f"{found['full disks']} disks that are full at a random moment of writing", (
        f"{found['stopped']} stop the work; {found['spoiled']} earlier files spoiled, {found['drafts left']} drafts "
        f"left, {found['unclear errors']} unclear errors; {found['done once there is room']} of "
        f"{found['full disks']} done as usual once there is room"
    )


def page(rows: list[Row], images: Path) -> str:
    return sections(
        "## Full disks",
        "No file may have more than a random number of bytes, by a limit of the system, while an explainer is fitted "
        "with a checkpoint or saved, a report or a stream of explanations is written, or a server logs records; "
        "often in the place of earlier ones. Then the same is done without the limit.",
        count_table(total(rows, COUNTED), COUNTED),
    )


STUDY = Study("full_disk", cases, run, page)
