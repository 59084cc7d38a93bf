"""Gradients along straight paths from references to samples."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

GOLDEN = 0.6180339887498949


def path_positions(n_steps: int) -> Tensor:
    """Evenly spread positions in (0, 1), in an order that mixes early and late ones."""
    positions = (torch.arange(n_steps, dtype=torch.float64) * GOLDEN + 0.5) % 1.0
    return ((positions.argsort().argsort().double() + 0.5) / n_steps).float()


def slopes_along(evidence: Callable[[Tensor], Tensor], start: Tensor, end: Tensor, n_steps: int) -> Tensor:
    """Gradients of evidence at points on straight paths: (steps, rows, width).

    Paths lead from `start`, (1, width) or (steps, 1, width), to each row of `end`, (rows, width).
    """
    with torch.enable_grad():
        path = start + path_positions(n_steps).view(n_steps, 1, 1) * (end - start)
        points = path.reshape(-1, path.shape[2]).detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(evidence(points).sum(), points)
    return gradient.view_as(path)
