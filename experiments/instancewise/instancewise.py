"""Does each method find the features that matter to this sample, where other samples need others?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from explaining import (
    CHOOSE_SIZE,
    LEARNED,
    N_PER_ROW,
    OURS,
    PER_ROW,
    baseline,
    effects_of,
    first_of,
    fit_ours,
    own_selection,
    ranking_of,
    size_of_fit,
)
from instancewise_page import ONE_LIST, page
from numpy.typing import NDArray
from study import Case, Study

from sointer.baselines import Random, ShapleySampling
from sointer.datasets import (
    INSTANCEWISE_PROBLEMS,
    PUBLISHED_PROBLEMS,
    REGRESSION_PROBLEMS,
    LogisticProblem,
    Problem,
    correlated,
    logistic_regressions,
    shuffled,
    syn_model,
)
from sointer.metrics import (
    exact_match,
    false_discovery_rates,
    sign_accuracy,
    switch_accuracy,
    top_of_sizes,
    true_positive_rates,
)

SEEDS = range(101, 106)
"""Seeds that took no part in development."""
N_DATA = 10_000
N_TEST, N_TEST_PER_ROW = 1_000, 100
"""Held-out rows explained by methods that learn, and by those that query the model about every row."""
BUDGET, WIDE_BUDGET, WIDE = 5_000, 20_000, 50
"""Queries for up to WIDE features, and for more."""
N_TEST_SMOKE = 6
CORRELATIONS = (0.5, 0.9)
SWITCHES = ("axis", "oblique", "parity", "nested", "category")
ALONE = ("syn4", "syn5", "syn6", "syn1", "syn2", "syn3")


def problem_of(problem: str, n_features: int, kind: str) -> Problem:
    """A problem by its name on the page; kind is "probability", "binary" or "continuous"."""
    if problem in REGRESSION_PROBLEMS:
        return REGRESSION_PROBLEMS[problem](n_features)
    if problem == "lspin":
        return PUBLISHED_PROBLEMS[problem](n_features)
    if problem == "logistic_regressions":
        return logistic_regressions(n_features, kind)
    if problem.startswith("syn_model, rho "):
        return correlated(syn_model(n_features, kind), float(problem.split()[-1]))
    return (INSTANCEWISE_PROBLEMS | PUBLISHED_PROBLEMS)[problem](n_features, kind)


# --- cases -----------------------------------------------------------------------------------------------


def cases(smoke: bool) -> Iterator[Case]:
    """The seven outputs of `syn_model` first, seed by seed, then what is less telling."""
    if smoke:
        baselines = ("ShapleySampling", "KernelShap", "Lime", "L2X", "Random", ONE_LIST)
        for method in ("SOInter", *available(CHOOSE_SIZE), *baselines):
            yield case_of("syn_model", 11, "probability", method, 0)
        for method in OURS:
            yield case_of("syn4", 11, "binary", method, 0)
        for problem, n, kind in (("switch_category", 11, "binary"), ("friedman1", 6, "continuous")):
            yield case_of(problem, n, kind, "SOInter", 0)
        for method in ("SOInter", "ShapleySampling"):
            yield case_of("logistic_regressions", 8, "probability", method, 0)
        return
    everything = (*OURS, *available(LEARNED), *PER_ROW, "Random", ONE_LIST)
    first = [("syn_model", n, kind) for n in (11, 100) for kind in ("probability", "binary")]
    switched = [(f"switch_{name}", 12, "probability") for name in SWITCHES]
    others = [
        *(("logistic_regressions", 12, kind) for kind in ("probability", "binary")),
        ("l2x_xor", 10, "probability"),
        ("l2x_orange_skin", 10, "probability"),
        ("l2x_additive", 10, "probability"),
        ("l2x_switch", 10, "probability"),
        ("lspin", 10, "continuous"),
        ("clusters", 21, "probability"),
    ]
    ours_only = [
        *((f"switch_{name}_hidden", 12, "probability") for name in SWITCHES),
        *((f"syn_model, rho {rho}", 11, "probability") for rho in CORRELATIONS),
        *((name, 10, "continuous") for name in REGRESSION_PROBLEMS),
        *((name, 11, "probability") for name in ALONE),
        *((f"switch_{name}{end}", 12, "binary") for name in SWITCHES for end in ("", "_hidden")),
    ]
    for problems, methods in ((first, everything), (switched, everything), (others, everything), (ours_only, OURS)):
        for seed in SEEDS:
            for problem, n_features, kind in problems:
                for method in methods:
                    yield case_of(problem, n_features, kind, method, seed)


def available(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if baseline(name) is not None)


def case_of(problem: str, n_features: int, kind: str, method: str, seed: int) -> Case:
    quick = {"quick": True} if seed == 0 else {}
    return {"problem": problem, "n_features": n_features, "kind": kind, "method": method, "seed": seed, **quick}


# --- one case --------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """What a method says about one target of the test rows."""

    given: NDArray[np.bool_]
    """(rows, features) the best of each row, as many as are relevant."""
    own: NDArray[np.bool_] | None
    """(rows, features) what it selects when no size is given, if it chooses one."""
    effects: NDArray[np.float64] | None
    """(rows, features) signed, towards the value explained, if it has signs."""


class Run(NamedTuple):
    targets: dict[int, Found]
    fit_queries: int
    row_queries: float
    """Queries per row to explain all targets with the size given, besides the one for its predictions."""
    own_queries: float
    """The same with no size given."""
    fit_seconds: float
    explain_seconds: float


def run(problem: str, n_features: int, kind: str, method: str, seed: int, quick: bool = False) -> dict[str, Any]:
    """Explain held-out rows of a shuffled problem; one fit for all its targets."""
    planted = shuffled(problem_of(problem, n_features, kind), 20_000 + seed)
    n_test = N_TEST_SMOKE if quick else N_TEST_PER_ROW if method in PER_ROW else N_TEST
    X_test = planted.sample(n_test, random_state=10_000 + seed)
    budget = 300 if quick else BUDGET if n_features <= WIDE else WIDE_BUDGET
    truths = {target: planted.relevant_rows(X_test, target) for target in planted.targets}
    explain = explain_ours if method in OURS else explain_baseline
    done = explain(planted, X_test, truths, method, budget, seed, quick)
    found = {
        planted.output_names[target]: judged(planted, target, X_test, truths[target], of_target)
        for target, of_target in done.targets.items()
    }
    return {
        "targets": found,
        "n_test": n_test,
        "fit_queries": done.fit_queries,
        "row_queries": round(done.row_queries, 1),
        "own_queries": round(done.own_queries, 1),
        "fit_seconds": round(done.fit_seconds, 2),
        "explain_seconds": round(done.explain_seconds, 3),
    }


def judged(
    planted: Problem, target: int, X: NDArray[np.float64], truth: NDArray[np.bool_], found: Found
) -> dict[str, Any]:
    measures: dict[str, Any] = {"given": against(found.given, truth, planted.switches.get(target))}
    if found.own is not None:
        measures["own"] = against(found.own, truth, planted.switches.get(target))
        measures["own"]["size"] = round(float(found.own.sum(axis=1).mean()), 3)
    if found.effects is not None and isinstance(planted, LogisticProblem):
        towards_one = np.where(planted(X)[:, [target]] > 0.5, 1.0, -1.0)
        true = planted.contributions(X, target)
        measures["sign"] = round(sign_accuracy(found.effects * towards_one, true), 4)
    return measures


def against(selected: NDArray[np.bool_], truth: NDArray[np.bool_], switch: tuple[int, ...] | None) -> dict[str, float]:
    measures = {
        "tpr": float(true_positive_rates(selected, truth).mean()),
        "fdr": float(false_discovery_rates(selected, truth).mean()),
        "exact": exact_match(selected, truth),
    }
    if switch is not None:
        measures["switch"] = switch_accuracy(selected, truth, switch)
    return {name: round(value, 4) for name, value in measures.items()}


def as_given(planted: Problem, X: NDArray[np.float64]) -> Any:
    """The rows as a user would have them: a data frame where there are categories."""
    return planted.frame(X) if planted.categorical else X


def explain_ours(
    planted: Problem,
    X_test: NDArray[np.float64],
    truths: dict[int, NDArray[np.bool_]],
    method: str,
    budget: int,
    seed: int,
    quick: bool,
) -> Run:
    X = as_given(planted, planted.sample(budget if quick else N_DATA, random_state=seed))
    rows, predicted = as_given(planted, X_test), planted(X_test)
    largest = max(int(truth.sum(axis=1).max()) for truth in truths.values())
    started = time.perf_counter()
    targets = list(planted.targets)
    explainer = fit_ours(planted, X, name=method, k=largest, seed=seed, targets=targets, budget=budget, quick=quick)
    fitted = time.perf_counter()
    given = {t: explainer.explain(rows, target=t, k=largest, predicted=predicted) for t in targets}
    explained = time.perf_counter()
    row_queries = explainer.n_explain_queries_ / len(X_test)
    own = {t: explainer.explain(rows, target=t, k="auto", predicted=predicted) for t in targets}
    found = {
        target: Found(
            first_of(ranking_of(given[target]), truth.sum(axis=1), truth.shape[1]),
            own_selection(own[target]),
            effects_of(given[target]),
        )
        for target, truth in truths.items()
    }
    own_queries = explainer.n_explain_queries_ / len(X_test) - row_queries
    return Run(found, explainer.n_queries_, row_queries, own_queries, fitted - started, explained - fitted)


def explain_baseline(
    planted: Problem,
    X_test: NDArray[np.float64],
    truths: dict[int, NDArray[np.bool_]],
    method: str,
    budget: int,
    seed: int,
    quick: bool,
) -> Run:
    """Baselines: all targets of a row are explained together, so that its copies are queried once."""
    X = planted.sample(N_DATA if method not in LEARNED else budget, random_state=seed)
    targets, n_test = list(planted.targets), len(X_test)
    largest = max(int(truth.sum(axis=1).max()) for truth in truths.values())
    has_signs = method in PER_ROW and isinstance(planted, LogisticProblem)
    explainer = make_baseline(method, planted, largest, budget, seed, quick, has_signs=has_signs)
    started = time.perf_counter()
    explainer.fit(as_given(planted, X), targets=targets)
    fitted = time.perf_counter()
    if method == ONE_LIST:
        n_walked = max(1, budget // (planted.n_features + 1))
        explained = explainer.explain(
            as_given(planted, np.tile(X[:n_walked], (len(targets), 1))), target=np.repeat(targets, n_walked)
        )
        summed = explained.scores.reshape(len(targets), n_walked, -1).sum(axis=1)
        scores = np.repeat(summed[:, None], n_test, axis=1)
    else:
        explained = explainer.explain(
            as_given(planted, np.tile(X_test, (len(targets), 1))), target=np.repeat(targets, n_test)
        )
        scores = np.asarray(explained.scores, dtype=np.float64).reshape(len(targets), n_test, -1)
    seconds = time.perf_counter() - fitted
    own = own_selection(explained).reshape(scores.shape) if method in CHOOSE_SIZE else None
    found = {}
    for place, (target, truth) in enumerate(truths.items()):
        of_target = np.abs(scores[place]) if has_signs else scores[place]
        found[target] = Found(
            top_of_sizes(of_target, truth.sum(axis=1), seed),
            None if own is None else own[place],
            scores[place] if has_signs else None,
        )
    asked = explainer.n_explain_queries_
    if method == ONE_LIST:
        return Run(found, asked, 0.0, 0.0, fitted - started + seconds, 0.0)
    fit_queries = explainer.n_queries_ if method in LEARNED else 0  # others need a few rows to name the outputs
    return Run(found, fit_queries, asked / n_test, asked / n_test, fitted - started, seconds)


def make_baseline(
    method: str, planted: Problem, k: int, budget: int, seed: int, quick: bool, *, has_signs: bool
) -> Any:
    options: dict[str, Any] = {"random_state": seed, "verbose": False}
    if method in PER_ROW:
        signed = {"signed": True} if has_signs else {}
        return baseline(method)(planted, k=k, n_samples=100 if quick else N_PER_ROW, **signed, **options)
    if method == ONE_LIST:
        return ShapleySampling(planted, k=k, n_samples=planted.n_features + 1, **options)
    if method == "Random":
        return Random(planted, k=k, **options)
    kind = baseline(method)
    steps = {"n_steps": 50} if quick and method == "L2X" else {}
    return kind(planted, **size_of_fit(kind, k), **steps, **options)


STUDY = Study(name="instancewise", cases=cases, run=run, page=page)
