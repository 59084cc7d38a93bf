"""Removed pixels take the values of a blurred copy of the same image."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter1d

from sointer.inputs import ImageShape
from sointer.removal.base import BoolArray, FloatArray, Removal, check_mask

SHARE_OF_HEIGHT = 1 / 8
TOLERANCE = 1e-9  # blurring rounds: smaller differences, as a share of the largest value, are none


class BlurRemoval(Removal):
    """Each channel of an image, blurred by a Gaussian with a standard deviation of an eighth of the image's height.

    Beyond the edges an image goes on with the values at its edges. Where images hold integers, so do blurred ones.
    """

    name = "blur"
    is_random = False

    def __init__(self, image: ImageShape, usual: FloatArray, *, whole: bool) -> None:
        self.image = image
        self.usual = usual
        self.whole = whole
        sigma = SHARE_OF_HEIGHT * image.height
        # A blur is linear in the rows and in the columns, so it is two small matrix products.
        self._down = gaussian_filter1d(np.eye(image.height), sigma, axis=0, mode="nearest")
        self._across = gaussian_filter1d(np.eye(image.width), sigma, axis=0, mode="nearest").T

    def blurred(self, Z: FloatArray) -> FloatArray:
        """Encoded images with everything removed."""
        images = self._down @ self.image.unflatten(Z) @ self._across
        return np.asarray((np.rint(images) if self.whole else images).reshape(Z.shape))

    def apply(self, Z: FloatArray, keep: BoolArray, rng: np.random.Generator) -> FloatArray:
        check_mask(Z, keep, self.image.n_columns)
        return np.where(keep, Z, self.blurred(Z))

    def references(self, n: int, rng: np.random.Generator) -> FloatArray:
        """The blurred mean of the training images; what an image becomes itself depends on the image."""
        return self.blurred(self.usual[None])

    def differs(self, Z: FloatArray) -> BoolArray:
        return np.asarray(np.abs(Z - self.blurred(Z)) > TOLERANCE * np.abs(Z).max(axis=1, keepdims=True))

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        image = [self.image.channels, self.image.height, self.image.width]
        return {"type": "blur", "name": self.name, "image": image, "whole": self.whole}, {"usual": self.usual}
