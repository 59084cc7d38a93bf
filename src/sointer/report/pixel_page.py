"""A page to ask of any pixel of a mask: what made it so? One HTML file that needs nothing else."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer.data.labels import Classes, column_labels
from sointer.plot.colours import SELECTED, TARGET, label_colours, number_colours, to_rgb
from sointer.report.environment import render_template
from sointer.report.pixel_checks import check_pixel_page

MOST_FLOAT_LABELS, MOST_LABELS, N_STEPS = 32, 256, 256
NOTHING = 65535
"""Stands for -1 in the page, where pixels are unsigned numbers of two bytes."""


@dataclass(frozen=True, eq=False)
class PixelPageContent:
    """Images, what the black box says of their pixels, and which pixels made it so."""

    images: npt.NDArray[Any]
    """(n, channels, height, width)"""
    answers: npt.NDArray[Any]
    """(n, height, width) labels, probabilities or numbers."""
    selected: npt.NDArray[np.integer[Any]]
    """(n, targets, k) pixel numbers row * width + column, best first; -1 for none."""
    names: list[str]
    """(n,)"""
    title: str
    confirmed: npt.NDArray[np.bool_] | None = None
    """(n, targets) whether the black box says the same on the selected pixels alone."""
    stride: int = 1
    """Targets are the pixels of every stride-th row and column, along rows; 1: all of them."""
    known: npt.NDArray[np.bool_] | None = None
    """(n, targets) whether anything could be learned about each target; None where that is not known."""
    quality: str = ""
    """How far the explanations can be trusted, in a sentence."""
    units: npt.NDArray[np.integer[Any]] | None = None
    """(n, height * width) the patch or superpixel of each pixel, if `selected` holds those instead of pixels."""

    def __post_init__(self) -> None:
        check_pixel_page(self)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images."""
        return self.images.shape[2], self.images.shape[3]

    @property
    def grid(self) -> tuple[int, int]:
        """How many rows and columns of pixels are targets."""
        height, width = self.size
        return len(range(0, height, self.stride)), len(range(0, width, self.stride))

    @property
    def n_units(self) -> int:
        """How many things could be selected in an image: pixels, patches or superpixels."""
        height, width = self.size
        return height * width if self.units is None else int(np.max(self.units)) + 1


def render_pixel_page(content: PixelPageContent) -> str:
    """The page as text; everything given by the user is escaped."""
    return render_template("pixels.html", title=content.title, quality=content.quality, data=_data(content))


def _data(content: PixelPageContent) -> dict[str, Any]:
    """What the page's script needs; arrays are packed, one text for each image."""
    height, width = content.size
    grid_height, grid_width = content.grid
    selected = np.where(content.selected < 0, NOTHING, content.selected)
    return {
        "height": height,
        "width": width,
        "stride": content.stride,
        "gridHeight": grid_height,
        "gridWidth": grid_width,
        "k": content.selected.shape[2],
        "nothing": NOTHING,
        "names": [str(name) for name in content.names],
        "green": list(SELECTED),
        "red": list(TARGET),
        "images": _pack(to_rgb(content.images), "u1"),
        **_answers(content),
        "selected": _pack(selected, "<u2"),
        "units": None if content.units is None else _pack(content.units, "<u2"),
        "confirmed": None if content.confirmed is None else _pack(content.confirmed, "u1"),
        "known": None if content.known is None else _pack(content.known, "u1"),
    }


def _answers(content: PixelPageContent) -> dict[str, Any]:
    """The masks as codes with a colour each, and what the codes mean: labels, or steps between two numbers."""
    answers = np.asarray(content.answers)
    flat = answers.reshape(-1)
    labels = column_labels(flat)
    most = MOST_FLOAT_LABELS if flat.dtype.kind == "f" else MOST_LABELS
    if len(labels) <= most:
        codes = Classes(tuple(labels)).encode(flat)
        words = [f"{label:g}" if isinstance(label, float) else str(label) for label in labels]
        colours, values = label_colours(len(labels)), None
    else:
        numbers = flat.astype(np.float64)
        low, high = min(float(numbers.min()), 0.0), max(float(numbers.max()), 1.0)
        if (low, high) != (0.0, 1.0):
            low, high = float(numbers.min()), float(numbers.max())
        codes = np.rint((N_STEPS - 1) * (numbers - low) / (high - low))
        words = [f"{low:.3g}", f"{high:.3g}"]
        colours, values = number_colours(np.linspace(0, 1, N_STEPS), 0.0, 1.0), _pack(answers, "<f4")
    return {
        "answers": _pack(codes.reshape(answers.shape), "u1"),
        "labels": words,
        "colours": colours.tolist(),
        "values": values,
    }


def _pack(array: npt.NDArray[Any], dtype: str) -> list[str]:
    """The bytes of each row of an array, as base64."""
    return [base64.b64encode(np.ascontiguousarray(row).tobytes()).decode("ascii") for row in array.astype(dtype)]
