"""Are explanations that verify() calls confirmed so, and are rows like the training data called far?"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer import SOInter
from sointer.explainers.baselines.base import Random
from sointer.explanation import Explanation
from sointer.verification import LEVEL
from sointer.zoo import fit_or_load
from sointer.zoo.loaders import load_bibtex
from sointer.zoo.structured_models import DeepValueNetwork
from sointer.zoo.synthetic import ALL_PROBLEMS
from studies.frame.markdown import sections, table
from studies.frame.study import Case, Row, Study, model_cache

N_FEATURES, N_TRAIN, N_ROWS, N_HELD_OUT = 12, 800, 300, 2000
N_FRESH = 200
SEED = 1
"""Not 0, on which the number of draws and the level were chosen."""
EXPLAINERS = {"usual": 1500, "too few queries": 200, "random features": 0}
"""How many queries fit may ask; the last does not even look at the model."""
COUNTS = ("confirmed", "confirmed_true", "refuted", "refuted_true", "unsure")


def cases(smoke: bool) -> Iterator[Case]:
    if smoke:
        yield {"problem": "partly_mediated", "seed": 0, "n_rows": 20}
        return
    for problem in ALL_PROBLEMS:
        yield {"problem": problem, "seed": SEED, "n_rows": N_ROWS}
    yield {"problem": "bibtex", "seed": SEED, "n_rows": 150}


def run(problem: str, seed: int, n_rows: int) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bibtex(seed, n_rows) if problem == "bibtex" else synthetic(problem, seed, n_rows)


def synthetic(name: str, seed: int, n_rows: int) -> dict[str, Any]:
    problem = ALL_PROBLEMS[name](N_FEATURES)
    train, rows = problem.sample(N_TRAIN, random_state=seed), problem.sample(n_rows, random_state=1000 + seed)
    k = max(len(problem.relevant[target]) for target in problem.targets)
    targets = np.random.default_rng(seed).choice(problem.targets, n_rows)
    found: dict[str, Any] = {}
    for label, n_queries in EXPLAINERS.items():
        settings: dict[str, Any] = {"k": k, "random_state": seed}
        made = SOInter(problem, query_budget=n_queries, **settings) if n_queries else Random(problem, **settings)
        found[label] = checked(made.fit(train).explain(rows, targets), {})
    held_out = problem.sample(N_HELD_OUT, random_state=2000 + seed)
    return {"explainers": found, "far": share_far(made, held_out), "far_tripled": share_far(made, 3 * held_out)}


def bibtex(seed: int, n_rows: int) -> dict[str, Any]:
    """Words of a deep value network's tags, also confirmed with other documents' words in place of the removed ones."""
    data = load_bibtex()
    (X, Y), (others, _) = data.train, data.test
    model = fit_or_load(DeepValueNetwork(random_state=0), X, Y, model_cache())
    rows = others[np.random.default_rng(seed).choice(others.shape[0], n_rows, replace=False)]
    said = np.asarray(model.predict(rows))
    rng = np.random.default_rng(seed)
    targets = np.array([rng.choice(np.flatnonzero(tags)) if tags.any() else rng.integers(len(tags)) for tags in said])
    found: dict[str, Any] = {}
    for label, n_queries in (("too few queries", 2000), ("random features", 0)):
        settings: dict[str, Any] = {"k": 10, "random_state": seed}
        made = SOInter(model, query_budget=n_queries, **settings) if n_queries else Random(model, **settings)
        explanation = made.fit(X).explain(rows, targets, predicted=said)
        found[label] = checked(explanation, {"removal": "marginal"})
    return {"explainers": found, "far": share_far(made, others), "far_tripled": share_far(made, shuffled(others))}


def checked(explanation: Explanation, how: dict[str, Any]) -> dict[str, int]:
    """Verdicts of ten draws against those of many fresh ones."""
    check = explanation.verify(**how)
    truth = explanation.verify(n_draws=N_FRESH, random_state=12345, **how).agreement
    holds = truth >= LEVEL if check.n_draws is not None else truth == 1.0
    counts = (check.confirmed, check.confirmed & holds, check.refuted, check.refuted & ~holds, check.unsure)
    return {name: int(rows.sum()) for name, rows in zip(COUNTS, counts, strict=True)}


def share_far(explainer: Any, rows: Any) -> float:
    return float((explainer.distance(rows) > 1).mean())


def shuffled(rows: Any) -> Any:
    """Documents in another language, so to speak: every word replaced by another one."""
    columns: NDArray[np.int64] = np.random.default_rng(0).permutation(rows.shape[1])
    return rows[:, columns]


# --- the page ----------------------------------------------------------------------------------------------


def total(rows: list[Row], label: str | None = None) -> dict[str, int]:
    found = [counts for row in rows for name, counts in row["explainers"].items() if label in (None, name)]
    return {name: sum(counts[name] for counts in found) for name in COUNTS}


def verdict(rows: list[Row]) -> tuple[str, str]:
    found = total(rows)
    n = sum(found[name] for name in ("confirmed", "refuted", "unsure"))
    return f"{n:,} explanations, good and bad, verified with 10 draws each", (
        f"{percent(found['confirmed_true'], found['confirmed'])} of those confirmed hold in {N_FRESH} fresh draws, "
        f"{percent(found['refuted_true'], found['refuted'])} of those refuted do not"
    )


def verdicts_table(rows: list[Row]) -> str:
    head = ["explainer", "confirmed", "correctly", "refuted", "correctly", "unsure"]
    lines = [head]
    for label in (*EXPLAINERS, None):
        found = total(rows, label)
        true = (percent(found["confirmed_true"], found["confirmed"]), percent(found["refuted_true"], found["refuted"]))
        counts = [f"{found[name]:,}" for name in ("confirmed", "refuted", "unsure")]
        shown = {None: "all", "usual": "default"}.get(label, label)
        lines.append([shown, counts[0], true[0], counts[1], true[1], counts[2]])
    return table(lines[0], lines[1:])


def page(rows: list[Row], images: Path) -> str:
    far = [["problem", "held-out rows marked as far", "tripled rows, or shuffled words, marked as far"]]
    far += [[row["problem"], f"{row['far']:.1%}", f"{row['far_tripled']:.0%}"] for row in rows]
    return sections(
        "## Verdicts and distances",
        f"Explanations of {len(rows)} problems by three explainers: a default fit, one with far too few queries, and "
        'one that selects random features. `verify()` judges each from ten draws. A verdict of "confirmed" is '
        f"right if the target keeps its value in at least {LEVEL:.0%} of {N_FRESH} fresh draws. (On Bibtex, removed "
        "words are replaced by words of other documents, so that removal is random.) The number of draws and the "
        "required share were chosen on other samples of these problems.",
        verdicts_table(rows),
        "`far` should mark samples unlike the training data, and no others:",
        table(far[0], far[1:]),
    )


def percent(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "-"


STUDY = Study("honesty", cases, run, page)
