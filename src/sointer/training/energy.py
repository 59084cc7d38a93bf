"""Training an energy on queries: minibatch steps, a decaying rate, input sparsity, held-out quality."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.config import POOR_SKILL, EnergyConfig
from sointer.data.outputs import Outputs
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import TargetGivenOthers, TrainableEnergy
from sointer.energy.space import InputScaling
from sointer.training.context import FitContext, InputBuffer, QueryPool
from sointer.training.optim import Adam, Group, cosine, state_of

MIN_UNUSUAL = 5


class Quality(NamedTuple):
    """Of predictions on held-out queries."""

    loss: float
    agreement: NDArray[np.float64]
    """(outputs,) share of outputs predicted correctly; of numbers, within the tolerance."""
    skill: NDArray[np.float64]
    """(outputs,) share of the error of always guessing the usual value that is avoided; NaN if all outputs are alike.

    Of graded outputs this is the coefficient of determination, R squared."""
    poor: list[int]
    """Outputs of which little was learned."""
    by_rules: float = math.nan
    """Of images: the agreement of the best simple rule, from which skill counts."""
    swapped: float = math.nan
    """Of images: in how many swaps the label went with the best pixels; NaN if none could be tried."""

    def mean_skill(self) -> float:
        """Over outputs that vary; 1 if none does."""
        known = self.skill[~np.isnan(self.skill)]
        return float(known.mean()) if len(known) else 1.0


def quality_of(loss: float, found: Tensor, codes: Tensor, outputs: Outputs) -> Quality:
    """Compare codes that the energy expects (rows, outputs) with those of the black box.

    Agreement alone flatters: where a label is set on 1 % of rows, guessing "no" agrees on 99 %. Numbers count in their
    own unit, outliers as the outermost quantiles.
    """
    a, b = found.double().numpy(), codes.double().numpy()
    agreement, skill = np.empty(a.shape[1]), np.empty(a.shape[1])
    poor = []
    for j, kind in enumerate(outputs.kinds):
        own, said, curve, graded = a[:, j], b[:, j], outputs.quantiles[j], bool(outputs.graded[j])
        if curve is not None:
            own, said = curve.decode(own), curve.decode(said)
            agreement[j] = (np.abs(own - said) <= float(outputs.tolerance or 0.0) * curve.deviation).mean()
        else:
            agreement[j] = ((own > 0.5) == (said > 0.5)).mean() if kind == "probability" else (own == said).mean()
        usual = said.mean() if graded else np.bincount(said.astype(np.int64)).argmax()
        by_guessing, error = _error(said, usual, graded), _error(said, own, graded)
        skill[j] = 1 - error / by_guessing if by_guessing > 0 else np.nan
        if (said != usual).sum() >= MIN_UNUSUAL and error > (1 - POOR_SKILL) * by_guessing:
            poor.append(j)
    return Quality(loss, agreement, skill, poor)


def quality_of_labels(loss: float, found: Tensor, codes: Tensor) -> Quality:
    """The same where all outputs are labels (rows, outputs)."""
    usual = codes.mode(dim=0).values
    by_guessing, error = ((guess != codes).double().mean(dim=0).numpy() for guess in (usual, found))
    with np.errstate(divide="ignore", invalid="ignore"):
        skill = np.where(by_guessing > 0, 1 - error / by_guessing, np.nan)
    return Quality(loss, 1 - error, skill, [])


def _error(said: NDArray[np.float64], guess: Any, graded: bool) -> float:
    return float(((said - guess) ** 2).mean() if graded else (said != guess).mean())


SPARSITY_WARM_UP = 0.25
N_VALIDATIONS = 60
VALIDATION_CHUNK = 1024
MAX_VALIDATED = 2048
"""Of the held-out queries, so many are looked at while training goes on; at its end all of them are."""
MAX_GRADIENT = 10.0


def fit_scaling(energy: TrainableEnergy, data: Any) -> None:
    """One scale for all columns of sparse rows: their entries get a mean square of 1."""
    scaling = energy.encoding
    assert isinstance(scaling, InputScaling)
    size = np.sqrt(np.square(data.data).sum() / max(np.count_nonzero(data.data), 1)) or 1.0
    scaling.scale.fill_(float(1.0 / size))


def shrink_columns(weights: list[Tensor], amount: float, owner: Tensor | None = None) -> None:
    """Draw the weights of each input column towards zero by `amount` in length (a group-lasso step).

    Columns with the same `owner` are drawn together.
    """
    with torch.no_grad():
        for weight in weights:
            length = weight.norm(dim=-2, keepdim=True)
            if owner is not None:
                square = length.new_zeros(*length.shape[:-1], int(owner.max()) + 1)
                length = square.index_add_(-1, owner, length.square()).sqrt()[..., owner]
            weight.mul_((1.0 - amount / length.clamp_min(1e-12)).clamp_min(0.0))


class EnergyTrainer:
    """Runs a fixed number of steps, in as many calls as the recipe likes, under one learning-rate schedule."""

    def __init__(
        self,
        energy: TrainableEnergy,
        likelihood: Likelihood,
        pairs: QueryPool,
        config: EnergyConfig,
        n_steps: int,
        context: FitContext,
        unit_of_column: Tensor | None = None,
    ) -> None:
        self.energy, self.likelihood, self.pairs = energy, likelihood, pairs
        self._owner = None if unit_of_column is None else unit_of_column[energy.encoding.column]
        self.config, self.n_steps = config, n_steps
        self.generator, self.history, self.snapshots = context.generator, context.history, context.snapshots
        self.n_done = 0
        self.optimiser = self._optimiser()

    def _optimiser(self) -> Adam:
        rate, speed = self.config.learning_rate, self.config.coupling_speed
        own: list[Tensor] = []
        coupling: list[Tensor] = []
        for name, parameter in self.energy.named_parameters():
            (coupling if name == "b" or name.startswith("B.") else own).append(parameter)
        groups = [Group(own, rate), Group(coupling, rate * speed)]
        used = [group for group in groups if group.parameters]
        return Adam(used, max_norm=MAX_GRADIENT, weight_decay=self.config.weight_decay)

    def run_until(self, share: float, round_name: str) -> None:
        """Take the steps up to this share of the schedule, on the pairs there are now."""
        training = torch.nonzero(~self.pairs.held_out).squeeze(1)
        batch_size = min(self.config.batch_size, len(training))
        order, position = training[:0], 0
        every, n_until = max(1, self.n_steps // N_VALIDATIONS), int(share * self.n_steps)
        stage = self.snapshots.stage(state_of(self.energy, self.optimiser), n_until, self.history)
        while self.n_done < n_until:
            if position + batch_size > len(order):
                order = training[torch.randperm(len(training), generator=self.generator)]
                position = 0
            batch = order[position : position + batch_size]
            position += batch_size
            if self.n_done < stage.n_done:
                self.n_done += 1
                self.history.step()
                continue
            loss = self._step(batch)
            self.n_done += 1
            if self.n_done % every == 0 or self.n_done == self.n_steps:
                self._validate(round_name, loss)
            self.history.step(loss=loss)
            stage.keep(self.n_done)

    def _step(self, batch: Tensor) -> float:
        progress = self.n_done / self.n_steps
        lr_scale = cosine(progress)
        pairs = self.pairs
        x, codes, soft = pairs.points.take(batch), pairs.codes_of(batch), pairs.soft_of(batch)
        loss = self.likelihood.loss(self.energy, x, codes, soft).mean()
        found = self.optimiser.step(loss, lr_scale)
        # Interactions between features must be found before weak columns may be shrunk away.
        if self.config.input_sparsity and progress > SPARSITY_WARM_UP:
            amount = lr_scale * self.config.learning_rate * self.config.input_sparsity
            shrink_columns(self.energy.input_weights, amount, self._owner)
        return found

    def _validate(self, round_name: str, training_loss: float) -> None:
        quality = self.held_out_quality(MAX_VALIDATED if self.n_done < self.n_steps else None)
        self.history.record(
            stage=round_name,
            step=self.n_done,
            training_loss=training_loss,
            held_out_loss=quality.loss,
            held_out_agreement=float(quality.agreement.mean()),
        )

    def held_out_quality(self, most: int | None = None) -> Quality:
        """How well the energy predicts queries that it was not trained on, or so many of them."""
        index = torch.nonzero(self.pairs.held_out).squeeze(1)
        if most is not None and len(index) > most:  # of all kinds, which come one after the other
            index = index[torch.arange(most) * len(index) // most]
        codes = self.pairs.codes_of(index)
        losses, means = [], []
        with torch.no_grad():
            for chunk, codes_of_chunk in zip(index.split(VALIDATION_CHUNK), codes.split(VALIDATION_CHUNK), strict=True):
                x = self.pairs.points.take(chunk)
                losses.append(self.likelihood.loss(self.energy, x, codes_of_chunk, self.pairs.soft_of(chunk)))
                means.append(self.likelihood.log_marginals(self.energy, x))
        found = self.energy.space.codes(torch.cat(means), self.pairs.outputs.graded)
        return quality_of(float(torch.cat(losses).mean()), found, codes, self.pairs.outputs)

    def finish(self) -> Quality:
        """How good the energy is at last, which is not changed any more.

        Earlier states are not gone back to, even if they did better on held-out queries: with few queries those are a
        poor judge, and features that do not matter are still being weeded out when the held-out loss is least.
        """
        self.energy.requires_grad_(False)
        return self.held_out_quality()


N_STEPS = 1500
BATCH_SIZE = 256
LEARNING_RATE = 1e-2
# How strongly features and other outputs are drawn to zero, in learning rates per step: features must pay more.
PRICE_OF_FEATURES, PRICE_OF_OUTPUTS = 2.0, 1.0


def learn_target(
    net: TargetGivenOthers, points: InputBuffer, y: Tensor, values: Tensor, seed: int
) -> TargetGivenOthers:
    """Train on points, their encoded outputs (rows, columns) and the target's values (rows,)."""
    generator = torch.Generator().manual_seed(seed)
    parameters = [p for name, p in net.named_parameters() if not name.startswith("encoding.")]
    optimiser = Adam([Group(parameters, LEARNING_RATE)])
    for step in range(N_STEPS):
        lr_scale = 0.5 * (1.0 + math.cos(math.pi * step / N_STEPS))
        batch = torch.randint(len(points), (BATCH_SIZE,), generator=generator)
        optimiser.step(net.loss(net.project(points.take(batch)), y[batch], values[batch]), lr_scale)
        if step > SPARSITY_WARM_UP * N_STEPS:
            shrink_columns([net.of_features.weight], lr_scale * LEARNING_RATE * PRICE_OF_FEATURES, net.encoding.column)
            shrink_columns([net.of_outputs.weight], lr_scale * LEARNING_RATE * PRICE_OF_OUTPUTS)
    return net.eval().requires_grad_(False)
