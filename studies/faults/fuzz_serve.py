"""What does a server make of requests that nobody should send?"""

from __future__ import annotations

import asyncio
import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sointer import SOInter, TrainingConfig
from studies.faults.counting import total
from studies.faults.fuzz_load import EXPLAINERS, IMAGES, SENTENCES, SPARSE, TABLE, WORDY
from studies.faults.fuzz_load import TEXTS as WORDY_TEXTS
from studies.faults.fuzzing import FORBIDDEN
from studies.faults.served import Client, Server, request, serving
from studies.frame.markdown import sections, table
from studies.frame.study import Case, Row, Study

PER_PART, N_LARGE, N_PARTS, N_CLIENTS = 1000, 300, 7, 16
MAX_SECONDS, MAX_WAIT = 5.0, 60.0  # seconds of processor time; and of waiting, so that a busy machine is no hang
MARK = "large"
PATIENCE = 0.5  # with requests that say they are longer than they are: the server waits for the rest
KINDS = ("table", "frame", "sparse", "images", "texts", "text columns", "sequences")
OUTCOMES = ("answered", "refused", "crashes", "hangs", "memory", "executions")
TIMES, SPARE = 20, 2**24  # bytes that a server may take for each byte of a body; and for explaining, which is bounded
DEAR = 2**28  # bytes that explaining may take of itself, where a small request asks for as much work as is allowed
WORDS_OFTEN = ("rain", "sun") * 500
LARGE = 2**20  # of bodies of so many bytes the ratio is told without the spare bytes too
ROWS: dict[str, Any] = {
    "table": TABLE[:3].tolist(),
    "frame": [{"colour": "red", "a": 0.5, "n": 3}, {"colour": "blue", "a": -1.0, "n": 8}],
    "sparse": [{f"x{j}": 1.0 for j in SPARSE[[i]].tocoo().col.tolist()} for i in range(2)],
    "images": IMAGES[:1].tolist(),
    "texts": WORDY_TEXTS[:2],
    "text columns": [{"colour": "red", "a": 0.5, "n": 3, "said": WORDY_TEXTS[0]}],
    "sequences": SENTENCES[:2],
}
MORE: dict[str, Any] = {"sequences": {"paths": True}}
KEYS = ["rows", "target", "k", "verify", "format", "columns", "data", "inputs", "parameters", "outputs"]
KEYS += ["name", "shape", "datatype", "id", "x0", "a", "n"]
SCALARS = (None, True, False, 0, 1, -1, 7, 0.5, -0.0, 1e308, 1e-320, 10**25, "", "x0", "auto", "red", "table", "BYTES")
TEXTS = ("\x00", "\ud800", "<script>alert(1)</script>", "é" * 300, "a" * 100_000, "${jndi}", "__class__", "../../etc")


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "n": 200 if smoke else PER_PART, "n_large": 10 if smoke else N_LARGE}


# --- what is sent ------------------------------------------------------------------------------------------


def anything(rng: np.random.Generator, depth: int = 3) -> Any:
    kind = rng.integers(8 if depth else 6)
    if kind < 4:
        return SCALARS[rng.integers(len(SCALARS))]
    if kind == 4:
        return TEXTS[rng.integers(len(TEXTS))]
    if kind == 5:
        return float(rng.normal() * 10.0 ** rng.integers(-5, 12))
    many = range(rng.integers(6))
    if kind == 6:
        return [anything(rng, depth - 1) for _ in many]
    return {KEYS[rng.integers(len(KEYS))]: anything(rng, depth - 1) for _ in many}


def replaced(value: Any, rng: np.random.Generator) -> Any:
    """The same with something else somewhere inside."""
    inside = isinstance(value, list | dict) and len(value) > 0
    if not inside or rng.random() < 0.25:
        return anything(rng)
    copy = list(value) if isinstance(value, list) else dict(value)
    keys = list(range(len(copy))) if isinstance(copy, list) else list(copy)
    key = keys[rng.integers(len(keys))]
    if rng.random() < 0.1:
        del copy[key]
    else:
        copy[key] = replaced(copy[key], rng)
    return copy


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    made = bytearray(content)
    for _ in range(rng.integers(1, 6)):
        at = int(rng.integers(len(made) + 1))
        made[at : at + int(rng.integers(4))] = rng.bytes(int(rng.integers(4)))
    return bytes(made)


