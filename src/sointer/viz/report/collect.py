"""What a report shows of tables and texts: all targets of many samples explained, and many of them checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import n_rows
from sointer._support.progress import History
from sointer._support.validation import check_k, resolve_targets, some
from sointer.data.outputs import Outputs
from sointer.data.targets import by_side, effects_from, effects_on_output
from sointer.errors import InputError
from sointer.explanation import Explanation
from sointer.masking.rows import ExplainedRows
from sointer.masking.unit_values import UnitValues, format_value
from sointer.paths import Localities, NoPaths, Paths
from sointer.viz.report.content import (
    QUANTILE,
    EffectSummary,
    PathSummary,
    ReportContent,
    TargetPaths,
)
from sointer.viz.report.page import render_report
from sointer.viz.report.samples import (
    N_DRAWS,
    LabelEffects,
    PartialEffect,
    ReportOptions,
    agreement_of,
    can_query,
    cut_texts,
    effects_by_label,
    holds_counts,
    lacks_rows,
    n_selectable,
    partial_effects,
    present,
    sample_indices,
    sample_names_of,
    samples_that_fit,
    samples_to_verify,
    spans_of,
    verification_budget,
)
from sointer.viz.report.text import with_text

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer


MAX_TARGETS, N_SAMPLES, MIN_FOLLOWED, MAX_PATHS, MAX_MEDIATORS = 5, 60, 10, 6, 3


def targets_to_follow(explainer: Explainer, targets: list[int], paths: bool | int) -> list[int]:
    """Those of the targets that are coupled most with other outputs; none where outputs stand alone."""
    interactions = getattr(explainer, "output_interactions_", None)
    if paths is False or interactions is None or len(interactions) < 2 or lacks_rows(explainer):
        return []
    most = MAX_TARGETS if paths is True else int(paths)
    coupling = np.asarray(interactions)[targets].max(axis=1)
    return [targets[i] for i in np.argsort(-coupling, kind="stable")[:most] if coupling[i] > 0]


def follow(
    explainer: Explainer, source: ExplainedRows, target: int, codes: NDArray[Any], k: int | Literal["auto"]
) -> TargetPaths | None:
    """The paths of the most important features, averaged over samples, half of them with rare values."""
    subset = samples_to_verify(codes, N_SAMPLES, np.random.default_rng(0))
    explanation = explainer._explain_rows(source.take(subset), np.full(len(subset), target), k, query=False)
    nothing = not (explanation.selected >= 0).any()
    if explanation.trace is None or isinstance(explanation.trace, NoPaths) or nothing:
        return None
    followed = explanation.paths()
    counted = np.bincount(followed.selected[followed.selected >= 0])
    units = [unit for unit in followed.ranked(target) if counted[unit] >= MIN_FOLLOWED][:MAX_PATHS]
    paths = [_path_summary(followed, target, unit) for unit in units]
    return TargetPaths(paths, len(subset), followed.warning)


def _path_summary(followed: Paths, target: int, unit: int) -> PathSummary:
    total, direct, through = followed.average(target, unit)
    effects = followed.total[followed.selected == unit]
    margin = float(QUANTILE * effects.std(ddof=1) / len(effects) ** 0.5) if len(effects) > 1 else np.inf
    largest = sorted(through.items(), key=lambda pair: -abs(pair[1]))[:MAX_MEDIATORS]
    return PathSummary(unit, len(effects), total, margin, direct, largest)


N_SHOWN_AUTO = 10
MAX_BLOCK_NUMBERS = 2**22  # samples x targets x units that are explained at a time
CONTINUOUS_LABELS = ["below the median", "above the median"]


@dataclass(frozen=True, eq=False)
class Findings:
    """What was found out about each target (targets, samples), before it is formatted."""

    value: NDArray[Any]
    selected: NDArray[np.int64]
    scores: NDArray[np.float32]
    agreement: NDArray[np.float64]
    difference: NDArray[np.float64]
    partial: list[dict[int, PartialEffect]]
    by_label: list[list[LabelEffects]]
    paths: dict[int, TargetPaths]
    needed: NDArray[np.bool_] | None
    effects: EffectSummary | None
    n_more: NDArray[np.int64]
    locality: NDArray[np.int64] | None


def table_page(
    explainer: Explainer,
    X: Any,
    targets: Sequence[int | str] | None,
    options: ReportOptions,
) -> str:
    """Explain samples of X for all targets, verify as many as the budget allows, and render the page."""
    chosen = _targets(explainer, targets)
    n_shown = _n_shown(explainer, options.k)
    given = explainer._source(X, options.predicted)  # what does not fit must come to light before the model is queried
    n_given, names = n_rows(X), sample_names_of(X, options.sample_names)
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
    index = sample_indices(n_given, min(options.n_samples, fitting))
    source = given.take(index)
    queries_before = _n_queries(explainer)
    if source.predicted is None and can_query(explainer, len(index)):
        source = source.queried()
    predictions = source.predicted
    size = explainer.k if options.k is None else options.k
    words = UnitValues(source)
    found = _explain_all(explainer, source, chosen, size, n_shown, options, words)
    localities, locality = _localities(explainer, chosen, found.locality)
    values, codes, numbers = _values(explainer, found.value, predictions, chosen)
    shown_of_sample = [np.unique(found.selected[:, i]) for i in range(len(index))]
    far = np.flatnonzero(explainer._distance_of(source.data) > 1).tolist()
    content = ReportContent(
        title=options.title or "What decides the model's predictions?",
        samples=[names[i] for i in index],
        targets=[explainer.output_names_[t] for t in chosen],
        units=source.groups.unit_names,
        unit_noun="word" if explainer.reads_text else "feature",
        kind=explainer.outputs_.kind,
        values=values,
        codes=codes,
        numbers=numbers,
        selected=found.selected,
        scores=found.scores,
        agreement=found.agreement,
        difference=found.difference,
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
        n_draws=N_DRAWS if explainer.removal_.is_random else None,
        tolerance=explainer.outputs_.tolerance,
        partial=found.partial,
        by_label=found.by_label,
        upper=[_upper_label(explainer.outputs_, target) for target in chosen],
        size=size,
        n_given=n_given,
        too_many=len(index) < min(options.n_samples, n_given),
        n_queries=_n_queries(explainer) - queries_before,
        own_agreement=agreement_of(explainer, source, chosen),
    )
    return render_report(with_text(content, explainer))


def _localities(
    explainer: Explainer, targets: list[int], locality: NDArray[np.int64] | None
) -> tuple[list[Localities] | None, NDArray[np.int64] | None]:
    """The localities of each target, and in which of them each sample lies, counted: (targets, samples)."""
    if locality is None:
        return None, None
    found, places = [explainer.localities(target) for target in targets], np.zeros(locality.shape, dtype=np.int64)
    for i, one in enumerate(found):
        place_of = {leaf.number: place for place, leaf in enumerate(one)}
        places[i] = [place_of[number] for number in locality[i].tolist()]
    return found, places


def _upper_label(outputs: Outputs, target: int) -> str | None:
    """The label that blue stands for in pictures of an output of two labels, where that is not obvious."""
    labels = outputs.label_sets[target]
    if outputs.graded[target] or labels is None or len(labels) != 2 or labels.is_zero_one:
        return None
    return str(labels.labels[1])


def _quality(explainer: Explainer, targets: list[int]) -> list[tuple[float, float]] | None:
    agreement, skill = (getattr(explainer, f"output_{name}_", None) for name in ("agreement", "skill"))
    if agreement is None or skill is None:
        return None
    return [(float(agreement[target]), float(skill[target])) for target in targets]


def _explain_all(
    explainer: Explainer,
    source: ExplainedRows,
    targets: list[int],
    size: int | Literal["auto"],
    n_shown: int,
    options: ReportOptions,
    values: UnitValues,
) -> Findings:
    n_samples, n_targets = source.n_samples, len(targets)
    n_draws, is_known = N_DRAWS if explainer.removal_.is_random else 1, source.predicted is not None
    most = verification_budget(explainer, options.verify, n_samples * n_targets * n_draws) if is_known else 0
    n_queried = min(n_samples, most // (n_targets * n_draws))
    followed = targets_to_follow(explainer, targets, options.paths)
    rng = np.random.default_rng(0)
    followed_paths: dict[int, TargetPaths] = {}
    value = np.empty((n_targets, n_samples), dtype=object)
    selected = np.full((n_targets, n_samples, n_shown), -1)
    scores, effects = (np.zeros((n_targets, n_samples, n_shown), dtype=np.float32) for _ in range(2))
    base, total = (np.zeros((n_targets, n_samples), dtype=np.float32) for _ in range(2))
    needed = np.zeros((n_targets, n_samples, n_shown), dtype=bool)
    locality, n_more = (np.zeros((n_targets, n_samples), dtype=np.int64) for _ in range(2))
    known: set[str] = set()
    agreement, difference = (np.full((n_targets, n_samples), np.nan) for _ in range(2))
    partial: list[dict[int, PartialEffect]] = [{} for _ in targets]
    by_label: list[list[LabelEffects]] = [[] for _ in targets]
    progress = History(getattr(explainer, "verbose", None))
    progress.stage("report: explaining every target", n_targets + len(followed))
    try:
        # Without predictions, the model is missing or its budget too small.
        for numbers, explanation in _blocks(explainer, source, targets, size):
            shape, width = (len(numbers), n_samples), min(explanation.selected.shape[1], n_shown)
            chosen, own = explanation.selected[:, :width], slice(numbers.start, numbers.stop)
            block = own, slice(None), slice(width)
            value[own] = explanation.value.reshape(shape)
            selected[block] = chosen.reshape(*shape, width)
            scores[block] = _of_units(explanation.scores, chosen).reshape(*shape, width)
            n_more[own] = (explanation.n_selected - (chosen >= 0).sum(axis=1)).reshape(shape)
            if explanation.needed is not None:
                known.add("needed")
                needed[block] = _of_units(explanation.needed, chosen).reshape(*shape, width)
            if explanation.effects is not None and explanation.base_value is not None:
                known.add("effects")
                effects[block] = _of_units(explanation.effects, chosen).reshape(*shape, width)
                base[own] = explanation.base_value.reshape(shape)
                total[own] = (explanation.base_value + explanation.effects.sum(axis=1)).reshape(shape)
            if explanation.locality is not None:
                known.add("locality")
                locality[own] = explanation.locality.reshape(shape)
            needs = explanation.needed_mask
            for place, i in enumerate(numbers):
                groups, rows = _grouped(explainer, targets[i], value[i]), place * n_samples + np.arange(n_samples)
                checked = samples_to_verify(groups, n_queried, rng)
                if len(checked):
                    verification = explanation.verify(rows=rows[checked], n_draws=N_DRAWS)
                    agreement[i, checked], difference[i, checked] = verification.agreement, verification.difference
                if explanation.effects is not None:
                    on_output = effects_on_output(explanation.effects[rows], value[i], explainer.outputs_, targets[i])
                    partial[i] = partial_effects(on_output, needs[rows], values, n_targets)
                    if on_output is None:
                        by_label[i] = effects_by_label(
                            explanation.effects[rows], value[i], needs[rows], values, n_targets
                        )
                progress.step()
                if targets[i] in followed:
                    found = follow(explainer, source, targets[i], groups, size)
                    followed_paths |= {} if found is None else {i: found}
                    progress.step()
    finally:
        progress.close()
    return Findings(
        value,
        selected,
        scores,
        agreement,
        difference,
        partial,
        by_label,
        followed_paths,
        needed if "needed" in known else None,
        EffectSummary(effects, base, total, effects_from(explainer.removal_.name, is_text=explainer.has_words))
        if "effects" in known
        else None,
        n_more,
        locality if "locality" in known else None,
    )


def _blocks(
    explainer: Explainer, source: ExplainedRows, targets: list[int], size: int | Literal["auto"]
) -> Iterator[tuple[range, Explanation]]:
    """Explanations of all samples, for as many targets at a time as memory has room for, target by target."""
    at_once = max(1, MAX_BLOCK_NUMBERS // (source.n_samples * source.groups.n_units))
    for start in range(0, len(targets), at_once):
        numbers = range(start, min(start + at_once, len(targets)))
        each = replace(source, sample=np.tile(np.arange(source.n_samples), len(numbers)))
        of_rows = np.repeat(np.array(targets[numbers.start : numbers.stop], dtype=np.int64), source.n_samples)
        yield numbers, explainer._explain_rows(each, of_rows, size, query=False)


def _of_units(array: NDArray[Any], units: NDArray[np.int64]) -> NDArray[Any]:
    """Of numbers (rows, units), those of some units of each row, 0 where there is none (-1): (rows, k)."""
    return np.where(units >= 0, np.take_along_axis(array, np.maximum(units, 0), axis=1), array.dtype.type(0))


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
        what = f"{some(unknown)} were not among the targets given to fit" if unknown else "targets is empty"
        known = [explainer.output_names_[t] for t in explainer.targets_]
        raise InputError(f"report: {what}; choose among {some(known)}, or leave targets out for all of them.")
    return found


def _n_shown(explainer: Explainer, k: int | None) -> int:
    n_units = explainer.groups_.n_units
    chosen = check_k(explainer.k if k is None else k, n_units)
    return min(N_SHOWN_AUTO, n_units) if chosen == "auto" else chosen


def _n_queries(explainer: Explainer) -> int:
    return 0 if explainer.black_box_ is None else explainer.black_box_.n_queries
