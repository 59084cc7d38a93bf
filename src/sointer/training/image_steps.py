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
from sointer.energy.image import ImageEnergy, follows
from sointer.training.history import History
from sointer.training.image_swaps import Mixtures, Predictions, followed
from sointer.training.optim import Adam, Group
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
        generator: torch.Generator,
        history: History,
    ) -> None:
        self.energy, self.n_steps, self.rows, self.whole = energy, n_steps, rows, whole
        self.targets, self.generator, self.history = targets, generator, history
        self.n_done = 0
        places = [energy.near, energy.anywhere]
        others = [p for p in energy.parameters() if all(p is not place for place in places)]
        groups = [
            Group(others, config.learning_rate),
            Group(places, PLACES_SPEED * config.learning_rate, decays=False),
        ]
        self.optimiser = Adam(groups, max_norm=MAX_GRADIENT, weight_decay=config.weight_decay, beta2=SECOND_MOMENT)

    def step(self, mixtures: Mixtures) -> float:
        """One step; returns the loss."""
        self.energy.requires_grad_(True).train()
        chosen = torch.randperm(len(self.targets), generator=self.generator)[:N_TARGETS]
        loss, _, _ = self._loss(mixtures, self.targets[chosen])
        found = self.optimiser.step(loss, lr_scale(self.n_done, self.n_steps))
        self.n_done += 1
        self.history.step(loss=found)
        self.energy.requires_grad_(False).eval()
        return found

    def _loss(self, mixtures: Mixtures, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss; how much of which image is followed is predicted correctly; and how much there is to predict."""
        images = torch.from_numpy(mixtures.images)
        maps = self.energy.maps(self.rows(mixtures.images))
        share = self.energy.cell_shares(mixtures.kept_pixels(self.energy.image.n_pixels))
        signed = self.energy.evidence(maps, targets).signed
        log_odds = follows(signed, mixtures.first, mixtures.second, share)
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
