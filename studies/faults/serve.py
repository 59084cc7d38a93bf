"""Does a server that is asked as much as it can bear, and ten times more, give right answers and lose none?"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sointer import SOInter, TrainingConfig, load
from sointer.zoo.synthetic import paper_e1
from studies.faults.served import Client, Server, request, serving
from studies.frame.markdown import sections, table
from studies.frame.study import Case, Row, Study

CONCURRENCY, QUEUE = 2, 30
N_PLACES = CONCURRENCY + QUEUE
OVERLOAD = 10
N_QUESTIONS = 100
WAIT = 0.05  # seconds, before a client that was refused asks again
EXPECTED_STATUSES = (200, 429, 503)
Question = tuple[bytes, bytes]
"""A request, and the body of the right reply to it."""


def cases(smoke: bool) -> Iterator[Case]:
    for seconds in (3,) if smoke else (600, 60):
        yield {"saturated": seconds}


def run(saturated: int) -> dict[str, Any]:
    """As many clients as there are places for so many seconds; ten times as many; as before; then SIGTERM."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "why")
        fitted, data = fit()
        fitted.save(path)
        explainer = load(path)  # without its model, as the server has it: both explain what the energy expects
        limits = f"--concurrency {CONCURRENCY} --queue {QUEUE}".split()
        with serving(str(path), *limits) as server:
            return asyncio.run(_load(server, explainer, data, saturated))


def fit() -> tuple[SOInter, Any]:
    problem = paper_e1(8)
    data = problem.sample(300, random_state=0)
    quick = {"training": TrainingConfig(n_epochs=5)}
    return SOInter(problem, k=4, random_state=0, query_budget=300, verbose=False, **quick).fit(data), data


async def _load(server: Server, explainer: SOInter, data: Any, seconds: int) -> dict[str, Any]:
    phases: dict[str, Phase] = {}
    questions = await right_replies(server, explainer, data)
    memory = {}
    for name, share, n_clients in (
        ("warm-up", 1 / 6, N_PLACES),
        ("saturation", 1, N_PLACES),
        ("overload", 1 / 3, OVERLOAD * N_PLACES),
        ("recovery", 1 / 6, N_PLACES),
    ):
        phases[name] = await Phase(server.port, questions).run(n_clients, share * seconds)
        memory[name] = server.megabytes()
    last = Phase(server.port, questions)
    asking = asyncio.create_task(last.run(N_PLACES, 3600))
    await asyncio.sleep(1)
    log = await asyncio.to_thread(server.stop)
    phases["stop"] = await asking
    answered = int(re.search(r"stopped; ([\d,]+) request", log)[1].replace(",", ""))  # type: ignore[index]
    received = len(questions) + sum(phase.replies.total() for phase in phases.values())
    return {
        "phases": {name: phase.summary() for name, phase in phases.items()},
        "megabytes": memory,
        "answered": answered,
        "received": received,
        "lost": answered - received,
        "wrong": sum(phase.wrong for phase in phases.values()),
        "broken": sum(phase.broken for name, phase in phases.items() if name != "stop"),
        "unexpected": sum(phase.unexpected() for phase in phases.values()),
        "tracebacks": log.count("Traceback"),
    }


async def right_replies(server: Server, explainer: SOInter, data: Any) -> list[Question]:
    """Questions and the replies to them, each compared with what explain gives in this process, bit by bit."""
    rng, client, made = np.random.default_rng(0), Client(server.port), []
    for _ in range(N_QUESTIONS):
        rows = rng.integers(len(data), size=rng.integers(1, 9))
        targets, k = rng.integers(explainer.n_outputs_, size=len(rows)).tolist(), int(rng.integers(1, 5))
        sent = request(json.dumps({"rows": data[rows].tolist(), "target": targets, "k": k}).encode())
        status, body = await client.send(sent)
        if status != 200 or not is_right(json.loads(body)["rows"], explainer.explain(data[rows], targets, k=k)):
            raise RuntimeError(f"a wrong reply before there was any load: {status} {body!r:.500}")
        made.append((sent, body))
    client.close()
    return made


