"""The losses of energy and interpreter: one pure function per equation of the paper, and the likelihoods."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sointer.energy.enumeration import energy_table
from sointer.energy.inference import conditional_log_probabilities
from sointer.energy.networks import Energy
from sointer.energy.sparse import Inputs


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
