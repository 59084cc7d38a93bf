"""Pictures of explanations: what is selected, the mask, and the smallest rectangle around what is selected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from sointer.viz.plots.images import outline
from studies.frame.drawing import finish
from studies.horses.pairs import unpack

GREEN, YELLOW, RED, RIM = "#00e676", "#ffd600", "#ff2424", "#1a1a1a"

Example = Mapping[str, Any]
"""An image's number, a target, and masks as text."""
Bits = NDArray[np.bool_]


def mask_of(example: Example, name: str) -> Bits:
    """One of an example's masks: (height, width)."""
    size = example["size"]
    return unpack(example[name], size**2).reshape(size, size)


def draw_papers_figure(examples: Sequence[Example], images: NDArray[np.uint8], path: Path) -> None:
    """As in the paper: target and selected pixels, the model's mask, and the smallest rectangle around the selected."""
    _, axes = plt.subplots(3, len(examples), figsize=(1.9 * len(examples), 6.1), layout="constrained", squeeze=False)
    for (top, middle, bottom), example in zip(axes.T, examples, strict=True):
        image, selected = picture(images, example), mask_of(example, "selected")
        overlay(top, image, selected, example["target"])
        top.set_title("horse" if example["label"] else "background", fontsize=9)
        middle.imshow(mask_of(example, "mask"), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        mark(middle, example["target"], example["size"])
        bottom.imshow(within(image, smallest_rectangle(selected)), interpolation="nearest")
        mark(bottom, example["target"], example["size"])
    for ax, name in zip(axes[:, 0], ("target and selected pixels", "mask", "smallest rectangle"), strict=True):
        ax.set_ylabel(name, fontsize=9)
    done(axes, path)


def draw_planted(rows: Mapping[str, Mapping[str, Example]], images: NDArray[np.uint8], path: Path) -> None:
    """A column for every segmenter and a row for every method, the deciding pixels first."""
    names = list(dict.fromkeys(method for by_method in rows.values() for method in by_method))
    _, axes = plt.subplots(
        len(names) + 1,
        len(rows),
        figsize=(1.9 * len(rows), 2.0 * (len(names) + 1)),
        layout="constrained",
        squeeze=False,
    )
    for column, (segmenter, by_method) in zip(axes.T, rows.items(), strict=True):
        first = next(iter(by_method.values()))
        overlay(column[0], picture(images, first), mask_of(first, "truth"), first["target"], YELLOW)
        column[0].set_title(segmenter, fontsize=9)
        for ax, method in zip(column[1:], names, strict=True):
            if method in by_method:
                overlay(ax, picture(images, first), mask_of(by_method[method], "selected"), first["target"])
    for ax, name in zip(axes[:, 0], ("deciding pixels", *names), strict=True):
        ax.set_ylabel(name, fontsize=9)
    done(axes, path)


def draw_units(rows: Mapping[str, Sequence[Example]], images: NDArray[np.uint8], path: Path) -> None:
    """A row for every kind of unit, the model's masks below."""
    shown = next(iter(rows.values()))
    _, axes = plt.subplots(
        len(rows) + 1,
        len(shown),
        figsize=(1.9 * len(shown), 2.0 * (len(rows) + 1)),
        layout="constrained",
        squeeze=False,
    )
    for line, examples in zip(axes, rows.values(), strict=False):
        for ax, example in zip(line, examples, strict=True):
            overlay(ax, picture(images, example), mask_of(example, "selected"), example["target"])
    for ax, example in zip(axes[-1], shown, strict=True):
        ax.imshow(mask_of(example, "mask"), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        mark(ax, example["target"], example["size"])
    for ax, name in zip(axes[:, 0], (*rows, "mask"), strict=True):
        ax.set_ylabel(name, fontsize=9)
    done(axes, path)


# --- parts -----------------------------------------------------------------------------------------------


def smallest_rectangle(selected: Bits) -> tuple[slice, slice]:
    """Rows and columns of the smallest rectangle that holds all selected pixels."""
    rows, columns = np.flatnonzero(selected.any(axis=1)), np.flatnonzero(selected.any(axis=0))
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)


def within(image: NDArray[np.uint8], window: tuple[slice, slice]) -> NDArray[np.uint8]:
    """The part of an image inside a window; the rest is white."""
    only = np.full_like(image, 255)
    only[window] = image[window]
    return only


def picture(images: NDArray[np.uint8], example: Example) -> NDArray[np.uint8]:
    return images[example["image"]].transpose(1, 2, 0)


def overlay(ax: Axes, image: NDArray[np.uint8], selected: Bits, target: Sequence[int], colour: str = GREEN) -> None:
    """The image, pixels in a colour, and the target."""
    fill = np.zeros((*selected.shape, 4))
    fill[..., :3] = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    fill[..., 3] = 0.45 * selected
    ax.imshow(image, interpolation="nearest")
    ax.imshow(fill, interpolation="nearest")
    lines(ax, outline(selected), colour, 0.9)
    mark(ax, target, len(selected))


def mark(ax: Axes, target: Sequence[int], size: int) -> None:
    """The target in red; in a large image, a square around it, which can be seen."""
    where = np.zeros((size, size), dtype=bool)
    row, column = target
    around = size // 64
    where[max(row - around, 0) : row + around + 1, max(column - around, 0) : column + around + 1] = True
    lines(ax, outline(where), RED, 2.0)


def lines(ax: Axes, segments: Any, colour: str, width: float) -> None:
    for paint, points in ((RIM, width + 0.7), (colour, width)):
        ax.add_collection(
            LineCollection(segments, colors=paint, linewidths=points, capstyle="projecting"), autolim=False
        )


def done(axes: NDArray[Any], path: Path) -> None:
    """Take away what frames the pictures, and save."""
    for ax in axes.ravel():
        ax.set_xticks([])
        ax.set_yticks([])
        ax.grid(False)
        ax.spines[:].set_visible(False)
    figure = axes.ravel()[0].figure
    finish(figure, path)
    plt.close(figure)
