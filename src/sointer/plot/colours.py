"""Numbers as colours: images of any range and any number of channels, and masks of labels or numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

SELECTED, TARGET = (0, 230, 118), (255, 36, 36)
"""Green pixels decide what is said of the red one."""

# Two labels are dark and light; more get colours that are told apart by most eyes, repeated where they run out.
_TWO = ((38, 42, 51), (240, 239, 233))
_MANY = (
    (38, 42, 51),
    (86, 180, 233),
    (230, 159, 0),
    (204, 121, 167),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (148, 148, 156),
    (120, 94, 240),
    (240, 239, 233),
)


def to_rgb(images: npt.ArrayLike, seen: npt.ArrayLike | None = None) -> Bytes:
    """Images (n, channels, height, width) as red, green and blue from 0 to 255: (n, height, width, 3).

    Unless there are three channels, their mean is shown as grey. Values in [0, 1] and bytes are taken as they are; of
    anything else, such as standardised values, the smallest of each image becomes black and the largest white. Which it
    is, `seen` decides, numbers of any shape: by default the images themselves.
    """
    values = np.asarray(images, dtype=np.float64)
    if values.shape[1] != 3:
        values = values.mean(axis=1, keepdims=True)
    judged = values if seen is None else np.asarray(seen)
    low, high = float(judged.min()), float(judged.max())
    if low >= 0 and high <= 1:
        shares = values
    elif low >= 0 and 127 < high <= 255:
        shares = values / 255
    else:
        least = values.min(axis=(1, 2, 3), keepdims=True)
        span = values.max(axis=(1, 2, 3), keepdims=True) - least
        shares = (values - least) / np.where(span > 0, span, 1.0)
    levels = np.rint(255 * shares.transpose(0, 2, 3, 1)).astype(np.uint8)
    return np.repeat(levels, 3, axis=3) if levels.shape[3] == 1 else levels


def label_colours(n_labels: int) -> Bytes:
    """A colour for each of n labels: (n, 3)."""
    some = _TWO if n_labels <= 2 else _MANY
    return np.array([some[i % len(some)] for i in range(n_labels)], dtype=np.uint8)


def number_colours(values: npt.NDArray[Any], low: float, high: float) -> Bytes:
    """Numbers as steps from dark (low) to light (high): the shape of `values` and 3."""
    shares = np.clip((values.astype(np.float64) - low) / (high - low if high > low else 1.0), 0.0, 1.0)
    dark, light = (np.array(colour, dtype=np.float64) for colour in _TWO)
    return np.rint(dark + shares[..., None] * (light - dark)).astype(np.uint8)
