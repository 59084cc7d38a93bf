"""The text of a report: how good explanations are, what they mean, and what they do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import is_sparse, is_tensor, tensor_to_numpy
from sointer.config import POOR_SKILL
from sointer.data.values import effects_from
from sointer.masking.groups import FixedGroups
from sointer.masking.rows import MaskableRows
from sointer.viz.report.content import Card, Share, confirmed_share, unusual_share

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer


MIN_CONFIRMED, MAX_NAMED = 0.8, 8
REMOVED = {
    "zero": "is set to 0",
    "mean": "is set to its mean in the training data",
    "marginal": "takes the value of another sample of the training data, drawn at random",
    "conditional": "takes the value of a sample that is alike in what is kept",
    "array": "takes the value of a reference row that was given",
    "delete": "is deleted from the text",
    "token": "is replaced by a token in the text",
}


@dataclass(frozen=True, eq=False)
class ReportStats:
    """What the text of a report is about."""

    targets: list[str]
    codes: NDArray[np.int64]
    """(targets, samples) which value is explained, by number."""
    queried: NDArray[np.bool_]
    confirmed: NDArray[np.bool_]
    k: int | Literal["auto"]
    n_given: int
    """Samples that there were to choose from."""
    too_many: bool
    """Whether fewer are shown than were wanted."""
    has_predictions: bool
    """Whether what is explained is what the model predicts."""
    n_queries: int
    n_followed: int
    """Targets whose paths through other outputs are shown."""
    n_far: int = 0
    """Samples unlike the training data."""
    has_effects: bool = False
    """Whether it is known the sign of effects."""
    has_unneeded: bool = False
    """Whether features are shown that are not needed."""

    @property
    def n_samples(self) -> int:
        return int(self.codes.shape[1])


def lead_of(explainer: Explainer, stats: ReportStats) -> str:
    """One sentence on what is explained."""
    name = "the model" if explainer.black_box_ is None else f"the model “{explainer.black_box_.name}”"
    n_targets, n_samples = len(stats.targets), stats.n_samples
    of_all = f" of {stats.n_given:,}" if stats.n_given > n_samples else ""
    unit = "words" if explainer.reads_text else "features"
    which = f"those of {explainer.groups_.n_units:,} {unit}"
    if stats.k != "auto":
        which = f"the {stats.k} of {explainer.groups_.n_units:,} {unit}"
    return (
        f"For {_many(n_samples, 'sample')}{of_all} and {_many(n_targets, 'output')} of {name}: {which} that decide "
        f"what it {'predicts' if stats.has_predictions else 'is expected to predict'}."
    )


def cards_of(explainer: Explainer, stats: ReportStats) -> list[Card]:
    """The numbers at the top."""
    cards = []
    stratum = stats.codes + (stats.codes.max(initial=0) + 1) * np.arange(len(stats.targets))[:, None]
    overall = confirmed_share(stats.queried, stats.confirmed, stratum)
    meaning = (
        "Confirmed: shown nothing but the selected features (the others removed), the model predicts the same as "
        "before; where removal is random, in all of ten draws. In 95 of 100 reports, the interval holds the share "
        "among all samples of this kind."
    )
    if overall is not None:
        cards.append(Card("explanations confirmed", _percent(overall.share), _interval(overall), meaning))
        unusual = stats.queried & ~_usual(stats.codes)
        rare = confirmed_share(unusual, stats.confirmed & unusual, np.where(_usual(stats.codes), -1, stratum))
        if rare is not None and len(np.unique(stats.codes)) > 1:
            why = "Of each output, only the samples with another value than its most common one. " + meaning
            cards.append(Card("confirmed, unusual values", _percent(rare.share), _interval(rare), why))
    else:
        cards.append(Card("explanations confirmed", "?", "the model was not queried", meaning))
    agreement, skill = (getattr(explainer, f"held_out_{name}_", None) for name in ("agreement", "skill"))
    if agreement is not None and np.isfinite(agreement):
        why = (
            "The explainer learned a copy of the model from its outputs. This is the share of held-out outputs that "
            "the copy predicts correctly, averaged over outputs; the page of each output has its own."
        )
        cards.append(Card("agreement", _percent(agreement), "of held-out outputs predicted correctly", why))
    if skill is not None and np.isfinite(skill):
        why = (
            "Skill: of the errors that one makes by always guessing an output's usual value, the share that the "
            "explainer's copy of the model avoids on held-out outputs (of probabilities and numbers, R squared), "
            "averaged over outputs. 100 % is perfect, 0 % no better than guessing."
        )
        cards.append(Card("skill", _percent(max(skill, 0)), "of the errors of guessing avoided", why))
    n_fit = getattr(explainer, "n_queries_", None)
    why = "Rows sent to the model: while the explainer was fitted, and for this report."
    cards.append(
        Card("queries", "–" if n_fit is None else f"{n_fit:,}", f"in fit; {stats.n_queries:,} for this report", why)
    )
    return cards


def notes_of(explainer: Explainer, stats: ReportStats) -> list[str]:
    """What explanations mean, and what they do not, a sentence each."""
    name = explainer.removal_.name
    how = REMOVED.get(name, f"is replaced by the function {name!r} of the explainer's owner")
    if name in ("zero", "mean") and explainer.input_format_.is_categorical.any():
        how += " (a category: to its most frequent value)"
    unit = "word" if explainer.reads_text else "feature"
    notes = [
        f"The {unit}s shown are those that suffice: keep them, remove the others, and the model should still predict "
        f"the same. A removed {unit} {how}.",
        "What suffices need not be the only reason. Others may suffice too, and what the model relies on is not what "
        "causes things in the world: changing a feature there may change nothing, or something else.",
        f"Relevance (grey bars) shows how much the output depends on a {unit} here. It has no sign.",
    ]
    if stats.has_effects:
        start = effects_from(explainer.removal_.name, is_text=explainer.reads_text)
        notes.append(
            f"Effects (blue and orange bars) show which way a {unit} pushes the output, and how far: a number in its "
            f"own unit, a probability as such, a label as the probability of the label explained. Together they lead "
            f"from what it is {start} to what the explainer expects for the sample."
        )
    if stats.has_unneeded:
        notes.append(
            f"Hollow bars are of {unit}s that are not needed: they are shown only because k={stats.k}. "
            "They are not counted."
        )
    if stats.has_predictions:
        notes.append("The values explained are what the model predicts.")
    else:
        notes.append(
            "The model was not queried: the values explained are those that the explainer expects it to predict, which "
            "is not always what it predicts. Nothing here was confirmed. Write the report with the model, or with "
            "predicted=, to explain what it predicts."
        )
    if stats.n_followed:
        notes.append(
            f"Paths through other outputs were followed for {_many(stats.n_followed, 'output')}, those that "
            "depend most on others. They come from the explainer's copy of the model; the model cannot confirm them."
        )
    return notes


def warnings_of(explainer: Explainer, stats: ReportStats) -> list[str]:
    """What to be careful about."""
    warnings = []
    skill = getattr(explainer, "held_out_skill_", None)
    if skill is not None and skill < POOR_SKILL:
        warnings.append(
            f"The explainer has learned little of this model (skill {_percent(max(skill, 0))}), so explanations may be "
            "wrong. Fit with a larger query_budget or more data."
        )
    constant = set(np.array(explainer.output_names_, dtype=object)[explainer.outputs_.constant].tolist())
    never = [name for name in stats.targets if name in constant]
    if never:
        warnings.append(
            f"These outputs never changed while the explainer learned, so nothing decides them: {_first(never)}."
        )
    poor = [
        explainer.output_names_[target]
        for target in explainer.targets_
        if explainer.output_names_[target] in stats.targets
        and (of_output := getattr(explainer, "output_skill_", None)) is not None
        and of_output[target] < POOR_SKILL
    ]
    if poor and (skill is None or skill >= POOR_SKILL):
        warnings.append(
            f"The explainer has learned little of these outputs (skill below {_percent(POOR_SKILL)}), so their "
            f"explanations may be wrong: {_first(poor)}."
        )
    weak = []
    for name, codes, queried, confirmed in zip(stats.targets, stats.codes, stats.queried, stats.confirmed, strict=True):
        share = unusual_share(queried, confirmed, codes, int(np.bincount(codes).argmax()))
        if share is not None and share.high < MIN_CONFIRMED:
            weak.append(name)
    if weak:
        warnings.append(
            f"For these outputs the model confirms clearly fewer than {_percent(MIN_CONFIRMED)} of the explanations "
            f"of unusual values: {_first(weak)}."
        )
    if stats.n_far:
        warnings.append(
            f"{_many(stats.n_far, 'sample')} of {stats.n_samples:,} {'lies' if stats.n_far == 1 else 'lie'} far from "
            "the training data (of which at most 1 % would be flagged); trust their explanations only if they are "
            "confirmed. They are marked."
        )
    n_queried, n_all = int(stats.queried.sum()), stats.queried.size
    if stats.has_predictions and n_queried < n_all:
        warnings.append(
            f"The model was queried to confirm {n_queried:,} of {n_all:,} explanations; "
            "report(..., verify=True) checks all."
        )
    if stats.too_many:
        warnings.append(
            f"Only {stats.n_samples:,} samples are shown, to keep the file small; choose fewer targets or a smaller k "
            "to see more."
        )
    return warnings


def _usual(codes: Any) -> Any:
    """(targets, samples) where a target has its most common value."""
    usual = np.array([np.bincount(row).argmax() for row in codes]) if codes.shape[1] else np.zeros(len(codes))
    return codes == usual[:, None]


def _interval(share: Share) -> str:
    return f"95 % interval {_percent(share.low)} to {_percent(share.high)}, {share.n_queried:,} checked"


def _percent(share: float) -> str:
    """With a decimal near 0 and 100, so that values close to them are not rounded to them."""
    return f"{share:.{1 if 0 < share < 0.095 or 0.985 < share < 1 else 0}%}".replace("%", " %")


def _many(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _first(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


MAX_LENGTH, MAX_MEMBERS = 60, 4


def format_value(value: Any) -> str:
    """A number with four significant digits, anything else as text, shortened if too long."""
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 1]}…"


class UnitValues:
    """The values of a sample's units as text: of a feature, or of each feature of a group."""

    def __init__(self, source: MaskableRows) -> None:
        self._names = source.input_format.feature_names
        self._groups = source.groups
        shown = source.data if source.texts is not None else source.input_format.decode(source.data)
        if is_tensor(shown):
            shown = tensor_to_numpy(shown)
        self._shown = shown.tocsr() if is_sparse(shown) else shown
        self._is_frame = hasattr(shown, "iloc")
        self._columns: dict[int, list[Any]] = {}

    def of(self, sample: int, unit: int) -> str:
        """The value of one unit of one sample."""
        members = self._groups.members[unit].tolist() if isinstance(self._groups, FixedGroups) else [unit]
        if len(members) == 1:
            return format_value(self._value(sample, members[0]))
        shown = [f"{self._names[j]}={format_value(self._value(sample, j))}" for j in members[:MAX_MEMBERS]]
        return ", ".join(shown) + (f" and {len(members) - MAX_MEMBERS} more" if len(members) > MAX_MEMBERS else "")

    def _value(self, sample: int, feature: int) -> Any:
        if not self._is_frame:
            return self._shown[sample, feature]
        if feature not in self._columns:
            self._columns[feature] = self._shown.iloc[:, feature].tolist()
        return self._columns[feature][sample]
