"""A heat map: which outputs depend on each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sointer.errors import InputError
from sointer.plot.canvas import label_axis, make_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST_SIDE = 12.0


def interactions(matrix: npt.ArrayLike, names: Sequence[str], ax: Axes | None = None) -> Axes:
    """How strongly each pair of outputs is coupled (`output_interactions_`), as a heat map."""
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim != 2 or values.shape != (len(names), len(names)):
        raise InputError(
            f"interactions: matrix has shape {values.shape}, expected one row and one column for each of the "
            f"{len(names)} names."
        )
    side = min(2.4 + 0.45 * len(names), LARGEST_SIDE)
    ax = make_axes(ax, width=side + 0.8, height=side)
    hidden_diagonal = np.where(np.eye(len(names), dtype=bool), np.nan, values)
    image = ax.imshow(hidden_diagonal, cmap="Blues", vmin=0.0, aspect="auto")
    label_axis(ax, "x", list(names), rotation=45, longest=22)
    label_axis(ax, "y", list(names))
    ax.figure.colorbar(image, ax=ax, label="strength of coupling", shrink=0.8)
    ax.set_title("interactions between outputs")
    return ax


def neighbours(strength: npt.ArrayLike, ax: Axes | None = None) -> Axes:
    """Where a pixel of a mask looks in the image, by displacement, its own place in the middle, as a heat map."""
    values = np.array(strength, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] % 2 == 0 or values.shape[1] % 2 == 0:
        raise InputError(
            f"neighbours: strength has shape {values.shape}, expected a small map with a pixel in its middle, such as "
            "the output_interactions_ of an explainer of masks."
        )
    down, right = values.shape[0] // 2, values.shape[1] // 2
    ax = make_axes(ax, width=4.4, height=3.6)
    image = ax.imshow(values, cmap="Blues", vmin=0.0, extent=(-right - 0.5, right + 0.5, down + 0.5, -down - 0.5))
    ax.set_xlabel("columns to the right")
    ax.set_ylabel("rows down")
    ax.figure.colorbar(image, ax=ax, label="share of attention", shrink=0.8)
    ax.set_title("where pixels of the mask look")
    return ax
