"""Pixels as parts of groups: what is chosen whole."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sointer.masking.groups import Groups


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
