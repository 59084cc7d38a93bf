"""Small things that all sections of the page share."""

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
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def mean(values: Iterable[float]) -> float:
    """Of all values, or not a number if there are none."""
    found = list(values)
    return float(np.mean(found)) if found else math.nan


def prose(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 119, break_long_words=False, break_on_hyphens=False)


def figure(images: Path, name: str, caption: str) -> str:
    """A figure, and its caption."""
    assert (images / name).exists(), name
    return f"![{caption.split('. ')[0].rstrip('.')}](../images/{name})\n\n{prose(f'*{caption}*')}"


def sections(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def pick(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def in_order(rows: Iterable[Row], name: str, order: Sequence[str]) -> list[str]:
    """The values that rows have, in a given order."""
    found = {row[name] for row in rows}
    return [value for value in order if value in found]
