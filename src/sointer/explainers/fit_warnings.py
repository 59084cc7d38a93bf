"""What fit of SOInter warns of: its budget, an interrupt, and an energy that has learned little."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sointer._support.validation import some
from sointer.config import POOR_SKILL
from sointer.errors import BudgetWarning, InterruptedFitWarning, PoorFitWarning, warn_caller

if TYPE_CHECKING:
    from sointer.explainers.sointer import SOInter
    from sointer.training.context import FitContext, Trained
    from sointer.training.energy import Quality

GOOD_SWAPS = 0.5
"""Share of swaps in which the label goes with the best pixels, from which images are well explained."""
MIN_QUERIES_FOR_SWAPS = 4_000
"""Queries of a fit that leave enough of them to try swaps."""


def warn_about_budget(query_budget: int | None, n_images: int) -> None:
    """BudgetWarning if there are fewer queries than images, most of which fit then does not use."""
    if query_budget is None or query_budget >= n_images:
        return
    warn_caller(
        f"query_budget={query_budget} is less than the {n_images} images given, expected several queries for each: a "
        "fifth of the queries are images as they are, so fit learns from few of yours. Raise query_budget, best to "
        "thousands.",
        BudgetWarning,
    )


def warn_about_fit(explainer: SOInter, context: FitContext, trained: Trained, plan: int) -> None:
    """Warn of an interrupted fit, a budget that ended early, and an energy that has learned little."""
    usable = f"the explainer is usable{agreement_in_words(explainer.held_out_agreement_)}"
    n_answers = explainer.n_queries_ + explainer.n_queries_replayed_
    if trained.interrupted:
        warn_caller(
            f"fit was interrupted after {n_answers} of {context.n_queries} planned queries; {usable}. Fit again, "
            "without interrupting, for better explanations.",
            InterruptedFitWarning,
        )
    if context.budget_ran_out or context.n_queries < plan:
        warn_caller(
            f"the model's query budget ended after {n_answers} rows, of {plan} planned; {usable}. "
            "Raise the budget for better explanations.",
            BudgetWarning,
        )
    if explainer.preset != "default":
        return
    of_images = explainer.input_format_.image is not None
    learned = learned_of_images(trained.quality) if of_images else learned_of_outputs(explainer, trained)
    if learned is not None:
        warn_caller(
            f"{learned}, so explanations may be wrong. Check them with explanation.verify(); raise "
            "query_budget or give more data; explain with refine= where it matters.",
            PoorFitWarning,
        )


def agreement_in_words(share: float) -> str:
    """How often the explainer predicts the model's outputs, or that this is not known."""
    if math.isnan(share):
        return ", but nothing was left to check it on"
    return f" and agrees with the model on {share:.0%} of the outputs it was checked on"


def learned_of_outputs(explainer: SOInter, trained: Trained) -> str | None:
    """What an energy failed to learn of outputs; None if it learned enough of all that are explained."""
    poor = [explainer.output_names_[t] for t in trained.quality.poor if t in set(trained.targets)]
    skill = explainer.held_out_skill_
    if skill < POOR_SKILL:
        return (
            f"the energy has learned little of this model: on held-out queries it avoids only "
            f"{max(skill, 0):.0%} of the errors of always predicting the most common value (below {POOR_SKILL:.0%})"
        )
    if not poor:
        return None
    return (
        f"the energy has learned little of {len(poor)} of {len(trained.targets)} outputs: {some(poor)}; on "
        f"held-out queries it avoids less than {POOR_SKILL:.0%} of the errors of always predicting their "
        "most common value"
    )


def learned_of_images(quality: Quality) -> str | None:
    """What an energy of images failed to learn; None if it learned enough, or its best pixels decide all the same.

    Where the surroundings of a pixel decide it, a simple rule is right nearly as often as an energy can be; the label
    then goes with the pixels that it finds.
    """
    if quality.mean_skill() >= POOR_SKILL or quality.swapped >= GOOD_SWAPS:
        return None
    agreement = float(quality.agreement.mean())
    if math.isnan(agreement):
        return "nothing is known of what the energy learned of this model: no mixtures of two images were held out"
    swapped = (
        f"its best pixels could not be tried in other images (too few queries, expected {MIN_QUERIES_FOR_SWAPS:,}, or "
        "too few images with another label)"
    )
    if not math.isnan(quality.swapped):
        swapped = (
            "its best pixels, put into another image or replaced in their own, take the output along in only "
            f"{quality.swapped:.0%} of cases (expected at least {GOOD_SWAPS:.0%})"
        )
    return (
        f"the energy has learned little of this model: it predicts for {agreement:.0%} of held-out mixtures of two "
        "images which of the two they follow, where a simple rule (the one with more pixels, in all or around the "
        f"target) is right for {quality.by_rules:.0%}, and {swapped}"
    )
