"""Rows of a table that are images: the selected pixels outlined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sointer.errors import InputError
from sointer.plot.canvas import ORANGE, check_row, make_axes, why
from sointer.plot.outlines import outline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explanation import Explanation


def pixels(
    explanation: Explanation,
    row: int,
    image_shape: tuple[int, int],
    ax: Axes | None = None,
    color: str = ORANGE,
) -> Axes:
    """The image of one row, dark where its values are large, with the selected pixels outlined."""
    row = check_row(explanation, row)
    mask = explanation.mask[row]
    values = explanation.source.data[row]
    values = np.asarray(values.toarray() if hasattr(values, "toarray") else values, dtype=np.float64).ravel()
    n_pixels = int(np.prod(image_shape))
    if len(image_shape) != 2 or n_pixels != len(mask) or n_pixels != len(values):
        raise InputError(
            f"pixels: image_shape is {tuple(image_shape)}, expected (height, width) with height * width = "
            f"{len(mask)}, the number of features."
        )
    from matplotlib.collections import LineCollection

    ax = make_axes(ax, width=3.2, height=3.5)
    ax.imshow(values.reshape(image_shape), cmap="Greys", interpolation="nearest")
    ax.add_collection(LineCollection(outline(mask.reshape(image_shape)), colors=color, linewidths=2.5))
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(why(explanation, row))
    return ax
