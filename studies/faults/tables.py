"""Small things that all sections of the page share."""

from __future__ import annotations

from collections.abc import Sequence


def table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first line is its head."""
    head, *body = lines
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *body])


def sections(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"
