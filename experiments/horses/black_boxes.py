"""The segmenters that are explained, trained once and kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.datasets import load_weizmann_horses
from sointer.models import ImageDeepValueNetwork, UNet, fit_or_load

CACHE = Path(os.environ.get("SOINTER_CACHE", Path.home() / ".cache" / "sointer")) / "models"

UNETS: dict[int, dict[str, Any]] = {
    32: {"n_steps": 3000},
    128: {"width": 8, "depth": 5, "n_steps": 1200, "batch_size": 16},
}
"""Settings by the size of the images."""


PARTS = {"train": ("train", "val"), "test": ("test",), "only train": ("train",), "validation": ("val",)}
"""Splits to learn from and to judge by, 200 and 128 images; and, to choose settings by, 160 and 40 of the former."""


def horses(part: str, size: int = 32) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images and masks of a part."""
    data = load_weizmann_horses(size=size)
    chosen = np.isin(data.split, PARTS[part])
    return data.images[chosen], data.masks[chosen]


def horse_unet(size: int = 32, part: str = "train") -> UNet:
    """A U-Net for images of 32 by 32 or 128 by 128 pixels."""
    return fit_or_load(UNet(**UNETS[size], random_state=0), *horses(part, size), CACHE)


def horse_value_network() -> ImageDeepValueNetwork:
    """A deep value network for images of 32 by 32 pixels."""
    return fit_or_load(ImageDeepValueNetwork(random_state=0), *horses("train"), CACHE)
