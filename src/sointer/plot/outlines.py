"""The lines between pixels that belong to different things."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Line = tuple[tuple[float, float], tuple[float, float]]


def outline(mask: npt.NDArray[np.bool_]) -> list[Line]:
    """The border between True and False pixels of a (height, width) mask, as lines ((x, y), (x, y)).

    Pixel centres are at whole numbers, as imshow draws them.
    """
    return borders(np.asarray(mask, dtype=bool).astype(np.int64) - 1)


def borders(labels: npt.NDArray[np.integer[Any]]) -> list[Line]:
    """The borders between pixels of a (height, width) array that differ; -1 is nothing, and so is the outside."""
    framed = np.pad(labels, 1, constant_values=-1)
    lines: list[Line] = []
    for y, x in np.argwhere(framed[1:, 1:-1] != framed[:-1, 1:-1]).tolist():
        lines.append(((x - 0.5, y - 0.5), (x + 0.5, y - 0.5)))
    for y, x in np.argwhere(framed[1:-1, 1:] != framed[1:-1, :-1]).tolist():
        lines.append(((x - 0.5, y - 0.5), (x - 0.5, y + 0.5)))
    return lines
