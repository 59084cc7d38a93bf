"""Records: what is kept of an explanation so that somebody else can check it later."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sointer._support import __version__
from sointer._support.containers import is_sparse
from sointer._support.files import as_finite, content_digest
from sointer.data.sequences import Tokens
from sointer.data.targets import effects_from, effects_on
from sointer.data.text_tables import Records
from sointer.errors import InputError
from sointer.masking.rows import ExplainedRows
from sointer.masking.unit_values import UnitValues, format_value, plain, value_kind

if TYPE_CHECKING:
    from sointer.explainers.sequence_explanation import SequenceExplanation
    from sointer.explanation import Explanation
    from sointer.verification import Verification

FORMAT = 1
UNHASHED = ("sha256", "created")
MAX_TOKEN_NAME = 24
BITS, READING = 30, 1e-12
"""Digits of numbers that count in the hash of a sample, and how far readers of the same text differ."""


@dataclass(frozen=True)
class Provenance:
    """Who made an explanation, and how."""

    explainer: Any
    k: int | Literal["auto"]
    refine: int
    n_queries: int
    """Samples sent to the model for the whole explanation."""

    def records(
        self,
        explanation: Explanation,
        verification: Verification | None,
        *,
        created: datetime | str | None,
        ids: Sequence[Any] | None,
    ) -> list[dict[str, Any]]:
        """See `Explanation.record`."""
        return make_records(explanation, verification, created=created, ids=ids)


def make_records(
    explanation: Explanation,
    verification: Verification | None = None,
    *,
    created: datetime | str | None = None,
    ids: Sequence[Any] | None = None,
    verified: NDArray[np.int64] | None = None,
    first: int = 0,
) -> list[dict[str, Any]]:
    """See `Explanation.record`; `verified` are the rows that the verification is about, `first` is added to numbers."""
    made, source = explanation.provenance, explanation.source
    if verification is not None:
        verified = np.arange(len(explanation)) if verified is None else verified
        if len(verification.agreement) != len(verified):
            raise InputError(
                f"record: the verification is about {len(verification.agreement)} rows, the explanation has "
                f"{len(verified)}; pass what this explanation's own verify() returned, for all of its rows."
            )
    if ids is not None and len(ids) != source.n_samples:
        raise InputError(f"record: ids holds {len(ids)} ids, expected one for each of {source.n_samples} samples.")
    labels = ids if ids is not None else source.index
    common = common_fields(made, source.removal.name, len(explanation), created)
    where = {}
    if explanation.locality is not None:
        for target in np.unique(explanation.target).tolist():
            where[target] = {leaf.number: leaf.where for leaf in made.explainer.localities(target)}
    place_of = {} if verified is None else {int(row): place for place, row in enumerate(verified)}
    digests, selected = sample_digests(source), _selected(explanation)
    has_values = value_kind(source.input_format, source.groups) is not None
    records = []
    for row, sample in enumerate(explanation.sample.tolist()):
        record: dict[str, Any] = {
            **common,
            "sample": {
                "number": first + sample,
                "id": None if labels is None or labels[sample] is None else str(labels[sample]),
                "sha256": digests[sample],
                "far": None if explanation.distance is None else bool(explanation.far[row]),
            },
            **_decided(explanation, row, where),
            "selected": next(selected),
            "verification": None,
        }
        if verification is not None and row in place_of:
            record["verification"] = verdict_of(verification, place_of[row])
        records.append(sealed(record, record["target"], has_values=has_values))
    return records


def common_fields(
    made: Provenance, removal: str, n_explanations: int, created: datetime | str | None
) -> dict[str, Any]:
    """What all records of one call of explain say."""
    return {
        "record": FORMAT,
        "sha256": "",
        "created": _timestamp(created),
        "sointer": __version__,
        "environment": _environment(),
        **made.explainer.identity(),
        "settings": {"k": made.k, "refine": made.refine, "removal": removal},
        "queries": {"of_the_call": made.n_queries, "rows_of_the_call": n_explanations},
    }


def sealed(record: dict[str, Any], target: str, *, has_values: bool = True) -> dict[str, Any]:
    """The record with its sentence, in which the target is called so, and its hash; pixels have no values."""
    whole = as_finite(record | {"text": _sentence(record, target, "missing" if has_values else None)})
    return {**whole, "sha256": record_digest(whole)}


def record_digest(record: dict[str, Any]) -> str:
    """SHA-256 of what a record says, but for when it was made."""
    return content_digest({name: value for name, value in record.items() if name not in UNHASHED})


def sample_digests(source: ExplainedRows, nudge: float = 0.0) -> list[str]:
    """SHA-256 of every sample as the explainer reads it: a text, or numbers to nine digits (see `_nine_digits`)."""
    if isinstance(source.data, Records):
        numbers = row_digests(source.data.values, lambda numbers: _nine_digits(numbers, nudge))
        return [
            _text_digest(json.dumps([*own, number]))
            for own, number in zip(source.data.each_text(), numbers, strict=True)
        ]
    if source.texts is not None:
        return [_text_digest(text) for text in source.texts]
    return row_digests(source.data, lambda numbers: _nine_digits(numbers, nudge))


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def place_of_sample(record: Mapping[str, Any], source: ExplainedRows) -> int | None:
    """The first sample that is the record's, whoever read the file it comes from; None if there is none."""
    wanted = record["sample"]["sha256"]
    for nudge in (0.0, -READING, READING):  # a number that is read a little differently may be rounded the other way
        digests = sample_digests(source, nudge)
        if wanted in digests:
            return digests.index(wanted)
        if source.texts is not None and not isinstance(source.data, Records):
            return None
    return None


