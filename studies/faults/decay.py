"""What does damage in the middle of a journal cost, and is it always noticed? What harm do journals do that mean it?"""

from __future__ import annotations

import json
import tempfile
import time
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sointer.blackbox.checkpoint import Checkpoint
from sointer.blackbox.records import FRAME, HEAD, MAGIC, RecordFile, _frame
from sointer.errors import CheckpointError, CheckpointWarning
from studies.faults.counting import total
from studies.faults.killing import make_explainer, make_problem
from studies.frame.markdown import sections, table
from studies.frame.study import Case, Row, Study

PER_PART, N_PARTS = 500, 4
COUNTED = ("damaged", "cost_more", "unnoticed", "wrong", "changed", "refused", "lost")
HOSTILE = ("hostile", "hostile refused", "hostile over memory", "hostile over time", "hostile other errors")
ALLOWED = 60, 2**24
"""Bytes of memory for each byte of a journal that means harm, and for any."""
MAX_SECONDS = 2.0
"""Of processor time, to open and read it."""
Damage = Callable[[bytearray, np.random.Generator], tuple[int, int]]


def flip(content: bytearray, rng: np.random.Generator) -> tuple[int, int]:
    place = int(rng.integers(len(content)))
    content[place] ^= 1 << int(rng.integers(8))
    return place, place + 1


def zero_sector(content: bytearray, rng: np.random.Generator) -> tuple[int, int]:
    start = int(rng.integers(len(content))) // 512 * 512
    end = min(start + 512, len(content))
    content[start:end] = bytes(end - start)
    return start, end


def scramble(content: bytearray, rng: np.random.Generator) -> tuple[int, int]:
    start = int(rng.integers(len(content)))
    end = min(start + int(rng.integers(1, 2000)), len(content))
    content[start:end] = rng.bytes(end - start)
    return start, end


DAMAGES: dict[str, Damage] = {"a flipped bit": flip, "a sector of zeros": zero_sector, "noise": scramble}


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "n": 50 if smoke else PER_PART}


def run(part: int, n: int) -> dict[str, Any]:
    rng, found = np.random.default_rng(part), Counter[str]()
    data, model = make_problem("numbers")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make_explainer(model).fit(data, checkpoint=Path(folder, "fit"))
        path = Path(folder, "fit", "journal.bin")
        whole = path.read_bytes()
        places, truth = outputs_by_record(path)
        for _ in range(n):
            content = bytearray(whole)
            start, end = DAMAGES[str(rng.choice(list(DAMAGES)))](content, rng)
            path.write_bytes(content)
            touched = {key for first, last, keys in places if first < end and start < last for key in keys}
            found += judged(path, truth, touched, is_changed=content != whole)
        for _ in range(n):
            path.write_bytes(hostile(whole, rng))
            found += withstood(path)
    return {"n_outputs": len(truth), **{name: found[name] for name in (*COUNTED, *HOSTILE)}}


def parts(rng: np.random.Generator) -> Any:
    """What does not belong into the metadata of a record, as JSON knows it."""
    large = int(10 ** rng.uniform(0, 30)) * int(rng.choice([-1, 1]))
    many = int(10 ** rng.uniform(0, 5))
    kinds = [large, float(large), "x" * many, [[]] * many, [{}] * many, None, True, {"a": large}, [large, large]]
    kinds += [[large], ["1", "2"], "O", "V8", "M8[ns]", "U999999999", "(9,9)f8", "f8,f8", "<f2", "\ud800", "fit"]
    return kinds[int(rng.integers(len(kinds)))]


def hostile(whole: bytes, rng: np.random.Generator) -> bytes:
    """A journal one of whose records says something else, with checksums that agree; or full of beginnings."""
    if rng.random() < 0.05:
        place, many = int(rng.integers(len(whole))), int(10 ** rng.uniform(0, 5))
        return whole[:place] + MAGIC * many + whole[place:]
    starts, position = [], 0
    while position < len(whole):
        starts.append(position)
        position += FRAME.size + FRAME.unpack_from(whole, position)[2]
    number = int(rng.integers(len(starts)))
    start, end = starts[number], [*starts, len(whole)][number + 1]
    content = whole[start + FRAME.size : end]
    (n_head,) = HEAD.unpack_from(content)
    metadata, body = json.loads(content[HEAD.size : HEAD.size + n_head]), content[HEAD.size + n_head :]
    for name in rng.choice([*metadata, "new"], size=int(rng.integers(1, 3))):
        metadata[str(name)] = parts(rng)
    if rng.random() < 0.3:
        metadata, body = metadata | {"dtype": "O"}, body + json.dumps([[parts(rng)] * 2] * 9).encode()
    head = json.dumps(metadata).encode()
    head = rng.choice([b"[" * 10**5, b'{"a":' * 10**5, head[:-1]]) if rng.random() < 0.05 else head
    made = HEAD.pack(len(head)) + bytes(head) + body
    return whole[:start] + _frame(number, made) + made + whole[end:]


