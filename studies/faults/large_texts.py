"""Are requests with megabytes of text, as large as the limits allow, answered, and in memory and time in proportion?"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sointer.apps.serve.rows import MAX_TEXT_LENGTH, MAX_TEXT_WORDS, MAX_WORDS
from sointer.apps.serve.security import Limits
from sointer.apps.serve.sequences import MAX_LIST_TOKENS, MAX_TARGETS, MAX_TOKEN_LENGTH, MAX_TOKENS
from studies.faults.counting import total
from studies.faults.fuzz_serve import MAX_SECONDS, ROWS, SPARE, TIMES, fit, outcome_of
from studies.faults.served import Server, request, serving
from studies.frame.markdown import sections, table
from studies.frame.study import Case, Row, Study

KINDS = ("texts", "text columns", "sequences")
N_REQUESTS, MIN_BYTES, HEAD = 40, 2**20, 2**18
SEPARATORS = (" ", "\n", ". ", " - ", "\u2003", ".\n\n")
ALPHABETS = ("abcdefghij", "aé", "āb", "a1")
COUNTED = ("requests", "answered", "refused", "over memory", "over time", "other outcomes")


def cases(smoke: bool) -> Iterator[Case]:
    for kind in KINDS[:1] if smoke else KINDS:
        yield {"kind": kind, "n": 5 if smoke else N_REQUESTS}


def words_of(n: int, length: int, rng: np.random.Generator) -> list[str]:
    """So many words of so many letters; often few of them different."""
    letters = np.array(list(str(rng.choice(ALPHABETS))))
    n_different = min(n, int(rng.choice([1, 20, n])))
    different = ["".join(letters[rng.integers(len(letters), size=length)]) for _ in range(n_different)]
    return [different[i] for i in rng.integers(n_different, size=n)]


def texts(rng: np.random.Generator) -> list[str]:
    """Texts of a megabyte or more together that are within all limits."""
    limits = Limits()
    n_bytes = int(rng.integers(MIN_BYTES, limits.max_body_bytes - HEAD))
    n_rows = int(rng.choice([17, 30, 200, limits.max_rows]))
    separator, per_row = str(rng.choice(SEPARATORS)), n_bytes // n_rows
    n_words = min(int(rng.choice([1, 10**3, 10**4, MAX_WORDS])) // n_rows, MAX_TEXT_WORDS, per_row // 4)
    length = max(1, min(per_row, MAX_TEXT_LENGTH) // max(1, n_words) // 2 - len(separator))  # two bytes for a letter
    return [separator.join(words_of(max(1, n_words), length, rng)) for _ in range(n_rows)]


def token_lists(rng: np.random.Generator) -> list[list[str]]:
    """Sequences with as many and as long tokens as the limits allow, more or less."""
    n_rows = int(rng.choice([2, 10, 500]))
    n = min(MAX_TOKENS // n_rows, MAX_LIST_TOKENS)
    return [words_of(n, int(rng.integers(MAX_TOKEN_LENGTH // 2, MAX_TOKEN_LENGTH)), rng) for _ in range(n_rows)]


def make(kind: str, rng: np.random.Generator) -> bytes:
    """A request that is to be answered."""
    body: dict[str, Any] = {"k": ["auto", 1, 2][rng.integers(3)]}
    if kind == "sequences":
        body["rows"] = token_lists(rng)
        each = max(1, min(MAX_TARGETS // len(body["rows"]), int(rng.integers(1, 20))))
        body["target"] = [list(range(min(each, len(tokens)))) for tokens in body["rows"]]
    else:
        found = texts(rng)
        body["rows"] = found if kind == "texts" else [{**ROWS[kind][0], "said": text} for text in found]
        body["target"] = 0
    return request(json.dumps(body, ensure_ascii=False).encode())


def run(kind: str, n: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "why")
        fit(kind).save(path)
        with serving(str(path)) as server:
            return asyncio.run(_sent(server, kind, n))


async def _sent(server: Server, kind: str, n: int) -> dict[str, Any]:
    found, ratio, slowest, worst = Counter[str](), 0.0, 0.0, []
    for number in range(n):
        sent = make(kind, np.random.default_rng([KINDS.index(kind), number]))
        held = server.megabytes()
        server.reset_peak()
        outcome, why, seconds = await outcome_of(server, sent)
        taken = (server.peak_megabytes() - held) * 2**20
        ratio, slowest = max(ratio, taken / len(sent)), max(slowest, seconds)
        found["requests"] += 1
        found[outcome if outcome in ("answered", "refused") else "other outcomes"] += 1
        found["over memory"] += taken > TIMES * len(sent) + SPARE
        found["over time"] += seconds > MAX_SECONDS
        if outcome != "answered":
            worst.append(f"{outcome} {why}: {len(sent)} bytes")
    counts = {name: found[name] for name in COUNTED}
    return counts | {"ratio": round(ratio, 2), "slowest": round(slowest, 2), "worst": worst[:10]}


# --- the page ----------------------------------------------------------------------------------------------


def verdict(rows: list[Row]) -> tuple[str, str]:
    found = total(rows, COUNTED)
    return f"{found['requests']} requests with one to four megabytes of text, within the limits", (
        f"{found['answered']} answered, {found['over time']} in more than {MAX_SECONDS:g} s, {found['over memory']} "
        f"with more memory than {TIMES} times the body plus {SPARE // 2**20} MB, at most "
        f"{max(row['ratio'] for row in rows):.1f} times; {found['refused'] + found['other outcomes']} not answered"
    )


def page(rows: list[Row], images: Path) -> str:
    lines = [
        [
            row["kind"],
            *(f"{row[name]:,}" for name in COUNTED),
            f"{row['ratio']:.1f}",
            f"{row['slowest']:.1f}",
        ]
        for row in rows
    ]
    return sections(
        "## Megabytes of text",
        "Requests with texts, texts beside other columns, or token lists, of up to 4 MiB, in few long words or many "
        "short ones, as large as the limits of the server allow. All are to be answered. Memory as a multiple of the "
        "body; seconds of CPU time.",
        table(["", *COUNTED, "most memory", "slowest, s"], lines),
    )


STUDY = Study("large_texts", cases, run, page)
