"""Whether a record holds: the sample explained again and compared, and the probe by which a model is recognised."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from sointer._support import cached_property, containers
from sointer._support.files import as_finite, content_digest
from sointer.data.sequences import Tokens, read_sequences
from sointer.data.text_tables import Records
from sointer.data.texts import Documents
from sointer.errors import InputError
from sointer.explainers.records import FORMAT, place_of_sample, position_of, record_digest, row_digests, tokens_digest
from sointer.masking.unit_values import plain

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer
    from sointer.explainers.sequences import SequenceExplainer
    from sointer.explanation import Explanation

MAX_PROBE_OUTPUTS, MAX_PROBE_COLUMNS = 2**12, 2**17
MAX_PROBE_SEQUENCES, MAX_PROBE_CHARACTERS = 16, 2**18
RELATIVE, ABSOLUTE = 1e-4, 1e-6
"""So far may numbers of two machines differ."""


@dataclass(frozen=True)
class Probe:
    """A few training rows, and what the model predicted for them in fit: by these it can be recognised later."""

    rows: Any
    """Encoded: dense, CSR or texts; None where the explainer was saved without rows."""
    outputs: NDArray[Any] | None
    n: int
    inputs_sha256: str
    outputs_sha256: str

    @classmethod
    def of(cls, rows: Any, outputs: NDArray[Any]) -> Probe:
        """Of the first rows of the training data, as few as are small enough to be kept."""
        n = max(1, min(len(outputs), MAX_PROBE_OUTPUTS // outputs.shape[1], MAX_PROBE_COLUMNS // rows.shape[1]))
        rows, outputs = rows[:n], outputs[:n]
        texts = texts_of(rows)
        inputs = content_digest(texts or row_digests(rows))
        if isinstance(rows, Records):
            inputs = content_digest([inputs, row_digests(rows.values)])
        probe = cls(rows, outputs, n, inputs, content_digest(as_lists(outputs)))
        return probe.without_rows() if are_long(texts) else probe

    @classmethod
    def of_sequences(cls, sequences: Sequence[Tokens], outputs: Sequence[Sequence[Any]]) -> Probe:
        """Of sequences hashes alone are kept: saved with rows="none", they add no token."""
        n = min(len(sequences), MAX_PROBE_SEQUENCES)
        inputs = content_digest([list(tokens) for tokens in sequences[:n]])
        return cls(None, None, n, inputs, content_digest(as_finite([list(one) for one in outputs[:n]])))

    @classmethod
    def of_summary(cls, summary: Mapping[str, Any]) -> Probe:
        """What `summary` says, without rows."""
        return cls(None, None, int(summary["n"]), str(summary["inputs_sha256"]), str(summary["outputs_sha256"]))

    def without_rows(self) -> Probe:
        """The same with hashes only."""
        return Probe(None, None, self.n, self.inputs_sha256, self.outputs_sha256)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What records say of it."""
        return {"n": self.n, "inputs_sha256": self.inputs_sha256, "outputs_sha256": self.outputs_sha256}


def texts_of(rows: Any) -> list[str] | None:
    """The texts, where encoded rows are texts; of tables with texts, those of each row as JSON."""
    if isinstance(rows, Records) and rows.documents is not None:
        return [json.dumps([part.text for part in record.parts]) for record in rows.documents]
    documents = rows.documents if isinstance(rows, Documents) else None
    return None if documents is None else [document.text for document in documents]


def are_long(texts: Sequence[str] | None) -> bool:
    """Whether texts are too long to be kept as a probe: all of it is read when an explainer is loaded."""
    return texts is not None and sum(map(len, texts)) > MAX_PROBE_CHARACTERS


def as_lists(outputs: NDArray[Any]) -> list[list[Any]]:
    """A table of outputs as JSON says it."""
    table: list[list[Any]] = as_finite([[plain(value) for value in row] for row in outputs.tolist()])
    return table


