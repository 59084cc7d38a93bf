"""The recipe for images: mixtures of two images teach an energy which of them decides each pixel of the mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sointer._support.containers import slices
from sointer.config import EnergyConfig
from sointer.data.images import ImageShape
from sointer.data.outputs import Outputs
from sointer.data.reading import refuse_too_many_mask_classes
from sointer.energy.image import ImageEnergy, follows
from sointer.errors import BlackBoxError, FewImagesWarning, InputError, warn_caller
from sointer.interpreter.image import build_networks
from sointer.training.context import FitContext, QueryBatch, Trained, concatenate, n_repeated, repeatability
from sointer.training.energy import Quality
from sointer.training.image_mixtures import Guessed, Predictions, followed, judged
from sointer.training.image_swaps import ImageMixtures, Planned, choose_by_queries, plan_mixtures
from sointer.training.optim import Adam, Group, state_of, warm_cosine
from sointer.training.queries import N_FIRST

MIXTURES_PER_IMAGE = 8
WHOLE, CHECKS = 0.2, 0.1
"""Shares of the queries, at most: images as they are; and to see how relevance is best shown, and how much suffices."""
FEW_IMAGES = 20
N_PROBED = 4
"""Mixtures that a model is tried on before anything is learned."""
USABLE_SHARE = 0.5
"""Of the steps, after which an interrupted fit is worth keeping."""
ROWS_PER_CALL, NUMBERS_PER_CALL = 1024, 2**24


def train_images(context: FitContext) -> Trained:
    """See docs/concepts/how-it-works.md."""
    image = context.rows.input_format.image
    assert image is not None
    n_rows = context.rows.n_samples
    warn_of_few_images(n_rows, n_queried_whole(context, n_rows))
    add_mirror_images(context, image)
    first, whole = query_whole(context, n_rows)
    outputs, targets = context.describe(first.raw)
    check_masks(outputs, image, first.raw)
    repeatability(context, outputs, whole, first)
    predictions = Predictions.of(outputs, first.raw, first.soft)
    interpreter = build_networks(image, outputs.n_classes[0], context.configs.energy, generator=context.generator)
    interpreter.energy.scale_to(context.rows.data[:n_rows])
    interpreter.n_seen.copy_(torch.stack([(predictions.labels == c).sum(0) for c in range(outputs.n_classes[0])]))
    n_unusual = predictions.n_unusual
    if predictions.probability is not None:
        interpreter.n_unusual.copy_(n_unusual)
    varying = torch.tensor(targets)
    varying = varying[n_unusual[varying] > 0]
    quality, interrupted = learn(context, interpreter.energy, outputs, predictions, varying, whole)
    if not interrupted and len(varying):
        swapped = choose_by_queries(context, interpreter, outputs, predictions, varying, whole, n_checks(context))
        quality = quality._replace(swapped=swapped)
    interpreter.requires_grad_(False).eval()
    context.history.close()
    original = whole < n_rows
    codes = predictions.labels.numpy().astype(np.int64)[original]
    return Trained(outputs, targets, interpreter.energy, interpreter, quality, (whole[original], codes), interrupted)


def warn_of_few_images(n_given: int, n_whole: int) -> None:
    """FewImagesWarning if hardly any of the images given are shown to the model as they are."""
    if n_whole >= FEW_IMAGES:
        return
    got, instead = f"{n_given} image{'s' if n_given > 1 else ''} to learn from", "Give more."
    if n_whole < n_given:
        got = f"room for only {n_whole} of the {n_given} images among its queries"
        instead = f"Raise query_budget to at least {math.ceil(FEW_IMAGES / WHOLE)}, better to thousands."
    warn_caller(
        f"fit has {got}, expected at least {FEW_IMAGES}: what is said of other images is hardly more than a guess, and "
        f"held-out quality is about these alone. {instead}",
        FewImagesWarning,
    )


def check_masks(outputs: Outputs, image: ImageShape, raw: NDArray[Any]) -> None:
    """InputError if the model does not return masks of classes, few enough to be kept as bytes."""
    if outputs.shape is not None and raw.dtype.kind in "iuf" and (raw == np.rint(raw)).all():
        refuse_too_many_mask_classes(len(np.unique(raw)))
    if outputs.shape is None or outputs.kind == "continuous":
        refuse_masks(f"{outputs.n_outputs} outputs" if outputs.shape is None else "numbers", image)


def refuse_masks(got: str, image: ImageShape) -> NoReturn:
    """Raise InputError: the model returned `got` where masks are expected."""
    raise InputError(
        f"the black box returned {got} for images, expected masks of classes (n, {image.height}, {image.width}). "
        "Return the class of every pixel or, for two classes, its probability (a sigmoid of logits). To explain other "
        "outputs of images, give them flat, as rows (n, features), and reshape them inside your function."
    )


def add_mirror_images(context: FitContext, image: ImageShape) -> None:
    """Let every image also be seen in a mirror, left to right: twice as many to learn from."""
    mirrored = image.unflatten(context.rows.data)[..., ::-1].reshape(context.rows.n_samples, -1)
    data = np.concatenate([context.rows.data, mirrored])
    context.rows = replace(context.rows, data=data, groups=context.rows.groups.bind(data))


def n_checks(context: FitContext) -> int:
    """How many queries are kept for checks."""
    return int(CHECKS * context.n_queries)


def n_queried_whole(context: FitContext, n_images: int) -> int:
    """How many of so many images are shown to the model as they are."""
    return min(n_images, max(2, int(WHOLE * context.n_queries)), context.n_queries)


def query_whole(context: FitContext, n_rows: int) -> tuple[QueryBatch, NDArray[np.int64]]:
    """Images as they are, first the user's own, then mirrored ones, as far as a fifth of the queries goes."""
    n_whole = min(context.rows.n_samples, max(2, int(WHOLE * context.n_queries)))
    # Mixtures belong to this stage too: how long they will take is known from the first images on.
    context.history.stage("querying the model", max(n_whole, context.n_queries - n_checks(context)), unit="rows")
    own, mirrored = context.rng.permutation(n_rows), context.rng.permutation(context.rows.n_samples - n_rows)
    order = np.concatenate([own, n_rows + mirrored])[:n_whole]
    parts = [context.query(order[:N_FIRST])]
    if parts[0] is not None:
        # Wrong names or targets, and models that cannot take mixtures, must come to light before the budget is spent.
        context.check(parts[0].raw)
        check_first(context, parts[0].raw, order)
    parts.append(context.query(order[N_FIRST:]))
    replies = concatenate([part for part in parts if part is not None])
    return replies, order[: len(replies)]


