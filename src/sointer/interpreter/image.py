"""The interpreter for images: one network that scores all pixels, told by a map which of them is the target."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from torch import Tensor, nn

from sointer.convolution import UNetwork, channels_last, draw_weights
from sointer.energy.image import ImageEnergy, stride_for
from sointer.groups import Groups

NEAR = 2.0
"""Pixels over which the map of nearness falls off."""
FAR = 16.0
"""Pixels that make the maps of direction 1."""
SOME = 4.0
MARK = 3.0


class ImageInterpreter(nn.Module):
    """Scores of pixels = a U-Net's + those of nearness to the target + the energy's saliency for the target's value.

    The U-Net sees the image, what the energy expects the mask to be, the target and its value, how near and in which
    direction the target is, and the saliency. A target is a map of weights: one pixel, or a region.
    """

    def __init__(self, energy: ImageEnergy, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.energy = energy
        image, n_maps = energy.image, energy.n_maps
        n_channels = image.channels + 3 * n_maps + 4
        self.network = UNetwork(n_channels, 1, widths, stride=stride_for(image))
        self.gains = nn.Parameter(torch.tensor([1.0, 0.5]))
        """Of distance, in units of some pixels, and of saliency."""

    def initialise(self, generator: torch.Generator) -> ImageInterpreter:
        """Draw all weights."""
        draw_weights(self.network, generator)
        channels_last(self.network)
        return self

    def folded(self) -> ImageInterpreter:
        """The same function for answering alone, which is quicker."""
        twin = copy.deepcopy(self).eval().requires_grad_(False)
        twin.network, twin.energy.unary = twin.network.folded(), twin.energy.unary.folded()
        return twin

    def forward(self, x: Tensor, absent: Tensor, region: Tensor, codes: Tensor, distance: Tensor) -> Tensor:
        """Scores of pixels, the larger the more they decide the target: (n, pixels).

        x, absent : rows, and what stands in for what is removed from them (n, columns).
        region : weights of the pixels that are the target (n, pixels); its value is that of `codes` (n, pixels).
        distance : of every pixel from the region (n, pixels).
        """
        salient, expected = self._saliency(x, absent, region, codes)
        maps = self._maps(x, region, codes, distance, salient, expected)
        own = self.network(maps).flatten(1)
        scores: Tensor = own - self.gains[0] * distance / SOME + self.gains[1] * salient
        return scores

    def _saliency(self, x: Tensor, absent: Tensor, region: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """How much every pixel speaks for the target's value, in [-1, 1]; and what mask the energy expects."""
        image = self.energy.image
        with torch.enable_grad():
            point = x.detach().requires_grad_(True)
            logits = self.energy.log_odds(point).flatten(2)
            if self.energy.n_maps == 1:
                evidence = logits[:, 0] * (2 * codes - 1)
            else:
                own = logits.gather(1, codes.unsqueeze(1)).squeeze(1)
                evidence = own - logits.logsumexp(1)
            (gradient,) = torch.autograd.grad((evidence * region).sum(), point)
        of_pixel = (gradient * (x - absent)).view(-1, image.channels, image.n_pixels).sum(1)
        share = of_pixel / of_pixel.abs().amax(1, keepdim=True).clamp_min(1e-12)
        expected = logits.detach().view(-1, self.energy.n_maps, *image.size)
        return share.sign() * share.abs().sqrt(), expected.clamp(-8, 8) / 4

    def _maps(
        self, x: Tensor, region: Tensor, codes: Tensor, distance: Tensor, salient: Tensor, expected: Tensor
    ) -> Tensor:
        image, n_maps = self.energy.image, self.energy.n_maps
        height, width = image.size
        target = region / region.amax(1, keepdim=True) * MARK
        if n_maps == 1:
            told = (target * (2 * codes - 1)).unsqueeze(1)
        else:
            told = torch.zeros(len(x), n_maps, image.n_pixels).scatter_(1, codes.unsqueeze(1), target.unsqueeze(1))
        share = region / region.sum(1, keepdim=True)
        # Everywhere, for what is marked at one pixel only is lost on the way to pixels far from it.
        value = (told * (share / MARK).unsqueeze(1)).sum(2, keepdim=True).expand(-1, -1, image.n_pixels)
        rows = torch.arange(height, dtype=torch.float32).repeat_interleave(width)
        columns = torch.arange(width, dtype=torch.float32).repeat(height)
        down = (rows - (share * rows).sum(1, keepdim=True)) / FAR
        right = (columns - (share * columns).sum(1, keepdim=True)) / FAR
        near = torch.exp(-distance.square() / (2 * NEAR**2))
        flat = torch.cat([told, value, torch.stack([near, down, right, 2 * salient], 1)], 1)
        return torch.cat([self.energy.as_maps(x), expected, flat.view(len(x), -1, height, width)], 1)


def distance_to(region: NDArray[np.bool_], size: tuple[int, int]) -> NDArray[np.float32]:
    """How far every pixel is from the nearest one of its row's region (n, pixels), in pixels: (n, pixels)."""
    height, width = size
    distance = np.empty(region.shape, dtype=np.float32)
    single = region.sum(axis=1) == 1
    if single.any():
        row, column = np.divmod(region[single].argmax(axis=1), width)
        down = np.arange(height)[None, :, None] - row[:, None, None]
        right = np.arange(width)[None, None, :] - column[:, None, None]
        distance[single] = np.hypot(down, right).reshape(-1, height * width)
    found: dict[bytes, NDArray[np.float32]] = {}
    for i in np.flatnonzero(~single):
        key = np.packbits(region[i]).tobytes()
        if key not in found:
            found[key] = distance_transform_edt(~region[i].reshape(size)).astype(np.float32).ravel()
        distance[i] = found[key]
    return distance


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
        return cls(torch.from_numpy(groups.unit_of_features(n_rows).astype(np.int64)), groups.n_units)

    def means(self, scores: Tensor) -> Tensor:
        """Of pixels' scores (n, pixels) in every unit: (n, units); -inf for units that an image does not have."""
        if self.of_pixel is None:
            return scores
        total = torch.zeros(len(scores), self.n_units).scatter_add_(1, self.of_pixel, scores)
        count = torch.zeros(len(scores), self.n_units).scatter_add_(1, self.of_pixel, torch.ones_like(scores))
        return torch.where(count > 0, total / count.clamp_min(1.0), -math.inf)

    def spread(self, of_units: Tensor) -> Tensor:
        """Values of units (n, units) on their pixels: (n, pixels)."""
        return of_units if self.of_pixel is None else of_units.gather(1, self.of_pixel)
