"""The segmenters that are explained, and the images around them. Those that are trained are trained once and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer.metrics import iou
from sointer.zoo import fit_or_load
from sointer.zoo.files import SegmentationData
from sointer.zoo.image_models import UNet
from sointer.zoo.image_value import ImageDeepValueNetwork
from sointer.zoo.loaders import load_weizmann_horses
from sointer.zoo.planted_segmenters import PLANTED_SEGMENTERS, ConvolutionalSegmenter
from sointer.zoo.segmenter import PlantedSegmenter, random_scenes
from studies.frame.study import model_cache

UNET, VALUE_NETWORK, CONVOLUTIONAL = "U-Net", "deep value network", "convolutional"
UNETS: dict[int, dict[str, Any]] = {
    32: {"n_steps": 1000},
    128: {"width": 8, "depth": 5, "n_steps": 1200, "batch_size": 16},
}
"""Settings by the size of the images."""
QUICK_STEPS: dict[str, Any] = {"n_steps": 60, "batch_size": 8, "augment": False, "verbose": False}
QUICK_SIZES = {32: 16, 128: 32}
"""In smoke runs, the size of generated images that stand in for those of the horses."""


@dataclass(frozen=True, eq=False)
class Segmenter:
    """A model from images (n, channels, height, width) to masks (n, height, width), and the images around it."""

    predict: Callable[[Any], NDArray[Any]]
    fit_images: NDArray[np.uint8]
    """Training and validation images: all that explainers see before they explain."""
    test_images: NDArray[np.uint8]
    module: nn.Module | None
    """Its logits as a torch module, for methods that look inside; None where gradients say nothing."""
    planted: PlantedSegmenter | None = None
    """Where the deciding pixels are known."""
    iou: float | None = None
    """Of the masks of test images with the true ones."""

    @property
    def size(self) -> int:
        return self.test_images.shape[2]


class Logits(nn.Module):
    """A U-Net's logits of images of bytes."""

    def __init__(self, unet: UNet) -> None:
        super().__init__()
        self.network = unet.folded_

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images / 255)
        return logits[:, 0]


@lru_cache(maxsize=4)
def load_images(size: int = 32, quick: bool = False) -> SegmentationData:
    """The Weizmann horses; for smoke runs, generated scenes."""
    return random_scenes(60, size=QUICK_SIZES[size]) if quick else load_weizmann_horses(size=size)


@lru_cache(maxsize=8)
def load_segmenter(name: str, size: int = 32, seed: int = 0, quick: bool = False) -> Segmenter:
    """A segmenter by its name: the U-Net, the deep value network, or one of those with planted truth.

    The seed is that of training, or of the convolutional segmenter's weights; the other planted ones have none.
    """
    data = load_images(size, quick)
    (images, masks), (test_images, test_masks) = data.part("train", "val"), data.test
    if name in (UNET, VALUE_NETWORK):
        model = fit_or_load(_untrained(name, size, seed, quick), images, masks, model_cache())
        return Segmenter(
            predict=model.predict,
            fit_images=images,
            test_images=test_images,
            module=Logits(model) if isinstance(model, UNet) else None,
            iou=float(np.mean(iou(test_masks, model.predict(test_images)))),
        )
    convolutional = name == CONVOLUTIONAL
    planted = ConvolutionalSegmenter(images, random_state=seed) if convolutional else PLANTED_SEGMENTERS[name](images)
    return Segmenter(planted, images, test_images, planted.as_module(), planted)


def _untrained(name: str, size: int, seed: int, quick: bool) -> Any:
    if name == UNET:
        return UNet(**({"width": 4, "depth": 2, **QUICK_STEPS} if quick else UNETS[size]), random_state=seed)
    small: dict[str, Any] = {"crop": 8, "image_width": 4, "n_pretraining_steps": 40, "n_inference_steps": 3}
    return ImageDeepValueNetwork(**({**small, **QUICK_STEPS} if quick else {}), random_state=seed)
