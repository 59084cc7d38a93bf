"""What a report shows of tables and texts: all targets of many samples explained, and many of them checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sointer.containers import n_rows, rows
from sointer.errors import InputError
from sointer.explanation import Explanation
from sointer.report import ReportContent, TargetWays, render_report
from sointer.reporting.asking import N_DRAWS, can_answer, question_budget, samples_to_ask
from sointer.reporting.plain_words import Told, cards_of, lead_of, says_of, warnings_of
from sointer.reporting.room import cut_texts, samples_that_fit
from sointer.reporting.samples import drawn, holds_counts, n_own, names_of_samples, present
from sointer.reporting.unit_words import UnitWords, in_words
from sointer.reporting.ways import follow, targets_to_follow
from sointer.training.history import History
from sointer.validation import _some as some
from sointer.validation import check_k, resolve_targets

if TYPE_CHECKING:
    from sointer.base import Explainer

SHOWN_OF_AUTO = 10
NUMBERS_IN_WORDS = ["lower than usual", "higher than usual"]


@dataclass(frozen=True, eq=False)
class Findings:
    """What was found out about each target (targets, samples), before it is put into words."""

    expected: NDArray[Any]
    selected: NDArray[np.int64]
    scores: NDArray[np.float32]
    agreement: NDArray[np.float64]
    ways: dict[int, TargetWays]


def table_page(
    explainer: Explainer,
    X: Any,
    *,
    targets: Sequence[int | str] | None,
    n_samples: int,
    k: int | None,
    predicted: Any,
    verify: bool | int | None,
    title: str,
    sample_names: Sequence[str] | None,
    paths: bool | int,
) -> str:
    """Explain samples of X for all targets, ask the model about as many as may be, and show it."""
    chosen = _targets(explainer, targets)
    n_shown = _n_shown(explainer, k)
    given = explainer._source(X, predicted)  # what does not fit must come to light before the model is asked
    n_given = n_rows(X)
    names = names_of_samples(X, sample_names)
    fitting = samples_that_fit(
        len(chosen),
        n_shown,
        given.groups.n_units,
        n_own(given),
        counts=holds_counts(given),
        numbers=explainer.outputs_.kind in ("continuous", "probability"),
        texts=given.texts,
    )
    index = drawn(n_given, min(n_samples, fitting))
    X = rows(X, index)
    source = explainer._source(X, None if given.predicted is None else given.predicted[index])
    answers = source.predicted
    queries_before = _n_queries(explainer)
    if answers is None and can_answer(explainer, len(index)):
        answers = source.answers
    seen = X if source.texts is None else explainer.input_format_.decode(source.data)  # words are counted once only
    found = _explain_all(explainer, seen, answers, chosen, n_shown, verify, paths)
    values, codes, numbers = _values(explainer, found.expected, answers, chosen)
    words = UnitWords(source)
    shown_of_sample = [np.unique(found.selected[:, i]) for i in range(len(index))]
    far = np.flatnonzero(explainer._distance_of(source.data) > 1).tolist()
    told = Told(
        targets=[explainer.output_names_[t] for t in chosen],
        codes=codes,
        asked=~np.isnan(found.agreement),
        confirmed=found.agreement == 1.0,
        k=n_shown,
        n_given=n_given,
        too_many=len(index) < min(n_samples, n_given),
        knows_answers=answers is not None,
        n_queries=_n_queries(explainer) - queries_before,
        n_followed=len(found.ways),
        n_far=len(far),
    )
    content = ReportContent(
        title=title,
        lead=lead_of(explainer, told),
        cards=cards_of(explainer, told),
        says=says_of(explainer, told),
        warnings=warnings_of(explainer, told),
        samples=[names[i] for i in index],
        targets=told.targets,
        units=source.groups.unit_names,
        thing="feature" if source.texts is None else "word",
        kind=explainer.outputs_.kind,
        values=values,
        codes=codes,
        numbers=numbers,
        selected=found.selected,
        scores=found.scores,
        agreement=found.agreement,
        unit_values=[
            {int(unit): words.of(i, int(unit)) for unit in units if unit >= 0}
            for i, units in enumerate(shown_of_sample)
        ],
        present=present(source),
        texts=None if source.texts is None else cut_texts(source.texts),
        outputs=explainer.output_names_,
        interactions=getattr(explainer, "output_interactions_", None),
        ways=found.ways,
        far=far,
    )
    return render_report(content)


def _explain_all(
    explainer: Explainer,
    X: Any,
    answers: NDArray[Any] | None,
    targets: list[int],
    k: int,
    verify: bool | int | None,
    paths: bool | int,
) -> Findings:
    n_samples, n_targets = n_rows(X), len(targets)
    n_draws = N_DRAWS if explainer.removal_.is_random else 1
    most = question_budget(explainer, 0, verify, n_samples * n_targets * n_draws) if answers is not None else 0
    n_asked = min(n_samples, most // (n_targets * n_draws))
    followed = targets_to_follow(explainer, targets, paths)
    rng = np.random.default_rng(0)
    ways: dict[int, TargetWays] = {}
    expected = np.empty((n_targets, n_samples), dtype=object)
    selected = np.full((n_targets, n_samples, k), -1)
    scores = np.zeros((n_targets, n_samples, k), dtype=np.float32)
    agreement = np.full((n_targets, n_samples), np.nan)
    progress = History(getattr(explainer, "verbose", None))
    progress.stage("report: explaining every target", n_targets + len(followed))
    try:
        for place, target in enumerate(targets):
            explanation = explainer.explain(X, target, k=k, predicted=answers)
            expected[place] = explanation.expected
            width = explanation.selected.shape[1]
            selected[place, :, :width] = explanation.selected
            scores[place, :, :width] = _selected_scores(explanation)
            groups = _grouped(explainer, target, explanation.expected)
            asked = samples_to_ask(groups, n_asked, rng)
            agreement[place, asked] = explanation.source.agreement(
                explanation.unit_mask[asked], explanation.target[asked], rows=asked, n_draws=N_DRAWS, seed=0
            )
            progress.step()
            if target in followed:
                found = follow(explainer, X, answers, target, groups, k)
                ways |= {} if found is None else {place: found}
                progress.step()
    finally:
        progress.close()
    return Findings(expected, selected, scores, agreement, ways)


def _selected_scores(explanation: Explanation) -> NDArray[np.float32]:
    units = np.maximum(explanation.selected, 0)
    return np.take_along_axis(explanation.scores, units, axis=1)


def _grouped(explainer: Explainer, target: int, expected: NDArray[Any]) -> NDArray[Any]:
    """Values of one target that are spoken of together: labels each on its own, numbers as low or high."""
    center = explainer.outputs_.center
    if center is None:
        return np.array([in_words(value) for value in expected], dtype=object)
    return np.asarray(expected.astype(np.float64) > center[target]).astype(np.int64)


def _values(
    explainer: Explainer, expected: NDArray[Any], answers: NDArray[Any] | None, targets: list[int]
) -> tuple[list[str], NDArray[np.int64], NDArray[np.float64] | None]:
    """The names of values, which of them each target and sample has, and the numbers behind them."""
    groups = np.stack([_grouped(explainer, target, row) for target, row in zip(targets, expected, strict=True)])
    if explainer.outputs_.kind == "continuous":
        return NUMBERS_IN_WORDS, groups.astype(np.int64), expected.astype(np.float64)
    names, codes = np.unique(groups.astype(str), return_inverse=True)
    is_probability = explainer.outputs_.kind == "probability" and answers is not None
    numbers = np.asarray(answers, dtype=np.float64)[:, targets].T if is_probability else None
    return names.tolist(), codes.reshape(groups.shape), numbers


def _targets(explainer: Explainer, targets: Sequence[int | str] | None) -> list[int]:
    if targets is None:
        return list(explainer.targets_)
    wanted = [targets] if isinstance(targets, str | int) else list(targets)
    found = list(dict.fromkeys(resolve_targets(wanted, explainer.output_names_, len(wanted)).tolist()))
    unknown = [explainer.output_names_[t] for t in found if t not in set(explainer.targets_)]
    if unknown or not found:
        what = f"{some(unknown)} were not among the targets given to fit" if unknown else "targets is empty"
        known = [explainer.output_names_[t] for t in explainer.targets_]
        raise InputError(f"report: {what}; choose among {some(known)}, or leave targets out for all of them.")
    return found


def _n_shown(explainer: Explainer, k: int | None) -> int:
    n_units = explainer.groups_.n_units
    chosen = check_k(explainer.k if k is None else k, n_units)
    return min(SHOWN_OF_AUTO, n_units) if chosen == "auto" else chosen


def _n_queries(explainer: Explainer) -> int:
    return 0 if explainer.black_box_ is None else explainer.black_box_.n_queries
