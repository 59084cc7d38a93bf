"""Compare an explainer with baselines on the same cases; the model decides who is right. Of sequences, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sointer._support.validation import check_k, check_positive_int
from sointer.data.sequences import read_sequences
from sointer.errors import InputError
from sointer.explainers.base import Explainer
from sointer.explainers.estimator import refuse_for_sequences
from sointer.explainers.reading import fitted_targets
from sointer.explainers.sequence_explanation import SequenceExplanation
from sointer.explainers.sequences import SequenceExplainer
from sointer.explainers.sointer import SOInter
from sointer.explanation import Explanation
from sointer.masking.build import make_removal
from sointer.masking.removal import Removal, TextRemoval
from sointer.masking.rows import ExplainedRows
from sointer.masking.selection import first_units, smallest_confirmed
from sointer.metrics.evaluation_baselines import (
    FittedBaseline,
    GlobalList,
    choose_baselines,
    make_baseline,
    queries_of_fit,
)
from sointer.metrics.evaluation_result import (
    Evaluation,
    MethodScore,
    SequenceEvaluation,
    TargetScore,
    TokenScore,
    mean_interval,
)
from sointer.metrics.faithfulness import check_sizes, keep_and_delete
from sointer.metrics.pixels import check_pixel_sizes
from sointer.metrics.swaps import Pool

TARGETS_PER_ROW = 8
N_DRAWS = 10
N_PAIRED_DRAWS = 6
"""Draws for each size of keep and delete, which are many."""
SHARE_CHANGED = 0.1
Sizes: TypeAlias = tuple[int, ...] | Pool


@dataclass(frozen=True)
class Cases:
    """Rows, and which outputs are explained for each: case i is about row `row[i]` and output `target[i]`."""

    source: ExplainedRows
    """The rows, with the model's outputs."""
    row: NDArray[np.int64]
    target: NDArray[np.int64]
    changed: ExplainedRows
    """The same rows with a tenth of their features removed, and the model's outputs for those."""
    untouched: NDArray[np.bool_]
    """Which units of each row were left as they were: (rows, units)."""

    def __len__(self) -> int:
        return len(self.row)


