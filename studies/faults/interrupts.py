"""Does Ctrl-C, at any moment of a call to a model behind HTTP, leave secrets where tracebacks with locals show them?"""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

import numpy as np

from sointer import HTTPBlackBox
from sointer.errors import SointerError
from studies.faults import leaks
from studies.faults.counting import count_table, total
from studies.frame.markdown import sections
from studies.frame.study import Case, Row, Study

N_PARTS, PER_PART = 2, 250
FAULTS = ("none", "refuses", "echoes", "breaks", "redirects", "hangs up")
"""What the server does: see `leaks`."""
COUNTED = ("interrupted", "show a secret", "ended otherwise", "had to be interrupted twice", "unusable afterwards")
TOKEN, PASSWORD, KEY = "tokenabcdefghij", "passwordklmnopq", "keyrstuvwxyzabcd"
SECONDS = 2.0
"""After which Ctrl-C comes again, and again."""
X = np.eye(2)


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "n": 30 if smoke else PER_PART}


class Interrupting:
    """Within the block, Ctrl-C comes at the line number `moment` that this thread executes."""

    def __init__(self, moment: int | None = None) -> None:
        self.moment, self.n_lines, self.has_come = moment, 0, False

    def __enter__(self) -> Interrupting:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_name == "__del__":  # what is raised there reaches nobody
            return None
        if event == "line":
            self.n_lines += 1
            if self.n_lines == self.moment:
                self.has_come = True
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace


@cache
def server() -> ThreadingHTTPServer:
    made = ThreadingHTTPServer(("127.0.0.1", 0), leaks.Handler)
    made.handle_error = lambda *_: None  # type: ignore[method-assign]  # of requests that were broken off
    Thread(target=made.serve_forever, daemon=True).start()
    return made


def make_box() -> HTTPBlackBox:
    url = f"http://user:{PASSWORD}@127.0.0.1:{server().server_port}/invocations?key={KEY}"
    return HTTPBlackBox(url, headers={"Authorization": f"Bearer {TOKEN}"}, retries=1, timeout=5, n_jobs=None)


def shown(error: BaseException | None) -> str:
    """All that a traceback with locals shows, of what led to it too."""
    text = ""
    while error is not None:
        text += f"{error!r}"
        for frame, _ in traceback.walk_tb(error.__traceback__):
            for value in frame.f_locals.values():
                with suppress(AttributeError):  # of an object that is only half made
                    text += repr(value)
        error = error.__cause__ or error.__context__
    return text


def call(box: HTTPBlackBox, moment: int | None = None) -> tuple[Interrupting, BaseException | None]:
    """Query the model, with an interrupt at that moment; what was raised."""
    with Interrupting(moment) as interrupting:
        try:
            box(X)
        except (SointerError, KeyboardInterrupt) as error:
            return interrupting, error
    return interrupting, None


def interrupt_again(*_: object) -> None:
    raise KeyboardInterrupt


def run(part: int, n: int) -> dict[str, Any]:
    """Interrupt n calls at random moments; look at what is raised, and call once more."""
    found, rng, before = Counter[str](), np.random.default_rng(part), signal.signal(signal.SIGALRM, interrupt_again)
    leaks.SENT = TOKEN
    try:
        for fault in FAULTS:
            leaks.Handler.fault, box = fault, make_box()
            call(box)  # what is imported then is imported once
            n_lines = call(box)[0].n_lines
            for _ in range(n // len(FAULTS)):
                box = make_box() if rng.random() < 0.2 else box
                found += interrupted(box, int(rng.integers(1, n_lines + 1)))
    finally:
        signal.signal(signal.SIGALRM, before)
    return {name: found[name] for name in COUNTED}


def interrupted(box: HTTPBlackBox, moment: int) -> Counter[str]:
    """What became of one call, and of the next one."""
    found, started = Counter[str](), time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, SECONDS, SECONDS)
    interrupting, error = call(box, moment)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if not interrupting.has_come:  # it took fewer lines than the calls before
        return found
    text = shown(error)
    found["interrupted"] += 1
    found["show a secret"] += any(secret in text for secret in (TOKEN, PASSWORD, KEY))
    found["ended otherwise"] += not isinstance(error, KeyboardInterrupt)
    found["had to be interrupted twice"] += time.monotonic() - started > SECONDS
    signal.setitimer(signal.ITIMER_REAL, SECONDS, SECONDS)
    fault, leaks.Handler.fault = leaks.Handler.fault, "none"
    try:
        found["unusable afterwards"] += box(X).tolist() != [[1, 0], [0, 1]]
    except (SointerError, KeyboardInterrupt):
        found["unusable afterwards"] += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        leaks.Handler.fault = fault
    return found


# --- the page ----------------------------------------------------------------------------------------------


def verdict(rows: list[Row]) -> tuple[str, str]:
    found = total(rows, COUNTED)
    return f"Ctrl-C at {found['interrupted']:,} random moments of calls to a model behind HTTP", (
        f"{found['show a secret']} tracebacks with local variables show a secret; {found['ended otherwise']} calls go "
        f"on, {found['unusable afterwards']} models cannot be queried afterwards"
    )


def page(rows: list[Row], images: Path) -> str:
    return sections(
        "## Ctrl-C",
        "A model behind HTTP, with a token in a header, and a password and a key in its address, is queried; Ctrl-C "
        "comes at a random line of the code that runs, also of libraries. The server works, or "
        f"{', '.join(FAULTS[1:])}. The traceback is searched for secrets, with the local variables of all functions, "
        "and of errors that led to it. Then the model is queried again. Where Ctrl-C comes between the instructions "
        "that take a lock, a second one may be needed. **Open:** a third run, with other moments, did not end within "
        "150 seconds (a run takes 20); it was waiting for a connection to the server, which is in the same process. "
        "The reason is not known.",
        count_table(total(rows, COUNTED), COUNTED),
    )


STUDY = Study("interrupts", cases, run, page)
