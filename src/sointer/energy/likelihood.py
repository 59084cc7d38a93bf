"""Which inference serves an output space, and what follows: marginals, loss, agreement, target scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sointer.config import EnergyConfig
from sointer.energy import likelihood as losses
from sointer.energy import paper
from sointer.energy.inference import (
    LOG_OF_NOTHING,
    MIN_PROBABILITY,
    conditional_log_probabilities,
    energy_table,
    exact_log_marginals,
    mean_field_log_marginals,
    rows_at_once,
    slope_at,
    target_log_odds,
    target_log_weights,
)
from sointer.energy.networks import Energy
from sointer.energy.paper import PaperImageEnergy
from sointer.energy.sparse import Inputs, product


def target_substituted(y_black_box: Tensor, y_perturbed: Tensor, target: int) -> Tensor:
    """[y_t^sb, y~_{-t}]: the perturbed output with its target element put back (section 2.1)."""
    codes = y_perturbed.clone()
    codes[:, target] = y_black_box[:, target]
    return codes


def penalty(energy_substituted: Tensor, energy_perturbed: Tensor) -> Tensor:
    """Eq. 6: E(x~, [y_t^sb, y~_{-t}]) - E(x~, y~)."""
    return energy_substituted - energy_perturbed


def interpreter_hinge(energy_substituted: Tensor, energy_perturbed: Tensor) -> Tensor:
    """Eq. 9: max{0, eq. 6}."""
    return penalty(energy_substituted, energy_perturbed).clamp_min(0.0)


def energy_hinge(energy_perturbed: Tensor, energy_other: Tensor, margin: float) -> Tensor:
    """Eq. 10: max{0, E(x~, y~) - E(x~, y') + m'}."""
    return (energy_perturbed - energy_other + margin).clamp_min(0.0)


def value_network_loss(energy_other: Tensor, value: Tensor) -> Tensor:
    """Appendix B: cross-entropy between v(y^sb, y') and sigmoid(-E(x, y'))."""
    return F.binary_cross_entropy_with_logits(-energy_other, value, reduction="none")


def example_f1(codes_a: Tensor, codes_b: Tensor) -> Tensor:
    """The value v of appendix B for binary vectors: F1 between two sets of labels, 1 for two empty sets."""
    a, b = codes_a.bool(), codes_b.bool()
    size = a.sum(dim=1) + b.sum(dim=1)
    both = (a & b).sum(dim=1)
    return torch.where(size == 0, 1.0, 2.0 * both / size.clamp_min(1))


def matching_share(codes_a: Tensor, codes_b: Tensor) -> Tensor:
    """The value v for categorical vectors: the share of outputs that agree."""
    return (codes_a == codes_b).float().mean(dim=1)


def mask_overlap(codes_a: Tensor, codes_b: Tensor) -> Tensor:
    """The value v for masks: intersection over union of what is not background (code 0), 1 for two empty masks.

    With more than two classes, pixels intersect where both masks give the same class.
    """
    either = ((codes_a > 0) | (codes_b > 0)).sum(dim=1)
    both = ((codes_a > 0) & (codes_a == codes_b)).sum(dim=1)
    return torch.where(either == 0, 1.0, both / either.clamp_min(1))


def negative_log_likelihood(energy: Energy, x: Inputs, codes: Tensor) -> Tensor:
    """-log p_E(y | x), exact over all configurations."""
    index = energy.space.configuration_index(codes)
    return F.cross_entropy(-energy_table(energy, energy.unary(x)), index, reduction="none")


def negative_pseudo_log_likelihood(energy: Energy, x: Inputs, codes: Tensor) -> Tensor:
    """-sum_i log p_E(y_i | y_{-i}, x)."""
    q = energy.space.one_hot(codes)
    return -(conditional_log_probabilities(energy, x, q) * q).sum(dim=1)


# Its cost grows with outputs times coupling units per row; beyond this many, the joint likelihood alone is trained.
MAX_OUTPUTS_FOR_PSEUDO_LIKELIHOOD = 32


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
            return paper.infer(energy, x)
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
        if joint and energy.space.n_outputs <= MAX_OUTPUTS_FOR_PSEUDO_LIKELIHOOD:
            return marginal + losses.negative_pseudo_log_likelihood(energy, x, codes)
        return marginal

    def target_log_likelihood(
        self, energy: Energy | PaperImageEnergy, x: Inputs, targets: Tensor, values: Tensor
    ) -> Tensor:
        """log p_E(y_t = value | x): the target's marginal, so that credit flows through the other outputs."""
        if isinstance(energy, PaperImageEnergy):
            assert isinstance(x, Tensor)
            return paper.target_log_likelihood(energy, x, targets, values)
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


def outputs_given(
    energy: Energy, likelihood: Likelihood, unary: Tensor, codes: Tensor, held: Tensor, graded: NDArray[np.bool_]
) -> Tensor:
    """The outputs that are expected while those in `held` (outputs,) keep their `codes`: (rows, outputs), as codes.

    `unary` is energy.unary(x). Exact where the outputs can be listed, else by the mean-field steps that the energy was
    trained through.
    """
    if energy.coupling is None or not likelihood.is_exact(energy):
        log_p = _mean_field(energy, likelihood, unary, codes, held)
    else:
        n_rows = rows_at_once(energy.space)
        parts = zip(unary.split(n_rows), codes.split(n_rows), strict=True)
        log_p = torch.cat([_exact(energy, *part, held) for part in parts])
    return torch.where(held, codes, energy.space.codes(log_p, graded).to(codes.dtype))


def _exact(energy: Energy, unary: Tensor, codes: Tensor, held: Tensor) -> Tensor:
    """Log-probabilities of labels: the free outputs given the held ones, these as probable as their codes say."""
    space = energy.space
    log_weight = -energy_table(energy, unary)
    log_weight = log_weight - log_weight.amax(dim=1, keepdim=True)
    # Configurations that agree in the held outputs; all of them where none is held.
    place = space.configuration_index(space.configurations * held)
    group = place.unique(return_inverse=True)[1]
    total = torch.zeros(len(unary), int(group.max()) + 1).index_add_(1, group, log_weight.exp())
    own = held[space.label_output]
    known = space.probabilities(codes).clamp_min(MIN_PROBABILITY).log()[:, own]
    given = log_weight - total.clamp_min(MIN_PROBABILITY).log()[:, group]
    weight = (given + known @ space.configuration_labels[:, own].T).clamp_min(-80.0).exp()
    labels = weight @ space.configuration_labels / weight.sum(dim=1, keepdim=True)
    return labels.clamp_min(MIN_PROBABILITY).log()


def _mean_field(energy: Energy, likelihood: Likelihood, unary: Tensor, codes: Tensor, held: Tensor) -> Tensor:
    space = energy.space
    labels, known, clamped = space.label_columns, space.encode(codes), held[space.column_output]
    logits = -unary @ labels.T
    for _ in range(likelihood.n_steps if energy.coupling is not None else 0):
        mean = space.normalise(logits).exp() @ labels
        update = -slope_at(energy, unary, torch.where(clamped, known, mean)) @ labels.T
        logits = likelihood.damping * logits + (1 - likelihood.damping) * update
    return space.normalise(logits)
