"""Saliency of the energy: how much each input column moves the evidence for a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import Energy

GOLDEN = 0.6180339887498949


def path_positions(n_steps: int) -> Tensor:
    """Evenly spread positions in (0, 1), in an order that mixes early and late ones."""
    positions = (torch.arange(n_steps, dtype=torch.float64) * GOLDEN + 0.5) % 1.0
    return ((positions.argsort().argsort().double() + 0.5) / n_steps).float()


@dataclass(frozen=True)
class Saliency:
    """Two views of the same paths: evidence for or against, and how much was at stake either way."""

    signed: Tensor
    size: Tensor

    def of_units(self, unit_of_column: Tensor, n_units: int) -> Saliency:
        """Columns added up to the units they belong to: (rows, units)."""
        zeros = torch.zeros(len(self.signed), n_units)
        return Saliency(zeros.index_add(1, unit_of_column, self.signed), zeros.index_add(1, unit_of_column, self.size))


def path_saliency(evidence: Callable[[Tensor], Tensor], x: Tensor, references: Tensor, n_steps: int) -> Saliency:
    """Gradient times difference from the reference along straight paths: its mean, and its mean size.

    With one reference the mean is the integrated gradient by the midpoint rule; with many, each step
    starts from another reference. Summed over columns it approaches evidence(x) - mean evidence(reference).
    The mean *size* does not let contributions of opposite sign on different paths cancel.
    """
    positions = path_positions(n_steps).view(n_steps, 1, 1)
    start = references[torch.arange(n_steps) % len(references)].unsqueeze(1)  # (steps, 1, columns)
    difference = x.unsqueeze(0) - start
    with torch.enable_grad():
        points = (start + positions * difference).reshape(-1, x.shape[1]).detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(evidence(points).sum(), points)
    contribution = gradient.view_as(difference) * difference
    return Saliency(contribution.mean(dim=0), contribution.abs().mean(dim=0))


def target_saliency(
    energy: Energy,
    likelihood: Likelihood,
    x: Tensor,
    targets: Tensor,
    values: Tensor,
    references: Tensor,
    n_steps: int,
) -> Saliency:
    """Path saliency of the evidence that each row's target has the given value: (rows, columns)."""
    many_targets, many_values = targets.repeat(n_steps), values.repeat(n_steps)

    def evidence(points: Tensor) -> Tensor:
        return likelihood.target_evidence(energy, points, many_targets, many_values)

    saliency = path_saliency(evidence, x, references, n_steps)
    if not energy.space.is_continuous:
        return saliency
    # Evidence *for* what the model said: towards the predicted value, away from the usual one.
    with torch.no_grad():
        usual = likelihood.log_marginals(energy, references).mean(dim=0)
    direction = torch.sign(values - usual[targets]).unsqueeze(1)
    return Saliency(saliency.signed * direction, saliency.size)
