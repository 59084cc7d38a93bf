"""What was found, and how it is said in JSON."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import fsum
from os import PathLike
from typing import Any, Literal

import numpy as np
from fastapi import Response
from numpy.typing import NDArray

from sointer._support.files import as_finite
from sointer._support.torch_state import ForkSafeLock
from sointer.apps.serve.request import ExplainRequest, check_size
from sointer.apps.serve.rows import cells_of
from sointer.data.targets import effects_from, effects_on
from sointer.data.text_tables import Record, TextTableFormat
from sointer.data.texts import Documents
from sointer.errors import InputError
from sointer.explainers.base import Explainer
from sointer.explainers.records import make_records
from sointer.explanation import Explanation
from sointer.io.columns import names_in_fit
from sointer.masking.groups import FixedGroups
from sointer.masking.rows import ExplainedRows
from sointer.masking.unit_values import UnitValues, plain, value_kind
from sointer.verification import Verification

MAX_SCORES = 2**22  # numbers that are held at a time while explaining
MAX_BATCH_ROWS = 256
"""An explanation of so many rows takes hardly longer than of one."""
PER_UNIT = ("selected", "scores", "needed", "effects")
COLUMNS = ("sample", "target", "value", "value_source", "rank")


@dataclass(frozen=True, eq=False)
class ExplainResponse:
    """What was selected for each row of a request."""

    selected: NDArray[np.int64]
    """(rows, k) units, best first; -1 for none."""
    scores: NDArray[np.float32]
    """(rows, k) relevance of the selected units."""
    value: list[Any]
    targets: list[str]
    agreement: NDArray[np.float64] | None
    """(rows,) how often the model predicts the same from the selection alone, if it was queried."""
    verdict: NDArray[np.object_] | None
    """(rows,) "confirmed", "unsure" or "refuted", likewise."""
    far: NDArray[np.bool_]
    """(rows,) whether a row is unlike the training data, so that less can be said of it."""
    value_source: str
    """Where `value` comes from: "model", "given" or "expected"."""
    needed: NDArray[np.bool_] | None = None
    """(rows, k) which of the selected units matter, where that is known."""
    effects: NDArray[np.float32] | None = None
    """(rows, k) signed, in the unit of the output, where they are known."""
    base_value: NDArray[np.float32] | None = None
    """(rows,) what the output is on average, from which effects lead away."""
    total: NDArray[np.float64] | None = None
    """(rows,) the sum of the effects of all units, selected or not."""
    locality: NDArray[np.int64] | None = None
    records: list[dict[str, Any]] | None = None
    """What `Explanation.record` says of each row, if it was asked for."""

    def part(self, rows: slice, k: int | Literal["auto"]) -> ExplainResponse:
        """The response for a subset of the rows: the best k are the first k of a longer list."""
        fields: dict[str, Any] = {
            name: value[rows] for name, value in vars(self).items() if value is not None and name != "value_source"
        }
        if k != "auto":
            fields |= {name: fields[name][:, :k] for name in PER_UNIT if name in fields}
        return replace(self, **fields)


class RecordLog:
    """A file, for its owner alone, to which the record of every explanation is added before it is given away.

    What a kill or a full disk left of a record ends in a line of its own, so that the next one is whole.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._lock = ForkSafeLock()
        try:
            # Without O_NONBLOCK, a pipe would keep us waiting for its reader.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
            self._handle = os.open(path, flags, 0o600)
            status = os.fstat(self._handle)
        except OSError as error:
            raise InputError(f"cannot write records to {os.fspath(path)}: {error.strerror}.") from None
        if not stat.S_ISREG(status.st_mode):
            os.close(self._handle)
            raise InputError(f"cannot write records to {os.fspath(path)}: it is no ordinary file.")
        self._is_torn = False
        if status.st_size:
            os.lseek(self._handle, -1, os.SEEK_END)
            self._is_torn = os.read(self._handle, 1) != b"\n"

    def add(self, records: list[dict[str, Any]]) -> None:
        """Write records as one piece, and wait until the disk has them."""
        content = memoryview(b"".join(to_bytes(record) + b"\n" for record in records))
        with self._lock:
            content = memoryview(b"\n" + bytes(content)) if self._is_torn else content
            self._is_torn = True
            while content:
                content = content[os.write(self._handle, content) :]
            self._is_torn = False
            os.fsync(self._handle)


