"""Superpixels: the pixels of each image in groups of its own, which follow its edges."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from sointer._support.containers import is_sparse, row_keys
from sointer._support.validation import check_positive_int
from sointer.data.images import ImageShape, PixelRange
from sointer.errors import InputError, require_extra
from sointer.masking.groups import BoolArray, FloatTable, Groups, check_columns

Labels = npt.NDArray[np.int32]

LEAST = 1e-9
"""Compactness; with hardly any, SLIC divides by nothing and leaves pixels without a segment."""


@dataclass(frozen=True)
class Superpixels:
    """Superpixels, found by SLIC (scikit-image) in every image, whose pixels are selected together.

    Parameters
    ----------
    n_segments : int, default 50
        Maximum number of superpixels per image.
    compactness : float, default 10
        Larger values give squarer superpixels, smaller ones follow colours more closely. Grey images are treated as
        colour images with equal channels. For images with 2, or more than 3, channels, about 0.1 is a better choice.

    Examples
    --------
    >>> from sointer import Superpixels
    >>> Superpixels(n_segments=30)
    Superpixels(n_segments=30, compactness=10.0)
    """

    n_segments: int = 50
    compactness: float = 10.0

    def __post_init__(self) -> None:
        check_positive_int(self.n_segments, "n_segments of Superpixels", minimum=2)
        value = self.compactness
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not LEAST <= value <= 1 / LEAST:
            raise InputError(
                f"compactness of Superpixels must be a number from {LEAST:g} to {1 / LEAST:g}, got {value!r}; "
                "10 is usual."
            )

    def segment(self, image: npt.NDArray[np.float64]) -> Labels:
        """Find the superpixels of one image.

        Parameters
        ----------
        image : array (channels, height, width)
            Values in [0, 1].

        Returns
        -------
        array (height x width,)
            The superpixel of every pixel, numbered from 0 in the order of their first pixel.
        """
        slic = require_extra("skimage.segmentation", "images").slic
        if len(image) == 1:
            image = np.repeat(image, 3, axis=0)
        found = slic(image, n_segments=self.n_segments, compactness=self.compactness, channel_axis=0, start_label=0)
        _, first, label = np.unique(merge_smallest(found, self.n_segments), return_index=True, return_inverse=True)
        number = np.empty(len(first), dtype=np.int32)
        number[np.argsort(first)] = np.arange(len(first))
        return number[label.reshape(-1)]


def merge_smallest(segments: npt.NDArray[np.int64], n_most: int) -> npt.NDArray[np.int64]:
    """At most n_most segments (height, width): the smallest join the neighbour with which they share most border.

    SLIC finds only about as many as it is asked for.
    """
    segments = segments.copy()
    while True:
        sizes = np.bincount(segments.ravel())
        present = np.flatnonzero(sizes)
        if len(present) <= n_most:
            return segments
        smallest = present[sizes[present].argmin()]
        inside = segments == smallest
        beside = [
            segments[:, 1:][inside[:, :-1]],
            segments[:, :-1][inside[:, 1:]],
            segments[1:][inside[:-1]],
            segments[:-1][inside[1:]],
        ]
        neighbours = np.concatenate(beside)
        segments[inside] = np.bincount(neighbours[neighbours != smallest]).argmax()


@dataclass(frozen=True, eq=False)
class SuperpixelGroups(Groups):
    """The superpixels of images of one shape; of some given images once `bind` was called."""

    superpixels: Superpixels
    image: ImageShape
    pixel_range: PixelRange
    labels: Labels | None = None
    """The superpixel of every pixel of the images they are bound to: (rows, pixels)."""

    def __post_init__(self) -> None:
        names = [f"superpixel {number}" for number in range(self.superpixels.n_segments)]
        object.__setattr__(self, "unit_names", names)

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("unit_of_feature", "unit_of_column", "members"):
            raise InputError(
                f"superpixels have no {name}: they differ from image to image. Give groups that are the same for all "
                "images, such as Patches, or none."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def spec(self) -> Superpixels:
        return self.superpixels

    def bind(self, rows: Any) -> SuperpixelGroups:
        """The superpixels of encoded images (n, n_columns); equal images are segmented once."""
        dense = np.asarray(rows.toarray() if is_sparse(rows) else rows, dtype=np.float64)
        found: dict[bytes, Labels] = {}
        labels = np.empty((len(dense), self.image.n_pixels), dtype=np.int32)
        for i, key in enumerate(row_keys(dense)):
            if key not in found:
                (one,) = self.image.unflatten(dense[i])
                found[key] = self.superpixels.segment(self._scaled(one))
            labels[i] = found[key]
        return replace(self, labels=labels)

    def take(self, index: npt.NDArray[np.int64] | slice) -> SuperpixelGroups:
        return replace(self, labels=self._bound()[index])

    def to_columns(self, unit_mask: npt.ArrayLike) -> BoolArray:
        return np.tile(self.to_features(unit_mask), (1, self.image.channels))

    def to_features(self, unit_mask: npt.ArrayLike) -> BoolArray:
        mask = self._check_mask(unit_mask)
        return np.take_along_axis(mask, self._labels_of(len(mask)), axis=1)

    def unit_of_features(self, n_rows: int) -> npt.NDArray[np.integer[Any]]:
        return self._labels_of(n_rows)

    def sum_columns(self, values: npt.ArrayLike) -> FloatTable:
        table = check_columns(values, self.image.n_columns)
        labels = self._labels_of(len(table))
        of_pixel = table.reshape(len(table), self.image.channels, -1).sum(axis=1)
        place = labels + self.n_units * np.arange(len(table))[:, None]
        total = np.bincount(place.ravel(), weights=of_pixel.ravel(), minlength=len(table) * self.n_units)
        return total.reshape(len(table), self.n_units).astype(table.dtype)

    def to_json(self) -> dict[str, Any]:
        settings, image = asdict(self.superpixels), asdict(self.image)
        return {"superpixels": settings, "image": image, "pixel_range": self.pixel_range}

    def _scaled(self, image: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """An image with values in [0, 1]: by what is known of all images, else by its own values."""
        if self.pixel_range == "bytes":
            return image / 255.0
        if self.pixel_range == "unit":
            return image
        low, high = image.min(), image.max()
        return np.asarray((image - low) / (high - low if high > low else 1.0))

    def _bound(self) -> Labels:
        if self.labels is None:
            raise InputError("superpixels differ from image to image; call groups.bind(rows) with the rows first.")
        return self.labels

    def _labels_of(self, n_rows: int) -> Labels:
        labels = self._bound()
        if len(labels) != n_rows:
            raise InputError(
                f"these superpixels are those of {len(labels)} images, but {n_rows} rows were given; choose the "
                "images with groups.take(index)."
            )
        return labels
