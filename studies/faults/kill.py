"""Is a fit that was killed, and called again, the fit that was left in peace? Does it ask anything twice?"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from studies.faults.counting import total
from studies.faults.killing import PROBLEMS, Process, content, journaled, n_steps, read_log
from studies.frame.markdown import sections, table
from studies.frame.study import Case, Row, Study

KILLS_PER_PART = 10
N_PARTS = 20


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "problem": PROBLEMS[part % len(PROBLEMS)], "n_kills": 2 if smoke else KILLS_PER_PART}


def run(part: int, problem: str, n_kills: int) -> dict[str, Any]:
    """Kill and go on, until so many were killed; every third time the one that goes on is killed too."""
    rng = np.random.default_rng(part)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        peace = Path(folder, "peace")
        log = Path(folder, "peace.log")
        status, whole_time = Process(problem, peace, log).wait()
        if status:
            raise RuntimeError((Path(folder) / "traceback.txt").read_text())
        n_questions, expected, n_learned = len(read_log(log)[0]), content(peace / "explainer"), n_steps(log)
        while found["kills"] < n_kills:
            n_before = found["kills"]
            folder_of_kill = Path(folder, str(found["kills"]), str(found["too_late"]))
            folder_of_kill.mkdir(parents=True)
            n_times = 2 if n_before % 3 == 2 and n_kills - n_before > 1 else 1
            found += killed_and_resumed(problem, folder_of_kill, rng, n_times, whole_time, n_questions, expected)
            found["steps_repeated"] += n_steps(folder_of_kill / "log") - n_learned
    known = {"n_questions": n_questions, "n_steps": n_learned, "cpu_seconds": round(whole_time, 2)}
    return known | {name: found[name] for name in COUNTED}


COUNTED = (
    *("kills", "too_late", "resumed", "identical", "paid_twice", "asked_in_vain", "answered_in_vain", "rows_asked"),
    *("steps_taken_by_killed", "steps_repeated"),
)


def killed_and_resumed(
    problem: str,
    folder: Path,
    rng: np.random.Generator,
    n_times: int,
    whole_time: float,
    n_questions: int,
    expected: dict[str, Any],
) -> Counter[str]:
    """One fit, killed n_times, then left to its end: what became of it, and of its questions."""
    checkpoint, log = folder / "checkpoint", folder / "log"
    found: Counter[str] = Counter()
    n_asked = n_answered = n_known = 0
    for _ in range(n_times):
        in_time = Process(problem, checkpoint, log).kill_after(float(rng.uniform(0.0, whole_time)))
        found["kills" if in_time else "too_late"] += 1
        asked, answered = read_log(log)
        now_known = journaled(checkpoint)
        found["asked_in_vain"] += len(asked) - n_asked - (now_known - n_known)
        found["answered_in_vain"] += len(answered) - n_answered - (now_known - n_known)
        n_asked, n_answered, n_known = len(asked), len(answered), now_known
    found["steps_taken_by_killed"] = n_steps(log)
    status, _ = Process(problem, checkpoint, log).wait()
    if status:
        raise RuntimeError((folder / "traceback.txt").read_text())
    asked, _ = read_log(log)
    found["rows_asked"] = len(asked)
    found["paid_twice"] = n_known + (len(asked) - n_asked) - n_questions
    found["resumed"] = found["kills"]
    found["identical"] = found["kills"] * (content(checkpoint / "explainer") == expected)
    return found


# --- the page ----------------------------------------------------------------------------------------------


def verdict(rows: list[Row]) -> tuple[str, str]:
    """The kills, and their outcome."""
    found = total(rows, COUNTED)
    return f"{found['kills']} SIGKILLs at random moments of fit, then resume", (
        f"{found['identical']} of {found['kills']} identical to the uninterrupted explainer; {found['paid_twice']} "
        f"journaled queries sent twice; {found['answered_in_vain']} of {found['rows_asked']:,} queries had been "
        f"answered, but not yet journaled, at the time of the kill{_training(found)}"
    )


def _training(found: Counter[str]) -> str:
    if not found["steps_taken_by_killed"]:  # results of earlier versions
        return ""
    return f"; {found['steps_repeated']:,} of {found['steps_taken_by_killed']:,} training steps repeated"


def page(rows: list[Row], images: Path) -> str:
    found = total(rows, COUNTED)
    n_questions, seconds = rows[0]["n_questions"], np.mean([row["cpu_seconds"] for row in rows])
    lines = [
        ["", "count"],
        ["fits killed by SIGKILL at a random moment of their CPU time", f"{found['kills']:,}"],
        [
            "killed fits that resumed, with saved files identical to those of an uninterrupted fit",
            f"{found['identical']:,}",
        ],
        ["rows sent to the model", f"{found['rows_asked']:,}"],
        ["journaled rows that were sent again", f"{found['paid_twice']:,}"],
        ["rows sent, but not journaled before the kill", f"{found['asked_in_vain']:,}"],
        ["unjournaled rows whose outputs had already been returned", f"{found['answered_in_vain']:,}"],
    ]
    if found["steps_taken_by_killed"]:
        lines += [
            ["training steps taken before the kill", f"{found['steps_taken_by_killed']:,}"],
            ["training steps repeated after the kill", f"{found['steps_repeated']:,}"],
        ]
    return sections(
        "## Fits killed and resumed",
        f"A fit of {n_questions} queries, 16 at a time ({seconds:.1f} s of CPU time), is killed and called again "
        "with the same checkpoint; every third fit is killed twice. Saved files are compared byte by byte, except "
        "for times in the training history. The call in progress during a kill is repeated: at most one batch for "
        "each kill.",
        table(lines[0], lines[1:]),
    )


STUDY = Study("kill", cases, run, page)