def _nine_digits(numbers: NDArray[np.float64], nudge: float) -> NDArray[np.float64]:
    """Numbers with 30 binary digits, as readers of text differ in the last ones; whole numbers as they are.

    pandas before version 3, for example, reads a third of numbers with 16 digits with an error of up to 2e-13.
    """
    mantissa, exponent = np.frexp(numbers * (1 + nudge))
    return np.where(numbers == np.rint(numbers), numbers, np.ldexp(np.rint(np.ldexp(mantissa, BITS)), exponent - BITS))


def row_digests(data: Any, rounded: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None) -> list[str]:
    """SHA-256 of the encoded rows of a table, dense or CSR, in double precision or rounded."""
    digests = []
    for row in range(data.shape[0]):
        digest = hashlib.sha256()
        numbers = data[[row]]
        if is_sparse(numbers):
            numbers = numbers.tocoo()
            order = np.argsort(numbers.col, kind="stable")
            digest.update(np.ascontiguousarray(numbers.col[order], dtype="<i8").tobytes())
            numbers = numbers.data[order]
        numbers = np.asarray(numbers, dtype="<f8")
        numbers = (numbers if rounded is None else rounded(numbers)) + 0.0  # no minus zero
        digest.update(np.where(np.isnan(numbers), np.nan, numbers).tobytes())
        digests.append(digest.hexdigest())
    return digests


def _decided(explanation: Explanation, row: int, where: dict[int, dict[int, str]]) -> dict[str, Any]:
    """The target, its value, and what is known about the row as a whole."""
    source, outputs, target = explanation.source, explanation.source.outputs, int(explanation.target[row])
    value = plain(explanation.value[row])
    decided: dict[str, Any] = {
        "target": explanation.output_names[target],
        "kind": outputs.kinds[min(target, outputs.n_outputs - 1)],
        "value": value,
        "value_source": explanation.value_source,
        "effects": None,
        "locality": None,
    }
    if explanation.effects is not None and explanation.base_value is not None:
        own = explanation.selected[row][explanation.selected[row] >= 0]
        form = source.input_format
        decided["effects"] = {
            "on": effects_on(outputs, target, value),
            "from": effects_from(source.removal.name, is_text=form.has_words, is_image=form.image is not None),
            "base_value": short_number(explanation.base_value[row]),
            "of_others": short_number(explanation.effects[row].sum() - explanation.effects[row][own].sum()),
        }
    if explanation.locality is not None:
        number = int(explanation.locality[row])
        decided["locality"] = {"number": number, "where": where[target][number]}
    return decided


