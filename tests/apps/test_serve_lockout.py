"""Clients that are silent, slow or deaf, and models that hang, leave service to others as it was."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx")
pytest.importorskip("fastapi")

import httpx

import forking
from model_server import serve
from quick import TABLE
from quick import labels as model
from quick import quick_explainer as fitted
from quick import quick_fit as fit
from repo_scripts import run_apart
from serving import command
from sointer.apps.serve import create_app, server
from sointer.apps.serve.security import Limits

pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
BODY = {"rows": TABLE[:1].tolist(), "target": 1, "query": False}
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HALF_BODY = POST + b"Content-Length: 1000\r\n\r\n{"


@contextmanager
def running(app: Any):
    """Its port, with the connections of `sointer serve`."""
    with serve(app, http=server.ServerConnection) as url:
        yield int(url.rsplit(":", 1)[1])


def connect(port: int, content: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.sendall(content)
    return connection


def ask(port: int, **more: Any) -> int:
    return httpx.post(f"http://127.0.0.1:{port}/explain", json=BODY | more, timeout=60).status_code


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def wait_until(holds, seconds=20):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GET /hea",
        HEALTH + b"G",
        HEALTH * 2 + b"GET /healthz HTTP/1.1\r\nHost:",
        b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx",
    ],
    ids=["nothing", "half a head", "half a second head", "half a third head", "a body that nobody reads"],
)
def test_every_request_of_a_connection_has_to_begin_in_time(monkeypatch, content):
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.5)
    with running(create_app(fitted("table"))) as port, connect(port, content) as connection:
        while connection.recv(4096):
            pass  # the replies, and then the end
        assert ask(port) == 200


def test_bytes_that_drip_do_not_buy_time(monkeypatch):
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.5)
    with running(create_app(fitted("table"))) as port, connect(port, HEALTH) as connection:
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")

        def drip() -> None:
            for _ in range(200):
                connection.sendall(b"G")
                time.sleep(0.05)

        with pytest.raises(ConnectionError):
            drip()


def test_replies_that_nobody_takes_are_dropped(monkeypatch):
    monkeypatch.setattr(server, "REPLY_SECONDS", 0.5)
    with running(create_app(fitted("table"))) as port, connect(port) as connection:

        def ask_on() -> None:
            for _ in range(2_000_000):
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

        with pytest.raises(ConnectionError):
            ask_on()


def test_of_too_many_connections_the_longest_waiting_go(monkeypatch):
    monkeypatch.setattr(server.ServerConnection, "max_connections", 20)
    with running(create_app(fitted("table"))) as port, ExitStack() as stack:
        silent = [stack.enter_context(connect(port, b"GET" if i % 2 else HALF_BODY)) for i in range(60)]
        assert ask(port) == 200
        wait_until(lambda: all(map(is_closed, silent[:40])))
        assert not any(map(is_closed, silent[-15:]))


def test_bodies_in_tiny_parts_end_their_connection():
    """Each part takes as long as a large one: ten such clients kept all others waiting for half a minute."""
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    with running(create_app(fitted("table"))) as port:
        with connect(port, chunked) as connection, pytest.raises(ConnectionError):
            connection.sendall(b"1\r\n \r\n" * 1_000_000)
        body = json.dumps(BODY).encode()
        with connect(port, chunked + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n") as connection:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")


def test_half_sent_bodies_take_no_place():
    with running(create_app(fitted("table"), limits=Limits(concurrency=1, queue=0))) as port, ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(connect(port, HALF_BODY))
        assert [ask(port) for _ in range(5)] == [200] * 5


def test_half_sent_bodies_take_bounded_memory():
    limits = Limits(concurrency=1, queue=1, max_body_bytes=20_000)
    with running(create_app(fitted("table"), limits=limits)) as port, ExitStack() as stack:
        head = POST + b"Content-Length: 18000\r\n\r\n"
        bodies = [stack.enter_context(connect(port, head + b" " * 15_000)) for _ in range(3)]
        assert bodies[0].recv(4096).startswith(b"HTTP/1.1 429")  # the oldest gives way
        assert not any(map(is_closed, bodies[1:]))
        assert ask(port) == 200


# --- models that hang ------------------------------------------------------------------------------------------


def test_a_model_that_hangs_stops_nobody_else():
    hangs: list[bool] = []

    def hanging(X: Any) -> Any:
        while hangs:
            time.sleep(0.05)
        return model(X)

    explainer, limits = fit(hanging, TABLE), Limits(concurrency=2, queue=2, timeout=20)
    with running(create_app(explainer, limits=limits)) as port, ThreadPoolExecutor(8) as pool:
        hangs.append(True)
        try:
            verifying = [pool.submit(ask, port, verify=True) for _ in range(4)]
            wait_until(lambda: "sointer_requests_inside 4" in httpx.get(f"http://127.0.0.1:{port}/metrics").text)
            assert ask(port, query=True) == 429  # it would wait for the model
            assert [ask(port) for _ in range(5)] == [200] * 5
            assert [ask(port, query=True, predicted=model(TABLE[:1]).tolist()) for _ in range(5)] == [200] * 5
            assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
        finally:
            hangs.clear()
        assert [one.result() for one in verifying] == [200] * 4


# --- processes that are forked ---------------------------------------------------------------------------------

FORKED = """
import os, socket, sys, uvicorn, sointer
os.setsid()
from sointer.apps.serve import create_app
app = create_app(sointer.load(sys.argv[1]))
app.state.queue.start()  # threads that the child will not have
listener = socket.create_server(("127.0.0.1", 0))
if os.fork():
    print(listener.getsockname()[1], flush=True)
    os.wait()
