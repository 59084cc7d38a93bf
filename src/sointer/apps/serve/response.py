"""What was found, and how it is said in JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from fastapi import Response
from numpy.typing import NDArray

from sointer._support import containers
from sointer._support.strict_json import as_finite
from sointer.apps.serve.request import ExplainRequest, joined
from sointer.apps.serve.rows import cells_of, names_in_fit, plain
from sointer.data.values import effects_from, effects_on
from sointer.explainers.base import Explainer
from sointer.explainers.novelty import unwarned
from sointer.explanation import Explanation
from sointer.masking.groups import FixedGroups

MAX_SCORES = 2**24  # numbers that are held at a time while explaining
COLUMNS = ("sample", "target", "value", "value_source", "rank", "feature")


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
    """(rows,) how often the model said the same on the selection alone, if it was queried."""
    far: NDArray[np.bool_]
    """(rows,) whether a row is unlike the training data, so that less can be said of it."""
    value_source: str
    """Where `value` comes from: "model", "given" or "expected"."""
    needed: NDArray[np.bool_] | None = None
    """(rows, k) which of the selected units matter, where that is known."""
    effects: NDArray[np.float32] | None = None
    """(rows, k) signed, in the unit of the output, where they are known."""
    base: NDArray[np.float32] | None = None
    """(rows,) what the output is on average, from which effects lead away."""
    others: NDArray[np.float32] | None = None
    """(rows,) the sum of the effects of all units that are not selected."""
    locality: NDArray[np.int64] | None = None

    def part(self, rows: slice, k: int | Literal["auto"]) -> ExplainResponse:
        """The response for a subset of the rows: the best k are the first k of a longer list."""
        best = slice(None) if k == "auto" else slice(k)
        others = None if self.others is None else self.others[rows]
        if self.effects is not None and others is not None and k != "auto":
            others = others + self.effects[rows, k:].sum(axis=1)
        return ExplainResponse(
            self.selected[rows, best],
            self.scores[rows, best],
            self.value[rows],
            self.targets[rows],
            None if self.agreement is None else self.agreement[rows],
            self.far[rows],
            self.value_source,
            None if self.needed is None else self.needed[rows, best],
            None if self.effects is None else self.effects[rows, best],
            None if self.base is None else self.base[rows],
            others,
            None if self.locality is None else self.locality[rows],
        )


def explain_batch(explainer: Explainer, requests: Sequence[ExplainRequest]) -> list[ExplainResponse]:
    """The responses to requests that can be joined: the same as for each alone, since rows never mix."""
    first = requests[0]
    X = joined([request.X for request in requests])
    targets = [target for request in requests for target in request.targets]
    k = first.k if first.k == "auto" else max(request.k for request in requests if request.k != "auto")
    step = max(1, MAX_SCORES // explainer.groups_.n_units)
    parts = []
    for start in range(0, len(targets), step):
        chunk = slice(start, start + step)
        rows = X if step >= len(targets) else _rows(X, chunk)
        predicted = None if first.predicted is None else first.predicted[chunk]  # then it is the only request
        with unwarned():  # each row says it of itself
            found = explainer.explain(rows, targets[chunk], k=k, predicted=predicted, query=first.query)
        parts.append(_to_response(found, first.verify))
    whole = parts[0] if len(parts) == 1 else _stacked(parts)
    ends = np.cumsum([request.n_rows for request in requests]).tolist()
    return [whole.part(slice(end - q.n_rows, end), q.k) for q, end in zip(requests, ends, strict=True)]


def _rows(X: Any, span: slice) -> Any:
    return X.iloc[span] if containers.is_frame(X) else X[span]


def _to_response(explanation: Explanation, verify: bool) -> ExplainResponse:
    selected, effects = explanation.selected, explanation.effects

    def of_selected(array: NDArray[Any]) -> NDArray[Any]:
        return np.where(selected >= 0, np.take_along_axis(array, np.maximum(selected, 0), axis=1), array.dtype.type(0))

    shown = None if effects is None else of_selected(effects)
    return ExplainResponse(
        selected,
        np.take_along_axis(explanation.scores, np.maximum(selected, 0), axis=1),
        [plain(value) for value in explanation.value],
        [explanation.output_names[target] for target in explanation.target],
        explanation.verify().agreement if verify else None,
        explanation.far,
        explanation.value_source,
        None if explanation.needed is None else of_selected(explanation.needed),
        shown,
        explanation.base_value,
        None if effects is None or shown is None else effects.sum(axis=1) - shown.sum(axis=1),
        explanation.locality,
    )


def _stacked(parts: Sequence[ExplainResponse]) -> ExplainResponse:
    width = max(part.selected.shape[1] for part in parts)  # k="auto" may select fewer in one

    def wide(array: NDArray[Any], fill: Any) -> NDArray[Any]:
        return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=fill)

    def joined(name: str, *, is_wide: bool) -> NDArray[Any] | None:
        arrays = [getattr(part, name) for part in parts]
        if any(array is None for array in arrays):
            return None
        return np.concatenate([wide(array, 0) if is_wide else array for array in arrays])

    return ExplainResponse(
        np.concatenate([wide(part.selected, -1) for part in parts]),
        np.concatenate([wide(part.scores, 0) for part in parts]),
        [value for part in parts for value in part.value],
        [target for part in parts for target in part.targets],
        joined("agreement", is_wide=False),
        np.concatenate([part.far for part in parts]),
        parts[0].value_source,
        joined("needed", is_wide=True),
        joined("effects", is_wide=True),
        joined("base", is_wide=False),
        joined("others", is_wide=False),
        joined("locality", is_wide=False),
    )


class Writer:
    """Puts responses into JSON."""

    def __init__(self, explainer: Explainer) -> None:
        self._groups = explainer.groups_
        self._feature_names = names_in_fit(explainer.input_format_)
        self._count = None if explainer.text_ is None else explainer.text_.count
        self.unit_names = list(explainer.groups_.unit_names)
        self._outputs, self._explainer = explainer.outputs_, explainer
        self._start = effects_from(
            explainer.removal_.name,
            is_text=explainer.text_ is not None,
            is_image=explainer.input_format_.image is not None,
        )
        self._places: dict[str, dict[int, str]] = {}

    def write(self, request: ExplainRequest, response: ExplainResponse) -> bytes:
        """The reply to a request, in its format."""
        rows = self._table(response) if request.format == "table" else self._rows(request, response)
        return to_bytes({request.format: rows})

    def _table(self, response: ExplainResponse) -> list[dict[str, Any]]:
        table = []
        for sample, rank in zip(*np.nonzero(response.selected >= 0), strict=True):
            feature = self.unit_names[response.selected[sample, rank]]
            values = response.targets[sample], response.value[sample], response.value_source
            line: dict[str, Any] = dict(zip(COLUMNS, (int(sample), *values, int(rank) + 1, feature), strict=True))
            line |= _unit_fields(response, sample, rank)
            if response.locality is not None:
                line["locality"] = int(response.locality[sample])
            table.append(line)
        return table

    def _rows(self, request: ExplainRequest, response: ExplainResponse) -> list[dict[str, Any]]:
        X = request.X
        if isinstance(X, list) and self._count is not None:
            X = self._count(X)
        rows = []
        for sample in range(request.n_rows):
            cells = {} if getattr(X, "ndim", 2) == 4 else cells_of(X, sample)
            units = [int(unit) for unit in response.selected[sample] if unit >= 0]
            row: dict[str, Any] = {
                "sample": sample,
                "target": response.targets[sample],
                "value": response.value[sample],
                "value_source": response.value_source,
                "far": bool(response.far[sample]),
                "features": [
                    {
                        "name": self.unit_names[unit],
                        "value": self._value(cells, unit),
                        **_unit_fields(response, sample, rank),
                    }
                    for rank, unit in enumerate(units)
                ],
            }
            if response.effects is not None and response.base is not None and response.others is not None:
                value = response.value[sample]
                row["effects"] = {
                    "on": effects_on(self._outputs, self._number(response.targets[sample]), value),
                    "from": self._start,
                    "base_value": float(response.base[sample]),
                    "of_others": float(response.others[sample]),
                }
            if response.locality is not None:
                row["locality"] = int(response.locality[sample])
                row["where"] = self._where(response.targets[sample])[row["locality"]]
            if response.agreement is not None:
                row["agreement"] = float(response.agreement[sample])
            rows.append(row)
        return rows

    def _number(self, target: str) -> int:
        """An output's number; a region has none of its own."""
        names = self._outputs.names
        return names.index(target) if self._outputs.shape is None else 0

    def _where(self, target: str) -> dict[int, str]:
        """The conditions of each locality of a target, in words."""
        if target not in self._places:
            found = self._explainer.localities(target)
            self._places[target] = {leaf.number: leaf.where for leaf in found}
        return self._places[target]

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
