"""What the pages of all studies share: Markdown tables and figures, numbers as text, rows by their values."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from studies.frame.study import Row


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def times(ratio: float) -> str:
    """How many times as much, to the digits that mean something."""
    if ratio >= 100:
        return f"{float(f'{ratio:.2g}'):,.0f}"
    return f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}"


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best."""
    for unit, size in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.{1 if seconds < 20 * size else 0}f} {unit}"
    if seconds >= 0.1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.1f} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.{0 if seconds >= 1e-5 else 2}f} µs"


def count(value: float) -> str:
    """A number of rows."""
    return f"{value:,.0f}" if value < 1e6 else f"{value / 1e6:,.1f} M"


def mean(values: Iterable[float]) -> float:
    """Of all values, or not a number if there are none."""
    found = list(values)
    return float(np.mean(found)) if found else math.nan


def prose(text: str) -> str:
    """Text in lines of at most 119 characters."""
    return textwrap.fill(" ".join(text.split()), 119, break_long_words=False, break_on_hyphens=False)


def figure(images: Path, name: str, caption: str) -> str:
    """A figure, and its caption."""
    assert (images / name).exists(), name
    return f"![{caption.split('. ')[0].rstrip('.')}](../images/{name})\n\n{prose(f'*{caption}*')}"


def sections(*parts: str) -> str:
    """Parts with a blank line between them; empty ones are left out."""
    return "\n\n".join(part for part in parts if part) + "\n"


def pick(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def in_order(rows: Iterable[Row], name: str, order: Sequence[str]) -> list[str]:
    """The values that rows have, in a given order."""
    found = {row[name] for row in rows}
    return [value for value in order if value in found]
