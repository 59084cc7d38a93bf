"""The segmenters that are explained, trained once on the horses of the training and validation splits and kept."""

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


def horses(part: str, size: int = 32) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images and masks to learn from ("train": 200) or to judge by ("test": 128)."""
    data = load_weizmann_horses(size=size)
    chosen = (data.split == "test") == (part == "test")
    return data.images[chosen], data.masks[chosen]


def horse_unet(size: int = 32) -> UNet:
    """A U-Net for images of 32 by 32 or 128 by 128 pixels."""
    return fit_or_load(UNet(**UNETS[size], random_state=0), *horses("train", size), CACHE)


def horse_value_network() -> ImageDeepValueNetwork:
    """A deep value network for images of 32 by 32 pixels."""
    return fit_or_load(ImageDeepValueNetwork(random_state=0), *horses("train"), CACHE)
