"""What a report says before it shows anything: how good explanations are, what they mean, and what they do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import is_sparse, is_tensor, tensor_to_numpy
from sointer.config import POOR_SKILL
from sointer.data.values import effects_from
from sointer.masking.groups import FixedGroups
from sointer.masking.rows import Source
from sointer.viz.report.content import Card, Share, confirmed_share, unusual_share

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer


POORLY_CONFIRMED, MOST_NAMED = 0.8, 8
REMOVED = {
    "zero": "is set to 0",
    "mean": "is set to its mean in the training data",
    "marginal": "takes the value of another sample of the training data, drawn at random",
    "conditional": "takes the value of a sample that is alike in what is kept",
    "array": "takes the value of a reference row that was given",
}


@dataclass(frozen=True, eq=False)
class Told:
    """What the words are about."""

    targets: list[str]
    codes: NDArray[np.int64]
    """(targets, samples) which value is explained, by number."""
    asked: NDArray[np.bool_]
    confirmed: NDArray[np.bool_]
    k: int | Literal["auto"]
    n_given: int
    """Samples that there were to choose from."""
    too_many: bool
    """Whether fewer are shown than were wanted."""
    knows_answers: bool
    """Whether what is explained is what the model predicts."""
    n_queries: int
    n_followed: int
    """Targets whose ways through other outputs are shown."""
    n_far: int = 0
    """Samples unlike the training data."""
    has_effects: bool = False
    """Whether it is known which way features push."""
    has_idle: bool = False
    """Whether features are shown that are not needed."""

    @property
    def n_samples(self) -> int:
        return int(self.codes.shape[1])


def lead_of(explainer: Explainer, told: Told) -> str:
    """One sentence on what is explained."""
    name = "the model" if explainer.black_box_ is None else f"the model “{explainer.black_box_.name}”"
    n_targets, n_samples = len(told.targets), told.n_samples
    of_all = f" of {told.n_given:,}" if told.n_given > n_samples else ""
    thing = "words" if explainer.text_ is not None else "features"
    which = f"those of {explainer.groups_.n_units:,} {thing}"
    if told.k != "auto":
        which = f"the {told.k} of {explainer.groups_.n_units:,} {thing}"
    return (
        f"For {_many(n_samples, 'sample')}{of_all} and {_many(n_targets, 'output')} of {name}: {which} that decide "
        f"what it {'predicts' if told.knows_answers else 'is expected to predict'}."
    )


def cards_of(explainer: Explainer, told: Told) -> list[Card]:
    """The numbers at the top."""
    cards = []
    stratum = told.codes + (told.codes.max(initial=0) + 1) * np.arange(len(told.targets))[:, None]
    overall = confirmed_share(told.asked, told.confirmed, stratum)
    meaning = (
        "Confirmed: shown nothing but the selected features (the others removed), the model predicts the same as "
        "before; where removal is random, in all of ten draws. In 95 of 100 reports, the interval holds the share "
        "among all samples of this kind."
    )
    if overall is not None:
        cards.append(Card("explanations confirmed", _percent(overall.share), _interval(overall), meaning))
        unusual = told.asked & ~_usual(told.codes)
        rare = confirmed_share(unusual, told.confirmed & unusual, np.where(_usual(told.codes), -1, stratum))
        if rare is not None and len(np.unique(told.codes)) > 1:
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
    asked = "" if n_fit is None else f"{n_fit:,}"
    cards.append(Card("queries", asked or "–", f"in fit; {told.n_queries:,} for this report", why))
    return cards


def says_of(explainer: Explainer, told: Told) -> list[str]:
    """What explanations mean, and what they do not, a sentence each."""
    name = explainer.removal_.name
    how = REMOVED.get(name, f"is replaced by the function {name!r} of the explainer's owner")
    if name in ("zero", "mean") and explainer.input_format_.is_categorical.any():
        how += " (a category: to its most frequent value)"
    if explainer.text_ is not None and name == "zero":
        how = "is deleted from the text"
    thing = "word" if explainer.text_ is not None else "feature"
    says = [
        f"The {thing}s shown are those that suffice: keep them, remove the others, and the model should still predict "
        f"the same. A removed {thing} {how}.",
        "What suffices need not be the only reason. Others may suffice too, and what the model relies on is not what "
        "causes things in the world: changing a feature there may change nothing, or something else.",
        f"Relevance (grey bars) says how much the output depends on a {thing} here. It has no sign.",
    ]
    if told.has_effects:
        start = effects_from(explainer.removal_.name, is_text=explainer.text_ is not None)
        says.append(
            f"Effects (blue and orange bars) say which way a {thing} pushes the output, and how far: a number in its "
            f"own unit, a probability as such, a label as the probability of the label explained. Together they lead "
            f"from what it is {start} to what the explainer expects for the sample."
        )
    if told.has_idle:
        says.append(
            f"Hollow bars are of {thing}s that are not needed: they are there only because k={told.k} asked for as "
            "many. They are not counted anywhere."
        )
    if told.knows_answers:
        says.append("The values explained are what the model predicts.")
    else:
        says.append(
            "The model was not queried: the values explained are those that the explainer expects it to predict, which "
            "is not always what it predicts. Nothing here was confirmed. Write the report with the model, or with "
            "predicted=, to explain what it predicts."
        )
    if told.n_followed:
        says.append(
            f"Ways through other outputs were followed for {_many(told.n_followed, 'output')}, those that depend most "
            "on others. The explainer's copy of the model says them, and the model cannot confirm them."
        )
    return says


def warnings_of(explainer: Explainer, told: Told) -> list[str]:
    """What to be careful about."""
    warnings = []
    skill = getattr(explainer, "held_out_skill_", None)
    if skill is not None and skill < POOR_SKILL:
        warnings.append(
            f"The explainer has learned little of this model (skill {_percent(max(skill, 0))}), so explanations may be "
            "wrong. Fit with a larger query_budget or more data."
        )
    constant = set(np.array(explainer.output_names_, dtype=object)[explainer.outputs_.constant].tolist())
    never = [name for name in told.targets if name in constant]
    if never:
        warnings.append(
            f"These outputs never changed while the explainer learned, so nothing decides them: {_some(never)}."
        )
    poor = [
        explainer.output_names_[target]
        for target in explainer.targets_
        if explainer.output_names_[target] in told.targets
        and (of_output := getattr(explainer, "output_skill_", None)) is not None
        and of_output[target] < POOR_SKILL
    ]
    if poor and (skill is None or skill >= POOR_SKILL):
        warnings.append(
            f"The explainer has learned little of these outputs (skill below {_percent(POOR_SKILL)}), so what is said "
            f"of them may be wrong: {_some(poor)}."
        )
    weak = []
    for name, codes, asked, confirmed in zip(told.targets, told.codes, told.asked, told.confirmed, strict=True):
        share = unusual_share(asked, confirmed, codes, int(np.bincount(codes).argmax()))
        if share is not None and share.high < POORLY_CONFIRMED:
            weak.append(name)
    if weak:
        warnings.append(
            f"For these outputs the model surely confirms fewer than {_percent(POORLY_CONFIRMED)} of the explanations "
            f"of unusual values: {_some(weak)}."
        )
    if told.n_far:
        warnings.append(
            f"{_many(told.n_far, 'sample')} of {told.n_samples:,} {'lies' if told.n_far == 1 else 'lie'} far from the "
            "data that the explainer learned from, of which at most 1 % would be called so; trust what is said there "
            "only if it is confirmed. They are marked."
        )
    n_asked, n_all = int(told.asked.sum()), told.asked.size
    if told.knows_answers and n_asked < n_all:
        warnings.append(
            f"The model was queried to confirm {n_asked:,} of {n_all:,} explanations; report(..., verify=True) checks "
            "all."
        )
    if told.too_many:
        warnings.append(
            f"Only {told.n_samples:,} samples are shown, to keep the file small; choose fewer targets or a smaller k "
            "to see more."
        )
    return warnings


def _usual(codes: Any) -> Any:
    """(targets, samples) where a target has its most common value."""
    usual = np.array([np.bincount(row).argmax() for row in codes]) if codes.shape[1] else np.zeros(len(codes))
    return codes == usual[:, None]


def _interval(share: Share) -> str:
    return f"95 % interval {_percent(share.low)} to {_percent(share.high)}, {share.n_asked:,} checked"


def _percent(share: float) -> str:
    """With a decimal near 0 and 100, so that neither is said of what is only close to it."""
    return f"{share:.{1 if 0 < share < 0.095 or 0.985 < share < 1 else 0}%}".replace("%", " %")


def _many(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


LONGEST, MOST_MEMBERS = 60, 4


def in_words(value: Any) -> str:
    """A number with four digits, anything else as it is, if it is not too long."""
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


class UnitWords:
    """Looks up what a sample has in a feature, or in each feature of a group."""

    def __init__(self, source: Source) -> None:
        self._names = source.input_format.feature_names
        self._groups = source.groups
        shown = source.input_format.decode(source.data)
        if is_tensor(shown):
            shown = tensor_to_numpy(shown)
        self._shown = shown.tocsr() if is_sparse(shown) else shown
        self._is_frame = hasattr(shown, "iloc")
        self._columns: dict[int, list[Any]] = {}

    def of(self, sample: int, unit: int) -> str:
        """The value of one unit of one sample."""
        members = self._groups.members[unit].tolist() if isinstance(self._groups, FixedGroups) else [unit]
        if len(members) == 1:
            return in_words(self._value(sample, members[0]))
        shown = [f"{self._names[j]}={in_words(self._value(sample, j))}" for j in members[:MOST_MEMBERS]]
        return ", ".join(shown) + (f" and {len(members) - MOST_MEMBERS} more" if len(members) > MOST_MEMBERS else "")

    def _value(self, sample: int, feature: int) -> Any:
        if not self._is_frame:
            return self._shown[sample, feature]
        if feature not in self._columns:
            self._columns[feature] = self._shown.iloc[:, feature].tolist()
        return self._columns[feature][sample]
