"""Reading a request takes memory in proportion to its bytes, whatever it says, and so does its response."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx")
pytest.importorskip("fastapi")

import httpx
from starlette.exceptions import HTTPException

from model_server import serve
from quick import SPARSE, TABLE
from quick import labels as model
from quick import quick_explainer as fitted
from quick import quick_fit as fit
from repo_scripts import run_apart
from serving import command
from sointer.apps.serve import create_app, open_inference
from sointer.apps.serve.request import MAX_FEATURES, read_request
from sointer.apps.serve.security import Limits
from sointer.apps.serve.sequences import (
    MAX_PATHS,
    MAX_VERIFIED_TOKENS,
    explain_sequence_batch,
    read_sequence_request,
)
from sointer.apps.serve.worker import parse_json
from sointer.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
TIMES, SPARE = 20, 8_000_000  # bytes for each byte of a body, and for what is not counted
SIZE = 400_000
LONG = '"' + "A" * SIZE + '"'
NAMES = "{" + ",".join(f'"{i:x}":0' for i in range(SIZE // 8)) + "}"


def many(cell: str, before: str = "") -> str:
    return "[" + before + ",".join([cell] * (SIZE // (len(cell) + 1))) + "]"


def rows(cell: str, first: str | None = None) -> str:
    made = [f"[{cell},0,0,0,0]"] * 1000
    return "[" + ",".join(made if first is None else [f"[{first},0,0,0,0]", *made[1:]]) + "]"


def infer(data: str, datatype: str = "FP64", shape: str = "[1,5]") -> str:
    return f'{{"inputs":[{{"name":"rows","shape":{shape},"datatype":"{datatype}","data":{data}}}]}}'


BODIES = {
    "a long string among the numbers of a tensor": infer(f"[{LONG},{many('0')[1:]}"),
    "a long string among rows": f'{{"rows":{rows("0", LONG)},"target":0}}',
    "a long string among predictions": f'{{"rows":{rows("0")},"target":0,"predicted":{rows("0", LONG)}}}',
    "a long string among labels": f'{{"rows":[[0,0,0,0,0]],"target":0,"predicted":{many(chr(34) * 2, LONG + ",")}}}',
    "long words for k": f'{{"rows":[[0,0,0,0,0]],"target":0,"k":{LONG}}}',
    "long characters that are written longer": '{"rows":["😀' + "\x7f" * SIZE + '"],"target":0}',
    "small numbers": f'{{"rows":{many("-6")},"target":0}}',
    "small numbers in a tensor": infer(many("-6"), "UINT64"),
    "short strings": f'{{"rows":{many(chr(34) + "ā" + chr(34))},"target":0}}',
    "empty lists": f'{{"rows":{many("[]")},"target":0}}',
    "lists in lists": f'{{"rows":{many("[" * 300 + "]" * 300)},"target":0}}',
    "small objects": f'{{"rows":{many(json.dumps({"": 0}))},"target":0}}',
    "different names": f'{{"rows":[{NAMES}],"target":0}}',
    "unknown fields": NAMES,
    "columns": f'{{"rows":{{"columns":["x0","x1","x2","x3","x4"],"data":{rows("0")}}},"target":0}}' + " " * SIZE,
    "half characters": f'{{"rows":{many("-6")},"target":"\\ud800😀"}}',
    "one small target for each of many rows": f'{{"rows":[[0,0,0,0,0]],"target":{many("0")}}}',
}


TEXTS = {
    "one text of short words": {"rows": ["a b " * (2**18 // 4)]},
    "a text of as many words as may be": {"rows": ["a b " * 24_999]},
    "texts of short words": {"rows": ["a b " * 250] * 1000},
    "texts of as many words as may be": {"rows": ["a b " * 50] * 999},
    "texts of different words": {"rows": [" ".join(map(str, range(i, i + 40_000))) for i in range(4)]},
}
SEQUENCES = {
    "different tokens": {"rows": [[f"{i:x}" for i in range(j, j + 9000)] for j in range(9)], "target": 0},
    "long tokens": {"rows": [["é_" * 500] * 200], "target": 0},
    "long predictions": {"rows": [["a", "b"]], "predicted": [["x" * SIZE, "dry"]]},
    "many predictions": {"rows": [["a"]], "predicted": [["dry"] * (SIZE // 6)]},
}


KINDS = {
    "table": BODIES,
    "texts": {what: json.dumps({**body, "target": 0}) for what, body in TEXTS.items()},
    "sequences": {what: json.dumps(body) for what, body in SEQUENCES.items()},
}


def read(kind: str, body: bytes) -> None:
    content = parse_json(bytearray(body), Limits())
    if "inputs" in content:
        open_inference.read_infer(fitted(kind), content, Limits())
    elif kind == "sequences":
        read_sequence_request(fitted(kind).sequences_, content, Limits())
    else:
        read_request(fitted(kind), content, Limits())


@pytest.mark.parametrize(("kind", "what"), [(kind, what) for kind, bodies in KINDS.items() for what in bodies])
def test_reading_takes_memory_in_proportion_to_the_body(kind, what):
    body = KINDS[kind][what].encode()
    fitted(kind)
    tracemalloc.start()
    try:
        read(kind, body)
    except (HTTPException, InputError):
        pass  # most of them
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= TIMES * len(body) + SPARE, f"{peak / len(body):.1f} times {len(body):,} bytes"


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read from /proc")
def test_a_server_of_its_own_stays_small(tmp_path):
    """What froze a server, and made it grow by gigabytes: a megabyte with one long string."""
    fitted("table").save(tmp_path / "why")
    body = infer('["' + "A" * 1_000_000 + '"' + ",0" * 500 + "]").encode()
    with command(tmp_path / "why") as (url, process), httpx.Client(base_url=url, timeout=60) as client:
        status = Path(f"/proc/{process.pid}/status")

        def megabytes() -> float:
            return int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) / 1024  # type: ignore[index]

        before = megabytes()
        reply = client.post("/v2/models/why/infer", content=body, headers={"Content-Type": "application/json"})
        assert reply.status_code == 422
        assert "expected numbers only" in reply.json()["error"]
        assert megabytes() - before < 20 * len(body) / 2**20 + 16


@pytest.mark.parametrize("shape", [[0, 2147483647, 2147483647], [1] * 70 + [5], [], [2**31 - 1] * 4])
def test_odd_shapes_are_refused(shape):
    """They used to end in status 500."""
    tensor = {"name": "rows", "shape": shape, "datatype": "FP64", "data": [] if 0 in shape else [1.0] * 5}
    with serve(create_app(fitted("table"))) as url:
        body = {"inputs": [tensor], "parameters": {"target": 0}}
        reply = httpx.post(f"{url}/v2/models/explainer/infer", json=body, timeout=60)
        assert reply.status_code == 422, reply.text


def test_responses_are_bounded():
    """A few bytes may ask for much: an empty record, and all features of it."""
    explainer, n_rows = fitted("sparse"), MAX_FEATURES // SPARSE.shape[1] + 1
    content: dict[str, Any] = {"rows": [{}] * n_rows, "target": 0, "k": SPARSE.shape[1]}
    with pytest.raises(InputError, match="Lower k"):
        read_request(explainer, content, Limits(max_rows=10_000))


def test_a_query_budget_bounds_what_requests_cost(tmp_path):
    fitted("table").save(tmp_path / "why")
    body = {"rows": TABLE[:3].tolist(), "target": 1}
    with command(tmp_path / "why", "--model", "quick:labels", "--query-budget", 4) as (url, _):
        replies = [httpx.post(f"{url}/explain", json=body, timeout=60).status_code for _ in range(2)]
    assert replies == [200, 503]


def test_names_in_messages_are_short():
    explainer = fit(model, TABLE)
    with pytest.raises(InputError) as caught:
        explainer.explain(TABLE[:1], "y" * 10_000)
    assert len(str(caught.value)) < 500


@pytest.mark.slow
def test_fuzzed_requests_stay_within_their_memory():
    """A small version of `make faults`."""
    found = run_apart("faults", "fuzz_serve", part=0, n=40, n_large=20)
    assert found["crashes"] == found["hangs"] == found["memory"] == 0, found["worst"]


@pytest.mark.slow
def test_megabytes_of_text_within_the_limits_are_answered():
    """A small version of `make faults`."""
    found = run_apart("faults", "large_texts", kind="texts", n=6)
    assert (found["answered"], found["over memory"], found["over time"]) == (6, 0, 0), found


def test_what_verify_sends_of_long_sequences_is_bounded():
    explainer, tokens = fitted("sequences").sequences_, ["rain"] * 2000
    most = MAX_VERIFIED_TOKENS // len(tokens)
    content = {"rows": [tokens], "verify": True}
    assert read_sequence_request(explainer, {**content, "target": [list(range(most))]}, Limits()).verify
    with pytest.raises(InputError, match="Name fewer targets"):
        read_sequence_request(explainer, {**content, "target": [list(range(most + 1))]}, Limits())


def test_paths_of_so_many_tokens_that_it_takes_long_are_refused():
    explainer, content = fitted("sequences").sequences_, {"rows": [["rain"] * MAX_PATHS], "paths": True}
    assert read_sequence_request(explainer, {**content}, Limits()).paths
    with pytest.raises(InputError, match="paths are asked for 501 selected tokens or more"):
        read_sequence_request(explainer, {**content, "rows": [*content["rows"], ["rain"]]}, Limits())
    content |= {"target": [list(range(MAX_PATHS // 5 + 1))], "k": 5, "query": False}
    with pytest.raises(InputError, match=r"505 selected tokens or more, expected at most 500.*lower k"):
        explain_sequence_batch(explainer, [read_sequence_request(explainer, content, Limits())])


@pytest.mark.parametrize("rows", [[[str(i) for i in range(20)]] * 151, [["a"] * 2001]])
def test_sequences_that_would_take_minutes_are_refused(rows):
    with pytest.raises(InputError, match=r"expected at most 3,000 and 2,000\. Send fewer rows at a time"):
        read_sequence_request(fitted("sequences").sequences_, {"rows": rows, "target": 0}, Limits())
    read_sequence_request(fitted("sequences").sequences_, {"rows": [["a"] * 2000], "target": 0}, Limits())


MEMORY = Path("/proc/self/clear_refs")


def megabytes(name: str) -> float:
    return int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


@pytest.mark.skipif(not MEMORY.exists(), reason="needs Linux")
@pytest.mark.parametrize("kind", ["texts", "sequences"])
def test_explaining_many_words_takes_little_memory(kind, monkeypatch):
    explainer = fitted(kind)
    data = ["a rain " * 24_999] if kind == "texts" else [[f"{i:x}" for i in range(10)]] * 999
    explainer.explain(data, 0, query=False)
    before = megabytes("VmRSS")
    MEMORY.write_text("5")
    found = explainer.explain(data, 0, query=False)
    assert megabytes("VmHWM") - before < 50  # sequences: 95 when all were looked at at the same time
    name = "sointer.interpreter.texts.ENTRIES" if kind == "texts" else "sointer.explainers.sequences.CHUNK"
    monkeypatch.setattr(name, 10**9)
    at_once = explainer.explain(data, 0, query=False)
    if kind == "texts":
        assert (found.scores == at_once.scores).all()
        assert (found.effects == at_once.effects).all()
    else:
        assert found.to_frame().equals(at_once.to_frame())
