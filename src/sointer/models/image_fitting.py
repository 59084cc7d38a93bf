"""The training loop that networks for images share: AdamW with a one-cycle learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from sointer.training.history import History

REPORTS = 25  # rows of history for each stage
FIRST_SHARE = 0.04
RISING_SHARE = 0.3


def descend(
    stage: str,
    network: nn.Module,
    loss_of_batch: Callable[[], Tensor],
    n_steps: int,
    learning_rate: float,
    weight_decay: float,
    history: History,
) -> None:
    """Lower the loss, of a new batch at each step, in the weights of the network."""
    weights = list(network.parameters())
    descent = torch.optim.AdamW(weights, learning_rate, weight_decay=weight_decay, fused=True)
    rate = torch.optim.lr_scheduler.LambdaLR(descent, lambda step: one_cycle(step, n_steps))
    report_every, losses = math.ceil(n_steps / REPORTS), []
    history.stage(stage, n_steps)
    for step in range(1, n_steps + 1):
        loss = loss_of_batch()
        descent.zero_grad()
        loss.backward()
        descent.step()
        rate.step()
        losses.append(float(loss.detach()))
        history.step(loss=losses[-1])
        if step % report_every == 0 or step == n_steps:
            history.record(stage=stage, step=step, loss=sum(losses) / len(losses))
            losses = []


def one_cycle(step: int, n_steps: int) -> float:
    """Share of the learning rate at a step: up by a cosine, then down by another to nothing."""
    top = RISING_SHARE * n_steps
    if step < top:
        return FIRST_SHARE + (1 - FIRST_SHARE) * (1 - math.cos(math.pi * step / top)) / 2
    return (1 + math.cos(math.pi * (step - top) / (n_steps - top))) / 2
