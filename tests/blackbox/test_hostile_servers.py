"""Servers that mean harm or are broken: no reply takes longer than its timeout, or more memory than its limit."""

from __future__ import annotations

import contextlib
import gzip
import json
import resource
import socket
import sys
import threading
import time
import tracemalloc
import warnings
import zlib
from functools import cache

import numpy as np
import pytest

from repo_scripts import run_apart
from sointer import BlackBox, CommandBlackBox, HTTPBlackBox
from sointer.blackbox.adapters.connection import reply_json
from sointer.blackbox.replies import MAX_LABEL, holds_text, to_array
from sointer.errors import BlackBoxError

pytest.importorskip("httpcore")

X = np.zeros((2, 2))
GOOD = b'{"predictions": [[1, 0], [0, 1]]}'


def reply(body, *headers, status=b"200 OK"):
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def read_request(connection):
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65536)
        if not part:
            raise ConnectionError("the client has gone")
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-l")), 0
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head, body


@contextlib.contextmanager
def server(handle):
    """A real server that treats every connection as `handle` does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve(connection):
            with contextlib.suppress(OSError), connection:
                handle(connection)

        def run():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=run, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/invocations"
        listening.shutdown(socket.SHUT_RDWR)


def box_for(url, **options):
    return HTTPBlackBox(url, **{"timeout": 1.0, "retries": 0, "n_jobs": None, **options})


def drip(before, drop, after=b"", n=10_000):
    def handle(connection):
        read_request(connection)
        connection.sendall(before)
        for _ in range(n):
            connection.sendall(drop)
            time.sleep(0.1)
        connection.sendall(after)

    return handle


def never_reads(connection):
    time.sleep(30)


SLOW = {
    "a header by the byte": drip(b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    "headers without end": drip(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "100 Continue without end": drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a body by the byte": drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
    "chunks by the byte": drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a status by the byte": drip(b"HTTP/1.", b"1"),
    "nothing": never_reads,
}


@pytest.mark.parametrize("how", SLOW)
def test_no_reply_takes_longer_than_its_timeout(how):
    with server(SLOW[how]) as url:
        started = time.monotonic()
        with pytest.raises(BlackBoxError, match=r"did not respond within timeout=0\.4 s|connection broke off"):
            box_for(url, timeout=0.4)(X)
        assert time.monotonic() - started < 6


def test_a_name_that_is_looked_up_for_ever_is_left_in_time(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: time.sleep(3))
    started = time.monotonic()
    with pytest.raises(BlackBoxError, match="did not respond within timeout"):
        HTTPBlackBox("http://models.example/invocations", timeout=0.3, retries=0, n_jobs=None)(X)
    assert time.monotonic() - started < 2


def test_a_server_that_does_not_read_is_left_in_time():
    with server(never_reads) as url:
        started = time.monotonic()
        with pytest.raises(BlackBoxError, match="did not respond within"):
            box_for(url, timeout=0.4)(np.ones((100_000, 20)))
        assert time.monotonic() - started < 30  # most of it to write the request as JSON


@cache
def bomb(layers):
    if layers > 1:
        return gzip.compress(bomb(layers - 1), 9)
    packer, content, million = zlib.compressobj(9, zlib.DEFLATED, 31), b"", bytes(10**6)
    for _ in range(500):
        content += packer.compress(million)
    return content + packer.flush()


@pytest.mark.parametrize("layers", [1, 2])
def test_packed_replies_are_not_unpacked(layers):
    packed = reply(bomb(layers), b"Content-Encoding: " + b", ".join([b"gzip"] * layers))

    def handle(connection):
        head, _ = read_request(connection)
        assert b"identity" in head
        connection.sendall(packed)

    with server(handle) as url:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(BlackBoxError, match="Content-Encoding 'gzip"):
            box_for(url, max_reply_bytes=2**20)(X)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


def test_a_head_without_end_is_refused():
    def handle(connection):
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X: " + b"y" * 60_000 + b"\r\n")

    with server(handle) as url, pytest.raises(BlackBoxError, match="gave no reply"):
        box_for(url, timeout=20)(X)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_second_reply_answers_no_other_request(chunked):
    stale = b'{"predictions": [[9, 9], [9, 9]]}'

    def framed(body):
        if not chunked:
            return reply(body)
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)

    def handle(connection):
        while True:
            read_request(connection)
            connection.sendall(framed(GOOD) + framed(stale))

    with server(handle) as url:
        box = box_for(url, timeout=5)
        for number in range(5):
            assert box(X + number).tolist() == [[1, 0], [0, 1]]


def test_a_late_reply_answers_no_other_request():
    n_requests = 0

    def handle(connection):
        nonlocal n_requests
        while True:
            read_request(connection)
            n_requests += 1
            if n_requests == 2:
                time.sleep(2)
                connection.sendall(reply(b'{"predictions": [[9, 9], [9, 9]]}'))
            else:
                connection.sendall(reply(GOOD))

    with server(handle) as url:
        box = box_for(url)
        assert box(X).tolist() == [[1, 0], [0, 1]]
        with pytest.raises(BlackBoxError):
            box(X + 1)
        time.sleep(1.5)
        assert box(X + 2).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("protocol", ["mlflow", "v2"])
def test_a_second_reply_that_comes_with_the_next_request_answers_no_other(protocol):
    """Such a reply is not there yet when the next request is sent, so only another connection tells them apart."""
    n_on_one = []

    def handle(connection):
        n_on_one.append(0)
        while True:
            head, _ = read_request(connection)
            n_on_one[-1] += 1
            if protocol == "v2" and head.startswith(b"GET"):
                connection.sendall(reply(b'{"name": "m", "inputs": []}'))
                continue
            number = b"1" if n_on_one[-1] == 1 else b"9"  # the reply of before, once more
            outputs = b'[{"name": "y", "shape": [2, 1], "datatype": "INT64", "data": [%s, 0]}]' % number
            body = b'{"outputs": %s}' % outputs if protocol == "v2" else b'{"predictions": [[%s], [0]]}' % number
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" + reply(body))

    with server(handle) as url:
        box = box_for(url if protocol == "mlflow" else url.replace("/invocations", "/v2/models/m"))
        for number in range(3):
            assert box(X + number).tolist() == [[1], [0]]
    assert set(n_on_one) == {1}


def test_the_reply_of_another_inference_request_is_refused():
    def handle(connection):
        while True:
            head, body = read_request(connection)
            if head.startswith(b"GET"):
                connection.sendall(reply(b'{"name": "m", "inputs": []}'))
                continue
            sent = json.loads(body)["id"]
            output = {"name": "y", "shape": [2, 1], "datatype": "INT64", "data": [1, 0]}
            ids = {"id": sent if len(known) == 0 else "0"}
            known.append(sent)
            connection.sendall(reply(json.dumps({**ids, "outputs": [output]}).encode()))

    known = []
    with server(handle) as url:
        box = box_for(url.replace("/invocations", "/v2/models/m"))
        assert box(X).tolist() == [[1], [0]]
        with pytest.raises(BlackBoxError, match="for another request"):
            box(X)
    assert len(set(known)) == 2


@pytest.mark.parametrize(
    ("described", "shape", "words"),
    [
        (None, [2] + [1] * 70, "Output 'y' of the model at .* cannot be read"),
        (None, [0, 2**70], "cannot be read"),
        (None, [0, 2**40, 2**40], "cannot be read"),
        ([float("inf"), 2], [2, 1], "description of the model at .* cannot be read"),
    ],
)
def test_odd_shapes_are_refused_as_the_servers_fault(described, shape, words):
    inputs = [] if described is None else [{"name": "x", "shape": described, "datatype": "FP64"}]
    data = [] if 0 in shape else [1, 0]
    output = {"name": "y", "shape": shape, "datatype": "INT64", "data": data}

    def handle(connection):
        head, _ = read_request(connection)
        content = {"name": "m", "inputs": inputs} if head.startswith(b"GET") else {"outputs": [output]}
        connection.sendall(reply(json.dumps(content).encode()))

    with server(handle) as url, pytest.raises(BlackBoxError, match=words) as caught:
        box_for(url.replace("/invocations", "/v2/models/m"))(X)
    assert "Your function failed" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        {"predictions": {"y": ["A" * 1_000_000, *[0] * 5000]}},
        {"predictions": [["A" * 1_000_000], *[[0]] * 5000]},
        {"predictions": [{"y": "A" * 1_000_000}, *[{"y": 0}] * 5000]},
    ],
)
def test_a_long_text_among_numbers_takes_no_room_for_each(content):
    body = reply(json.dumps(content).encode())

    def handle(connection):
        read_request(connection)
        connection.sendall(body)

    with server(handle) as url:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(BlackBoxError, match="a label of more than 10,000 characters"):
            box_for(url, timeout=20, batch_size=10_000)(np.zeros((5001, 2)))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


LARGE = 5 * 10**6
ALLOWED = 20 * LARGE + 2**24
SMALL_PARTS = {
    "empty lists": b"[],",
    "empty objects": b"{},",
    "lists of one": b"[0],",
    "lists of lists": b"[[],[]],",
    "names": None,
}


@cache
def small_parts(kind):
    """Five megabytes that say next to nothing, as an array or an object."""
    if SMALL_PARTS[kind] is None:
        return b"{" + b",".join(b'"%x":0' % i for i in range(LARGE // 10)) + b"}"
    return b"[" + SMALL_PARTS[kind] * (LARGE // len(SMALL_PARTS[kind])) + b"0]"


@contextlib.contextmanager
def refused_within_limits(seconds):
    """Refused in few seconds of computing, without more memory than a long list of numbers would take."""
    tracemalloc.start()
    started = time.process_time()
    try:
        with pytest.raises(BlackBoxError, match="lists and objects, or different names, most of them almost empty"):
            yield
        assert tracemalloc.get_traced_memory()[1] < ALLOWED
    finally:
        tracemalloc.stop()
    assert time.process_time() - started < seconds


@pytest.mark.parametrize("kind", SMALL_PARTS)
@pytest.mark.parametrize("protocol", ["mlflow", "v2", "bare"])
def test_replies_of_many_small_parts_are_refused_unread(kind, protocol):
    output = b'{"name": "y", "shape": [2, 1], "datatype": "INT64", "data": %s}'
    form = {"mlflow": b'{"predictions": %s}', "v2": b'{"outputs": [' + output + b"]}", "bare": b"%s"}[protocol]
    body = form % small_parts(kind)
    of_model = protocol == "v2"

    def handle(connection):
        while True:
            head, _ = read_request(connection)
            connection.sendall(reply(b'{"name": "m", "inputs": []}' if of_model and head.startswith(b"GET") else body))

    with server(handle) as url, refused_within_limits(3):
        box_for(url.replace("/invocations", "/v2/models/m") if of_model else url)(X)


@pytest.mark.parametrize("kind", SMALL_PARTS)
def test_lines_of_many_small_parts_are_refused_unread(kind, tmp_path):
    (tmp_path / "reply").write_bytes(b'{"outputs": [%s]}' % small_parts(kind))
    code = "import sys; text = open(sys.argv[1]).read(); [print(text, flush=True) for line in sys.stdin]"
    command = [sys.executable, "-c", code, str(tmp_path / "reply")]
    with CommandBlackBox(command, timeout=10, retries=0) as box, refused_within_limits(6):
        box(X)


def test_a_long_refusal_is_quoted_within_limits():
    body = b"\xff " * (LARGE // 2)  # words of one character that Python holds once for each

    def handle(connection):
        read_request(connection)
        connection.sendall(reply(body, status=b"400 Bad Request"))

    with server(handle) as url:
        tracemalloc.start()
        try:
            with pytest.raises(BlackBoxError, match=r"status 400: (\ufffd )+ ?\.\.\."):
                box_for(url)(X)
            assert tracemalloc.get_traced_memory()[1] < ALLOWED
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    "row", [[0], [[[0.5], [1.0]]], [[0] * 8] * 8, [{"label": f"LABEL_{i}", "score": 0.5} for i in range(28)]]
)
def test_what_models_return_has_few_enough_parts(row):
    content = json.dumps({"predictions": [row] * 5000}, separators=(",", ":")).encode()
    assert len(reply_json(content, 5000)["predictions"]) == 5000


@pytest.mark.parametrize("long", [9_000, 200_000])
def test_one_long_label_takes_no_room_for_each(long):
    def model(X):
        labels = [["b"] * 50 for _ in X]
        labels[0][0] = "A" * long
        return labels

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if long > MAX_LABEL:
        with pytest.raises(BlackBoxError, match="a label of more than 10,000 characters"):
            BlackBox(model)(np.zeros((20, 2)))
    else:
        outputs = BlackBox(model)(np.zeros((20, 2)))
        assert (outputs.shape, outputs.dtype, outputs[3, 3]) == ((20, 50), object, "b")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_an_array_with_room_for_long_labels_is_made_narrow():
    table = np.array([["a", "bc"]], dtype="U20000")
    assert to_array(table).dtype == np.dtype("U2")
    with pytest.raises(BlackBoxError, match="a label of more than 10,000 characters"):
        BlackBox(lambda X: np.array([["a" * 20_000]] * len(X)))(np.zeros((2, 2)))


def test_short_labels_are_strings_as_ever():
    assert to_array([["a", "b"], ["c", "dd"]]).dtype.kind == "U"
    assert to_array([[1, "b"]]).dtype.kind == "O"
    assert to_array([[1, 2]]).dtype.kind == "i"
    assert [holds_text(x) for x in ([1, [2.0]], [[1], ["a"]], np.zeros(3), "a")] == [False, True, False, True]
    with pytest.raises(BlackBoxError, match="different lengths"):
        to_array([["a", "b"], ["c"]])


def test_an_interrupt_shows_no_secret_at_any_moment():
    found = run_apart("faults", "interrupts", part=0, n=30)
    assert found["interrupted"] > 20
    # On a busy machine a call may take so long that it counts as interrupted twice.
    assert (found["show a secret"], found["ended otherwise"], found["unusable afterwards"]) == (0, 0, 0), found


@pytest.mark.parametrize(
    ("url", "headers", "warns"),
    [
        ("http://models.example/invocations", {"X-Token": "SECRET123"}, True),
        ("http://user:SECRET123@models.example/invocations", None, True),
        ("http://models.example/invocations", None, False),
        ("https://models.example/invocations", {"X-Token": "SECRET123"}, False),
        ("http://127.0.0.1:1/invocations", {"X-Token": "SECRET123"}, False),
    ],
)
def test_secrets_on_their_way_in_plain_text_are_warned_of(url, headers, warns):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        HTTPBlackBox(url, headers=headers)
    assert [("unencrypted" in str(w.message), "SECRET123" in str(w.message)) for w in found] == [(True, False)] * warns


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"predictions": [[1' + b"0" * 400 + b", 0], [0, 1]]}", b"200 OK"),
        (b'{"' + b"A" * 1_000_000 + b'": 1}', b"200 OK"),
        (b"\x1b[2J\x1b]0;title\x07", b"400 Bad Request"),
    ],
    ids=["a number of 400 digits", "a long name", "what moves a terminal's cursor"],
)
def test_messages_about_replies_are_short_and_printable(body, status):
    def handle(connection):
        read_request(connection)
        connection.sendall(reply(body, status=status))

    with server(handle) as url, pytest.raises(BlackBoxError) as caught:
        box_for(url)(X)
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()


def test_whole_numbers_beyond_64_bits_are_refused():
    with pytest.raises(BlackBoxError, match="more than 64 bits, expected smaller ones"):
        BlackBox(lambda X: [[10**400, 0]] * len(X))(X)
    assert BlackBox(lambda X: [[2**64 - 1, 2**63]] * len(X))(X).dtype == np.uint64


def test_errors_that_say_too_much_or_cannot_say_it():
    class Silent(Exception):
        def __str__(self):
            raise RuntimeError("no")

    def model(error):
        def predict(X):
            raise error

        return BlackBox(predict, retries=0)

    with pytest.raises(BlackBoxError) as caught:
        model(ValueError("x" * 10_000_000))(X)
    assert len(str(caught.value)) < 3000
    with pytest.raises(BlackBoxError, match="its message cannot be shown"):
        model(Silent())(X)
