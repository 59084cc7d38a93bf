"""Learning a target from features and other outputs, so that what the other outputs can explain, they explain."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sointer.energy.conditional import TargetGivenOthers
from sointer.training.energy_steps import SPARSITY_WARM_UP, shrink_columns
from sointer.training.optim import Adam, Group
from sointer.training.points import Points

N_STEPS = 1500
BATCH_SIZE = 256
LEARNING_RATE = 1e-2
# How strongly features and other outputs are drawn to zero, in learning rates per step: features must pay more.
PRICE_OF_FEATURES, PRICE_OF_OUTPUTS = 2.0, 1.0


def learn_target(net: TargetGivenOthers, points: Points, y: Tensor, values: Tensor, seed: int) -> TargetGivenOthers:
    """Train on points, their encoded outputs (rows, columns) and the target's values (rows,)."""
    generator = torch.Generator().manual_seed(seed)
    parameters = [p for name, p in net.named_parameters() if not name.startswith("encoding.")]
    optimiser = Adam([Group(parameters, LEARNING_RATE)])
    for step in range(N_STEPS):
        pace = 0.5 * (1.0 + math.cos(math.pi * step / N_STEPS))
        batch = torch.randint(len(points), (BATCH_SIZE,), generator=generator)
        optimiser.step(net.loss(net.project(points.take(batch)), y[batch], values[batch]), pace)
        if step > SPARSITY_WARM_UP * N_STEPS:
            shrink_columns([net.of_features.weight], pace * LEARNING_RATE * PRICE_OF_FEATURES, net.encoding.column)
            shrink_columns([net.of_outputs.weight], pace * LEARNING_RATE * PRICE_OF_OUTPUTS)
    return net.eval().requires_grad_(False)
