"""How do the costs of SOInter grow with features, outputs, selected features, and explained rows?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sointer import SOInter
from studies.frame.apart import apart, peak_gigabytes
from studies.frame.study import Case, Study
from studies.speed.counted import Counted, spent
from studies.speed.ours import quick_tables
from studies.speed.planted import Pairs
from studies.speed.scaling_page import page

N_EXPLAINED = 1000
BUDGET_K = 5000
AXES: dict[str, tuple[int, ...]] = {
    "outputs": (1, 10, 100, 1000),
    "rows": (10, 100, 1000, 10_000, 100_000, 1_000_000),
    "selected": (1, 10, 100, 300),
    "features": (10, 100, 1000, 10_000),
}
"""The case that takes longest comes last."""
QUICK: dict[str, tuple[int, ...]] = {"features": (4, 8), "outputs": (1, 3), "rows": (10, 100)}


def cases(smoke: bool) -> Iterator[Case]:
    for axis, sizes in (QUICK if smoke else AXES).items():
        for size in sizes:
            yield {"axis": axis, "size": size} | ({"quick": True} if smoke else {})


def run(axis: str, size: int, quick: bool = False) -> dict[str, Any]:
    return apart(measure, axis=axis, size=size, quick=quick)


def measure(axis: str, size: int, quick: bool) -> dict[str, Any]:
    """One fit and one call of explain; runs in a process of its own. Only one of the sizes is unusual."""
    sizes = {"features": 1000 if axis == "selected" else 20, "outputs": 5, "selected": 2, "rows": N_EXPLAINED}
    sizes |= {"features": 8, "rows": 50} if quick else {}
    sizes[axis] = size
    planted = Pairs.draw(sizes["features"], sizes["outputs"])
    box, X = Counted(planted), planted.sample(200 if quick else 2000 if sizes["features"] < 50 else 5000, seed=0)
    settings = quick_tables() if quick else {"query_budget": BUDGET_K} if axis == "selected" else {}
    explainer = SOInter(box, k=sizes["selected"], random_state=0, verbose=False, **settings)
    if not quick:
        warm_up()
    fit = spent(box, lambda: explainer.fit(X))
    peak = peak_gigabytes()
    new = planted.sample(sizes["rows"], seed=1)
    kept: list[Any] = []
    explained = spent(box, lambda: kept.append(explainer.explain(new, target=0)))
    selected = np.asarray(kept[0].selected[:N_EXPLAINED])
    return {"fit": fit, "explain": explained, "fit_gigabytes": peak, "found": planted.found(selected, 0)}


def warm_up() -> None:
    """A tiny fit pays for what torch loads when it is first used."""
    planted = Pairs.draw(5, 2)
    SOInter(planted, k=1, random_state=0, verbose=False, **quick_tables()).fit(planted.sample(200, seed=0))


STUDY = Study("scaling", cases, run, page)
