"""Does the token that every request to `sointer serve` must bring turn up in anything that the server says or keeps?"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import warnings
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from sointer import SOInter, TrainingConfig
from sointer.errors import SointerWarning

PLACES = ("server's output", "replies", "the page", "records and files")
MODEL = """
import sys
def answer(X):
    if X[0, 0] > 0:
        raise ValueError(f"the model failed on {X!r:.40}; {sys.argv}")
    return X[:, :2] > 0
"""
X = np.random.default_rng(0).normal(size=(80, 3))


@contextmanager
def served(folder: Path, token: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """`sointer serve` with the token, records and a model that often fails, in a process of its own: its port."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        quick = {"training": TrainingConfig(n_epochs=1), "random_state": 0, "verbose": False}
        SOInter(lambda rows: rows[:, :2] > 0, k=2, query_budget=100, **quick).fit(X).save(folder / "why")
    (folder / "failing.py").write_text(MODEL)
    asked = ["why", "--port", "0", "--model", "failing:answer", "--records", "records.jsonl", "--verbose"]
    command = [sys.executable, "-m", "sointer", "serve", *asked]
    variables = {**os.environ, "SOINTER_TOKEN": token, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    with open(folder / "stdout", "w") as out, open(folder / "stderr", "w") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, text=True, cwd=folder, env=variables)
    try:
        while (found := re.search(r"open http://[^/\s]+:(\d+)", (folder / "stderr").read_text())) is None:
            with suppress(subprocess.TimeoutExpired):
                raise RuntimeError(f"the server did not start, code {process.wait(0.1)}")
        yield int(found[1]), process
    finally:
        process.terminate()
        process.wait(30)


def exchange(port: int, request: bytes, *, is_whole: bool) -> bytes:
    """All that the server says to these bytes, which are all of a request, or all that there will ever be of one."""
    said = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request)
        if not is_whole:
            connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(65536):
            said += part
    return said


def requests_with(token: str, rng: np.random.Generator) -> Iterator[tuple[str, bytes, bool]]:
    """Requests that are right, that make the model fail, and whose heads are broken; all bring the token."""
    bearer, basic = f"Bearer {token}", "Basic " + b64encode(f"anyone:{token}".encode()).decode()
    for path, value in (("/info", bearer), ("/metrics", bearer), ("/openapi.json", bearer), ("/nowhere", bearer)):
        yield "replies", head("GET", path, value), True
    yield "the page", head("GET", "/", basic, "Accept: text/html"), True
    rows: list[Any] = [X[X[:, 0] < 0][:2].tolist(), X[X[:, 0] > 0][:2].tolist(), [[1, 2]], [["x", None, 3]], "x"]
    for body in rows:
        for more in ({}, {"verify": True}, {"query": True}):
            content = json.dumps({"rows": body, "target": 1, **more}).encode()
            kind = f"Content-Type: application/json\r\nContent-Length: {len(content)}"
            yield "replies", head("POST", "/explain", bearer, kind) + content, True
    broken = [
        head("GET", "/info", bearer + "\0"),
        head("GET", "/info", bearer + "\u00e9"),
        head("GET", "/info", bearer, f"Authorization: {bearer}x"),
        head("GET", "/info", bearer, "no colon here"),
        head("GET", "/info", bearer, "X: " + "y" * 200_000),
        head("GET", "/info", bearer, "Content-Length: -1"),
        head("GET", "/info", bearer, "Host: evil.example"),
        head("GET /info HTTP/9.9\r\nX:", "/", bearer),
        head("GET", "/info", bearer)[:-3],
        f"{bearer}\r\n\r\n".encode(),
    ]
    yield from (("replies", request, False) for request in broken)
    for _ in range(20):
        noisy = bytearray(head("POST", "/explain", bearer, "Content-Length: 5"))
        place = int(rng.integers(noisy.index(b"Authorization")))
        noisy[place] = int(rng.integers(256))
        yield "replies", bytes(noisy), False


def head(method: str, path: str, value: str, more: str = "Accept: */*") -> bytes:
    text = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: {value}\r\n{more}\r\n\r\n"
    )
    return text.encode()


def run_served(seed: int) -> dict[str, Any]:
    """How often the token is found in each place, and how many requests were answered to whoever brought it."""
    rng, found, n_answered = np.random.default_rng(seed), Counter[str](), 0
    token = bytes(rng.integers(97, 123, size=24, dtype=np.uint8)).decode()
    needles = [token.encode(), b64encode(f"anyone:{token}".encode())[8:-4]]

    def look(place: str, content: bytes) -> None:
        found[place] += sum(content.count(needle) for needle in needles)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with served(folder, token) as (port, _):
            for place, request, is_whole in requests_with(token, rng):
                said = exchange(port, request, is_whole=is_whole)
                n_answered += said.startswith(b"HTTP/1.1 200")
                look(place, said)
        for path in folder.rglob("*"):
            if path.is_file():
                look("server's output" if path.name in ("stdout", "stderr") else "records and files", path.read_bytes())
    return {"places": {place: found[place] for place in PLACES}, "n_requests_with_it": n_answered}
