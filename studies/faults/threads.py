"""Models that may be called from one thread only: do they work where that is asked for, and is it said where not?"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sointer
from sointer import BlackBox, SOInter, TrainingConfig
from sointer.errors import BlackBoxError
from studies.faults.counting import count_table, total
from studies.frame.markdown import sections
from studies.frame.study import Case, Row, Study

N_PARTS, PER_PART = 4, 10
COUNTED = ("asked for", "work", "not asked for", "work all the same", "say what to do", "other errors")
TO_DO = "BlackBox(model, caller_thread=True)"
Model = Callable[[Any], NDArray[np.int64]]


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "n": 2 if smoke else PER_PART}


def labels(batch: Any) -> NDArray[np.int64]:
    return (np.asarray(batch)[:, :2] > 0).astype(np.int64)


def with_sqlite() -> Model:
    connection = sqlite3.connect(":memory:")
    return lambda batch: (connection.execute("select 1").fetchone(), labels(batch))[1]


def with_signals() -> Model:
    def model(batch: Any) -> NDArray[np.int64]:
        signal.signal(signal.SIGALRM, signal.signal(signal.SIGALRM, signal.SIG_DFL))
        return labels(batch)

    return model


def with_a_loop() -> Model:
    loop = asyncio.new_event_loop()
    thread = threading.get_ident()

    async def answer(batch: Any) -> NDArray[np.int64]:
        return labels(batch)

    def model(batch: Any) -> NDArray[np.int64]:
        if threading.get_ident() != thread:
            raise RuntimeError("no current event loop in this thread")
        return loop.run_until_complete(answer(batch))

    return model


def with_thread_locals() -> Model:
    local = threading.local()
    local.model = labels
    return lambda batch: local.model(batch)  # type: ignore[no-any-return]


MODELS = (with_sqlite, with_signals, with_a_loop, with_thread_locals)


def run(part: int, n: int) -> dict[str, Any]:
    found = Counter[str]()
    for number in range(n):
        rng = np.random.default_rng([part, number])
        make = MODELS[int(rng.integers(len(MODELS)))]
        for asked in (True, False):
            found["asked for" if asked else "not asked for"] += 1
            try:
                used(make(), rng, caller_thread=asked)
                found["work" if asked else "work all the same"] += 1
            except BlackBoxError as error:
                found["say what to do" if TO_DO in str(error) and not asked else "other errors"] += 1
            except Exception:
                found["other errors"] += 1
    return {name: found[name] for name in COUNTED}


def used(model: Model, rng: np.random.Generator, *, caller_thread: bool) -> None:
    """All that queries a model: fit (with a checkpoint or not), explain, verify, a report, and a loaded explainer."""
    box = BlackBox(model, caller_thread=caller_thread, retries=0, batch_size=int(rng.integers(5, 200)))
    quick: dict[str, Any] = {"query_budget": 200, "training": TrainingConfig(n_epochs=1), "random_state": 0}
    data = rng.normal(size=(100, 3))
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        explainer = SOInter(box, verbose=False, **quick)
        explainer.fit(data, checkpoint=Path(folder, "fit") if rng.random() < 0.5 else None)
        explainer.explain(data[:10], target="all").verify()
        explainer.report(data[:10], Path(folder, "page.html"))
        explainer.save(Path(folder, "saved"))
        sointer.load(Path(folder, "saved"), box).explain(data[:10], target=0).verify()


def verdict(rows: list[Row]) -> tuple[str, str]:
    found = total(rows, COUNTED)
    return f"{found['asked for'] + found['not asked for']} models that may be called from one thread only", (
        f"with `caller_thread=True`, {found['work']} of {found['asked for']} are fitted, explained, verified, reported "
        f"and loaded; without it, {found['work all the same']} of {found['not asked for']}, and "
        f"{found['say what to do']} errors name the option; {found['other errors']} other errors"
    )


def page(rows: list[Row], images: Path) -> str:
    return sections(
        "## Models bound to one thread",
        "SQLite connections, signal handlers, event loops and thread-local objects may be used from one thread only. "
        "Models that hold one are used with and without `BlackBox(model, caller_thread=True)`.",
        count_table(total(rows, COUNTED), COUNTED),
    )


STUDY = Study("threads", cases, run, page)
