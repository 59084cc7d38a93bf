"""How strongly an energy couples each pair of outputs."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sointer.energy.image import ImageEnergy
from sointer.energy.networks import Coupled
from sointer.energy.space import OutputSpace

N_SAMPLES = 128
MAX_CHANGES_COMPARED = 256
"""Pairs of changes are compared one by one up to here; beyond, each is small beside all others together."""


def output_interactions(energy: Coupled | ImageEnergy) -> NDArray[np.float32]:
    """(outputs, outputs): mean size of the change in b' softplus(B y) when two outputs move together.

    For classes a of output i and b of output j it is |g(a, b) - g(a, 0) - g(0, b) + g(0, 0)|, 0 being each
    output's first class and the other outputs having random values; of all pairs (a, b) the largest
    counts; among very many, the size of the second derivative. Symmetric, zero on the
    diagonal, zero without coupling. For masks, where in the image a pixel looks, by displacement: a map.
    """
    if isinstance(energy, ImageEnergy):
        return energy.neighbours()
    space = energy.space
    result = torch.zeros(space.n_outputs, space.n_outputs)
    if energy.coupling is not None:
        weight, offset, b = (part.detach() for part in energy.coupling)
        generator = torch.Generator().manual_seed(0)
        result = _of_classes(space, weight, offset, b, generator).fill_diagonal_(0.0)
    return np.asarray(result.numpy())


def _of_classes(space: OutputSpace, weight: Tensor, offset: Tensor, b: Tensor, generator: torch.Generator) -> Tensor:
    shift = space.label_columns @ weight.T  # what each label adds to B y
    first = shift[space.first_label]
    draws = torch.rand(N_SAMPLES, space.n_outputs, generator=generator) * torch.tensor(space.n_classes)
    own = shift[space.first_label + draws.long()]  # (samples, outputs, units)
    total = own.sum(dim=1) + offset
    to_first = first - own  # added to B y, it puts an output at its first class
    changes = [label for label in range(space.n_labels) if label not in set(space.first_label.tolist())]
    result = torch.zeros(space.n_outputs, space.n_outputs)
    if not changes:
        return result
    changed = torch.tensor(changes)
    owner = space.label_output[changed]
    moves = shift[changed] - first[owner]  # (changes, units)
    if len(changes) > MAX_CHANGES_COMPARED:
        mixed = _to_second_order(total, moves, b)
        rows = torch.zeros(space.n_outputs, len(changes))
        rows = rows.scatter_reduce(0, owner.unsqueeze(1).expand_as(mixed), mixed, reduce="amax")
        return result.scatter_reduce(1, owner.expand_as(rows), rows, reduce="amax")
    for change, i in enumerate(owner.tolist()):
        base = (total + to_first[:, i]).unsqueeze(1) + to_first[:, owner]  # (samples, changes, units)
        moved = base + moves[change]
        mixed = (F.softplus(moved + moves) - F.softplus(moved) - F.softplus(base + moves) + F.softplus(base)) @ b
        row = torch.zeros(space.n_outputs).scatter_reduce(0, owner, mixed.abs().mean(dim=0), reduce="amax")
        result[i] = torch.maximum(result[i], row)
    return result


def _to_second_order(total: Tensor, moves: Tensor, b: Tensor) -> Tensor:
    """The mean size of that change, by the curvature of b' softplus(B y) at each sample: (changes, changes)."""
    slope = torch.sigmoid(total)  # (samples, units)
    result = torch.zeros(len(moves), len(moves))
    for curvature in slope * (1 - slope) * b:
        result += ((moves * curvature) @ moves.T).abs()
    return result / len(total)
