"""What does HTTPBlackBox make of servers that are slow, broken or mean harm, through real sockets?"""

from __future__ import annotations

import gzip
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from sointer import HTTPBlackBox
from sointer.errors import BlackBoxError
from studies.faults.counting import count_table, total
from studies.frame.markdown import sections
from studies.frame.study import Case, Row, Study

N_PARTS, PER_PART = 5, 40
TIMEOUT, ALLOWED_SECONDS = 0.5, 1.0
MAX_REPLY_MB = 5
ALLOWED_MB = 20 * MAX_REPLY_MB + 16
MAX_MESSAGE = 2000
GOOD = b'{"predictions": [[1, 0], [0, 1]]}'
STALE = b'{"predictions": [[9, 9], [9, 9]]}'
COUNTED = ("servers", "answered", "refused", "wrong", "over time", "over memory", "other errors")


MANY_SMALL = {"lists": ["[],", "[0],", "[[]],", "[[],[]],"], "objects": ["{},", '{"":0},', '{"a":[]},']}
"""Of which Python takes many times the bytes."""


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "n": 10 if smoke else PER_PART}


def make_reply(rng: np.random.Generator) -> tuple[list[bytes], float, bytes]:
    """Pieces of a reply to one request, the seconds between them, and what comes when the next request is there."""
    head, body = [b"HTTP/1.1 200 OK"], GOOD
    kind = int(rng.integers(14))
    if kind == 0:
        layers = int(rng.integers(1, 4))
        body = bytes(30_000_000)
        for _ in range(layers):
            body = gzip.compress(body, 9)
        head.append(b"Content-Encoding: " + b", ".join([b"gzip"] * layers))
    elif kind == 1:
        body = b" " * int(rng.integers(2, 40)) * 2**19  # up to 20 MB
    elif kind == 2:
        head += [b"X-%d: y" % i for i in range(int(rng.integers(1, 5000)))]
    elif kind == 3:
        body = b"[" * int(rng.integers(1, 10**6))
    elif kind == 4:
        body = b'{"predictions": [["' + b"A" * int(rng.integers(1, 10**6)) + b'", 0], [0, 1]]}'
    elif kind in (9, 10):
        part = rng.choice(MANY_SMALL["lists" if kind == 9 else "objects"])
        body = b'{"predictions": [%s0]}' % (part.encode() * int(rng.integers(1, MAX_REPLY_MB * 2**20 // len(part) - 8)))
    elif kind == 11:
        body = b'{"predictions": [[1' + b"0" * int(rng.integers(15, 5000)) + b", 0], [0, 1]]}"
    elif kind == 12:
        body = b'{"' + b"A" * int(rng.integers(1, 10**6)) + b'": 1}'
    elif kind == 13:
        head[0], body = b"HTTP/1.1 400 Bad Request", b"\x1b[2J\x1b]0;title\x07" * int(rng.integers(1, 10**5))
    before = b"HTTP/1.1 100 Continue\r\n\r\n" * (int(rng.integers(1, 2000)) if kind == 5 else 0)
    after = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(STALE) + STALE if rng.random() < 0.5 else b""
    if rng.random() < 0.3:
        head.append(b"Transfer-Encoding: chunked")
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    else:
        wrong = int(rng.integers(-5, 100)) if kind == 6 else 0
        head.append(b"Content-Length: %d" % max(0, len(body) + wrong))
    is_late = rng.random() < 0.5
    whole = before + b"\r\n".join(head) + b"\r\n\r\n" + body + (b"" if is_late else after)
    late = after if is_late else b""
    if rng.random() < 0.4:  # by a few bytes at a time
        step = int(rng.integers(1, 20))
        return [whole[i : i + step] for i in range(0, min(len(whole), 3000), step)], 0.05, late
    return [whole], 0.0, late


@contextmanager
def server(pieces: list[bytes], pause: float, late: bytes) -> Iterator[str]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def answer(connection: socket.socket) -> None:
            with suppress(OSError), connection:
                ready = list(pieces)
                while connection.recv(65536):
                    for piece in ready:
                        connection.sendall(piece)
                        time.sleep(pause)
                    ready = [late, *pieces]

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/invocations"


def run(part: int, n: int) -> dict[str, Any]:
    """Two queries to each of n servers."""
    found = Counter[str]()
    for number in range(n):
        reply = make_reply(np.random.default_rng([part, number]))
        found["servers"] += 1
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with server(*reply) as url:
            box = HTTPBlackBox(url, timeout=TIMEOUT, retries=0, n_jobs=None, max_reply_bytes=MAX_REPLY_MB * 2**20)
            for _ in range(2):
                started = time.monotonic()
                try:
                    outputs = box(np.zeros((2, 2)))
                    found["answered"] += 1
                    found["wrong"] += outputs[1].tolist() != [0, 1]
                except BlackBoxError as error:
                    found["refused"] += 1
                    found["other errors"] += len(str(error)) > MAX_MESSAGE or not str(error).isprintable()
                except Exception:
                    found["other errors"] += 1
                finally:
                    found["over time"] += time.monotonic() - started > TIMEOUT + ALLOWED_SECONDS
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        found["over memory"] += grown > ALLOWED_MB
    return {name: found[name] for name in COUNTED}


def verdict(rows: list[Row]) -> tuple[str, str]:
    found = total(rows, COUNTED)
    return f"{found['servers']} slow, broken and hostile model servers, queried twice each", (
        f"{found['wrong']} replies assigned to the wrong request, {found['over time']} calls more than "
        f"{ALLOWED_SECONDS:g} s longer than their timeout, {found['over memory']} cases of memory over {ALLOWED_MB} "
        f"MB, {found['other errors']} unclear errors"
    )


def page(rows: list[Row], images: Path) -> str:
    return sections(
        "## Model servers",
        "The servers send replies that are compressed up to three times, too long, deeply nested, chunked, or made "
        "of very many small lists or objects; that state a wrong length; that follow `100 Continue`, or are "
        "followed by a second reply (at once, or with the next request); or that arrive a few bytes at a time. "
        f"Timeout {TIMEOUT} s, `max_reply_bytes` {MAX_REPLY_MB} MB.",
        count_table(total(rows, COUNTED), COUNTED),
    )


STUDY = Study("servers", cases, run, page)
