"""What an energy expects of the outputs while some of them are held at known values."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.energy.enumeration import SMALLEST_PROBABILITY, energy_table, rows_at_once
from sointer.energy.inference import slope_at
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import Energy


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
    known = space.probabilities(codes).clamp_min(SMALLEST_PROBABILITY).log()[:, own]
    given = log_weight - total.clamp_min(SMALLEST_PROBABILITY).log()[:, group]
    weight = (given + known @ space.configuration_labels[:, own].T).clamp_min(-80.0).exp()
    labels = weight @ space.configuration_labels / weight.sum(dim=1, keepdim=True)
    return labels.clamp_min(SMALLEST_PROBABILITY).log()


def _mean_field(energy: Energy, likelihood: Likelihood, unary: Tensor, codes: Tensor, held: Tensor) -> Tensor:
    space = energy.space
    labels, known, clamped = space.label_columns, space.encode(codes), held[space.column_output]
    logits = -unary @ labels.T
    for _ in range(likelihood.n_steps if energy.coupling is not None else 0):
        mean = space.normalise(logits).exp() @ labels
        update = -slope_at(energy, unary, torch.where(clamped, known, mean)) @ labels.T
        logits = likelihood.damping * logits + (1 - likelihood.damping) * update
    return space.normalise(logits)
