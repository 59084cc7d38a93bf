"""Sequences on disk: saved explainers of them, as those of tables; and files with tokens, or a text, on every line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sointer._support.files import TOKENS, check_readable
from sointer._support.progress import make_progress
from sointer._support.torch_state import CPU, resolve_device
from sointer._support.validation import is_integer
from sointer.blackbox.adapters.tagger import as_tagger
from sointer.blackbox.box import BlackBox
from sointer.config import Rows, check_rows
from sointer.data.sequences import MAX_LABELS, TokenOutputs, Tokens, Vocabulary
from sointer.energy.chain import HIDDEN_WIDTH, ChainEnergy
from sointer.errors import InputError, require_extra
from sointer.explainers.record_check import Probe
from sointer.explainers.records import make_sequence_records
from sointer.explainers.sequence_explanation import SequenceExplanation
from sointer.explainers.sequences import SequenceExplainer
from sointer.io.checks import check_sequences
from sointer.io.networks import NO_MEMORY
from sointer.io.storage import DAMAGE, SEQUENCES, check_shapes, hash_of, need
from sointer.io.stream import StreamOutput, StreamResult
from sointer.io.writers import Writer
from sointer.masking.conditional import N_PLACES, Replacement

SAVED_PARAMETERS = ("k", "level", "window", "tolerance", "query_budget", "batch_size", "verbose")
MAX_WINDOW = 64
DECISIVE = ("outputs", "window", "tokens", "has_function", "has_splitter", "probe")


def save(explainer: SequenceExplainer, path: str | os.PathLike[str], rows: Rows = "keep") -> None:
    """Write the explainer to the directory `path`, whole or not at all."""
    check_rows(rows)
    SEQUENCES.write(path, *_describe(explainer, rows))


def digest(explainer: SequenceExplainer) -> str:
    """SHA-256 of what decides explanations: networks, tokens, outputs, settings; before and after saving."""
    metadata, tensors = _describe(explainer)
    decisive = {name: metadata[name] for name in DECISIVE} | {"level": explainer.level}
    return hash_of(decisive, tensors)


def _describe(explainer: SequenceExplainer, rows: Rows = "keep") -> tuple[dict[str, Any], dict[str, Tensor]]:
    seed, replacement = explainer.random_state, explainer.replacement_.saved(rows)
    metadata = {
        "parameters": {name: getattr(explainer, name) for name in SAVED_PARAMETERS},
        "random_state": int(seed) if is_integer(seed) else None,
        "outputs": explainer.outputs_.to_json(),
        "window": explainer.window_,
        "tokens": replacement.tokens,
        "has_function": replacement.function is not None,
        "has_splitter": explainer.splitter is not None,
        "n_queries": explainer.n_queries_ + explainer.n_queries_replayed_,
        "held_out": [explainer.held_out_agreement_, explainer.held_out_skill_],
        "history": explainer.history_,
        "probe": None if explainer.probe_ is None else explainer.probe_.summary,
    }
    tensors = {f"energy.{name}": tensor.to(CPU) for name, tensor in explainer.energy_.state_dict().items()}
    if explainer.additive_ is not None:
        states = explainer.additive_.state_dict()
        tensors |= {f"additive.{name}": tensor.to(CPU) for name, tensor in states.items()}
    tensors["vocabulary"] = torch.from_numpy(explainer.vocabulary_.known)
    for place, pool in enumerate(replacement.pools):
        tensors[f"pool.{place}"] = torch.from_numpy(pool.astype(np.int32))
    return metadata, tensors


def load(
    path: str | os.PathLike[str],
    black_box: Any = None,
    *,
    replacement: Any = None,
    splitter: Any = None,
    device: str = "cpu",
) -> SequenceExplainer:
    """See `SequenceExplainer.load`."""
    where = resolve_device(device)
    metadata, tensors = SEQUENCES.read(path)
    for name, given, has in (("replacement", replacement, "has_function"), ("splitter", splitter, "has_splitter")):
        if metadata.get(has) and given is None:
            raise InputError(f"the explainer was fitted with a {name} of yours, which is not stored; give {name}=.")
    try:
        explainer = _restore(metadata, tensors, black_box, replacement, splitter)
    except InputError:
        raise
    except DAMAGE as error:
        raise SEQUENCES.damaged(Path(path), error) from error
    explainer.device, explainer.energy_ = device, explainer.energy_.to(where)
    if explainer.additive_ is not None:
        explainer.additive_ = explainer.additive_.to(where)
    return explainer


def _restore(
    metadata: dict[str, Any], tensors: dict[str, Tensor], black_box: Any, replacement: Any, splitter: Any
) -> SequenceExplainer:
    check_sequences(metadata)
    parameters = {name: metadata["parameters"][name] for name in SAVED_PARAMETERS}
    try:
        SequenceExplainer(None, **parameters)._check_parameters()
    except InputError as error:
        raise ValueError(str(error)) from None
    if isinstance(black_box, BlackBox):
        parameters["batch_size"] = None
    explainer = SequenceExplainer(
        black_box, **parameters, replacement=replacement, splitter=splitter, random_state=metadata["random_state"]
    )
    explainer.outputs_ = TokenOutputs.from_json(metadata["outputs"])
    explainer.vocabulary_ = Vocabulary(tensors["vocabulary"].numpy())
    need(bool((np.diff(explainer.vocabulary_.known) > 0).all()), "features are not sorted")
    window = metadata["window"]
    need(is_integer(window) and 0 <= window <= MAX_WINDOW, "the window is none")
    need(2 <= explainer.outputs_.n_labels <= MAX_LABELS, "the labels are none")
    size = explainer.vocabulary_.n_rows, explainer.outputs_.n_labels
    explainer.energy_, explainer.window_ = _restore_energy(tensors, "energy.", size, window), int(window)
    if any(name.startswith("additive.") for name in tensors):
        explainer.additive_ = _restore_energy(tensors, "additive.", size, window)
    tokens = list(metadata["tokens"])
    pools = [tensors[f"pool.{place}"].numpy().astype(np.int64) for place in range(N_PLACES)]
    is_bare = not tokens and not any(map(len, pools))  # saved with rows="none"
    are_there = all(len(pool) > 0 and pool.min() >= 0 and pool.max() < len(tokens) for pool in pools)
    need(is_bare or are_there, "tokens are missing")
    explainer.replacement_ = Replacement(tokens, pools, replacement)
    explainer.black_box_ = None if black_box is None else as_tagger(black_box, explainer.batch_size)
    explainer.held_out_agreement_, explainer.held_out_skill_ = map(float, metadata["held_out"])
    explainer.history_, explainer.n_queries_ = metadata["history"], int(metadata["n_queries"])
    explainer.n_explain_queries_ = 0
    if (probe := metadata.get("probe")) is not None:  # older versions kept none
        explainer.probe_ = Probe.of_summary(probe)
    return explainer


def _restore_energy(tensors: dict[str, Tensor], prefix: str, size: tuple[int, int], window: int) -> ChainEnergy:
    state = {name.removeprefix(prefix): part for name, part in tensors.items() if name.startswith(prefix)}
    how: dict[str, Any] = {"window": window, "additive": prefix == "additive."}
    if not how["additive"] and len(state.get("hidden.bias", ())) == HIDDEN_WIDTH:
        how["n_linear"] = 0  # older versions had none
    with NO_MEMORY:
        check_shapes(ChainEnergy(*size, **how), state)
    with torch.random.fork_rng(devices=[]):
        energy = ChainEnergy(*size, **how)
    energy.load_state_dict(state)
    return energy.requires_grad_(False).eval()


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

    Arguments mean what they do in `stream_explain`; `positions` are the tokens that are explained of every sequence
    that has them, None for all.
    """
    pyarrow, schema = require_extra("pyarrow", "parquet"), _schema(explainer)
    if isinstance(out, Path) and out.exists() and out.samefile(source):
        raise InputError(f"out is {out}, which is the source itself; nothing was written. Choose another name.")
    lines = read_token_lines(source)
    now, n_short = datetime.now(timezone.utc), 0
    with StreamOutput(explainer, out, schema, records, make_progress(progress, None)) as output:
        while chunk := list(islice(lines, chunk_rows or CHUNK)):
            targets = [_in_range(positions, len(tokens)) for tokens in chunk]
            kept = [i for i, target in enumerate(targets) if target]
            n_short += len(chunk) - len(kept)
            if kept:
                why = explainer.explain([chunk[i] for i in kept], [targets[i] for i in kept], k=k, query=query)
                number = [output.n_rows + i for i in kept]
                output.writer.write(pyarrow.Table.from_pylist(list(_records(why, number, schema)), schema=schema))
                n_judged = int(sum(number[sample] < verify for sample in why.sample))
                verified = why.first(n_judged).verify() if n_judged else None
                output.agreement += [] if verified is None else verified.agreement.tolist()
                if output.records is not None:
                    output.records.write(make_sequence_records(why, verified, numbers=number, created=now))
            output.advance(len(chunk))
        if output.n_rows == n_short:
            what = f"has no sequence with a token {positions}" if output.n_rows else "has no sequences"
            raise InputError(f"{source} {what}; nothing was written.")
        return output.finish(), n_short


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
