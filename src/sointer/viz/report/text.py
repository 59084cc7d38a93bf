"""The text of a report: how good explanations are, what they mean, and what they do not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sointer._support.validation import counted
from sointer.config import POOR_SKILL
from sointer.data.targets import effects_from
from sointer.verification import LEVEL
from sointer.viz.report.content import Card, ReportContent, Share, confirmed_share, rare_share
from sointer.viz.report.samples import lacks_rows

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer


MIN_CONFIRMED, MAX_NAMED, MANY_RARE = 0.8, 8, 0.35
REMOVED = {
    "zero": "is set to 0",
    "mean": "is set to its mean in the training data",
    "marginal": "takes the value of another sample of the training data, drawn at random",
    "conditional": "takes the value of a sample that is alike in what is kept",
    "array": "takes the value of a reference row that was given",
    "delete": "is deleted from the text",
    "token": "is replaced by a token in the text",
    "delete, marginal": "is deleted if it is a word, and else takes the value of another sample, drawn at random",
    "token, marginal": "is replaced by a token if it is a word, and else takes the value of another sample, at random",
    "nan": "is made missing",
}


def with_text(content: ReportContent, explainer: Explainer) -> ReportContent:
    """The content with all that is said about it."""
    return replace(
        content,
        lead=lead_of(explainer, content),
        cards=cards_of(explainer, content),
        notes=notes_of(explainer, content),
        warnings=warnings_of(explainer, content),
    )


def lead_of(explainer: Explainer, content: ReportContent) -> str:
    """One sentence on what is explained."""
    known = "" if explainer.black_box_ is None else explainer.black_box_.name
    name = "the model" if known in ("", "<lambda>") else f"the model “{known}”"
    n_targets, n_samples = len(content.targets), len(content.samples)
    of_all = f" of {content.n_given:,}" if content.n_given > n_samples else ""
    unit = "words" if explainer.reads_text else "features"
    few = "those few of" if content.size == "auto" else f"the top {content.size} of"
    is_expected = ", as expected without querying it" if content.is_expected else ""
    return (
        f"{counted(n_targets, 'output')} of {name}{is_expected}, explained for {counted(n_samples, 'sample')}{of_all} "
        f"by {few} {explainer.groups_.n_units:,} {unit} that decide."
    )


def cards_of(explainer: Explainer, content: ReportContent) -> list[Card]:
    """How good explanations are, in a few numbers."""
    cards = []
    is_number = content.is_number[:, None]
    labels, numbers = content.queried & ~is_number, content.queried & is_number
    meaning = (
        "Confirmed: shown nothing but the selected features (the others removed), the model predicts the same as "
        "before (a probability: on the same side of 0.5); where removal is random, in all of ten draws. Refuted: in "
        f"clearly fewer than {LEVEL:.0%} of draws. "
        "Unsure: more draws would tell. In 95 of 100 reports, the interval holds the share among all samples of this "
        "kind."
    )
    stratum = content.codes + (content.codes.max(initial=0) + 1) * np.arange(len(content.targets))[:, None]
    overall = confirmed_share(labels, content.confirmed, np.where(is_number, -1, stratum))
    if overall is not None:
        n_refuted, n_confirmed = int((content.refuted & labels).sum()), overall.n_confirmed
        n_unsure = overall.n_queried - n_confirmed - n_refuted
        note = f"{n_refuted:,} of {overall.n_queried:,} refuted, {n_unsure:,} unsure; {_interval(overall)}"
        rare = content.is_rarer & ~is_number
        share = confirmed_share(labels & rare, content.confirmed, np.where(rare, stratum, -1))
        if share is not None and rare.sum() < MANY_RARE * (~is_number).sum() * content.codes.shape[1]:
            # The most common value, such as that a tag is absent, is often confirmed with nothing.
            note += f"; {_percent(share.share)} where the value is not the most common one"
        cards.append(Card("explanations confirmed", _percent(overall.share), note, meaning))
    if numbers.any():
        why = (
            "How far the model's prediction moves, on average, when only the selected features are kept, in standard "
            f"deviations of the output. Predictions within {explainer.outputs_.tolerance or 0:g} count as equal."
        )
        error = float(np.mean(content.difference[numbers]))
        cards.append(Card("error", f"{error:.2f} sd", "of numbers predicted from the selected features alone", why))
    if not content.queried.any():
        cards.append(Card("explanations confirmed", "?", "the model was not queried", meaning))
    agreement, skill = (getattr(explainer, f"held_out_{name}_", None) for name in ("agreement", "skill"))
    if agreement is not None and np.isfinite(agreement):
        why = (
            "The explainer learned a copy of the model from its outputs. This is the share of held-out outputs that "
            "the copy predicts correctly, averaged over outputs, for samples that it learned nothing from, whole and "
            "masked."
        )
        here = (
            "" if content.own_agreement is None else f"; {_percent(content.own_agreement)} for samples of this report"
        )
        cards.append(Card("agreement", _percent(agreement), f"of held-out outputs predicted correctly{here}", why))
    if skill is not None and np.isfinite(skill):
        why = (
            "Skill: of the errors that one makes by always predicting an output's most common value, the share that "
            "the explainer's copy of the model avoids on held-out outputs (of probabilities and numbers, R squared), "
            "averaged over outputs. 100 % is perfect, 0 % no better than that."
        )
        cards.append(Card("skill", _percent(max(skill, 0)), "on held-out outputs", why))
    n_fit = getattr(explainer, "n_queries_", None)
    why = "Samples sent to the model: while the explainer was fitted, and for this report."
    fitted = "–" if n_fit is None else f"{n_fit:,}"
    cards.append(Card("queries", fitted, f"to fit; {content.n_queries:,} for this report", why))
    return cards


def notes_of(explainer: Explainer, content: ReportContent) -> list[str]:
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
    if content.effects is not None:
        start = effects_from(explainer.removal_.name, is_text=explainer.has_words)
        notes.append(
            f"Effects (blue and orange bars) show which way a {unit} pushes the output, and how far: a number in its "
            f"own unit, a probability as such, a label as the probability of the label explained. Together they lead "
            f"from what it is {start} to the value explained (a label: to what the explainer expects)."
        )
    if content.has_unneeded:
        notes.append(
            f"Hollow bars are of {unit}s that are not needed: they are shown only because k={content.size}. "
            "They are not counted."
        )
    if not content.is_expected:
        notes.append("The values explained are what the model predicts.")
    else:
        notes.append(
            "The model was not queried: the values explained are those that the explainer expects it to predict, which "
            "is not always what it predicts. Nothing here was confirmed. Write the report with the model, or with "
            "predicted=, to explain what it predicts."
        )
    n_queried, n_all = int(content.queried.sum()), content.queried.size
    if lacks_rows(explainer):
        notes.append(
            'The explainer was saved without training rows (rows="none"): paths through other outputs and samples '
            "unlike the training data are not shown, and what needs rows to put in for features is not confirmed."
        )
    elif not content.is_expected and n_queried < n_all:
        notes.append(
            f"The model was queried to confirm {n_queried:,} of {n_all:,} explanations; "
            "report(..., verify=True) checks all."
        )
    if content.paths:
        notes.append(
            f"Paths through other outputs were followed for {counted(len(content.paths), 'output')}, those that "
            "depend most on others. They come from the explainer's copy of the model; the model cannot confirm them."
        )
    return notes


def warnings_of(explainer: Explainer, content: ReportContent) -> list[str]:
    """What to be careful about."""
    warnings = []
    skill = getattr(explainer, "held_out_skill_", None)
    if skill is not None and skill < POOR_SKILL:
        warnings.append(
            f"The explainer has learned little of this model (skill {_percent(max(skill, 0))}), so explanations may be "
            "wrong. Fit with a larger query_budget or more data."
        )
    constant = set(np.array(explainer.output_names_, dtype=object)[explainer.outputs_.constant].tolist())
    never = [name for name in content.targets if name in constant]
    if never:
        warnings.append(
            f"These outputs never changed while the explainer learned, so nothing decides them: {_first(never)}."
        )
    poor = [
        explainer.output_names_[target]
        for target in explainer.targets_
        if explainer.output_names_[target] in content.targets
        and (of_output := getattr(explainer, "output_skill_", None)) is not None
        and of_output[target] < POOR_SKILL
    ]
    if poor and (skill is None or skill >= POOR_SKILL):
        warnings.append(
            f"The explainer has learned little of these outputs (skill below {_percent(POOR_SKILL)}), so their "
            f"explanations may be wrong: {_first(poor)}."
        )
    weak = []
    for i, name in enumerate(content.targets):
        share = rare_share(content.queried[i], content.confirmed[i], content.codes[i])
        if share is not None and share.high < MIN_CONFIRMED and not content.is_number[i]:
            weak.append(name)
    if weak:
        warnings.append(
            f"For these outputs the model confirms clearly fewer than {_percent(MIN_CONFIRMED)} of the explanations "
            f"of values other than the most common one: {_first(weak)}."
        )
    n_samples = len(content.samples)
    if content.far:
        warnings.append(
            f"1 of {n_samples:,} samples lies far from the training data and is marked; trust its explanation only if "
            "it is confirmed."
            if len(content.far) == 1
            else f"{len(content.far):,} of {n_samples:,} samples lie far from the training data and are marked; trust "
            "their explanations only if they are confirmed."
        )
    if content.too_many:
        warnings.append(
            f"Only {n_samples:,} samples are shown, to keep the file small; choose fewer targets or a smaller k "
            "to see more."
        )
    return warnings


def _interval(share: Share) -> str:
    return f"95 % interval {_percent(share.low)} to {_percent(share.high)}, {share.n_queried:,} checked"


def _percent(share: float) -> str:
    """With a decimal near 0 and 100, so that values close to them are not rounded to them."""
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return f"{share:.{1 if 0 < share < 0.095 or 0.985 < share < 1 else 0}%}".replace("%", " %")


def _first(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
