"""Real models: do the best k features keep a prediction, does deleting them change it, and what does it cost?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sointer.explainers.baselines.base import Random
from sointer.explainers.baselines.lime_and_shap import ShapleySampling
from sointer.explainers.baselines.tree_shap import TreeShap
from sointer.metrics.faithfulness import KeepAndDelete, keep_and_delete
from sointer.metrics.ground_truth import top_k
from studies.frame.explaining import N_PER_ROW, PER_ROW, baseline, fit_ours, ranking_of
from studies.frame.study import Case, Study
from studies.tables.black_boxes import MODELS, Model, Table, fit_model, load_table
from studies.tables.tables_page import IMPORTANCES, ONE_LIST, TREE_SHAP, page

SEEDS = range(102, 107)
"""Seeds that took no part in development."""
N_DRAWS = 6
TOLERANCE = 0.5
"""Numbers that differ by at most this share of the standard deviation of predictions count as the same."""
METHODS = ("SOInter", TREE_SHAP, "ShapleySampling", ONE_LIST, IMPORTANCES, "Random")
SLOW_METHODS = ("KernelShap", "Lime")
N_SLOW_SEEDS, N_SEEDS_OF_OTHERS = 2, 3
"""Seeds of the slow methods, and of models besides those in MAIN."""
MAIN = {"emotions": ("forest", "boosting"), "scene": ("forest", "boosting"), "digits": ("MLP", "extra trees")}
"""The models that the bars are about."""
WITH_TREES = {"forest", "boosting", "extra trees", "demo"}
WITH_IMPORTANCES = {"forest", "extra trees", "demo"}


# --- cases -----------------------------------------------------------------------------------------------


def cases(smoke: bool) -> Iterator[Case]:
    """Seed by seed, the models that the bars are about first: an early stop leaves fewer seeds, not fewer models."""
    if smoke:
        for method in methods_of("forest", (*METHODS, *SLOW_METHODS)):
            yield {"table": "wine", "model": "forest", "method": method, "seed": 0, "quick": True}
        yield {"table": "diabetes", "model": "forest", "method": "SOInter", "seed": 0, "quick": True}
        yield {"table": "breast cancer", "model": "boosting", "method": TREE_SHAP, "seed": 0, "quick": True}
        return
    others = {
        table: [model for model in models if model not in MAIN.get(table, ())] for table, models in MODELS.items()
    }
    for place, seed in enumerate(SEEDS):
        for part, methods, n_seeds in (
            (MAIN, METHODS, len(SEEDS)),
            (others, METHODS, N_SEEDS_OF_OTHERS),
            ({"emotions": MAIN["emotions"], "digits": MAIN["digits"]}, SLOW_METHODS, N_SLOW_SEEDS),
        ):
            for table, models in part.items() if place < n_seeds else ():
                for model in models:
                    for method in methods_of(model, methods):
                        yield {"table": table, "model": model, "method": method, "seed": seed}


def methods_of(model: str, methods: Sequence[str] = METHODS) -> list[str]:
    """Those that can explain it: two of them look inside trees."""
    looks_inside = {TREE_SHAP: model in WITH_TREES, IMPORTANCES: model in WITH_IMPORTANCES}
    return [method for method in methods if looks_inside.get(method, True)]


# --- one case --------------------------------------------------------------------------------------------


class Ranked(NamedTuple):
    """What a method says about the explained rows."""

    rankings: NDArray[np.int64]
    """(targets, rows, places) features, best first."""
    fit_queries: int
    row_queries: float
    """Queries per row for all targets together, besides the one for its predictions."""
    fit_seconds: float
    explain_seconds: float


def run(table: str, model: str, method: str, seed: int, quick: bool = False) -> dict[str, Any]:
    """Explain test rows for all targets, then keep and delete with draws that are the same for every method."""
    data, fitted = load_table(table, seed), fit_model(table, model, seed)
    shuffle = np.random.default_rng(seed).permutation(len(data.X_test))
    rows = shuffle[: 5 if quick else data.n_rows]
    X = data.X_test[rows]
    ranked = rank(method, data, fitted, X, seed, quick)
    curves = judge(data, fitted, X, ranked.rankings, seed, n_draws=2 if quick else N_DRAWS)
    return {
        "sizes": list(data.sizes),
        "keep": curves.keep.round(4).tolist(),
        "delete": curves.delete.round(4).tolist(),
        "n_test": len(X),
        "n_features": X.shape[1],
        "n_targets": len(ranked.rankings),
        "quality": quality(data, fitted),
        "fit_queries": ranked.fit_queries,
        "row_queries": round(ranked.row_queries, 1),
        "fit_seconds": round(ranked.fit_seconds, 2),
        "explain_seconds": round(ranked.explain_seconds, 3),
    }


def judge(
    data: Table, model: Model, X: NDArray[np.float64], rankings: NDArray[np.int64], seed: int, n_draws: int
) -> KeepAndDelete:
    """Keep and delete of rankings (targets, rows, places); removed features are those of training rows."""
    n_targets, n_rows, n_places = rankings.shape
    options = {"output_kind": model.kind, "tolerance": TOLERANCE if data.numbers else None}
    explainer = Random(model, k=1, removal="marginal", random_state=seed, **options).fit(data.X_train)
    explanation = explainer.explain(np.tile(X, (n_targets, 1)), target=np.repeat(np.arange(n_targets), n_rows))
    order = rankings.reshape(-1, n_places)
    return keep_and_delete(explanation, ks=data.sizes, ranking=order, n_draws=n_draws, random_state=seed)


def quality(data: Table, model: Model) -> float:
    """Share of labels of the test rows that the model predicts; of numbers, R squared, mean over outputs."""
    predicted = np.asarray(model(data.X_test), dtype=np.float64)
    if not data.numbers:
        return round(float(np.mean((predicted > 0.5) == data.Y_test)), 4)
    truth = (data.Y_test - data.Y_train.mean(axis=0)) / data.Y_train.std(axis=0)
    return round(float(np.mean(1 - ((predicted - truth) ** 2).mean(axis=0) / truth.var(axis=0))), 4)


def rank(method: str, data: Table, model: Model, X: NDArray[np.float64], seed: int, quick: bool) -> Ranked:
    predicted = np.asarray(model(X))
    n_targets, largest = predicted.shape[1], max(data.sizes)
    if method == "SOInter":
        return rank_ours(data, model, X, predicted, seed, quick)
    started = time.process_time()
    if method == TREE_SHAP:
        trees = TreeShap(model.trees, k=largest, random_state=seed, verbose=False).fit(data.X_train)
        fitted = time.process_time()
        labels = predicted if data.numbers else (predicted > 0.5).astype(int)
        scores = explain_all(trees, X, n_targets, labels)
        seconds = time.process_time() - fitted
        return Ranked(ranking(scores, largest, seed), 0, 0.0, fitted - started, seconds)
    if method == IMPORTANCES:
        assert model.importances is not None
        scores = np.broadcast_to(model.importances, (n_targets, *X.shape))
        return Ranked(ranking(scores, largest, seed), 0, 0.0, 0.0, time.process_time() - started)
    if method == ONE_LIST:
        return rank_one_list(data, model, X, n_targets, seed, quick)
    options: dict[str, Any] = {"k": largest, "output_kind": model.kind, "random_state": seed, "verbose": False}
    if method in PER_ROW:
        options |= {"n_samples": 60 if quick else N_PER_ROW, "removal": "marginal"}
        # Signed towards what was predicted; of numbers, where there is no such direction, by size.
        options |= {} if data.numbers else {"signed": True}
        explainer = baseline(method)(model, **options)
    else:
        explainer = Random(model, **options)
    explainer.fit(data.X_train)
    fitted = time.process_time()
    scores = explain_all(explainer, X, n_targets, predicted)
    seconds = time.process_time() - fitted
    per_row = explainer.n_explain_queries_ / len(X)
    return Ranked(ranking(scores, largest, seed), 0, per_row, fitted - started, seconds)


def rank_ours(
    data: Table, model: Model, X: NDArray[np.float64], predicted: NDArray[Any], seed: int, quick: bool
) -> Ranked:
    """SOInter at its defaults; given the model's predictions, it explains without any query."""
    targets, largest = list(range(predicted.shape[1])), max(data.sizes)
    started = time.process_time()
    explainer = fit_ours(
        model,
        data.X_train,
        name="SOInter",
        k=data.sizes[1],
        seed=seed,
        targets=targets,
        budget=300 if quick else data.n_queries,
        quick=quick,
        output_kind=model.kind,
    )
    fitted = time.process_time()
    rankings = [ranking_of(explainer.explain(X, target=target, k=largest, predicted=predicted)) for target in targets]
    seconds = time.process_time() - fitted
    per_row = explainer.n_explain_queries_ / len(X)
    return Ranked(np.stack(rankings), explainer.n_queries_, per_row, fitted - started, seconds)


