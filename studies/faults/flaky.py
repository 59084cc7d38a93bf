"""What does fit make of a black box that fails, hangs, or answers nonsense now and then?"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer import BlackBox, SOInter
from sointer.errors import SointerError
from sointer.metrics.ground_truth import exact_match
from sointer.zoo.synthetic import paper_e1
from studies.frame.markdown import sections, table
from studies.frame.study import Case, Row, Study

FAULTS = {
    "raises": "raises an error",
    "hangs": "hangs for longer than the time-out",
    "nan": "returns NaN",
    "short": "returns too few rows",
    "lies": "returns other answers than before",
}
SHARES = (0.01, 0.1, 0.5)
N_FEATURES, N_QUERIES, BATCH, RETRIES = 10, 3000, 16, 20
TIMEOUT = 2.0  # seconds


def cases(smoke: bool) -> Iterator[Case]:
    if smoke:
        yield {"fault": "raises", "share": 0.1, "seed": 0, "n_queries": 320}
        return
    for seed in range(3):
        for fault in FAULTS:
            for share in SHARES:
                if not (fault == "hangs" and share > 0.01):  # each hang costs its time-out
                    yield {"fault": fault, "share": share, "seed": seed, "n_queries": N_QUERIES}


class Spoiled:
    """A good model of which a share of the calls, drawn at random, goes wrong."""

    def __init__(self, model: Any, fault: str, share: float, seed: int) -> None:
        self.model, self.fault, self.share = model, fault, share
        self.rng = np.random.default_rng(seed)
        self.n_spoiled = 0
        self.end = threading.Event()

    def __call__(self, X: NDArray[np.float64]) -> Any:
        answers = np.asarray(self.model(X))
        if self.rng.random() >= self.share:
            return answers
        self.n_spoiled += 1
        if self.fault == "raises":
            raise ConnectionError("the model is away")
        if self.fault == "hangs":
            self.end.wait(60)
        if self.fault == "nan":
            return np.full(answers.shape, np.nan)
        if self.fault == "short":
            return answers[:-1]
        return self.rng.permutation(answers)  # lies


def run(fault: str, share: float, seed: int, n_queries: int) -> dict[str, Any]:
    """Fit to the spoiled model, and compare with a fit to the good one."""
    problem = paper_e1(N_FEATURES)
    spoiled = Spoiled(problem, fault, share, seed)
    box = BlackBox(spoiled, batch_size=BATCH, retries=RETRIES, timeout=TIMEOUT if fault == "hangs" else None)
    started = time.perf_counter()
    names: list[str] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            explainer = fitted(box, seed, n_queries)
        names = sorted({type(warning.message).__name__ for warning in caught})
    except SointerError as error:
        return {"succeeded": False, "error": str(error)}
    finally:
        spoiled.end.set()
    clean = clean_fit(seed, n_queries)
    rows = problem.sample(1000, random_state=1000 + seed)
    same = all(
        np.array_equal(explainer.explain(rows, t).scores, clean.explain(rows, t).scores) for t in problem.targets
    )
    return {
        "succeeded": True,
        "identical": bool(same),
        "exact_match": quality(explainer, problem, rows),
        "exact_match_clean": quality(clean, problem, rows),
        "n_spoiled": spoiled.n_spoiled,
        "n_failures": box.n_failures,
        "n_asked": explainer.n_queries_,
        "warnings": names,
        "fit_seconds": round(time.perf_counter() - started, 1),
    }


def fitted(model: Any, seed: int, n_queries: int) -> SOInter:
    rows = paper_e1(N_FEATURES).sample(1000, random_state=seed)
    return SOInter(model, k=4, query_budget=n_queries, random_state=seed, verbose=False).fit(rows)


@cache
def clean_fit(seed: int, n_queries: int) -> SOInter:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fitted(BlackBox(paper_e1(N_FEATURES), batch_size=BATCH), seed, n_queries)


def quality(explainer: SOInter, problem: Any, rows: NDArray[np.float64]) -> float:
    """Share of rows whose relevant features are found, over the targets."""
    found = [exact_match(explainer.explain(rows, t).mask, problem.relevant_rows(rows, t)) for t in problem.targets]
    return round(float(np.mean(found)), 4)


# --- the page ----------------------------------------------------------------------------------------------


def verdict(rows: list[Row]) -> tuple[str, str]:
    """At ten per cent: the share that users must be able to count on."""
    loud = [row for row in rows if row["share"] == 0.1 and row["fault"] != "lies"]
    good = [row for row in loud if row["succeeded"]]
    counted = sum(row["n_failures"] == row["n_spoiled"] for row in good)
    return (
        "10 % of black-box calls failing",
        f"{len(good)} of {len(loud)} fits succeed, {sum(row['identical'] for row in good)} identical to the fit "
        f"without failures; every failure counted in {counted} of {len(good)}",
    )


def page(rows: list[Row], images: Path) -> str:
    lines = [["a call", "of calls", "fits that succeed", "identical to clean", "exact match", "clean", "all counted"]]
    for fault, name in FAULTS.items():
        for share in SHARES:
            subset = [row for row in rows if (row["fault"], row["share"]) == (fault, share)]
            good = [row for row in subset if row["succeeded"]]
            if not subset:
                continue
            mean = {
                key: np.mean([row[key] for row in good] or [np.nan]) for key in ("exact_match", "exact_match_clean")
            }
            counted = "cannot be seen" if fault == "lies" else f"{sum(r['n_failures'] == r['n_spoiled'] for r in good)}"
            lines.append(
                [
                    name,
                    f"{share:.0%}",
                    f"{len(good)} of {len(subset)}",
                    f"{sum(row['identical'] for row in good)}",
                    f"{mean['exact_match']:.3f}",
                    f"{mean['exact_match_clean']:.3f}",
                    counted,
                ]
            )
    warned = sum(name == "UnstableBlackBoxWarning" for row in rows for name in row.get("warnings", ()))
    return sections(
        "## A black box that fails",
        f"Fits of {N_QUERIES:,} queries, {BATCH} at a time, on E1 with {N_FEATURES} features; a random share of the "
        f"calls fails and is retried up to {RETRIES} times. Random outputs cannot be distinguished from "
        "valid ones, but fit queries some rows twice and warns if the outputs differ (it did in "
        f"{warned} of {sum(row['fault'] == 'lies' for row in rows)} fits of such a model).",
        table(lines[0], lines[1:]),
    )


STUDY = Study("flaky", cases, run, page)
