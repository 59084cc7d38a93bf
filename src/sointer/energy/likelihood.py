"""Which inference serves an output space, and what follows: marginals, loss, agreement, target scores."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sointer.config import EnergyConfig
from sointer.energy import descent, losses
from sointer.energy.enumeration import LOG_OF_NOTHING, exact_log_marginals, target_log_weights
from sointer.energy.inference import mean_field_log_marginals, target_log_odds
from sointer.energy.networks import Energy
from sointer.energy.paper_image import PaperImageEnergy
from sointer.energy.products import product
from sointer.energy.sparse import Inputs

# Its cost grows with outputs times coupling units per row; beyond this many, the joint likelihood alone is trained.
MOST_OUTPUTS_FOR_PSEUDO_LIKELIHOOD = 32


@dataclass(frozen=True)
class Likelihood:
    """p_E(y | x), exact while the outputs can be listed, by mean-field steps beyond that."""

    exact_limit: int = 4096
    n_steps: int = 6
    damping: float = 0.5
    is_joint: bool = True
    """Whether labels are learned by their joint likelihood; else, and where outputs are graded, by their marginals."""

    @classmethod
    def of(cls, config: EnergyConfig) -> Likelihood:
        return cls(config.exact_limit, config.mean_field_steps)

    def is_exact(self, energy: Energy) -> bool:
        return energy.space.n_configurations <= self.exact_limit

    def log_marginals(self, energy: Energy, x: Inputs) -> Tensor:
        """log p_E(y_i = c | x) for every label: (rows, labels)."""
        if energy.coupling is not None and self.is_exact(energy):
            return exact_log_marginals(energy, x)
        return mean_field_log_marginals(energy, x, n_steps=self.n_steps, damping=self.damping)

    def predict(self, energy: Energy | PaperImageEnergy, x: Inputs) -> Tensor:
        """The most likely class codes: (rows, outputs)."""
        if isinstance(energy, PaperImageEnergy):
            assert isinstance(x, Tensor)
            return descent.infer(energy, x)
        return energy.space.most_likely(self.log_marginals(energy, x))

    def means(self, energy: Energy, x: Inputs) -> Tensor:
        """E[y | x] of every encoded column: probabilities of labels (rows, columns)."""
        return product(self.log_marginals(energy, x).exp(), energy.space.label_columns)

    def loss(self, energy: Energy, x: Inputs, codes: Tensor, soft: Tensor | None = None) -> Tensor:
        """What energy training minimises, per row; `soft` are probabilities of labels (rows, labels), where known."""
        if soft is not None:
            return -(self.log_marginals(energy, x) * soft).sum(dim=1)
        joint = self.is_joint and not codes.dtype.is_floating_point and energy.coupling is not None
        if joint and self.is_exact(energy):
            return losses.negative_log_likelihood(energy, x, codes)
        marginal = -(self.log_marginals(energy, x) * energy.space.probabilities(codes)).sum(dim=1)
        if joint and energy.space.n_outputs <= MOST_OUTPUTS_FOR_PSEUDO_LIKELIHOOD:
            return marginal + losses.negative_pseudo_log_likelihood(energy, x, codes)
        return marginal

    def target_log_likelihood(
        self, energy: Energy | PaperImageEnergy, x: Inputs, targets: Tensor, values: Tensor
    ) -> Tensor:
        """log p_E(y_t = value | x): the target's marginal, so that credit flows through the other outputs."""
        if isinstance(energy, PaperImageEnergy):
            assert isinstance(x, Tensor)
            return descent.target_log_likelihood(energy, x, targets, values)
        of_value, of_others = self._target_log_weights(energy, x, targets, values)
        return of_value - torch.logaddexp(of_value, of_others)

    def target_evidence(self, energy: Energy, x: Inputs, targets: Tensor, values: Tensor) -> Tensor:
        """The log-odds of the value."""
        of_value, of_others = self._target_log_weights(energy, x, targets, values)
        return of_value - of_others

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
