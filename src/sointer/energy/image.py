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

from sointer._support.unet import UTrunk, channels_last, convolution, draw_weights
from sointer.data.images import ImageShape

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
    """What the trunk says of images, cell by cell: (n, channels, cells)."""

    features: Tensor
    """What is asked of the targets in a cell is a linear function of these, another one for each place in the cell."""
    key: Tensor
    value: Tensor
    labels: Tensor
    """Logits of the expected mask: (n, classes, pixels)."""

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
        self._target_sizes = n_keys, 1, n_values + image.channels + 1
        """Of a target: the query, the strength, and what the values of cells are multiplied with."""
        self._cell_sizes = n_keys, n_values, self.n_maps * self.cell**2
        """Of a cell: the key, the value, and logits of the labels of its pixels."""
        self.trunk = UTrunk(image.channels + 2, widths, stride=self.cell)
        self.tell = convolution(widths[0], sum(self._cell_sizes), 1)
        self.ask = nn.Parameter(torch.zeros(self.cell**2, widths[0] + 1, sum(self._target_sizes)))
        self._reach = tuple(self.cell * (n - 1) + side for n, side in zip(self.grid, image.size, strict=True))
        self.near = nn.Parameter(torch.zeros(self._reach[0] * self._reach[1]))
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
        draw_weights(self, generator)
        down, right = (
            (torch.arange(reach) - side + 1 + (self.cell - 1) / 2) / self.cell
            for reach, side in zip(self._reach, self.image.size, strict=True)
        )
        with torch.no_grad():
            self.ask[:, :-1].normal_(0, math.sqrt(2 / (self.ask.shape[1] - 1)), generator=generator)
            self.ask[:, :, : self.n_keys + 1].mul_(FIRST_SCALE)
            for scaled in (slice(self.n_keys), slice(self.n_keys + self.n_values, None)):
                self.tell.weight[scaled].mul_(FIRST_SCALE)
            self.near.copy_(-torch.hypot(down[:, None], right[None]).flatten() / FIRST_FALL)
            for weights in (self.from_place, self.to_place):
                weights.normal_(0, 0.1, generator=generator)
        return channels_last(self)

    def scale_to(self, rows: NDArray[np.float64]) -> None:
        """Channels of the data at hand get the mean 0 and the deviation 1."""
        images = torch.as_tensor(self.image.unflatten(rows).astype(np.float32))
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
        features = self.trunk.features(torch.cat([images, down, right], 1))
        key, value, labels = self.tell(features).split(self._cell_sizes, 1)
        features, key, value = (self._inside(part).flatten(2) for part in (features, key, value))
        value = torch.cat([value, self._of_cells(images), torch.ones(len(x), 1, self.n_cells)], 1)
        labels = F.pixel_shuffle(labels, self.cell)[..., :height, :width].flatten(2)
        return Maps(features, key, value, labels)

    def _inside(self, maps: Tensor) -> Tensor:
        """Without the cells that the trunk puts around an image to be able to halve it."""
        return maps[..., : self.grid[0], : self.grid[1]]

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
        query, strength, asked = self._questions(maps.features, targets).split(self._target_sizes, 2)
        # Scaled and shifted while they are small: the last of the values of a cell is 1.
        by_place = self._by_place(targets).expand(len(query), -1, -1)
        logits = torch.baddbmm(by_place, query / math.sqrt(self.n_keys), maps.key)
        asked = asked / math.sqrt(asked.shape[2]) + F.pad(asked.new_ones(1), (asked.shape[2] - 1, 0))
        return Evidence(logits.softmax(2), asked @ maps.value, F.softplus(strength.squeeze(2) + self.first_strength))

    def _questions(self, features: Tensor, targets: Tensor) -> Tensor:
        """What targets ask of the cells of their images: (n, targets, channels)."""
        row, column = targets.div(self.image.width, rounding_mode="floor"), targets % self.image.width
        cell = (row // self.cell) * self.grid[1] + column // self.cell
        weight = self.ask[(row % self.cell) * self.cell + column % self.cell]  # ([n,] targets, features + 1, channels)
        if targets.dim() == 1:
            own = features[:, :, cell].permute(2, 0, 1)  # (targets, n, features)
            return torch.baddbmm(weight[:, -1:], own, weight[:, :-1]).transpose(0, 1)
        own = features.gather(2, cell.unsqueeze(1).expand(-1, features.shape[1], -1)).transpose(1, 2)
        return (own.unsqueeze(2) @ weight[..., :-1, :] + weight[..., -1:, :]).squeeze(2)

    def cell_of(self, targets: Tensor) -> Tensor:
        """The cells in which pixels are."""
        row, column = targets.div(self.image.width, rounding_mode="floor"), targets % self.image.width
        return (row // self.cell) * self.grid[1] + column // self.cell

    def _by_place(self, targets: Tensor) -> Tensor:
        """Logits of attention that depend on places only: (..., targets, cells)."""
        height, width = self.grid
        row, column = targets.div(self.image.width, rounding_mode="floor"), targets % self.image.width
        down = self.cell * torch.arange(height).repeat_interleave(width) - row.unsqueeze(-1) + self.image.height - 1
        right = self.cell * torch.arange(width).repeat(height) - column.unsqueeze(-1) + self.image.width - 1
        cell = row // self.cell * width + column // self.cell
        seen = (self.places @ self.from_place)[cell] @ (self.places @ self.to_place).T
        return self.near[down * self._reach[1] + right] + self.anywhere + seen

    def neighbours(self) -> NDArray[np.float32]:
        """How much targets look at cells, by displacement: rows and columns of pixels, the sum is 1."""
        return np.asarray(self.near.detach().softmax(0).view(self._reach).numpy())

    def predict(self, maps: Maps) -> Tensor:
        """The labels expected: (n, pixels)."""
        return (maps.labels[:, 0] > 0).long() if self.n_maps == 1 else maps.labels.argmax(1)


def follows(evidence: Evidence, first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """Log-odds that mixtures have the outputs of their first image: (mixtures, targets).

    evidence : of all images.
    first, second : which two images each mixture is made of (mixtures,).
    share : of the first image in each cell (mixtures, cells).
    """
    mixture = torch.arange(len(share))
    direction = evidence.attention * evidence.value
    kept = direction @ share.T  # (images, targets, mixtures)
    replaced = direction.sum(2)[second] - kept[second, :, mixture]
    return evidence.strength[first] * kept[first, :, mixture] - evidence.strength[second] * replaced


def cell_side(image: ImageShape) -> int:
    """Pixels along each side of a cell."""
    return max(1, math.ceil(max(image.size) / MAX_CELLS))


def fourier_features(grid: tuple[int, int]) -> Tensor:
    """Sines and cosines of the places of cells: (cells, features)."""
    height, width = grid
    down, right = np.repeat(np.arange(height) / height, width), np.tile(np.arange(width) / width, height)
    rate = math.pi / 2 * 2.0 ** np.arange(N_FREQUENCIES)
    waves = [wave(rate * place[:, None]) for place in (down, right) for wave in (np.sin, np.cos)]
    return torch.as_tensor(np.concatenate(waves, axis=1).astype(np.float32))
