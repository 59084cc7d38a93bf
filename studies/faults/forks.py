"""Do processes answer that are forked after an app was made, or while other threads explain and query?"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import sointer
from sointer import BlackBox, CommandBlackBox
from sointer.apps.serve import create_app
from studies.faults.counting import count_table, total
from studies.faults.fuzz_load import EXPLAINERS, WORDY, two
from studies.faults.fuzz_serve import MORE, ROWS, fit
from studies.frame.markdown import sections
from studies.frame.study import Case, Row, Study

N_PARTS, PER_PART = 3, 10
KINDS = ("table", "frame", "sparse", "texts", "sequences")
MAX_SECONDS = 60
COUNTED = ("forks", "answer rightly", "answer wrongly", "hang", "not ready", "wrong in the first process", "failed")
PROGRAM = """
import json, sys
for line in sys.stdin:
    rows = json.loads(line)["rows"]
    print(json.dumps({"outputs": [[int(row[0] > 0), int(row[1] > 0)] for row in rows]}), flush=True)
"""


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "n": 6 if smoke else PER_PART}


def make_model(kind: str, rng: np.random.Generator) -> Any:
    """A model for an explainer of that kind, or none."""
    way = rng.integers(4)
    model = (EXPLAINERS | WORDY)[kind][1]
    if way == 0:
        return None
    if kind == "table" and way == 1:
        return CommandBlackBox([sys.executable, "-c", PROGRAM])
    return BlackBox(two, cache=way == 2) if kind == "table" else model


async def replies(app: Any, kind: str) -> list[bytes]:
    """What an app replies to a few requests at the same time, and whether it is ready."""
    more = MORE.get(kind, {})
    bodies = [{"rows": ROWS[kind], "k": k, "target": target, **more} for k in (1, 2) for target in (0, 1)]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as client:
        answers = await asyncio.gather(*[client.post("/explain", json=body, timeout=None) for body in bodies])
        health = await client.get("/healthz")
    return [b"%d" % answer.status_code + answer.content for answer in answers] + [health.content]


def forked(saved: Path, kind: str, rng: np.random.Generator) -> Counter[str]:
    """One app, used or not before the fork; and what both processes reply then."""
    box = make_model(kind, rng)
    explainer = sointer.load(saved, black_box=box)
    app, stop = create_app(explainer), threading.Event()
    expected = asyncio.run(replies(create_app(sointer.load(saved, black_box=box)), kind))
    if rng.random() < 0.5:
        app.state.queue.start()
    if rng.random() < 0.3:
        asyncio.run(replies(app, kind))

    def work() -> None:
        few = (EXPLAINERS | WORDY)[kind][0][:5]
        while not stop.is_set():
            explainer.explain(few, 0)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(int(rng.choice([0, 1, 3])))]
    for thread in threads:
        thread.start()
    time.sleep(float(rng.uniform(0, 0.1)))
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(MAX_SECONDS)
        code = 3
        try:
            found = asyncio.run(replies(app, kind))
            code = 0 if found == expected else 1 if found[-1] == expected[-1] else 2
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    wrong = asyncio.run(replies(app, kind)) != expected
    stop.set()
    for thread in threads:
        thread.join()
    outcome = {0: "answer rightly", 1: "answer wrongly", 2: "not ready", -signal.SIGALRM: "hang"}
    return Counter({"forks": 1, outcome.get(status, "failed"): 1, "wrong in the first process": int(wrong)})


def run(part: int, n: int, kinds: tuple[str, ...] = KINDS) -> dict[str, Any]:
    """Each in a process of its own, as what is forked must have begun with one thread."""
    found = Counter[str]()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        for kind in kinds:
            fit(kind).save(Path(folder, kind))
        for number in range(n):
            rng, told = np.random.default_rng([part, number]), Path(folder, "told")
            kind = kinds[int(rng.integers(len(kinds)))]
            told.unlink(missing_ok=True)
            process = os.fork()
            if process == 0:
                try:
                    signal.alarm(3 * MAX_SECONDS)
                    told.write_text(json.dumps(forked(Path(folder, kind), kind, rng)))
                finally:
                    os._exit(0)
            os.waitpid(process, 0)
            found += Counter(json.loads(told.read_text()) if told.exists() else {"forks": 1, "failed": 1})
    return {name: found[name] for name in COUNTED}


# --- the page ----------------------------------------------------------------------------------------------


def verdict(rows: list[Row]) -> tuple[str, str]:
    found = total(rows, COUNTED)
    return f"{found['forks']} forks of a process with an app, at random moments", (
        f"{found['answer rightly']} forked processes reply as the first one does, {found['hang']} hang, "
        f"{found['not ready']} say they are not ready; {found['wrong in the first process']} changes in the first "
        f"process; {found['failed']} failed otherwise"
    )


def page(rows: list[Row], images: Path) -> str:
    return sections(
        "## Forks",
        f"Explainers of {len(KINDS)} kinds ({', '.join(KINDS)}) are put into an app of `create_app`, with no model, "
        "one in this process, one with a cache, or a program. Its threads are started or not, and it has replied or "
        "not; none, one or three other threads explain with the same explainer and model. Then the process forks, and "
        "both send requests to their app, which should reply bit for bit the same.",
        count_table(total(rows, COUNTED), COUNTED),
    )


STUDY = Study("forks", cases, run, page)
