"""Explaining over HTTP, by a real server on loopback: the answers of explain, and a clear no to all else."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("httpx")
pytest.importorskip("fastapi")

import httpx

import sointer
from model_server import serve
from quick import FRAME, IMAGES, SPARSE, TABLE, TEXTS
from quick import labels as model
from quick import quick_explainer as fitted
from quick import quick_fit as fit
from serving import command
from sointer.apps.serve import create_app, run, server
from sointer.apps.serve.request import read_request
from sointer.apps.serve.response import RecordLog, ResponseWriter, explain_batch
from sointer.apps.serve.rows import as_frame, cells_of
from sointer.apps.serve.security import Limits, host_name, is_loopback
from sointer.data.inputs import InputFormat
from sointer.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")


@pytest.fixture(scope="module")
def table():
    app = create_app(fitted("table"), limits=Limits(max_rows=50, max_body_bytes=20_000, concurrency=2))
    with serve(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def ask(client, rows, **more):
    return client.post("/explain", json={"rows": rows, **more})


def error_of(reply, status):
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    content = reply.json()
    assert list(content) == ["error"]
    assert "\n" not in content["error"]
    assert "Traceback" not in content["error"]
    return content["error"]


def assert_same(reply, explanation):
    """Names, values and every bit of the scores."""
    assert reply.status_code == 200, reply.text
    rows = reply.json()["rows"]
    assert len(rows) == len(explanation)
    for i, row in enumerate(rows):
        units = [unit for unit in explanation.selected[i] if unit >= 0]
        assert [feature["name"] for feature in row["features"]] == [explanation.feature_names[u] for u in units]
        scores = np.array([feature["score"] for feature in row["features"]], dtype=np.float32)
        assert scores.tobytes() == explanation.scores[i, units].tobytes()
        assert row["target"] == explanation.output_names[explanation.target[i]]
        assert row["value"] == explanation.value[i]
        assert row["value_source"] == explanation.value_source
        assert row["sample"] == i
        assert row["far"] == explanation.far[i]


# --- the same answers ------------------------------------------------------------------------------------------


def test_every_form_of_rows_gives_what_explain_gives(table):
    expected = fitted("table").explain(TABLE[:7], 1)
    names = [f"x{i}" for i in range(5)]
    lists = TABLE[:7].tolist()
    shuffled = [4, 2, 0, 1, 3]
    split = {"columns": [names[i] for i in shuffled], "data": [[row[i] for i in shuffled] for row in lists]}
    for rows in (lists, [dict(zip(names, row, strict=True)) for row in lists], split):
        assert_same(ask(table, rows, target=1), expected)
    assert_same(ask(table, lists, target="y1"), expected)
    each = [0, "y1", 2, 0, 1, 2, "y0"]
    assert_same(ask(table, lists, target=each, k=3), fitted("table").explain(TABLE[:7], each, k=3))


def test_rows_unlike_the_training_data_say_so(table):
    reply = ask(table, [TABLE[0].tolist(), [99.0] * 5], target=0).json()
    assert [row["far"] for row in reply["rows"]] == [False, True]


def test_values_are_those_that_were_sent(table):
    reply = ask(table, TABLE[:3].tolist(), target=0).json()
    for i, row in enumerate(reply["rows"]):
        for feature in row["features"]:
            assert feature["value"] == TABLE[i, int(feature["name"][1:])]


def test_truth_values_and_whole_numbers_come_back_as_such():
    known = InputFormat.infer(pd.DataFrame({"vip": [True, False], "age": [41, 70], "debt": [1.5, 2.0]}))
    frame = as_frame(known, [[False, True], [70, 41.5], [1, 2]])
    assert frame.to_dict("list") == {"vip": [False, True], "age": [70.0, 41.5], "debt": [1.0, 2.0]}
    assert [type(cell) for cell in cells_of(as_frame(known, [[False], [70], [1]]), 0).values()] == [bool, int, float]
    with pytest.raises(InputError, match="X has 'no' in column 'vip', expected True or False"):
        as_frame(known, [["no"], [70], [1]])
    gaps = InputFormat.infer(pd.DataFrame({"vip": [True, None], "age": [41, None]}).convert_dtypes())
    frame = as_frame(gaps, [[False, None, True], [70, 41, None]])
    rows = [cells_of(frame, row) for row in range(3)]
    assert repr(rows) == "[{0: False, 1: 70}, {0: None, 1: 41}, {0: True, 1: None}]"


def test_the_table_is_that_of_to_frame(table):
    reply = ask(table, TABLE[:4].tolist(), target=[0, 1, 2, 0], format="table").json()["table"]
    frame = fitted("table").explain(TABLE[:4], [0, 1, 2, 0]).to_frame()
    assert reply == frame.astype({"score": float}).to_dict("records")


def test_records_can_be_checked_later(table):
    rows = TABLE[:3].tolist()
    reply = ask(table, rows, target=[0, 1, 2], format="records", verify=True, ids=["a", 7, "c"]).json()["records"]
    explanation = fitted("table").explain(TABLE[:3], [0, 1, 2])
    when = reply[0]["created"]
    assert reply == explanation.record(explanation.verify(), created=when, ids=["a", "7", "c"])
    assert sointer.verify_record(reply[1], fitted("table"), TABLE).holds
    for ids in ("abc", ["a"], [["a"], "b", "c"], ["a" * 1000, "b", "c"]):
        assert "ids" in error_of(ask(table, rows, target=0, format="records", ids=ids), 422)


def test_every_explanation_leaves_its_record(tmp_path):
    path = tmp_path / "records.jsonl"
    app = create_app(fitted("table"), records=path, limits=Limits(concurrency=2))
    with serve(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda i: ask(client, [TABLE[i].tolist()], target=1, k=1 + i % 3), range(24)))
        assert {reply.status_code for reply in replies} == {200}
        tensor = {"name": "rows", "shape": [1, 5], "datatype": "FP64", "data": TABLE[30].tolist()}
        infer = client.post("/v2/models/explainer/infer", json={"inputs": [tensor], "parameters": {"target": "y1"}})
        assert infer.status_code == 200, infer.text
        error_of(ask(client, [[1.0]], target=1), 422)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(records) == 25, "one for each explanation, none for what was refused"
    assert path.stat().st_mode & 0o777 == 0o600
    said = {(one["sample"]["sha256"], len(one["selected"])) for one in records}
    made = [fitted("table").explain(TABLE[i : i + 1], 1, k=1 + i % 3).record()[0] for i in range(24)]
    assert {(one["sample"]["sha256"], len(one["selected"])) for one in made} <= said
    with pytest.raises(InputError, match="cannot write records"):
        create_app(fitted("table"), records=tmp_path / "nowhere" / "r.jsonl")


def test_a_record_cut_off_by_a_full_disk_or_a_kill_spoils_no_other(tmp_path, monkeypatch):
    path, write = tmp_path / "records.jsonl", os.write
    log = RecordLog(path)
    log.add([{"number": 0}])

    def half(handle, content):
        if len(content) < 10:
            raise OSError(28, "No space left on device")
        return write(handle, bytes(content[: len(content) // 2]))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space left"):
            log.add([{"number": 1, "text": "x" * 100}])
    log.add([{"number": 2}])
    path.write_text(path.read_text() + '{"number": 3, "te')  # a kill
    RecordLog(path).add([{"number": 4}])
    lines = path.read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines if line.endswith("}")] == [0, 2, 4]


def test_folders_whose_names_are_no_text_are_served():
    with serve(create_app(fitted("table"), name="caf\udce9")) as url:
        assert httpx.get(url).status_code == 200
        assert httpx.get(f"{url}/info").json()["name"] == "caf?"


def test_records_go_to_ordinary_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="it is no ordinary file"):
        RecordLog(tmp_path / "pipe")


KINDS = {
    "groups": (TABLE[:5], TABLE[:5].tolist(), 1),
    "frame": (
        FRAME.iloc[:5],
        [{str(name): value for name, value in row.items()} for row in FRAME.iloc[:5].to_dict("records")],
        "big",
    ),
    "sparse": (SPARSE[:5], [{f"x{j}": 1 for j in SPARSE[[i]].tocoo().col.tolist()} for i in range(5)], 2),
    "images": (IMAGES[:2], IMAGES[:2].tolist(), (2, 3)),
    "texts": (TEXTS[:5], TEXTS[:5], 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds_of_data(kind):
    data, rows, target = KINDS[kind]
    explainer = fitted(kind)
    with serve(create_app(explainer)) as url, httpx.Client(base_url=url, timeout=60) as client:
        assert_same(ask(client, rows, target=target), explainer.explain(data, target))
        info = client.get("/info").json()
        assert info["takes"] == {"images": "images", "texts": "texts"}.get(kind, "rows")
        assert client.get("/").status_code == 200
        if kind == "frame":
            lists = [list(row.values()) for row in rows]
            assert_same(ask(client, lists, target=target), explainer.explain(data, target))
            assert "green" in error_of(ask(client, [{**rows[0], "colour": "green"}], target=0), 422)
            assert "size" in error_of(ask(client, [{**rows[0], "size": "large"}], target=0), 422)
            assert "missing" in error_of(ask(client, [{**rows[0], "colour": None}], target=0), 422)
        if kind == "groups":
            values = {
                name: value
                for feature in ask(client, rows, target=1, k=4).json()["rows"][0]["features"]
                for name, value in [(feature["name"], feature["value"])]
            }
            assert values["both"] == {"x0": TABLE[0, 0], "x1": TABLE[0, 1]}
        if kind == "images":
            box = {"rows": [1, 3], "columns": [2, 5]}
            assert_same(ask(client, rows, target=box), explainer.explain(data, np.s_[1:3, 2:5]))
            assert_same(ask(client, rows, target=[[0, 1], [2, 2]]), explainer.explain(data, [(0, 1), (2, 2)]))
            assert "outside" in error_of(ask(client, rows, target=[9, 9]), 422)
        if kind == "texts":
            nothing = {"inputs": [tensor("rows", [], "BYTES")], "parameters": {"target": 1}}
            assert "0 rows" in error_of(client.post("/v2/models/explainer/infer", json=nothing), 422)
        if kind == "sparse":
            assert_same(ask(client, SPARSE[:5].toarray().tolist(), target=target), explainer.explain(data, target))
            assert ask(client, [{}], target=0).json()["rows"][0]["features"] == []


def test_sixteen_clients_at_once_get_the_answers_of_one(table):
    explainer = fitted("table")
    rng = np.random.default_rng(1)
    requests = []
    for _ in range(48):
        rows = rng.integers(len(TABLE), size=rng.integers(1, 9))
        targets, k = rng.integers(3, size=len(rows)).tolist(), int(rng.integers(1, 4))
        requests.append((rows, targets, k, explainer.explain(TABLE[rows], targets, k=k)))
    batches_before = metric(table, "sointer_batches_total")
    start = threading.Barrier(16)

    def one_client(number):
        with httpx.Client(base_url=table.base_url, timeout=60) as client:
            start.wait()
            for rows, targets, k, expected in requests[number::16] * 3:
                assert_same(ask(client, TABLE[rows].tolist(), target=targets, k=k), expected)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one_client, range(16)))
    assert metric(table, "sointer_batches_total") - batches_before < 3 * 48, "nothing was explained together"


@pytest.mark.parametrize("kind", ["groups", "frame", "sparse", "texts"])
@pytest.mark.parametrize("format", ["rows", "table"])
def test_replies_explained_together_are_those_explained_alone(kind, format):
    """To the last digit, whatever the others asked for."""
    _, rows, target = KINDS[kind]
    explainer, writer = fitted(kind), ResponseWriter(fitted(kind))
    bodies = [{"rows": rows[i : i + 3], "target": target, "k": k, "format": format} for i, k in enumerate([1, 4, 3, 2])]
    requests = [read_request(explainer, body, Limits()) for body in bodies]
    assert requests[0].can_join(requests[1])
    for request, response in zip(requests, explain_batch(explainer, requests), strict=True):
        alone = explain_batch(explainer, [request])[0]
        assert writer.write(request, response) == writer.write(request, alone)


def metric(client, name):
    return int(next(line.split()[-1] for line in client.get("/metrics").text.splitlines() if line.startswith(name)))


# --- the Open Inference Protocol -------------------------------------------------------------------------------


def tensor(name, array, datatype="FP64"):
    return {"name": name, "shape": list(np.shape(array)), "datatype": datatype, "data": np.ravel(array).tolist()}


def test_open_inference(table):
    assert table.get("/v2").json()["name"] == "sointer"
    assert table.get("/v2/health/live").json() == {"live": True}
    assert table.get("/v2/health/ready").status_code == table.get("/v2/models/explainer/ready").status_code == 200
    metadata = table.get("/v2/models/explainer").json()
    assert metadata["inputs"] == [{"name": "rows", "datatype": "FP64", "shape": [-1, 5]}]
    body = {"id": "7", "inputs": [tensor("rows", TABLE[:6])], "parameters": {"target": "y1", "k": 3}}
    reply = table.post("/v2/models/explainer/infer", json=body).json()
    expected = fitted("table").explain(TABLE[:6], 1, k=3)
    outputs = {output["name"]: np.array(output["data"]).reshape(output["shape"]) for output in reply["outputs"]}
    assert reply["id"] == "7"
    assert np.array_equal(outputs["selected"], expected.selected)
    best = np.take_along_axis(expected.scores, expected.selected, axis=1)
    assert outputs["scores"].astype(np.float32).tobytes() == best.tobytes()
    assert outputs["value"].tolist() == expected.value.tolist()
    assert set(outputs["target"].tolist()) == {"y1"}
    each = {"inputs": [tensor("rows", TABLE[:2]), tensor("target", [2, 0], "INT64")], "outputs": [{"name": "target"}]}
    assert table.post("/v2/models/explainer/infer", json=each).json()["outputs"] == [
        {"name": "target", "datatype": "BYTES", "shape": [2], "data": ["y2", "y0"]}
    ]


def test_open_inference_with_a_tensor_for_each_column():
    with serve(create_app(fitted("frame"), name="why")) as url:
        metadata = httpx.get(f"{url}/v2/models/why").json()
        assert [(one["name"], one["datatype"]) for one in metadata["inputs"]] == [
            ("colour", "BYTES"),
            ("size", "FP64"),
            ("n", "FP64"),
            ("4", "FP64"),
        ]
        inputs = [
            tensor(one["name"], FRAME.iloc[:4, i].tolist(), one["datatype"]) for i, one in enumerate(metadata["inputs"])
        ]
        body = {"inputs": inputs[::-1], "parameters": {"target": "big"}}
        reply = httpx.post(f"{url}/v2/models/why/infer", json=body, timeout=60).json()
        outputs = {output["name"]: output["data"] for output in reply["outputs"]}
        expected = fitted("frame").explain(FRAME.iloc[:4], "big")
        assert outputs["selected"] == expected.selected.ravel().tolist()
        assert outputs["value"] == expected.value.tolist()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inputs": []}, "inputs"),
        ({"inputs": [{"name": "rows"}]}, "binary"),
        ({"inputs": [tensor("rows", TABLE[:1], "FP128")]}, "FP128"),
        ({"inputs": [{**tensor("rows", TABLE[:1]), "shape": [1, 6]}]}, "shape"),
        ({"inputs": [{**tensor("rows", TABLE[:1]), "shape": [-1, -5]}]}, "shape"),
        ({"inputs": [tensor("rows", TABLE[:1] + 0.5, "INT64")]}, "int64"),
        ({"inputs": [tensor("rows", TABLE[:51])]}, "51"),
        ({"inputs": [tensor("rows", TABLE[:1]), tensor("rows", TABLE[:1])]}, "same name"),
        ({"outputs": [{"name": "everything"}]}, "everything"),
        ({"outputs": [{"name": ["far"]}]}, "not known"),
        ({"parameters": {"target": "z"}}, "'z'"),
    ],
)
def test_wrong_tensors(table, change, words):
    body = {"inputs": [tensor("rows", TABLE[:1])], "parameters": {"target": 0}, **change}
    assert words in error_of(table.post("/v2/models/explainer/infer", json=body), 422)


def test_unknown_models_and_addresses(table):
    assert "'explainer'" in error_of(table.get("/v2/models/other"), 404)
    error_of(table.get("/nowhere"), 404)
    error_of(table.get("/explain"), 405)
    error_of(table.get("/docs"), 404)  # it would load scripts from elsewhere
    assert "/explain" in table.get("/openapi.json").json()["paths"]


# --- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "not JSON"),
        (b'{"rows": [[1', 400, "not JSON"),
        (b"\xff\xfe{}", 400, "UTF-8"),
        (b"[" * 9000, 400, "deep"),
        (b'{"rows": ' + b"[" * 9000 + b"]" * 9000 + b"}", 400, "deep"),
        (b'{"rows": [[NaN,1,2,3,4]], "target": 0}', 422, "NaN"),
        (b'{"rows": [[1e999,1,2,3,4]], "target": 0}', 422, "infinite"),
        (b'{"rows": [], "rows": []}', 400, "twice"),
        (b'{"rows": [[' + b"9" * 5000 + b",1,2,3,4]]}", 400, "not JSON"),
        (b'{"rows": [[' + b"9" * 500 + b",1,2,3,4]]}", 422, "integer"),
        (b'{"rows": [{"x0": "\\ud800"}], "target": 0}', 400, "half of a character"),
        (b"[1, 2]", 422, "array"),
        (b"{}", 422, "rows"),
        (b'{"rows": [], "target": 0}', 422, "rows holds 0 rows, expected 1 to 50."),
        (b'{"rows": [[1,2,3,4,5]], "target": 0, "predicted": [[1, 0]]}', 422, "1 row of 3 outputs; got 2 outputs"),
        (b'{"rows": [[1,2,3,4,5]], "target": 0, "predicted": %b1%b}' % (b"[" * 900, b"]" * 900), 422, "predicted"),
        (b'{"rows": [[1,2,3,4,5]], "targets": 0}', 422, "'target'"),
        (b'{"rows": [[1,2,3,4,5]]}', 422, "target is missing"),
        (b'{"rows": [[1,2,3,4]], "target": 0}', 422, "expected 5"),
        (b'{"rows": [[1,2,3,4,"x"]], "target": 0}', 422, "'x'"),
        (b'{"rows": [[1,2,3,4,null]], "target": 0}', 422, "null"),
        (b'{"rows": [[1,2,3,4,[5]]], "target": 0}', 422, "rectangular"),
        (b'{"rows": [{"x0":1}], "target": 0}', 422, "lacks 4"),
        (b'{"rows": [{"x0":1,"x1":1,"x2":1,"x3":1,"x44":2}], "target": 0}', 422, "x44"),
        (b'{"rows": [[1,2,3,4,5], {"x0": 1}], "target": 0}', 422, "expected a list of records"),
        (b'{"rows": "all", "target": 0}', 422, "'all'"),
        (b'{"rows": ["a text"], "target": 0}', 422, "'a text'"),
        (b'{"rows": {"columns": ["x0", "x0"], "data": []}, "target": 0}', 422, "several columns named 'x0'"),
        (b'{"rows": [[1,2,3,4,5]], "target": 3}', 422, "0 to 2"),
        (b'{"rows": [[1,2,3,4,5]], "target": "y"}', 422, "'y'"),
        (b'{"rows": [[1,2,3,4,5]], "target": [0, 1]}', 422, "one output per row"),
        (b'{"rows": [[1,2,3,4,5]], "target": {"a": 1}}', 422, "dict"),
        (b'{"rows": [[1,2,3,4,5]], "target": 0, "k": 6}', 422, "1 to 5"),
        (b'{"rows": [[1,2,3,4,5]], "target": 0, "k": true}', 422, "k must be"),
        (b'{"rows": [[1,2,3,4,5]], "target": 0, "format": "csv"}', 422, "'csv'"),
        (b'{"rows": [[1,2,3,4,5]], "target": 0, "verify": 1}', 422, "verify"),
        (b'{"rows": [[1,2,3,4,5]], "target": "' + b"y" * 9000 + b'"}', 422, "very long"),
    ],
)
def test_wrong_requests(table, body, status, words):
    error = error_of(table.post("/explain", content=body, headers={"Content-Type": "application/json"}), status)
    assert words in error
    assert len(error) <= 500
    assert ask(table, TABLE[:1].tolist(), target=0).status_code == 200


def test_too_many_rows_and_too_large_bodies(table):
    assert "51 rows" in error_of(ask(table, TABLE[:51].tolist(), target=0), 422)
    big = b'{"rows": [' + b" " * 30_000 + b"]}"
    json_type = {"Content-Type": "application/json"}
    assert "20,000 bytes" in error_of(table.post("/explain", content=big, headers=json_type), 413)
    pieces = (big[i : i + 1000] for i in range(0, len(big), 1000))  # sent without saying how much
    assert "20,000 bytes" in error_of(table.post("/explain", content=pieces, headers=json_type), 413)
    assert raw(table, b"Content-Type: application/json\r\nContent-Length: 99999999999\r\n", b"{").startswith(
        b"HTTP/1.1 413"
    )
    assert "JSON" in error_of(table.post("/explain", content=b"{}"), 415)
    assert "x-www-form" in error_of(table.post("/explain", data={"rows": "1"}), 415)


def raw(client, headers: bytes, body: bytes, host: bytes = b"127.0.0.1") -> bytes:
    """What the server replies to bytes until it closes the connection."""
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=20) as connection:
        connection.sendall(b"POST /explain HTTP/1.1\r\nHost: " + host + b"\r\n" + headers + b"\r\n" + body)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_endless_bodies_are_cut_off(table):
    """A client that never stops sending is let go of, after a bounded number of bytes."""
    with socket.create_connection((table.base_url.host, table.base_url.port), timeout=20) as connection:
        connection.sendall(
            b"POST /explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )

        def send_much() -> None:
            for _ in range(100_000):
                connection.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")

        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            send_much()


def test_slow_bodies_time_out():
    with (
        serve(create_app(fitted("table"), limits=Limits(timeout=0.5, queue=0, concurrency=1))) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        reply = raw(client, b"Content-Type: application/json\r\nContent-Length: 100\r\n", b'{"rows":')
        assert reply.startswith(b"HTTP/1.1 408")
        assert b"0.5 s" in reply
        assert ask(client, TABLE[:1].tolist(), target=0).status_code == 200  # its only place is free again


def test_connections_that_never_ask_are_closed(monkeypatch):
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.3)
    with serve(create_app(fitted("table")), http=server.ServerConnection) as url:
        with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=20) as connection:
            connection.sendall(b"GET /healthz HT")
            assert connection.recv(100) == b""
        assert httpx.get(url.replace("https", "http") + "/healthz").status_code == 200


def test_a_client_that_goes_away_leaves_its_place():
    with (
        serve(create_app(fitted("table"), limits=Limits(queue=0, concurrency=1))) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
            connection.sendall(
                b"POST /explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 100\r\n\r\n{"
            )
            wait_until(lambda: metric(client, "sointer_bodies_arriving") == 1)
            assert metric(client, "sointer_requests_inside") == 0
        wait_until(lambda: metric(client, "sointer_bodies_arriving") == 0)
        assert ask(client, TABLE[:1].tolist(), target=0).status_code == 200


def wait_until(holds, seconds=20):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- too much at once ------------------------------------------------------------------------------------------


class SlowModel:
    """Answers when it may."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self, X: Any) -> Any:
        self.may_answer.wait(60)
        return model(X)


