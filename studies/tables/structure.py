"""Does structure pay? The same explainer with all outputs together, without coupling, and with each output alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer import EnergyConfig, SOInter, TrainingConfig
from sointer.metrics.faithfulness import keep_and_delete
from sointer.metrics.ground_truth import exact_match, false_discovery_rates, true_positive_rates
from sointer.zoo import mediated_and, mediated_chain, mediated_majority, mediated_xor, shuffled
from sointer.zoo.instancewise import switching
from sointer.zoo.problem import Problem
from studies.frame.study import Case, Study
from studies.tables.real_structure import REAL, load_real
from studies.tables.structure_page import ALONE, COUPLED, SHARED, page

SEEDS = range(203, 208)
"""Seeds that took no part in development."""
N_FEATURES = 20
N_DATA, N_TEST, N_WHOLE = 5_000, 300, 3_000
"""Rows to learn from, held-out rows that are explained, and held-out rows on which the energy is compared."""
BUDGETS = (250, 500, 1_000, 2_000, 4_000)
SWITCH_BUDGETS = (1_000, 2_500)
MANY_OUTPUTS = (3, 10, 40)
REAL_BUDGET, REAL_SIZE, N_REAL = 5_000, 8, 100
METHODS: dict[str, dict[str, Any]] = {
    COUPLED: {},
    SHARED: {"energy": EnergyConfig(coupling_speed=1e-9)},  # b stays zero, as it begins
    ALONE: {"structured": False},
}
QUICK = {"training": TrainingConfig(n_epochs=2)}


def rare(n_features: int) -> Problem:
    """y0 = [x0 + x1 > 1.2], y1 = [x2 - x3 > 1.2], two unrelated outputs, and the target y0 and y1: 4 % of samples."""
    usual = mediated_and(n_features)

    def outputs(X: NDArray[np.float64]) -> NDArray[np.int64]:
        Y = usual.black_box(X).copy()
        Y[:, 0], Y[:, 1] = X[:, 0] + X[:, 1] > 1.2, X[:, 2] - X[:, 3] > 1.2
        Y[:, -1] = Y[:, 0] & Y[:, 1]
        return Y

    return replace(usual, name="rare", black_box=outputs)


def problem_of(problem: str, n_outputs: int | None) -> Problem:
    """A problem by its name on the page."""
    if problem.startswith("switch "):
        _, kind, outputs = problem.split()
        return switching(kind, output_kind="binary" if outputs == "labels" else "probability")
    if problem == "xor":
        return mediated_xor(N_FEATURES, n_unrelated=2 if n_outputs is None else n_outputs - 3)
    return {"chain": lambda n: mediated_chain(4, n), "majority": mediated_majority, "rare": rare}[problem](N_FEATURES)


# --- cases -----------------------------------------------------------------------------------------------


def cases(smoke: bool) -> Iterator[Case]:
    """Matched pairs, seed by seed: everything but the method is the same."""
    if smoke:
        yield from ({**case_of("xor", method, 300, 0), "quick": True} for method in METHODS)
        if os.environ.get("SOINTER_DATA"):
            yield {**case_of("emotions, random field", COUPLED, 300, 0), "quick": True}
        return
    for seed in SEEDS:
        for problem in ("xor", "chain", "majority", "rare"):
            for budget in BUDGETS:
                yield from (case_of(problem, method, budget, seed) for method in METHODS)
        for n_outputs in MANY_OUTPUTS:
            yield from ({**case_of("xor", method, 1_000, seed), "n_outputs": n_outputs} for method in METHODS)
        for switch in ("oblique", "parity", "nested"):
            for outputs in ("labels", "probabilities"):
                for budget in SWITCH_BUDGETS:
                    problem = f"switch {switch} {outputs}"
                    yield from (case_of(problem, method, budget, seed) for method in METHODS)
        for problem in REAL:
            yield from (case_of(problem, method, REAL_BUDGET, seed) for method in METHODS)


def case_of(problem: str, method: str, budget: int, seed: int) -> Case:
    return {"problem": problem, "method": method, "budget": budget, "seed": seed}


# --- one case --------------------------------------------------------------------------------------------


def run(
    problem: str, method: str, budget: int, seed: int, n_outputs: int | None = None, quick: bool = False
) -> dict[str, Any]:
    explain = explain_real if problem in REAL else explain_planted
    options = {**METHODS[method], **(QUICK if quick else {}), "query_budget": budget, "random_state": seed}
    return explain(problem, n_outputs, seed, {**options, "verbose": False})


def explain_planted(problem: str, n_outputs: int | None, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """How often the relevant features are found, with their number given and without, and what the energy learned."""
    planted = shuffled(problem_of(problem, n_outputs), 20_000 + seed)
    target = planted.targets[-1]
    X, X_test, X_whole = (
        planted.sample(n, random_state=part + seed) for n, part in ((N_DATA, 0), (N_TEST, 10_000), (N_WHOLE, 30_000))
    )
    explainer = SOInter(planted, **options).fit(X)
    truth = planted.relevant_rows(X_test, target)
    order = explainer.explain(X_test, target, k=planted.n_features).selected
    given = np.argsort(order, axis=1) < truth.sum(axis=1, keepdims=True)
    own = explainer.explain(X_test, target).mask
    expected = np.asarray(explainer.explain(X_whole, target, query=False).value, dtype=np.float64)
    return {
        "exact": round(exact_match(given, truth), 4),
        "tpr": round(float(true_positive_rates(own, truth).mean()), 4),
        "fdr": round(float(false_discovery_rates(own, truth).mean()), 4),
        "agreement": round(same_label(expected, planted(X_whole)[:, target]), 4),
    }


def explain_real(problem: str, n_outputs: int | None, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """Keep and delete of every output, and how often the energy expects the model's labels, on held-out rows."""
    real = load_real(problem, seed)
    explainer = SOInter(real.model, **options).fit(real.X_train)
    X, n_targets = real.X_test[:N_REAL], explainer.n_outputs_
    rows, targets = np.tile(X, (n_targets, 1)), np.repeat(np.arange(n_targets), len(X))
    explanation = explainer.explain(rows, targets, k=REAL_SIZE)
    found = keep_and_delete(explanation, ks=[REAL_SIZE], random_state=seed)
    expected = np.column_stack(
        [explainer.explain(real.X_test, target, query=False).value for target in range(n_targets)]
    )
    return {
        "keep": round(float(found.keep[0]), 4),
        "delete": round(float(found.delete[0]), 4),
        "agreement": round(same_label(expected.astype(float), real.model(real.X_test)), 4),
    }


def same_label(expected: NDArray[np.float64], said: NDArray[Any]) -> float:
    return float(((expected > 0.5) == (said > 0.5)).mean())


STUDY = Study(name="structure", cases=cases, run=run, page=page)