@dataclass(frozen=True)
class RecordCheck:
    """Whether a record matches what this explainer says about its sample; None for what could not be checked.

    Attributes
    ----------
    intact
        Nothing in the record was changed since it was made.
    same_explainer
        The explainer is the one that made it, number for number.
    same_model
        For the samples kept since fit, the model predicts the same as then.
    same_value
        What is explained is the same.
    same_selection
        The same units are selected, in the same order, with the same relevance and effects.
    differences
        What differs, in words.
    """

    intact: bool
    same_explainer: bool | None
    same_model: bool | None
    same_value: bool
    same_selection: bool
    differences: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing that was checked differs."""
        return not self.differences


def verify_record(
    record: Mapping[str, Any],
    explainer: Explainer | SequenceExplainer,
    X: Any,
    *,
    target: Any = None,
    predicted: Any = None,
) -> RecordCheck:
    """Explain the sample of a record again, and compare.

    Parameters
    ----------
    record : dict
        As `Explanation.record` made it.
    explainer : SOInter or SequenceExplainer
        Fitted or loaded. If it has its model, the model is queried: up to 16 samples kept since fit, and the sample.
    X : samples
        As `explain` takes them; the record's sample is found among them by its hash.
    target : optional
        Needed if the record is about a region of a mask, whose name is not exact; not for sequences.
    predicted : optional
        What the model predicted for X, if the record's value was given (`value_source` "given") rather than queried.

    Returns
    -------
    RecordCheck

    Raises
    ------
    InputError
        If the record is of another format, or none of the samples is the record's.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer import verify_record
    >>> from sointer.explainers.baselines import Random
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> explainer = Random(lambda X: X[:, :2] > 0, k=2, random_state=0).fit(X)
    >>> record = explainer.explain(X[:1], target=1).record()[0]
    >>> verify_record(record, explainer, X).holds
    True
    """
    check_is_fitted(explainer, "outputs_")
    if not isinstance(record, Mapping) or record.get("record") != FORMAT:
        got = record.get("record") if isinstance(record, Mapping) else type(record).__name__
        raise InputError(
            f"record: expected a record of format {FORMAT}, as explanation.record() makes it, got {got!r}."
        )
    _check_form(record)
    of_sequences = explainer.sequences_
    if record["value_source"] == "given" and predicted is None and explainer.black_box_ is None:
        raise InputError(
            "the record's value was given by its maker; pass predicted=, or load the explainer with its model."
        )
    same_model = None
    if of_sequences is not None:
        again = _tagged_again(record, of_sequences, X, predicted)
    else:
        again, same_model = _explained_again(record, explainer, X, target, predicted), _same_model(explainer)
    differences = (
        [] if record_digest(dict(record)) == record["sha256"] else ["the record was changed since it was made"]
    )
    intact = not differences
    known = record["explainer"]["sha256"]
    same_explainer = None if known is None else known == again["explainer"]["sha256"]
    if same_explainer is False:
        differences.append("the explainer is another one, or was saved with other rows=")
    if same_model is False:
        differences.append("the model predicts something else for the samples kept since fit")
    same_value = _same(record["value"], again["value"])
    if not same_value:
        differences.append(f"value: {record['value']!r} in the record, {again['value']!r} now")
    found = list(_selection_differences(record["selected"], again["selected"]))
    return RecordCheck(intact, same_explainer, same_model, same_value, not found, (*differences, *found))


FORM: dict[str, Any] = {
    "sha256": str,
    "target": str,
    "value_source": str,
    "value": (str, int, float, type(None)),
    "explainer": {"sha256": (str, type(None))},
    "settings": {"k": (int, str), "refine": int},
    "sample": {"number": int, "id": (str, type(None)), "sha256": str},
}
NOTHING = object()
PARTS_OF_UNIT = {
    "unit": str,
    "value": (str, int, float, type(None)),
    "relevance": (int, float),
    "effect": (int, float, type(None)),
    "needed": (bool, type(None)),
}


def _check_form(record: Mapping[str, Any]) -> None:
    """InputError where something is missing in a record, or of another type, that checking it needs."""
    units = record.get("selected")
    if not isinstance(units, list):
        raise _formless("selected")
    for form, part, where in [(FORM, record, ""), *((PARTS_OF_UNIT, unit, "selected.") for unit in units)]:
        _check_part(form, part, where)


def _check_part(form: Mapping[str, Any], part: Any, where: str) -> None:
    for name, wanted in form.items():
        value = part.get(name, NOTHING) if isinstance(part, Mapping) else NOTHING
        if isinstance(wanted, dict):
            _check_part(wanted, value, f"{where}{name}.")
        elif not isinstance(value, wanted):
            raise _formless(where + name)


def _formless(name: str) -> InputError:
    return InputError(
        f"record: {name} is missing or of another type: this is no whole record of format {FORMAT}. Give it as "
        "explanation.record() made it."
    )


def _explained_again(
    record: Mapping[str, Any], explainer: Explainer, X: Any, target: Any, predicted: Any
) -> dict[str, Any]:
    """The record of the same sample, made now."""
    source, settings = explainer._source(X, None), record["settings"]
    place = np.array([_known(record, place_of_sample(record, source), source.n_samples)])
    again: Explanation = explainer.explain(
        containers.rows(X, place),
        record["target"] if target is None else target,
        k=settings["k"],
        predicted=None if predicted is None else containers.rows(predicted, place),
        query=record["value_source"] != "expected",
        refine=settings["refine"],
    )
    return again.record()[0]


def _tagged_again(record: Mapping[str, Any], explainer: SequenceExplainer, X: Any, predicted: Any) -> dict[str, Any]:
    """The same of a sequence."""
    position = position_of(record["target"])
    sequences = read_sequences(X, explainer.splitter, "verify_record")
    digests, wanted = [tokens_digest(tokens) for tokens in sequences], record["sample"]["sha256"]
    place = _known(record, digests.index(wanted) if wanted in digests else None, len(digests))
    again = explainer.explain(
        [sequences[place]],
        (position,),
        k=record["settings"]["k"],
        predicted=None if predicted is None else [list(predicted)[place]],
        query=record["value_source"] != "expected",
    )
    return again.record()[0]


def _known(record: Mapping[str, Any], place: int | None, n_samples: int) -> int:
    """Where among the samples that of a record is, which must be known."""
    if place is None:
        raise InputError(
            f"X holds {n_samples} samples, none of which is that of the record (number {record['sample']['number']}, "
            f"id {record['sample']['id']}); give the sample as it was explained."
        )
    return place


def _same_model(explainer: Explainer) -> bool | None:
    probe: Probe | None = explainer.probe_
    if probe is None or probe.rows is None or probe.outputs is None or explainer.black_box_ is None:
        return None
    X = explainer.input_format_.decode(probe.rows)
    now = as_lists(explainer.black_box_.query(X)[0])
    then = as_lists(probe.outputs)
    return all(_same(a, b) for before, after in zip(then, now, strict=True) for a, b in zip(before, after, strict=True))


def _selection_differences(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[str]:
    names = [[one["unit"] for one in units] for units in (before, after)]
    if names[0] != names[1]:
        return [f"selected: {', '.join(names[0])} in the record, {', '.join(names[1])} now"]
    return [
        f"{field} of {a['unit']}: {a[field]!r} in the record, {b[field]!r} now"
        for a, b in zip(before, after, strict=True)
        for field in ("value", "relevance", "effect", "needed")
        if not _same(a[field], b[field])
    ]


def _same(a: Any, b: Any) -> bool:
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (a, b))
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE) if numbers else bool(a == b)
