"""Small things that all sections of the page share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from methods import COLOURS
from study import Row

BARS = {10: 0.80, 30: 0.88, 100: 0.95, 300: 0.98}
"""Relative F1 that was asked for, by the number of pixels."""


def table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first line is its head."""
    head, *body = lines
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *body])


def number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def at(values: dict[str, Any], k: int) -> Any:
    """The value for k pixels; results are JSON, whose names are text."""
    return values.get(str(k))


def counts(values: dict[str, Any]) -> list[int]:
    return sorted(int(k) for k in values)


def all_counts(rows: Iterable[Row], name: str = "f1") -> list[int]:
    return sorted({k for row in rows for k in counts(row[name])})


def curve(ax: Axes, values: dict[str, float], method: str, intervals: dict[str, list[float]] | None = None) -> None:
    """A method's line over the numbers of pixels, with its 95 % interval."""
    ks, style = counts(values), COLOURS[method]
    ax.plot(ks, [at(values, k) for k in ks], label=method, markersize=5, **style)
    if intervals is not None:
        low, high = zip(*(at(intervals, k) for k in ks), strict=True)
        ax.fill_between(ks, low, high, color=style["color"], alpha=0.12, linewidth=0)


def log_counts(ax: Axes, ks: Sequence[int], what: str = "selected pixels, K") -> None:
    ax.set_xscale("log")
    ax.set_xticks(ks, [str(k) for k in ks])
    ax.minorticks_off()
    ax.set_xlabel(what)


def figure(images: Path, name: str, caption: str) -> str:
    """A picture and what it shows, in words."""
    assert (images / name).exists(), name
    return f"![{caption.split('. ')[0].rstrip('.')}](../images/{name})\n\n*{caption}*"


def fit_cost(costs: dict[str, Any]) -> str:
    warned = "".join(f' (it warned: "{one}")' for one in costs["warnings"])
    return (
        f"{costs['seconds'] / 60:.1f} minutes with {costs['n_threads']} thread{'s' * (costs['n_threads'] > 1)} "
        f"({costs['cpu_seconds'] / 60:.1f} CPU minutes), {costs['n_queries']:,} questions to the black box, at most "
        f"{costs['peak_gigabytes']:.2f} GB{warned}"
    )


def sections(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def by_other_code(rows: list[Row]) -> str:
    """A word for explainers that were not all fitted by the same code."""
    codes = {row["fit"].get("code") for row in rows if row.get("fit")}
    return ", not all with the same version of the training" if len(codes) > 1 else ""
