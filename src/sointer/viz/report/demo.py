"""What the demo found, as plain values: everything that its pictures and its page show."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sointer.errors import require_extra
from sointer.viz.plots.images import outline
from sointer.viz.report.page import render_template

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Example:
    """One image, what the model said of it, and the pixels selected for each output."""

    title: str
    pixels: Sequence[Sequence[int]]
    """Rows of the image, 0 (blank) to 16 (full ink)."""
    lit: Sequence[bool]
    """The model's answer for every segment."""
    truth: Sequence[bool]
    selected: Sequence[Sequence[int]]
    """For every segment, the selected pixels, best first, counted along rows."""
    kept: Sequence[float]
    """For every segment, the share of draws in which the model gave the same answer on these pixels alone."""

    @property
    def is_mistake(self) -> bool:
        return list(self.lit) != list(self.truth)


@dataclass(frozen=True)
class Method:
    """One line of the comparison."""

    name: str
    fidelity: Mapping[str, float]
    """By removal: the mean share of draws, images and segments in which the answer stayed the same."""
    fit_seconds: float
    explain_ms: float
    """Milliseconds per 1000 explanations."""
    n_queries: int
    """Rows sent to the black box during fit."""


@dataclass(frozen=True)
class BlackBoxFacts:
    """How good the explained model is on images it has not seen."""

    name: str
    exact_match: float
    segment_accuracy: Sequence[float]
    valid_patterns: float
    """Share of its answers that form a digit."""

    @property
    def mean_accuracy(self) -> float:
        return sum(self.segment_accuracy) / len(self.segment_accuracy)


@dataclass(frozen=True)
class Content:
    """The whole story of one run."""

    examples: Sequence[Example]
    methods: Sequence[Method]
    findings: Sequence[str]
    black_box: BlackBoxFacts
    segment_names: Sequence[str]
    interactions: Sequence[Sequence[float]]
    n_train: int
    n_test: int
    k: int
    random_state: int


WIDTH, HEIGHT = 60.0, 100.0

_THICK, _GAP = 11.0, 1.2
_LEFT, _RIGHT = _THICK / 2 + 3, WIDTH - _THICK / 2 - 3
_TOP, _MIDDLE, _BOTTOM = _THICK / 2 + 3, HEIGHT / 2, HEIGHT - _THICK / 2 - 3

Polygon = tuple[tuple[float, float], ...]


def _bar(x0: float, y0: float, x1: float, y1: float) -> Polygon:
    """A bar with pointed ends between two corners; y grows downwards."""
    h = _THICK / 2
    if y0 == y1:
        a, b = x0 + _GAP, x1 - _GAP
        return ((a, y0), (a + h, y0 - h), (b - h, y0 - h), (b, y0), (b - h, y0 + h), (a + h, y0 + h))
    a, b = y0 + _GAP, y1 - _GAP
    return ((x0, a), (x0 + h, a + h), (x0 + h, b - h), (x0, b), (x0 - h, b - h), (x0 - h, a + h))


POLYGONS: tuple[Polygon, ...] = (
    _bar(_LEFT, _TOP, _RIGHT, _TOP),
    _bar(_RIGHT, _TOP, _RIGHT, _MIDDLE),
    _bar(_RIGHT, _MIDDLE, _RIGHT, _BOTTOM),
    _bar(_LEFT, _BOTTOM, _RIGHT, _BOTTOM),
    _bar(_LEFT, _MIDDLE, _LEFT, _BOTTOM),
    _bar(_LEFT, _TOP, _LEFT, _MIDDLE),
    _bar(_LEFT, _MIDDLE, _RIGHT, _MIDDLE),
)
"""In the order a to g, inside a box of WIDTH by HEIGHT with y downwards."""


def render_page(content: Content, figure_png: bytes | None = None) -> str:
    """The page as text; `figure_png` is put at its end."""
    return render_template(
        "demo.html",
        content=content,
        data=_data(content),
        removals=list(content.methods[0].fidelity),
        strongest=max((value for row in content.interactions for value in row), default=0.0) or 1.0,
        display={"width": WIDTH, "height": HEIGHT},
        figure=None if figure_png is None else base64.b64encode(figure_png).decode("ascii"),
    )


def _data(content: Content) -> dict[str, Any]:
    """What the page's script needs to draw any image and any segment."""
    return {
        "names": list(content.segment_names),
        "polygons": [" ".join(f"{x:g},{y:g}" for x, y in polygon) for polygon in POLYGONS],
        "display": [WIDTH, HEIGHT],
        "examples": [_example(example) for example in content.examples],
    }


def _example(example: Example) -> dict[str, Any]:
    return {
        "title": example.title,
        "pixels": [[int(value) for value in row] for row in example.pixels],
        "lit": [bool(value) for value in example.lit],
        "truth": [bool(value) for value in example.truth],
        "selected": [[int(pixel) for pixel in pixels] for pixels in example.selected],
        "kept": [round(float(share), 3) for share in example.kept],
        "mistake": example.is_mistake,
    }


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


def format_table(content: Content) -> str:
    """The comparison, its meaning and its verdicts, in at most 100 columns."""
    removals = list(content.methods[0].fidelity)
    lines = [
        f"Fidelity: how often the model repeats its answer when it sees only the {content.k} chosen pixels of 64;",
        f"mean over {content.n_test} unseen digits x {len(content.segment_names)} segments, seed "
        f"{content.random_state}.",
        "",
        f"{'':15}{'fidelity,':>27}{'fidelity,':>22}{'fit':>8}{'1000 expla-':>13}{'rows asked':>12}",
        f"{'':15}{removals[0]:>27}{removals[1]:>22}{'':>8}{'nations':>13}{'in fit':>12}",
    ]
    for method in content.methods:
        first, second = (f"{100 * value:.1f}%" for value in method.fidelity.values())
        learned = method.n_queries > 0
        seconds = f"{method.fit_seconds:.1f} s" if learned else "-"
        ms = f"{method.explain_ms:.0f} ms" if learned else "-"
        lines.append(f"{method.name:15}{first:>27}{second:>22}{seconds:>8}{ms:>13}{method.n_queries:>12,}")
    findings = [textwrap.fill(finding, 100, subsequent_indent="  ") for finding in content.findings]
    return "\n".join([*lines, "", *findings])
