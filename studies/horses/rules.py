"""Rules on photographs whose deciding pixels are known, besides those of `sointer.zoo`.

The last four were written down before version 3 of the method for images was run on them, and it was not changed after.
The first four are older: version 3 learns longer because *switch* showed that it pays, and *ring* was looked at too.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sointer.zoo.planted_segmenters import AMBIGUOUS, SLOPE, box_means
from sointer.zoo.segmenter import Places, PlantedSegmenter

Truth = tuple[NDArray[np.bool_], NDArray[np.str_]]


class Mirror(PlantedSegmenter):
    """The green of the 3 x 3 window in the mirrored column: how far away it is differs from column to column."""

    name = "mirror"

    def _estimate(self, images: Tensor) -> None:
        self.half = self._half(1)
        self.threshold = float(box_means(images[:, 1], self.half).median())

    def _margins(self, images: Tensor) -> Tensor:
        return SLOPE * (box_means(images[:, 1], self.half).flip(2) - self.threshold)

    def _truth(self, images: Tensor, rows: Places, columns: Places) -> Truth:
        mirrored = self.image_shape[2] - 1 - columns
        return self._around(rows, mirrored, self.half), np.full(len(images), "window")


class WholeRow(PlantedSegmenter):
    """The mean brightness of the whole row."""

    name = "row"

    def _estimate(self, images: Tensor) -> None:
        self.threshold = float(images.mean((1, 3)).median())

    def _margins(self, images: Tensor) -> Tensor:
        means = images.mean((1, 3))[:, :, None]
        return SLOPE * (means - self.threshold).expand(-1, -1, self.image_shape[2])

    def _truth(self, images: Tensor, rows: Places, columns: Places) -> Truth:
        own = np.arange(self.image_shape[1])[None, :, None] == rows[:, None, None]
        return np.repeat(own, self.image_shape[2], axis=2), np.full(len(images), "row")


class Ring(PlantedSegmenter):
    """The ring of pixels at a distance of 5 and 6 is brighter than the 3 x 3 window in its middle."""

    name = "ring"

    def _estimate(self, images: Tensor) -> None:
        self.inner, self.hole, self.outer = self._half(1), self._half(4), self._half(6)
        self.threshold = 0.0
        self.threshold = float(self._margins(images).median()) / SLOPE

    def _margins(self, images: Tensor) -> Tensor:
        away = torch.arange(-self.outer, self.outer + 1).abs()
        distance = torch.maximum(away[:, None], away[None])
        ring, middle = (distance > self.hole).float(), (distance <= self.inner).float()
        kernel = ring / ring.sum() - middle / middle.sum()
        padded = F.pad(images.mean(1, keepdim=True), (self.outer,) * 4, mode="replicate")
        return SLOPE * (F.conv2d(padded, kernel[None, None])[:, 0] - self.threshold)

    def _truth(self, images: Tensor, rows: Places, columns: Places) -> Truth:
        outer, hole, inner = (self._around(rows, columns, half) for half in (self.outer, self.hole, self.inner))
        return (outer & ~hole) | inner, np.full(len(images), "ring and middle")


class Switch(PlantedSegmenter):
    """A bright patch in a corner: the blue of the window here decides, otherwise that of the window 10 columns on.

    Truth: the patch and the window that it chooses, where the two windows speak for different labels; else either of
    them would do, and the truth is ambiguous.
    """

    name = "switch"

    def _estimate(self, images: Tensor) -> None:
        _, height, width = self.image_shape
        self.half, self.away = self._half(1), round(10 * width / 32)
        self.rows = slice(round(24 * height / 32), round(30 * height / 32))
        self.columns = slice(round(2 * width / 32), round(8 * width / 32))
        self.gate = float(self._patch(images).median())
        self.threshold = float(box_means(images[:, 2], self.half).median())

    def _patch(self, images: Tensor) -> Tensor:
        return images[:, :, self.rows, self.columns].mean((1, 2, 3))

    def _parts(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        here = SLOPE * (box_means(images[:, 2], self.half) - self.threshold)
        is_here = torch.sigmoid(SLOPE * (self._patch(images) - self.gate))[:, None, None]
        return is_here, here, torch.roll(here, -self.away, 2)

    def _margins(self, images: Tensor) -> Tensor:
        is_here, here, there = self._parts(images)
        return is_here * here + (1 - is_here) * there

    def _truth(self, images: Tensor, rows: Places, columns: Places) -> Truth:
        is_here, here, there = (part.numpy() for part in self._parts(images))
        at = np.arange(len(images)), rows, columns
        differ = here[at] * there[at] < 0
        chosen = np.where(is_here[:, 0, 0] > 0.5, columns, (columns + self.away) % self.image_shape[2])
        truth = self._around(rows, chosen, self.half)
        truth[:, self.rows, self.columns] = True
        return truth & differ[:, None, None], np.where(differ, "patch and window", AMBIGUOUS)


class Diagonal(PlantedSegmenter):
    """The mean blue of the nine pixels of a falling diagonal through the pixel; it goes on at the other side."""

    name = "diagonal"

    def _estimate(self, images: Tensor) -> None:
        self.half = self._half(4)
        self.threshold = 0.0
        self.threshold = float(self._margins(images).median()) / SLOPE

    def _margins(self, images: Tensor) -> Tensor:
        steps = range(-self.half, self.half + 1)
        return SLOPE * (torch.stack([images[:, 2].roll((-n, -n), (1, 2)) for n in steps]).mean(0) - self.threshold)

    def _truth(self, images: Tensor, rows: Places, columns: Places) -> Truth:
        _, height, width = self.image_shape
        truth = np.zeros((len(images), height, width), dtype=bool)
        for n in range(-self.half, self.half + 1):
            truth[np.arange(len(images)), (rows + n) % height, (columns + n) % width] = True
        return truth, np.full(len(images), "diagonal")


class Reflection(PlantedSegmenter):
    """The brightness of the 5 x 5 window at the opposite place: above and below as well as left and right."""

    name = "reflection"

    def _estimate(self, images: Tensor) -> None:
        self.half = self._half(2)
        self.threshold = float(box_means(images.mean(1), self.half).median())

    def _margins(self, images: Tensor) -> Tensor:
        return SLOPE * (box_means(images.mean(1), self.half).flip(1, 2) - self.threshold)

    def _truth(self, images: Tensor, rows: Places, columns: Places) -> Truth:
        _, height, width = self.image_shape
        return self._around(height - 1 - rows, width - 1 - columns, self.half), np.full(len(images), "window")


class Contrast(PlantedSegmenter):
    """The window here is redder than the one nine columns on; columns go on at the other side."""

    name = "contrast"

    def _estimate(self, images: Tensor) -> None:
        self.half, self.away = self._half(1), round(9 * self.image_shape[2] / 32)

    def _margins(self, images: Tensor) -> Tensor:
        here = box_means(images[:, 0], self.half)
        return SLOPE * (here - here.roll(-self.away, 2))

    def _truth(self, images: Tensor, rows: Places, columns: Places) -> Truth:
        there = (columns + self.away) % self.image_shape[2]
        windows = (self._around(rows, place, self.half) for place in (columns, there))
        return np.logical_or(*windows), np.full(len(images), "both windows")


class Flip(PlantedSegmenter):
    """The window here is green, unless the patch in the upper left corner is bright: then it is not. Both count."""

    name = "flip"

    def _estimate(self, images: Tensor) -> None:
        _, height, width = self.image_shape
        self.half = self._half(1)
        self.rows = slice(round(2 * height / 32), round(6 * height / 32))
        self.columns = slice(round(2 * width / 32), round(6 * width / 32))
        self.gate = float(self._brightness(images).median())
        self.threshold = float(box_means(images[:, 1], self.half).median())

    def _brightness(self, images: Tensor) -> Tensor:
        return images.mean(1)[:, self.rows, self.columns].mean((1, 2))

    def _margins(self, images: Tensor) -> Tensor:
        here = SLOPE * (box_means(images[:, 1], self.half) - self.threshold)
        dark = -torch.tanh(SLOPE * (self._brightness(images) - self.gate))
        return here * dark[:, None, None]

    def _truth(self, images: Tensor, rows: Places, columns: Places) -> Truth:
        truth = self._around(rows, columns, self.half)
        truth[:, self.rows, self.columns] = True
        return truth, np.full(len(images), "patch and window")


OLDER: dict[str, type[PlantedSegmenter]] = {rule.name: rule for rule in (Mirror, WholeRow, Ring, Switch)}
UNSEEN: dict[str, type[PlantedSegmenter]] = {rule.name: rule for rule in (Diagonal, Reflection, Contrast, Flip)}
WHAT = {
    "mirror": "the green of a window in the mirrored column",
    "row": "the brightness of the whole row",
    "ring": "a ring of pixels brighter than its middle",
    "switch": "a patch in a corner chooses which of two windows decides",
    "diagonal": "the blue of nine pixels on a diagonal",
    "reflection": "the brightness of a window at the opposite place of the image",
    "contrast": "one window redder than another",
    "flip": "a bright patch in a corner turns the decision of a window into its opposite",
}
