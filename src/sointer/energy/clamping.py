"""What an energy expects of the outputs while some of them are held at known values."""

from __future__ import annotations

import torch
from torch import Tensor

from sointer.energy.enumeration import energy_table, rows_at_once
from sointer.energy.inference import slope_at
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import Energy


def outputs_given(energy: Energy, likelihood: Likelihood, unary: Tensor, codes: Tensor, held: Tensor) -> Tensor:
    """The most likely outputs while those in `held` keep their `codes` (means of continuous ones): (rows, outputs).

    `unary` is energy.unary(x); `held` (rows, outputs) is True for what is held. Exact where the outputs can be
    listed, else by the mean-field steps that the energy was trained through.
    """
    if energy.coupling is None or not likelihood.is_exact(energy):
        return _mean_field(energy, likelihood, unary, codes, held)
    n_rows = rows_at_once(energy.space)
    parts = zip(unary.split(n_rows), codes.split(n_rows), held.split(n_rows), strict=True)
    return torch.cat([_best_configuration(energy, *part) for part in parts])


def _best_configuration(energy: Energy, unary: Tensor, codes: Tensor, held: Tensor) -> Tensor:
    space = energy.space
    forbidden = held[:, space.label_output] & (space.one_hot(codes) == 0)
    n_conflicts = forbidden.float() @ space.configuration_labels.T
    table = energy_table(energy, unary).masked_fill(n_conflicts > 0, torch.inf)
    return space.configurations[table.argmin(dim=1)]


def _mean_field(energy: Energy, likelihood: Likelihood, unary: Tensor, codes: Tensor, held: Tensor) -> Tensor:
    space = energy.space
    labels, known, clamped = space.label_columns, space.encode(codes), held[:, space.column_output]
    logits = -unary @ labels.T  # for continuous outputs, their means
    for _ in range(likelihood.n_steps if energy.coupling is not None else 0):
        mean = logits if space.is_continuous else space.normalise(logits).exp() @ labels
        update = -slope_at(energy, unary, torch.where(clamped, known, mean)) @ labels.T
        logits = likelihood.damping * logits + (1 - likelihood.damping) * update
    return torch.where(held, codes, logits if space.is_continuous else space.most_likely(logits))
