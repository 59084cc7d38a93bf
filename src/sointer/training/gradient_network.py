"""Effects of tables: what they refer to, and teaching the network that gives them in one pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer._support.torch_state import seeded
from sointer.data.outputs import Outputs
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import TrainableEnergy, VectorEnergy
from sointer.interpreter.effects import Effects, GradientNetwork, OutputUnits, PathMeans, mean_outputs
from sointer.masking.removal import RemovalByRows
from sointer.masking.rows import CHUNK_ROWS
from sointer.training.context import FitContext
from sointer.training.optim import Adam, Group, state_of

N_REFERENCES = 64
MAX_COLUMNS = 24
"""With more output columns the gradient is computed at points of paths, not predicted."""
N_ROWS, N_POINTS, N_COLUMNS_EACH = 8_000, 16, 2
HIDDEN, N_STEPS, BATCH_SIZE, LEARNING_RATE, WEIGHT_DECAY = 64, 1_500, 256, 3e-3, 1e-2
FULL_EPOCHS = 60
"""With fewer epochs than by default, rows and steps are fewer in proportion."""
N_CHECKED, N_PRECISE = 256, 256
"""Samples on which the network is checked, and points on paths that it is checked against."""
GOOD_COSINE = 0.9
CHUNK = 128


def make_effects(
    context: FitContext, outputs: Outputs, energy: TrainableEnergy, likelihood: Likelihood, codes: NDArray[Any]
) -> Effects:
    """Effects that refer to what is removed; `codes` are the outputs of unmasked samples."""
    rows, space = context.rows, energy.space
    units = OutputUnits.of(outputs, space.column_output)
    n_references = N_REFERENCES if rows.removal.is_random else 1
    effects = Effects(energy, likelihood, units, n_references, rows.groups.n_units)
    # Where all samples can be said to be the references, their means are more precise than those of a few.
    center = mean_encoding(context, energy) if isinstance(rows.removal, RemovalByRows) else None
    effects.refer_to(references(context, N_REFERENCES), unit_of_column(context), center)
    if rows.removal.is_random:
        encoded = space.encode(torch.as_tensor(codes)).numpy().astype(np.float64)
        effects.base.copy_(mean_outputs(outputs, space.column_output, codes, encoded))
    return effects


def references(context: FitContext, n: int) -> Tensor:
    """Rows with everything removed, the same for every call."""
    return context.as_tensor(context.rows.removal.references(n, np.random.default_rng(0)))


def unit_of_column(context: FitContext) -> Tensor:
    """The unit of every column, as a tensor."""
    return torch.as_tensor(context.rows.groups.unit_of_column.astype(np.int64))


@torch.no_grad()
def mean_encoding(context: FitContext, energy: TrainableEnergy) -> Tensor:
    """Over all samples: (encoded columns,)."""
    total, n = torch.zeros(energy.encoding.n_encoded, dtype=torch.float64), context.rows.n_samples
    for start in range(0, n, CHUNK_ROWS):
        x = context.as_tensor(context.rows.samples(np.arange(start, min(start + CHUNK_ROWS, n))))
        total += energy.encoding(x).double().sum(dim=0)
    return (total / n).float()


def teach_gradients(context: FitContext, effects: Effects) -> None:
    """Give `effects` a network for its gradients, if it does as well as points on paths on samples it has not seen."""
    energy = effects.energy
    n_columns = energy.space.n_columns
    if not isinstance(energy, VectorEnergy) or n_columns > MAX_COLUMNS:
        return
    generator = torch.Generator().manual_seed(int(context.rng.integers(2**62)))
    effort = min(1.0, context.configs.training.n_epochs / FULL_EPOCHS)
    n_steps = max(1, int(effort * N_STEPS))
    context.history.stage("learning effects", n_steps)
    x = training_rows(context, max(2 * N_CHECKED, int(effort * N_ROWS)))
    with torch.no_grad():
        projected = torch.cat([energy.project(part) for part in x.split(CHUNK)])
    columns = torch.randint(n_columns, (len(x), N_COLUMNS_EACH), generator=generator)
    with seeded(int(context.rng.integers(2**31))):
        n_held = effects.n_units if len(effects.encodings) > 1 else 0
        network = GradientNetwork(projected.shape[1], n_columns, HIDDEN, n_held)
    optimiser = Adam([Group(list(network.parameters()), LEARNING_RATE)], weight_decay=WEIGHT_DECAY)
    stage = context.snapshots.stage(state_of(network, optimiser), n_steps, context.history)
    if stage.n_done < n_steps:
        found = [path_means(effects, projected, own, generator) for own in columns.T]
        wanted, held = (torch.stack(parts, dim=1) for parts in zip(*found, strict=True))
        standardise(network, projected, columns, wanted, held)
        target = (wanted - network.mean[columns]) / network.size[columns].unsqueeze(2)
        held_target = (held - network.held_mean[columns]) / network.held_size[columns].unsqueeze(2)
    spread = projected.std(dim=0)
    weight = (spread / spread.mean().clamp_min(1e-12)).square()
    n_train = len(x) - N_CHECKED if len(x) > 2 * N_CHECKED else len(x)
    for step in range(n_steps):
        batch = torch.randint(n_train, (BATCH_SIZE,), generator=generator)
        if step < stage.n_done:
            context.history.step()
            continue
        own = torch.arange(len(batch)).unsqueeze(1), columns[batch]
        gradient, contributions = (part[own] for part in network.standardised(projected[batch]))
        loss = ((gradient - target[batch]).square() * weight).mean()
        loss = loss + (contributions - held_target[batch]).square().sum() / max(1, contributions.numel())
        optimiser.step(loss, 0.5 * (1.0 + math.cos(math.pi * step / n_steps)))
        context.history.step()
        stage.keep(step + 1)
    network.requires_grad_(False)
    by_network, by_points = cosines(effects, network, x[-N_CHECKED:], columns[-N_CHECKED:, 0])
    kept = by_network >= min(by_points, GOOD_COSINE)
    context.history.record(stage="one pass", cosine=by_network, cosine_of_points=by_points, kept=kept)
    if kept:
        effects.network = network


def training_rows(context: FitContext, n: int) -> Tensor:
    """Rows of the data, half of them mixed with others, in any order."""
    index = context.rng.integers(context.rows.n_samples, size=n)
    keep = context.random_keeps(n, context.rng)
    keep[::2] = True
    return context.as_tensor(
        context.rows.removal.apply(context.rows.samples(index), context.rows.groups.to_columns(keep), context.rng)
    )


def path_means(
    effects: Effects, projected: Tensor, columns: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Mean gradients (rows, width) and held contributions (rows, units, or none), each few rows along other paths."""
    projections, encodings, parts = effects.projections, effects.encodings, []
    for batch, own in zip(projected.split(CHUNK), columns.split(CHUNK), strict=True):
        if len(projections) > 1:  # any reference may come with any position
            order = torch.randperm(len(projections), generator=generator)
            effects.projections = projections[order]
            effects.encodings = encodings[order] if len(encodings) > 1 else encodings
        parts.append(effects.along_paths(batch, own, N_POINTS if len(projections) > 1 else None))
    effects.projections, effects.encodings = projections, encodings
    held = [torch.zeros(len(part.gradient), 0) if part.held is None else part.held for part in parts]
    return torch.cat([part.gradient for part in parts]), torch.cat(held)


