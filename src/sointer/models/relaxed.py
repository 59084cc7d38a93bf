"""Labels relaxed to [0, 1]: how good they are, and the steps by which gradient inference improves them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sointer.models.networks import Coupling, score_gradient, score_of


def relaxed_f1(y: Tensor, truth: Tensor) -> Tensor:
    """Example-F1 of relaxed labels against 0/1 truth, 2 sum min / (sum min + sum max); 1 where both are empty."""
    size = y.sum(dim=1) + truth.sum(dim=1)  # for 0/1 truth, min is y * truth and min + max is y + truth
    f1 = 2 * (y * truth).sum(dim=1) / size.clamp_min(torch.finfo(y.dtype).tiny)
    return torch.where(size > 0, f1, 1.0)


def relaxed_f1_gradient(y: Tensor, truth: Tensor) -> Tensor:
    """The gradient of `relaxed_f1` in y; 0 where both are empty, at which F1 jumps."""
    size = (y.sum(dim=1) + truth.sum(dim=1))[:, None]
    gradient = (2 * truth - relaxed_f1(y, truth)[:, None]) / size.clamp_min(torch.finfo(y.dtype).tiny)
    return torch.where(size > 0, gradient, 0.0)


def climb_value(
    unary: Tensor, coupling: Coupling, n_steps: int, step_size: float, start: Tensor | None = None
) -> Tensor:
    """Gradient ascent of sigmoid(score) on labels kept in [0, 1], from zeros or from `start`."""
    B, b = coupling
    back = (B * b).T.contiguous()
    y = torch.zeros_like(unary) if start is None else start.clone()
    work = torch.empty_like(unary)
    for _ in range(n_steps):
        projected = y @ B
        score = torch.mul(unary, y, out=work).sum(dim=1).add_(F.softplus(projected) @ b)
        value = score.sigmoid_()
        slope = value.mul_(1 - value).mul_(step_size)
        gradient = torch.addmm(unary, projected.sigmoid_(), back, out=work)
        y.addcmul_(gradient, slope[:, None]).clamp_(0, 1)
    return y


def value_loss(unary: Tensor, coupling: Coupling, y: Tensor, truth: Tensor) -> Tensor:
    """Cross-entropy between the value and the example-F1 it should predict, for every row."""
    return F.binary_cross_entropy_with_logits(score_of(unary, y, coupling), relaxed_f1(y, truth), reduction="none")


def climb_loss(
    unary: Tensor, coupling: Coupling, truth: Tensor, start: Tensor, n_steps: int, step_size: float
) -> Tensor:
    """Adversarial labels: gradient ascent of `value_loss` on labels kept in [0, 1], from `start`."""
    y = start
    for _ in range(n_steps):
        score = score_of(unary, y, coupling)[:, None]
        f1 = relaxed_f1(y, truth)[:, None]
        through_value = (torch.sigmoid(score) - f1) * score_gradient(unary, y, coupling)
        through_f1 = score * relaxed_f1_gradient(y, truth)
        y = (y + step_size * (through_value - through_f1)).clamp(0, 1)
    return y


def descend_energy(
    unary: Tensor, coupling: Coupling, n_steps: int, step_size: float, *, truth: Tensor | None = None, margin: float = 0
) -> Tensor:
    """Mirror descent of the score taken as an energy, on labels in (0, 1), from one half.

    Steps are taken on the labels' logits, so that labels never leave (0, 1). With `truth` and `margin`, inference
    is loss-augmented: it lowers E(x, y) - margin * (1 - F1(y, truth)).
    """
    B, b = coupling
    back = (B * b).T.contiguous()
    logits = torch.zeros_like(unary)
    y = torch.full_like(unary, 0.5)
    gradient = torch.empty_like(unary)
    for _ in range(n_steps):
        torch.addmm(unary, (y @ B).sigmoid_(), back, out=gradient)
        if truth is not None:
            gradient.add_(relaxed_f1_gradient(y, truth), alpha=margin)
        logits.sub_(gradient, alpha=step_size)
        torch.sigmoid(logits, out=y)
    return y


def structured_hinge(unary: Tensor, coupling: Coupling, y: Tensor, truth: Tensor, margin: float) -> Tensor:
    """max(0, E(x, truth) - E(x, y) + margin * (1 - F1(y, truth))) for every row."""
    gap = score_of(unary, truth, coupling) - score_of(unary, y, coupling)
    return F.relu(gap + margin * (1 - relaxed_f1(y, truth)))