def evaluate(
    explainer: Explainer,
    X: Any,
    *,
    targets: Sequence[int | str] | None = None,
    n_rows: int = 50,
    k: int | Literal["auto"] | None = None,
    ks: Sequence[int] | None = None,
    against: Sequence[str] | None = None,
    n_samples: int = 1000,
    random_state: int = 0,
    tell: Callable[[str], None] | None = None,
) -> Evaluation:
    """Compare an explainer that has its model with baselines, on rows drawn at random from X.

    All methods explain the same cases (a case is a row and an output): up to 8 outputs of each row. If there are more
    outputs, half of the 8 are outputs whose value in that row is unusual. All methods are given the model's outputs,
    and the model is queried to measure what they select. For tables and texts, the measures are keep, the share of
    predictions that stay on the best features alone, and delete, the share that change when these are removed. For
    images they are insert and delete by swaps with images of X that have another label at the target, and J: see
    `sointer.metrics.swap_scores`.

    Parameters
    ----------
    explainer : Explainer
        Fitted, with its model.
    X : table, texts or images
        In the format of fit; preferably rows that were not used in fit.
    targets : sequence of int or str, optional
        Outputs to explain; default all that were fitted.
    n_rows : int, default 50
        Number of rows drawn at random from X.
    k : int or "auto", optional
        Number of features selected; default: the explainer's own. "auto": every method selects as many as the
        explainer does for the case.
    ks : sequence of int, optional
        Sizes of keep and delete; default: k and those of 1, 3, 8, 15, 30 that are less than the number of features.
        For images, in pixels; default: 10, 30, 100 and 300.
    against : sequence of str, optional
        Names of `BASELINES`: Random, GlobalList (one ranking for all rows, by the mean size of the explainer's own
        scores), NearestPixels, Rise and Occlusion (images only), Lime, KernelShap, ShapleySampling (used by default if
        shap is not installed), TreeShap (which looks inside models of trees), HideAndSeek and Invase (both trained on
        the explainer's training rows, with as many queries as its fit). ["all"]: all that are installed and apply to
        the data. By default Invase, which takes minutes, is left out, and so is HideAndSeek if there are many outputs.
    n_samples : int, default 1000
        Maximum number of queries of Lime, KernelShap, Rise and Occlusion per row.
    random_state : int, default 0
    tell : function, optional
        Called with a line of text before every step.

    Returns
    -------
    Evaluation

    Raises
    ------
    InputError
        If the explainer has no model, or a baseline is unknown or does not apply to the data.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer import SOInter
    >>> X = np.random.default_rng(0).normal(size=(500, 6))
    >>> model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 0] * X[:, 1] > 0])
    >>> explainer = SOInter(model, k=2, random_state=0).fit(X)
    >>> found = evaluate(explainer, X, n_rows=20, against=["Random"])
    >>> found.methods[0].fidelity.mean > found.methods[1].fidelity.mean
    True
    """
    refuse_for_sequences(explainer, "evaluate")
    say = tell or (lambda _: None)
    if explainer.black_box_ is None:
        raise InputError("evaluate: there is no model to query; load the explainer with its model.")
    before = explainer.black_box_.n_queries
    rng = np.random.default_rng(check_positive_int(random_state, "random_state", minimum=0))
    check_positive_int(n_samples, "n_samples", minimum=10)
    targets_to_explain = fitted_targets(targets, explainer.outputs_)
    names = choose_baselines(against, explainer, targets_to_explain, say)
    rows = explainer._source(X, None)
    subset = np.sort(rng.permutation(rows.data.shape[0])[: check_positive_int(n_rows, "n_rows")])
    say(f"querying the model for {len(subset)} rows")
    cases = draw_cases(explainer, rows.take(subset), targets_to_explain, rng)
    n_units = cases.source.groups.n_units
    size = check_k(explainer.k if k is None else k, n_units)
    sizes = sizes_to_report(explainer, ks, size)
    pool = Pool.of(rows, sizes, rng) if explainer.input_format_.image is not None and sizes else None
    other = other_removal(cases.source.removal)
    baselines = [make_baseline(name, explainer, targets_to_explain, n_samples, random_state, say) for name in names]
    own_queries = queries_of_fit(explainer) if isinstance(explainer, SOInter) else 0
    say(f"judging {type(explainer).__name__}")
    kept = rank(explainer, cases.source, cases, "auto").n_selected if size == "auto" else np.full(len(cases), size)
    score, agreement, explanation = judge(explainer, cases, kept, pool or sizes, other)
    scores = [replace(score, n_fit_queries=own_queries, fit_seconds=float("nan"))]
    for baseline in baselines:
        say(f"judging {type(baseline.method).__name__}")
        scores.append(judge_baseline(baseline, explanation, cases, kept, pool or sizes, other))
    return Evaluation(
        methods=scores,
        targets=by_target(explainer, cases, agreement),
        n_rows=len(subset),
        n_questions=len(cases),
        k=size,
        n_kept=float(kept.mean()),
        ks=list(sizes),
        removal=cases.source.removal.name,
        other_removal=other,
        n_queries=explainer.black_box_.n_queries - before,
    )


def other_removal(removal: Removal) -> str:
    """Another way to remove features; a list that suffices should suffice with that, too."""
    if isinstance(removal, TextRemoval):
        return "…" if removal.token is None else "delete"
    return "mean" if removal.is_random else "marginal"


def sizes_to_report(explainer: Explainer, ks: Sequence[int] | None, k: int | Literal["auto"]) -> tuple[int, ...]:
    """At how many features keep and delete are measured; or at how many pixels, if the outputs are labels."""
    n_units, image = explainer.groups_.n_units, explainer.input_format_.image
    if image is not None:
        pixels = check_pixel_sizes(ks, image.size)
        return () if "continuous" in explainer.outputs_.kinds else pixels
    sizes = check_sizes(ks, n_units)
    return sizes if ks is not None or k == "auto" or k == n_units else tuple(sorted({*sizes, k}))


