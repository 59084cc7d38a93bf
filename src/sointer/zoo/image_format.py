"""Images and masks as the models of this package take them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support import containers
from sointer.data.images import ImageShape
from sointer.errors import InputError

BYTE = 255


@dataclass(frozen=True)
class ImageFormat(ImageShape):
    """Shape of the images, and the largest value of a pixel: 255 for whole numbers, 1 for others."""

    brightest: int

    @classmethod
    def infer(cls, images: Any, caller: str) -> ImageFormat:
        """The format of the images a model is fitted to."""
        pixels = _numbers(images, caller, "images")
        if pixels.ndim != 4 or not all(pixels.shape):
            raise InputError(
                f"{caller}: images is {containers.describe(images)}, expected an array (images, channels, height, "
                "width). Move the channels of (images, height, width, channels) with transpose(0, 3, 1, 2)."
            )
        brightest = BYTE if np.issubdtype(pixels.dtype, np.integer) else 1
        channels, height, width = (int(size) for size in pixels.shape[1:])
        return cls(channels, height, width, brightest)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.channels, self.height, self.width

    def pixels(self, images: Any, caller: str) -> NDArray[Any]:
        """Images of this format as numpy, in the numbers they came in."""
        pixels = _numbers(images, caller, "images")
        if pixels.ndim != 4 or pixels.shape[1:] != self.shape:
            raise InputError(
                f"{caller}: images has shape {pixels.shape}, expected (images, {', '.join(map(str, self.shape))}) as "
                "in fit. Give images of that size; one image needs a first axis of length 1."
            )
        if not len(pixels):
            return pixels
        low, high = pixels.min(), pixels.max()
        if not (low >= 0 and high <= self.brightest):  # so that NaN fails, too
            wrong = low if not low >= 0 else high
            raise InputError(
                f"{caller}: images holds {wrong}, expected numbers from 0 to {self.brightest} as in fit. "
                f"{'Multiply or divide by 255' if np.isfinite(wrong) else 'Remove what is not a number'}, or clip."
            )
        if self.brightest == BYTE and 0 < high <= 1 and np.issubdtype(pixels.dtype, np.floating):
            raise InputError(
                f"{caller}: images holds {pixels.dtype} up to {high}, expected numbers from 0 to 255 as in fit, of "
                "which these would be all but black. Multiply them by 255."
            )
        return pixels

    def to_json(self) -> dict[str, int]:
        """The format as JSON types."""
        return asdict(self)


def check_masks(masks: Any, n_images: int, image_format: ImageFormat, caller: str) -> NDArray[np.int64]:
    """Masks as classes 0, 1, ...: (images, height, width)."""
    table = _numbers(masks, caller, "masks")
    expected = (n_images, image_format.height, image_format.width)
    if table.shape != expected:
        raise InputError(
            f"{caller}: masks has shape {table.shape}, expected {expected}. "
            "Give one class for each pixel of each image."
        )
    fits = (table >= 0) & (table < 256) & (table == np.floor(table))
    if not fits.all():
        raise InputError(
            f"{caller}: masks holds {table[~fits][0]}, expected the classes 0, 1, ..., 0 being the background. "
            "Round or number them so."
        )
    return table.astype(np.int64)


def _numbers(given: Any, caller: str, what: str) -> NDArray[Any]:
    """A numpy array of numbers; booleans count as integers."""
    array = containers.tensor_to_numpy(given) if containers.is_tensor(given) else np.asarray(given)
    if array.dtype == np.bool_:
        return array.astype(np.uint8)
    if not np.issubdtype(array.dtype, np.integer) and not np.issubdtype(array.dtype, np.floating):
        raise InputError(
            f"{caller}: {what} is {containers.describe(given)}, expected an array of numbers. Convert it with "
            "np.asarray, all images being of one size."
        )
    return array
