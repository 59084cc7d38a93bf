"""The interpreter for images: from the energy's evidence to what is shown of pixels, or groups of pixels."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sointer.config import EnergyConfig
from sointer.data.images import ImageShape
from sointer.energy.image import Evidence, ImageEnergy, Maps
from sointer.masking.groups import Groups

MAX_POOLED = 7
"""Cells along each side of the surroundings that a cell shares its sign with; fewer where there are few cells."""
SMOOTH = {0.0: 0.3, 1.0: 1.0, 2.0: 2.0, 4.0: 4.0}
"""Weights of relevance smoothed over so many cells, where neighbouring pixels only count together."""
MAX_PIXELS_OF_REGION = 64
"""Of larger regions so many pixels are looked at, evenly spread."""
N_KEYS, N_VALUES = 16, 8


class Found(NamedTuple):
    """What decides the target of each row, cell by cell: (rows, cells)."""

    relevance: Tensor
    """Share of the decision that lies in each cell: at least 0, the sum is 1."""
    signed: Tensor
    """How much each cell speaks for the output of its image, in log-odds; below 0, against it."""


class ImageInterpreter(nn.Module):
    """Relevance is where a target looks, as far as its surroundings there speak for the output.

    A cell that speaks against the output amid others that speak for it matters as much as these: with other contents
    the output would be surer, or less sure. A whole place that speaks against it did not decide it.
    """

    is_smooth: Tensor
    """Whether neighbouring pixels only count together, as found by queries in fit."""
    evidence_share: Tensor
    """Share of the decision that units must hold to suffice, as found by queries in fit."""
    n_seen: Tensor
    """(classes, pixels) how many images in fit had each label."""
    n_unusual: Tensor
    """(pixels,) how many of them had another probability than usual; 0 for labels."""

    def __init__(self, energy: ImageEnergy) -> None:
        super().__init__()
        self.energy = energy
        self.register_buffer("is_smooth", torch.zeros((), dtype=torch.bool))
        self.register_buffer("evidence_share", torch.ones(()))
        self.register_buffer("n_seen", torch.zeros(energy.n_classes, energy.image.n_pixels, dtype=torch.long))
        self.register_buffer("n_unusual", torch.zeros(energy.image.n_pixels, dtype=torch.long))

    def folded(self) -> ImageInterpreter:
        """The same function for explaining alone, which is quicker."""
        twin = copy.copy(self)
        twin._modules = {"energy": self.energy.folded()}
        return twin

    def forward(self, maps: Maps, targets: Tensor, smooth: bool | None = None) -> Found:
        """Of images, one target each: a pixel, or several of a region (rows, pixels)."""
        evidence = self.energy.evidence(maps, targets)
        of_pixels = self.relevance(evidence)
        relevance = (of_pixels / of_pixels.sum(2, keepdim=True).clamp_min(1e-12)).mean(1)
        if bool(self.is_smooth) if smooth is None else smooth:
            relevance = self._smoothed(relevance)
        return Found(relevance / relevance.sum(1, keepdim=True).clamp_min(1e-12), evidence.signed.mean(1))

    def relevance(self, evidence: Evidence) -> Tensor:
        """(rows, targets, cells), not yet scaled."""
        looked, value = (self._pooled(part) for part in (evidence.attention, evidence.attention * evidence.value))
        found = evidence.attention * (value / looked.clamp_min(1e-12)).clamp_min(0.0)
        # Where nothing speaks for the output, all that is known is where it looks.
        return torch.where(found.sum(2, keepdim=True) > 0, found, evidence.attention)

    def _pooled(self, cells: Tensor) -> Tensor:
        maps = cells.reshape(-1, 1, *self.energy.grid)
        size = min(MAX_POOLED, 2 * (min(self.energy.grid) // 8) + 1)
        return F.avg_pool2d(maps, size, 1, size // 2).view_as(cells)

    def _smoothed(self, relevance: Tensor) -> Tensor:
        maps = relevance.view(-1, 1, *self.energy.grid)
        total = torch.zeros_like(maps)
        for width, weight in SMOOTH.items():
            total += weight * (blurred(maps, width) if width else maps)
        return total.view_as(relevance)

    def of_pixels(self, cells: Tensor) -> Tensor:
        """Amounts in cells (rows, cells) spread over their pixels: (rows, pixels)."""
        energy = self.energy
        if energy.cell == 1:
            return cells
        maps = cells.view(-1, 1, *energy.grid)
        height, width = (side * energy.cell for side in energy.grid)
        fine = F.interpolate(maps, size=(height, width), mode="bilinear", align_corners=False)
        fine = fine[..., : energy.image.height, : energy.image.width].flatten(1)
        scale = cells.sum(1, keepdim=True) / fine.sum(1, keepdim=True)
        return torch.where(fine.sum(1, keepdim=True).abs() > 1e-9, fine * scale, fine / energy.cell**2)


def blurred(maps: Tensor, width: float) -> Tensor:
    """Maps (n, 1, height, width) smoothed by a Gaussian of so many cells; nothing lies beyond the edges."""
    reach = math.ceil(3 * width)
    weights = torch.exp(-torch.arange(-reach, reach + 1).float().square() / (2 * width**2))
    weights = (weights / weights.sum()).view(1, 1, 1, -1)
    along = F.conv2d(maps, weights, padding=(0, reach))
    return F.conv2d(along, weights.transpose(2, 3), padding=(reach, 0))


def sufficient(of_units: Tensor, share: float) -> Tensor:
    """The fewest units that hold this share of the decision: (rows, units) bool."""
    ranked, order = of_units.sort(dim=1, descending=True, stable=True)
    before = ranked.cumsum(1) - ranked
    kept = (before < share * ranked.sum(1, keepdim=True)) & (ranked > 0)
    return torch.zeros_like(of_units, dtype=torch.bool).scatter_(1, order, kept)


@dataclass(frozen=True)
class PixelUnits:
    """What is chosen whole in some images: single pixels, or groups of them."""

    of_pixel: Tensor | None
    """The unit of every pixel (n, pixels); None if each stands alone."""
    n_units: int

    @classmethod
    def of(cls, groups: Groups, n_rows: int) -> PixelUnits:
        """Groups of pixels that are bound to so many rows."""
        if groups.spec is None:
            return cls(None, groups.n_units)
        return cls(torch.as_tensor(groups.unit_of_features(n_rows).astype(np.int64)), groups.n_units)

    def means(self, scores: Tensor) -> Tensor:
        """Of pixels' scores (n, pixels) in every unit: (n, units); -inf for units that an image does not have."""
        if self.of_pixel is None:
            return scores
        total = torch.zeros(len(scores), self.n_units).scatter_add_(1, self.of_pixel, scores)
        count = torch.zeros(len(scores), self.n_units).scatter_add_(1, self.of_pixel, torch.ones_like(scores))
        return torch.where(count > 0, total / count.clamp_min(1.0), -math.inf)

    def sums(self, amounts: Tensor) -> Tensor:
        """Of pixels' amounts (n, pixels) in every unit: (n, units); -inf for units that an image does not have."""
        if self.of_pixel is None:
            return amounts
        total = torch.zeros(len(amounts), self.n_units).scatter_add_(1, self.of_pixel, amounts)
        count = torch.zeros(len(amounts), self.n_units).scatter_add_(1, self.of_pixel, torch.ones_like(amounts))
        return torch.where(count > 0, total, -math.inf)

    def spread(self, of_units: Tensor) -> Tensor:
        """Values of units (n, units) on their pixels: (n, pixels)."""
        return of_units if self.of_pixel is None else of_units.gather(1, self.of_pixel)


def build_networks(
    image: ImageShape, n_classes: int, config: EnergyConfig, *, generator: torch.Generator | None = None
) -> ImageInterpreter:
    """An interpreter and, in it, its energy; with weights if there is a generator to draw them."""
    energy = ImageEnergy(image, n_classes, config.hidden, n_keys=N_KEYS, n_values=N_VALUES)
    if generator is not None:
        energy.initialise(generator)
    return ImageInterpreter(energy)