def withstood(path: Path) -> Counter[str]:
    """Open such a journal as fit does, and read all outputs that it holds."""
    found, (each, any_size) = Counter(hostile=1), ALLOWED
    tracemalloc.start()
    started = time.process_time()
    try:
        journal = Checkpoint(path.parent, 0).journal
        try:
            for batch in journal._batches:
                journal._table(batch)
        finally:
            journal.close()
    except CheckpointError:
        found["hostile refused"] += 1
    except Exception:
        found["hostile other errors"] += 1
    finally:
        found["hostile over time"] += time.process_time() - started > MAX_SECONDS
        found["hostile over memory"] += tracemalloc.get_traced_memory()[1] > each * path.stat().st_size + any_size
        tracemalloc.stop()
    return found


def judged(path: Path, truth: dict[bytes, bytes], touched: set[bytes], *, is_changed: bool) -> Counter[str]:
    """Open the journal as fit does, and compare with what was kept."""
    found, before = Counter(damaged=1), path.read_bytes()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            Checkpoint(path.parent, 0).journal.close()
        except CheckpointError:
            found["refused"] += 1
            found["changed"] += path.read_bytes() != before
            return found
    kept = outputs_by_record(path)[1]
    lost = truth.keys() - kept.keys()
    found["lost"] += len(lost)
    found["cost_more"] += not lost <= touched
    found["wrong"] += any(truth.get(key) != output for key, output in kept.items())
    found["unnoticed"] += is_changed and not any(issubclass(one.category, CheckpointWarning) for one in caught)
    found["changed"] += path.read_bytes() != before
    return found


def outputs_by_record(path: Path) -> tuple[list[tuple[int, int, list[bytes]]], dict[bytes, bytes]]:
    """Where the records are, with the queries in each; and the output of every query."""
    file, journal_keys = RecordFile(path), 20
    places, outputs, last = [], {}, 0
    for record in file.records():
        end = record.start + record.n_bytes
        keys = []
        if record.metadata["kind"] == "outputs":
            n_rows, body = record.metadata["shape"][0], file.body(record)
            keys = [body[row * journal_keys : (row + 1) * journal_keys] for row in range(n_rows)]
            rest = body[n_rows * journal_keys :]
            width = len(rest) // n_rows
            outputs |= {key: rest[row * width : (row + 1) * width] for row, key in enumerate(keys)}
        places.append((last, end, keys))
        last = end
    file.close()
    return places, outputs


def verdict(rows: list[Row]) -> tuple[str, str]:
    found = total(rows, (*COUNTED, *HOSTILE))
    return f"{found['damaged']:,} journals with flipped bits, lost sectors or noise in them", (
        f"{found['cost_more']} undamaged outputs lost, {found['unnoticed']} cases of damage without a warning, "
        f"{found['wrong']} wrong outputs, {found['changed']} files changed by opening them; of "
        f"{found['hostile']:,} hostile journals, {found['hostile over memory']} took too much memory, "
        f"{_slow(rows, found)}{found['hostile other errors']} gave unclear errors"
    )


def _slow(rows: list[Row], found: Counter[str]) -> str:
    """How many took long, where that was measured."""
    name = "hostile over time"
    return f"{found[name]} more than {MAX_SECONDS:g} s, " if all(name in row for row in rows) else ""


def page(rows: list[Row], images: Path) -> str:
    found, n_outputs = total(rows, (*COUNTED, *HOSTILE)), rows[0]["n_outputs"]
    lines = [
        ["", "count"],
        [f"journals damaged ({', '.join(DAMAGES)})", f"{found['damaged']:,}"],
        ["outputs lost on average, of " + str(n_outputs), f"{found['lost'] / max(1, found['damaged']):.1f}"],
        ["undamaged outputs lost", f"{found['cost_more']:,}"],
        ["damage without a warning", f"{found['unnoticed']:,}"],
        ["wrong outputs", f"{found['wrong']:,}"],
        ["refused", f"{found['refused']:,}"],
        ["files changed by opening them", f"{found['changed']:,}"],
        ["hostile journals, with matching checksums", f"{found['hostile']:,}"],
        ["hostile journals refused", f"{found['hostile refused']:,}"],
        ["hostile journals that took too much memory for their size", f"{found['hostile over memory']:,}"],
        *([[f"took more than {MAX_SECONDS:g} s", f"{found['hostile over time']:,}"]] if _slow(rows, found) else []),
        ["hostile journals that raised unclear errors", f"{found['hostile other errors']:,}"],
    ]
    return sections(
        "## Damaged journals", "Each trial damages the journal of a finished fit once.", table(lines[0], lines[1:])
    )


STUDY = Study("decay", cases, run, page)