@pytest.fixture(scope="module")
def slow():
    slow_model = SlowModel()
    return slow_model, fit(slow_model, TABLE)


def test_beyond_the_queue_is_429_and_what_was_accepted_is_answered(slow):
    slow_model, explainer = slow
    app = create_app(explainer, limits=Limits(concurrency=2, queue=3))
    expected = explainer.explain(TABLE[:1], 1)
    with serve(app) as url, httpx.Client(base_url=url, timeout=60) as client, ThreadPoolExecutor(5) as pool:
        slow_model.may_answer.clear()
        try:
            accepted = [
                pool.submit(
                    httpx.post,
                    f"{url}/explain",
                    json={"rows": TABLE[:1].tolist(), "target": 1, "verify": True},
                    timeout=60,
                )
                for _ in range(5)
            ]
            wait_until(lambda: metric(client, "sointer_requests_inside") == 5)
            for _ in range(20):
                reply = ask(client, TABLE[:1].tolist(), target=1)
                error_of(reply, 429)
                assert int(reply.headers["retry-after"]) >= 1
            assert client.get("/healthz").status_code == 200
        finally:
            slow_model.may_answer.set()
        for one in accepted:
            assert_same(one.result(), expected)
            assert one.result().json()["rows"][0]["agreement"] == expected.verify().agreement[0]
        wait_until(lambda: metric(client, "sointer_requests_inside") == 0)
        assert_same(ask(client, TABLE[:1].tolist(), target=1), expected)


