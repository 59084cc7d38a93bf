"""What was found, and how it is said in JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sointer._support import containers
from sointer._support.strict_json import as_finite
from sointer.apps.serve.request import Question, joined
from sointer.apps.serve.rows import cells_of, names_in_fit, plain
from sointer.data.values import effects_from, effects_on
from sointer.explainers.base import Explainer
from sointer.explainers.novelty import unwarned
from sointer.explanation import Explanation
from sointer.masking.groups import FixedGroups

MOST_SCORES = 2**24  # numbers that are held at a time while explaining
COLUMNS = ("sample", "target", "value", "value_source", "rank", "feature")


@dataclass(frozen=True, eq=False)
class Answer:
    """What was selected for each row of a question."""

    selected: NDArray[np.int64]
    """(rows, k) units, best first; -1 for none."""
    scores: NDArray[np.float32]
    """(rows, k) relevance of the selected units."""
    value: list[Any]
    targets: list[str]
    agreement: NDArray[np.float64] | None
    """(rows,) how often the model said the same on the selection alone, if it was asked."""
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

    def part(self, rows: slice, k: int | Literal["auto"]) -> Answer:
        """The answer for some of the rows: the best k are the first k of a longer list."""
        best = slice(None) if k == "auto" else slice(k)
        others = None if self.others is None else self.others[rows]
        if self.effects is not None and others is not None and k != "auto":
            others = others + self.effects[rows, k:].sum(axis=1)
        return Answer(
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


def explain_together(explainer: Explainer, questions: Sequence[Question]) -> list[Answer]:
    """The answers to questions that go with each other: as if each were asked alone, since rows never mix."""
    first = questions[0]
    X = joined([question.X for question in questions])
    targets = [target for question in questions for target in question.targets]
    k = first.k if first.k == "auto" else max(question.k for question in questions if question.k != "auto")
    step = max(1, MOST_SCORES // explainer.groups_.n_units)
    parts = []
    for start in range(0, len(targets), step):
        some = slice(start, start + step)
        rows = X if step >= len(targets) else _rows(X, some)
        predicted = None if first.predicted is None else first.predicted[some]  # then it is the only question
        with unwarned():  # each row says it of itself
            found = explainer.explain(rows, targets[some], k=k, predicted=predicted, query=first.query)
        parts.append(_answer(found, first.verify))
    whole = parts[0] if len(parts) == 1 else _stacked(parts)
    ends = np.cumsum([question.n_rows for question in questions]).tolist()
    return [whole.part(slice(end - q.n_rows, end), q.k) for q, end in zip(questions, ends, strict=True)]


def _rows(X: Any, span: slice) -> Any:
    return X.iloc[span] if containers.is_frame(X) else X[span]


def _answer(explanation: Explanation, verify: bool) -> Answer:
    selected, effects = explanation.selected, explanation.effects

    def of_selected(array: NDArray[Any]) -> NDArray[Any]:
        return np.where(selected >= 0, np.take_along_axis(array, np.maximum(selected, 0), axis=1), array.dtype.type(0))

    shown = None if effects is None else of_selected(effects)
    return Answer(
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


def _stacked(parts: Sequence[Answer]) -> Answer:
    width = max(part.selected.shape[1] for part in parts)  # k="auto" may select fewer in some

    def wide(array: NDArray[Any], fill: Any) -> NDArray[Any]:
        return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=fill)

    def joined(name: str, *, is_wide: bool) -> NDArray[Any] | None:
        arrays = [getattr(part, name) for part in parts]
        if any(array is None for array in arrays):
            return None
        return np.concatenate([wide(array, 0) if is_wide else array for array in arrays])

    return Answer(
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
    """Puts answers into JSON."""

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

    def write(self, question: Question, answer: Answer) -> bytes:
        """The reply to a question, in the format that it asked for."""
        rows = self._table(answer) if question.format == "table" else self._rows(question, answer)
        return to_bytes({question.format: rows})

    def _table(self, answer: Answer) -> list[dict[str, Any]]:
        table = []
        for sample, rank in zip(*np.nonzero(answer.selected >= 0), strict=True):
            feature = self.unit_names[answer.selected[sample, rank]]
            said = answer.targets[sample], answer.value[sample], answer.value_source
            line: dict[str, Any] = dict(zip(COLUMNS, (int(sample), *said, int(rank) + 1, feature), strict=True))
            line |= _told(answer, sample, rank)
            if answer.locality is not None:
                line["locality"] = int(answer.locality[sample])
            table.append(line)
        return table

    def _rows(self, question: Question, answer: Answer) -> list[dict[str, Any]]:
        X = question.X
        if isinstance(X, list) and self._count is not None:
            X = self._count(X)
        rows = []
        for sample in range(question.n_rows):
            cells = {} if getattr(X, "ndim", 2) == 4 else cells_of(X, sample)
            units = [int(unit) for unit in answer.selected[sample] if unit >= 0]
            row: dict[str, Any] = {
                "sample": sample,
                "target": answer.targets[sample],
                "value": answer.value[sample],
                "value_source": answer.value_source,
                "far": bool(answer.far[sample]),
                "features": [
                    {"name": self.unit_names[unit], "value": self._value(cells, unit), **_told(answer, sample, rank)}
                    for rank, unit in enumerate(units)
                ],
            }
            if answer.effects is not None and answer.base is not None and answer.others is not None:
                value = answer.value[sample]
                row["effects"] = {
                    "on": effects_on(self._outputs, self._number(answer.targets[sample]), value),
                    "from": self._start,
                    "base_value": float(answer.base[sample]),
                    "of_others": float(answer.others[sample]),
                }
            if answer.locality is not None:
                row["locality"] = int(answer.locality[sample])
                row["where"] = self._where(answer.targets[sample])[row["locality"]]
            if answer.agreement is not None:
                row["agreement"] = float(answer.agreement[sample])
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


def _told(answer: Answer, sample: int, rank: int) -> dict[str, Any]:
    """What is known of one selected unit."""
    told: dict[str, Any] = {"score": float(answer.scores[sample, rank])}
    if answer.needed is not None:
        told["needed"] = bool(answer.needed[sample, rank])
    if answer.effects is not None:
        told["effect"] = float(answer.effects[sample, rank])
    return told


def to_bytes(content: Any) -> bytes:
    """Compact JSON; numbers that JSON cannot say are null."""
    try:
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(as_finite(content), separators=(",", ":"), allow_nan=False).encode()
