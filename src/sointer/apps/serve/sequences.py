"""Requests about sequences: token lists, which tokens are targets, and what decided them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from sointer._support import __version__
from sointer._support.validation import check_positive_int
from sointer.apps.serve.request import Options, check_keys, read_ids, validate
from sointer.apps.serve.response import RecordLog, to_bytes
from sointer.apps.serve.security import Limits
from sointer.data.sequences import Tokens, read_sequences, resolve_positions
from sointer.errors import InputError
from sointer.explainers.sequences import SequenceExplainer
from sointer.viz.report.sequences import sequence_entries

MAX_TARGETS, MAX_TOKEN_LENGTH, MAX_PATHS, MAX_VERIFIED_TOKENS = 1000, 1000, 500, 250_000
"""In one request, labels that are explained, letters of a token, selected tokens of which paths are found, and tokens
of all sequences that `verify` sends, once for each label and draw: what takes some seconds."""
MAX_LIST_TOKENS, MAX_TOKENS = 2000, 3000
"""In one sequence, of which every token takes memory, and in one request, where it takes time."""
ROWS_SCHEMA = {
    "description": "Lists of tokens; strings only where the explainer has a splitter.",
    "type": "array",
    "items": {"type": "array", "items": {"type": "string"}},
}


class SequenceBody(Options):
    """The body of a request to /explain, of an explainer of sequences."""

    model_config = ConfigDict(extra="forbid")

    rows: Annotated[Any, WithJsonSchema(ROWS_SCHEMA)]
    target: Any = Field(
        None,
        description='The number of a token, from 0; "all" (default); or a list with one of these, or of '
        "numbers, for each row.",
    )
    predicted: Any = Field(
        None, description="The model's outputs, one per token of each row.", json_schema_extra={"type": "array"}
    )
    paths: bool = Field(False, description="Say of each selected token whether it acts through other labels.")
    format: Literal["rows", "records"] = Field(
        "rows", description="One entry per row, or a record of each label explained, to check it later."
    )
    ids: Any = Field(None, description="A name for each row, for its records.", json_schema_extra={"type": "array"})


@dataclass(frozen=True, eq=False)
class SequenceRequest:
    """Which labels of which sequences are to be explained."""

    sequences: list[Tokens]
    target: list[Any]
    k: int | Literal["auto"] | None
    predicted: Any
    verify: bool
    query: bool
    paths: bool
    has_model: bool
    format: Literal["rows", "records"] = "rows"
    ids: list[str] | None = None
    """A name for each row, for its records."""

    @property
    def n_rows(self) -> int:
        """How many sequences there are."""
        return len(self.sequences)

    @property
    def queries_model(self) -> bool:
        """Whether the model is queried at all."""
        return self.verify or (self.has_model and self.query and self.predicted is None)

    def can_join(self, other: Any) -> bool:
        """Never: each request names its own targets and sizes."""
        return False


def read_sequence_request(explainer: SequenceExplainer, content: dict[str, Any], limits: Limits) -> SequenceRequest:
    """Read the body of a request to explain sequences; whatever explain would refuse is refused here."""
    check_keys(SequenceBody, content, '[["a", "b"]]')
    rows, predicted = content.pop("rows"), content.pop("predicted", None)
    body = validate(SequenceBody, {"rows": None, **content})
    if not isinstance(rows, list) or not 1 <= len(rows) <= limits.max_rows:
        got = f"{len(rows):,} rows" if isinstance(rows, list) else type(rows).__name__
        raise InputError(f"rows holds {got}, expected a list of 1 to {limits.max_rows:,} token lists.")
    sequences = read_sequences(rows, explainer.splitter, "explain")
    longest = max(len(token) for tokens in sequences for token in tokens)
    if longest > MAX_TOKEN_LENGTH:
        raise InputError(f"rows holds a token of {longest:,} letters, expected at most {MAX_TOKEN_LENGTH:,}.")
    positions = resolve_positions("all" if body.target is None else body.target, sequences)
    if (n_targets := sum(map(len, positions))) > MAX_TARGETS:
        raise InputError(
            f"the request asks about {n_targets:,} labels, expected at most {MAX_TARGETS:,}. Send fewer rows at a "
            "time, or name targets."
        )
    n_tokens = [len(tokens) for tokens in sequences]
    if max(n_tokens) > MAX_LIST_TOKENS or sum(n_tokens) > MAX_TOKENS:
        raise InputError(
            f"rows holds {sum(n_tokens):,} tokens, {max(n_tokens):,} in one list, expected at most {MAX_TOKENS:,} and "
            f"{MAX_LIST_TOKENS:,}. Send fewer rows at a time, or shorter ones."
        )
    if body.k is not None and body.k != "auto":
        check_positive_int(body.k, "k")
    has_model = explainer.black_box_ is not None
    if body.verify and not has_model:
        raise InputError("verify needs the model, and this server has none; it was started without --model.")
    n_verified = sum(len(places) * len(tokens) for places, tokens in zip(positions, sequences, strict=True))
    if body.verify and n_verified > MAX_VERIFIED_TOKENS:
        raise InputError(
            f"verify is asked for {n_targets:,} labels of sequences with {n_verified:,} tokens in all, expected at "
            f"most {MAX_VERIFIED_TOKENS:,}. Name fewer targets, or send shorter sequences."
        )
    if body.paths:
        check_paths(n_targets)
    if body.paths and body.format == "records":
        raise InputError('paths is true, but records do not hold paths; leave it out, or leave out "format".')
    return SequenceRequest(
        sequences,
        [tuple(places.tolist()) for places in positions],
        body.k,
        predicted,
        body.verify,
        body.query,
        body.paths,
        has_model,
        body.format,
        read_ids(body.ids, len(sequences)),
    )


def check_paths(n_selected: int) -> None:
    """Refuse requests for paths of more tokens than some seconds are enough for."""
    if n_selected > MAX_PATHS:
        raise InputError(
            f"paths are asked for {n_selected:,} selected tokens or more, expected at most {MAX_PATHS:,}. Name fewer "
            "targets, or lower k."
        )


def explain_sequence_batch(
    explainer: SequenceExplainer, requests: Sequence[SequenceRequest], log: RecordLog | None = None
) -> list[list[dict[str, Any]]]:
    """What each request is answered with; records of all are added to the log first."""
    found = []
    for request in requests:
        why = explainer.explain(
            request.sequences, request.target, k=request.k, predicted=request.predicted, query=request.query
        )
        if request.paths:
            check_paths(int((why.selected >= 0).sum()))
        verification = why.verify() if request.verify else None
        wants_records = request.format == "records"
        records = why.record(verification, ids=request.ids) if wants_records or log is not None else []
        if log is not None:
            log.add(records)
        shown = why.paths() if request.paths else None
        found.append(records if wants_records else sequence_entries(why, shown, verification))
    return found


def write_sequences(request: SequenceRequest, response: list[dict[str, Any]]) -> bytes:
    """The reply to a request."""
    return b'{"%s":[%s]}' % (request.format.encode(), b",".join(map(to_bytes, response)))


def sequence_info(explainer: SequenceExplainer, name: str) -> dict[str, Any]:
    """What the server explains."""
    return {
        "name": name,
        "sointer": __version__,
        "takes": "sequences",
        "labels": explainer.outputs_.classes,
        "output_kind": explainer.outputs_.kind,
        "window": explainer.window_,
        "k": explainer.k,
        "has_model": explainer.black_box_ is not None,
        "held_out_agreement": explainer.held_out_agreement_,
        "held_out_skill": explainer.held_out_skill_,
    }