def test_answers_that_take_too_long_are_503_and_keep_their_place_until_they_end(slow):
    slow_model, explainer = slow
    app = create_app(explainer, limits=Limits(concurrency=1, queue=1, timeout=0.5))
    with serve(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        slow_model.may_answer.clear()
        try:
            assert "0.5 s" in error_of(ask(client, TABLE[:1].tolist(), target=1, verify=True), 503)
            assert metric(client, "sointer_requests_inside") == 1  # the thread is still at it
            error_of(ask(client, TABLE[:1].tolist(), target=1), 503)  # waited in vain, and was dropped
            assert metric(client, "sointer_requests_inside") == 1
        finally:
            slow_model.may_answer.set()
        wait_until(lambda: metric(client, "sointer_requests_inside") == 0)
        assert ask(client, TABLE[:1].tolist(), target=1).status_code == 200


def test_a_model_that_fails_is_502_and_its_words_stay_here():
    class Failing(SlowModel):
        fails = False

        def __call__(self, X: Any) -> Any:
            if self.fails:
                raise RuntimeError("token=secret")
            return model(X)

    failing = Failing()
    explainer = fit(failing, TABLE)
    failing.fails = True
    with serve(create_app(explainer)) as url, httpx.Client(base_url=url, timeout=60) as client:
        assert "secret" not in error_of(ask(client, TABLE[:1].tolist(), target=1, verify=True), 502)
        assert "secret" not in error_of(ask(client, TABLE[:1].tolist(), target=1, k="auto"), 502)
        assert "secret" not in error_of(ask(client, TABLE[:1].tolist(), target=1), 502)
        expected = explainer.explain(TABLE[:1], 1, query=False)
        assert_same(ask(client, TABLE[:1].tolist(), target=1, query=False), expected)


def test_sizes_are_open_also_without_a_model():
    explainer = copy(fitted("table"))
    explainer.black_box_ = None
    expected = explainer.explain(TABLE[:6], 1, k="auto")
    with serve(create_app(explainer)) as url, httpx.Client(base_url=url, timeout=60) as client:
        assert_same(ask(client, TABLE[:6].tolist(), target=1, k="auto"), expected)
        assert_same(ask(client, TABLE[:6].tolist(), target=1, k=2), explainer.explain(TABLE[:6], 1, k=2))


# --- what the model predicts -----------------------------------------------------------------------------------


def infer(client, rows, **parameters):
    tensors = [{"name": "rows", "shape": list(rows.shape), "datatype": "FP64", "data": rows.ravel().tolist()}]
    if (given := parameters.pop("predicted", None)) is not None:
        given = np.asarray(given).astype(int)
        tensors.append(
            {"name": "predicted", "shape": list(given.shape), "datatype": "INT64", "data": given.ravel().tolist()}
        )
    reply = client.post("/v2/models/explainer/infer", json={"inputs": tensors, "parameters": parameters})
    assert reply.status_code == 200, reply.text
    return {tensor["name"]: tensor["data"] for tensor in reply.json()["outputs"]}


def test_the_model_is_queried_once_per_row_by_default():
    box = sointer.BlackBox(model)
    explainer = fit(box, TABLE)
    said, rows = model(TABLE[:6]), TABLE[:6].tolist()
    before = box.n_queries
    with serve(create_app(explainer)) as url, httpx.Client(base_url=url, timeout=60) as client:
        reply = ask(client, rows, target=1).json()["rows"]
        assert [row["value"] for row in reply] == said[:, 1].tolist()
        assert {row["value_source"] for row in reply} == {"model"}
        assert box.n_queries == before + 6
        found = infer(client, TABLE[:6], target=1)
        assert found["value"] == said[:, 1].astype(float).tolist()
        assert found["value_source"] == ["model"] * 6
        assert box.n_queries == before + 12
        for more in (
            {"query": False},
            {"predicted": said.tolist()},
            {"predicted": (1 - said).tolist(), "query": False},
        ):
            reply = ask(client, rows, target=1, **more)
            given = more.get("predicted")
            arguments = {"query": False} if given is None else {"predicted": np.array(given)}
            assert_same(reply, explainer.explain(TABLE[:6], 1, **arguments))
            found = infer(client, TABLE[:6], target=1, **more)
            assert set(found["value_source"]) == {"expected" if given is None else "given"}
        named = [{f"y{i}": value for i, value in enumerate(row)} for row in said.tolist()]
        assert_same(ask(client, rows, target=1, predicted=named), explainer.explain(TABLE[:6], 1, predicted=said))
        assert box.n_queries == before + 12
        table = ask(client, rows, target=1, format="table").json()["table"]
        assert {line["value_source"] for line in table} == {"model"}
        assert "true or false" in error_of(ask(client, rows, target=1, query="no"), 422)
        assert "6 rows of 3 outputs" in error_of(ask(client, rows, target=1, predicted=said[:2].tolist()), 422)
        assert "predicted must be a list" in error_of(ask(client, rows, target=1, predicted="yes"), 422)
        assert "names the outputs" in error_of(ask(client, rows, target=1, predicted=[{"y0": 1}] * 6), 422)


def test_without_a_model_values_are_expected(tmp_path):
    fitted("table").save(tmp_path / "why")
    alone = sointer.load(tmp_path / "why")
    with serve(create_app(alone)) as url, httpx.Client(base_url=url, timeout=60) as client:
        reply = ask(client, TABLE[:3].tolist(), target=1)
        assert_same(reply, alone.explain(TABLE[:3], 1))
        assert {row["value_source"] for row in reply.json()["rows"]} == {"expected"}
        assert "no model is attached" in client.get("/").text
        given = ask(client, TABLE[:3].tolist(), target=1, predicted=model(TABLE[:3]).tolist()).json()["rows"]
        assert [row["value"] for row in given] == model(TABLE[:3])[:, 1].tolist()


def test_a_budget_that_ends_says_what_to_do():
    box = sointer.BlackBox(model)
    explainer = fit(box, TABLE)
    box.reset_budget(4)
    with serve(create_app(explainer)) as url, httpx.Client(base_url=url, timeout=60) as client:
        assert ask(client, TABLE[:3].tolist(), target=1).status_code == 200
        why = error_of(ask(client, TABLE[:3].tolist(), target=1), 503)
        assert "predicted" in why
        assert "query: false" in why
        assert ask(client, TABLE[:3].tolist(), target=1, query=False).status_code == 200
        assert box.remaining == 1


def test_overload_gives_answers_or_429_and_nothing_else():
    app = create_app(fitted("table"), limits=Limits(concurrency=1, queue=4))
    expected = fitted("table").explain(TABLE[:2], 2)
    body = {"rows": TABLE[:2].tolist(), "target": 2}

    async def many(url: str) -> list[Any]:
        limits = httpx.Limits(max_connections=60)
        async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
            return [
                reply
                for _ in range(4)
                for reply in await asyncio.gather(*[client.post("/explain", json=body) for _ in range(60)])
            ]

    with serve(app) as url:
        replies = asyncio.run(many(url))
        statuses = [reply.status_code for reply in replies]
        assert set(statuses) == {200, 429}
        for reply in replies:
            if reply.status_code == 200:
                assert_same(reply, expected)
        with httpx.Client(base_url=url, timeout=60) as client:
            assert_same(ask(client, **body), expected)
            assert metric(client, 'sointer_replies_total{status="429"}') == statuses.count(429)


# --- the command, and how it ends ------------------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_command_finishes_what_it_accepted(tmp_path, fresh):
    explainer = fitted("table")
    explainer.save(tmp_path / "why")
    expected = explainer.explain(TABLE[:1], 1)
    body = {"rows": TABLE[:1].tolist(), "target": 1, "verify": True}
    with (
        command(tmp_path / "why", "--model", "serving_slow_model:answer", fresh=fresh) as (url, process),
        ThreadPoolExecutor(8) as pool,
    ):
        assert httpx.get(f"{url}/info").json()["name"] == "why"
        replies = [pool.submit(httpx.post, f"{url}/explain", json=body, timeout=60) for _ in range(3)]
        with httpx.Client(base_url=url) as client:
            wait_until(lambda: metric(client, "sointer_requests_inside") == 3)
        process.send_signal(signal.SIGTERM)
        for reply in replies:
            assert_same(reply.result(), expected)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/healthz")
        _, output = process.communicate(timeout=60)
        assert "requests answered" in output
        assert "Traceback" not in output
        assert process.returncode == -signal.SIGTERM


def test_the_command_checks_host_names_and_ports_and_ctrl_c_is_exit_code_130(tmp_path):
    fitted("table").save(tmp_path / "why")
    with command(tmp_path / "why") as (url, process):
        assert httpx.get(f"{url}/info").status_code == 200
        error_of(httpx.get(f"{url}/info", headers={"Host": "evil.example"}), 421)
        with pytest.raises(InputError, match=r"port \d+: Address already in use"):
            run(tmp_path / "why", port=int(url.rsplit(":", 1)[1]))
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Traceback" not in output


def test_shutting_down_is_503():
    app = create_app(fitted("table"))
    with serve(app) as url, httpx.Client(base_url=url) as client:
        app.state.queue.closing = True
        reply = ask(client, TABLE[:1].tolist(), target=0)
        assert "shutting down" in error_of(reply, 503)
        assert reply.headers["retry-after"]
        assert client.get("/v2/health/ready").status_code == 503
        assert client.get("/v2/health/live").status_code == 200


# --- who may ask -----------------------------------------------------------------------------------------------


def test_other_host_names_are_refused_where_only_this_machine_can_ask():
    with serve(create_app(fitted("table"), hosts=("localhost", "127.0.0.1", "::1"))) as url:
        port = url.rsplit(":", 1)[1]
        for host in (f"127.0.0.1:{port}", "localhost", "LOCALHOST:1", "[::1]:80"):
            assert httpx.get(f"{url}/info", headers={"Host": host}).status_code == 200
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "[::2]", ""):
            error_of(httpx.get(f"{url}/info", headers={"Host": host}), 421)


def test_names_of_this_machine():
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.168.0.1", "example.org"]))
    assert [host_name(one) for one in ("a:1", "[::1]:2", "A")] == ["a", "::1", "a"]


def test_browsers_get_security_headers(table):
    for path in ("/", "/info", "/nowhere", "/metrics"):
        headers = table.get(path, headers={"Origin": "http://evil.example"}).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert not [name for name in headers if name.startswith("access-control")]
    preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    assert table.options("/explain", headers=preflight).status_code == 405


@pytest.mark.parametrize(
    "wrong", [{"max_rows": 0}, {"queue": -1}, {"timeout": 0}, {"timeout": "x"}, {"concurrency": 1.5}]
)
def test_wrong_limits(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Limits(**wrong)