def rank_one_list(data: Table, model: Model, X: NDArray[np.float64], n_targets: int, seed: int, quick: bool) -> Ranked:
    """For each target, the features by the size of their Shapley values summed over training rows."""
    started = time.process_time()
    n_samples = X.shape[1] + 1
    explainer = ShapleySampling(
        model,
        k=max(data.sizes),
        n_samples=max(n_samples, 10),
        removal="marginal",
        output_kind=model.kind,
        random_state=seed,
        verbose=False,
    ).fit(data.X_train)
    n_walked = max(1, (300 if quick else data.n_queries) // n_samples)
    walked = np.random.default_rng(seed).permutation(len(data.X_train))[:n_walked]
    summed = explain_all(explainer, data.X_train[walked], n_targets).sum(axis=1)
    scores = np.broadcast_to(summed[:, None], (n_targets, *X.shape))
    seconds = time.process_time() - started
    return Ranked(ranking(scores, max(data.sizes), seed), explainer.n_explain_queries_, 0.0, seconds, 0.0)


def explain_all(
    explainer: Any, X: NDArray[np.float64], n_targets: int, predicted: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    """(targets, rows, features) scores; the targets of a row share its queries."""
    given = None if predicted is None else np.tile(predicted, (n_targets, 1))
    targets = np.repeat(np.arange(n_targets), len(X))
    found = explainer.explain(np.tile(X, (n_targets, 1)), target=targets, predicted=given)
    return np.asarray(found.scores, dtype=np.float64).reshape(n_targets, *X.shape)


def ranking(scores: NDArray[np.float64], k: int, seed: int) -> NDArray[np.int64]:
    """(targets, rows, k) the features with the largest scores, best first, ties broken at random."""
    n_targets, n_rows, n_features = scores.shape
    return top_k(scores.reshape(-1, n_features), k, seed).reshape(n_targets, n_rows, k)


STUDY = Study(name="tables", cases=cases, run=run, page=page)
