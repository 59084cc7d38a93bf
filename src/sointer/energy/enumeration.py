"""Exact inference: every configuration of the outputs is listed, and its energy looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sointer.energy.networks import Energy
from sointer.energy.products import product, product_and
from sointer.energy.space import OutputSpace
from sointer.energy.sparse import Inputs

SMALLEST_PROBABILITY = 1e-30
LOG_OF_NOTHING = -1e30
LEAST_EXPONENT = -80.0
"""Of what is less, exp is too small for ordinary floats, takes a hundred times as long, and does not count anyway."""
TABLE_ENTRIES = 2**17
"""Tables that fit the processor's cache are several times faster than one large table."""


def rows_at_once(space: OutputSpace) -> int:
    return max(16, TABLE_ENTRIES // len(space.configurations))


def coupling_energies(energy: Energy) -> Tensor:
    """The part of E(x, y) that does not depend on x, for every configuration."""
    y = energy.space.configuration_columns
    if energy.coupling is None:
        return torch.zeros(len(y))
    weight, offset, b = energy.coupling
    return F.softplus(y @ weight.T + offset) @ b


def energy_table(energy: Energy, unary: Tensor) -> Tensor:
    """E(x, y) for every row and every configuration of the outputs: (rows, configurations)."""
    return product_and(coupling_energies(energy), unary, energy.space.configuration_columns.T)


def exact_log_marginals(energy: Energy, x: Inputs) -> Tensor:
    """log p_E(y_i = c | x) for every label, summed over all configurations: (rows, labels)."""
    space, couplings = energy.space, coupling_energies(energy)
    y, labels = space.configuration_columns.T, space.configuration_labels
    pieces = energy.unary(x).split(rows_at_once(space))
    parts = [product(torch.softmax(-product_and(couplings, unary, y), dim=1), labels) for unary in pieces]
    return torch.cat(parts).clamp_min(SMALLEST_PROBABILITY).log()


def target_log_weights(energy: Energy, x: Inputs, label: Tensor) -> tuple[Tensor, Tensor]:
    """Per row, log of the summed weights exp(-E) of the configurations with the label, and of those without.

    Gradients reach x, but not what couples the outputs.
    """
    with torch.no_grad():
        couplings = coupling_energies(energy)
    found: Tensor = _TargetLogWeights.apply(energy.unary(x), couplings, energy.space, label)  # type: ignore[no-untyped-call]
    return found[0], found[1]


class _TargetLogWeights(torch.autograd.Function):
    """How the log of a sum of weights changes with the unary part is known: by less the mean y of these weights.

    So no table has to be kept for the way back.
    """

    @staticmethod
    def forward(ctx: Any, unary: Tensor, couplings: Tensor, space: OutputSpace, label: Tensor) -> Tensor:
        parts = [torch.stack(part) for part in _sides(unary, couplings, space, label)]
        sums = torch.cat(parts, dim=1)  # (with and without, rows, 1 + columns)
        ctx.save_for_backward(sums[:, :, 1:])
        return sums[:, :, 0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (mean,) = ctx.saved_tensors
        return -(gradients[0].unsqueeze(2) * mean).sum(dim=0), None, None, None


def _sides(unary: Tensor, couplings: Tensor, space: OutputSpace, label: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """For some rows at a time, of the configurations with the label and of those without: log weight, and mean y."""
    y = space.configuration_columns
    counted = torch.cat([torch.ones(len(y), 1), y], dim=1)
    away = space.configuration_labels.T * LOG_OF_NOTHING
    n_rows = rows_at_once(space)
    for some, own in zip(unary.split(n_rows), label.split(n_rows), strict=True):
        without = away[own]
        log_weight = product_and(couplings, some, y.T).neg_()
        yield _summed(log_weight + (LOG_OF_NOTHING - without), counted), _summed(log_weight.add_(without), counted)


def _summed(log_weight: Tensor, counted: Tensor) -> Tensor:
    """Log of the sum of weights, and the mean of y by these weights; spoils its first argument."""
    largest = log_weight.amax(dim=1, keepdim=True)
    sums = product(log_weight.sub_(largest).clamp_min_(LEAST_EXPONENT).exp_(), counted)
    return torch.cat([sums[:, :1].log() + largest, sums[:, 1:] / sums[:, :1]], dim=1)
