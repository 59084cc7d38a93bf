"""The section on how the costs of SOInter grow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from studies.frame.drawing import finish, legend_below
from studies.frame.markdown import count, duration, figure, number, sections, table, times
from studies.frame.study import Row

D_BAR = 10
"""Times the fit for one output that the fit for 1,000 may cost: what is required."""
NAMES = {
    "features": "features",
    "outputs": "outputs",
    "selected": "selected features, k",
    "rows": "explained rows",
}
LINES: dict[str, dict[str, Any]] = {
    "fit": {"color": "#d55e00", "marker": "o", "label": "fit"},
    "explain": {"color": "#0072b2", "marker": "s", "label": "explain"},
}


def page(rows: list[Row], images: Path) -> str:
    axes = {axis: along(rows, axis) for axis in NAMES if along(rows, axis)}
    draw(axes, images / "bench-scaling.png")
    return sections(
        "## How costs grow",
        figure(
            images,
            "bench-scaling.png",
            "Time (above) and peak memory (below) of SOInter against size. The numbers in the legends are slopes: 1 "
            "means twice the cost for twice the size. The dotted line is the black box's share of the fit.",
        ),
        "Every output of this black box depends on two features of its own and takes almost no time to compute. "
        "Unless varied: 20 features, 5 outputs, 2 selected features, 1,000 explained rows, and the default number "
        "of queries (250 per feature, at least 5,000 and at most 50,000). Where k varies, fits have 1,000 features "
        "and 5,000 queries. Explaining sends no queries.",
        *(table_of(axis, found) for axis, found in axes.items()),
    )


def along(rows: list[Row], axis: str) -> list[Row]:
    return sorted((row for row in rows if row["axis"] == axis), key=lambda row: row["size"])


def slope(found: list[Row], work: str) -> float | None:
    """Of a straight line through the costs, both on logarithmic scales."""
    if len(found) < 2:
        return None
    sizes, seconds = (
        np.log([of(row) for row in found]) for of in (lambda row: row["size"], lambda r: r[work]["seconds"])
    )
    return float(np.polyfit(sizes, seconds, 1)[0])


def growth(found: list[Row], work: str = "fit") -> float:
    """How many times the cost at the smallest size that at the largest is."""
    return float(found[-1][work]["seconds"] / found[0][work]["seconds"])


def works(axis: str) -> tuple[str, ...]:
    return ("explain",) if axis == "rows" else ("fit", "explain")


def draw(axes: dict[str, list[Row]], path: Path) -> None:
    drawing, panels = plt.subplots(2, len(axes), figsize=(3.4 * len(axes), 5.6), layout="constrained", squeeze=False)
    for (above, below), (axis, found) in zip(panels.T, axes.items(), strict=True):
        sizes = [row["size"] for row in found]
        for work in works(axis):
            style = {**LINES[work], "label": f"{LINES[work]['label']}: {number(slope(found, work))}"}
            above.plot(sizes, [row[work]["seconds"] for row in found], markersize=5, **style)
        if axis != "rows":
            inside = [max(row["fit"]["inside"], 1e-3) for row in found]
            above.plot(sizes, inside, color="#d55e00", linestyle=":", linewidth=1.2)
            below.plot(sizes, [row["fit_gigabytes"] for row in found], markersize=5, **LINES["fit"])
        below.plot(sizes, [row["peak_gigabytes"] for row in found], markersize=5, **LINES["explain"])
        above.set(xscale="log", yscale="log", ylabel="seconds")
        above.legend(frameon=False, fontsize=8)
        below.set(xscale="log", xlabel=NAMES[axis], ylabel="peak memory, GB")
        below.set_ylim(bottom=0)
    legend_below(drawing, panels[1, 0], columns=2)
    finish(drawing, path)


def table_of(axis: str, found: list[Row]) -> str:
    head = [NAMES[axis], "fit", "inside the black box", "queries", "explain", "rows per second"]
    lines = [[*head, "peak of fit, GB", "peak, GB", "both relevant features ranked first"]]
    for row in found:
        n_rows = row["size"] if axis == "rows" else 1000
        fit = [duration(row["fit"]["seconds"]), duration(row["fit"]["inside"]), count(row["fit"]["queries"])]
        seconds = row["explain"]["seconds"]
        memory = [f"{row[name]:.2f}" for name in ("fit_gigabytes", "peak_gigabytes")]
        lines.append(
            [f"{row['size']:,}", *fit, duration(seconds), count(n_rows / seconds), *memory, f"{row['found']:.0%}"]
        )
    growths = [f"{work} {times(growth(found, work))} x (slope {number(slope(found, work))})" for work in works(axis)]
    ends = f"From {found[0]['size']:,} to {found[-1]['size']:,} {NAMES[axis]}: {', '.join(growths)}."
    return f"### {NAMES[axis].capitalize()}\n\n{table(lines[0], lines[1:])}\n\n{ends}"
