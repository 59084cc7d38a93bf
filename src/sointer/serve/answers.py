"""What was found, and how it is said in JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sointer import containers
from sointer.base import Explainer
from sointer.distance import unwarned
from sointer.explanation import Explanation
from sointer.groups.fixed import FixedGroups
from sointer.serve.question import Question, joined
from sointer.serve.rows import cells_of, names_in_fit, plain
from sointer.storage.plain_json import as_finite

MOST_SCORES = 2**24  # numbers that are held at a time while explaining
COLUMNS = ("sample", "target", "expected", "rank", "feature", "score")


@dataclass(frozen=True, eq=False)
class Answer:
    """What was selected for each row of a question."""

    selected: NDArray[np.int64]
    """(rows, k) units, best first; -1 for none."""
    scores: NDArray[np.float32]
    """(rows, k) of the selected units."""
    expected: list[Any]
    targets: list[str]
    agreement: NDArray[np.float64] | None
    """(rows,) how often the model said the same on the selection alone, if it was asked."""
    far: NDArray[np.bool_]
    """(rows,) whether a row is unlike the training data, so that less can be said of it."""

    def part(self, rows: slice, k: int | Literal["auto"]) -> Answer:
        """The answer for some of the rows: the best k are the first k of a longer list."""
        best = slice(None) if k == "auto" else slice(k)
        agreement = None if self.agreement is None else self.agreement[rows]
        told = self.selected[rows, best], self.scores[rows, best], self.expected[rows], self.targets[rows]
        return Answer(*told, agreement, self.far[rows])


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
        with unwarned():  # each row says it of itself
            parts.append(_answer(explainer.explain(rows, targets[some], k=k), first.verify))
    whole = parts[0] if len(parts) == 1 else _stacked(parts)
    ends = np.cumsum([question.n_rows for question in questions]).tolist()
    return [whole.part(slice(end - q.n_rows, end), q.k) for q, end in zip(questions, ends, strict=True)]


def _rows(X: Any, span: slice) -> Any:
    return X.iloc[span] if containers.is_frame(X) else X[span]


def _answer(explanation: Explanation, verify: bool) -> Answer:
    selected = explanation.selected
    return Answer(
        selected,
        np.take_along_axis(explanation.scores, np.maximum(selected, 0), axis=1),
        [plain(value) for value in explanation.expected],
        [explanation.output_names[target] for target in explanation.target],
        explanation.verify().agreement if verify else None,
        explanation.far,
    )


def _stacked(parts: Sequence[Answer]) -> Answer:
    width = max(part.selected.shape[1] for part in parts)  # k="auto" may select fewer in some

    def wide(array: NDArray[Any], fill: Any) -> NDArray[Any]:
        return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=fill)

    agreement = [part.agreement for part in parts if part.agreement is not None]
    return Answer(
        np.concatenate([wide(part.selected, -1) for part in parts]),
        np.concatenate([wide(part.scores, 0) for part in parts]),
        [value for part in parts for value in part.expected],
        [target for part in parts for target in part.targets],
        np.concatenate(agreement) if agreement else None,
        np.concatenate([part.far for part in parts]),
    )


class Writer:
    """Puts answers into JSON."""

    def __init__(self, explainer: Explainer) -> None:
        self._groups = explainer.groups_
        self._feature_names = names_in_fit(explainer.input_format_)
        self._count = None if explainer.text_ is None else explainer.text_.count
        self.unit_names = list(explainer.groups_.unit_names)

    def write(self, question: Question, answer: Answer) -> bytes:
        """The reply to a question, in the format that it asked for."""
        rows = self._table(answer) if question.format == "table" else self._rows(question, answer)
        return to_bytes({question.format: rows})

    def _table(self, answer: Answer) -> list[dict[str, Any]]:
        table = []
        for sample, rank in zip(*np.nonzero(answer.selected >= 0), strict=True):
            feature, score = self.unit_names[answer.selected[sample, rank]], float(answer.scores[sample, rank])
            values = (int(sample), answer.targets[sample], answer.expected[sample], int(rank) + 1, feature, score)
            table.append(dict(zip(COLUMNS, values, strict=True)))
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
                "expected": answer.expected[sample],
                "far": bool(answer.far[sample]),
                "features": [
                    {"name": self.unit_names[unit], "value": self._value(cells, unit), "score": float(score)}
                    for unit, score in zip(units, answer.scores[sample], strict=False)
                ],
            }
            if answer.agreement is not None:
                row["agreement"] = float(answer.agreement[sample])
            rows.append(row)
        return rows

    def _value(self, cells: dict[int, Any], unit: int) -> Any:
        """What the row has in a feature, or in each feature of a group; of pixels, nothing."""
        if not cells or not isinstance(self._groups, FixedGroups):
            return None
        members = self._groups.members[unit].tolist()
        if len(members) == 1:
            return cells.get(members[0], 0)
        return {self._feature_names[member]: cells.get(member, 0) for member in members}


def to_bytes(content: Any) -> bytes:
    """Compact JSON; numbers that JSON cannot say are null."""
    try:
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(as_finite(content), separators=(",", ":"), allow_nan=False).encode()
