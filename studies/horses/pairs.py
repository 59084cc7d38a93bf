"""What is explained and how it is kept: pairs of a test image and a pixel, and a yes or no for each of them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

N_RESAMPLED = 2000


class Pairs(NamedTuple):
    """Targets of test images."""

    image: NDArray[np.int64]
    """(pairs,) numbers of images."""
    pixel: NDArray[np.int64]
    """(pairs, 2) rows and columns."""

    def first(self, n: int) -> Pairs:
        return Pairs(self.image[:n], self.pixel[:n])


def draw_pairs(n: int, n_images: int, size: int) -> Pairs:
    """Pixels at random, every image equally often: the same for all models and methods. The first are of n are also
    those of fewer."""
    rng = np.random.default_rng(0)
    pixel = rng.integers(size, size=(n, 2))
    order = np.random.default_rng(1)
    image = np.concatenate([order.permutation(n_images) for _ in range(-(-n // n_images))])[:n]
    return Pairs(image, pixel)


def pack(bits: NDArray[np.bool_]) -> str:
    """Bits as text."""
    return base64.b64encode(np.packbits(bits).tobytes()).decode()


def unpack(text: str, n: int) -> NDArray[np.bool_]:
    """The first n bits of a text made by `pack`."""
    return np.unpackbits(np.frombuffer(base64.b64decode(text), dtype=np.uint8))[:n].astype(bool)


def mean_of_images(
    values: Sequence[NDArray[np.float64]], images: Sequence[NDArray[np.int64]]
) -> tuple[float, float, float]:
    """Mean of values, and its 95 % interval if images are drawn anew with replacement, those of all seeds together."""
    joined, image = np.concatenate(values), np.concatenate(images)
    n_images = int(image.max()) + 1
    total, count = np.bincount(image, joined, n_images), np.bincount(image, minlength=n_images)
    present = np.flatnonzero(count)
    drawn = present[np.random.default_rng(0).integers(len(present), size=(N_RESAMPLED, len(present)))]
    means = total[drawn].sum(axis=1) / count[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(joined.mean()), float(low), float(high)