def make_request(kind: str, rng: np.random.Generator) -> bytes:
    """One request, more or less wrong."""
    rows = ROWS[kind]
    tensor = {"name": "rows", "shape": [3, 5], "datatype": "FP64", "data": TABLE[:3].ravel().tolist()}
    target: Any = [2, 3] if kind == "images" else 1
    if kind == "texts":
        tensor |= {"shape": [2], "datatype": "BYTES", "data": rows}
    bodies = {
        "/explain": {"rows": rows, "target": target, "k": 1, **MORE.get(kind, {"format": "table"})},
        "/v2/models/why/infer": {"inputs": [tensor], "parameters": {"target": 1}, "outputs": [{"name": "scores"}]},
    }
    path = str(rng.choice(list(bodies)))
    way = rng.integers(10)
    if way < 5:
        return request(_json(replaced(bodies[path], rng)), path)
    if way == 5:
        return request(_json(anything(rng)), path)
    if way == 6:
        return request(damaged(_json(bodies[path]), rng), path)
    if way == 7:
        return damaged(request(_json(bodies[path]), path), rng)
    if way == 8:
        deep = int(rng.integers(1, 200_000))
        return request(b'{"rows":' + b"[" * deep + b"1" + b"]" * deep + b"}", path)
    return request(_json({"rows": rows * int(rng.integers(1, 3000)), "target": target}), path)


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()


# --- small requests that ask for much memory ---------------------------------------------------------------

# Short ways to write what Python or numpy may take much room for.
ATOMS = [
    "0",
    "-6",
    "999",
    "1e1",
    "0.5",
    "true",
    "null",
    "9" * 4000,
    "[]",
    "{}",
    "[0]",
    "[[]]",
    "[{}]",
    '{"":0}',
    "[0,0]",
]
ATOMS += ['"a b c d e f g h"', '"rain sun"', '["a","rain","b"]']
ATOMS += ['""', '"ab"', '"ā"', '"😀"', '"\\u0101"', '"\\""', "[" * 50 + "0" + "]" * 50, '"red"', "[0,[0]]", '{"x0":0}']
LETTERS = ["A", "\x7f", "é", "ā", "😀", '\\"', "\\u0000", "ab ", "āb "]
SIZES = (2**15, 2**22)


