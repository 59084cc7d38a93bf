"""Training steps for images: regression of which image a mixture follows on the evidence in both."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sointer.config import EnergyConfig
from sointer.data.outputs import Outputs
from sointer.energy.image import ImageEnergy, follows
from sointer.interpreter.image import ImageInterpreter, PixelUnits
from sointer.training.context import FitContext
from sointer.training.image_swaps import Mixtures, Predictions, followed
from sointer.training.optim import Adam, Group, state_of
from sointer.training.quality import Quality

WARM_UP = 0.1
LAST_RATE = 0.02
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

    def step(self, mixtures: Mixtures) -> None:
        """One step, unless an earlier run of this fit has taken it."""
        chosen = torch.randperm(len(self.targets), generator=self.generator)[:N_TARGETS]
        if self.n_done < self.stage.n_done:
            self.n_done += 1
            self.history.step()
            return
        self.energy.requires_grad_(True).train()
        loss, _, _ = self._loss(mixtures, self.targets[chosen])
        found = self.optimiser.step(loss, lr_scale(self.n_done, self.n_steps))
        self.n_done += 1
        self.history.step(loss=found)
        self.energy.requires_grad_(False).eval()
        self.stage.keep(self.n_done)

    def _loss(self, mixtures: Mixtures, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss; how much of which image is followed is predicted correctly; and how much there is to predict."""
        images = torch.as_tensor(mixtures.images)
        maps = self.energy.maps(self.rows(mixtures.images))
        share = self.energy.cell_shares(mixtures.kept_pixels(self.energy.image.n_pixels))
        log_odds = follows(self.energy.evidence(maps, targets), mixtures.first, mixtures.second, share)
        first, second = (self.whole.take(images[part], targets) for part in (mixtures.first, mixtures.second))
        every = torch.arange(len(mixtures))
        follow, weight = followed(first, second, mixtures.predictions.take(every, targets))
        total = weight.sum()
        losses = F.binary_cross_entropy_with_logits(log_odds, follow, reduction="none")
        right = ((log_odds > 0) == (follow > 0.5)).float()
        loss = (losses * weight).sum() / total.clamp_min(1e-6)
        return loss + WEIGHT_OF_LABELS * self._label_loss(maps.labels, images), (right * weight).sum(), total

    def _label_loss(self, logits: Tensor, images: Tensor) -> Tensor:
        labels, probability = (None if part is None else part[images] for part in self.whole)
        assert labels is not None
        if self.energy.n_maps == 1:
            wanted = labels.float() if probability is None else probability.float()
            return F.binary_cross_entropy_with_logits(logits[:, 0], wanted)
        return F.cross_entropy(logits, labels.long())

    def quality(self, held_out: Sequence[Mixtures]) -> Quality:
        """How often it is rightly predicted which image held-out mixtures follow, where the two differ."""
        every = max(1, len(self.targets) // N_TARGETS_JUDGED)
        losses, right, total = [], 0.0, 0.0
        with torch.no_grad():
            for mixtures in held_out:
                loss, n_right, n_all = self._loss(mixtures, self.targets[::every])
                losses.append(float(loss))
                right, total = right + float(n_right), total + float(n_all)
        agreement = right / total if total else math.nan
        skill = 2 * agreement - 1  # guessing is right in half of the cases
        mean = float(np.mean(losses)) if losses else math.nan
        return Quality(mean, np.array([agreement]), np.array([skill]), [])


def lr_scale(n_done: int, n_steps: int) -> float:
    """Up in a few steps, then down along a cosine: the share of the full learning rate."""
    warm = max(1.0, WARM_UP * n_steps)
    if n_done < warm:
        return (n_done + 1) / (warm + 1)
    rest = (n_done - warm) / max(1.0, n_steps - warm)
    return LAST_RATE + (1 - LAST_RATE) * 0.5 * (1 + math.cos(math.pi * min(rest, 1.0)))


SIZES = (0.01, 0.03, 0.1, 0.3)
"""Shares of the units that are swapped."""
MIN_PAIRS, MAX_PAIRS = 24, 160
MIN_GAIN = 0.01
"""By how much smoothing must raise insert and delete, on average, to be used: it blurs what is fine."""
SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MIN_INSERTED, MIN_CASES = 0.9, 12
USUAL_SHARE = 0.8
"""Of the decision, where too few queries are left to learn what suffices."""


def choose_by_queries(
    context: FitContext,
    interpreter: ImageInterpreter,
    outputs: Outputs,
    predictions: Predictions,
    targets: Tensor,
    whole: NDArray[np.int64],
    n_queries: int,
) -> None:
    """Swap the best units of images with those of others that have another label at the target, and see what follows.

    Sharp or smoothed relevance: whichever does better when units are inserted and deleted. How much of it suffices: the
    least share that, inserted, brings the image's label along in nine of ten cases.
    """
    interpreter.evidence_share.fill_(USUAL_SHARE)
    n_pairs = min(MAX_PAIRS, n_queries // (4 * len(SIZES)))
    pairs = opposite_pairs(predictions.labels, targets, n_pairs, context.rng)
    if len(pairs) < MIN_PAIRS:
        return
    found = {}
    context.history.stage("checking by queries", 4 * len(SIZES) * len(pairs), unit="rows")
    for smooth in (False, True):
        tried = Swapped.of(context, interpreter, outputs, predictions, pairs, whole, smooth=smooth)
        if tried is None:
            return
        found[smooth] = tried
    is_smooth = found[True].mean - found[False].mean > MIN_GAIN
    interpreter.is_smooth.fill_(is_smooth)
    interpreter.evidence_share.fill_(found[is_smooth].share_that_suffices())
    context.history.record(stage="swaps", sharp=found[False].mean, smooth=found[True].mean)


def opposite_pairs(labels: Tensor, targets: Tensor, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Image, target, and another image with another label there: (pairs, 3)."""
    pairs = []
    for _ in range(4 * n):
        target = int(targets[int(rng.integers(len(targets)))])
        first = int(rng.integers(len(labels)))
        others = np.flatnonzero((labels[:, target] != labels[first, target]).numpy())
        if len(others):
            pairs.append((first, target, int(rng.choice(others))))
        if len(pairs) == n:
            break
    return np.array(pairs, dtype=np.int64).reshape(-1, 3)


class Swapped:
    """What became of swaps: (pairs, sizes)."""

    def __init__(self, inserted: NDArray[np.bool_], deleted: NDArray[np.bool_], held: NDArray[np.float64]) -> None:
        self.inserted, self.deleted, self.held = inserted, deleted, held
        """Whether the label came along, whether it was lost, and the share of the decision that was swapped."""

    @classmethod
    def of(
        cls,
        context: FitContext,
        interpreter: ImageInterpreter,
        outputs: Outputs,
        predictions: Predictions,
        pairs: NDArray[np.int64],
        whole: NDArray[np.int64],
        *,
        smooth: bool,
    ) -> Swapped | None:
        """Query the black box about both directions of every pair, at all sizes; None where the budget ends."""
        first, target, other = pairs.T
        relevance = relevance_of_units(context, interpreter, whole[first], torch.as_tensor(target), smooth=smooth)
        n_there = np.isfinite(relevance).sum(axis=1)
        order = np.argsort(-relevance, axis=1, kind="stable")
        rank = np.argsort(order, axis=1, kind="stable")
        shares = np.where(np.isfinite(relevance), relevance, 0.0)
        wanted = predictions.labels.numpy()[first, target]
        parts: list[list[NDArray[np.bool_]]] = [[], []]
        held = []
        for size in SIZES:
            best = rank < np.maximum(1, np.rint(size * n_there))[:, None]
            held.append((shares * best).sum(axis=1) / np.maximum(shares.sum(axis=1), 1e-12))
            for part, keep in zip(parts, (best, ~best), strict=True):
                replies = context.query(whole[first], keep, whole[other])
                if replies is None or len(replies) < len(pairs):
                    return None
                known = outputs.knows(replies.raw)
                after = np.full(len(pairs), -1, dtype=np.int64)
                after[known] = outputs.labels(replies.raw[known])[np.arange(known.sum()), target[known]]
                part.append(after == wanted)
        inserted, kept = (np.stack(part, axis=1) for part in parts)
        return cls(inserted, ~kept, np.stack(held, axis=1))

    @property
    def mean(self) -> float:
        return float((self.inserted.mean() + self.deleted.mean()) / 2)

    def share_that_suffices(self) -> float:
        for share in SHARES:
            near = np.abs(self.held - share) <= 0.1
            if near.sum() >= MIN_CASES and self.inserted[near].mean() >= MIN_INSERTED:
                return share
        return SHARES[-1]


def relevance_of_units(
    context: FitContext, interpreter: ImageInterpreter, index: NDArray[np.int64], targets: Tensor, *, smooth: bool
) -> NDArray[np.float64]:
    """Share of the decision in each unit of images: (images, units), -inf for units that an image does not have."""
    parts = []
    with torch.no_grad():
        for start in range(0, len(index), 32):
            batch = slice(start, start + 32)
            maps = interpreter.energy.maps(context.as_tensor(context.rows.samples(index[batch])))
            cells = interpreter(maps, targets[batch].unsqueeze(1), smooth).relevance
            units = PixelUnits.of(context.rows.groups.take(index[batch]), len(cells))
            parts.append(units.sums(interpreter.of_pixels(cells)).double().numpy())
    return np.concatenate(parts)
