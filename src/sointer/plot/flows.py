"""Lines from features to the target: straight, or through other outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sointer._support.validation import check_positive_int
from sointer.errors import InputError
from sointer.plot.canvas import BLUE, GREY, ORANGE, make_axes, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.paths import Paths

WIDEST_LINE, LEAST_SHOWN = 13.0, 0.06


def flow(paths: Paths, row: int | None = None, n: int = 6, ax: Axes | None = None) -> Axes:
    """What features do to the target: straight to it, or through other outputs; lines as wide as the effects.

    The n features that matter most (as in `paths.summary()`) and the outputs that carry any of their effect, for one
    row or averaged over all.
    """
    check_positive_int(n, "n")
    if row is not None:
        picked, row = paths.pick(row), row % len(paths)
        name, value = picked.output_names[picked.target[0]], short(picked.value[0])
        predicts = "is expected to be" if paths.value_source == "expected" else "is"
        title = f"row {row}: why {name} {predicts} {value}"
        paths = picked
    if len(np.unique(paths.target)) != 1:
        raise InputError(
            f"flow: these paths have {len(np.unique(paths.target))} targets, expected one; choose a row, as in "
            "paths.plot(row=0), or explain one target."
        )
    target = int(paths.target[0])
    if row is None:
        title = f"what decides {paths.output_names[target]}, over {len(paths)} rows"
    units = paths.ranked(target)[:n]
    if not units:
        who = "no row has a" if row is None else f"row {row} has no"
        raise InputError(
            f"flow: {who} selected feature, so there is nothing to draw; expected at least one: choose another row, "
            "or explain with a number k instead of 'auto'."
        )
    effects = {unit: paths.average(target, unit) for unit in units}
    largest = max([abs(effects[unit][0]) for unit in units] + [1e-9])

    def shown(effect: float) -> bool:
        return abs(effect) >= LEAST_SHOWN * largest

    def main_way(unit: int) -> tuple[int, float]:
        _, direct, through = effects[unit]
        best = max(through, key=lambda i: through[i], default=-1)
        # Features of the same output stand together, those that go directly stand last.
        return (len(paths.output_names) if best < 0 or direct > through[best] else best), -effects[unit][0]

    units.sort(key=main_way)
    height = {unit: -float(place) for place, unit in enumerate(units)}
    outputs = sorted({i for unit in units for i, effect in effects[unit][2].items() if shown(effect)})
    centre = {i: _weighted([(height[unit], effects[unit][2][i]) for unit in units]) for i in outputs}
    middle = -(len(units) - 1) / 2
    level: dict[int, float] = {}
    for i in sorted(outputs, key=lambda i: -centre[i]):
        level[i] = min([centre[i], *(above - 1.0 for above in level.values())])
    ax = make_axes(ax, width=6.4, height=1.3 + 0.55 * max(len(units), len(outputs), 2))

    def line(start: tuple[float, float], end: tuple[float, float], effect: float, color: str) -> None:
        style = "-" if effect >= 0 else ":"
        width = max(0.8, WIDEST_LINE * min(abs(effect) / largest, 1.0))
        bend = np.linspace(0, 1, 40)
        along = start[0] + (end[0] - start[0]) * bend
        up = start[1] + (end[1] - start[1]) * (bend if color == ORANGE else bend**2 * (3 - 2 * bend))
        ax.plot(along, up, style, color=color, linewidth=width, alpha=0.55, solid_capstyle="butt", zorder=1)

    for unit in units:
        _, direct, through = effects[unit]
        if shown(direct):
            line((0.0, height[unit]), (1.0, middle), direct, ORANGE)
        for i in outputs:
            if shown(through.get(i, 0.0)):
                line((0.0, height[unit]), (0.5, level[i]), through[i], BLUE)
    for i in outputs:
        strongest = max((effects[unit][2].get(i, 0.0) for unit in units), key=abs)
        line((0.5, level[i]), (1.0, middle), strongest, BLUE)
    for unit in units:
        _node(ax, -0.01, height[unit], f"{paths.feature_names[unit]}  {effects[unit][0]:.2f}", "right")
    for i in outputs:
        _node(ax, 0.5, level[i], paths.output_names[i], "center")
    _node(ax, 1.01, middle, paths.output_names[target], "left")
    ax.plot([], [], color=ORANGE, linewidth=5, alpha=0.55, label="direct")
    ax.plot([], [], color=BLUE, linewidth=5, alpha=0.55, label="through another output")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2, frameon=False)
    ax.set_title(title)
    if paths.warning:
        ax.text(0.5, -0.16, paths.warning, transform=ax.transAxes, ha="center", va="top", fontsize=8, color=GREY)
    ax.set_xlim(-0.3, 1.3)
    lowest, highest = min([*height.values(), *level.values()]), max([*height.values(), *level.values()])
    ax.set_ylim(lowest - 0.6, highest + 0.6)
    ax.set_axis_off()
    return ax


def _weighted(pairs: list[tuple[float, float]]) -> float:
    weight = sum(abs(effect) for _, effect in pairs)
    return sum(height * abs(effect) for height, effect in pairs) / weight if weight else 0.0


def _node(ax: Axes, x: float, y: float, text: str, side: Any) -> None:
    box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": GREY}
    ax.text(x, y, text, ha=side, va="center", bbox=box, zorder=3)