def large_value(size: int, rng: np.random.Generator, n_features: int) -> str:
    """A JSON value of about so many characters, made of one thing again and again."""
    atom, letter = str(rng.choice(ATOMS)), str(rng.choice(LETTERS))
    way = rng.integers(8)
    if way == 0:
        return '"' + letter * (size // len(letter)) + '"'
    if way == 1:  # names that are all different
        digits = np.array(list("0123456789abcdefghijklmnopqrstuvwxyzāēīōū"))
        names = ("".join(digits[[i % 41, i // 41 % 41, i // 1681 % 41, i // 68921]]) for i in range(size // 10))
        return "{" + ",".join(f'"{name}":{atom if len(atom) < 9 else 0}' for name in names) + "}"
    if way == 2:  # one long string beside others
        cells = ",".join([atom] * (size // 4 // (len(atom) + 1)))
        return f'["{letter * (size * 3 // 4 // len(letter))}",{cells}]'
    if way == 3:
        depth = int(rng.integers(1, 900))
        return "[" + ",".join(["[" * depth + atom + "]" * depth] * (size // (2 * depth + len(atom) + 1) + 1)) + "]"
    width = {4: n_features, 5: n_features, 6: int(rng.integers(1, 3000)), 7: size}[int(way)]
    row = "[" + ",".join([atom] * max(1, min(width, size // (len(atom) + 1)))) + "]"
    rows = [row] * min(1000 if way == 4 else size, max(1, size // (len(row) + 1)))
    if way == 5:
        rows[0] = f'["{letter * (size // 2 // len(letter))}"' + ",0" * (n_features - 1) + "]"
    return "[" + ",".join(rows) + "]"


def many_words(kind: str, size: int, rng: np.random.Generator) -> list[Any]:
    """Rows of about so many characters that hold nothing but words, few or many of them different."""
    n_different = int(rng.choice([1, 30, 2000, 10**6]))
    words = np.array([f"{i:x}" for i in rng.integers(n_different, size=max(1, size // 4))])
    rows = np.array_split(words, int(rng.choice([1, 10, 999])))
    if kind == "sequences":
        return [row.tolist() for row in rows if len(row)]
    texts = [" ".join(row) for row in rows]
    return texts if kind == "texts" else [{**ROWS[kind][0], "said": text} for text in texts]


def dear(rng: np.random.Generator) -> bytes:
    """A small request about sequences that is as much work as may be asked for, or a little more."""
    lengths = rng.multinomial(int(rng.integers(1, 3200)), np.full(n := int(rng.choice([1, 1, 2, 30, 900])), 1 / n))
    tokens = rng.choice([*WORDS_OFTEN, *(f"t{i}" for i in range(2000))], size=lengths.sum() + n).tolist()
    body: dict[str, Any] = {"rows": [], "paths": bool(rng.integers(2)), "k": ["auto", 1, 5, 50][rng.integers(4)]}
    for length in lengths.tolist():
        body["rows"].append([tokens.pop() for _ in range(length + 1)])
    if rng.random() < 0.5:
        body["target"] = [list(range(min(len(row), int(rng.integers(1, 400))))) for row in body["rows"]]
    return request(_json(body))


def make_large(kind: str, rng: np.random.Generator) -> bytes:
    """A request that is large in one place, and right in all others."""
    if kind == "sequences" and rng.random() < 0.3:
        return dear(rng)
    size = int(np.exp(rng.uniform(*np.log(SIZES))))
    if kind in WORDY and rng.random() < 0.4:
        k: Any = "auto" if rng.random() < 0.3 else int(rng.integers(1, 6))
        return request(_json({"rows": many_words(kind, size, rng), "target": 0, "k": k, **MORE.get(kind, {})}))
    n_features = {"table": 5, "sparse": SPARSE.shape[1], "images": IMAGES.shape[1], "text columns": 4}.get(kind, 3)
    value = large_value(size, rng, n_features)
    tensor = {"name": "rows", "shape": [3, 5], "datatype": "FP64", "data": TABLE[:3].ravel().tolist()}
    if kind == "texts":
        tensor |= {"shape": [2], "datatype": "BYTES", "data": ROWS[kind]}
    explain: dict[str, Any] = {"rows": ROWS[kind], "target": [2, 3] if kind == "images" else 1}
    infer: dict[str, Any] = {"inputs": [tensor], "parameters": {"target": 1}}
    ways: list[tuple[str, dict[str, Any]]] = [
        *[("/explain", explain | {name: MARK}) for name in ("rows", "target", "k", "predicted", "format", "other")],
        ("/explain", explain | {"rows": [MARK]}),
        ("/explain", explain | {"rows": {"columns": [f"x{j}" for j in range(n_features)], "data": MARK}}),
        ("/explain", explain | {"rows": {"columns": MARK, "data": [[0] * n_features]}}),
        *[
            ("/explain", explain | {"rows": [*ROWS[kind][:1], {**ROWS["frame"][0], name: MARK}]})
            for name in ("a", "colour", "said")
        ],
        *[("/v2", infer | {"inputs": [tensor | {name: MARK}]}) for name in ("data", "shape", "name", "datatype")],
        *[
            ("/v2", infer | {"inputs": [tensor | {"data": MARK, "datatype": kind}]})
            for kind in ("BYTES", "INT8", "UINT64")
        ],
        *[("/v2", infer | {name: MARK}) for name in ("inputs", "outputs", "parameters", "id")],
        *[
            ("/v2", infer | {"inputs": [tensor, tensor | {"name": name, "data": MARK}]})
            for name in ("target", "predicted")
        ],
    ]
    path, body = ways[rng.integers(len(ways))]
    text = json.dumps(body).replace(json.dumps(MARK), value)
    if rng.random() < 0.2:
        text = text[:-1] + ',"id":"😀"}'  # so that Python writes every character in four bytes
    return request(text.encode(), "/v2/models/why/infer" if path == "/v2" else path)


# --- what becomes of it ------------------------------------------------------------------------------------


def run(part: int, n: int, n_large: int) -> dict[str, Any]:
    kind = KINDS[part % len(KINDS)]
    with tempfile.TemporaryDirectory() as folder:
        path, log = Path(folder, "why"), Path(folder, "audit")
        fit(kind).save(path)
        with serving(str(path), audit=(str(log), *FORBIDDEN)) as server:
            n_before = len(log.read_text().splitlines())
            found = asyncio.run(_fuzz(server, kind, part, n, n_large))
            found["executions"] = len(log.read_text().splitlines()) - n_before
            stderr = server.stop()
    found["worst"] += [stderr[-2000:]] if "Traceback" in stderr else []
    return {"kind": kind, **found}


def fit(kind: str) -> SOInter:
    data, model, _, settings = (EXPLAINERS | WORDY)[kind]
    quick = {"training": TrainingConfig(n_epochs=1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SOInter(model, **{"k": 2, "query_budget": 120, "random_state": 0, **quick, **settings}).fit(data)


async def _fuzz(server: Server, kind: str, part: int, n: int, n_large: int) -> dict[str, Any]:
    found: Counter[str] = Counter()
    worst: list[str] = []
    slowest, memory = 0.0, 0.0
    most, ratio = 0.0, 0.0

    async def one_client(number: int, n_requests: int) -> None:
        nonlocal slowest
        rng = np.random.default_rng([part, number])
        for _ in range(n_requests):
            sent = make_request(kind, rng)
            outcome, why, seconds = await outcome_of(server, sent)
            slowest = max(slowest, seconds)
            found[outcome] += 1
            if outcome in ("crashes", "hangs"):
                worst.append(f"{outcome}: {why} {sent[:300]!r}")

    await asyncio.gather(*[one_client(N_CLIENTS + number, 20) for number in range(N_CLIENTS)])  # a warm-up
    before = server.megabytes()
    await asyncio.gather(*[one_client(number, n // N_CLIENTS) for number in range(N_CLIENTS)])
    memory = server.megabytes() - before
    for number in range(n_large):  # one at a time, so that it is known whose memory it is
        sent = make_large(kind, np.random.default_rng([part, number, 1]))
        held = server.megabytes()
        server.reset_peak()
        outcome, why, seconds = await outcome_of(server, sent)
        slowest = max(slowest, seconds)
        taken = (server.peak_megabytes() - held) * 2**20
        spare = DEAR if kind == "sequences" and len(sent) < SIZES[0] else SPARE
        if outcome in ("answered", "refused") and taken > TIMES * len(sent) + spare:
            outcome, why = "memory", f"{taken / len(sent):.1f} times {len(sent)} bytes"
        found[outcome] += 1
        most = max(most, taken / 2**20)
        ratio = max(ratio, taken / len(sent)) if len(sent) >= LARGE else ratio
        if outcome not in ("answered", "refused"):
            worst.append(f"{outcome}: {why} {sent[:300]!r} ... {sent[-300:]!r}")
    status, _ = await Client(server.port).send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    found["crashes"] += status != 200
    counts = {name: found[name] for name in OUTCOMES}
    figures = {"slowest": slowest, "megabytes": memory, "most_megabytes": most, "ratio": ratio}
    return {**counts, **{name: round(value, 2) for name, value in figures.items()}, "worst": worst[:20]}


async def outcome_of(server: Server, sent: bytes) -> tuple[str, str, float]:
    """What became of a request, why, and the processor time that the server had meanwhile."""
    client, started = Client(server.port), server.seconds()
    outcome, why = await _outcome(client, sent)
    client.close()
    try:
        seconds = server.seconds() - started
    except OSError:
        return "crashes", "the server is gone", 0.0
    return ("hangs", f"{seconds:.1f} s", seconds) if seconds > MAX_SECONDS else (outcome, why, seconds)


async def _outcome(client: Client, sent: bytes) -> tuple[str, str]:
    try:
        status, body = await asyncio.wait_for(client.send(sent), MAX_WAIT if is_whole(sent) else PATIENCE)
    except asyncio.TimeoutError:
        return ("hangs", "") if is_whole(sent) else ("refused", "")
    except ConnectionRefusedError as error:
        return "crashes", str(error)
    except (ConnectionError, asyncio.LimitOverrunError) as error:
        return ("crashes", str(error)) if is_whole(sent) else ("refused", "")
    if status == 200:
        return "answered", ""
    known = status in (400, 404, 405, 408, 413, 415, 421, 422, 429, 501)
    return ("refused", "") if known else ("crashes", f"{status} {body!r:.200}")


def is_whole(sent: bytes) -> bool:
    """Whether the head of a request is as we wrote it, and its length is right."""
    head, _, body = sent.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    return (
        len(lines) == 4
        and lines[0] in (b"POST /explain HTTP/1.1", b"POST /v2/models/why/infer HTTP/1.1")
        and lines[1:3] == [b"Host: 127.0.0.1", b"Content-Type: application/json"]
        and lines[3] == b"Content-Length: %d" % len(body)
    )


# --- the page ----------------------------------------------------------------------------------------------


def n_tried(found: Counter[str]) -> int:
    return sum(found[name] for name in OUTCOMES if name != "executions")


def verdict(rows: list[Row]) -> tuple[str, str]:
    found = total(rows, OUTCOMES)
    return f"{n_tried(found):,} fuzzed requests to a server", (
        f"{found['crashes']} crashes, {found['hangs']} hangs over {MAX_SECONDS:g} s, {found['executions']} code "
        f"executions, memory above {TIMES} times the body plus {SPARE // 2**20} MB in {found['memory']} cases (at most "
        f"{max(row['ratio'] for row in rows):.1f} times)"
    )


def _most(rows: list[Row], name: str) -> str:
    return f"{max(row[name] for row in rows):.1f}"


def page(rows: list[Row], images: Path) -> str:
    found = total(rows, OUTCOMES)
    lines = [
        ["", "count"],
        ["requests sent, sixteen at a time, the large ones one by one", f"{n_tried(found):,}"],
        ["answered", f"{found['answered']:,}"],
        ["refused with one line of explanation, or closed if it was not HTTP", f"{found['refused']:,}"],
        ["crashes: any status of 500 and above, or no reply to a complete request", f"{found['crashes']:,}"],
        [f"hangs: over {MAX_SECONDS:g} s of CPU time", f"{found['hangs']:,}"],
        [f"code executions: any of {', '.join(FORBIDDEN)}", f"{found['executions']:,}"],
        ["slowest reply, s of CPU time", f"{max(row['slowest'] for row in rows):.1f}"],
        [f"memory: more than {TIMES} times the body plus {SPARE // 2**20} MB", f"{found['memory']:,}"],
        [f"most memory for a body of {LARGE // 2**20} MiB or more, as a multiple of its size", _most(rows, "ratio")],
        ["most memory for one request, MB", _most(rows, "most_megabytes")],
        ["most memory kept by a server afterwards, MB", _most(rows, "megabytes")],
    ]
    return sections(
        "## Malformed and hostile requests",
        f"Servers for explainers of {len(KINDS)} kinds ({', '.join(KINDS)}) receive JSON with wrong values, "
        "arbitrary JSON, damaged bytes, deep nesting, too many rows, and damaged HTTP; bodies of up to 4 MiB "
        "designed to take much memory (long strings beside numbers, nearly empty lists and objects, distinct names); "
        "very long texts and sequences; and small requests for the largest amount of work allowed.",
        table(lines[0], lines[1:]),
    )


STUDY = Study("fuzz_serve", cases, run, page)
