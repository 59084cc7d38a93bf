"""Do selections carry what decides the target, or does the shape of the masks leak the answer?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from sointer.explainers.baselines.base import Random
from sointer.explanation import Explanation
from sointer.metrics.ground_truth import exact_match
from sointer.metrics.leakage import leakage
from sointer.zoo import ALL_PROBLEMS, shuffled
from sointer.zoo.problem import Problem
from studies.frame.study import Case, Study
from studies.synthetic.accuracy import make
from studies.synthetic.leakage_page import page

N_TRAINING_ROWS = 2000
N_TEST_ROWS = 1000
N_SHAP_ROWS = 200
N_EVALUATOR_ROWS = 8000
PROBLEMS = (("e1", 20), ("mediated_xor", 20), ("switch", 20), ("e2", 20), ("mediated_chain_2", 20))
MORE_PROBLEMS = (("e1", 10), ("e2", 10))
FIRST = ("L2X", "SOInter", "SOInter-1", "planted truth", "cheater", "Random")
THEN = ("KernelShap", "SOInter, paper preset")
SEEDS = (20, 21, 22)
TRUE = "true size"


def cases(smoke: bool) -> Iterable[Case]:
    """With k features where k suffice, and where one must do; afterwards two, and other numbers of features."""
    if smoke:
        for method, k in (("planted truth", TRUE), ("cheater", 1), ("Random", 1)):
            yield {"problem": "e1", "n_features": 10, "k": k, "method": method, "seed": 0, "smoke": True}
        return
    for problems, sizes in ((PROBLEMS, (1, TRUE)), (PROBLEMS, (2,)), (MORE_PROBLEMS, (1, TRUE, 2))):
        for methods, seeds in ((FIRST, SEEDS[:1]), (THEN, SEEDS[:1]), (FIRST, SEEDS[1:]), (THEN, SEEDS[1:])):
            for seed, (problem, n), k, method in product(seeds, problems, sizes, methods):
                if (method != "planted truth" or k == TRUE) and (method != "cheater" or k == 1):
                    yield {"problem": problem, "n_features": n, "k": k, "method": method, "seed": seed}


def run(problem: str, n_features: int, k: int | str, method: str, seed: int, smoke: bool = False) -> dict[str, Any]:
    """Explain the last planted target of held-out rows, and check the explanation."""
    planted = shuffled(ALL_PROBLEMS[problem](n_features), 20_000 + seed)
    target = planted.targets[-1]
    X = planted.sample(N_TRAINING_ROWS, random_state=seed)
    X_test = planted.sample(N_SHAP_ROWS if method == "KernelShap" or smoke else N_TEST_ROWS, 10_000 + seed)
    X_more = planted.sample(500 if smoke else N_EVALUATOR_ROWS, 30_000 + seed)
    truth = planted.relevant_rows(X_test, target)
    n_selected = int(truth.sum(axis=1).max()) if k == TRUE else int(k)
    explanation = explain(planted, method, n_selected, X, X_test, target, seed)
    check = leakage(explanation, X_more, random_state=seed)
    return {
        "target": planted.output_names[target],
        "n_selected": n_selected,
        "n_rows": len(X_test),
        **{name: round(getattr(check, name).accuracy, 4) for name in ("evaluator", "joint", "shape", "whole")},
        "evaluator_bits": round(check.evaluator.log_loss, 4),
        "leaked": round(check.leaked.mean, 4),
        "leaks": check.leaks,
        "informative": check.informative,
        "conclusive": check.conclusive,
        "exact_match": exact_match(explanation.mask, truth),
    }


def explain(problem: Problem, method: str, k: int, X: Any, X_test: Any, target: int, seed: int) -> Explanation:
    if method in ("planted truth", "cheater"):
        chosen = true_features if method == "planted truth" else cheating
        anything = Random(problem, k=k, random_state=seed).fit(X, targets=[target]).explain(X_test, target=target)
        return replace(anything, selected=chosen(problem, X_test, target))
    explainer = make(method, problem, k, seed).fit(X, targets=[target])
    return explainer.explain(X_test, target=target, predicted=problem(X_test) if method == "KernelShap" else None)


def true_features(problem: Problem, X: Any, target: int) -> Any:
    return np.array([np.flatnonzero(row) for row in problem.relevant_rows(X, target)])


def cheating(problem: Problem, X: Any, target: int) -> Any:
    """One feature that does not matter where the answer is yes, and another where it is no."""
    matters = problem.relevant_rows(problem.sample(1000, random_state=0), target).any(axis=0)
    for_no, for_yes = np.flatnonzero(~matters)[:2]
    return np.where(problem(X)[:, target] == 1, for_yes, for_no)[:, None]


STUDY = Study(name="leakage", cases=cases, run=run, page=page)
