"""Our Adam takes the very steps that torch.optim's takes, whatever the layout of the gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sointer.training import optim
from sointer.training.optim import Adam, Group


@pytest.fixture(params=["fused", "public operations"])
def update(request, monkeypatch):
    """Both ways to update: torch's fused call, which is not public, and the one that does without it."""
    if request.param == "public operations":
        monkeypatch.setattr(optim, "fused_adamw", None)
    elif optim.fused_adamw is None:
        pytest.skip("this torch has no fused update")


def network():
    generator = torch.Generator().manual_seed(0)
    weights = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((5, 3), (5,), (2, 5))]
    return weights, torch.randn(16, 3, generator=generator), torch.randn(16, 2, generator=generator)


def loss_of(weights, x, y, size=1.0):
    first, offset, last = weights
    return size * (torch.tanh(x @ first.T + offset) @ last.T - y).square().mean()


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_steps_equal_those_of_torch(update, weight_decay, size):
    ours, x, y = network()
    theirs, _, _ = network()
    adam = Adam([Group(ours[:2], 0.01), Group(ours[2:], 0.03)], max_norm=2.0, weight_decay=weight_decay)
    groups = [{"params": theirs[:2], "lr": 0.01}, {"params": theirs[2:], "lr": 0.03}]
    optimiser = torch.optim.AdamW(groups, weight_decay=weight_decay)
    for lr_scale in (1.0, 0.5, 0.1, 0.02):
        reported = adam.step(loss_of(ours, x, y, size), lr_scale)
        loss = loss_of(theirs, x, y, size)
        for group, rate in zip(optimiser.param_groups, (0.01, 0.03), strict=True):
            group["lr"] = rate * lr_scale
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(theirs, 2.0)
        optimiser.step()
        assert reported == pytest.approx(float(loss.detach()), rel=1e-6)
        for own, other in zip(ours, theirs, strict=True):
            assert torch.allclose(own, other, atol=1e-6)


def test_a_loss_that_is_not_a_number_does_not_pass_unseen():
    weights, x, y = network()
    Adam([Group(weights, 0.01)], max_norm=2.0).step(loss_of(weights, x, y * torch.nan))
    assert all(torch.isnan(weight).all() for weight in weights)


def transposed_losses():
    """Losses whose gradients autograd returns as transposed or permuted views of the parameter's layout."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    x, stacked, narrow = draw(32, 6), draw(3, 32, 5), draw(32, 6)
    return {
        "einsum": ((3, 5, 6), lambda w: (torch.einsum("ni,owi->onw", x, w) - stacked).square().mean()),
        "x @ w.T": ((4, 6), lambda w: (narrow @ w.T - x[:, :4]).square().mean()),
        "transpose(1, 2)": ((3, 5, 6), lambda w: (x @ w.transpose(1, 2) - stacked).square().mean()),
    }


@pytest.mark.parametrize("case", ["einsum", "x @ w.T", "transpose(1, 2)"])
@pytest.mark.parametrize("column_major", [False, True])
def test_gradients_of_any_layout_move_their_own_weights(update, case, column_major):
    shape, loss_of = transposed_losses()[case]
    start = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    own = start.mT.contiguous().mT if column_major else start.clone()
    theirs = start.clone().requires_grad_()
    own.requires_grad_()
    adam, optimiser = Adam([Group([own], 0.05)], max_norm=1.0), torch.optim.AdamW([theirs], lr=0.05, weight_decay=0.0)
    for _ in range(50):
        adam.step(loss_of(own))
        optimiser.zero_grad()
        loss_of(theirs).backward()
        nn.utils.clip_grad_norm_([theirs], 1.0)
        optimiser.step()
    assert torch.allclose(own, theirs, atol=1e-4)


def test_the_cases_above_do_have_gradients_of_another_layout():
    unlike = 0
    for shape, loss_of in transposed_losses().values():
        for weight in (torch.zeros(shape), torch.zeros(shape).mT.contiguous().mT):
            (gradient,) = torch.autograd.grad(loss_of(weight.requires_grad_()), weight)
            unlike += gradient.stride() != weight.stride()
    assert unlike >= 3
