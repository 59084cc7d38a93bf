"""The beginning of the page of all faults, and what of it stands on other pages."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from studies.faults.honesty import verdicts_table
from studies.frame.markdown import sections, table
from studies.frame.study import Row

Results = dict[str, list[Row]]


def opening(found: Results) -> str:
    return sections("# Faults", "Made by `make faults`; all numbers from `studies/results/faults`.", verdicts(found))


def inserts(found: Results) -> Iterator[tuple[str, str, str]]:
    """(page of docs, mark, content): the verdicts, and those of the study of honesty."""
    yield "concepts/reliability.md", "faults", verdicts(found)
    if "honesty" in found:
        yield "concepts/trust.md", "honesty", verdicts_table(found["honesty"])


def verdicts(found: Results) -> str:
    """What every study did, and what held."""
    lines = [import_module(f"studies.faults.{name}").verdict(rows) for name, rows in found.items()]
    return table(["faults", "what held"], lines)
