"""Records of explanations of sequences: the same fields as those of tables, with tokens as units."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sointer._support.strict_json import content_digest
from sointer.data.sequences import Tokens
from sointer.errors import InputError
from sointer.explainers.recording import common_fields, sealed, short_number, verdict_of
from sointer.masking.unit_values import plain

if TYPE_CHECKING:
    from sointer.explainers.sequence_explanation import SequenceExplanation
    from sointer.explanation import Verification

KINDS = {"label": "categorical", "number": "continuous", "probability": "probability"}
"""What records call the kinds of outputs of tokens."""


def make_sequence_records(
    explanation: SequenceExplanation,
    verification: Verification | None = None,
    *,
    created: datetime | str | None = None,
    ids: Sequence[Any] | None = None,
    numbers: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """See `SequenceExplanation.record`; `numbers` are those of the sequences in their source.

    The verification may be about the first targets only.
    """
    made = explanation.provenance
    if made is None:
        raise InputError("record: this explanation was not made by an explainer, so nobody could make it again.")
    n_verified = 0 if verification is None else len(verification.agreement)
    if n_verified > len(explanation):
        raise InputError(
            f"record: the verification is about {n_verified} targets, the explanation has {len(explanation)}; pass "
            "what this explanation's own verify() returned."
        )
    n_sequences = len(explanation.sequences)
    if ids is not None and len(ids) != n_sequences:
        raise InputError(f"record: ids holds {len(ids)} ids, expected one for each of {n_sequences} sequences.")
    common = common_fields(made, made.explainer.replacement_.name, len(explanation), created)
    digests = [tokens_digest(tokens) for tokens in explanation.sequences]
    needed, records = explanation.needed, []
    for i, (sample, position) in enumerate(
        zip(explanation.sample.tolist(), explanation.position.tolist(), strict=True)
    ):
        tokens = explanation.sequences[sample]
        target = token_name(position)
        record: dict[str, Any] = {
            **common,
            "sample": {
                "number": sample if numbers is None else numbers[sample],
                "id": None if ids is None else str(ids[sample]),
                "sha256": digests[sample],
                "far": None,
            },
            "target": target,
            "kind": KINDS[explanation.outputs.kind],
            "value": plain(explanation.value[i]),
            "value_source": explanation.value_source,
            "effects": None,
            "locality": None,
            "selected": [
                {
                    "rank": rank,
                    "unit": token_name(at),
                    "value": tokens[at],
                    "relevance": short_number(explanation.scores[i, at]),
                    "effect": None,
                    "needed": bool(needed[i, at]),
                }
                for rank, at in enumerate(explanation.selected[i].tolist(), 1)
                if at >= 0
            ],
            "verification": verdict_of(verification, i) if verification is not None and i < n_verified else None,
        }
        records.append(sealed(record, f"{target} ({tokens[position]})"))
    return records


def tokens_digest(tokens: Tokens) -> str:
    """SHA-256 of a sequence: of its tokens as JSON, so that no two are the same."""
    return content_digest(list(tokens))


def token_name(position: int) -> str:
    """What records call the token at a position."""
    return f"token {position}"


def position_of(name: str) -> int:
    """The position in the name of a token; InputError where it is none."""
    if not name.startswith("token ") or not name[6:].isdecimal():
        raise InputError(f"the record is about {name!r:.60}, expected a token of a sequence, such as 'token 3'.")
    return int(name[6:])
