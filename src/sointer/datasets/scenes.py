"""Images that look a little like photographs, generated: nothing has to be downloaded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sointer._support.validation import check_positive_int
from sointer.datasets.records import SegmentationData

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
    >>> from sointer.datasets import random_scenes
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
