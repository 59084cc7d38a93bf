"""Saliency of the energy: how much each input column moves the evidence for a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import AtProjection, LayeredEnergy

GOLDEN = 0.6180339887498949
AT_ONCE = 2**18
"""How many contributions are held at a time: as many as stay in a processor's cache."""


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


def slopes_along(evidence: Callable[[Tensor], Tensor], start: Tensor, end: Tensor, n_steps: int) -> Tensor:
    """Gradients of evidence at points on straight paths: (steps, rows, width).

    Paths lead from `start`, (1, width) or (steps, 1, width), to each row of `end`, (rows, width).
    """
    with torch.enable_grad():
        path = start + path_positions(n_steps).view(n_steps, 1, 1) * (end - start)
        points = path.reshape(-1, path.shape[2]).detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(evidence(points).sum(), points)
    return gradient.view_as(path)


@torch.no_grad()
def path_saliency(
    evidence: Callable[[Tensor], Tensor],
    x: Tensor,
    references: Tensor,
    n_steps: int,
    *,
    project: Callable[[Tensor], Tensor] = lambda x: x,
    pull_back: Callable[[Tensor], Tensor] = lambda gradient: gradient,
    signed_only: bool = False,
) -> Saliency:
    """Gradient times difference from the reference along straight paths: its mean, and its mean size.

    With one reference the mean is the integrated gradient by the midpoint rule; with many, each step
    starts from another reference. Summed over columns it approaches evidence(x) - mean evidence(reference).
    The mean *size* does not let contributions of opposite sign on different paths cancel.

    Where evidence begins with a linear layer, `project` is that layer, `evidence` the rest, and `pull_back` takes
    gradients back through it: paths then stay straight behind the layer, which is passed once instead of at
    every step. `signed_only` saves the steps' own sizes where there is one reference; size is then that of the mean.
    """
    which = torch.arange(n_steps) % len(references)
    start = project(references)[which].unsqueeze(1)  # (steps, 1, width)
    gradient = slopes_along(evidence, start, project(x), n_steps)
    if signed_only and len(references) == 1:
        mean = pull_back(gradient.mean(dim=0)) * (x - references)
        return Saliency(mean, mean.abs())
    signed, size = torch.zeros_like(x), torch.zeros_like(x)
    n_at_once = max(1, AT_ONCE // x.numel())
    for some, slopes in zip(which.split(n_at_once), gradient.split(n_at_once), strict=True):
        difference = x.unsqueeze(0) - references[some].unsqueeze(1)  # (steps, rows, columns)
        contribution = pull_back(slopes.flatten(0, 1)).view_as(difference) * difference
        for of_step in contribution:
            signed += of_step
            size += of_step.abs_()
    return Saliency(signed / n_steps, size / n_steps)


def target_saliency(
    energy: LayeredEnergy,
    likelihood: Likelihood,
    x: Tensor,
    targets: Tensor,
    values: Tensor,
    references: Tensor,
    n_steps: int,
    *,
    signed_only: bool = False,
) -> Saliency:
    """Path saliency of the evidence that each row's target has the given value: (rows, columns)."""
    many_targets, many_values = targets.repeat(n_steps), values.repeat(n_steps)
    behind = AtProjection(energy)

    def evidence(points: Tensor) -> Tensor:
        return likelihood.target_evidence(behind, points, many_targets, many_values)

    def pull_back(gradient: Tensor) -> Tensor:
        return energy.pull_back(gradient, many_targets[: len(gradient)])

    saliency = path_saliency(
        evidence, x, references, n_steps, project=energy.project, pull_back=pull_back, signed_only=signed_only
    )
    return Saliency(saliency.signed * sign_of_evidence(energy, likelihood, references, targets, values), saliency.size)


def sign_of_evidence(
    energy: LayeredEnergy, likelihood: Likelihood, references: Tensor, targets: Tensor, values: Tensor
) -> Tensor | float:
    """1 where what moves a number up speaks for its value, -1 where what moves it down does: (rows, 1).

    Evidence *for* what the model said goes towards the predicted value, away from the usual one.
    """
    if not energy.space.is_continuous:
        return 1.0
    with torch.no_grad():
        usual = likelihood.log_marginals(energy, references).mean(dim=0)
    return torch.sign(values - usual[targets]).unsqueeze(1)
