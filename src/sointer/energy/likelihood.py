"""Which inference serves an output space, and what follows: marginals, loss, agreement, target scores."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sointer.config import EnergyConfig
from sointer.energy import descent, losses
from sointer.energy.enumeration import LOG_OF_NOTHING, exact_log_marginals, target_log_weights
from sointer.energy.inference import mean_field_log_marginals, mean_field_means, target_log_odds
from sointer.energy.networks import Energy
from sointer.energy.paper_image import PaperImageEnergy
from sointer.energy.sparse import Inputs

# Its cost grows with outputs times coupling units per row; beyond this many, the joint likelihood alone is trained.
MOST_OUTPUTS_FOR_PSEUDO_LIKELIHOOD = 32


@dataclass(frozen=True)
class Likelihood:
    """p_E(y | x), exact while the outputs can be listed, by mean-field steps beyond that."""

    exact_limit: int = 4096
    n_steps: int = 6
    damping: float = 0.5

    @classmethod
    def of(cls, config: EnergyConfig) -> Likelihood:
        return cls(config.exact_limit, config.mean_field_steps)

    def is_exact(self, energy: Energy) -> bool:
        return energy.space.n_configurations <= self.exact_limit

    def log_marginals(self, energy: Energy, x: Inputs) -> Tensor:
        """log p_E(y_i = c | x) for every label; for continuous outputs their means instead."""
        if energy.space.is_continuous:
            return mean_field_means(energy, x, n_steps=self.n_steps, damping=self.damping)
        if energy.coupling is not None and self.is_exact(energy):
            return exact_log_marginals(energy, x)
        return mean_field_log_marginals(energy, x, n_steps=self.n_steps, damping=self.damping)

    def predict(self, energy: Energy | PaperImageEnergy, x: Inputs) -> Tensor:
        """The most likely class codes, or the means of continuous outputs: (rows, outputs)."""
        if isinstance(energy, PaperImageEnergy):
            assert isinstance(x, Tensor)
            return descent.infer(energy, x)
        marginals = self.log_marginals(energy, x)
        return marginals if energy.space.is_continuous else energy.space.most_likely(marginals)

    def loss(self, energy: Energy, x: Inputs, codes: Tensor) -> Tensor:
        """What energy training minimises, per row."""
        if energy.space.is_continuous:
            return losses.squared_errors(energy, x, codes, self.n_steps, self.damping)
        if energy.coupling is None:
            return losses.negative_pseudo_log_likelihood(energy, x, codes)
        if self.is_exact(energy):
            return losses.negative_log_likelihood(energy, x, codes)
        joint = losses.negative_mean_field_likelihood(energy, x, codes, self.n_steps, self.damping)
        if energy.space.n_outputs > MOST_OUTPUTS_FOR_PSEUDO_LIKELIHOOD:
            return joint
        return joint + losses.negative_pseudo_log_likelihood(energy, x, codes)

    def target_log_likelihood(
        self, energy: Energy | PaperImageEnergy, x: Inputs, targets: Tensor, values: Tensor
    ) -> Tensor:
        """log p_E(y_t = value | x): the target's marginal, so that credit flows through the other outputs."""
        if isinstance(energy, PaperImageEnergy):
            assert isinstance(x, Tensor)
            return descent.target_log_likelihood(energy, x, targets, values)
        if not energy.space.is_continuous:
            of_value, of_others = self._target_log_weights(energy, x, targets, values)
            return of_value - torch.logaddexp(of_value, of_others)
        mean = self.log_marginals(energy, x).gather(1, targets.unsqueeze(1)).squeeze(1)
        return -0.5 * (mean - values).square()

    def target_evidence(self, energy: Energy, x: Inputs, targets: Tensor, values: Tensor) -> Tensor:
        """What saliency differentiates: the log-odds of the value, or the mean of a continuous target."""
        if not energy.space.is_continuous:
            of_value, of_others = self._target_log_weights(energy, x, targets, values)
            return of_value - of_others
        return self.log_marginals(energy, x).gather(1, targets.unsqueeze(1)).squeeze(1)

    def _target_log_weights(self, energy: Energy, x: Inputs, targets: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Log of the unnormalised weight of the value, and of all other values of the target.

        Both stay logarithms throughout, so that the gradient lives on however certain the energy is.
        """
        space = energy.space
        label = space.first_label[targets] + values
        if energy.coupling is not None and self.is_exact(energy):
            return target_log_weights(energy, x, label)
        if space.is_binary:
            log_odds = target_log_odds(energy, energy.unary(x), targets, n_steps=self.n_steps, damping=self.damping)
            of_value = log_odds * (2 * values - 1)
            return F.logsigmoid(of_value), F.logsigmoid(-of_value)
        marginals = self.log_marginals(energy, x)
        same_output = space.label_output.unsqueeze(0) == targets.unsqueeze(1)
        others = same_output.scatter(1, label.unsqueeze(1), False)
        return (
            marginals.gather(1, label.unsqueeze(1)).squeeze(1),
            torch.logsumexp(marginals.masked_fill(~others, LOG_OF_NOTHING), dim=1),
        )
