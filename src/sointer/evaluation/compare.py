"""Ask an explainer and its rivals the same questions, and the model whether they are right."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.base import AUTO_K, Explainer, fitted_targets
from sointer.errors import InputError
from sointer.evaluation.result import Evaluation, MethodScore, TargetScore
from sointer.evaluation.rivals import installed_rivals, make_rivals
from sointer.explainer import SOInter
from sointer.metrics import mean_interval
from sointer.removal import make_removal
from sointer.selection import first_units, smallest_confirmed
from sointer.source import Source
from sointer.validation import check_k, check_positive_int

TARGETS_PER_ROW = 8
N_DRAWS = 10
SHARE_CHANGED = 0.1


@dataclass(frozen=True)
class Questions:
    """Rows, and which outputs are asked about for each: question i is about row `row[i]` and output `target[i]`."""

    source: Source
    """The rows, with what the model says about them."""
    row: NDArray[np.int64]
    target: NDArray[np.int64]
    changed: Source
    """The same rows with some of their features removed, and what the model says about those."""
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
    k: int | None = None,
    against: Sequence[str] | None = None,
    n_samples: int = 1000,
    random_state: int = 0,
    tell: Callable[[str], None] | None = None,
) -> Evaluation:
    """Compare an explainer that has a black box with other methods, on some rows of X.

    All methods are asked the same questions: up to 8 outputs of each of `n_rows` rows, of which half, where outputs are
    many, are chosen because the model gives them another value than usual. All are told what the model says, and
    the model judges what they select. `k` is how many features are kept (the explainer's own; 10 for k="auto").
    `against` names the other methods: unless told, Random, Lime and KernelShap, as far as they are installed.
    `n_samples` is the most rows that Lime and KernelShap may ask about each row. `tell` receives a line before every
    step.

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
    say = tell or (lambda _: None)
    if explainer.black_box_ is None:
        raise InputError("evaluate: there is no model to ask; load the explainer with its black box.")
    before = explainer.black_box_.n_queries
    rng = np.random.default_rng(check_positive_int(random_state, "random_state", minimum=0))
    against = installed_rivals(say) if against is None else against
    rivals = make_rivals(against, explainer, check_positive_int(n_samples, "n_samples", minimum=10), random_state)
    rows = explainer._source(X, None)
    some = np.sort(rng.permutation(rows.data.shape[0])[: check_positive_int(n_rows, "n_rows")])
    say(f"asking the model about {len(some)} rows")
    questions = ask_questions(explainer, rows.take(some), fitted_targets(targets, explainer.outputs_), rng)
    n_units = questions.source.groups.n_units
    asked = check_k(explainer.k if k is None else k, n_units)
    size = min(AUTO_K, n_units) if asked == "auto" else asked
    other = "mean" if questions.source.removal.is_random else "marginal"
    scores, agreement = [], np.zeros(0)
    for method in (explainer, *rivals):
        say(f"judging {type(method).__name__}")
        score, kept = judge(method, questions, size, other)
        scores.append(score)
        agreement = kept if method is explainer else agreement
    return Evaluation(
        methods=scores,
        targets=by_target(explainer, questions, agreement),
        n_rows=len(some),
        n_questions=len(questions),
        k=size,
        removal=questions.source.removal.name,
        other_removal=other,
        n_queries=explainer.black_box_.n_queries - before,
    )


def ask_questions(explainer: Explainer, source: Source, targets: list[int], rng: np.random.Generator) -> Questions:
    """Choose the questions, and change a tenth of every row to see later who is confused by it."""
    source = replace(source, predicted=source.answers)
    row, target = choose_questions(source.answers, explainer, targets, rng)
    allowed = explainer._allowed(source)
    n_changed = np.maximum(1, np.rint(SHARE_CHANGED * allowed.sum(axis=1)))
    lots = np.where(allowed, rng.random(allowed.shape), np.inf)
    untouched = lots.argsort(axis=1).argsort(axis=1) >= n_changed[:, None]
    untouched |= ~allowed
    reduced = source.removal.reduce(source.data, source.groups.to_columns(untouched), rng)
    changed = replace(source, data=reduced, predicted=source.ask(reduced))
    return Questions(source, row, target, changed, untouched)


def choose_questions(
    answers: NDArray[Any], explainer: Explainer, targets: list[int], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All outputs of every row if they are few, else some, half of them with another value than usual."""
    if len(targets) <= TARGETS_PER_ROW:
        return np.repeat(np.arange(len(answers)), len(targets)), np.tile(targets, len(answers))
    asked: list[NDArray[np.int64]] = []
    codes = explainer.outputs_.encode(answers)[:, targets]
    is_label = explainer.outputs_.kind in ("binary", "categorical")
    usual = np.array([np.bincount(column).argmax() for column in codes.T]) if is_label else codes
    for unusual in codes != usual:
        rare = rng.permutation(np.flatnonzero(unusual))[: TARGETS_PER_ROW // 2]
        others = rng.permutation(np.setdiff1d(np.arange(len(targets)), rare))[: TARGETS_PER_ROW - len(rare)]
        asked.append(np.asarray(targets)[np.concatenate([rare, others])])
    return np.repeat(np.arange(len(answers)), TARGETS_PER_ROW), np.concatenate(asked)


def judge(method: Explainer, questions: Questions, k: int, other: str) -> tuple[MethodScore, NDArray[np.float64]]:
    """How a method does on all questions, and on which of them the model agrees."""
    black_box = method.black_box_
    assert black_box is not None
    queries, started = black_box.n_queries, time.perf_counter()
    ranking, source = rank(method, questions.source, questions)
    seconds, asked = time.perf_counter() - started, black_box.n_queries - queries
    n_units, every = source.groups.n_units, np.arange(len(questions))
    chosen = first_units(ranking, np.full(len(questions), k), n_units)
    agreement = source.agreement(chosen, questions.target, rows=every, n_draws=N_DRAWS, seed=0)
    background = source.background.rows
    otherwise = replace(source, removal=make_removal(other, background, source.input_format))
    elsewhere = otherwise.agreement(chosen, questions.target, rows=every, n_draws=N_DRAWS, seed=0)
    n_rows = questions.source.data.shape[0]
    score = MethodScore(
        name=type(method).__name__,
        fidelity=mean_interval([agreement[questions.row == row].mean() for row in range(n_rows)]),
        sufficient=float((agreement == 1.0).mean()),
        fidelity_otherwise=float(elsewhere.mean()),
        stability=stability(method, questions, chosen, k),
        size=float(smallest_confirmed(source, ranking, questions.target).mean()),
        n_fit_queries=method.n_queries_ if isinstance(method, SOInter) else 0,
        queries_per_row=asked / n_rows,
        ms_per_row=1000 * seconds / n_rows,
    )
    return score, agreement


def rank(method: Explainer, rows: Source, questions: Questions) -> tuple[NDArray[np.int64], Source]:
    """All units of every question, best first, and the source that can be asked about them."""
    data = rows.input_format.decode(rows.data[questions.row])
    predicted = rows.answers[questions.row]
    explanation = method.explain(data, questions.target, k=rows.groups.n_units, predicted=predicted)
    return explanation.selected, explanation.source


def stability(method: Explainer, questions: Questions, chosen: NDArray[np.bool_], k: int) -> float:
    """Mean overlap (Jaccard) of what was chosen before and after the change, among the units left untouched."""
    if questions.source.groups is not method.groups_:
        return float("nan")  # superpixels of a changed image are others
    outputs, row = method.outputs_, questions.row
    same = outputs.agree(questions.source.answers, questions.changed.answers)[row, questions.target]
    ranking, _ = rank(method, questions.changed, questions)
    after = first_units(ranking, np.full(len(row), k), chosen.shape[1]) & questions.untouched[row]
    before = chosen & questions.untouched[row]
    either = (before | after).sum(axis=1)
    counted = same & (either > 0)
    overlap = (before & after).sum(axis=1)[counted] / either[counted]
    return float(overlap.mean()) if counted.any() else float("nan")


def by_target(explainer: Explainer, questions: Questions, agreement: NDArray[np.float64]) -> list[TargetScore]:
    """The explainer's fidelity on each output, worst first."""
    scores = []
    for target in np.unique(questions.target).tolist():
        own = agreement[questions.target == target]
        scores.append(TargetScore(explainer.output_names_[target], len(own), float(own.mean())))
    return sorted(scores, key=lambda score: score.fidelity)
