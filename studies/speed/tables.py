"""Small things that all sections of the page share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path


def table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first line is its head."""
    head, *body = lines
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *body])


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


def figure(images: Path, name: str, caption: str) -> str:
    """A picture and what it shows, in words."""
    assert (images / name).exists(), name
    return f"![{caption.split('. ')[0].rstrip('.')}](../images/{name})\n\n*{caption}*"


def sections(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
