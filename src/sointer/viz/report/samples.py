"""Which samples of X a report shows, how they are called, what they have, and how effects depend on their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from sointer._support.containers import is_sparse, n_rows, row_labels
from sointer._support.validation import check_positive_int, check_unique_names, is_integer
from sointer.errors import InputError
from sointer.masking.groups import FixedGroups
from sointer.masking.rows import ExplainedRows
from sointer.masking.unit_values import UnitValues, time_text

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer
    from sointer.explainers.sequences import SequenceExplainer


@dataclass(frozen=True)
class ReportOptions:
    """What a report is to show, as `Explainer.report` and `SequenceExplainer.report` describe it."""

    n_samples: int
    k: Any
    predicted: Any
    verify: bool | int | None
    title: str | None
    sample_names: Sequence[str] | None
    paths: bool | int

    def check(self) -> None:
        """InputError where an option is wrong."""
        check_positive_int(self.n_samples, "n_samples")
        for name, value in (("verify", self.verify), ("paths", self.paths)):
            if not (value is None or isinstance(value, bool) or (is_integer(value) and int(value) >= 0)):
                raise InputError(f"report: {name} must be True, False or a whole number of at least 0, got {value!r}.")


MAX_UNITS, MAX_POINTS, MAX_CATEGORIES = 8, 60, 12
MAX_NUMBERS = 80_000
"""Values and effects of one page, about."""
MIN_TREND = 0.6
MAX_LABELS, MIN_OF_LABEL = 4, 10
"""Of outputs with three labels or more: how many have pictures, and how many samples that takes."""


@dataclass(frozen=True, eq=False)
class PartialEffect:
    """Of one unit and target: values of some samples, and the unit's effect on the output there."""

    values: NDArray[Any]
    """Numbers, of times in seconds; of a category, numbers of `categories`."""
    effects: NDArray[np.float64]
    """Towards a larger output: a number, a probability, or the probability of the second label."""
    categories: tuple[str, ...] = ()
    size: float = 0.0
    """The mean size of the effect, over all samples."""
    trend: float = 0.0
    """Rank correlation of value and effect, from -1 to 1; 0 for categories."""
    missing: NDArray[np.float64] | None = None
    """Effects of some samples whose value is missing; None where none is, or where that is a category."""
    mean_missing: float = 0.0
    """The mean effect of all samples whose value is missing."""
    ends: tuple[str, str] | None = None
    """The lowest and the highest value as text, of dates and durations."""
    n_values: int = 0
    """Of categories, how many there are in all; the most frequent are shown."""

    @property
    def direction(self) -> int:
        """1 where larger values raise the output, -1 where they lower it, 0 where neither holds throughout."""
        return int(np.sign(self.trend)) if abs(self.trend) >= MIN_TREND else 0


@dataclass(frozen=True, eq=False)
class LabelEffects:
    """Of one label of a target with three or more: how effects on its probability depend on values."""

    label: str
    n: int
    """Samples that it is explained for."""
    partial: dict[int, PartialEffect]


