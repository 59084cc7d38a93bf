"""Can somebody keep a server from answering others: by silence, slowness, a model that hangs, or a fork?"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from sointer import SOInter, TrainingConfig
from studies.faults.served import Client, Server, request, serving
from studies.frame.markdown import sections, table
from studies.frame.study import Case, Row, Study

N_PROBES = 40
GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HALF_BODY = request(b"{" + b" " * 1000)[:-999]
CHUNKED = request(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
# How many connections, what each sends, and what is done there.
ATTACKS: dict[str, tuple[int, bytes, str]] = {
    "silent": (2000, b"", "send nothing"),
    "half a head": (2000, GET[:20], "send half of a head"),
    "half a second head": (2000, GET + b"G", "send a request and one byte of another"),
    "half a body": (200, HALF_BODY, "send one byte of a body of 1,000"),
    "deaf": (200, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 10, "send 10 requests and read no reply"),
    "tiny chunks": (20, CHUNKED, "send endless bodies in chunks of one byte, again and again"),
    "hanging model": (100, request(json.dumps({"rows": [[0.0] * 4], "target": 0}).encode()), "need a model that hangs"),
    "fork": (0, b"", "none: the server was forked after its app was made"),
}
HANGING = "import time\ndef predict(X):\n    time.sleep(3600)\n"
FORKED = """
import os, socket, sys, uvicorn, sointer
from sointer.apps.serve import create_app
app = create_app(sointer.load(sys.argv[1]))
app.state.queue.start()
listener = socket.create_server(("127.0.0.1", 0))
if os.fork():
    os.wait()
print(f"open http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
uvicorn.run(app, fd=listener.fileno(), log_level="critical")
"""


def cases(smoke: bool) -> Iterator[Case]:
    for attack in ("half a second head", "half a body") if smoke else ATTACKS:
        yield {"attack": attack, "share": 0.05 if smoke else 1.0}


def two(X: Any) -> Any:
    return (np.asarray(X)[:, :2] > 0).astype(int)


def run(attack: str, share: float) -> dict[str, Any]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096) if soft < 4096 else soft, hard))
    X = np.random.default_rng(0).normal(size=(200, 4))
    quick = {"query_budget": 200, "random_state": 0, "training": TrainingConfig(n_epochs=1)}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "why"))
        SOInter(two, **quick).fit(X).save(path)
        if attack == "fork":
            return _forked(path)
        Path(folder, "hanging.py").write_text(HANGING)
        model = ["--model", "hanging:predict"] if attack == "hanging model" else []
        with serving(path, *model, folder=folder) as server:
            return asyncio.run(_attacked(server, attack, share))


def _forked(path: str) -> dict[str, Any]:
    process = subprocess.Popen(
        [sys.executable, "-c", FORKED, path], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        found = asyncio.run(_attacked(Server(process), "fork", 1.0))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return found


async def _attacked(server: Server, attack: str, share: float) -> dict[str, Any]:
    before, _ = await _probe(server, N_PROBES // 4)
    n, content, _ = ATTACKS[attack]
    if attack == "tiny chunks":
        stop = threading.Event()
        clients = [threading.Thread(target=_send_chunks, args=(server.port, stop)) for _ in range(n)]
        for client in clients:
            client.start()
        slowest, statuses = await _probe(server, N_PROBES)
        stop.set()
        for client in clients:
            client.join()
        return {"connections": n, "before": before, "slowest": slowest, "statuses": dict(statuses)}
    connections = [_connect(server.port, content) for _ in range(int(n * share))]
    slowest, statuses = await _probe(server, N_PROBES)
    for connection in connections:
        connection.close()
    return {"connections": len(connections), "before": before, "slowest": slowest, "statuses": dict(statuses)}


def _send_chunks(port: int, stop: threading.Event) -> None:
    while not stop.is_set():
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(CHUNKED)
            while not stop.is_set():
                connection.sendall(b"1\r\n \r\n" * 1000)
        time.sleep(0.1)


def _connect(port: int, content: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    if content.startswith(GET):
        connection.sendall(GET)
        connection.recv(4096)
    connection.sendall(content.removeprefix(GET))
    return connection


async def _probe(server: Server, n: int) -> tuple[float, Counter[str]]:
    """What others get who need no model, each on a connection of its own, and the slowest of them."""
    sent = request(json.dumps({"rows": [[0.5, -1.0, 0.2, 0.0]], "target": 1, "query": False}).encode())
    slowest, statuses = 0.0, Counter[str]()
    for _ in range(n):
        client, started = Client(server.port), time.perf_counter()
        try:
            status, _ = await asyncio.wait_for(client.send(sent), 60)
            statuses[str(status)] += 1
        except (OSError, asyncio.TimeoutError) as error:
            statuses[type(error).__name__] += 1
        slowest = max(slowest, time.perf_counter() - started)
        client.close()
        await asyncio.sleep(0.2)
    return round(slowest, 2), statuses


# --- the page ----------------------------------------------------------------------------------------------


def verdict(rows: list[Row]) -> tuple[str, str]:
    answered = sum(row["statuses"].get("200", 0) for row in rows)
    asked = sum(sum(row["statuses"].values()) for row in rows)
    n = sum(row["connections"] for row in rows)
    return f"{n:,} connections that are silent, send slowly, never read, or need a model that hangs", (
        f"{answered} of {asked} requests of other clients answered meanwhile, the slowest in "
        f"{max(row['slowest'] for row in rows):.1f} s"
    )


def page(rows: list[Row], images: Path) -> str:
    lines = [["clients that", "number", "other requests answered", "slowest, s", "slowest without them, s"]]
    for row in rows:
        answered, asked = row["statuses"].get("200", 0), sum(row["statuses"].values())
        figures = [f"{row['connections']:,}", f"{answered} of {asked}", f"{row['slowest']:.2f}", f"{row['before']:.2f}"]
        lines.append([ATTACKS[row["attack"]][2], *figures])
    return sections(
        "## Clients that block others",
        f"Clients hold connections open. Meanwhile, others send {N_PROBES} requests that need no model, each on a new "
        "connection. The forked server inherited its app and threads.",
        table(lines[0], lines[1:]),
    )


STUDY = Study("lockout", cases, run, page)