def check_first(context: FitContext, raw: NDArray[Any], order: NDArray[np.int64]) -> None:
    """Numbers that are neither labels nor probabilities, or a model that fails on a few mixtures."""
    assert context.rows.input_format.image is not None
    if raw.dtype.kind == "f" and (raw != np.rint(raw)).any() and (raw.min() < 0 or raw.max() > 1):
        refuse_masks("numbers", context.rows.input_format.image)
    index, n_units = order[:N_PROBED], context.rows.groups.n_units
    keep = context.rng.random((len(index), n_units)) < 0.5
    try:
        context.query(index, keep, np.roll(index, 1))
    except BlackBoxError as error:
        raise BlackBoxError(
            f"{error} What it was given were mixtures of two images, pixels of one in the other, from which sointer "
            "learns what decides: the model must answer for these too. Where it refuses some, return the usual mask."
        ) from error


def learn(
    context: FitContext,
    energy: ImageEnergy,
    outputs: Outputs,
    predictions: Predictions,
    targets: Tensor,
    whole: NDArray[np.int64],
) -> tuple[Quality, bool]:
    """Learn from groups of mixtures: first in the order in which outputs arrive, then at random.

    Returns how good the energy is in the end, and whether that came early, by an interrupt.
    """
    config, _, training = context.configs
    n_images = max(2, min(config.batch_size, len(whole)))
    n_mixtures = MIXTURES_PER_IMAGE * n_images
    n_left = context.n_queries - len(whole) - N_PROBED - n_repeated(context) - n_checks(context)
    n_groups = max(2, n_left // n_mixtures) if len(targets) and len(whole) > 1 else 0
    n_held_out = max(1, round(training.validation_share * n_groups)) if n_groups else 0
    n_steps = training.n_epochs * (n_groups - n_held_out)

    def rows(places: NDArray[np.int64]) -> Tensor:
        return context.as_tensor(context.rows.samples(whole[places]))

    steps = ImageSteps(energy, config, n_steps, rows, predictions, targets, context)
    held_out: list[ImageMixtures] = []
    known: list[ImageMixtures] = []
    interrupted = False
    try:
        for mixtures in queried(context, outputs, whole, n_groups, n_images):
            if len(held_out) < n_held_out:
                held_out.append(mixtures)
                continue
            known.append(mixtures)
            steps.step(mixtures)
        if steps.n_done < n_steps:
            context.history.stage("learning", n_steps - steps.n_done)
        while steps.n_done < n_steps and known:
            for place in context.rng.permutation(len(known))[: n_steps - steps.n_done]:
                steps.step(known[place])
    except KeyboardInterrupt:
        if steps.n_done < USABLE_SHARE * n_steps:
            raise
        interrupted = True
        context.query_worker.stop()
    energy.requires_grad_(False).eval()
    quality = steps.quality(held_out)
    context.history.record(
        stage="learning",
        step=steps.n_done,
        held_out_agreement=float(quality.agreement[0]),
        held_out_by_rules=quality.by_rules,
    )
    return quality, interrupted


def queried(
    context: FitContext, outputs: Outputs, whole: NDArray[np.int64], n_groups: int, n_images: int
) -> Iterator[ImageMixtures]:
    """Groups of mixtures with what the black box predicts for them; it is queried one call ahead."""
    n_mixtures = MIXTURES_PER_IMAGE * n_images
    n_rows = min(ROWS_PER_CALL, NUMBERS_PER_CALL // context.rows.input_format.n_columns)
    ahead: Planned | None = None
    for part in slices(n_groups, max(1, n_rows // n_mixtures)):
        planned = plan_mixtures(context, whole, part.stop - part.start, n_images, n_mixtures)
        if ahead is not None:
            yield from ahead.mixtures(outputs)
        ahead = planned
    if ahead is not None:
        yield from ahead.mixtures(outputs)


PLACES_SPEED = 10.0
"""Learning rate of attention by place, as a multiple of the others'."""
WEIGHT_OF_LABELS = 0.3
MAX_GRADIENT = 1.0
N_TARGETS, N_TARGETS_JUDGED = 128, 256
SECOND_MOMENT = 0.98


class ImageSteps:
    """Steps on groups of images and their mixtures."""

    def __init__(
        self,
        energy: ImageEnergy,
        config: EnergyConfig,
        n_steps: int,
        rows: Callable[[NDArray[np.int64]], Tensor],
        whole: Predictions,
        targets: Tensor,
        context: FitContext,
    ) -> None:
        self.energy, self.n_steps, self.rows, self.whole = energy, n_steps, rows, whole
        self.targets, self.generator, self.history = targets, context.generator, context.history
        self.n_done = 0
        places = [energy.near, energy.anywhere]
        others = [p for p in energy.parameters() if all(p is not place for place in places)]
        groups = [
            Group(others, config.learning_rate),
            Group(places, PLACES_SPEED * config.learning_rate, decays=False),
        ]
        self.optimiser = Adam(groups, max_norm=MAX_GRADIENT, weight_decay=config.weight_decay, beta2=SECOND_MOMENT)
        self.stage = context.snapshots.stage(state_of(energy, self.optimiser), n_steps, context.history)

    def step(self, mixtures: ImageMixtures) -> None:
        """One step, unless an earlier run of this fit has taken it."""
        chosen = torch.randperm(len(self.targets), generator=self.generator)[:N_TARGETS]
        if self.n_done < self.stage.n_done:
            self.n_done += 1
            self.history.step()
            return
        self.energy.requires_grad_(True).train()
        loss, _ = self._loss(mixtures, self.targets[chosen])
        found = self.optimiser.step(loss, warm_cosine(self.n_done, self.n_steps))
        self.n_done += 1
        self.history.step(loss=found)
        self.energy.requires_grad_(False).eval()
        self.stage.keep(self.n_done)

    def _loss(self, mixtures: ImageMixtures, targets: Tensor) -> tuple[Tensor, Guessed]:
        """The loss, and what was guessed of the mixtures."""
        images = torch.as_tensor(mixtures.images)
        maps = self.energy.maps(self.rows(mixtures.images))
        share = self.energy.cell_shares(mixtures.kept_pixels(self.energy.image.n_pixels))
        log_odds = follows(self.energy.evidence(maps, targets), mixtures.first, mixtures.second, share)
        first, second = (self.whole.take(images[part], targets) for part in (mixtures.first, mixtures.second))
        every = torch.arange(len(mixtures))
        follow, weight = followed(first, second, mixtures.predictions.take(every, targets))
        losses = F.binary_cross_entropy_with_logits(log_odds, follow, reduction="none")
        loss = (losses * weight).sum() / weight.sum().clamp_min(1e-6)
        loss = loss + WEIGHT_OF_LABELS * self.whole.take(images).label_loss(maps.labels)
        return loss, Guessed(log_odds, share, follow, weight)

    def quality(self, held_out: Sequence[ImageMixtures]) -> Quality:
        """How often it is rightly predicted which image held-out mixtures follow, where the two differ."""
        targets = self.targets[:: max(1, len(self.targets) // N_TARGETS_JUDGED)]
        cells = self.energy.cell_of(targets)
        losses, parts = [], []
        with torch.no_grad():
            for mixtures in held_out:
                loss, guessed = self._loss(mixtures, targets)
                losses.append(float(loss))
                parts.append(guessed.counts(self.energy.grid, cells))
        return judged(losses, parts, has_targets=len(targets) > 0)
