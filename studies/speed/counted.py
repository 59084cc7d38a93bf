"""A black box that counts what it is asked and how long it takes to answer, and a clock that reads it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Spent = dict[str, float]
"""`seconds` in all, of these `inside` the black box, and `queries`: the rows that it was asked about."""


class Counted:
    """Rows to outputs, counted; if wanted, it sleeps for every row, as a slow model would."""

    def __init__(self, answer: Callable[[Any], Any], seconds_per_row: float = 0.0) -> None:
        self.answer = answer  # called predict, it would be taken for a model's own and asked without being counted
        self.seconds_per_row = seconds_per_row
        self.queries = 0
        self.inside = 0.0

    def __call__(self, rows: Any) -> Any:
        started = time.perf_counter()
        answers = self.answer(rows)
        if self.seconds_per_row:
            time.sleep(self.seconds_per_row * rows.shape[0])
        self.inside += time.perf_counter() - started
        self.queries += rows.shape[0]
        return answers


def spent(box: Counted, work: Callable[[], object]) -> Spent:
    """What some work costs."""
    inside, queries, started = box.inside, box.queries, time.perf_counter()
    work()
    return {
        "seconds": time.perf_counter() - started,
        "inside": box.inside - inside,
        "queries": box.queries - queries,
    }


def each(cost: Spent, n: int) -> Spent:
    """The cost of one of n equal pieces of work."""
    return {name: value / n for name, value in cost.items()}