def draw_cases(explainer: Explainer, source: ExplainedRows, targets: list[int], rng: np.random.Generator) -> Cases:
    """Choose the cases, and change a tenth of every row to see later who is confused by it."""
    source = source.queried()
    row, target = choose_cases(source.predictions, explainer, targets, rng)
    allowed = explainer._allowed(source)
    n_changed = np.maximum(1, np.rint(SHARE_CHANGED * allowed.sum(axis=1)))
    uniforms = np.where(allowed, rng.random(allowed.shape), np.inf)
    untouched = uniforms.argsort(axis=1).argsort(axis=1) >= n_changed[:, None]
    untouched |= ~allowed
    reduced = source.removal.reduce(source.data, source.groups.to_columns(untouched), rng)
    as_seen = source.input_format.encode(source.input_format.decode(reduced))
    changed = replace(source, data=as_seen, predicted=source.query_points(reduced))
    return Cases(source, row, target, changed, untouched)


def choose_cases(
    outputs: NDArray[Any], explainer: Explainer, targets: list[int], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All outputs of every row if they are few, else 8 of them, half of them with another value than usual."""
    if len(targets) <= TARGETS_PER_ROW:
        return np.repeat(np.arange(len(outputs)), len(targets)), np.tile(targets, len(outputs))
    chosen: list[NDArray[np.int64]] = []
    codes = explainer.outputs_.labels(outputs)[:, targets]
    usual = np.array([np.bincount(column).argmax() for column in codes.T])
    for unusual in codes != usual:
        rare = rng.permutation(np.flatnonzero(unusual))[: TARGETS_PER_ROW // 2]
        others = rng.permutation(np.setdiff1d(np.arange(len(targets)), rare))[: TARGETS_PER_ROW - len(rare)]
        chosen.append(np.asarray(targets)[np.concatenate([rare, others])])
    return np.repeat(np.arange(len(outputs)), TARGETS_PER_ROW), np.concatenate(chosen)


def judge_baseline(
    baseline: FittedBaseline, own: Explanation, cases: Cases, kept: NDArray[np.int64], sizes: Sizes, other: str
) -> MethodScore:
    """How another method does on all cases; `own` is the explainer's explanation of them."""
    if isinstance(baseline.method, GlobalList):
        baseline.method.learn_from(own)
    score, _, _ = judge(baseline.method, cases, kept, sizes, other)
    return replace(score, n_fit_queries=baseline.n_fit_queries, fit_seconds=baseline.fit_seconds)


def judge(
    method: Explainer, cases: Cases, kept: NDArray[np.int64], sizes: Sizes, other: str
) -> tuple[MethodScore, NDArray[np.float64], Explanation]:
    """How a method does on all cases, on which of them the model agrees, and the explanation.

    `kept` is how many features are kept for each of them; `sizes`, how many are kept and deleted, or swapped with the
    pixels of other images.
    """
    black_box = method.black_box_
    assert black_box is not None
    queries, started = black_box.n_queries, time.perf_counter()
    explanation = rank(method, cases.source, cases)
    ranking, source = explanation.selected, explanation.source
    seconds, n_queried = time.perf_counter() - started, black_box.n_queries - queries
    n_units, every = source.groups.n_units, np.arange(len(cases))
    chosen = first_units(ranking, kept, n_units)
    agreement = source.agreement(chosen, cases.target, rows=every, n_draws=N_DRAWS, seed=0)
    background = source.background.known_rows()
    otherwise = replace(source, removal=make_removal(other, background, source.input_format))
    elsewhere = otherwise.agreement(chosen, cases.target, rows=every, n_draws=N_DRAWS, seed=0)
    n_rows = cases.source.data.shape[0]
    score = MethodScore(
        name=type(method).__name__,
        fidelity=mean_interval([agreement[cases.row == row].mean() for row in range(n_rows)]),
        sufficient=float((agreement == 1.0).mean()),
        fidelity_otherwise=float(elsewhere.mean()),
        stability=stability(method, cases, chosen, kept),
        size=float(smallest_confirmed(source, ranking, cases.target).mean()),
        queries_per_row=n_queried / n_rows,
        ms_per_row=1000 * seconds / n_rows,
        **at_sizes(explanation, cases.target, sizes),
    )
    return score, agreement, explanation


def at_sizes(explanation: Explanation, targets: NDArray[np.int64], sizes: Sizes) -> dict[str, Any]:
    """Keep and delete at all sizes; of images insert, delete and J."""
    if isinstance(sizes, Pool):
        swaps = sizes.measure(explanation, targets)
        if swaps is None:
            return {}
        j = {fill: values.tolist() for fill, values in swaps.j.items()}
        return {"insert": swaps.insert.tolist(), "delete": swaps.delete.tolist(), "j": j}
    if not sizes:
        return {}
    curves = keep_and_delete(explanation, ks=sizes, n_draws=N_PAIRED_DRAWS)
    return {"keep": curves.keep.tolist(), "delete": curves.delete.tolist()}


def rank(method: Explainer, rows: ExplainedRows, cases: Cases, k: Literal["auto"] | None = None) -> Explanation:
    """All units of every case, or as many as the method selects, best first."""
    each = replace(rows, sample=cases.row)
    return method._explain_rows(each, cases.target, k or rows.groups.n_units)


def stability(method: Explainer, cases: Cases, chosen: NDArray[np.bool_], kept: NDArray[np.int64]) -> float:
    """Mean overlap (Jaccard) of what was chosen before and after the change, among the units left untouched."""
    if cases.source.groups is not method.groups_:
        return float("nan")  # superpixels of a changed image are others
    outputs, row = method.outputs_, cases.row
    same = outputs.agree(cases.source.predictions, cases.changed.predictions)[row, cases.target]
    ranking = rank(method, cases.changed, cases).selected
    after = first_units(ranking, kept, chosen.shape[1]) & cases.untouched[row]
    before = chosen & cases.untouched[row]
    either = (before | after).sum(axis=1)
    counted = same & (either > 0)
    overlap = (before & after).sum(axis=1)[counted] / either[counted]
    return float(overlap.mean()) if counted.any() else float("nan")


def by_target(explainer: Explainer, cases: Cases, agreement: NDArray[np.float64]) -> list[TargetScore]:
    """The explainer's fidelity on each output, worst first."""
    scores = []
    for target in np.unique(cases.target).tolist():
        own = agreement[cases.target == target]
        scores.append(TargetScore(explainer.output_names_[target], len(own), float(own.mean())))
    return sorted(scores, key=lambda score: score.fidelity)


def evaluate_sequences(
    explainer: SequenceExplainer,
    X: Any,
    *,
    n_rows: int = 50,
    k: int | Literal["auto"] | None = None,
    random_state: int = 0,
) -> SequenceEvaluation:
    """Compare the tokens that an explainer selects with the same number of nearest and of random tokens.

    Parameters
    ----------
    explainer : SequenceExplainer
        Fitted, with its model.
    X : list of token lists
        Preferably sequences that were not used in fit.
    n_rows : int, default 50
        Number of sequences drawn at random from X; all their labels are explained.
    k : int or "auto", optional
        Number of tokens selected; default: the explainer's own.
    random_state : int, default 0
        Draws sequences and replacements.

    Returns
    -------
    SequenceEvaluation

    Raises
    ------
    InputError
        If the explainer has no model.

    Examples
    --------
    >>> evaluate_sequences(explainer, sequences_not_used_in_fit).fidelity  # doctest: +SKIP
    """
    if explainer.black_box_ is None:
        raise InputError("evaluate: there is no model to query; load the explainer with its black box.")
    rng = np.random.default_rng(check_positive_int(random_state, "random_state", minimum=0))
    sequences = read_sequences(X, explainer.splitter, "evaluate")
    subset = np.sort(rng.permutation(len(sequences))[: check_positive_int(n_rows, "n_rows")])
    before = explainer.black_box_.n_queries
    why = explainer.explain([sequences[i] for i in subset], k=k)
    near = -np.abs(np.arange(why.scores.shape[1]) - why.position[:, None]).astype(np.float64)
    masks = {
        type(explainer).__name__: why.mask,
        "NearestTokens": _best(why, near),
        "Random": _best(why, rng.random(near.shape)),
    }
    methods = []
    for name, mask in masks.items():
        keep, delete = (why.repeated(kept, N_DRAWS, random_state)[0] for kept in (mask, ~mask))
        methods.append(TokenScore(name, float(keep.mean()), float(1 - delete.mean())))
    n_queries = explainer.black_box_.n_queries - before
    return SequenceEvaluation(methods, len(subset), len(why), float(why.n_selected.mean()), n_queries)


def _best(why: SequenceExplanation, scores: NDArray[np.float64]) -> NDArray[np.bool_]:
    """As many tokens of each target's sequence as were selected for it, those with the largest scores."""
    scores = np.where(np.isnan(why.scores), -np.inf, scores)
    rank = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray(rank < why.n_selected[:, None])
