"""How much of the time of a fit is spent waiting for a slow black box?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sointer import SOInter
from sointer.zoo.synthetic import paper_e1
from studies.frame.apart import apart
from studies.frame.markdown import sections, table
from studies.frame.study import Case, Row, Study
from studies.speed.counted import Counted, spent
from studies.speed.ours import quick_tables
from studies.speed.scaling import warm_up

SLOW = 0.010
BAR = 0.90
"""Share of the wall time of fit inside the black box: what is required."""


def cases(smoke: bool) -> Iterator[Case]:
    for seconds in (0.001,) if smoke else (0.0, SLOW):
        yield {"seconds_per_row": seconds} | ({"quick": True} if smoke else {})


def run(seconds_per_row: float, quick: bool = False) -> dict[str, Any]:
    return apart(measure, seconds_per_row=seconds_per_row, quick=quick)


def measure(seconds_per_row: float, quick: bool) -> dict[str, Any]:
    """A fit with every default, of a black box that really sleeps."""
    problem = paper_e1(8 if quick else 20)
    box = Counted(problem, seconds_per_row)
    X = problem.sample(2000, random_state=0)
    if not quick:
        warm_up()
    explainer = SOInter(box, k=4, random_state=0, verbose=False, **(quick_tables() if quick else {}))
    fit = spent(box, lambda: explainer.fit(X))
    return {"fit": fit, "share": fit["inside"] / fit["seconds"]}


# --- the page ----------------------------------------------------------------------------------------------


def page(rows: list[Row], images: Path) -> str:
    lines = [["the black box takes", "queries", "fit, s", "inside the black box, s", "share", "SOInter's own, s"]]
    for row in sorted(rows, key=lambda row: row["seconds_per_row"]):
        fit = row["fit"]
        rest = fit["seconds"] - fit["inside"]
        takes = f"{1000 * row['seconds_per_row']:g} ms per row" if row["seconds_per_row"] else "almost no time"
        costs = [f"{fit['seconds']:.1f}", f"{fit['inside']:.1f}", f"{row['share']:.0%}", f"{rest:.1f}"]
        lines.append([takes, f"{fit['queries']:,.0f}", *costs])
    return sections(
        "## A slow black box is kept busy",
        "A fit on E1 with 20 features and default settings, of a black box that sleeps for every query.",
        table(lines[0], lines[1:]),
    )


STUDY = Study("slow_black_box", cases, run, page)
