"""Sequences in files: a JSON object with tokens, or with a text, on every line; explained part by part."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sointer._support.progress import Progress, make_progress
from sointer.data.sequences import Tokens
from sointer.errors import InputError, require_extra
from sointer.explainers.recording import make_sequence_records
from sointer.explainers.sequence_explanation import SequenceExplanation
from sointer.io.locations import TOKENS, check_readable
from sointer.io.stream import StreamResult, stop_early
from sointer.io.writers import EvidenceWriter, RecordWriter, Writer

if TYPE_CHECKING:
    from sointer.explainers.sequences import SequenceExplainer

CHUNK = 1000
"""Sequences explained at a time."""
FORMS = '{"tokens": ["a", "b"]}, or {"text": "a b"}, which is split at blanks'


def read_token_lines(path: Path) -> Iterator[Tokens]:
    """The sequences of a file, one after the other; InputError names the line that is none."""
    check_readable(path)
    if not path.name.lower().endswith(TOKENS):
        raise InputError(f"{path} holds no sequences; expected a .jsonl file, with {FORMS} on every line.")
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _read_line(line, f"{path}, line {number}")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error}); expected {FORMS} on every line.") from error


def _read_line(line: str, where: str) -> Tokens:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON ({error}); expected {FORMS}.") from error
    known = [name for name in ("tokens", "text") if isinstance(content, dict) and name in content]
    if len(known) != 1:
        raise InputError(f"{where} has {' and '.join(known) or 'neither tokens nor text'}; expected {FORMS}.")
    tokens = content[known[0]]
    if known == ["text"] and isinstance(tokens, str):
        tokens = tokens.split()
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise InputError(f"{where} holds {tokens!r:.60} as {known[0]}; expected at least one token, as strings.")
    return tokens


def stream_sequences(
    explainer: SequenceExplainer,
    source: Path,
    out: Path | Writer,
    *,
    positions: list[int] | None,
    k: int | Literal["auto"] | None,
    query: bool,
    chunk_rows: int | None = None,
    verify: int = 0,
    records: Path | None = None,
    progress: bool | None = None,
) -> tuple[StreamResult, int]:
    """Explain the sequences of a file into another, of any size; also how many lack all of the positions.

    Parameters
    ----------
    explainer : SequenceExplainer
        Fitted.
    source : path
        A .jsonl file.
    out : path or Writer
        The file to write, as Parquet, or what writes it.
    positions : list of int or None
        Which tokens are explained of every sequence that has them; None for all.
    k, query : as in `SequenceExplainer.explain`
    chunk_rows : int, optional
        Sequences read at a time.
    verify : int, default 0
        Query the model to confirm the explanations of the first so many sequences.
    records : path, optional
        Also write one record per explanation (`SequenceExplanation.record`) to this file, as JSON lines.
    progress : bool, optional
        True shows a bar, None does on a terminal.
    """
    pyarrow, schema = require_extra("pyarrow", "parquet"), _schema(explainer)
    if isinstance(out, Path) and out.exists() and out.samefile(source):
        raise InputError(f"out is {out}, which is the source itself; nothing was written. Choose another name.")
    lines = read_token_lines(source)
    writer = out if isinstance(out, Writer) else RecordWriter(out, schema)
    started, before = time.perf_counter(), explainer.n_explain_queries_
    kept_records = None if records is None else EvidenceWriter(records)
    now = datetime.now(timezone.utc)
    n_rows, n_short, agreement = 0, 0, list[float]()
    shown: Progress = make_progress(progress, None)
    try:
        while chunk := list(islice(lines, chunk_rows or CHUNK)):
            targets = [_in_range(positions, len(tokens)) for tokens in chunk]
            kept = [i for i, target in enumerate(targets) if target]
            n_short += len(chunk) - len(kept)
            if kept:
                why = explainer.explain([chunk[i] for i in kept], [targets[i] for i in kept], k=k, query=query)
                number = [n_rows + i for i in kept]
                writer.write(pyarrow.Table.from_pylist(list(_records(why, number, schema)), schema=schema))
                n_judged = int(sum(number[sample] < verify for sample in why.sample))
                verified = why.first(n_judged).verify() if n_judged else None
                agreement += [] if verified is None else verified.agreement.tolist()
                if kept_records is not None:
                    kept_records.write(make_sequence_records(why, verified, numbers=number, created=now))
            n_rows += len(chunk)
            shown.add(len(chunk))
        if n_rows == n_short:
            what = f"has no sequence with a token {positions}" if n_rows else "has no sequences"
            raise InputError(f"{source} {what}; nothing was written.")
        path = writer.finish()
        if kept_records is not None:
            kept_records.finish()
    except BaseException as error:
        if kept_records is not None:
            kept_records.stop_early(n_rows)
        stop_early(error, writer, n_rows)
        raise
    finally:
        shown.close()
    n_queries = explainer.n_explain_queries_ - before
    fidelity = sum(agreement) / len(agreement) if agreement else None
    seconds = time.perf_counter() - started
    return StreamResult(path, n_rows, writer.n_records, n_queries, seconds, fidelity), n_short


def _in_range(positions: list[int] | None, n: int) -> Any:
    """The positions that a sequence of n tokens has; "all" where all are wanted."""
    return "all" if positions is None else tuple(p for p in positions if -n <= p < n)


def _records(why: SequenceExplanation, number: list[int], schema: Any) -> Iterator[dict[str, Any]]:
    as_text = str(schema.field("value").type) == "string"
    for one in why.to_dict():
        shared = {name: one[name] for name in ("position", "token", "value_source", "keeps")}
        shared |= {"sample": number[one["sample"]], "value": str(one["value"]) if as_text else one["value"]}
        for chosen in one["selected"]:
            yield {**shared, **chosen, "label": str(chosen["label"]) if as_text else chosen["label"]}


def _schema(explainer: SequenceExplainer) -> Any:
    """The columns of the records, those of `to_frame()`."""
    pyarrow = require_extra("pyarrow", "parquet")
    kinds = {type(label) for label in explainer.outputs_.classes}
    types = {bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64()}
    value = types.get(kinds.pop(), pyarrow.string()) if len(kinds) == 1 else pyarrow.string()
    return pyarrow.schema(
        [
            ("sample", pyarrow.int64()),
            ("position", pyarrow.int64()),
            ("token", pyarrow.string()),
            ("value", value),
            ("value_source", pyarrow.string()),
            ("keeps", pyarrow.float32()),
            ("rank", pyarrow.int32()),
            ("at", pyarrow.int64()),
            ("selected", pyarrow.string()),
            ("label", value),
            ("score", pyarrow.float32()),
        ]
    )