def explain_batch(
    explainer: Explainer, requests: Sequence[ExplainRequest], log: RecordLog | None = None
) -> list[ExplainResponse]:
    """The responses to requests that can be joined: the same as for each alone, since rows never mix."""
    first = requests[0]
    source = ExplainedRows.join([request.source for request in requests])
    targets = [target for request in requests for target in request.targets]
    k = first.k if first.k == "auto" else max(request.k for request in requests if request.k != "auto")
    step = max(1, min(MAX_BATCH_ROWS, MAX_SCORES // explainer.groups_.n_units))
    parts = []
    for start in range(0, len(targets), step):
        chunk = np.arange(start, min(start + step, len(targets)))
        rows, of_rows = explainer._with_targets(source.take(chunk), targets[start : start + step])
        explanation = explainer._explain_rows(rows, of_rows, k, query=first.query)
        verification = explanation.verify() if first.verify else None
        response = _to_response(explanation, verification)
        if first.recorded:  # which is alone then
            ids = None if first.ids is None else first.ids[start : start + step]
            response = replace(response, records=make_records(explanation, verification, ids=ids, first=start))
        parts.append(response)
    whole = _concatenate(parts)
    if log is not None and whole.records is not None:
        log.add(whole.records)
    ends = np.cumsum([request.n_rows for request in requests]).tolist()
    responses = [whole.part(slice(end - one.n_rows, end), one.k) for one, end in zip(requests, ends, strict=True)]
    for request, response in zip(requests, responses, strict=True):
        check_size(request.n_rows, int((response.selected >= 0).sum()))
    return responses


def _to_response(explanation: Explanation, verification: Verification | None) -> ExplainResponse:
    selected, effects = explanation.selected, explanation.effects

    def of_selected(array: NDArray[Any]) -> NDArray[Any]:
        return np.where(selected >= 0, np.take_along_axis(array, np.maximum(selected, 0), axis=1), array.dtype.type(0))

    shown = None if effects is None else of_selected(effects)
    return ExplainResponse(
        selected=selected,
        scores=np.take_along_axis(explanation.scores, np.maximum(selected, 0), axis=1),
        value=[plain(value) for value in explanation.value],
        targets=[explanation.output_names[target] for target in explanation.target],
        agreement=None if verification is None else verification.agreement,
        verdict=None if verification is None else verification.verdict,
        far=explanation.far,
        value_source=explanation.value_source,
        needed=None if explanation.needed is None else of_selected(explanation.needed),
        effects=shown,
        base_value=explanation.base_value,
        # Row by row: how numpy sums many depends on how they lie in memory.
        total=None if effects is None else np.array([np.ascontiguousarray(row).sum(dtype=float) for row in effects]),
        locality=explanation.locality,
    )


def _concatenate(parts: Sequence[ExplainResponse]) -> ExplainResponse:
    """The responses to consecutive chunks of rows as one; k="auto" may select fewer units in one of them."""
    width = max(part.selected.shape[1] for part in parts)
    fields: dict[str, Any] = {}
    for name in vars(parts[0]):
        values = [getattr(part, name) for part in parts]
        if any(value is None for value in values):
            fields[name] = None
        elif isinstance(values[0], list):
            fields[name] = list(chain.from_iterable(values))
        elif name in PER_UNIT:
            fill = -1 if name == "selected" else 0
            missing = [((0, 0), (0, width - value.shape[1])) for value in values]
            wide = [np.pad(value, pad, constant_values=fill) for value, pad in zip(values, missing, strict=True)]
            fields[name] = np.concatenate(wide)
        elif name != "value_source":
            fields[name] = np.concatenate(values)
    return replace(parts[0], **fields)


class ResponseWriter:
    """Puts responses into JSON."""

    def __init__(self, explainer: Explainer) -> None:
        self._groups = explainer.groups_
        form = explainer.input_format_
        self._feature_names = list(form.feature_names) if form.has_words else names_in_fit(form)
        self.unit_names = list(explainer.groups_.unit_names)
        self._outputs, self._explainer = explainer.outputs_, explainer
        self._start = effects_from(
            explainer.removal_.name,
            is_text=explainer.has_words,
            is_image=explainer.input_format_.image is not None,
        )
        self._places: dict[str, dict[int, str]] = {}

    def write(self, request: ExplainRequest, response: ExplainResponse) -> bytes:
        """The reply to a request, in its format."""
        rows: Any = response.records
        if request.format != "records":
            rows = self._table(request, response) if request.format == "table" else self._rows(request, response)
        # One by one: as Python objects, all of them would take many times the memory.
        return b'{"%s":[%s]}' % (request.format.encode(), b",".join(map(to_bytes, rows)))

    def _table(self, request: ExplainRequest, response: ExplainResponse) -> Iterator[dict[str, Any]]:
        samples, ranks = np.nonzero(response.selected >= 0)
        unit, source = response.selected[samples, ranks], request.source
        own = None
        if value_kind(source.input_format, source.groups) is not None:
            own = [plain(value) for value in UnitValues(source).own(samples, unit)]
        for place, (sample, rank) in enumerate(zip(samples.tolist(), ranks.tolist(), strict=True)):
            values = response.targets[sample], response.value[sample], response.value_source
            line: dict[str, Any] = dict(zip(COLUMNS, (sample, *values, rank + 1), strict=True))
            line["feature"] = self.unit_names[unit[place]]
            if own is not None:
                line["feature_value"] = own[place]
            line |= _unit_fields(response, sample, rank)
            if response.locality is not None:
                line["locality"] = int(response.locality[sample])
            yield line

    def _rows(self, request: ExplainRequest, response: ExplainResponse) -> Iterator[dict[str, Any]]:
        source = request.source
        X = request.X if source.documents is None else source.data
        for sample in range(request.n_rows):
            cells = {} if source.input_format.image is not None else cells_of(X, sample)
            cells |= self._beside_texts(source, sample)
            units = [int(unit) for unit in response.selected[sample] if unit >= 0]
            # A region has no number of its own.
            number = self._outputs.names.index(response.targets[sample]) if self._outputs.shape is None else 0
            row: dict[str, Any] = {
                "sample": sample,
                "target": response.targets[sample],
                "kind": self._outputs.kinds[number],
                "value": response.value[sample],
                "value_source": response.value_source,
                "far": bool(response.far[sample]),
                "features": [
                    {
                        "name": self.unit_names[unit],
                        "value": self._value(cells, unit),
                        **_unit_fields(response, sample, rank),
                        **self._spans(X, sample, unit),
                    }
                    for rank, unit in enumerate(units)
                ],
            }
            if response.effects is not None and response.base_value is not None and response.total is not None:
                row["effects"] = {
                    "on": effects_on(self._outputs, number, row["value"]),
                    "from": self._start,
                    "base_value": float(response.base_value[sample]),
                    "of_others": float(np.float32(response.total[sample] - fsum(response.effects[sample].tolist()))),
                }
            if response.locality is not None:
                row["locality"] = int(response.locality[sample])
                row["where"] = self._where(row["target"])[row["locality"]]
            if response.agreement is not None and response.verdict is not None:
                row["agreement"] = float(response.agreement[sample])
                row["verdict"] = response.verdict[sample]
            yield row

    def _where(self, target: str) -> dict[int, str]:
        """The conditions of each locality of a target, in words."""
        if target not in self._places:
            found = self._explainer.localities(target)
            self._places[target] = {leaf.number: leaf.where for leaf in found}
        return self._places[target]

    def _spans(self, X: Any, sample: int, unit: int) -> dict[str, Any]:
        """Where a unit of a text stands, in characters; nothing for other rows."""
        if not isinstance(X, Documents) or X.documents is None:
            return {}
        document, form = X.documents[sample], self._explainer.input_format_
        if not isinstance(document, Record) or not isinstance(form, TextTableFormat):
            own = self._groups.unit_of_column[document.columns] == unit
            return {"spans": [list(span) for span, is_own in zip(document.spans, own, strict=True) if is_own]}
        found: dict[str, Any] = {}
        for part, start, label in zip(document.parts, form.piece_starts, form.text_labels, strict=False):
            own = self._groups.unit_of_column[part.columns + start] == unit
            spans = [list(span) for span, is_own in zip(part.spans, own, strict=True) if is_own]
            found |= {str(label): spans} if spans else {}
        return {"spans": found} if found else {}

    def _beside_texts(self, source: ExplainedRows, sample: int) -> dict[int, Any]:
        """Of a table with texts, the values of the other columns by the place of their feature."""
        form = self._explainer.input_format_
        if not isinstance(form, TextTableFormat) or form.table is None:
            return {}
        own = cells_of(form.table.decode(source.data.values[[sample]]), 0)
        return {int(form.piece_starts[-1]) + place: value for place, value in own.items()}

    def _value(self, cells: dict[int, Any], unit: int) -> Any:
        """What the row has in a feature, or in each feature of a group; of pixels, nothing."""
        if not cells or not isinstance(self._groups, FixedGroups):
            return None
        members = self._groups.members[unit].tolist()
        if len(members) == 1:
            return cells.get(members[0], 0)
        return {self._feature_names[member]: cells.get(member, 0) for member in members}


def _unit_fields(response: ExplainResponse, sample: int, rank: int) -> dict[str, Any]:
    """What is known of one selected unit."""
    fields: dict[str, Any] = {"score": float(response.scores[sample, rank])}
    if response.needed is not None:
        fields["needed"] = bool(response.needed[sample, rank])
    if response.effects is not None:
        fields["effect"] = float(response.effects[sample, rank])
    return fields


def to_bytes(content: Any) -> bytes:
    """Compact JSON; numbers that JSON cannot say are null."""
    try:
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(as_finite(content), separators=(",", ":"), allow_nan=False).encode()


def as_json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A reply in JSON."""
    return Response(to_bytes(content), status, headers, media_type="application/json")
