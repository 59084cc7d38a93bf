"""Pictures of explained images: green pixels decided what the model predicts for the red one."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sointer._support.validation import check_positive_int
from sointer.data.labels import column_labels
from sointer.errors import require_extra
from sointer.viz.plots.canvas import (
    SELECTED,
    TARGET,
    Bytes,
    check_row,
    label_colours,
    number_colours,
    short,
    to_rgb,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explanation import Explanation
    from sointer.masking.rows import ExplainedRows

MIN_ALPHA, MAX_ALPHA = 0.22, 0.72


@dataclass(frozen=True)
class ImageView:
    """An image, its target, and what was selected for it."""

    title: str
    """What is explained: "(12, 7) = 1", or "(12, 7), expected: 1" where the model was not queried."""
    rgb: Bytes
    """(height, width, 3)"""
    ranks: npt.NDArray[np.int64]
    """(height, width): 0 for pixels of the best feature or group, 1 for the next; -1 if not selected."""
    n_ranks: int
    grouped: bool
    """Whether pixels were selected together, as patches or superpixels."""
    target: npt.NDArray[np.bool_]
    """(height, width): the pixel or region that is explained; nowhere, if outputs are not pixels."""
    predicted: Bytes | None
    """The mask that the model predicts, in colours (height, width, 3), where it is known."""

    @classmethod
    def of(cls, explanation: Explanation, row: int) -> ImageView:
        """The view of one row."""
        row = check_row(explanation, row)
        source, shape = explanation.source, explanation.source.input_format.image
        assert shape is not None
        units = explanation.selected[row][explanation.selected[row] >= 0]
        # Every selected unit alone, as pixels; groups may differ from image to image.
        alone = np.zeros((len(units), source.groups.n_units), dtype=bool)
        alone[np.arange(len(units)), units] = True
        members = source.units(np.full(len(units), row)).to_features(alone)
        ranks = np.full(members.shape[1], -1, dtype=np.int64)
        for rank, pixels in enumerate(members):
            ranks[pixels] = rank
        return cls(
            title=_title(explanation, row),
            rgb=to_rgb(shape.unflatten(source.rows(np.array([row]))), seen=source.data)[0],
            ranks=ranks.reshape(shape.size),
            n_ranks=len(units),
            grouped=bool(members.sum() > len(units)),
            target=_target(source, int(explanation.target[row])).reshape(shape.size),
            predicted=_predicted(source, row),
        )

    @property
    def strength(self) -> npt.NDArray[np.float64]:
        """(height, width): how strongly each selected pixel is shown, the best most; 0 if not selected."""
        share = self.ranks / max(self.n_ranks - 1, 1)
        return np.where(self.ranks < 0, 0.0, MAX_ALPHA - (MAX_ALPHA - MIN_ALPHA) * share)

    @property
    def outlined(self) -> npt.NDArray[np.int64]:
        """(height, width): pixels with the same number share an outline, -1 has none; groups have one each."""
        return self.ranks if self.grouped else np.where(self.ranks < 0, -1, 0)

    @property
    def rectangle(self) -> tuple[slice, slice]:
        """Rows and columns of the smallest rectangle that holds the target and all selected pixels."""
        shown = self.target | (self.ranks >= 0)
        if not shown.any():
            return slice(0, shown.shape[0]), slice(0, shown.shape[1])
        rows, columns = np.flatnonzero(shown.any(axis=1)), np.flatnonzero(shown.any(axis=0))
        return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)


def _title(explanation: Explanation, row: int) -> str:
    name, value = explanation.output_names[explanation.target[row]], short(explanation.value[row])
    if explanation.target[row] >= explanation.source.outputs.n_outputs:  # a region, whose pixels may differ
        value = f"{value} on average" if explanation.source.outputs.graded.all() else f"mostly {value}"
        return f"{name}, expected: {value}" if explanation.value_source == "expected" else f"{name}: {value}"
    return f"{name}, expected: {value}" if explanation.value_source == "expected" else f"{name} = {value}"


def _target(source: ExplainedRows, target: int) -> npt.NDArray[np.bool_]:
    shape = source.input_format.image
    assert shape is not None
    where = np.zeros(shape.n_pixels, dtype=bool)
    if source.outputs.shape is not None:
        where[source.outputs_of(target)] = True
    return where


def _predicted(source: ExplainedRows, row: int) -> Bytes | None:
    known, outputs = source.predicted, source.outputs
    if known is None or outputs.shape is None:
        return None
    output = known[source.sample_of_row[row]]
    if outputs.kind == "probability":
        colours = number_colours(output, 0.0, 1.0)
    elif outputs.kind == "continuous":
        colours = number_colours(output, float(known.min()), float(known.max()))
    else:
        classes = outputs.label_sets[0]
        assert classes is not None
        labels = classes.extend(column_labels(output))
        colours = label_colours(len(labels))[labels.encode(output)]
    return colours.reshape(*outputs.shape, 3)


Mask = npt.NDArray[np.bool_]

SIDE = 160


def thumbnail(explanation: Explanation, row: int) -> str:
    """An <img> of one image, its selected pixels in green, the best strongest, and its target in red."""
    view = ImageView.of(explanation, row)
    height, width = view.ranks.shape
    zoom = max(1, SIDE // max(height, width))
    share = view.strength[..., None]
    mixed = (1 - share) * view.rgb + share * np.array(SELECTED)
    large = np.rint(mixed).astype(np.uint8).repeat(zoom, axis=0).repeat(zoom, axis=1)
    large[_edge(view.target.repeat(zoom, axis=0).repeat(zoom, axis=1), thickness=max(1, zoom // 3))] = TARGET
    source = base64.b64encode(png(large)).decode("ascii")
    size = f'width="{width * zoom}" height="{height * zoom}"'
    return f'<img alt="selected pixels in green, the target in red" {size} src="data:image/png;base64,{source}">'


def png(rgb: Bytes) -> bytes:
    """An image (height, width, 3) as a PNG file."""
    height, width, _ = rgb.shape
    lines = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # every line begins with its filter, 0 for none
    lines[:, 1:] = rgb.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    packed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def _edge(mask: Mask, thickness: int) -> Mask:
    """The outermost pixels of a mask."""
    inside = np.pad(mask, thickness)
    for axis in (0, 1):
        for _ in range(thickness):
            inside = inside & np.roll(inside, 1, axis) & np.roll(inside, -1, axis)
    return mask & ~inside[thickness:-thickness, thickness:-thickness]


Line = tuple[tuple[float, float], tuple[float, float]]


def outline(mask: npt.NDArray[np.bool_]) -> list[Line]:
    """The border between True and False pixels of a mask.

    Pixel centres are at whole numbers, as imshow draws them; lines are ((x, y), (x, y)).
    """
    return borders(np.asarray(mask, dtype=bool).astype(np.int64) - 1)


def borders(labels: npt.NDArray[np.integer[Any]]) -> list[Line]:
    """The borders between pixels of a (height, width) array that differ; -1 is nothing, and so is the outside."""
    framed = np.pad(labels, 1, constant_values=-1)
    across = np.argwhere(framed[1:, 1:-1] != framed[:-1, 1:-1]).tolist()
    down = np.argwhere(framed[1:-1, 1:] != framed[1:-1, :-1]).tolist()
    lines: list[Line] = [((x - 0.5, y - 0.5), (x + 0.5, y - 0.5)) for y, x in across]
    return lines + [((x - 0.5, y - 0.5), (x - 0.5, y + 0.5)) for y, x in down]


PANEL_INCHES, GRID_INCHES, GRID_ROWS = 3.3, 2.4, 8


def image(explanation: Explanation, row: int, ax: Axes | None = None) -> Any:
    """Draw one image with its target and selected pixels, the model's mask, and the smallest rectangle with them all.

    The mask is left out where it is not known (`value_source` is "expected"). With `ax`, only the first panel is drawn.

    Parameters
    ----------
    explanation : Explanation
    row : int
        Index of the row; negative ones count from the end.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes, or an array of them
    """
    require_extra("matplotlib", "plot")
    view = ImageView.of(explanation, row)
    if ax is not None:
        _draw_overlay(ax, view)
        return ax
    panels = [_draw_overlay, *([] if view.predicted is None else [_draw_predicted]), _draw_rectangle]
    axes = _make_panels(1, len(panels), PANEL_INCHES, view)
    for draw, panel in zip(panels, axes, strict=True):
        draw(panel, view)
    return axes


def image_grid(explanation: Explanation, rows: Sequence[int] | None = None, columns: int = 4) -> npt.NDArray[Any]:
    """Draw several images, by default the first 8, with their targets and selected pixels.

    Parameters
    ----------
    explanation : Explanation
    rows : sequence of int, optional
        Indices of the rows.
    columns : int, default 4
        Images side by side.

    Returns
    -------
    array of Axes
    """
    require_extra("matplotlib", "plot")
    check_positive_int(columns, "columns")
    shown = range(min(len(explanation), GRID_ROWS)) if rows is None else rows
    views = [ImageView.of(explanation, check_row(explanation, row)) for row in shown]
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
    # Long narrow images still leave space for their titles.
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
    _finish(ax, view, view.title)


def _draw_predicted(ax: Axes, view: ImageView) -> None:
    assert view.predicted is not None
    ax.imshow(view.predicted, interpolation="nearest")
    _finish(ax, view, "what the model predicts")


def _draw_rectangle(ax: Axes, view: ImageView) -> None:
    rows, columns = view.rectangle
    extent = (columns.start - 0.5, columns.stop - 0.5, rows.stop - 0.5, rows.start - 0.5)
    ax.imshow(view.rgb[rows, columns], interpolation="nearest", extent=extent)
    title = f"rows {rows.start} to {rows.stop - 1}, columns {columns.start} to {columns.stop - 1}"
    _finish(ax, view, title, has_selection=False)


def _draw_lines(ax: Axes, lines: list[Line], colour: tuple[int, int, int], width: float, label: str) -> None:
    from matplotlib.collections import LineCollection

    # A dark rim keeps bright lines visible on bright images.
    for name, paint, points in (("_rim", (0.1, 0.1, 0.1), width + 0.9), (label, np.array(colour) / 255, width)):
        drawn = LineCollection(lines, colors=[paint], linewidths=points, capstyle="projecting", label=name)
        ax.add_collection(drawn, autolim=False)


def _finish(ax: Axes, view: ImageView, title: str, *, has_selection: bool = True) -> None:
    if has_selection:
        _draw_lines(ax, borders(view.outlined), SELECTED, 1.3, label="selected")
    _draw_lines(ax, outline(view.target), TARGET, 2.4, label="target")
    ax.set_anchor("N")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.set_title(title, fontsize=10, parse_math=False)
