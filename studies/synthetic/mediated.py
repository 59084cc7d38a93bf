"""Features that act only through other outputs: who finds them, and for how many questions to the black box?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sointer import SOInter, TrainingConfig
from sointer.errors import PoorFitWarning
from sointer.explainers.baselines.l2x import L2X
from sointer.explainers.baselines.lime_and_shap import KernelShap, Lime, ShapleySampling
from sointer.metrics.ground_truth import exact_match, top_k
from sointer.zoo import instancewise_switch, mediated_chain, mediated_xor, partly_mediated, shuffled
from sointer.zoo.problem import Problem
from studies.frame.study import Case, Study
from studies.synthetic.mediated_page import PACKAGED, SUMMED, page

N_FEATURES = 20
N_DATA, N_EXPLAINED, N_HELD_OUT = 2000, 100, 200
SEEDS, FEWER_SEEDS = range(20, 25), range(20, 23)
MORE_SEEDS, SMALL_BUDGETS = range(25, 35), (500, 1_000)
"""Where SOInter is near its limit and luck counts, more seeds."""
BUDGETS = (500, 1_000, 2_000, 5_000, 10_000, 20_000)
PER_ROW_BUDGETS = (*BUDGETS[1:], 100_000)  # 10 questions for each of 100 rows is the least they run with

LEARNED: dict[str, Callable[..., Any]] = {
    "SOInter": SOInter,
    "SOInter-1": lambda *args, **options: SOInter(*args, structured=False, **options),
    "L2X": L2X,
}
QUICK_SOINTER = {"training": TrainingConfig(n_epochs=2)}
QUICK_L2X = {"n_steps": 50}
PER_ROW: dict[str, Callable[..., Any]] = {"ShapleySampling": ShapleySampling, "KernelShap": KernelShap, "Lime": Lime}


def problem_of(problem: str, size: int) -> Problem:
    """ "outputs": that many outputs; "chain": that many links; "switch": rows that need different features."""
    if problem == "outputs":
        return partly_mediated(N_FEATURES) if size == 2 else mediated_xor(N_FEATURES, n_unrelated=size - 3)
    return mediated_chain(size, N_FEATURES) if problem == "chain" else instancewise_switch(N_FEATURES)


# --- cases -----------------------------------------------------------------------------------------------


def cases(smoke: bool) -> Iterator[Case]:
    """The README's figure first; where SOInter-1 and L2X, the slow ones, get fewer seeds, the page says so."""
    if smoke:
        for problem, size, methods in (("outputs", 5, (*LEARNED, *PER_ROW, SUMMED)), ("chain", 1, ("SOInter",))):
            for method in methods:
                yield {**case_of(problem, size, method, 1_000, seed=0), "quick": True}
        return
    seen = set()
    for case in _all_cases():
        key = tuple(case.values())
        if key not in seen:
            seen.add(key)
            yield case


def _all_cases() -> Iterator[Case]:
    for seed in SEEDS:
        yield from _everything("outputs", 5, BUDGETS, seed, slow=False)
    for seed in MORE_SEEDS:
        for budget in SMALL_BUDGETS:
            yield case_of("outputs", 5, "SOInter", budget, seed)
    for seed in SEEDS[:2]:
        yield from _everything("outputs", 5, BUDGETS, seed)
        yield from _sizes(seed, slow=False)
        yield from _sizes(seed, slow=True)
    for seed in SEEDS[2:]:
        yield from _sizes(seed, slow=False)
    for seed in FEWER_SEEDS:
        yield from _everything("outputs", 5, BUDGETS, seed)
        yield from _sizes(seed, slow=True)
    for seed in SEEDS:
        yield from _everything("chain", 2, BUDGETS, seed, slow=seed in FEWER_SEEDS)
        yield from _everything("switch", 6, (2_000, 20_000), seed, slow=seed in FEWER_SEEDS)
    for seed in SEEDS:
        yield from _everything("outputs", 5, BUDGETS, seed)
    for seed in FEWER_SEEDS:
        yield case_of("outputs", 5, PACKAGED, None, seed)


