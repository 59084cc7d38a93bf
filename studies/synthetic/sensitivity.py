"""How much does it matter how SOInter is set: temperature, k, size of the network, data, queries?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sointer import EnergyConfig, InterpreterConfig, SOInter, TrainingConfig
from sointer.metrics.ground_truth import exact_match
from studies.frame.study import Case, Study
from studies.synthetic.black_boxes import planted
from studies.synthetic.sensitivity_page import DEFAULTS, LAYERS, PROBLEMS, page

SEEDS = range(20, 25)
N_TEST_ROWS = 500
TEMPERATURES = (0.01, 0.1, 1.0, 10.0, 100.0)
N_ROWS = (100, 300, 1000, 2000, 10_000)
BUDGETS = (250, 500, 1000, 2000, 5000, 20_000)
VARIED = ("nothing", "budget", "temperature, paper preset", "k", "n_rows", "layers")


def cases(smoke: bool) -> Iterator[Case]:
    if smoke:
        yield {"problem": "S-1-5", "varied": "layers", "value": [50], "seed": 0, "budget": 250}
        yield {"problem": "S-2-5", "varied": "k", "value": 2, "seed": 0, "budget": 250}
        return
    for seed in SEEDS:
        for varied in VARIED:
            for problem in PROBLEMS:
                for value in values(varied, *sizes(problem)):
                    if value != DEFAULTS.get(varied):
                        yield {"problem": problem, "varied": varied, "value": value, "seed": seed}


def sizes(problem: str) -> tuple[int, int]:
    """How many features a problem has, and how many are relevant."""
    known = planted(*PROBLEMS[problem], seed=0)
    return known.n_features, len(known.relevant[known.targets[0]])


def values(varied: str, n_features: int, n_relevant: int) -> list[Any]:
    """What a setting is varied over."""
    if varied == "nothing":
        return [0]
    if varied == "k":  # the true size is what "nothing" varied has
        return [k for k in (1, 2, 3, 5, 7, 10, 20) if k <= n_features and k != n_relevant]
    return list(
        {
            "budget": BUDGETS,
            "n_rows": N_ROWS,
            "layers": [list(widths) for widths in LAYERS],
            "temperature, paper preset": TEMPERATURES,
        }[varied]
    )


def run(problem: str, varied: str, value: Any, seed: int, budget: int | None = None) -> dict[str, Any]:
    """Fit with one setting changed, explain held-out rows for every planted target."""
    planted_problem = planted(*PROBLEMS[problem], seed)
    n_rows = value if varied == "n_rows" else DEFAULTS["n_rows"]
    X = planted_problem.sample(n_rows, random_state=seed)
    X_test = planted_problem.sample(N_TEST_ROWS, random_state=10_000 + seed)
    k = value if varied == "k" else len(planted_problem.relevant[planted_problem.targets[0]])
    explainer = SOInter(
        planted_problem,
        k=k,
        preset="paper" if "paper" in varied else "default",
        query_budget=value if varied == "budget" else budget,
        energy=EnergyConfig(hidden=tuple(value)) if varied == "layers" else None,
        interpreter=InterpreterConfig(temperature=value) if "temperature" in varied else None,
        training=None if budget is None else TrainingConfig(n_epochs=4),
        random_state=seed,
        verbose=False,
    ).fit(X, targets=list(planted_problem.targets))
    found = []
    for target in planted_problem.targets:
        truth = planted_problem.relevant[target]
        explanation = explainer.explain(X_test, target=target)
        hits = np.isin(explanation.selected, truth).sum(axis=1)
        found.append(
            {
                "exact_match": exact_match(explanation.mask, truth),
                "precision": float(np.mean(hits / explanation.selected.shape[1])),
                "recall": float(np.mean(hits / len(truth))),
                "fidelity": explanation.verify(n_draws=3).fidelity,
            }
        )
    return {
        **{name: round(float(np.mean([f[name] for f in found])), 4) for name in found[0]},
        "n_relevant": len(planted_problem.relevant[planted_problem.targets[0]]),
        "n_queries": explainer.n_queries_,
    }


STUDY = Study("sensitivity", cases, run, page)
