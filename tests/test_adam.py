"""Our Adam takes the very steps that torch.optim's takes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sointer.training.adam import Adam, Group


def network():
    generator = torch.Generator().manual_seed(0)
    weights = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((5, 3), (5,), (2, 5))]
    return weights, torch.randn(16, 3, generator=generator), torch.randn(16, 2, generator=generator)


def loss_of(weights, x, y, size=1.0):
    first, offset, last = weights
    return size * (torch.tanh(x @ first.T + offset) @ last.T - y).square().mean()


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_steps_equal_those_of_torch(weight_decay, size):
    ours, x, y = network()
    theirs, _, _ = network()
    adam = Adam([Group(ours[:2], 0.01), Group(ours[2:], 0.03)], largest_gradient=2.0, weight_decay=weight_decay)
    groups = [{"params": theirs[:2], "lr": 0.01}, {"params": theirs[2:], "lr": 0.03}]
    optimiser = torch.optim.AdamW(groups, weight_decay=weight_decay)
    for pace in (1.0, 0.5, 0.1, 0.02):
        told = adam.step(loss_of(ours, x, y, size), pace)
        loss = loss_of(theirs, x, y, size)
        for group, rate in zip(optimiser.param_groups, (0.01, 0.03), strict=True):
            group["lr"] = rate * pace
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(theirs, 2.0)
        optimiser.step()
        assert told == pytest.approx(float(loss.detach()), rel=1e-6)
        for own, other in zip(ours, theirs, strict=True):
            assert torch.allclose(own, other, atol=1e-6)


def test_a_loss_that_is_not_a_number_does_not_pass_unseen():
    weights, x, y = network()
    Adam([Group(weights, 0.01)], largest_gradient=2.0).step(loss_of(weights, x, y * torch.nan))
    assert all(torch.isnan(weight).all() for weight in weights)
