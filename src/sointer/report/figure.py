"""One picture of many explanations: a row for each image, a column for each segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sointer.errors import require_extra
from sointer.plot.outlines import outline
from sointer.report.content import Example
from sointer.report.segments import HEIGHT, POLYGONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ON, OFF = "#d9600a", "#1f6fb2"
_LIT, _DARK, _FRAME = "#4a4f57", "#e4e6ea", "#c3c7ce"
# Lengths in units of one image's side; the first column shows the image alone.
_FIRST, _CELL_WIDTH, _CELL_HEIGHT, _HEAD, _DISPLAY = 1.25, 1.62, 1.08, 0.8, 0.6
_INCHES, _DPI = 0.85, 110


def draw_examples(examples: Sequence[Example], segment_names: Sequence[str]) -> Figure:
    """Every image once per segment, its selected pixels outlined, beside the display that the model lit."""
    require_extra("matplotlib", "plot")
    from matplotlib.figure import Figure

    width = _FIRST + _CELL_WIDTH * len(segment_names)
    height = _CELL_HEIGHT * len(examples)
    figure = Figure(figsize=(_INCHES * (width + 0.2), _INCHES * (height + _HEAD + 0.1)), dpi=_DPI)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_xlim(-0.15, width + 0.05)
    ax.set_ylim(height + 0.05, -_HEAD - 0.05)
    ax.set_aspect("equal")
    ax.axis("off")
    _draw_head(ax, segment_names, width)
    for row, example in enumerate(examples):
        y = _CELL_HEIGHT * row
        _draw_image(ax, example, 0, y)
        for segment in range(len(segment_names)):
            _draw_cell(ax, example, segment, _FIRST + _CELL_WIDTH * segment, y)
    return figure


def _draw_head(ax: Axes, segment_names: Sequence[str], width: float) -> None:
    ax.text(0, -0.53, "Which pixels decide each segment?", fontsize=14, fontweight="bold", color="black")
    for x, color, word in ((width - 4.75, ON, "on"), (width - 2.35, OFF, "off")):
        ax.plot([x - 0.16], [-0.59], marker="s", markersize=9, markerfacecolor="none", color=color, mew=2.2)
        ax.text(x, -0.53, f"why a segment is {word}", fontsize=10, color=_LIT)
    ax.text(0, -0.1, "image", fontsize=10, color=_LIT)
    for column, name in enumerate(segment_names):
        ax.text(_FIRST + _CELL_WIDTH * column, -0.1, name, fontsize=10, fontweight="bold", color=_LIT)


def _draw_image(ax: Axes, example: Example, x: float, y: float, full_ink: float = 16) -> None:
    from matplotlib.patches import Rectangle

    ax.imshow(
        np.asarray(example.pixels, dtype=np.float64),
        cmap="Greys",
        vmin=0,
        vmax=full_ink,
        extent=(x, x + 1, y + 1, y),
        interpolation="nearest",
        zorder=1,
    )
    ax.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor=_FRAME, linewidth=0.7, zorder=2))


def _draw_cell(ax: Axes, example: Example, segment: int, x: float, y: float) -> None:
    from matplotlib.collections import LineCollection

    color = ON if example.lit[segment] else OFF
    # Paler than the image alone, so that the outlines stand out.
    _draw_image(ax, example, x, y, full_ink=26)
    height, width = np.shape(example.pixels)
    mask = np.zeros(height * width, dtype=bool)
    mask[list(example.selected[segment])] = True
    scale = np.array([1 / width, 1 / height])
    lines = [(np.array(line) + 0.5) * scale + (x, y) for line in outline(mask.reshape(height, width))]
    ax.add_collection(LineCollection(lines, colors=color, linewidths=2.0, capstyle="round", zorder=3))
    _draw_display(ax, example.lit, segment, color, np.array([x + 1.07, y + (1 - _DISPLAY) / 2]))


def _draw_display(ax: Axes, lit: Sequence[bool], segment: int, color: str, corner: np.ndarray) -> None:
    from matplotlib.patches import Polygon

    for other, polygon in enumerate(POLYGONS):
        points = corner + _DISPLAY / HEIGHT * np.array(polygon)
        if other == segment:
            face = color if lit[other] else "white"
            ax.add_patch(Polygon(points, facecolor=face, edgecolor=color, linewidth=1.4, zorder=4))
        else:
            ax.add_patch(Polygon(points, facecolor=_LIT if lit[other] else _DARK, edgecolor="none", zorder=3))
