"""What a report on a table or on texts shows, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sointer.paths import Localities
from sointer.verification import Verification

if TYPE_CHECKING:
    from sointer.viz.report.samples import LabelEffects, PartialEffect

UnitNoun = Literal["feature", "word", "group"]


@dataclass(frozen=True)
class PathSummary:
    """What a feature does to a target, averaged over the samples that were followed."""

    unit: int
    n_samples: int
    total: float
    margin: float
    """Half of the 95 % interval of `total`."""
    direct: float
    through: Sequence[tuple[int, float]]
    """Other outputs and how much of the effect is lost while each is held, largest first."""


@dataclass(frozen=True)
class TargetPaths:
    """The paths of the features that matter most to one target."""

    paths: Sequence[PathSummary]
    n_samples: int
    warning: str


@dataclass(frozen=True, eq=False)
class EffectSummary:
    """Signed effects in the unit of each output."""

    effects: npt.NDArray[np.floating[Any]]
    """(targets, samples, k) of the selected units."""
    base: npt.NDArray[np.floating[Any]]
    """(targets, samples) what the output is with everything removed."""
    total: npt.NDArray[np.floating[Any]]
    """(targets, samples) where the effects of all units lead, shown or not."""
    start: str = "on average"
    """Where effects begin, as text."""


@dataclass(frozen=True)
class Card:
    """One number of the overview, what it means, and the longer story."""

    label: str
    value: str
    note: str
    meaning: str


@dataclass(frozen=True, eq=False)
class ReportContent:
    """Samples, what the model predicts for them, and which features decide it, for every target.

    Units are what can be selected: features, words, or groups of features.
    """

    title: str
    samples: Sequence[str]
    targets: Sequence[str]
    units: Sequence[str]
    unit_noun: UnitNoun
    kind: str
    """binary, categorical, probability or continuous."""
    values: Sequence[str]
    """The values of a target, as text; of numbers, whether they are above or below the median."""
    codes: npt.NDArray[np.integer[Any]]
    """(targets, samples) which of `values` is explained."""
    numbers: npt.NDArray[np.floating[Any]] | None
    """(targets, samples) the numbers behind the values: probabilities, or continuous outputs."""
    selected: npt.NDArray[np.integer[Any]]
    """(targets, samples, k) units, best first; -1 for none."""
    scores: npt.NDArray[np.floating[Any]]
    """(targets, samples, k) relevance of the selected units, which has no sign."""
    agreement: npt.NDArray[np.floating[Any]]
    """(targets, samples) how often the model predicts the same from the selection; NaN where not queried."""
    difference: npt.NDArray[np.floating[Any]]
    """(targets, samples) how far the prediction from the selection is from the value explained; NaN likewise."""
    unit_values: Sequence[Mapping[int, str]]
    """For each sample, the values of its selected units, as text."""
    present: Sequence[npt.NDArray[np.integer[Any]]] | None = None
    """For each sample of a mostly-zero table, the units that it has."""
    texts: Sequence[str] | None = None
    spans: Sequence[Mapping[int, Sequence[tuple[int, int]]]] | None = None
    """For each text, where its selected units stand, in characters."""
    outputs: Sequence[str] = ()
    """All outputs, also those that are no target here."""
    interactions: npt.NDArray[np.floating[Any]] | None = None
    """(outputs, outputs) how strongly each pair is coupled."""
    paths: Mapping[int, TargetPaths] = field(default_factory=dict)
    """By target, for those whose paths through other outputs were followed."""
    far: Sequence[int] = ()
    """Samples that lie far from the training data, by number."""
    is_expected: bool = False
    """Whether values are only expected, since the model was not queried."""
    kinds: Sequence[str] = ()
    """The kind of each target, where they are not all of `kind`."""
    needed: npt.NDArray[np.bool_] | None = None
    """(targets, samples, k) False where a unit is shown only because k is that large."""
    effects: EffectSummary | None = None
    n_more: npt.NDArray[np.integer[Any]] | None = None
    """(targets, samples) how many selected units are not shown."""
    localities: Sequence[Localities] | None = None
    """For each target, its localities."""
    locality: npt.NDArray[np.integer[Any]] | None = None
    """(targets, samples) the locality of each sample, counted as in `localities`."""
    quality: Sequence[tuple[float, float]] | None = None
    """For each target, agreement and skill on held-out outputs; NaN where unknown."""
    n_draws: int | None = None
    """How many draws `agreement` is judged by; None where nothing is random."""
    tolerance: float | None = None
    """Numbers that differ by at most as many standard deviations count as equal."""
    partial: Sequence[Mapping[int, PartialEffect]] = ()
    """For each target, how the effects of its most important units depend on their values."""
    by_label: Sequence[Sequence[LabelEffects]] = ()
    """For each target of three labels or more, the same for its most frequent labels."""
    upper: Sequence[str | None] = ()
    """For each target of two labels, the one that effects push towards, unless it is True or 1; else None."""
    size: int | Literal["auto"] = "auto"
    """How many units were to be selected."""
    n_given: int = 0
    """Samples that there were to choose from."""
    too_many: bool = False
    """Whether fewer are shown than were wanted."""
    n_queries: int = 0
    """Samples sent to the model for the report."""
    own_agreement: float | None = None
    """The share of predictions for samples of the report that the explainer's copy of the model expects."""
    lead: str = ""
    cards: Sequence[Card] = ()
    notes: Sequence[str] = ()
    """What explanations mean and do not mean, a sentence each."""
    warnings: Sequence[str] = ()

    @property
    def k(self) -> int:
        """How many units are selected at most."""
        return int(self.selected.shape[2])

    @property
    def counted(self) -> npt.NDArray[np.integer[Any]]:
        """(targets, samples, k) units that are selected and needed, which sums count; -1 for none."""
        return self.selected if self.needed is None else np.where(self.needed, self.selected, -1)

    @property
    def has_unneeded(self) -> bool:
        """Whether units are shown that are not needed."""
        return bool((self.counted != self.selected).any())

    @property
    def is_number(self) -> npt.NDArray[np.bool_]:
        """(targets,) whether a target is judged by its error."""
        return np.array([kind == "continuous" for kind in self.kinds], dtype=bool)

    @property
    def queried(self) -> npt.NDArray[np.bool_]:
        """(targets, samples) where the model was queried to verify."""
        return np.asarray(~np.isnan(self.agreement))

    @property
    def is_rarer(self) -> npt.NDArray[np.bool_]:
        """Where a target does not have its most common value: (targets, samples)."""
        return np.stack([_is_rarer(codes) for codes in self.codes])

    @property
    def confirmed(self) -> npt.NDArray[np.bool_]:
        """(targets, samples) where the model confirms the selection, by the rule of `Verification`."""
        return verdicts(self.agreement, self.n_draws, "confirmed")

    @property
    def refuted(self) -> npt.NDArray[np.bool_]:
        """(targets, samples) where it clearly does not."""
        return verdicts(self.agreement, self.n_draws, "refuted")


