"""A heat map: which outputs depend on each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sointer.errors import InputError
from sointer.plot.canvas import make_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def interactions(matrix: npt.ArrayLike, names: Sequence[str], ax: Axes | None = None) -> Axes:
    """How strongly each pair of outputs is coupled (`output_interactions_`), as a heat map."""
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim != 2 or values.shape != (len(names), len(names)):
        raise InputError(
            f"interactions: matrix has shape {values.shape}, expected one row and one column for each of the "
            f"{len(names)} names."
        )
    side = 1.8 + 0.45 * len(names)
    ax = make_axes(ax, width=side + 0.8, height=side)
    hidden_diagonal = np.where(np.eye(len(names), dtype=bool), np.nan, values)
    image = ax.imshow(hidden_diagonal, cmap="Blues", vmin=0.0)
    ax.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(names)), names)
    ax.figure.colorbar(image, ax=ax, label="strength of coupling", shrink=0.8)
    ax.set_title("interactions between outputs")
    return ax
