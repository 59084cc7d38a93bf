"""Counts that the studies of faults add up over their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from studies.frame.markdown import table
from studies.frame.study import Row


def total(rows: Iterable[Row], names: Iterable[str]) -> Counter[str]:
    """The sum of these counts over all results; what an older one did not count is 0."""
    return sum((Counter({name: row.get(name, 0) for name in names}) for row in rows), Counter[str]())


def count_table(found: Counter[str], names: Iterable[str]) -> str:
    """A table with one line for each of these counts."""
    return table(["", "count"], [[name, f"{found[name]:,}"] for name in names])
