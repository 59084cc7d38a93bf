"""The frame of the fuzzers: many cases in child processes, each watched for crashes, hangs, memory and code executions.

A child that dies (a segmentation fault in somebody's library, say) costs the case it was at; the next child goes on
after it.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from studies.faults.counting import total
from studies.frame.markdown import sections, table
from studies.frame.study import Row

MAX_SECONDS, MAX_WAIT = 5, 60  # seconds of processor time; and of waiting, so that a busy machine is no hang
MAX_MEMORY = 2**30  # bytes that one case may ask for
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class", "socket.connect")
OUTCOMES = ("refused", "accepted", "crashes", "hangs", "memory", "executions")

Attempt = Callable[[], str]
Case = Callable[[np.random.Generator], tuple[str, Attempt] | tuple[str, Attempt, int]]
"""Makes one case: what it is, what tries it and says "refused" or "accepted" (anything it raises is a crash), and how
much memory it may ask for, if that is another than `MAX_MEMORY`."""


def fuzz(make: Case, seed: int, n: int) -> dict[str, Any]:
    """Try n cases; how they came out, the slowest, and what went wrong first."""
    found, worst, slowest, first = Counter[str](), [], 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        while first < n:
            record = Path(folder, "record")
            record.write_text("")
            child = os.fork()
            if child == 0:
                _child(make, seed, first, n, record)
            os.waitpid(child, 0)
            done = [json.loads(line) for line in record.read_text().splitlines()]
            for one in done:
                found[one["outcome"]] += 1
                found["executions"] += one["executions"]
                slowest = max(slowest, one["seconds"])
                if one["outcome"] not in ("refused", "accepted") or one["executions"]:
                    worst.append(one)
            first += len(done)
            if first < n:  # the child died in this one
                found["crashes"] += 1
                worst.append({"number": first, "outcome": "crashes", "what": "the process died"})
                first += 1
    return {**{name: found[name] for name in OUTCOMES}, "slowest": round(slowest, 2), "worst": worst[:20]}


def _child(make: Case, seed: int, first: int, n: int, record: Path) -> None:
    """Try the cases from `first` on, write a line for each, and end without what a program does at its end."""
    executed: list[str] = []
    sys.addaudithook(lambda event, _: executed.append(event) if event in FORBIDDEN else None)
    try:
        with record.open("a", buffering=1) as lines:
            for number in range(first, n):
                what, attempt, *memory = make(np.random.default_rng([seed, number]))
                executed.clear()
                started = time.process_time()
                outcome, detail = _watched(attempt, *memory)
                seconds = time.process_time() - started
                line = {"number": number, "case": what, "outcome": outcome, "what": detail, "seconds": seconds}
                lines.write(json.dumps({**line, "executions": len(executed)}) + "\n")
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _watched(attempt: Attempt, max_memory: int = MAX_MEMORY) -> tuple[str, str]:
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, _too_long)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_virtual_memory() + max_memory, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    signal.alarm(MAX_WAIT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return attempt(), ""
    except TooLong:
        return "hangs", last_lines()
    except BaseException as error:
        detail = last_lines()
        return ("memory" if isinstance(error, MemoryError) or "allocate" in str(error) else "crashes"), detail
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def last_lines() -> str:
    """Where the current exception was raised, without the directories of this machine, as results are published."""
    return re.sub(r'(?<=File ")[^"]*/(?=[^"/]+/[^"/]+/[^"/]+")', "", traceback.format_exc(limit=-4))


class TooLong(BaseException):
    """Not an Exception, so that nothing under test takes it for its own."""


def _too_long(signal_number: int, frame: Any) -> None:
    raise TooLong


def _virtual_memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


# --- the page ----------------------------------------------------------------------------------------------


def n_tried(rows: list[Row]) -> int:
    found = total(rows, OUTCOMES)
    return sum(found[name] for name in OUTCOMES if name != "executions")


def what_held(rows: list[Row]) -> str:
    found = total(rows, OUTCOMES)
    return (
        f"{found['crashes']} crashes, {found['hangs']} hangs over {MAX_SECONDS} s, {found['executions']} code "
        f"executions, {found['memory']} cases of memory over {MAX_MEMORY // 2**20} MB"
    )


def section(title: str, lead: str, rows: list[Row]) -> str:
    found = total(rows, OUTCOMES)
    lines = [
        ["", "count"],
        ["tried", f"{n_tried(rows):,}"],
        ["refused with one clear message", f"{found['refused']:,}"],
        ["accepted (still valid)", f"{found['accepted']:,}"],
        ["crashes: anything else", f"{found['crashes']:,}"],
        [f"hangs: over {MAX_SECONDS} s of CPU time", f"{found['hangs']:,}"],
        [f"memory: over {MAX_MEMORY // 2**20} MB", f"{found['memory']:,}"],
        [f"code executions: any of {', '.join(FORBIDDEN)}", f"{found['executions']:,}"],
        ["slowest, s of CPU time", f"{max(row['slowest'] for row in rows):.1f}"],
    ]
    return sections(f"## {title}", lead, table(lines[0], lines[1:]))
