"""Every synthetic problem of the library, at its defaults: are the planted features found?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sointer.metrics.ground_truth import exact_match, median_rank
from sointer.zoo.synthetic import ALL_PROBLEMS
from studies.frame.drawing import interval
from studies.frame.study import Case, Row, Study
from studies.synthetic.accuracy import make
from studies.synthetic.black_boxes import planted

SEEDS = range(20, 25)
N_FEATURES = 20
N_ROWS, N_TEST_ROWS = 2000, 1000


def cases(smoke: bool) -> Iterator[Case]:
    if smoke:
        yield {"problem": "mediated_xor", "method": "SOInter", "seed": 0, "budget": 300}
        return
    for seed in SEEDS:
        for name in ALL_PROBLEMS:
            if name not in ("e1", "e2"):  # the study of accuracy has these at many sizes
                yield {"problem": name, "method": "SOInter", "seed": seed}
        yield {"problem": "switch", "method": "SOInter-1", "seed": seed}


def run(problem: str, method: str, seed: int, budget: int | None = None) -> dict[str, Any]:
    """Fit once, explain held-out rows for every planted target."""
    known = planted(problem, N_FEATURES, seed)
    X, X_test = known.sample(N_ROWS, random_state=seed), known.sample(N_TEST_ROWS, random_state=10_000 + seed)
    k = int(known.relevant_rows(X_test[:1], known.targets[0]).sum())
    started = time.perf_counter()
    explainer = make(method, known, k, seed, budget).fit(X, targets=list(known.targets))
    fit_seconds = time.perf_counter() - started
    targets = {}
    for target in known.targets:
        explanation = explainer.explain(X_test, target=target)
        one_more = explainer.explain(X_test, target=target, k=k + 1)
        found = {
            "exact_match": exact_match(explanation.mask, known.relevant_rows(X_test, target)),
            "median_rank": median_rank(np.asarray(known.order)[explanation.selected]),
            "fidelity": explanation.verify(n_draws=3).fidelity,
            "fidelity_one_more": one_more.verify(n_draws=3).fidelity,
        }
        targets[known.output_names[target]] = {name: round(float(value), 4) for name, value in found.items()}
    return {
        "k": k,
        "fit_seconds": round(fit_seconds, 2),
        "n_queries": explainer.n_queries_,
        "held_out_agreement": round(explainer.held_out_agreement_, 4),
        "targets": targets,
    }


def page(rows: list[Row], images: Path) -> str:
    lines = [
        "# Every synthetic problem, at the defaults",
        "",
        "In the problems of `sointer.zoo.ALL_PROBLEMS` the black box is known exactly, and so are the features",
        f"that can change each output. {N_FEATURES} features, {N_ROWS:,} rows, the automatic budget; no setting is",
        "tuned per problem, features are shuffled in every run, and the seeds were not used in development. *Exact",
        f"match*: share of {N_TEST_ROWS:,} held-out samples whose selected set is exactly the relevant one, given",
        "its size k. *Fidelity*: share of samples whose target keeps its value when all other features are replaced",
        "by another row's. E1 and E2 have [their own page](accuracy.md). Made by `make reproduce-synthetic`.",
        "",
        "| problem | method | target | exact match (worst seed) | median rank | fidelity at k | at k + 1 "
        "| black-box rows | seeds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for problem, method in dict.fromkeys((row["problem"], row["method"]) for row in rows):
        same = [row for row in rows if (row["problem"], row["method"]) == (problem, method)]
        for target in same[0]["targets"]:
            found = [row["targets"][target] for row in same]
            match = [f["exact_match"] for f in found]
            lines.append(
                f"| {problem} | {method} | {target} | {interval(match)} ({min(match):.3f}) "
                f"| {np.mean([f['median_rank'] for f in found]):.2f} | {np.mean([f['fidelity'] for f in found]):.3f} "
                f"| {np.mean([f['fidelity_one_more'] for f in found]):.3f} "
                f"| {np.mean([row['n_queries'] for row in same]):,.0f} | {len(same)} |"
            )
    note = [
        "In `switch`, the hardest problem, relevant features depend on the sample, and for many samples fewer suffice.",
        "SOInter-1, which learns each output separately, is shown for comparison.",
    ]
    return "\n".join([*lines, "", *note, ""])


STUDY = Study("problems", cases, run, page)
