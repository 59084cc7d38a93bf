"""What fit of SOInter plans before it learns, and what it warns of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from sointer._support.containers import distinct_rows, is_sparse
from sointer._support.progress import History
from sointer._support.torch_state import CPU, resolve_device
from sointer._support.validation import check_positive_int, some
from sointer.blackbox.box import BlackBox
from sointer.blackbox.checkpoint import Checkpoint, fingerprint
from sointer.blackbox.parallel import QueryWorker
from sointer.config import POOR_SKILL, PRESETS, Configs, DataKind, EnergyConfig, InterpreterConfig, TrainingConfig
from sointer.data.outputs import Outputs
from sointer.errors import BudgetWarning, InputError, InterruptedFitWarning, PoorFitWarning, warn_caller
from sointer.explainers.data_checks import warn_about_outputs
from sointer.explainers.reading import fitted_targets
from sointer.masking.rows import Subject
from sointer.training.context import FitContext, Trained, compact
from sointer.training.images import train_images
from sointer.training.paper import train_paper
from sointer.training.snapshots import Snapshots
from sointer.training.sparse_rows import train_sparse_rows
from sointer.training.tables import train_tables
from sointer.training.texts import train_texts

if TYPE_CHECKING:
    from sointer.explainers.sointer import SOInter
    from sointer.training.energy import Quality


N_AUTO_QUERIES = (5_000, 50_000)
N_IMAGE_QUERIES = 16_000
MAX_SPARSE_QUERIES = 500_000
N_TEXT_QUERIES = 100_000
AUTO_QUERIES_PER_FEATURE = 250


def check_settings(explainer: SOInter) -> None:
    """InputError where a setting is wrong, which must come to light before data are read."""
    if explainer.preset not in PRESETS:
        raise InputError(f"preset must be one of {', '.join(map(repr, PRESETS))}, got {explainer.preset!r}.")
    if not isinstance(explainer.structured, bool):
        raise InputError(f"structured must be True or False, got {explainer.structured!r}.")
    for name, kind in (("energy", EnergyConfig), ("interpreter", InterpreterConfig), ("training", TrainingConfig)):
        config = getattr(explainer, name)
        if config is None:
            continue
        if not isinstance(config, kind):
            raise InputError(
                f"{name} must be a {kind.__name__} or None, got {config!r:.60}. "
                f"Give {name}=sointer.{kind.__name__}(...)."
            )
        config.check_for(explainer.preset)


RECIPES: dict[DataKind, Callable[[FitContext], Trained]] = {
    "images": train_images,
    "sparse rows": train_sparse_rows,
    "texts": train_texts,
    "table": train_tables,
}


def make_context(
    explainer: SOInter, subject: Subject, black_box: BlackBox, targets: Any
) -> tuple[FitContext, Callable[[FitContext], Trained], int]:
    """What the recipe works on, the recipe, and how many queries were planned for it."""
    kind, data = kind_of_data(explainer, subject)
    plan, rng = n_planned(explainer, subject.rows.groups.n_units, kind), subject.rng
    model = subject.rows.model
    before, answered_before = model.n_queries, model.n_answered
    if kind == "images" and explainer.preset == "default":
        warn_about_budget(explainer.query_budget, subject.rows.n_samples)

    def check(raw: NDArray[Any]) -> None:
        explainer._check_first(raw, black_box, targets)

    def describe(raw: NDArray[Any]) -> tuple[Outputs, list[int]]:
        outputs = explainer._outputs(raw, black_box)
        warn_about_outputs(outputs, raw)
        return outputs, fitted_targets(targets, outputs)

    context = FitContext(
        rows=replace(subject.rows, data=data, black_box=black_box),
        k=subject.k,
        n_queries=plan if black_box.remaining is None else min(plan, black_box.remaining),
        configs=resolve_configs(explainer, kind),
        structured=explainer.structured,
        shift_inputs=explainer.preset == "default" and kind != "images",
        check=check,
        describe=describe,
        rng=rng,
        generator=torch.Generator().manual_seed(int(rng.integers(2**62))),
        query_worker=QueryWorker(caller_thread=model.caller_thread),
        history=History(
            explainer.verbose,
            n_queried=lambda: model.n_queries - before,
            n_answered=lambda: model.n_answered - answered_before,
            n_planned=plan,
        ),
    )
    return context, train_paper if explainer.preset == "paper" else RECIPES[kind], plan


def snapshots_in(kept: Checkpoint | None, device: torch.device = CPU) -> Snapshots:
    """Where states of training are kept, if anywhere; those of another device are of another fit."""
    if kept is None:
        return Snapshots()
    return Snapshots(kept.training, kept.fit_digest + ("" if device.type == "cpu" else f" on {device.type}"))


def kind_of_data(explainer: SOInter, subject: Subject) -> tuple[DataKind, Any]:
    """What kind of data there is, and the data in the form that suits it."""
    if subject.rows.input_format.image is not None:
        if not explainer.structured and explainer.preset == "default":
            raise InputError(
                "structured=False has no effect on images: evidence is learned for each pixel of the mask on its "
                "own, whichever way it takes through others. Leave it out."
            )
        return "images", subject.rows.data
    if subject.rows.input_format.has_words:
        if explainer.preset == "paper":
            raise InputError("preset='paper' is not for texts; leave it out, or give counts of words as a CSR matrix.")
        return "texts", subject.rows.data
    data = compact(subject.rows.data, subject.rows.removal)
    return ("sparse rows" if is_sparse(data) and subject.rows.removal.keeps_zeros else "table"), data


def settings_of(explainer: SOInter, subject: Subject, targets: Any) -> dict[str, Any]:
    """Everything but the data that decides what fit queries, by name."""
    names = ("k", "structured", "preset", "output_kind", "tolerance", "output_names", "query_budget")
    settings = {name: getattr(explainer, name) for name in names} | {"targets": targets}
    settings["method"] = subject.rows.model.method
    if (device := resolve_device(explainer.device).type) != "cpu":  # rounding may decide what is queried next
        settings["device"] = device
    settings["probabilities of classes"] = subject.rows.model.class_probabilities is not None
    for config in resolve_configs(explainer, kind_of_data(explainer, subject)[0]):
        settings |= {f"{type(config).__name__}.{name}": value for name, value in asdict(config).items()}
    return settings


def replayed(explainer: SOInter, kept: Checkpoint | None, subject: Subject, targets: Any) -> BlackBox:
    """The model, behind the outputs that a checkpoint has kept of it."""
    model = subject.rows.model
    if kept is None:
        return model
    return kept.replaying(model, fingerprint(subject.rows, settings_of(explainer, subject, targets)))


def resolve_configs(explainer: SOInter, data: DataKind) -> Configs:
    """The three configurations, with the defaults of the preset and the data."""
    return Configs(
        (explainer.energy or EnergyConfig()).resolve(explainer.preset, data),
        (explainer.interpreter or InterpreterConfig()).resolve(explainer.preset, data),
        (explainer.training or TrainingConfig()).resolve(explainer.preset, data),
    )


def n_planned(explainer: SOInter, n_units: int, data: DataKind) -> int:
    """How many queries fit may send: its budget or, without one, as many as suit the data."""
    fewest, most = N_AUTO_QUERIES
    most = MAX_SPARSE_QUERIES if data == "sparse rows" and explainer.preset == "default" else most
    planned = int(np.clip(AUTO_QUERIES_PER_FEATURE * n_units, fewest, most))
    if data == "texts":
        planned = N_TEXT_QUERIES
    if data == "images" and explainer.preset == "default":
        planned = N_IMAGE_QUERIES
    if explainer.query_budget is None:
        return planned
    return check_positive_int(explainer.query_budget, "query_budget")


def distinct_codes(rows: Any, codes: NDArray[Any]) -> NDArray[Any]:
    """Encoded outputs, once for every different row, as small as they can be kept."""
    small = codes.astype(np.int16) if codes.dtype.kind == "i" else codes
    return np.asarray(small[distinct_rows(rows)[0]])


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