else:
    uvicorn.run(app, fd=listener.fileno(), log_level="critical")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_an_app_made_before_a_fork_serves(tmp_path):
    fitted("table").save(tmp_path / "why")
    with forking.start(["-c", FORKED, str(tmp_path / "why")]) as process:
        try:
            port = int(process.stdout.readline())
            wait_until(lambda: answers(port), 60)
            assert httpx.get(f"http://127.0.0.1:{port}/healthz").json() == {"ready": True}
            assert ask(port) == 200
        finally:
            os.killpg(process.pid, 9)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_apps_serve_again_in_forked_processes_and_other_event_loops():
    """A small version of `make faults`."""
    found = run_apart("faults", "forks", part=0, n=4, kinds=["table"])
    assert (found["forks"], found["answer rightly"], found["wrong in the first process"]) == (4, 4, 0), found


@pytest.mark.slow
def test_gunicorn_preloads(tmp_path):
    pytest.importorskip("gunicorn")
    pytest.importorskip("uvicorn.workers", exc_type=ImportError)
    fitted("table").save(tmp_path / "why")
    code = "import sointer\nfrom sointer.apps.serve import create_app\napp = create_app(sointer.load('why'))\n"
    (tmp_path / "preloaded.py").write_text(code)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = f"-k uvicorn.workers.UvicornWorker -w 2 --preload -b 127.0.0.1:{port} preloaded:app".split()
    process = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *options], cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        wait_until(lambda: answers(port), 60)
        assert [ask(port) for _ in range(6)] == [200] * 6
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").json() == {"ready": True}
    finally:
        process.terminate()
        process.wait(30)


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/v2/health/live", timeout=20).status_code == 200
    except httpx.TransportError:
        return False


# --- the whole number ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="needs many open files")
def test_two_thousand_silent_sockets_and_two_hundred_slow_bodies(tmp_path):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4000:
        pytest.skip("not enough files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4000), hard))
    fitted("table").save(tmp_path / "why")
    with command(tmp_path / "why") as (url, _), ExitStack() as stack:
        port = int(url.rsplit(":", 1)[1])
        kinds = [b"", b"GET /hea", HEALTH + b"G"]
        silent = [stack.enter_context(connect(port, kinds[i % 3])) for i in range(2000)]
        slow = [stack.enter_context(connect(port, HALF_BODY)) for _ in range(200)]
        assert [ask(port) for _ in range(20)] == [200] * 20
        time.sleep(server.HEADER_SECONDS + 5)
        for one in silent:
            one.recv(4096)  # the reply to the first request, if there was one
        assert all(map(is_closed, silent))
        assert not all(map(is_closed, slow))  # they have until the time-out
        assert [ask(port) for _ in range(20)] == [200] * 20
