"""Training an energy on answered queries: minibatch steps, a decaying rate, input sparsity."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sointer.config import EnergyConfig
from sointer.containers import is_sparse
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import InputScaling, SeparateEnergy, TrainableEnergy, VectorEnergy
from sointer.energy.space import OutputSpace
from sointer.randomness import seeded
from sointer.training.optim import Adam, Group
from sointer.training.history import History
from sointer.training.task import Pairs, is_mostly_zero

SPARSITY_WARM_UP = 0.25
# A layer of all outputs' networks together: many outputs must do with narrower ones.
MOST_UNITS_ALONE, FEWEST_UNITS_ALONE = 2000, 16
N_VALIDATIONS = 60
VALIDATION_CHUNK = 1024
MOST_VALIDATED = 2048
"""Of the held-out answers, so many are looked at while training goes on; at its end all of them are."""
LARGEST_GRADIENT = 10.0
POOR_SKILL = 0.5
FEWEST_UNUSUAL = 5


def build_energy(
    n_columns: int, space: OutputSpace, config: EnergyConfig, *, structured: bool, seed: int
) -> TrainableEnergy:
    """A fresh energy; the global random state of torch is left as it was."""
    with seeded(seed):
        if structured:
            return VectorEnergy(n_columns, space, hidden=config.hidden, coupling_units=config.coupling_units)
        most = max(FEWEST_UNITS_ALONE, MOST_UNITS_ALONE // space.n_outputs)
        return SeparateEnergy(n_columns, space, hidden=tuple(min(width, most) for width in config.hidden))


def fit_scaling(scaling: InputScaling, data: Any) -> None:
    """Scale columns to unit spread; where most entries are zero, one scale serves all of them."""
    if is_mostly_zero(data):
        values = data.data if is_sparse(data) else data
        size = np.sqrt(np.square(values).sum() / max(np.count_nonzero(values), 1)) or 1.0
        scaling.scale.fill_(float(1.0 / size))
        return
    # Rounding gives a column of equal numbers a tiny spread, which must not become a huge scale.
    spread, size = data.std(axis=0), np.abs(data).max(axis=0)
    scaling.scale.copy_(torch.from_numpy(1.0 / np.where(spread > 1e-9 * size, spread, 1.0)))


def shrink_columns(weights: list[Tensor], amount: float) -> None:
    """Draw the weights of each input column towards zero by `amount` in length (a group-lasso step)."""
    with torch.no_grad():
        for weight in weights:
            length = weight.norm(dim=-2, keepdim=True).clamp_min(1e-12)
            weight.mul_((1.0 - amount / length).clamp_min(0.0))


class Quality(NamedTuple):
    """Of predictions on held-out answers."""

    loss: float
    agreement: float
    skill: float
    poorly_told: list[int]
    """Outputs of which little was learned."""


class EnergyTrainer:
    """Runs a fixed number of steps, in as many calls as the recipe likes, under one learning-rate schedule."""

    def __init__(
        self,
        energy: TrainableEnergy,
        likelihood: Likelihood,
        pairs: Pairs,
        config: EnergyConfig,
        n_steps: int,
        generator: torch.Generator,
        history: History,
    ) -> None:
        self.energy, self.likelihood, self.pairs = energy, likelihood, pairs
        self.config, self.n_steps = config, n_steps
        self.generator, self.history = generator, history
        self.n_done = 0
        self.optimiser = self._optimiser()

    def _optimiser(self) -> Adam:
        rate, speed = self.config.learning_rate, self.config.coupling_speed
        own: list[Tensor] = []
        coupling: list[Tensor] = []
        for name, parameter in self.energy.named_parameters():
            (coupling if name == "b" or name.startswith("B.") else own).append(parameter)
        groups = [Group(own, rate), Group(coupling, rate * speed)]
        return Adam([group for group in groups if group.parameters], max_norm=LARGEST_GRADIENT)

    def run_until(self, share: float, round_name: str) -> None:
        """Take the steps up to this share of the schedule, on the pairs there are now."""
        training = torch.nonzero(~self.pairs.held_out).squeeze(1)
        batch_size = min(self.config.batch_size, len(training))
        order, position = training[:0], 0
        every = max(1, self.n_steps // N_VALIDATIONS)
        while self.n_done < int(share * self.n_steps):
            if position + batch_size > len(order):
                order = training[torch.randperm(len(training), generator=self.generator)]
                position = 0
            loss = self._step(order[position : position + batch_size])
            position += batch_size
            self.n_done += 1
            if self.n_done % every == 0 or self.n_done == self.n_steps:
                self._validate(round_name, loss)
            self.history.step(loss=loss)

    def _step(self, batch: Tensor) -> float:
        progress = self.n_done / self.n_steps
        pace = 0.5 * (1.0 + math.cos(math.pi * progress))
        loss = self.likelihood.loss(self.energy, self.pairs.points.take(batch), self.pairs.codes_of(batch)).mean()
        told = self.optimiser.step(loss, pace)
        # Interactions between features must be found before weak columns may be shrunk away.
        if self.config.input_sparsity and progress > SPARSITY_WARM_UP:
            shrink_columns(self.energy.input_weights, pace * self.config.learning_rate * self.config.input_sparsity)
        return told

    def _validate(self, round_name: str, training_loss: float) -> None:
        quality = self.held_out_quality(MOST_VALIDATED if self.n_done < self.n_steps else None)
        self.history.record(
            stage=round_name,
            step=self.n_done,
            training_loss=training_loss,
            held_out_loss=quality.loss,
            held_out_agreement=quality.agreement,
        )

    def held_out_quality(self, most: int | None = None) -> Quality:
        """How well the energy predicts answers that it was not trained on, or so many of them."""
        index = torch.nonzero(self.pairs.held_out).squeeze(1)
        if most is not None and len(index) > most:  # of all kinds, which come one after the other
            index = index[torch.arange(most) * len(index) // most]
        codes = self.pairs.codes_of(index)
        losses, predictions = [], []
        with torch.no_grad():
            for chunk, codes_of_chunk in zip(index.split(VALIDATION_CHUNK), codes.split(VALIDATION_CHUNK), strict=True):
                x = self.pairs.points.take(chunk)
                losses.append(self.likelihood.loss(self.energy, x, codes_of_chunk))
                predictions.append(self.likelihood.predict(self.energy, x))
        loss, predicted = float(torch.cat(losses).mean()), torch.cat(predictions)
        if self.energy.space.is_continuous:
            tolerance = float(self.pairs.outputs.tolerance or 0.0)
            agreement = float(((predicted - codes).abs() <= tolerance).float().mean())
            usual = codes.mean(dim=0)
            poor = poorly_told(predicted, codes, usual, squared=True)
            return Quality(loss, agreement, skill(predicted, codes, usual, squared=True), poor)
        agreement, usual = float((predicted == codes).float().mean()), codes.mode(dim=0).values
        poor = poorly_told(predicted, codes, usual, squared=False)
        return Quality(loss, agreement, skill(predicted, codes, usual, squared=False), poor)

    def finish(self) -> Quality:
        """How good the energy is at last, which is not changed any more.

        Earlier states are not gone back to, even if they did better on held-out answers: with few answers those are a
        poor judge, and features that do not matter are still being weeded out when the held-out loss is least.
        """
        self.energy.requires_grad_(False)
        return self.held_out_quality()


def skill(predicted: Tensor, codes: Tensor, usual: Tensor, *, squared: bool) -> float:
    """How much of the error of always guessing the usual value is avoided, averaged over outputs that vary.

    Agreement alone flatters: where a label is set on 1 % of rows, guessing "no" agrees on 99 %.
    """
    by_guessing, own = _errors(usual.expand_as(codes), codes, squared), _errors(predicted, codes, squared)
    varies = by_guessing > 0
    return float((1 - own[varies] / by_guessing[varies]).mean()) if varies.any() else 1.0


def poorly_told(predicted: Tensor, codes: Tensor, usual: Tensor, *, squared: bool) -> list[int]:
    """Outputs with less than half of the usual value's error avoided, where enough answers differ from it to say so."""
    by_guessing, own = _errors(usual.expand_as(codes), codes, squared), _errors(predicted, codes, squared)
    enough = (codes != usual).sum(dim=0) >= FEWEST_UNUSUAL
    return torch.nonzero(enough & (own > (1 - POOR_SKILL) * by_guessing)).squeeze(1).tolist()


def _errors(guess: Tensor, codes: Tensor, squared: bool) -> Tensor:
    return (guess - codes).square().mean(dim=0) if squared else (guess != codes).float().mean(dim=0)