def _sizes(seed: int, *, slow: bool) -> Iterator[Case]:
    for n_outputs in range(2, 9):
        yield from _everything("outputs", n_outputs, (2_000,), seed, slow=slow)
    for length in range(1, 5):
        yield from _everything("chain", length, (2_000, 5_000), seed, slow=slow)


def _everything(problem: str, size: int, budgets: tuple[int, ...], seed: int, *, slow: bool = True) -> Iterator[Case]:
    for budget in (*budgets, PER_ROW_BUDGETS[-1]):
        for method in LEARNED:
            if budget in budgets and (slow or method == "SOInter"):
                yield case_of(problem, size, method, budget, seed)
        for method in PER_ROW:
            if budget in PER_ROW_BUDGETS:
                yield case_of(problem, size, method, budget, seed)
        if budget in budgets:
            yield case_of(problem, size, SUMMED, budget, seed)


def case_of(problem: str, size: int, method: str, budget: int | None, seed: int) -> Case:
    return {"problem": problem, "size": size, "method": method, "budget": budget, "seed": seed}


# --- one case --------------------------------------------------------------------------------------------


def run(problem: str, size: int, method: str, budget: int | None, seed: int, quick: bool = False) -> dict[str, Any]:
    """Explain held-out rows of a shuffled problem with at most `budget` rows asked in all."""
    planted = shuffled(problem_of(problem, size), 20_000 + seed)
    (target,) = planted.targets
    X, X_new = planted.sample(N_DATA, random_state=seed), planted.sample(N_HELD_OUT, random_state=10_000 + seed)
    k = int(planted.relevant_rows(X_new[:1], target).sum())
    options: dict[str, Any] = {"k": k, "random_state": seed, "verbose": False}
    found: dict[str, Any] = {}
    if method in LEARNED:
        if method == "L2X":
            X = planted.sample(budget or N_DATA, random_state=seed)  # it asks about every row once
        else:
            options["query_budget"] = budget
        if quick:
            options |= QUICK_L2X if method == "L2X" else QUICK_SOINTER
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            explainer = LEARNED[method](planted, **options).fit(X, targets=[target])
        selected = explainer.explain(X_new, target=target, query=False).mask  # all queries are those of fit
        found["n_queries"] = explainer.n_queries_
        if isinstance(explainer, SOInter):
            found["warned"] = any(issubclass(one.category, PoorFitWarning) for one in caught)
            found["skill"] = round(explainer.held_out_skill_, 3)
    elif method == SUMMED:
        selected, found["n_queries"] = one_list_for_all(planted, X, X_new, budget or 0, options)
    else:
        X_new = X_new[:N_EXPLAINED]
        explainer = (
            KernelShap(planted, protocol="package", **options)
            if budget is None
            else PER_ROW[method](planted, n_samples=budget // N_EXPLAINED, **options)
        ).fit(X, targets=[target])
        selected = explainer.explain(X_new, target=target).mask
        found["n_queries"] = explainer.n_explain_queries_  # the rows that fit asks to name the outputs go uncounted
    relevant = planted.relevant_rows(X_new, target)
    return {
        "exact_match": round(exact_match(selected, relevant), 4),
        "share_found": round(float((selected & relevant).sum() / relevant.sum()), 4),
        "n_relevant": k,
        "n_outputs": planted.n_outputs,
        **found,
    }


def one_list_for_all(
    planted: Problem, X: np.ndarray, X_new: np.ndarray, budget: int, options: dict[str, Any]
) -> tuple[np.ndarray, int]:
    """The k features of largest Shapley value summed over rows that are walked once each: the same for every row."""
    (target,) = planted.targets
    explainer = ShapleySampling(planted, n_samples=N_FEATURES + 1, **options).fit(X, targets=[target])
    walked = explainer.explain(X[: budget // (N_FEATURES + 1)], target=target)
    best = top_k(walked.scores.sum(axis=0)[None, :], options["k"], options["random_state"])[0]
    selected = np.zeros(X_new.shape, dtype=bool)
    selected[:, best] = True
    return selected, explainer.n_explain_queries_


STUDY = Study(name="mediated", cases=cases, run=run, page=page)
