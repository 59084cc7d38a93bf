"""Training steps for images: the energy on answered questions, the interpreter through the energy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.config import EnergyConfig, InterpreterConfig
from sointer.energy.image import ImageEnergy
from sointer.interpreter.image import ImageInterpreter
from sointer.interpreter.pixels import PixelUnits
from sointer.interpreter.relaxation import gumbel_noise
from sointer.training.history import History
from sointer.training.image_pool import ImagePool
from sointer.training.optim import Adam, Group
from sointer.training.quality import Quality, quality_of_labels

WARM_UP = 50
N_VALIDATIONS = 20
VALIDATION_CHUNK = 64
LAST_RATE = 0.05
STEPS_PER_REPORT = 50
WEIGHT_DECAY = 1e-4
SMALLEST_BATCH = 2
"""Small images become one pixel on the way, and of a single number there is nothing to normalise by."""
LARGEST_GRADIENT_OF_ENERGY = 10.0
LARGEST_GRADIENT = 1.0
"""Of the interpreter: now and then one is huge, and a step along it loses what was learned."""


class ImageEnergySteps:
    """Steps on a pool that grows: half of a batch from the newest answers, half from all."""

    def __init__(
        self,
        energy: ImageEnergy,
        pool: ImagePool,
        config: EnergyConfig,
        n_steps: int,
        generator: torch.Generator,
        history: History,
    ) -> None:
        self.energy, self.pool, self.config, self.n_steps = energy, pool, config, n_steps
        self.generator, self.history = generator, history
        self.n_done = 0
        self.newest = torch.empty(0, dtype=torch.long)
        group = Group(list(energy.parameters()), config.learning_rate)
        self.optimiser = Adam([group], max_norm=LARGEST_GRADIENT_OF_ENERGY, weight_decay=WEIGHT_DECAY)

    def run(self, n_steps: int, stage: str) -> None:
        """The next n_steps; afterwards the energy is ready to be read."""
        self.energy.requires_grad_(True).train()
        training = torch.nonzero(~self.pool.held_out[: len(self.pool)]).squeeze(1)
        every = max(1, self.n_steps // N_VALIDATIONS)
        for _ in range(n_steps):
            x, codes = self.pool.take(self._batch(training))
            loss = self.optimiser.step(self.energy.loss(x, codes).mean(), pace(self.n_done, self.n_steps))
            self.n_done += 1
            if self.n_done % every == 0:
                self._validate(stage, loss)
                self.energy.train()
            self.history.step(loss=loss)
        self.energy.requires_grad_(False).eval()

    def _batch(self, training: Tensor) -> Tensor:
        size = max(SMALLEST_BATCH, self.config.batch_size)
        pick = training[torch.randint(len(training), (size,), generator=self.generator)]
        if len(self.newest):
            half = size // 2
            pick[:half] = self.newest[torch.randint(len(self.newest), (half,), generator=self.generator)]
        return pick

    def _validate(self, stage: str, training_loss: float) -> None:
        quality = self.quality()
        self.history.record(
            stage=stage,
            step=self.n_done,
            training_loss=training_loss,
            held_out_loss=quality.loss,
            held_out_agreement=float(quality.agreement.mean()),
        )

    def _judged_on(self) -> Tensor:
        held_out = torch.nonzero(self.pool.held_out[: len(self.pool)]).squeeze(1)
        return held_out if len(held_out) else torch.arange(len(self.pool))  # a single answer cannot be held out

    def quality(self) -> Quality:
        """How well the energy predicts answers that it was not trained on."""
        self.energy.eval()
        losses, predicted, wanted = [], [], []
        with torch.no_grad():
            for index in self._judged_on().split(VALIDATION_CHUNK):
                x, codes = self.pool.take(index)
                losses.append(self.energy.loss(x, codes))
                predicted.append(self.energy.predict(x))
                wanted.append(codes)
        told, codes = torch.cat(predicted), torch.cat(wanted)
        # Over all pixels together: that some of them hardly ever change says nothing about the energy.
        return quality_of_labels(float(torch.cat(losses).mean()), told.reshape(-1, 1), codes.reshape(-1, 1))


@dataclass(frozen=True)
class Batch:
    """Images, their targets, and what the black box says of them."""

    index: NDArray[np.int64]
    """Which rows of the task's data they are."""
    x: Tensor
    absent: Tensor
    region: Tensor
    codes: Tensor
    distance: Tensor
    units: PixelUnits
    allowed: Tensor
    """Units that differ from what stands in for them."""
    sizes: Tensor
    """How many units to choose, (n, 1)."""

    def scores(self, interpreter: ImageInterpreter) -> Tensor:
        """Of units: (n, units)."""
        of_pixels = interpreter(self.x, self.absent, self.region, self.codes, self.distance)
        return self.units.means(of_pixels).masked_fill(~self.allowed, -math.inf)

    def reduced(self, share: Tensor) -> Tensor:
        """The images with shares of their units (n, units) kept."""
        kept = self.units.spread(share).repeat(1, self.x.shape[1] // self.region.shape[1])
        return self.absent + kept * (self.x - self.absent)


class ImageInterpreterSteps:
    """Steps down -log p_E(target's value | image reduced to the selection), the selection made by noisy scores."""

    def __init__(
        self,
        interpreter: ImageInterpreter,
        config: InterpreterConfig,
        n_steps: int,
        generator: torch.Generator,
        *,
        batch_size: int,
    ) -> None:
        self.interpreter, self.config, self.n_steps, self.generator = interpreter, config, n_steps, generator
        self.n_done = 0
        self.losses: list[float] = []
        """Mean losses of some steps each."""
        self._recent: list[float] = []
        self.own = [*interpreter.network.parameters(), interpreter.gains]
        # Gradients of fewer images are noisier, and steps along them must be shorter (the square root is Adam's rule).
        group = Group(self.own, config.learning_rate * math.sqrt(min(1.0, batch_size / config.batch_size)))
        self.optimiser = Adam([group], max_norm=LARGEST_GRADIENT, weight_decay=WEIGHT_DECAY)
        self._train(False)  # it may be asked to select before its first step

    def step(self, batch: Batch) -> float:
        """One step; returns the loss."""
        self._train(True)
        share = self.select(batch.scores(self.interpreter), batch.sizes)
        kept = batch.reduced(share)
        loss = -self.interpreter.energy.region_log_likelihood(kept, batch.region, batch.codes).mean()
        told = self.optimiser.step(loss, pace(self.n_done, self.n_steps))
        self._train(False)
        self.n_done += 1
        return self._noted(told)

    def _noted(self, loss: float) -> float:
        self._recent.append(loss)
        if len(self._recent) == STEPS_PER_REPORT:
            self.losses.append(round(sum(self._recent) / STEPS_PER_REPORT, 4))
            self._recent = []
        return loss

    def select(self, scores: Tensor, sizes: Tensor) -> Tensor:
        """The best units by noisy scores, as 0 and 1; gradients are those of a soft threshold."""
        tau = self.config.temperature
        noise = gumbel_noise(torch.rand(scores.shape, generator=self.generator))
        noisy = scores + tau * noise
        best = noisy.detach().sort(dim=1, descending=True).values
        last = best.shape[1] - 1
        threshold = (best.gather(1, (sizes - 1).clamp(0, last)) + best.gather(1, sizes.clamp(0, last))) / 2
        # Where an image has no more units to choose from than asked for, all of them are chosen.
        everything = (threshold == -math.inf) | (sizes > last)
        threshold = threshold.masked_fill(everything, torch.finfo(threshold.dtype).min / 4)
        hard = (noisy > threshold).float()
        soft = torch.sigmoid((noisy - threshold) / tau)
        return hard + (soft - soft.detach())

    def _train(self, on: bool) -> None:
        self.interpreter.network.train(on)
        for parameter in self.own:
            parameter.requires_grad_(on)


def pace(n_done: int, n_steps: int) -> float:
    """Up in a few steps, then down along a cosine: the share of the full learning rate."""
    warm = min(1.0, (n_done + 1) / min(WARM_UP, max(1, n_steps // 10)))
    return warm * (LAST_RATE + (1 - LAST_RATE) * 0.5 * (1 + math.cos(math.pi * min(n_done / n_steps, 1.0))))
