"""The value of a mask for an image: a convolutional network that sees both, and the steps that raise its value."""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sointer._support.unet import convolution, draw_weights
from sointer.models.unet import StandardisingUNetwork

KERNEL = 5
EVIDENCE_DEPTH = 3


class ValueNetwork(nn.Module):
    """Image and relaxed mask, both (n, channels, size, size), through three convolutions and three layers to a score.

    The image may first go through a U-Net, whose channels, as numbers in (0, 1), then stand beside the mask; the
    first of them can be taught to find single pixels. What is made of the image does not depend on the mask and
    is had once (`seen`); the value is sigmoid(score).
    """

    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        n_channels: int,
        size: int,
        filters: tuple[int, ...],
        strides: tuple[int, ...],
        hidden: tuple[int, ...],
        image_width: int,
    ) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(n_channels, 1, 1))
        self.register_buffer("scale", torch.ones(n_channels, 1, 1))
        self.evidence = (
            StandardisingUNetwork(n_channels, image_width, image_width, EVIDENCE_DEPTH) if image_width else None
        )
        self.look = convolution(image_width or n_channels, filters[0], KERNEL, stride=strides[0])
        self.mark = convolution(1, filters[0], KERNEL, stride=strides[0], bias=False)
        shapes = zip(pairwise(filters), strides[1:], strict=True)
        self.convolutions = nn.ModuleList(convolution(a, b, KERNEL, stride=stride) for (a, b), stride in shapes)
        for stride in strides:
            size = -(-size // stride)
        widths = [filters[-1] * size * size, *hidden, 1]
        self.layers = nn.ModuleList(nn.utils.skip_init(nn.Linear, a, b) for a, b in pairwise(widths))

    def initialise(self, generator: torch.Generator) -> ValueNetwork:
        """Draw all weights: normal, with the variance 2 / number of inputs; the last ones small."""
        draw_weights(self, generator)
        with torch.no_grad():
            self.layers[-1].weight.mul_(0.1)  # type: ignore[operator]
        return self

    def standardise(self, images: Tensor) -> None:
        """Set what is subtracted from each channel and what it is multiplied by."""
        if self.evidence is not None:
            self.evidence.standardise(images)
        self.shift.copy_(images.mean((0, 2, 3))[:, None, None])
        self.scale.copy_(1 / images.std((0, 2, 3), correction=0).clamp_min(1e-3)[:, None, None])

    def seen(self, images: Tensor) -> Tensor:
        """What the first convolution makes of images in [0, 1]."""
        if self.evidence is not None:
            found: Tensor = self.look(2 * self.evidence(images).sigmoid() - 1)
        else:
            found = self.look((images - self.shift) * self.scale)
        return found

    def forward(self, seen: Tensor, y: Tensor) -> Tensor:
        """Scores of masks y (n, size, size): (n,)."""
        x = F.relu(seen + self.mark(2 * y[:, None] - 1))
        for layer in self.convolutions:
            x = F.relu(layer(x))
        x = x.flatten(1)
        for i, layer in enumerate(self.layers):
            x = layer(F.relu(x) if i else x)
        return x[:, 0]

    def folded(self) -> ValueNetwork:
        """The same function, for answering alone."""
        twin = copy.deepcopy(self).eval()
        if twin.evidence is not None:
            twin.evidence = twin.evidence.folded()
        return twin.requires_grad_(False)


def steepest(gradient: Tensor) -> Tensor:
    """Gradients of masks (n, size, size) scaled to a mean square of 1 for each mask."""
    return gradient / gradient.square().mean((1, 2), keepdim=True).sqrt().clamp_min(1e-12)


def climb(network: ValueNetwork, seen: Tensor, y: Tensor, n_steps: int, step_size: float) -> Tensor:
    """Gradient ascent of the score on masks kept in [0, 1]; steps shrink to nothing."""
    for step in range(n_steps):
        with torch.enable_grad():
            y = y.detach().requires_grad_()
            gradient = torch.autograd.grad(network(seen, y).sum(), y)[0]
        y = (y.detach() + step_length(step, n_steps, step_size) * steepest(gradient)).clamp_(0, 1)
    return y


def step_length(step: int, n_steps: int, step_size: float) -> float:
    return step_size * (1 - step / n_steps)