def _selected(explanation: Explanation) -> Iterator[list[dict[str, Any]]]:
    source = explanation.source
    values = None if value_kind(source.input_format, source.groups) is None else UnitValues(source)
    for row, sample in enumerate(explanation.sample.tolist()):
        units = explanation.selected[row][explanation.selected[row] >= 0]
        own = [None] * len(units) if values is None else values.own(np.full(len(units), sample), units)
        yield [
            {
                "rank": rank + 1,
                "unit": explanation.feature_names[unit],
                "value": plain(value),
                "relevance": short_number(explanation.scores[row, unit]),
                "effect": None if explanation.effects is None else short_number(explanation.effects[row, unit]),
                "needed": None if explanation.needed is None else bool(explanation.needed[row, unit]),
            }
            for rank, (unit, value) in enumerate(zip(units.tolist(), own, strict=True))
        ]


def verdict_of(verification: Verification, place: int) -> dict[str, Any]:
    """What a record says of the verification of one explanation."""
    low, high = verification.interval[place].tolist()
    return {
        "verdict": verification.verdict[place],
        "agreement": float(verification.agreement[place]),
        "interval": [low, high],
        "level": verification.level,
        "n_draws": verification.n_draws,
        "removal": verification.removal,
        "random_state": verification.random_state,
    }


def _sentence(record: dict[str, Any], target: str, no_value: str | None) -> str:
    """What a record says, for people; units without a value are said to be `no_value`, if anything."""
    whose = {"model": "the model predicts", "given": "given as predicted", "expected": "expected, not predicted"}
    parts = []
    for one in record["selected"]:
        if one["needed"] is False:
            continue
        known = no_value if one["value"] is None else f"= {format_value(one['value'])}"
        value = "" if known is None else f" {known}"
        parts.append(f"{one['unit']}{value}")
        if (effect := one["effect"]) is not None:
            parts[-1] += f" ({'-' if effect < 0 else '+'}{format_value(abs(effect))})"
    value, source = format_value(record["value"]), whose[record["value_source"]]
    text = f"{target} = {value} ({source}), decided by {', '.join(parts) or 'nothing that was found'}."
    if record["effects"] is not None:
        text += f" In brackets: effect on {record['effects']['on']}."
    verdict = record["verification"]
    if verdict is None:
        return text
    is_share = record["kind"] == "probability" and isinstance(record["value"], float)  # of a token, it is the class
    what = "probability staying on its side of 0.5 is" if is_share else "prediction is"
    return f"{text} From these alone, the model's {what} {verdict['verdict']}."


def short_number(number: Any) -> float:
    """A number in single precision without the digits that it does not have."""
    return float(f"{number:.7g}")


def _timestamp(created: datetime | str | None) -> str:
    if isinstance(created, str):
        try:
            created = datetime.fromisoformat(created.replace("Z", "+00:00"))
        except ValueError:
            raise InputError(f"created must be a time such as 2026-01-31T12:00:00Z, got {created!r:.60}.") from None
    moment = datetime.now(timezone.utc) if created is None else created
    if moment.tzinfo is None:
        raise InputError(f"created is {moment}, a time without a time zone; give one, such as {moment.isoformat()}Z.")
    return moment.astimezone(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


@cache
def _environment() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in ("numpy", "torch")}}


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
        raise InputError("record: this explanation was not made by an explainer, so it cannot be reproduced.")
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
    if not name.startswith("token ") or not name[6:].isdecimal() or len(name) > MAX_TOKEN_NAME:
        raise InputError(f"the record is about {name!r:.60}, expected a token of a sequence, such as 'token 3'.")
    return int(name[6:])
