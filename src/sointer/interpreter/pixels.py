"""Pixels as places and as parts of groups: how far each is from the target, and what is chosen whole."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from sointer.groups import Groups


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
