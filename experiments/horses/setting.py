"""What is explained: a black box, the images it was trained on, test images, and the pixels that are asked about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from black_boxes import CACHE, horse_unet, horse_value_network, horses
from numpy.typing import NDArray

from sointer.metrics import iou
from sointer.models import ImageDeepValueNetwork, UNet, fit_or_load

BLACK_BOXES = {"unet": "U-Net", "dvn": "deep value network"}
N_PAIRS, N_SLOW_PAIRS, FEW_PAIRS = 2000, 500, 24
"""Questions asked; of a black box that takes 20 times as long to answer; of quick runs."""


@dataclass(frozen=True)
class Questions:
    """Pixels of images: why does the black box say of this pixel what it says?"""

    images: NDArray[np.uint8]
    masks: NDArray[np.uint8]
    """What the black box says of the images."""
    image: NDArray[np.int64]
    """Which image each question is about."""
    pixel: NDArray[np.int64]
    """(questions, 2): row and column."""

    def __len__(self) -> int:
        return len(self.image)

    @property
    def said(self) -> NDArray[np.uint8]:
        """What the black box says of the pixel of each question."""
        return self.masks[self.image, self.pixel[:, 0], self.pixel[:, 1]]

    def about(self, chosen: Any) -> Questions:
        """Some of the questions."""
        return replace(self, image=self.image[chosen], pixel=self.pixel[chosen])

    def parts(self, size: int) -> Iterator[Questions]:
        for start in range(0, len(self), size):
            yield self.about(slice(start, start + size))


@dataclass(frozen=True)
class Setting:
    """A black box with the images that explainers are fitted on, and those that they are judged by."""

    model: Any
    train: NDArray[np.uint8]
    test: NDArray[np.uint8]
    truth: NDArray[np.uint8]
    """The true masks of the test images."""
    n_pairs: int

    @property
    def size(self) -> int:
        return self.train.shape[2]

    def ask(self, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return self.model.predict(images).astype(np.uint8)

    def iou(self) -> float:
        return float(np.mean(iou(self.truth, self.ask(self.test))))

    def questions(self, n: int | None = None, images: NDArray[np.uint8] | None = None) -> Questions:
        """Random pixels of random test images: the same whatever the black box, or what was done to the images."""
        rng = np.random.default_rng(0)
        n = self.n_pairs if n is None else n
        image, pixel = rng.integers(len(self.test), size=n), rng.integers(self.size, size=(n, 2))
        shown = self.test if images is None else images
        return Questions(shown, self.ask(shown), image, pixel)

    def questions_about(self, row: int, column: int) -> Questions:
        """One pixel of every test image."""
        n = len(self.test)
        return Questions(self.test, self.ask(self.test), np.arange(n), np.tile([row, column], (n, 1)))


@cache
def setting(black_box: str, size: int = 32, quick: bool = False, judged_by: str = "test") -> Setting:
    """The horses and one of the black boxes; quick: made-up pictures, and models trained for a moment.

    judged_by : "validation" to choose settings, by images that nothing was trained on and no result is about.
    """
    learned_from = "train" if judged_by == "test" else "only train"
    (train, train_masks), (test, truth) = pictures(learned_from, size, quick), pictures(judged_by, size, quick)
    if quick:
        model = fit_or_load(quick_model(black_box), train, train_masks, CACHE)
        return Setting(model, train, test, truth, FEW_PAIRS)
    if black_box == "dvn":
        return Setting(horse_value_network(), train, test, truth, N_SLOW_PAIRS)
    return Setting(horse_unet(size, learned_from), train, test, truth, N_PAIRS)


def pictures(part: str, size: int = 32, quick: bool = False) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images and true masks of a part of the horses; quick: small made-up ones, bright boxes on a dark ground."""
    if not quick:
        return horses(part, size)
    size = size // 2 if size == 32 else size // 4
    rng = np.random.default_rng(0)
    masks = np.zeros((24, size, size), dtype=np.uint8)
    for mask in masks:
        top, left = rng.integers(size // 2, size=2)
        high, wide = rng.integers(size // 4, size // 2, size=2)
        mask[top : top + high, left : left + wide] = 1
    images = (rng.integers(20, 90, size=(24, 3, size, size)) + 120 * masks[:, None]).astype(np.uint8)
    some = slice(16) if part.endswith("train") else slice(16, None)
    return images[some], masks[some]


def quick_model(black_box: str) -> Any:
    steps = {"n_steps": 60, "batch_size": 8, "augment": False, "random_state": 0, "verbose": False}
    if black_box == "dvn":
        return ImageDeepValueNetwork(crop=8, image_width=4, n_pretraining_steps=40, n_inference_steps=3, **steps)
    return UNet(width=4, depth=2, **steps)
