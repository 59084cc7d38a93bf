"""How strongly an energy couples each pair of outputs."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from sointer.energy.networks import Energy

N_SAMPLES = 256


def output_interactions(energy: Energy) -> NDArray[np.float32]:
    """(outputs, outputs): mean size of the change in b' softplus(B y) when two outputs move together.

    For labels i and j it is |g(1,1) - g(1,0) - g(0,1) + g(0,0)| with the other outputs at random values;
    of all pairs of classes the largest counts. Symmetric, zero on the diagonal, zero without coupling.
    """
    space = energy.space
    n = space.n_outputs
    result = torch.zeros(n, n)
    if energy.coupling is None or n < 2:
        return np.asarray(result.numpy())
    weight, offset, b = (part.detach() for part in energy.coupling)
    generator = torch.Generator().manual_seed(0)
    if space.is_continuous:
        y = torch.randn(N_SAMPLES, n, generator=generator)
        slope = torch.sigmoid(y @ weight.T + offset)
        curvature = slope * (1 - slope) * b  # (samples, units)
        second = torch.einsum("su,ui,uj->sij", curvature, weight, weight)
        result = second.abs().mean(dim=0)
        return np.asarray(result.fill_diagonal_(0.0).numpy())
    columns = space.n_columns
    classes = torch.rand(N_SAMPLES, n, generator=generator) * torch.tensor(space.n_classes)
    y = space.encode(classes.long())
    owner = space.column_output
    for i in range(columns):
        # Everything about column i at once: y with i and j set to 0 or 1, all j together.
        without_i = torch.where(owner == owner[i], 0.0, y)
        h0 = without_i @ weight.T + offset
        hj0 = h0.unsqueeze(1) - own_part(without_i, weight, owner)  # (samples, columns, units)
        hj1 = hj0 + weight.T
        mixed = (
            F.softplus(hj1 + weight[:, i]) - F.softplus(hj0 + weight[:, i]) - F.softplus(hj1) + F.softplus(hj0)
        ) @ b
        strength = mixed.abs().mean(dim=0)
        row = torch.zeros(n).scatter_reduce(0, owner, strength, reduce="amax")
        result[owner[i]] = torch.maximum(result[owner[i]], row)
    return np.asarray(result.fill_diagonal_(0.0).numpy())


def own_part(y: torch.Tensor, weight: torch.Tensor, owner: torch.Tensor) -> torch.Tensor:
    """What each column's own output adds to B y: (samples, columns, units)."""
    contribution = y.unsqueeze(2) * weight.T
    by_output = torch.zeros(len(y), int(owner.max()) + 1, weight.shape[0]).index_add(1, owner, contribution)
    return by_output[:, owner]