def standardise(network: GradientNetwork, projected: Tensor, columns: Tensor, wanted: Tensor, held: Tensor) -> None:
    """Means and sizes of what goes in and of what shall come out."""
    network.center.copy_(projected.mean(dim=0))
    network.scale.copy_(1 / (projected.std(dim=0) + 1e-6))
    for column in range(network.n_columns):
        chosen = columns == column
        if chosen.sum() > 1:
            network.mean[column], network.size[column] = _mean_and_size(wanted[chosen])
            if network.n_units:
                network.held_mean[column], network.held_size[column] = _mean_and_size(held[chosen])


def _mean_and_size(own: Tensor) -> tuple[Tensor, Tensor]:
    return own.mean(dim=0), own.std(dim=0).square().mean().sqrt().clamp_min(1e-9)


@torch.no_grad()
def cosines(effects: Effects, network: GradientNetwork, x: Tensor, columns: Tensor) -> tuple[float, float]:
    """How near effects by the network, and effects by as few points as it learned from, are to precise ones.

    As the mean cosine of the angle between them, over rows.
    """
    encoded = effects.energy.encoding(x)
    projected = effects.energy.project_encoded(encoded)

    def of(means: PathMeans) -> NDArray[np.float64]:
        return effects.of_means(means, encoded, columns).double().numpy()

    precise = of(effects.along_paths(projected, columns, N_PRECISE))
    found = [of(network(projected, columns)), of(effects.along_paths(projected, columns, N_POINTS))]
    lengths = [np.linalg.norm(precise, axis=1) * np.linalg.norm(one, axis=1) for one in found]
    means = [
        float(((precise * one).sum(axis=1)[length > 0] / length[length > 0]).mean()) if (length > 0).any() else 1.0
        for one, length in zip(found, lengths, strict=True)
    ]
    return means[0], means[1]