def is_right(rows: list[dict[str, Any]], explanation: Any) -> bool:
    for i, row in enumerate(rows):
        units = [unit for unit in explanation.selected[i] if unit >= 0]
        scores = np.array([feature["score"] for feature in row["features"]], dtype=np.float32)
        names = [feature["name"] for feature in row["features"]]
        if names != [explanation.feature_names[unit] for unit in units] or row["value"] != explanation.value[i]:
            return False
        if scores.tobytes() != explanation.scores[i, units].tobytes():
            return False
    return len(rows) == len(explanation)


class Phase:
    """Many clients that ask and ask; what became of their questions."""

    def __init__(self, port: int, questions: list[Question]) -> None:
        self.port, self.questions = port, questions
        self.replies: Counter[int] = Counter()
        self.seconds: list[float] = []
        self.wrong = self.broken = 0
        self.took = 0.0

    async def run(self, n_clients: int, seconds: float) -> Phase:
        started = time.perf_counter()
        await asyncio.gather(*[self._ask(number, started + seconds) for number in range(n_clients)])
        self.took = time.perf_counter() - started
        return self

    async def _ask(self, number: int, end: float) -> None:
        client, place = Client(self.port), number
        while (started := time.perf_counter()) < end:
            sent, right = self.questions[place % len(self.questions)]
            place += 1
            try:
                status, body = await client.send(sent)
            except ConnectionRefusedError:
                break  # it has stopped
            except ConnectionError:
                self.broken += 1
                continue
            self.replies[status] += 1
            if status == 200:
                self.seconds.append(time.perf_counter() - started)
                self.wrong += body != right
            else:
                await asyncio.sleep(WAIT)
        client.close()

    def unexpected(self) -> int:
        return sum(n for status, n in self.replies.items() if status not in EXPECTED_STATUSES)

    def summary(self) -> dict[str, Any]:
        half, most = np.percentile(self.seconds, [50, 99]) if self.seconds else (0.0, 0.0)
        return {
            "replies": {str(status): n for status, n in sorted(self.replies.items())},
            "per_second": round(self.replies[200] / self.took, 1),
            "p50_ms": round(1000 * half, 1),
            "p99_ms": round(1000 * most, 1),
            "broken": self.broken,
        }


# --- the page ----------------------------------------------------------------------------------------------


def longest(rows: list[Row]) -> Row:
    return max(rows, key=lambda row: row["saturated"])


def verdict(rows: list[Row]) -> tuple[str, str]:
    row = longest(rows)
    memory = row["megabytes"]
    bad = row["unexpected"] + row["broken"]
    return f"{_time(row['saturated'])} of serving at saturation, then overload x {OVERLOAD}, then SIGTERM under load", (
        f"{row['wrong']} wrong replies, {row['lost']} accepted requests lost, {bad} errors other than 429 and 503, "
        f"memory {memory['warm-up']:.0f} MB before and {memory['recovery']:.0f} MB after"
    )


def page(rows: list[Row], images: Path) -> str:
    row = longest(rows)
    lines = [["", "clients", "replies per second", "p50, ms", "p99, ms", "200", "429", "503", "memory at the end, MB"]]
    for name, phase in row["phases"].items():
        replies = phase["replies"]
        n_clients = N_PLACES * (OVERLOAD if name == "overload" else 1)
        counts = [f"{replies.get(status, 0):,}" for status in ("200", "429", "503")]
        memory = row["megabytes"].get(name)
        times = [f"{phase[key]:,.0f}" for key in ("per_second", "p50_ms", "p99_ms")]
        lines.append([name, str(n_clients), *times, *counts, "" if memory is None else f"{memory:.0f}"])
    return sections(
        "## A server under load",
        f"`sointer serve --concurrency {CONCURRENCY} --queue {QUEUE}` with clients on the same machine. Each client "
        f"sends requests of one to eight rows, one after another, and waits {WAIT:g} s after a rejection. "
        f"Saturation: one client per place in the queue, for {_time(row['saturated'])}; overload: ten per place. "
        "Finally, the server gets SIGTERM under load. Every reply is compared byte by byte with the correct one.",
        table(lines[0], lines[1:]),
        f"{row['wrong']} replies were wrong. The server counted {row['answered']:,} replies, and the clients received "
        f"{row['received']:,}. {row['broken']} connections broke before the SIGTERM.",
    )


def _time(seconds: int) -> str:
    return f"{seconds // 60} minutes" if seconds >= 120 else f"{seconds} seconds"


STUDY = Study("serve", cases, run, page)
