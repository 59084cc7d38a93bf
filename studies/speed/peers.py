"""What do explanations cost, side by side with other packages, on the same black boxes?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from studies.frame.apart import apart, peak_gigabytes
from studies.frame.study import Case, Study
from studies.speed.bare import recorded, replay
from studies.speed.counted import Counted, Spent, each, spent
from studies.speed.ours import OURS, Ours
from studies.speed.packages import PACKAGES, Package
from studies.speed.peers_page import page
from studies.speed.subjects import SUBJECTS, Subject

ALONE = "black box alone"
METHODS = ("SOInter", *PACKAGES, *(method for method in OURS if method != "SOInter"))
SMOKE = {
    "e1-20": [method for method in METHODS[1:] if method != "shap PermutationExplainer"],  # which compiles for long
    "bibtex": ["shap KernelExplainer", "lime"],
    "horses": ["lime", "captum FeatureAblation"],
}
SIZES = (1, 100, 10_000)
N_BARE = 1024
N_OUTPUTS = 16
"""Outputs for which a method that explains several at once is timed; more are scaled up."""
MAX_ROWS, MAX_SECONDS, LONG = 100, 8.0, 60.0
"""A method that asks about every row is timed until so many rows or seconds are reached; the first row, which pays for
what is loaded and compiled when first used, counts only if it takes longer than the last of these."""


def cases(smoke: bool) -> Iterator[Case]:
    if smoke:
        for black_box, methods in SMOKE.items():
            for method in (ALONE, "SOInter", *methods):
                yield {"black_box": black_box, "method": method, "quick": True}
        return
    for black_box in SUBJECTS:
        for method in (ALONE, *METHODS):
            if (black_box, method) != ("horses", "L2X"):  # which is for tables
                yield {"black_box": black_box, "method": method}


def run(black_box: str, method: str, quick: bool = False) -> dict[str, Any]:
    return apart(measure, black_box=black_box, method=method, quick=quick)


def measure(black_box: str, method: str, quick: bool) -> dict[str, Any]:
    """One method on one black box; runs in a process of its own."""
    subject = SUBJECTS[black_box](quick)
    box = Counted(subject.predict)
    subject_row = {"title": subject.title, "n_features": subject.n_players, "n_outputs": subject.n_outputs}
    if method == ALONE:
        return {**subject_row, "calls": bare_calls(box, subject)}
    peer = Ours(method, subject, box, quick) if method in OURS else PACKAGES[method](subject, box)
    fit = spent(box, peer.fit)
    is_trained = isinstance(peer, Ours) and peer.is_trained
    timed = explain_many(peer, subject, box) if is_trained else explain_few(peer, subject, box, quick)
    return {**subject_row, "fit": fit, **timed, "all_outputs": all_outputs(peer, subject, box, timed["each"])}


def bare_calls(box: Counted, subject: Subject) -> dict[str, Spent]:
    """What the black box takes for a row: asked about one at a time, and about 1,024 at once."""
    n = min(1024, subject.rows.shape[0])
    spent(box, lambda: box(subject.rows[:n]))
    single = spent(box, lambda: [box(subject.rows[[i]]) for i in range(min(n, 20))])
    return {"single": each(single, min(n, 20)), "batch": each(spent(box, lambda: box(subject.rows[:n])), n)}


def explain_many(peer: Ours, subject: Subject, box: Counted) -> dict[str, Any]:
    """1, 100 and 10,000 explanations, and the bare forward passes of the most."""

    def explained(n: int) -> Any:
        return peer.explain(range(n), subject.targets[:n])

    sizes = [n for n in SIZES if n <= len(subject.targets)]
    explained(sizes[0])
    costs = {n: spent(box, lambda n=n: explained(n)) for n in sizes}
    found = {"explained": costs, "each": each(costs[sizes[-1]], sizes[-1]), "n_timed": sizes[-1]}
    found["peak_gigabytes"] = peak_gigabytes()  # what follows is not part of explaining
    if hasattr(peer.explainer, "interpreter_"):
        n = min(N_BARE, sizes[-1])
        calls = recorded(lambda: explained(n))
        replay(calls)
        found["bare"] = each(spent(box, lambda: replay(calls)), n)
    return {**found, **right(explained(sizes[1]), subject)}


def explain_few(peer: Ours | Package, subject: Subject, box: Counted, quick: bool) -> dict[str, Any]:
    """Some explanations, one after the other."""
    selected = []

    def one(i: int) -> None:
        selected.append(peer.explain([i], subject.targets[[i]])[0])

    cost = spent(box, lambda: one(0))
    n = 1
    if cost["seconds"] < LONG:
        started, cost, n = time.perf_counter(), dict.fromkeys(cost, 0.0), 0
        while n < (2 if quick else MAX_ROWS) and (time.perf_counter() - started < MAX_SECONDS or n == 0):
            n += 1
            now = spent(box, lambda n=n: one(n))
            cost = {name: cost[name] + now[name] for name in cost}
    return {"each": each(cost, n), "n_timed": n, **right(np.array(selected), subject)}


def all_outputs(peer: Ours | Package, subject: Subject, box: Counted, one: Spent) -> Spent:
    """The cost of explaining all outputs of a row."""
    if not peer.several:  # one at a time, each like the first
        return {name: value * subject.n_outputs for name, value in one.items()}
    trained = isinstance(peer, Ours) and peer.is_trained
    n = subject.n_outputs if trained else min(N_OUTPUTS, subject.n_outputs)
    outputs = np.linspace(0, subject.n_outputs - 1, n).astype(np.int64).tolist()
    first, every = (spent(box, lambda part=part: peer.explain_outputs(1, part)) for part in (outputs[:1], outputs))
    if trained:
        return every
    # All of them are asked about at once, so only the method's own work grows with their number.
    own, own_of_all = (cost["seconds"] - cost["inside"] for cost in (first, every))
    grown = own + max(0.0, own_of_all - own) * (subject.n_outputs - 1) / (n - 1)
    return {**every, "seconds": every["inside"] + grown}


def right(selected: Any, subject: Subject) -> dict[str, Any]:
    """The share of rows in which exactly the features that decide were selected, where that is known."""
    if subject.relevant is None:
        return {}
    return {"exact": float(np.mean([set(row.tolist()) == set(subject.relevant) for row in np.asarray(selected)]))}


STUDY = Study("peers", cases, run, page)
