"""Whatever is sent, the server answers, with 200 or one line that says why not."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("httpx")
pytest.importorskip("fastapi")

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_server import serve
from quick import FRAME, IMAGES, SPARSE, TABLE, TEXTS
from quick import quick_explainer as fitted
from sointer.apps.serve import create_app
from sointer.apps.serve.security import Limits

pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
FUZZED = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["x0", "y1", "auto", "rows", "table", "red", "colour", 0, 1, 2, 3])
)
KEYS = "rows target k verify format columns data inputs parameters outputs name shape datatype id x0 colour size"
NAMES = st.sampled_from(KEYS.split())
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=6)
)
VALID: dict[str, Any] = {
    "table": TABLE[:2].tolist(),
    "frame": [{str(name): value for name, value in row.items()} for row in FRAME.iloc[:2].to_dict("records")],
    "sparse": [{f"x{j}": 1.0 for j in SPARSE[[i]].tocoo().col.tolist()} for i in range(2)],
    "images": IMAGES[:1].tolist(),
    "texts": TEXTS[:2],
}


@pytest.fixture(scope="module", params=list(VALID))
def server(request):
    app = create_app(fitted(request.param), limits=Limits(max_rows=20), name="m")
    with serve(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client, VALID[request.param]


def assert_answered(reply: httpx.Response) -> None:
    assert reply.status_code in (200, 400, 422), (reply.status_code, reply.text)
    if reply.status_code != 200:
        assert list(reply.json()) == ["error"]
        assert 0 < len(reply.json()["error"]) <= 500
        assert reply.json()["error"].isprintable()


def send(client: httpx.Client, path: str, body: Any) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert_answered(client.post(path, content=content, headers={"Content-Type": "application/json"}))


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something could be replaced."""
    inside = (
        list(enumerate(value)) if isinstance(value, list) else list(value.items()) if isinstance(value, dict) else []
    )
    return [here, *(path for key, one in inside[:8] for path in paths(one, (*here, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = list(value) if isinstance(value, list) else dict(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@FUZZED
@given(body=ANYTHING, path=st.sampled_from(["/explain", "/v2/models/m/infer"]))
def test_anything(server, body, path):
    send(server[0], path, body)


@FUZZED
@given(data=st.data())
def test_requests_with_one_thing_wrong(server, data):
    client, rows = server
    tensor = {"name": "rows", "shape": [2, 5], "datatype": "FP64", "data": TABLE[:2].ravel().tolist()}
    inference = {"id": "a", "inputs": [tensor], "parameters": {"target": 0}, "outputs": [{"name": "far"}]}
    requests = {
        "/explain": {"rows": rows, "target": 0, "k": 1, "format": "rows"},
        "/v2/models/m/infer": inference,
    }
    path = data.draw(st.sampled_from(list(requests)))
    where = data.draw(st.sampled_from(paths(requests[path])))
    send(client, path, replaced(requests[path], where, data.draw(ANYTHING)))


@FUZZED
@given(data=st.data())
def test_damaged_bytes(server, data):
    client, rows = server
    body = bytearray(json.dumps({"rows": rows, "target": 0}).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    send(client, "/explain", bytes(body))


def test_after_all_that_it_still_answers(server):
    client, rows = server
    assert client.post("/explain", json={"rows": rows, "target": 0}).status_code == 200
    assert 'status="500"' not in client.get("/metrics").text