def points_per_effect(n_targets: int) -> int:
    """How many samples are drawn of each unit and target: fewer where there are many targets."""
    return max(10, min(MAX_POINTS, MAX_NUMBERS // (2 * MAX_UNITS * max(n_targets, 1))))


def partial_effects(
    effects: NDArray[np.float64] | None,
    needed: NDArray[np.bool_],
    values: UnitValues,
    n_targets: int,
    rows: NDArray[np.int64] | None = None,
) -> dict[int, PartialEffect]:
    """The units needed in most samples, and how their effects (samples, units) depend on their values.

    `rows` are the samples that effects are about, where they are not all.
    """
    if effects is None:
        return {}
    counts = needed.sum(axis=0)
    n_points, found = points_per_effect(n_targets), {}
    for unit in np.argsort(-counts, kind="stable")[:MAX_UNITS].tolist():
        column = values.column(unit) if counts[unit] else None
        if column is not None:
            found[unit] = _partial(column if rows is None else column[rows], effects[:, unit], n_points)
    return found


def effects_by_label(
    effects: NDArray[Any], value: NDArray[Any], needed: NDArray[np.bool_], values: UnitValues, n_targets: int
) -> list[LabelEffects]:
    """Of the most frequent labels that are explained, how the effects (samples, units) on each depend on values."""
    names, counts = np.unique(value.astype(str), return_counts=True)
    found = []
    for i in np.argsort(-counts, kind="stable")[:MAX_LABELS].tolist():
        rows = np.flatnonzero(value.astype(str) == names[i])
        if len(rows) >= MIN_OF_LABEL:
            partial = partial_effects(effects[rows], needed[rows], values, n_targets * MAX_LABELS, rows)
            found.append(LabelEffects(str(names[i]), len(rows), partial))
    return found


def _partial(values: NDArray[Any], effects: NDArray[np.float64], n_points: int) -> PartialEffect:
    size = float(np.abs(effects).mean())
    if values.dtype == object:
        names, counts = np.unique(values.astype(str), return_counts=True)
        kept = names[np.argsort(-counts, kind="stable")][:MAX_CATEGORIES]
        mean = np.array([effects[values == name].mean() for name in kept])
        order = np.argsort(mean)
        categories = tuple(kept[order].tolist())
        return PartialEffect(np.arange(len(kept)), mean[order], categories, size, n_values=len(names))
    is_time = values.dtype.kind in "mM"
    there = ~np.isnat(values) if is_time else np.isfinite(values)
    if not there.any():
        return PartialEffect(np.array([0]), np.array([effects.mean()]), ("missing",), size, n_values=1)
    missing = effects[~there]
    mean_missing = float(missing.mean()) if len(missing) else 0.0
    missing = missing[_some(len(missing), n_points // 4)]
    values, effects, trend, ends = values[there], effects[there], 0.0, None
    if is_time:
        ends = time_text(values.min()), time_text(values.max())
        values = (values - values.min()) / np.timedelta64(1, "s")
    if len(np.unique(values)) >= 2 and effects.max() > effects.min():
        trend = float(np.corrcoef(rankdata(values), rankdata(effects))[0, 1])
    shown = _some(len(values), n_points)
    if is_time:  # the ends are named
        shown = np.union1d(shown, [values.argmin(), values.argmax()])
    order = shown[np.argsort(values[shown], kind="stable")]
    found = missing if len(missing) else None
    return PartialEffect(values[order], effects[order], (), size, trend, found, mean_missing, ends)


def _some(n: int, at_most: int) -> NDArray[np.int64]:
    """Numbers below n, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, at_most)).astype(np.int64))


N_VALUES_CHECKED, MAX_COUNTS = 100_000, 200
MAX_JUDGED = 100, 20
"""Samples and targets by which the explainer's copy of the model is judged."""


def sample_names_of(X: Any, given: Sequence[str] | None) -> list[str]:
    """The caller's names, or the labels of the rows where they are all different, or their numbers."""
    n = n_rows(X)
    if given is not None:
        return check_unique_names([str(name) for name in given], n, "sample_names")
    labels = row_labels(X)
    names = range(n) if labels is None or len(set(map(str, labels))) < n else labels
    return [str(name) for name in names]


def sample_indices(n_given: int, n: int) -> NDArray[np.int64]:
    """All rows, or some drawn at random, in their order."""
    if n >= n_given:
        return np.arange(n_given)
    return np.sort(np.random.default_rng(0).permutation(n_given)[:n])


def agreement_of(explainer: Explainer, source: ExplainedRows, targets: list[int]) -> float | None:
    """The share of predictions for these samples that the explainer's copy of the model expects; None if not known.

    Held-out queries are of samples like those of `fit`; these may be of another kind.
    """
    if source.predicted is None or getattr(explainer, "held_out_agreement_", None) is None:
        return None
    subset = source.take(sample_indices(source.n_samples, MAX_JUDGED[0]))
    chosen = np.array(targets)[sample_indices(len(targets), MAX_JUDGED[1])]
    each = replace(subset, predicted=None, sample=np.tile(np.arange(subset.n_samples), len(chosen)))
    expected = explainer._explain_rows(each, np.repeat(chosen, subset.n_samples), query=False).value
    assert subset.predicted is not None
    table = subset.predicted.astype(object)
    table[:, chosen] = expected.reshape(len(chosen), subset.n_samples).T
    return float(explainer.outputs_.agree(subset.predicted, table)[:, chosen].mean())


def n_selectable(source: ExplainedRows) -> NDArray[np.integer[Any]]:
    """At most how many units of each sample can be selected."""
    if is_sparse(source.data) and source.removal.keeps_zeros:
        return np.asarray(np.diff(source.data.indptr))
    return np.full(source.data.shape[0], source.groups.n_units)


def holds_counts(source: ExplainedRows) -> bool:
    """Whether few different numbers occur, so that each needs to be spelt out once only."""
    return is_sparse(source.data) and len(np.unique(source.data.data[:N_VALUES_CHECKED])) <= MAX_COUNTS


def present(source: ExplainedRows) -> list[NDArray[np.int64]] | None:
    """The units that each sample of a mostly-zero table has; None for other tables, where each has all."""
    if not is_sparse(source.data) or not isinstance(source.groups, FixedGroups):
        return None
    unit_of_column, data = source.groups.unit_of_column, source.data
    return [np.unique(unit_of_column[data[i : i + 1].tocoo().col]) for i in range(data.shape[0])]


N_DRAWS = 10
"""Queries per explanation, where removal is random."""


def can_query(explainer: Explainer | SequenceExplainer, n_rows: int) -> bool:
    """Whether there is a black box that may still be queried with every row."""
    black_box = explainer.black_box_
    return black_box is not None and (black_box.remaining is None or black_box.remaining >= n_rows)


def lacks_rows(holder: Any) -> bool:
    """Whether what holds training rows, an explainer or its removal, was saved with rows="none"."""
    background = getattr(holder, "background_", getattr(holder, "background", None))
    return bool(background is not None and background.rows.shape[0] == 0)


def verification_budget(explainer: Explainer | SequenceExplainer, verify: bool | int | None, n_wanted: int) -> int:
    """Rows that may be sent to confirm explanations, after the black box was queried with every unmasked row.

    verify=None allows as many as fit needed, which the model's owner has agreed to before; none if the explainer was
    saved without the rows that its removal needs.
    """
    black_box = explainer.black_box_
    if black_box is None or verify is False or (verify is None and lacks_rows(getattr(explainer, "removal_", None))):
        return 0
    allowed = n_wanted
    if verify is None:
        allowed = int(getattr(explainer, "n_queries_", 0))
    elif verify is not True:
        allowed = int(verify)
    return allowed if black_box.remaining is None else max(0, min(allowed, black_box.remaining))


def samples_to_verify(codes: NDArray[Any], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """At most n samples of one target, drawn at random: half of them, if there are as many, with an unusual value."""
    if n >= len(codes):
        return np.arange(len(codes))
    found, counts = np.unique(codes, return_counts=True)
    is_usual = codes == found[np.argmax(counts)]
    unusual, usual = (rng.permutation(np.flatnonzero(where)) for where in (~is_usual, is_usual))
    n_unusual = min(len(unusual), max(-(-n // 2), n - len(usual)))
    return np.sort(np.concatenate([unusual[:n_unusual], usual[: n - n_unusual]]))


MAX_BYTES, OVERHEAD_BYTES, BASE64 = 4_700_000, 150_000, 4 / 3
BYTES_PER_EFFECTS, BYTES_PER_POINT = 15, 16
BYTES_PER_TARGET, BYTES_PER_NUMBER, BYTES_PER_VALUE, BYTES_PER_COUNT, BYTES_PER_NAME, BYTES_PER_SUMMARY = (
    6,
    8,
    17,
    8,
    20,
    1_500,
)
BYTES_PER_LETTER, BYTES_PER_SPAN = 1.1, 24
MAX_TEXT_LENGTH = 4_000
MIN_SAMPLES = 10


def samples_that_fit(
    n_targets: int,
    k: int,
    n_units: int,
    n_selectable: NDArray[np.integer[Any]],
    *,
    counts: bool = False,
    numbers: bool = False,
    effects: bool = False,
    texts: Sequence[str] | None = None,
) -> int:
    """How many samples, with a selection for each target, fit in beside names and sums; at least ten.

    n_selectable : (samples,) how many units of each can be selected. counts : their values are few, such as 1 and 2.
    numbers : there are numbers behind the targets' values. effects : they, and what is needed, are included.
    """
    n_shown_units = np.minimum(n_selectable, n_targets * k)
    position_bytes = 1 if n_shown_units.max(initial=0) < 255 else 2
    per_target = (position_bytes + 1) * k + BYTES_PER_TARGET + (BYTES_PER_NUMBER if numbers else 0)
    if effects:
        per_target += 3 * k + BYTES_PER_EFFECTS
    each = (
        n_targets * per_target * BASE64
        + float(n_shown_units.mean()) * (BYTES_PER_COUNT if counts else BYTES_PER_VALUE)
        + 200
    )
    if texts:
        each += float(n_shown_units.mean()) * BYTES_PER_SPAN
        each += BYTES_PER_LETTER * sum(map(_escaped, texts)) / len(texts)
    page_budget = MAX_BYTES - OVERHEAD_BYTES - BYTES_PER_SUMMARY * n_targets - BYTES_PER_NAME * min(n_units, 50_000)
    if effects:
        page_budget -= BYTES_PER_POINT * MAX_UNITS * points_per_effect(n_targets) * n_targets
    return max(MIN_SAMPLES, int(page_budget / each))


def cut_texts(texts: Sequence[str]) -> list[str]:
    """Long documents without their ends."""
    return [text if len(text) <= MAX_TEXT_LENGTH else f"{text[:MAX_TEXT_LENGTH]} …" for text in texts]


def spans_of(source: ExplainedRows, sample: int, units: NDArray[np.int64]) -> dict[int, list[tuple[int, int]]]:
    """Where some units of a text stand, in characters."""
    found: dict[int, list[tuple[int, int]]] = {}
    wanted = set(units.tolist())
    for start, end, unit in source.spans(sample):
        if unit in wanted and end <= MAX_TEXT_LENGTH:
            found.setdefault(unit, []).append((start, end))
    return found


def _escaped(text: str) -> int:
    """How many bytes a text takes, letters beyond ASCII being spelt out."""
    shown = text[:MAX_TEXT_LENGTH]
    return len(shown) + 5 * sum(ord(letter) > 126 for letter in shown)