def verdicts(agreement: npt.NDArray[Any], n_draws: int | None, name: str) -> npt.NDArray[np.bool_]:
    """Where explanations are "confirmed" or "refuted"; neither where the model was not queried."""
    known = ~np.isnan(agreement)
    found = np.zeros(agreement.shape, dtype=bool)
    found[known] = getattr(Verification(agreement[known], agreement[known], 0, n_draws), name)
    return found


QUANTILE = 1.96  # of the normal distribution: 95 of 100 intervals hold the truth


class Share(NamedTuple):
    """A share with the bounds of its 95 % interval, and how many cases it is judged by."""

    share: float
    low: float
    high: float
    n_queried: int
    n_confirmed: int


def confirmed_share(
    queried: npt.NDArray[np.bool_], confirmed: npt.NDArray[np.bool_], stratum: npt.NDArray[Any]
) -> Share | None:
    """The share confirmed among all cases (targets, samples), had all been verified; None if none was.

    Cases of one stratum count alike, verified or not, so a stratum verified more often weighs no more than it
    should. Samples verified for many targets are not independent: the interval is at least as wide as
    the spread between samples makes it.
    """
    _, of = np.unique(stratum, return_inverse=True)
    of = of.reshape(stratum.shape)
    n_strata = int(of.max(initial=-1)) + 1
    sizes = np.bincount(of.ravel(), minlength=n_strata)
    n_queried = np.bincount(of[queried], minlength=n_strata)
    n_confirmed = np.bincount(of[queried & confirmed], minlength=n_strata)
    known = n_queried > 0
    if not known.any():
        return None
    weight = np.where(known, sizes, 0) / sizes[known].sum()
    share = n_confirmed / np.maximum(n_queried, 1)
    mean = float(weight @ share)
    # Two more cases of each kind (Agresti and Coull) keep shares of 0 and 1 from looking certain.
    n = n_queried + QUANTILE**2
    shrunk = (n_confirmed + QUANTILE**2 / 2) / n
    between_cases = float(np.sum(weight**2 * shrunk * (1 - shrunk) / n))
    each = np.where(queried, (confirmed - share[of]) * (weight / np.maximum(n_queried, 1))[of], 0.0)
    between_samples = float(np.sum(each.sum(axis=0) ** 2))
    half = QUANTILE * max(between_cases, between_samples) ** 0.5
    # With one stratum this is Agresti and Coull's interval, whose middle is not quite the share.
    middle = float(weight @ shrunk) if known.sum() == 1 else mean
    low, high = max(0.0, min(mean, middle - half)), min(1.0, max(mean, middle + half))
    return Share(mean, low, high, int(n_queried.sum()), int(n_confirmed.sum()))


