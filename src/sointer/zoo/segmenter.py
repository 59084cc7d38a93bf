"""The base of planted segmenters: a mask for every image, and the pixels that decided each pixel of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sointer._support.validation import check_positive_int
from sointer.data.images import find_range
from sointer.errors import InputError
from sointer.zoo.files import SegmentationData
from sointer.zoo.problem import BoolArray

Places: TypeAlias = npt.NDArray[np.int64]
OutputKind = Literal["binary", "probability"]

MIN_SIDE = 16
CHUNK = 1024


class PlantedSegmenter(ABC):
    """A model from images (n, channels, height, width) to masks (n, height, width) whose decisive pixels are known.

    Parameters
    ----------
    images : array (n, channels, height, width)
        Images to estimate thresholds from, at least two: whole numbers from 0 to 255, or floats. Images given later
        must have the same shape and range.
    output_kind : "binary" or "probability"
        Return labels 0 and 1, or the sigmoid of the margin; a label is 1 where the margin is positive.

    Raises
    ------
    InputError
        If the images are smaller than 16 x 16 pixels or do not vary.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.zoo import FloodSegmenter, random_scenes
    >>> images = random_scenes(40, size=16).images
    >>> segmenter = FloodSegmenter(images)
    >>> segmenter(images).shape
    (40, 16, 16)
    >>> segmenter.cases(images[:4], target=(4, 9)).tolist()
    ['gap', 'path', 'path', 'path']
    >>> segmenter.relevant(images[1:2], target=(4, 9)).nonzero()  # the path from column 8 to the target
    (array([0, 0]), array([4, 4]), array([8, 9]))
    """

    name: ClassVar[str]
    sufficient_cases: ClassVar[frozenset[str]]
    """Cases in which the label stays, whatever the pixels outside the truth are."""

    def __init__(self, images: npt.ArrayLike, *, output_kind: OutputKind = "binary") -> None:
        if output_kind not in ("binary", "probability"):
            raise InputError(f"output_kind must be 'binary' or 'probability', got {output_kind!r}.")
        pixels = np.asarray(images)
        if pixels.ndim != 4 or len(pixels) < 2 or min(pixels.shape[2:]) < MIN_SIDE:
            raise InputError(
                f"{type(self).__name__} needs at least two images (n, channels, height, width) of {MIN_SIDE} x "
                f"{MIN_SIDE} pixels or more, got shape {pixels.shape}."
            )
        if (pixels == pixels[:1]).all():
            raise InputError(f"{type(self).__name__} needs images that differ, got {len(pixels)} equal ones.")
        self.output_kind = output_kind
        self.image_shape: tuple[int, int, int] = pixels.shape[1:]
        self._range = 255.0 if find_range(pixels.astype(np.float64)) == "bytes" else 1.0
        with torch.no_grad():
            self._estimate(self._scaled(pixels))

    @abstractmethod
    def _estimate(self, images: Tensor) -> None:
        """Set thresholds by images in [0, 1]."""

    @abstractmethod
    def _margins(self, images: Tensor) -> Tensor:
        """Margins (n, height, width) of images in [0, 1], differentiable."""

    @abstractmethod
    def _truth(self, images: Tensor, rows: Places, columns: Places) -> tuple[BoolArray, npt.NDArray[np.str_]]:
        """The pixels that decide each image's target, and which case it is."""

    # --- the model ---------------------------------------------------------------------------------------

    def __call__(self, images: npt.ArrayLike) -> npt.NDArray[Any]:
        """Labels (or probabilities) of all pixels: (n, height, width)."""
        margins = self.margins(images)
        if self.output_kind == "probability":
            return np.asarray(torch.sigmoid(torch.from_numpy(margins)).numpy())
        return (margins > 0).astype(np.int64)

    def margins(self, images: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Measure how far each pixel is from the threshold.

        Parameters
        ----------
        images : array (n, channels, height, width)

        Returns
        -------
        array (n, height, width)
            Positive where the label is 1.
        """
        pixels = self._checked(images)
        out = np.empty((len(pixels), *self.image_shape[1:]), dtype=np.float32)
        with torch.no_grad():
            for start in range(0, len(pixels), CHUNK):
                chunk = slice(start, start + CHUNK)
                out[chunk] = self._margins(self._scaled(pixels[chunk])).numpy()
        return out

    def as_module(self) -> nn.Module:
        """Wrap the margins as a torch module, for methods that look inside the model.

        Returns
        -------
        torch.nn.Module
        """
        return _Margins(self)

    # --- the truth ---------------------------------------------------------------------------------------

    def relevant(self, X: npt.ArrayLike, target: Any) -> BoolArray:
        """The pixels that decide the target in each image.

        Parameters
        ----------
        X : array (n, channels, height, width)
        target : (row, column) for all images, or an integer array (n, 2)

        Returns
        -------
        array (n, height, width)
            True for the pixels that support the label and are needed for it; all False if the truth is ambiguous
            because either of two sets alone suffices.
        """
        return self._read_truth(X, target)[0]

    def cases(self, X: npt.ArrayLike, target: Any) -> npt.NDArray[np.str_]:
        """Name the kind of truth that each image has; see the class for the kinds.

        Parameters
        ----------
        X : array (n, channels, height, width)
        target : as in `SOInter.explain`
            A pixel, or one per image.

        Returns
        -------
        array of str (n,)
            "ambiguous" where there is none.
        """
        return self._read_truth(X, target)[1]

    def _read_truth(self, X: npt.ArrayLike, target: Any) -> tuple[BoolArray, npt.NDArray[np.str_]]:
        pixels = self._checked(X)
        place = np.asarray(target)
        size = self.image_shape[1:]
        if place.dtype.kind not in "iu" or place.shape not in ((2,), (len(pixels), 2)):
            raise InputError(f"target must be (row, column) or integers ({len(pixels)}, 2), got {target!r:.60}.")
        if (place < 0).any() or (place >= size).any():
            raise InputError(f"target lies outside the images, which have {size[0]} rows and {size[1]} columns.")
        rows, columns = np.broadcast_to(place, (len(pixels), 2)).astype(np.int64).T
        with torch.no_grad():
            return self._truth(self._scaled(pixels), rows, columns)

    def _checked(self, images: npt.ArrayLike) -> npt.NDArray[Any]:
        pixels = np.asarray(images)
        if pixels.ndim != 4 or pixels.shape[1:] != self.image_shape:
            wanted = ", ".join(map(str, self.image_shape))
            raise InputError(f"{type(self).__name__} takes images of shape (n, {wanted}), got {pixels.shape}.")
        return pixels

    def _scaled(self, pixels: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(pixels.astype(np.float32) / np.float32(self._range))

    # --- parts of rules ----------------------------------------------------------------------------------

    def _half(self, at_32: int) -> int:
        """Half the width of a window that has this half width in images of 32 x 32 pixels."""
        return max(1, round(at_32 * min(self.image_shape[1:]) / 32))

    def _around(self, rows: Places, columns: Places, half: int) -> BoolArray:
        """Windows around places, cut off at the border: (n, height, width)."""
        _, height, width = self.image_shape
        near_row = np.abs(np.arange(height) - rows[:, None]) <= half
        near_column = np.abs(np.arange(width) - columns[:, None]) <= half
        return np.asarray(near_row[:, :, None] & near_column[:, None, :])


class _Margins(nn.Module):
    def __init__(self, segmenter: PlantedSegmenter) -> None:
        super().__init__()
        self.segmenter = segmenter

    def forward(self, images: Tensor) -> Tensor:
        return self.segmenter._margins(images / self.segmenter._range)


FloatArray = npt.NDArray[np.float64]

SHARES = {"train": 0.6, "val": 0.1}
"""Of the split; the rest is "test"."""


def random_scenes(
    n_images: int = 200, *, size: int | tuple[int, int] = 32, channels: int = 3, random_state: int = 0
) -> SegmentationData:
    """Smooth coloured backgrounds with one shaded ellipse each, and the mask of the ellipse.

    As in photographs, nearby pixels are alike and channels are correlated.

    Parameters
    ----------
    n_images : int
    size : int or (height, width)
    channels : int
    random_state : int
        The same seed gives the same images.

    Returns
    -------
    SegmentationData
        Images of whole numbers from 0 to 255, split into train (60 %), val (10 %) and test.

    Examples
    --------
    >>> from sointer.zoo import random_scenes
    >>> data = random_scenes(10, size=(16, 24), channels=1)
    >>> data.images.shape, data.masks.shape, len(data.test.images)
    ((10, 1, 16, 24), (10, 16, 24), 3)
    """
    n = check_positive_int(n_images, "n_images")
    height, width = (size, size) if isinstance(size, int) else size
    rng = np.random.default_rng(random_state)
    shape = (n, height, width)
    inside = _ellipses(shape, rng)
    light = _smooth_noise(shape, rng)
    images = np.empty((n, channels, height, width))
    for channel in range(channels):
        ground, thing = rng.normal(0.45, 0.12, size=(2, n, 1, 1))
        surface = np.where(inside, thing + 0.10 * _smooth_noise(shape, rng), ground + 0.08 * _smooth_noise(shape, rng))
        images[:, channel] = surface + 0.12 * light + 0.02 * rng.standard_normal(shape)
    starts = np.rint(np.cumsum([0.0, *SHARES.values()]) * n).astype(int)
    split = np.full(n, "test", dtype="<U5")
    for name, start, stop in zip(SHARES, starts, starts[1:], strict=False):
        split[start:stop] = name
    return SegmentationData(
        name="random_scenes",
        images=np.rint(images.clip(0, 1) * 255).astype(np.uint8),
        masks=inside.astype(np.uint8),
        split=split,
        file_names=tuple(f"scene{number:05d}" for number in range(n)),
        source=f"generated with random_state={random_state}",
        citation="",
    )


def _smooth_noise(shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
    """Noise whose power falls with the cube of the frequency, standardised image by image."""
    _, height, width = shape
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    waves = np.fft.rfft2(rng.standard_normal(shape)) / (frequency + 0.5 / max(height, width)) ** 1.5
    waves[:, 0, 0] = 0.0
    noise = np.fft.irfft2(waves, s=(height, width))
    return np.asarray(noise / noise.std(axis=(1, 2), keepdims=True))


def _ellipses(shape: tuple[int, int, int], rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """One ellipse per image, anywhere, at any angle."""
    n, height, width = shape
    middle = rng.uniform(0.25, 0.75, size=(2, n, 1, 1))
    radii = rng.uniform(0.12, 0.35, size=(2, n, 1, 1)) * min(height, width)
    angle = rng.uniform(0, np.pi, size=(n, 1, 1))
    down = np.arange(height)[:, None] - middle[0] * height
    right = np.arange(width)[None, :] - middle[1] * width
    along, across = down * np.cos(angle) + right * np.sin(angle), right * np.cos(angle) - down * np.sin(angle)
    return np.asarray((along / radii[0]) ** 2 + (across / radii[1]) ** 2 <= 1)
