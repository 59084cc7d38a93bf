"""The energy for images: which of two images a mixture of them follows, as a sum of evidence.

Where the outputs of images x and z differ at a target t, a mixture that takes the share s_i of its cell i from x has
x's output there with log-odds

    sum_i e_ti(x) s_i - sum_i e_ti(z) (1 - s_i).

The evidence e_ti(x) = strength_t * attention_ti * value_ti: attention says where the target looks, a distribution over
cells; value says which way a cell speaks, for the output of its image or against it. Nothing in it knows the output.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer.convolution import UNetwork, channels_last, draw_weights
from sointer.inputs.image import ImageShape

MAX_CELLS = 40
"""Cells along the longer side of an image, at most: of larger images, each has several pixels."""
N_FREQUENCIES = 6
N_POSITIONS = 24
FIRST_SCALE = 0.3
"""Of the weights of the maps that attention is made from, before training: at first it depends on places only."""
FIRST_STRENGTH = 1.5
FIRST_FALL = 6.0
"""Cells over which attention loses 1 of its logits, before training."""


class Maps(NamedTuple):
    """What the trunk says of images: of their pixels as targets (n, channels, pixels), and of their cells."""

    query: Tensor
    strength: Tensor
    """(n, pixels)."""
    asked: Tensor
    """What the values of cells are multiplied with."""
    labels: Tensor
    """Logits of the expected mask."""
    key: Tensor
    """(n, channels, cells)."""
    value: Tensor
    """(n, channels, cells)."""

    def take(self, rows: Tensor) -> Maps:
        return Maps(*(part[rows] for part in self))


class Evidence(NamedTuple):
    """What decides targets of images: attention and value are (n, targets, cells), strength is (n, targets)."""

    attention: Tensor
    value: Tensor
    strength: Tensor

    @property
    def signed(self) -> Tensor:
        """(n, targets, cells) how much each cell speaks for the output of its own image, in log-odds."""
        return self.strength.unsqueeze(2) * self.attention * self.value


class ImageEnergy(nn.Module):
    """A U-Net over an image, and attention from each pixel of its mask to all cells of the image.

    image : shape of the images.
    n_classes : labels that a pixel can have.
    widths : channels of the U-Net at full size and after each halving.
    n_keys, n_values : channels of attention, and of the values of cells.
    """

    shift: Tensor
    scale: Tensor
    places: Tensor

    def __init__(
        self, image: ImageShape, n_classes: int, widths: tuple[int, ...], *, n_keys: int, n_values: int
    ) -> None:
        super().__init__()
        self.image, self.n_classes = image, n_classes
        self.n_keys, self.n_values = n_keys, n_values
        self.n_maps = 1 if n_classes == 2 else n_classes
        self.cell = cell_side(image)
        self.grid = -(-image.height // self.cell), -(-image.width // self.cell)
        n_asked = n_values + image.channels + 1
        self._sizes = n_keys, 1, n_asked, self.n_maps, n_keys, n_values
        self.trunk = UNetwork(image.channels + 2, sum(self._sizes), widths, stride=self.cell)
        self.near = nn.Parameter(torch.zeros((2 * self.grid[0] - 1) * (2 * self.grid[1] - 1)))
        """Logits of attention by displacement from the target."""
        self.anywhere = nn.Parameter(torch.zeros(self.grid[0] * self.grid[1]))
        """Logits of attention to places that matter to all targets."""
        self.from_place = nn.Parameter(torch.zeros(4 * N_FREQUENCIES, N_POSITIONS))
        self.to_place = nn.Parameter(torch.zeros(4 * N_FREQUENCIES, N_POSITIONS))
        self.first_strength = nn.Parameter(torch.tensor(FIRST_STRENGTH))
        self.register_buffer("shift", torch.zeros(image.channels, 1, 1))
        self.register_buffer("scale", torch.ones(image.channels, 1, 1))
        self.register_buffer("places", fourier_features(self.grid), persistent=False)

    @property
    def n_cells(self) -> int:
        return self.grid[0] * self.grid[1]

    def initialise(self, generator: torch.Generator) -> ImageEnergy:
        """Draw all weights."""
        draw_weights(self.trunk, generator)
        height, width = self.grid
        down, right = torch.arange(1 - height, height), torch.arange(1 - width, width)
        with torch.no_grad():
            n_scaled = (self.n_keys + 1) * self.cell**2
            self.trunk.out.weight[:n_scaled].mul_(FIRST_SCALE)
            first = sum(self._sizes[:3]) * self.cell**2
            self.trunk.out.weight[first : first + (self.n_maps + self.n_keys) * self.cell**2].mul_(FIRST_SCALE)
            self.near.copy_(-torch.hypot(down[:, None].float(), right[None].float()).flatten() / FIRST_FALL)
            for weights in (self.from_place, self.to_place):
                weights.normal_(0, 0.1, generator=generator)
        return channels_last(self)

    def scale_to(self, rows: NDArray[np.float64]) -> None:
        """Channels of the data at hand get the mean 0 and the deviation 1."""
        images = torch.from_numpy(self.image.unflatten(rows).astype(np.float32))
        self.shift.copy_(images.mean((0, 2, 3))[:, None, None])
        self.scale.copy_(1 / images.std((0, 2, 3), correction=0).clamp_min(1e-6)[:, None, None])

    def folded(self) -> ImageEnergy:
        """The same function for answering alone, which is quicker."""
        twin = copy.deepcopy(self).eval().requires_grad_(False)
        twin.trunk = twin.trunk.folded()
        return twin

    def maps(self, x: Tensor) -> Maps:
        """What the trunk says of encoded images (n, columns)."""
        height, width = self.image.size
        images = (x.view(-1, self.image.channels, height, width) - self.shift) * self.scale
        down = torch.linspace(-1, 1, height).view(1, 1, height, 1).expand(len(x), 1, height, width)
        right = torch.linspace(-1, 1, width).view(1, 1, 1, width).expand(len(x), 1, height, width)
        out = self.trunk(torch.cat([images, down, right], 1))
        query, strength, asked, labels, key, value = out.split(self._sizes, 1)
        value = torch.cat([self._of_cells(value), self._of_cells(images)], 1)
        value = torch.cat([value, torch.ones(len(x), 1, self.n_cells)], 1)
        return Maps(
            query.flatten(2), strength.flatten(1), asked.flatten(2), labels.flatten(2), self._of_cells(key), value
        )

    def _of_cells(self, maps: Tensor) -> Tensor:
        """Maps at full size as means over cells: (n, channels, cells)."""
        if self.cell > 1:
            maps = F.avg_pool2d(maps, self.cell, ceil_mode=True, count_include_pad=False)
        return maps.flatten(2)

    def cell_shares(self, kept: Tensor) -> Tensor:
        """Masks of pixels (n, pixels) as shares of cells: (n, cells)."""
        return self._of_cells(kept.float().view(-1, 1, *self.image.size)).squeeze(1)

    def evidence(self, maps: Maps, targets: Tensor) -> Evidence:
        """What decides targets: the same pixels of all images (targets,), or some of each (n, targets)."""
        query, asked, strength = (_at(part, targets) for part in (maps.query, maps.asked, maps.strength.unsqueeze(1)))
        logits = query.transpose(1, 2) @ maps.key / math.sqrt(self.n_keys) + self._by_place(targets)
        value = asked.transpose(1, 2) @ maps.value / math.sqrt(maps.value.shape[1]) + 1.0
        return Evidence(logits.softmax(2), value, F.softplus(strength.squeeze(1) + self.first_strength))

    def _by_place(self, targets: Tensor) -> Tensor:
        """Logits of attention that depend on places only: (..., targets, cells)."""
        height, width = self.grid
        row = targets.div(self.image.width, rounding_mode="floor") // self.cell
        column = targets % self.image.width // self.cell
        down = torch.arange(height).repeat_interleave(width) - row.unsqueeze(-1) + height - 1
        right = torch.arange(width).repeat(height) - column.unsqueeze(-1) + width - 1
        seen = (self.places @ self.from_place)[row * width + column] @ (self.places @ self.to_place).T
        return self.near[down * (2 * width - 1) + right] + self.anywhere + seen

    def neighbours(self) -> NDArray[np.float32]:
        """How much targets look at cells, by displacement: (2 rows - 1, 2 columns - 1), the sum is 1."""
        height, width = self.grid
        return np.asarray(self.near.detach().softmax(0).view(2 * height - 1, 2 * width - 1).numpy())

    def predict(self, maps: Maps) -> Tensor:
        """The labels expected: (n, pixels)."""
        return (maps.labels[:, 0] > 0).long() if self.n_maps == 1 else maps.labels.argmax(1)


def follows(signed: Tensor, first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """Log-odds that mixtures have the outputs of their first image: (mixtures, targets).

    signed : evidence of all images (images, targets, cells).
    first, second : which two images each mixture is made of (mixtures,).
    share : of the first image in each cell (mixtures, cells).
    """
    mixture = torch.arange(len(share))
    kept = signed @ share.T  # (images, targets, mixtures)
    replaced = signed.sum(2)[second] - kept[second, :, mixture]
    return kept[first, :, mixture] - replaced


def cell_side(image: ImageShape) -> int:
    """Pixels along each side of a cell."""
    return max(1, math.ceil(max(image.size) / MAX_CELLS))


def fourier_features(grid: tuple[int, int]) -> Tensor:
    """Sines and cosines of the places of cells: (cells, features)."""
    height, width = grid
    down = (torch.arange(height).repeat_interleave(width) / height).unsqueeze(1)
    right = (torch.arange(width).repeat(height) / width).unsqueeze(1)
    rate = math.pi / 2 * 2.0 ** torch.arange(N_FREQUENCIES)
    return torch.cat([wave(rate * place) for place in (down, right) for wave in (torch.sin, torch.cos)], 1)


def _at(maps: Tensor, targets: Tensor) -> Tensor:
    """Maps (n, channels, pixels) at targets: (n, channels, targets)."""
    if targets.dim() == 1:
        return maps[:, :, targets]
    return maps.gather(2, targets.unsqueeze(1).expand(-1, maps.shape[1], -1))