MAX_VALUES, MAX_FEATURES, MAX_EXAMPLES, MAX_FAILURES = 6, 10, 4, 30


@dataclass(frozen=True)
class ValueSummary:
    """Samples for which one value of the target is explained."""

    code: int
    n_samples: int
    confirmed: Share | None
    features: list[tuple[int, int]]
    """Units, and how many of the samples need them, most first."""
    examples: list[int]
    """Samples explained by what explains most of them, confirmed ones first."""


@dataclass(frozen=True)
class TargetSummary:
    """One target over all samples."""

    values: list[ValueSummary]
    """The rarest value first, since rare values need an explanation most."""
    most_common: int
    features: list[tuple[int, int]]
    """Units, and how many samples need them, most first."""
    confirmed: Share | None
    n_refuted: int
    error: float | None
    """The mean difference, where any was measured."""
    failures: list[int]
    """Samples that the model did not confirm, worst first."""


def summarize_target(content: ReportContent, target: int) -> TargetSummary:
    """All about the target with this number."""
    codes = content.codes[target]
    found, counts = np.unique(codes, return_counts=True)
    most_common = int(found[np.argmax(counts)])
    rarest_first = found[np.argsort(-counts, kind="stable")][:MAX_VALUES][::-1]
    queried, agreement = content.queried[target], content.agreement[target]
    failed = np.flatnonzero(queried & ~content.confirmed[target])
    worst_first = failed[np.lexsort((failed, codes[failed] == most_common, agreement[failed]))]
    return TargetSummary(
        [_summarize_value(content, target, int(code)) for code in rarest_first],
        most_common,
        _most_needed(content, content.counted[target])[0],
        confirmed_share(queried[None], content.confirmed[target][None], codes[None]),
        int(content.refuted[target].sum()),
        float(content.difference[target, queried].mean()) if queried.any() else None,
        worst_first[:MAX_FAILURES].tolist(),
    )


def _is_rarer(codes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.asarray(codes != np.bincount(codes).argmax())


def rare_share(
    queried: npt.NDArray[np.bool_], confirmed: npt.NDArray[np.bool_], codes: npt.NDArray[Any]
) -> Share | None:
    """The share confirmed where a target does not have its most common value, which often needs no explanation."""
    other = _is_rarer(codes)
    return confirmed_share(queried[None, other], confirmed[None, other], codes[None, other])


def _summarize_value(content: ReportContent, target: int, code: int) -> ValueSummary:
    samples = np.flatnonzero(content.codes[target] == code)
    selected = content.counted[target, samples]
    features, counts = _most_needed(content, selected)
    queried, confirmed = content.queried[target, samples], content.confirmed[target, samples]
    return ValueSummary(
        code,
        len(samples),
        confirmed_share(queried[None], confirmed[None], np.zeros((1, len(samples)))),
        features,
        samples[_most_typical(selected, counts, np.where(confirmed, 0, np.where(queried, 2, 1)))].tolist(),
    )


def _most_needed(
    content: ReportContent, selected: npt.NDArray[Any]
) -> tuple[list[tuple[int, int]], npt.NDArray[np.int64]]:
    """The units that most samples need, with how many do; and that number for all units."""
    counts = np.bincount(selected[selected >= 0], minlength=len(content.units))
    best = np.argsort(-counts, kind="stable")[:MAX_FEATURES]
    return [(int(unit), int(counts[unit])) for unit in best if counts[unit]], counts


def _most_typical(
    selected: npt.NDArray[Any], counts: npt.NDArray[Any], standing: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """Samples whose selection others share most; confirmed ones first, those that failed last."""
    shared = np.where(selected >= 0, counts[np.maximum(selected, 0)], 0).sum(axis=1)
    return np.lexsort((-shared, standing))[:MAX_EXAMPLES]
