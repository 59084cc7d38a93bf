"""Pictures of explained images: green pixels decided what the model predicts for the red one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sointer._support.validation import check_positive_int
from sointer.errors import InputError, require_extra
from sointer.plot.canvas import check_row
from sointer.plot.colours import SELECTED, TARGET
from sointer.plot.image_view import ImageView, image_shape
from sointer.plot.outlines import Line, borders, outline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explanation import Explanation

PANEL_INCHES, GRID_INCHES, GRID_ROWS = 3.3, 2.4, 8


def image(explanation: Explanation, row: int, ax: Axes | None = None) -> Any:
    """One image with its target and selected pixels, the model's mask, and the smallest rectangle with them all.

    Returns an array of Axes, one for each panel; the mask is left out where it is not known (`value_source` is
    "expected"). With `ax`, the first panel alone is drawn there and `ax` is returned.
    """
    require_extra("matplotlib", "plot")
    view = ImageView.of(explanation, row)
    if ax is not None:
        _draw_overlay(ax, view)
        return ax
    panels = [_draw_overlay, _draw_rectangle] if view.answer is None else [_draw_overlay, _draw_answer, _draw_rectangle]
    axes = _make_panels(1, len(panels), PANEL_INCHES, view)
    for draw, panel in zip(panels, axes, strict=True):
        draw(panel, view)
    return axes


def image_grid(explanation: Explanation, rows: Sequence[int] | None = None, columns: int = 4) -> npt.NDArray[Any]:
    """Several images with their targets and selected pixels, the first 8 unless `rows` says which.

    Returns an array of Axes, one for each image.
    """
    require_extra("matplotlib", "plot")
    check_positive_int(columns, "columns")
    image_shape(explanation)
    shown = range(min(len(explanation), GRID_ROWS)) if rows is None else rows
    views = [ImageView.of(explanation, check_row(explanation, row)) for row in shown]
    if not views:
        raise InputError("image_grid: rows is empty, expected at least one row number; leave it out for the first 8.")
    columns = min(columns, len(views))
    axes = _make_panels(-(-len(views) // columns), columns, GRID_INCHES, views[0])
    for panel, view in zip(axes, views, strict=False):
        _draw_overlay(panel, view)
    for unused in axes[len(views) :]:
        unused.remove()
    return axes[: len(views)]


def _make_panels(n_rows: int, n_columns: int, inches: float, view: ImageView) -> npt.NDArray[Any]:
    from matplotlib import pyplot

    height, width = view.ranks.shape
    longer = max(height, width)
    # Long narrow images still leave room for their titles.
    size = (inches * max(width / longer, 0.5), inches * max(height / longer, 0.3) + 0.35)
    _, axes = pyplot.subplots(
        n_rows, n_columns, figsize=(size[0] * n_columns, size[1] * n_rows), squeeze=False, layout="constrained"
    )
    return np.asarray(axes.ravel())


def _draw_overlay(ax: Axes, view: ImageView) -> None:
    fill = np.zeros((*view.ranks.shape, 4))
    fill[..., :3], fill[..., 3] = np.array(SELECTED) / 255, view.strength
    ax.imshow(view.rgb, interpolation="nearest")
    ax.imshow(fill, interpolation="nearest")
    _draw_lines(ax, borders(view.outlined), SELECTED, 1.3, label="selected")
    _draw_target(ax, view)
    _finish(ax, view.title)


def _draw_answer(ax: Axes, view: ImageView) -> None:
    assert view.answer is not None
    ax.imshow(view.answer, interpolation="nearest")
    _draw_lines(ax, borders(view.outlined), SELECTED, 1.3, label="selected")
    _draw_target(ax, view)
    _finish(ax, "what the model predicts")


def _draw_rectangle(ax: Axes, view: ImageView) -> None:
    rows, columns = view.rectangle
    extent = (columns.start - 0.5, columns.stop - 0.5, rows.stop - 0.5, rows.start - 0.5)
    ax.imshow(view.rgb[rows, columns], interpolation="nearest", extent=extent)
    _draw_target(ax, view)
    _finish(ax, f"rows {rows.start} to {rows.stop - 1}, columns {columns.start} to {columns.stop - 1}")


def _draw_target(ax: Axes, view: ImageView) -> None:
    _draw_lines(ax, outline(view.target), TARGET, 2.4, label="target")


def _draw_lines(ax: Axes, lines: list[Line], colour: tuple[int, int, int], width: float, label: str) -> None:
    from matplotlib.collections import LineCollection

    # A dark rim keeps bright lines visible on bright images.
    for name, paint, points in (("_rim", (0.1, 0.1, 0.1), width + 0.9), (label, np.array(colour) / 255, width)):
        drawn = LineCollection(lines, colors=[paint], linewidths=points, capstyle="projecting", label=name)
        ax.add_collection(drawn, autolim=False)


def _finish(ax: Axes, title: str) -> None:
    ax.set_anchor("N")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.set_title(title, fontsize=10, parse_math=False)
