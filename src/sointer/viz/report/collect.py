"""What a report shows of tables and texts: all targets of many samples explained, and many of them checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import n_rows, rows
from sointer._support.progress import History
from sointer._support.validation import _some as _first
from sointer._support.validation import check_k, resolve_targets
from sointer.data.values import by_side, effects_from
from sointer.errors import InputError
from sointer.explanation import Explanation
from sointer.masking.rows import Queried
from sointer.paths import NoPaths, Paths
from sointer.viz.report.content import (
    EffectSummary,
    LocalitySummary,
    PathSummary,
    ReportContent,
    TargetLocalities,
    TargetPaths,
)
from sointer.viz.report.page import render_report
from sointer.viz.report.samples import (
    N_DRAWS,
    can_query,
    cut_texts,
    holds_counts,
    n_selectable,
    present,
    sample_indices,
    sample_names_of,
    samples_that_fit,
    samples_to_verify,
    spans_of,
    verification_budget,
)
from sointer.viz.report.text import ReportStats, UnitValues, cards_of, format_value, lead_of, notes_of, warnings_of

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer


MAX_TARGETS, N_SAMPLES, MAX_PATHS, MAX_MEDIATORS = 5, 12, 6, 3


def targets_to_follow(explainer: Explainer, targets: list[int], paths: bool | int) -> list[int]:
    """Those of the targets that are coupled most with other outputs; none where outputs stand alone."""
    interactions = getattr(explainer, "output_interactions_", None)
    if paths is False or interactions is None or len(interactions) < 2:
        return []
    most = MAX_TARGETS if paths is True else int(paths)
    coupling = np.asarray(interactions)[targets].max(axis=1)
    return [targets[i] for i in np.argsort(-coupling, kind="stable")[:most] if coupling[i] > 0]


def follow(
    explainer: Explainer,
    X: Any,
    predictions: NDArray[Any] | Queried | None,
    target: int,
    codes: NDArray[Any],
    k: int | Literal["auto"],
) -> TargetPaths | None:
    """The paths of the most important features, averaged over a few samples, unusual values first."""
    found, counts = np.unique(codes, return_counts=True)
    usual = found[np.argmax(counts)]
    subset = np.sort(np.argsort(codes == usual, kind="stable")[:N_SAMPLES])
    predicted = None if predictions is None else predictions[subset]
    explanation = explainer.explain(rows(X, subset), target, k=k, predicted=predicted, query=False)
    nothing = not (explanation.selected >= 0).any()
    if explanation.trace is None or isinstance(explanation.trace, NoPaths) or nothing:
        return None
    followed = explanation.paths()
    paths = [_path_summary(followed, target, unit) for unit in followed.ranked(target)[:MAX_PATHS]]
    return TargetPaths(paths, len(subset), followed.unit, followed.warning)


def _path_summary(followed: Paths, target: int, unit: int) -> PathSummary:
    total, direct, through = followed.average(target, unit)
    n_samples = int((followed.selected == unit).any(axis=1).sum())
    largest = sorted(through.items(), key=lambda pair: -abs(pair[1]))[:MAX_MEDIATORS]
    return PathSummary(unit, n_samples, total, direct, largest)


N_SHOWN_AUTO, MAX_LOCALITY_FEATURES = 10, 12
CONTINUOUS_LABELS = ["lower than usual", "higher than usual"]


@dataclass(frozen=True, eq=False)
class Findings:
    """What was found out about each target (targets, samples), before it is formatted."""

    value: NDArray[Any]
    selected: NDArray[np.int64]
    scores: NDArray[np.float32]
    agreement: NDArray[np.float64]
    paths: dict[int, TargetPaths]
    needed: NDArray[np.bool_] | None
    effects: EffectSummary | None
    n_more: NDArray[np.int64]
    locality: NDArray[np.int64] | None


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
    """Explain samples of X for all targets, verify as many as the budget allows, and render the page."""
    chosen = _targets(explainer, targets)
    n_shown = _n_shown(explainer, k)
    given = explainer._source(X, predicted)  # what does not fit must come to light before the model is queried
    n_given = n_rows(X)
    names = sample_names_of(X, sample_names)
    fitting = samples_that_fit(
        len(chosen),
        n_shown,
        given.groups.n_units,
        n_selectable(given),
        counts=holds_counts(given),
        numbers=bool(explainer.outputs_.graded.any()),
        effects="effect" in explainer.known_columns,
        texts=given.texts,
    )
    index = sample_indices(n_given, min(n_samples, fitting))
    X = rows(X, index)
    source = explainer._source(X, None if given.predicted is None else given.predicted[index])
    predictions = source.predicted
    queries_before = _n_queries(explainer)
    if predictions is None and can_query(explainer, len(index)):
        predictions = source.answers
    checked_predictions = Queried(predictions) if predictions is not None and source.predicted is None else predictions
    size = explainer.k if k is None else k
    found = _explain_all(explainer, X, checked_predictions, chosen, size, n_shown, verify, paths)
    localities, locality = _localities(explainer, chosen, found.locality)
    values, codes, numbers = _values(explainer, found.value, predictions, chosen)
    words = UnitValues(source)
    shown_of_sample = [np.unique(found.selected[:, i]) for i in range(len(index))]
    far = np.flatnonzero(explainer._distance_of(source.data) > 1).tolist()
    stats = ReportStats(
        targets=[explainer.output_names_[t] for t in chosen],
        codes=codes,
        queried=~np.isnan(found.agreement),
        confirmed=found.agreement == 1.0,
        k=size,
        n_given=n_given,
        too_many=len(index) < min(n_samples, n_given),
        has_predictions=predictions is not None,
        n_queries=_n_queries(explainer) - queries_before,
        n_followed=len(found.paths),
        n_far=len(far),
        has_effects=found.effects is not None,
        has_unneeded=found.needed is not None and bool((~found.needed & (found.selected >= 0)).any()),
    )
    content = ReportContent(
        title=title,
        lead=lead_of(explainer, stats),
        cards=cards_of(explainer, stats),
        notes=notes_of(explainer, stats),
        warnings=warnings_of(explainer, stats),
        samples=[names[i] for i in index],
        targets=stats.targets,
        units=source.groups.unit_names,
        unit_noun="feature" if source.texts is None else "word",
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
        spans=None if source.texts is None else [spans_of(source, i, u) for i, u in enumerate(shown_of_sample)],
        outputs=explainer.output_names_,
        interactions=getattr(explainer, "output_interactions_", None),
        paths=found.paths,
        far=far,
        is_expected=predictions is None,
        kinds=[explainer.outputs_.kinds[t] for t in chosen],
        needed=found.needed,
        effects=found.effects,
        n_more=found.n_more if found.n_more.any() else None,
        localities=localities,
        locality=locality,
        quality=_quality(explainer, chosen),
    )
    return render_report(content)


def _localities(
    explainer: Explainer, targets: list[int], locality: NDArray[np.int64] | None
) -> tuple[list[TargetLocalities] | None, NDArray[np.int64] | None]:
    """The localities of each target, and in which of them each sample lies: (targets, samples)."""
    if locality is None:
        return None, None
    unit_of_name = {name: unit for unit, name in enumerate(explainer.groups_.unit_names)}
    localities, numbers = [], np.zeros(locality.shape, dtype=np.int64)
    for i, target in enumerate(targets):
        found = explainer.localities(target)
        leaves = [
            LocalitySummary(
                leaf.where,
                leaf.share,
                [
                    (unit_of_name[feature], relevance)
                    for feature, relevance in zip(leaf.features, leaf.relevance, strict=True)
                ][:MAX_LOCALITY_FEATURES],
            )
            for leaf in found
        ]
        localities.append(TargetLocalities(found.decided, leaves))
        number_of = {leaf.number: number for number, leaf in enumerate(found)}
        numbers[i] = [number_of[node] for node in locality[i].tolist()]
    return localities, numbers


def _quality(explainer: Explainer, targets: list[int]) -> list[tuple[float, float]] | None:
    agreement, skill = (getattr(explainer, f"output_{name}_", None) for name in ("agreement", "skill"))
    if agreement is None or skill is None:
        return None
    return [(float(agreement[target]), float(skill[target])) for target in targets]


def _explain_all(
    explainer: Explainer,
    X: Any,
    predictions: NDArray[Any] | Queried | None,
    targets: list[int],
    size: int | Literal["auto"],
    n_shown: int,
    verify: bool | int | None,
    paths: bool | int,
) -> Findings:
    n_samples, n_targets = n_rows(X), len(targets)
    n_draws = N_DRAWS if explainer.removal_.is_random else 1
    most = verification_budget(explainer, 0, verify, n_samples * n_targets * n_draws) if predictions is not None else 0
    n_queried = min(n_samples, most // (n_targets * n_draws))
    followed = targets_to_follow(explainer, targets, paths)
    rng = np.random.default_rng(0)
    followed_paths: dict[int, TargetPaths] = {}
    value = np.empty((n_targets, n_samples), dtype=object)
    selected = np.full((n_targets, n_samples, n_shown), -1)
    scores, effects = (np.zeros((n_targets, n_samples, n_shown), dtype=np.float32) for _ in range(2))
    base, total = (np.zeros((n_targets, n_samples), dtype=np.float32) for _ in range(2))
    needed = np.zeros((n_targets, n_samples, n_shown), dtype=bool)
    locality, n_more = (np.zeros((n_targets, n_samples), dtype=np.int64) for _ in range(2))
    known: set[str] = set()
    agreement = np.full((n_targets, n_samples), np.nan)
    progress = History(getattr(explainer, "verbose", None))
    progress.stage("report: explaining every target", n_targets + len(followed))
    try:
        for i, target in enumerate(targets):
            # Without predictions, the model is missing or its budget too small.
            explanation = explainer.explain(X, target, k=size, predicted=predictions, query=False)
            value[i] = explanation.value
            width = min(explanation.selected.shape[1], n_shown)
            selected[i, :, :width] = explanation.selected[:, :width]
            scores[i, :, :width] = _of_selected(explanation, explanation.scores)[:, :width]
            n_more[i] = explanation.n_selected - (explanation.selected[:, :width] >= 0).sum(axis=1)
            if explanation.needed is not None:
                known.add("needed")
                needed[i, :, :width] = _of_selected(explanation, explanation.needed)[:, :width]
            if explanation.effects is not None and explanation.base_value is not None:
                known.add("effects")
                effects[i, :, :width] = _of_selected(explanation, explanation.effects)[:, :width]
                base[i] = explanation.base_value
                total[i] = explanation.base_value + explanation.effects.sum(axis=1)
            if explanation.locality is not None:
                known.add("locality")
                locality[i] = explanation.locality
            groups = _grouped(explainer, target, explanation.value)
            checked = samples_to_verify(groups, n_queried, rng)
            agreement[i, checked] = explanation.source.agreement(
                explanation.unit_mask[checked], explanation.target[checked], rows=checked, n_draws=N_DRAWS, seed=0
            )
            progress.step()
            if target in followed:
                found = follow(explainer, X, predictions, target, groups, size)
                followed_paths |= {} if found is None else {i: found}
                progress.step()
    finally:
        progress.close()
    return Findings(
        value,
        selected,
        scores,
        agreement,
        followed_paths,
        needed if "needed" in known else None,
        EffectSummary(effects, base, total, effects_from(explainer.removal_.name, is_text=explainer.reads_text))
        if "effects" in known
        else None,
        n_more,
        locality if "locality" in known else None,
    )


def _of_selected(explanation: Explanation, array: NDArray[Any]) -> NDArray[Any]:
    """Of numbers (rows, units), those of the selected units: (rows, k)."""
    return np.take_along_axis(array, np.maximum(explanation.selected, 0), axis=1)


def _grouped(explainer: Explainer, target: int, value: NDArray[Any]) -> NDArray[Any]:
    """Values of one target that are grouped: each label on its own, numbers as low or high."""
    outputs = explainer.outputs_
    if outputs.kinds[target] != "continuous":
        sides = by_side(value, outputs, np.full(len(value), target))
        return np.array([format_value(one) for one in sides], dtype=object)
    high = value.astype(np.float64) > outputs.center[target]
    return np.asarray(np.array(CONTINUOUS_LABELS, dtype=object)[high.astype(np.int64)])


def _values(
    explainer: Explainer, explained: NDArray[Any], predictions: NDArray[Any] | None, targets: list[int]
) -> tuple[list[str], NDArray[np.int64], NDArray[np.float64] | None]:
    """The names of values, which of them each target and sample has, and the numbers behind them."""
    groups = np.stack([_grouped(explainer, target, row) for target, row in zip(targets, explained, strict=True)])
    outputs = explainer.outputs_
    names = CONTINUOUS_LABELS if outputs.kind == "continuous" else np.unique(groups.astype(str)).tolist()
    number_of = {name: number for number, name in enumerate(names)}
    codes = np.array([[number_of[str(one)] for one in row] for row in groups], dtype=np.int64)
    numbers = np.full(groups.shape, np.nan)
    for i, target in enumerate(targets):
        if outputs.graded[target] and (predictions is not None or outputs.kinds[target] == "continuous"):
            numbers[i] = explained[i].astype(np.float64)
    return names, codes, None if np.isnan(numbers).all() else numbers


def _targets(explainer: Explainer, targets: Sequence[int | str] | None) -> list[int]:
    if targets is None:
        return list(explainer.targets_)
    wanted = [targets] if isinstance(targets, str | int) else list(targets)
    found = list(dict.fromkeys(resolve_targets(wanted, explainer.output_names_, len(wanted)).tolist()))
    unknown = [explainer.output_names_[t] for t in found if t not in set(explainer.targets_)]
    if unknown or not found:
        what = f"{_first(unknown)} were not among the targets given to fit" if unknown else "targets is empty"
        known = [explainer.output_names_[t] for t in explainer.targets_]
        raise InputError(f"report: {what}; choose among {_first(known)}, or leave targets out for all of them.")
    return found


def _n_shown(explainer: Explainer, k: int | None) -> int:
    n_units = explainer.groups_.n_units
    chosen = check_k(explainer.k if k is None else k, n_units)
    return min(N_SHOWN_AUTO, n_units) if chosen == "auto" else chosen


def _n_queries(explainer: Explainer) -> int:
    return 0 if explainer.black_box_ is None else explainer.black_box_.n_queries
