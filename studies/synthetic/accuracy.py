"""Does each method find the planted features of the paper's energies, whatever the number of features?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from sointer import SOInter, TrainingConfig
from sointer.explainers.baselines.base import Random
from sointer.explainers.baselines.l2x import L2X
from sointer.explainers.baselines.lime_and_shap import KernelShap, Lime, ShapleySampling
from sointer.metrics.ground_truth import exact_match, median_rank
from sointer.zoo.problem import Problem
from studies.frame.study import Case, Study
from studies.synthetic.accuracy_page import SIZES, page
from studies.synthetic.black_boxes import agreement, changes_by_feature, planted, with_spen

LARGE = (50, 100, 500, 1000)
SEEDS = range(20, 25)
N_TEST_ROWS = 1000
N_ROW_BY_ROW = 100
"""Rows explained by methods that ask the black box about every row."""
N_PACKAGED = 30
"""Rows explained by KernelShap as packaged, which asks some 200,000 times about each."""
ROW_BY_ROW = ("KernelShap", "Lime", "ShapleySampling", "KernelShap, as packaged", "Lime, as packaged")
QUICK: dict[str, dict[str, Any]] = {
    "default": {"training": TrainingConfig(n_epochs=4)},
    "paper": {"training": TrainingConfig(n_rounds=2, n_pretraining_steps=20)},
}
"""The smoke setting's training, good for nothing but to see that all of it runs."""


def cases(smoke: bool) -> Iterator[Case]:
    if smoke:
        for method in ("SOInter", "L2X", "KernelShap", "Random"):
            yield case("e1", 5, "spen" if method == "SOInter" else "minimiser", method, 0, budget=600)
        return
    problems = ("e1", "e2")
    quick = ("KernelShap", "Lime", "ShapleySampling", "Random")
    slow = ("L2X", "SOInter-1", "KernelShap, as packaged", "Lime, as packaged", "SOInter, paper preset")
    large = ("L2X", "KernelShap", "Lime", "ShapleySampling")
    yield from grid(problems, SIZES, ("minimiser",), ("SOInter", *quick), SEEDS)
    # Seed by seed: what is left unfinished has fewer seeds, not fewer panels.
    for seeds in (SEEDS[:1], SEEDS[1:2], SEEDS[2:3], SEEDS[3:]):
        yield from grid(problems, LARGE[:2], ("minimiser",), ("SOInter",), seeds)
        yield from grid(problems, SIZES, ("spen",), ("SOInter", *quick), seeds)
        yield from grid(problems, LARGE[2:], ("minimiser",), ("SOInter",), seeds)
        yield from grid(problems, SIZES, ("minimiser",), slow, seeds)
        yield from grid(problems, LARGE[:2], ("minimiser",), large, seeds)
        yield from grid(problems, SIZES, ("spen",), slow, seeds)
        yield from grid(problems, LARGE[2:], ("minimiser",), large, seeds)
        yield from grid(problems, LARGE[:2], ("spen",), ("SOInter",), seeds)


def grid(
    problems: tuple[str, ...], sizes: tuple[int, ...], boxes: tuple[str, ...], methods: tuple[str, ...], seeds: range
) -> Iterator[Case]:
    for seed, n, box, problem, method in product(seeds, sizes, boxes, problems, methods):
        yield case(problem, n, box, method, seed)


def case(problem: str, n: int, box: str, method: str, seed: int, budget: int | None = None) -> Case:
    whole = {"problem": problem, "n_features": n, "black_box": box, "method": method, "seed": seed}
    return whole if budget is None else {**whole, "budget": budget}


def run(
    problem: str, n_features: int, black_box: str, method: str, seed: int, budget: int | None = None
) -> dict[str, Any]:
    """Fit once, explain held-out rows for every output, and compare with the planted sets."""
    exact = planted(problem, n_features, seed)
    asked = exact if black_box == "minimiser" else with_spen(exact, seed, quick=budget is not None)
    # L2X asks about whole rows only; it gets as many as SOInter asks about in all.
    n_rows = int(np.clip(250 * n_features, 5000, 50_000)) if method == "L2X" else 5000 if n_features >= 50 else 2000
    X = exact.sample(n_rows, random_state=seed)
    X_test = exact.sample(n_explained(method), random_state=10_000 + seed)
    k = len(exact.relevant[0])
    started = time.perf_counter()
    explainer = make(method, asked, k, seed, budget).fit(X, targets=list(exact.targets))
    fit_seconds = time.perf_counter() - started
    found, explain_seconds = compare(explainer, exact, X_test, k)
    result = {
        "k": k,
        "fit_seconds": round(fit_seconds, 2),
        "explain_seconds": round(explain_seconds, 3),
        "n_test": len(X_test),
        "fit_queries": int(getattr(explainer, "n_queries_", 0)),
        "explain_queries": int(explainer.n_explain_queries_),
        "targets": found,
    }
    if black_box == "spen" and method == "SOInter":
        result["agreement"] = agreement(asked, exact, seed).round(4).tolist()
        for target in exact.targets:
            shares = changes_by_feature(asked, target, seed)
            other = np.setdiff1d(np.arange(n_features), exact.relevant[target])
            found[exact.output_names[target]] |= {
                "relevant_changes": np.sort(shares[list(exact.relevant[target])]).round(4).tolist(),
                "largest_other_change": round(float(shares[other].max(initial=0.0)), 4),
            }
    return result


def n_explained(method: str) -> int:
    if method not in ROW_BY_ROW:
        return N_TEST_ROWS
    return N_PACKAGED if method == "KernelShap, as packaged" else N_ROW_BY_ROW


def compare(explainer: Any, problem: Problem, X: Any, k: int) -> tuple[dict[str, dict[str, Any]], float]:
    """Exact match, median rank and recall for every output; all outputs of a row are explained in one call."""
    n_outputs, order, stated = len(problem.targets), np.asarray(problem.order), problem.paper_relevant
    targets = np.tile(np.asarray(problem.targets), len(X))
    rows = np.repeat(X, n_outputs, axis=0)
    started = time.perf_counter()
    ranked = explainer.explain(rows, target=targets, k=k if stated is None else k + 1).selected
    seconds = time.perf_counter() - started
    found = {}
    for target in problem.targets:
        of_target = targets == target
        selected, truth = ranked[of_target, :k], problem.relevant[target]
        found[problem.output_names[target]] = {
            "exact_match": round(exact_match(selected, truth), 4),
            "recall": round(float(np.isin(selected, truth).sum() / (len(selected) * len(truth))), 4),
            "median_rank": round(median_rank(order[selected]), 3),
            "exact_match_paper": round(exact_match(ranked[of_target], truth if stated is None else stated[target]), 4),
        }
    return found, seconds


def make(method: str, problem: Any, k: int, seed: int, budget: int | None = None) -> Any:
    """An explainer by its name on the page."""
    common = {"k": k, "random_state": seed, "verbose": False}
    if method.startswith("SOInter"):
        preset = "paper" if "paper" in method else "default"
        quick = {} if budget is None else QUICK[preset]
        return SOInter(problem, preset=preset, structured=method != "SOInter-1", query_budget=budget, **quick, **common)
    if method == "L2X":
        return L2X(problem, n_steps=2000 if budget is None else 50, **common)
    if method in ("ShapleySampling", "Random"):
        return {"ShapleySampling": ShapleySampling, "Random": Random}[method](problem, **common)
    kind = KernelShap if method.startswith("KernelShap") else Lime
    return kind(problem, protocol="package" if "packaged" in method else "tuned", **common)


STUDY = Study("accuracy", cases, run, page)
