"""Does each method find the features that matter to this sample, where other samples need others?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sointer.explainers.baselines.base import Random
from sointer.explainers.baselines.lime_and_shap import ShapleySampling
from sointer.metrics.ground_truth import (
    exact_match,
    false_discovery_rates,
    sign_accuracy,
    switch_accuracy,
    top_of_sizes,
    true_positive_rates,
)
from sointer.zoo import correlated, shuffled
from sointer.zoo.instancewise import INSTANCEWISE_PROBLEMS, syn_model
from sointer.zoo.problem import Problem
from sointer.zoo.published import PUBLISHED_PROBLEMS
from sointer.zoo.regression import REGRESSION_PROBLEMS, LogisticProblem, logistic_regressions
from studies.frame.explaining import (
    CHOOSE_SIZE,
    INVASE_PAPER,
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
from studies.frame.study import Case, Study
from studies.instancewise.instancewise_page import KINDS, ONE_LIST, Setting, page

SEEDS = range(102, 107)
"""Seeds that took no part in development."""
FEW_SEEDS = 2
"""Seeds of the baseline that trains for minutes."""
SOME_SEEDS = 3
"""Seeds of SOInter-1 where the switch is hidden, and of HideAndSeek with 100 features."""
N_DATA = 10_000
N_TEST, N_TEST_PER_ROW = 1_000, 100
"""Held-out rows explained by methods that learn, and by those that query the model about every row."""
BUDGET, LARGE_BUDGET, WIDE = 5_000, 20_000, 50
"""Queries for up to WIDE features, and for more; problems with numbers as outputs get the larger budget too."""
N_TEST_SMOKE = 6
CORRELATIONS = (0.5, 0.9)
SWITCHES = ("axis", "oblique", "parity", "nested", "category")
SWITCHED = ("syn4", "syn5", "syn6")


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


class Part(NamedTuple):
    """Settings that the same methods explain, with the first of the seeds."""

    settings: Sequence[Setting]
    methods: Sequence[str]
    n_seeds: int = len(SEEDS)


def plan() -> list[Part]:
    """What is run with every seed, the most telling first. SOInter-1 only where a pair with SOInter tells something."""
    controls = (ONE_LIST, "Random")
    per_row = ("ShapleySampling", "KernelShap")
    syn = [Setting("syn_model", 11, kind) for kind in ("probability", "binary")]
    shown, hidden = (
        {kind: [Setting(f"switch_{name}{end}", 12, kind) for name in SWITCHES] for kind in ("probability", "binary")}
        for end in ("", "_hidden")
    )
    published = [
        *(Setting(f"l2x_{name}", 10, "probability") for name in ("xor", "orange_skin", "additive", "switch")),
        Setting("lspin", 10, "continuous"),
        Setting("clusters", 21, "probability"),
    ]
    correlated_inputs = [
        *(Setting(f"syn_model, rho {rho}", 11, "probability") for rho in reversed(CORRELATIONS)),
        Setting(f"syn_model, rho {max(CORRELATIONS)}", 11, "binary"),
    ]
    return [
        Part(syn, ("SOInter", *available(("HideAndSeek", "L2X")), *PER_ROW, *controls, "SOInter-1")),
        Part(shown["probability"], (*OURS, *available(("HideAndSeek",)), *per_row, *controls)),
        Part(
            [Setting("syn_model", 100, kind) for kind in ("probability", "binary")],
            ("SOInter", *per_row, *controls),
        ),
        Part([Setting("logistic_regressions", 12, "probability")], ("SOInter", *PER_ROW, *controls)),
        Part(hidden["probability"], ("SOInter",)),
        Part(hidden["probability"], ("SOInter-1",), SOME_SEEDS),
        Part(correlated_inputs, ("SOInter",)),
        Part([Setting(name, 10, "continuous") for name in REGRESSION_PROBLEMS], ("SOInter",)),
        Part([Setting(name, 11, kind) for name in SWITCHED for kind in ("probability", "binary")], ("SOInter",)),
        Part([*shown["binary"], *hidden["binary"]], ("SOInter",)),
        Part(syn[:1], available(("Invase", INVASE_PAPER)), FEW_SEEDS),
        Part([Setting("syn_model", 100, kind) for kind in ("probability", "binary")], ("HideAndSeek",), SOME_SEEDS),
        Part(published, ("SOInter", *available(("HideAndSeek", "L2X")), *per_row, *controls)),
    ]


def cases(smoke: bool) -> Iterator[Case]:
    """Seed by seed, so that an early stop leaves fewer seeds and not fewer problems."""
    if smoke:
        baselines = ("ShapleySampling", "KernelShap", "Lime", "L2X", "Random", ONE_LIST)
        for method in ("SOInter", INVASE_PAPER, "HideAndSeek", *baselines):
            yield case_of(Setting("syn_model", 11, "probability"), method, 0)
        for method in OURS:
            yield case_of(Setting("switch_axis", 11, "binary"), method, 0)
        for problem, n, kind in (("switch_category", 11, "binary"), ("friedman1", 6, "continuous")):
            yield case_of(Setting(problem, n, kind), "SOInter", 0)
        for method in ("SOInter", "ShapleySampling"):
            yield case_of(Setting("logistic_regressions", 8, "probability"), method, 0)
        return
    for place, seed in enumerate(SEEDS):
        for part in plan():
            if place < part.n_seeds:
                for setting in part.settings:
                    for method in part.methods:
                        yield case_of(setting, method, seed)


def available(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if baseline(name) is not None)


def case_of(setting: Setting, method: str, seed: int) -> Case:
    quick = {"quick": True} if seed == 0 else {}
    return {**setting._asdict(), "method": method, "seed": seed, **quick}


# --- one case --------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """What a method says about one target of the test rows."""

    given: NDArray[np.bool_]
    """(rows, features) the best of each row, as many as are relevant."""
    own: NDArray[np.bool_] | None
    """(rows, features) what it selects when no size is given, if it chooses one."""
    effects: NDArray[np.float64] | None
    """(rows, features) signed, towards the value explained, if it has signs."""


class Job(NamedTuple):
    """What a method is to explain, with which budget."""

    planted: Problem
    X_test: NDArray[np.float64]
    truths: dict[int, NDArray[np.bool_]]
    method: str
    budget: int
    seed: int
    quick: bool

    @property
    def largest(self) -> int:
        """How many features any row has that are relevant to one target, at most."""
        return max(int(truth.sum(axis=1).max()) for truth in self.truths.values())


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
    is_large = n_features > WIDE or problem in REGRESSION_PROBLEMS
    budget = 300 if quick else LARGE_BUDGET if is_large else BUDGET
    targets = [t for t in planted.targets if planted.output_names[t] in SWITCHED or not is_slow(method, n_features)]
    truths = {target: planted.relevant_rows(X_test, target) for target in targets}
    explain = explain_ours if method in OURS else explain_baseline
    done = explain(Job(planted, X_test, truths, method, budget, seed, quick))
    found = {
        planted.output_names[target]: judged(planted, target, X_test, truths[target], of_target)
        for target, of_target in done.targets.items()
    }
    return {
        "targets": found,
        "setting": setting_as_text(method, kind, quick),
        "n_test": n_test,
        "fit_queries": done.fit_queries,
        "row_queries": round(done.row_queries, 1),
        "own_queries": round(done.own_queries, 1),
        "fit_seconds": round(done.fit_seconds, 2),
        "explain_seconds": round(done.explain_seconds, 3),
    }


def is_slow(method: str, n_features: int) -> bool:
    """Baselines that train for each output so long that only the switched outputs of `syn_model` are explained."""
    return method in ("Invase", INVASE_PAPER) or (method == "HideAndSeek" and n_features > WIDE)


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


def explain_ours(job: Job) -> Run:
    planted, X_test, truths, method, budget, seed, quick = job
    X = as_given(planted, planted.sample(budget if quick else N_DATA, random_state=seed))
    rows, predicted = as_given(planted, X_test), planted(X_test)
    largest = job.largest
    started = time.process_time()
    targets = list(truths)
    explainer = fit_ours(planted, X, name=method, k=largest, seed=seed, targets=targets, budget=budget, quick=quick)
    fitted = time.process_time()
    given = {t: explainer.explain(rows, target=t, k=largest, predicted=predicted) for t in targets}
    explained = time.process_time()
    row_queries = explainer.n_explain_queries_ / len(X_test)
    own = {t: explainer.explain(rows, target=t, k="auto", predicted=predicted) for t in targets}
    found = {
        target: Found(
            first_of(ranking_of(given[target]), truth.sum(axis=1), truth.shape[1]),
            own_selection(own[target]),
            effects_of(given[target], planted.output_kind),
        )
        for target, truth in truths.items()
    }
    own_queries = explainer.n_explain_queries_ / len(X_test) - row_queries
    return Run(found, explainer.n_queries_, row_queries, own_queries, fitted - started, explained - fitted)


def explain_baseline(job: Job) -> Run:
    """Baselines: all targets of a row are explained together, so that its copies are queried once."""
    planted, X_test, truths, method, budget, seed, quick = job
    X = planted.sample(N_DATA if method not in LEARNED else budget, random_state=seed)
    targets, n_test = list(truths), len(X_test)
    largest = job.largest
    has_signs = method in PER_ROW and isinstance(planted, LogisticProblem)
    explainer = make_baseline(method, planted, largest, budget, seed, quick, has_signs=has_signs)
    started = time.process_time()
    explainer.fit(as_given(planted, X), targets=targets)
    fitted = time.process_time()
    if method == ONE_LIST:
        n_walked = max(1, budget // (planted.n_features + 1))
        explained = explainer.explain(
            as_given(planted, np.tile(X[:n_walked], (len(targets), 1))), target=np.repeat(targets, n_walked)
        )
        summed = explained.scores.reshape(len(targets), n_walked, -1).sum(axis=1)
        scores = np.repeat(summed[:, None], n_test, axis=1)
    else:
        rows, given = as_given(planted, np.tile(X_test, (len(targets), 1))), np.tile(planted(X_test), (len(targets), 1))
        explained = explainer.explain(rows, target=np.repeat(targets, n_test), predicted=given)
        scores = np.asarray(explained.scores, dtype=np.float64).reshape(len(targets), n_test, -1)
    seconds = time.process_time() - fitted
    own = None
    if method in CHOOSE_SIZE:
        chosen = explainer.explain(rows, target=np.repeat(targets, n_test), predicted=given, k="auto")
        own = own_selection(chosen).reshape(scores.shape)
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
    return kind(planted, **size_of_fit(kind, k), **training_of(method, planted.output_kind, quick), **options)


def training_of(method: str, kind: str, quick: bool) -> dict[str, Any]:
    """How a baseline that learns is trained; INVASE as in its paper in the best of three settings tried with seed 9."""
    if quick:
        return {
            "L2X": {"n_steps": 50},
            "HideAndSeek": {"n_epochs": 20},
            INVASE_PAPER: {"protocol": "paper", "n_steps": 5},
        }[method]
    if method == "HideAndSeek":
        return {"penalty": 0.5 if kind == "binary" else 0.2}
    if method == INVASE_PAPER:
        return {"protocol": "paper", "n_steps": 2_000, "learning_rate": 1e-3, "penalty": 0.02}
    return {"protocol": "package"} if method == "Invase" else {}


def setting_as_text(method: str, kind: str, quick: bool) -> str | None:
    """The same in words, for the page."""
    if method not in LEARNED:
        return None
    given = ", ".join(f"{name}={value}" for name, value in training_of(method, kind, quick).items())
    return f"`{given}` with {KINDS[kind]}" if given else "its defaults"


STUDY = Study(name="instancewise", cases=cases, run=run, page=page)
