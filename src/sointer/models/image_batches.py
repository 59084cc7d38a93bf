"""Batches of images to learn from, each time a little different."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

ZOOM = 0.25
TURN = 0.2  # in radians
SHIFT = 0.15  # of half the width
CONTRAST = 0.3
TINT = 0.1


def endless_batches(n_images: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Indices of a batch of images, every image once before any comes again."""
    waiting = torch.empty(0, dtype=torch.int64)
    while True:
        while len(waiting) < batch_size:
            waiting = torch.cat([waiting, torch.randperm(n_images, generator=generator)])
        yield waiting[:batch_size]
        waiting = waiting[batch_size:]


def distorted(images: Tensor, masks: Tensor, n_classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images in [0, 1] and their masks (classes), mirrored, turned, zoomed and shifted together, then coloured anew."""
    n_images, n_channels = images.shape[:2]

    def draw(size: float, *shape: int) -> Tensor:
        return size * (2 * torch.rand(n_images, *shape, generator=generator) - 1)

    mirror = draw(1.0).sign()
    zoom, turn = 1 + draw(ZOOM), draw(TURN)
    cosine, sine = zoom * turn.cos(), zoom * turn.sin()
    shift = draw(SHIFT, 2)
    rows = [torch.stack([mirror * cosine, -sine, shift[:, 0]], 1), torch.stack([mirror * sine, cosine, shift[:, 1]], 1)]
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    one_hot = F.one_hot(masks, n_classes).movedim(3, 1).to(images.dtype)
    together = torch.cat([images, one_hot], 1)
    moved = F.grid_sample(together, grid, padding_mode="reflection", align_corners=False)
    images = moved[:, :n_channels] * (1 + draw(CONTRAST, 1, 1, 1)) + draw(TINT, n_channels, 1, 1)
    return images.clamp(0, 1), moved[:, n_channels:].argmax(1)
