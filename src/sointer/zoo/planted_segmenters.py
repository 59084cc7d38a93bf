"""Segmenters with planted truth: the pixels that decide each output pixel are known, image by image.

They work on any images of at least 16 x 16 pixels, such as photographs; thresholds are estimated from images given to
the constructor. "Red" is the first channel, "brightness" the mean of all channels. Distances are stated for images of
32 x 32 pixels and scale with the image.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sointer._support.unet import convolution, draw_weights
from sointer.errors import InputError
from sointer.zoo.problem import BoolArray
from sointer.zoo.segmenter import OutputKind, Places, PlantedSegmenter

SLOPE = 40.0  # margins per unit of a pixel in [0, 1]
AMBIGUOUS = "ambiguous"


class WindowSegmenter(PlantedSegmenter):
    """A pixel is 1 if the mean red of the 5 x 5 window around it is above the median.

    Truth: the window (case "window").

    Parameters
    ----------
    images : array (n, channels, height, width)
        Images to estimate thresholds from, at least two: whole numbers from 0 to 255, or floats. Images given later
        must have the same shape and range.
    output_kind : {"binary", "probability"}, default "binary"
        Return labels 0 and 1, or the sigmoid of the margin; a label is 1 where the margin is positive.
    """

    name = "window"
    sufficient_cases = frozenset({"window"})

    def _estimate(self, images: Tensor) -> None:
        self.half = self._half(2)
        self.threshold = _quantile(box_means(images[:, 0], self.half), 0.5)

    def _margins(self, images: Tensor) -> Tensor:
        return SLOPE * (box_means(images[:, 0], self.half) - self.threshold)

    def _truth(self, images: Tensor, rows: Places, columns: Places) -> tuple[BoolArray, npt.NDArray[np.str_]]:
        return self._around(rows, columns, self.half), np.full(len(images), "window")


class LandmarkSegmenter(PlantedSegmenter):
    """A pixel is 1 if the red of its 3 x 3 window plus the brightness of a fixed 4 x 4 patch is above average.

    Both are standardised before they are added.

    Truth: both patches if both support the label (case "both"), otherwise the stronger one ("near", "far").

    Parameters
    ----------
    images, output_kind : as in `WindowSegmenter`
    """

    name = "landmark"
    sufficient_cases = frozenset({"both"})

    def _estimate(self, images: Tensor) -> None:
        _, height, width = self.image_shape
        self.half = self._half(1)
        self.rows = slice(round(3 * height / 32), round(7 * height / 32))
        self.columns = slice(round(25 * width / 32), round(29 * width / 32))
        self.near_mean, self.near_std = _moments(box_means(images[:, 0], self.half))
        self.far_mean, self.far_std = _moments(self._patch(images))

    def _patch(self, images: Tensor) -> Tensor:
        return images.mean(1)[:, self.rows, self.columns].mean((1, 2))

    def _parts(self, images: Tensor) -> tuple[Tensor, Tensor]:
        near = (box_means(images[:, 0], self.half) - self.near_mean) / self.near_std
        return near, (self._patch(images) - self.far_mean) / self.far_std

    def _margins(self, images: Tensor) -> Tensor:
        near, far = self._parts(images)
        return 6 * (near + far[:, None, None])

    def _truth(self, images: Tensor, rows: Places, columns: Places) -> tuple[BoolArray, npt.NDArray[np.str_]]:
        near_map, far_value = self._parts(images)
        near, far = near_map.numpy()[np.arange(len(images)), rows, columns], far_value.numpy()
        case = np.where(near * far > 0, "both", np.where(np.abs(near) > np.abs(far), "near", "far"))
        patch = np.zeros(self.image_shape[1:], dtype=np.bool_)
        patch[self.rows, self.columns] = True
        return _where(case != "far", self._around(rows, columns, self.half)) | _where(case != "near", patch), case


class OffsetSegmenter(PlantedSegmenter):
    """A pixel is 1 if its 3 x 3 window is red AND the window 12 rows below it (above it, in the lower half) is bright.

    Truth: both windows where the label is 1 (case "both"); where it is 0, the one that fails ("near", "far");
    ambiguous where both fail.

    Parameters
    ----------
    images, output_kind : as in `WindowSegmenter`
    """

    name = "offset"
    sufficient_cases = frozenset({"both", "near", "far"})

    def _estimate(self, images: Tensor) -> None:
        height = self.image_shape[1]
        self.half = self._half(1)
        away = round(12 * height / 32)
        rows = np.arange(height)
        self.partner = np.where(rows < height // 2, rows + away, rows - away)
        self.near_threshold = _quantile(box_means(images[:, 0], self.half), 0.4)
        self.far_threshold = _quantile(box_means(images.mean(1), self.half), 0.4)

    def _parts(self, images: Tensor) -> tuple[Tensor, Tensor]:
        far = box_means(images.mean(1), self.half)[:, torch.from_numpy(self.partner)]
        return SLOPE * (box_means(images[:, 0], self.half) - self.near_threshold), SLOPE * (far - self.far_threshold)

    def _margins(self, images: Tensor) -> Tensor:
        return torch.minimum(*self._parts(images))

    def _truth(self, images: Tensor, rows: Places, columns: Places) -> tuple[BoolArray, npt.NDArray[np.str_]]:
        near, far = (part.numpy()[np.arange(len(images)), rows, columns] > 0 for part in self._parts(images))
        case = np.where(near & far, "both", np.where(far, "near", np.where(near, "far", AMBIGUOUS)))
        here = self._around(rows, columns, self.half)
        there = self._around(self.partner[rows], columns, self.half)
        return _where(np.isin(case, ("both", "near")), here) | _where(np.isin(case, ("both", "far")), there), case


class FloodSegmenter(PlantedSegmenter):
    """A pixel is 1 if it is bright AND its neighbour towards the middle column is 1: a region grows from a seed.

    Outputs depend on each other. Truth: all pixels from the middle column to the target where the label is 1 (case
    "path"), else the dark ones among them ("gap").

    Parameters
    ----------
    images, output_kind : as in `WindowSegmenter`
    """

    name = "flood"
    sufficient_cases = frozenset({"path", "gap"})

    def _estimate(self, images: Tensor) -> None:
        self.seed_column = self.image_shape[2] // 2
        self.threshold = _quantile(images.mean(1), 0.15)

    def _margins(self, images: Tensor) -> Tensor:
        bright = SLOPE * (images.mean(1) - self.threshold)
        right = torch.cummin(bright[:, :, self.seed_column :], 2).values
        left = torch.cummin(bright[:, :, : self.seed_column + 1].flip(2), 2).values.flip(2)
        return torch.cat([left[:, :, : self.seed_column], right], 2)

    def _truth(self, images: Tensor, rows: Places, columns: Places) -> tuple[BoolArray, npt.NDArray[np.str_]]:
        _, height, width = self.image_shape
        low, high = np.minimum(columns, self.seed_column), np.maximum(columns, self.seed_column)
        place = np.arange(width)
        path = (place >= low[:, None]) & (place <= high[:, None])
        dark = path & ~(SLOPE * (images.mean(1) - self.threshold) > 0).numpy()[np.arange(len(images)), rows]
        is_gap = dark.any(axis=1)
        chosen = np.where(is_gap[:, None], dark, path)
        in_row = np.arange(height) == rows[:, None]
        return np.asarray(in_row[:, :, None] & chosen[:, None, :]), np.where(is_gap, "gap", "path")


class MajoritySegmenter(PlantedSegmenter):
    """A pixel is 1 if at least two of three 3 x 3 windows are red: at the pixel and 7 columns to each side of it.

    Columns wrap around at the sides of the image. As in a conditional random field, a pixel can be outvoted. Truth: the
    windows that agree with the label (case "3 of 3" or "2 of 3").

    Parameters
    ----------
    images, output_kind : as in `WindowSegmenter`
    """

    name = "majority"
    sufficient_cases = frozenset({"3 of 3", "2 of 3"})

    def _estimate(self, images: Tensor) -> None:
        self.half = self._half(1)
        self.away = round(7 * self.image_shape[2] / 32)
        self.threshold = _quantile(box_means(images[:, 0], self.half), 0.5)

    def _votes(self, images: Tensor) -> Tensor:
        own = SLOPE * (box_means(images[:, 0], self.half) - self.threshold)
        return torch.stack([own, own.roll(self.away, 2), own.roll(-self.away, 2)])

    def _margins(self, images: Tensor) -> Tensor:
        return self._votes(images).sort(0).values[1]

    def _truth(self, images: Tensor, rows: Places, columns: Places) -> tuple[BoolArray, npt.NDArray[np.str_]]:
        votes = (self._votes(images) > 0).numpy()[:, np.arange(len(images)), rows, columns]
        agree = votes == (votes.sum(axis=0) >= 2)
        truth = np.zeros((len(images), *self.image_shape[1:]), dtype=np.bool_)
        for own, shift in zip(agree, (0, -self.away, self.away), strict=True):
            truth |= _where(own, self._around(rows, (columns + shift) % self.image_shape[2], self.half))
        return truth, np.where(agree.all(axis=0), "3 of 3", "2 of 3")


class ConvolutionalSegmenter(PlantedSegmenter):
    """A convolutional network with fixed random weights and a receptive field of 2 n_layers + 1 pixels a side.

    Truth (case "field"): the receptive field, which contains every pixel that can matter. How much each matters is
    unknown, so use it to check that nothing outside is selected, not for `r_precision`.

    Parameters
    ----------
    images, output_kind : see `PlantedSegmenter`
    n_layers : int
        Convolutions of 3 x 3 pixels, at least one; this size does not scale with the image.
    random_state : int
        Seed of the weights.
    """

    name = "convolutional"
    sufficient_cases = frozenset({"field"})

    def __init__(
        self, images: npt.ArrayLike, *, output_kind: OutputKind = "binary", n_layers: int = 3, random_state: int = 0
    ) -> None:
        if n_layers < 1:
            raise InputError(f"n_layers must be at least 1, got {n_layers!r}.")
        self.n_layers = n_layers
        self.random_state = random_state
        super().__init__(images, output_kind=output_kind)

    def _estimate(self, images: Tensor) -> None:
        channels = self.image_shape[0]
        widths = [channels, *[8] * (self.n_layers - 1), 1]
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise(widths):
            layers += [convolution(n_in, n_out, 3), nn.LeakyReLU(0.3)]
        self.network = nn.Sequential(*layers[:-1]).requires_grad_(False)
        draw_weights(self.network, torch.Generator().manual_seed(self.random_state))
        self.mean, self.std = _moments(images)
        self.middle, self.spread = 0.0, 1.0
        raw = self._margins(images)
        self.spread = _moments(raw)[1] / 4
        self.middle = _quantile(raw, 0.5)

    def _margins(self, images: Tensor) -> Tensor:
        out: Tensor = self.network((images - self.mean) / self.std)[:, 0]
        return (out - self.middle) / self.spread

    def _truth(self, images: Tensor, rows: Places, columns: Places) -> tuple[BoolArray, npt.NDArray[np.str_]]:
        return self._around(rows, columns, self.n_layers), np.full(len(images), "field")


def box_means(maps: Tensor, half: int) -> Tensor:
    """Means of maps (n, height, width) over windows of 2 half + 1 pixels a side, cut off at the border."""
    return F.avg_pool2d(maps.unsqueeze(1), 2 * half + 1, 1, half, count_include_pad=False)[:, 0]


def _where(chosen: npt.NDArray[np.bool_], masks: BoolArray) -> BoolArray:
    """Masks of the chosen images, nothing in the others: (n, height, width)."""
    return np.asarray(chosen[:, None, None] & masks)


def _quantile(values: Tensor, share: float) -> float:
    return float(np.quantile(values.numpy(), share))


def _moments(values: Tensor) -> tuple[float, float]:
    """Mean and standard deviation."""
    std = float(values.std())
    if not std > 0:
        raise InputError("the images do not vary enough to estimate thresholds from; give different images.")
    return float(values.mean()), std


PLANTED_SEGMENTERS: Mapping[str, type[PlantedSegmenter]] = {
    kind.name: kind for kind in (WindowSegmenter, LandmarkSegmenter, OffsetSegmenter, FloodSegmenter, MajoritySegmenter)
}
"""The segmenters whose truth is exact, by name."""
