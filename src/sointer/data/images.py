"""Images as inputs: their shape, how they become flat rows and back, and the range of their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sointer.errors import InputError

PixelRange = Literal["bytes", "unit", "any"]
"""Whole numbers from 0 to 255; numbers from 0 to 1; or no promise, as with standardised images."""

MAX_USUAL_CHANNELS = 4
LAST_CHANNELS = (1, 3, 4)
BOUNDS: dict[PixelRange, tuple[float, float]] = {
    "bytes": (0.0, 255.0),
    "unit": (0.0, 1.0),
    "any": (-np.inf, np.inf),
}


@dataclass(frozen=True)
class ImageShape:
    """The shape of every image: a feature is a pixel over all channels, a column is one channel of a pixel.

    Columns are ordered channel by channel, as `images.reshape(n, -1)` has them.

    Examples
    --------
    >>> shape = ImageShape(channels=3, height=2, width=4)
    >>> shape.n_pixels, shape.n_columns, shape.pixel_names()[5]
    (8, 24, '(1, 1)')
    """

    channels: int
    height: int
    width: int

    @classmethod
    def of(cls, X: Any, caller: str) -> ImageShape:
        """The shape of images (n, channels, height, width)."""
        _, channels, height, width = (int(side) for side in X.shape)
        if channels > MAX_USUAL_CHANNELS and width in LAST_CHANNELS:
            raise InputError(
                f"{caller}: X has shape {tuple(X.shape)}, which looks as if channels come last; expected (n, channels, "
                "height, width). Transpose it with X.transpose(0, 3, 1, 2) (a tensor with X.permute(0, 3, 1, 2))."
            )
        return cls(channels, height, width)

    @property
    def n_pixels(self) -> int:
        """How many features an image has."""
        return self.height * self.width

    @property
    def n_columns(self) -> int:
        """How many numbers an image has."""
        return self.channels * self.n_pixels

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width

    @property
    def column_pixel(self) -> npt.NDArray[np.int64]:
        """The pixel of every column: (n_columns,)."""
        return np.tile(np.arange(self.n_pixels), self.channels)

    def pixel_names(self) -> list[str]:
        """Names of all pixels, "(row, column)", row by row."""
        return pixel_names(self.size)

    def unflatten(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Flat rows (n, n_columns) as images (n, channels, height, width)."""
        return rows.reshape(-1, self.channels, self.height, self.width)

    def check(self, X: Any, caller: str) -> None:
        """Refuse images of another size or with other channels than these."""
        expected = f"expected images of shape (n, {self.channels}, {self.height}, {self.width}) as in fit"
        if len(X.shape) != 4:
            raise InputError(
                f"{caller}: X has {len(X.shape)} dimensions (shape {tuple(X.shape)}), {expected}. "
                f"{_missing_axis_hint(X) or 'Give the images themselves, not flattened.'}"
            )
        got = ImageShape.of(X, caller)
        if got.size != self.size:
            raise InputError(
                f"{caller}: X has images of {got.height} x {got.width} pixels (shape {tuple(X.shape)}), {expected}. "
                "Resize them."
            )
        if got.channels != self.channels:
            raise InputError(
                f"{caller}: X has {got.channels} channels (shape {tuple(X.shape)}), {expected}. "
                "Convert the images, for example from colour to grey, as those in fit were."
            )


def pixel_names(size: tuple[int, int]) -> list[str]:
    """Names of all pixels of a mask or image, "(row, column)", row by row."""
    height, width = size
    return [f"({row}, {column})" for row in range(height) for column in range(width)]


def image_hint(X: Any) -> str:
    """What to do if an array with too many dimensions was meant as images."""
    return f"Images have shape (n, channels, height, width): {_missing_axis_hint(X) or 'four dimensions.'}"


def _missing_axis_hint(X: Any) -> str:
    if len(X.shape) == 3:
        return "for grey images (n, height, width) add the channel axis with X[:, None]; for one image use X[None]."
    return ""


def find_range(values: npt.NDArray[np.float64]) -> PixelRange:
    """What the values of the images given to fit have in common: (n, columns)."""
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > BOUNDS["bytes"][1]:
        return "any"
    if high <= 1:
        return "unit"
    return "bytes" if _are_whole(values) else "any"


def refuse_mixed_ranges(values: npt.NDArray[np.float64], caller: str) -> None:
    """Refuse images of which some go from 0 to 1 and others from 0 to 255; values are (n, columns)."""
    if values.min() < 0 or not 2 <= values.max() <= BOUNDS["bytes"][1]:
        return
    highest = values.max(axis=1)
    fractions = (highest <= 1) & (values != np.rint(values)).any(axis=1)
    bytes_ = (highest >= 2) & (values == np.rint(values)).all(axis=1)
    if fractions.any() and bytes_.any():
        raise InputError(
            f"{caller}: X has {int(fractions.sum())} images with values from 0 to 1 (such as number "
            f"{int(fractions.argmax())}) beside {int(bytes_.sum())} with whole numbers up to 255 (such as number "
            f"{int(bytes_.argmax())}), expected one range. Divide the latter by 255, or multiply the former by it."
        )


def check_range(values: npt.NDArray[np.float64], known: PixelRange, caller: str) -> None:
    """Refuse images whose values cannot be on the scale of those in fit."""
    low, high = float(values.min()), float(values.max())
    lowest, highest = BOUNDS[known]
    got = f"{caller}: X has values from {low:g} to {high:g}"
    if known == "unit" and (low < lowest or high > highest):
        looks_like_bytes = low >= 0 and 2 <= high <= BOUNDS["bytes"][1]
        remedy = "Divide them by 255." if looks_like_bytes else "Clip them with X.clip(0, 1)."
        raise InputError(f"{got}, expected values from 0 to 1 as in fit. {remedy}")
    if known == "bytes" and (low < lowest or high > highest):
        raise InputError(f"{got}, expected whole numbers from 0 to 255 as in fit. Clip them with X.clip(0, 255).")
    if known == "bytes" and not _are_whole(values):
        remedy = "Multiply them by 255 and round them." if high <= 1 else "Round them with X.round()."
        raise InputError(f"{got} with fractions, expected whole numbers from 0 to 255 as in fit. {remedy}")


def _are_whole(values: npt.NDArray[np.float64]) -> bool:
    return bool((values == np.rint(values)).all())


def mask_iou(predicted: npt.NDArray[Any], truth: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Intersection over union of masks: the mean over the classes but 0 on either side, 1 where there are none."""
    total, n_present = np.zeros((2, len(truth)))
    for label in np.setdiff1d(np.union1d(predicted, truth), [0]):
        found, real = predicted == label, truth == label
        in_either = (found | real).sum(axis=(1, 2))
        total += (found & real).sum(axis=(1, 2)) / np.maximum(in_either, 1)
        n_present += in_either > 0
    return np.where(n_present > 0, total / np.maximum(n_present, 1), 1.0)
