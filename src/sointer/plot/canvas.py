"""What all pictures share: colours, axes to draw on, and words about a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sointer.errors import InputError, require_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explanation import Explanation

BLUE, ORANGE, GREY = "#1f6fb2", "#d9600a", "#8a8f98"


def make_axes(ax: Axes | None, width: float = 6.0, height: float = 4.0) -> Axes:
    require_extra("matplotlib", "plot")
    if ax is not None:
        return ax
    from matplotlib import pyplot

    _, made = pyplot.subplots(figsize=(width, height), layout="constrained")
    return made


def check_row(explanation: Explanation, row: int) -> int:
    if not -len(explanation) <= row < len(explanation):
        raise InputError(f"row is {row}, expected 0 to {len(explanation) - 1}: there are {len(explanation)} rows.")
    return row % len(explanation)


def why(explanation: Explanation, row: int) -> str:
    name, value = explanation.output_names[explanation.target[row]], explanation.expected[row]
    return f"what decides {name} (expected {short(value)}), row {row}"


def short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float | np.floating) else str(value)
