"""Paths from features to the target, and heat maps of interactions, localities and selections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sointer._support.validation import check_positive_int
from sointer.errors import InputError
from sointer.paths import Localities
from sointer.viz.plots.bars import share_label
from sointer.viz.plots.canvas import BLUE, GREY, ORANGE, label_axis, make_axes, relevance_colours, short, shorten, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explanation import Explanation
    from sointer.paths import Paths


MAX_LINE_WIDTH, MIN_SHOWN = 13.0, 0.06


def flow(paths: Paths, row: int | None = None, n: int = 6, ax: Axes | None = None) -> Axes:
    """Draw what features do to the target, directly or through other outputs; lines are as wide as the effects.

    Shows the top n features (as in `paths.summary()`) and the outputs that carry any of their effect.
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
        return abs(effect) >= MIN_SHOWN * largest

    def main_path(unit: int) -> tuple[int, float]:
        _, direct, through = effects[unit]
        best = max(through, key=lambda i: through[i], default=-1)
        # Features of the same output stand together, those that go directly stand last.
        return (len(paths.output_names) if best < 0 or direct > through[best] else best), -effects[unit][0]

    units.sort(key=main_path)
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
        width = max(0.8, MAX_LINE_WIDTH * min(abs(effect) / largest, 1.0))
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


MAX_SIDE = 12.0


def interactions(matrix: npt.ArrayLike, names: Sequence[str], ax: Axes | None = None) -> Axes:
    """Draw how strongly each pair of outputs is coupled (`output_interactions_`), as a heat map."""
    values = np.asarray(matrix, dtype=np.float64)
    side = min(2.4 + 0.45 * len(names), MAX_SIDE)
    ax = make_axes(ax, width=side + 0.8, height=side)
    hidden_diagonal = np.where(np.eye(len(names), dtype=bool), np.nan, values)
    image = ax.imshow(hidden_diagonal, cmap="Blues", vmin=0.0, aspect="auto")
    label_axis(ax, "x", list(names), rotation=45, longest=22)
    label_axis(ax, "y", list(names))
    ax.figure.colorbar(image, ax=ax, label="strength of coupling", shrink=0.8)
    ax.set_title("interactions between outputs")
    return ax


def neighbours(strength: npt.ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw where a pixel of a mask looks in the image, by displacement; `strength` has the pixel in its middle."""
    values = np.array(strength, dtype=np.float64)
    down, right = values.shape[0] // 2, values.shape[1] // 2
    ax = make_axes(ax, width=4.4, height=3.6)
    image = ax.imshow(values, cmap="Blues", vmin=0.0, extent=(-right - 0.5, right + 0.5, down + 0.5, -down - 0.5))
    ax.set_xlabel("columns to the right")
    ax.set_ylabel("rows down")
    ax.figure.colorbar(image, ax=ax, label="share of attention", shrink=0.8)
    ax.set_title("where pixels of the mask look")
    return ax


MAX_TARGETS, MAX_NUMBERS = 60, 200
DARK = 0.5


def heatmap(explanation: Explanation, n: int = 20, ax: Axes | None = None) -> Axes:
    """Draw, for every target, the share of its rows that need each of the top n features.

    Parameters
    ----------
    explanation : Explanation
    n : int, default 20
        Maximum number of features.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    targets, counts = np.unique(explanation.target, return_counts=True)
    n_targets = len(targets)
    targets = np.sort(targets[np.argsort(-counts, kind="stable")][:MAX_TARGETS])
    chosen = explanation.needed_mask
    table = np.stack([chosen[explanation.target == target].mean(axis=0) for target in targets])
    best = np.argsort(-table.max(axis=0), kind="stable")[:n]
    units = best[table[:, best].max(axis=0) > 0]
    if len(units) == 0:
        units = best[:1]
    # Features stand below the target that needs them most, so that what is shared is seen at a glance.
    units = units[np.lexsort((-table[:, units].max(axis=0), table[:, units].argmax(axis=0)))]
    shares = table[:, units]
    ax = make_axes(ax, width=min(4.5 + 0.42 * len(units), 24.0), height=min(3.2 + 0.34 * len(targets), 24.0))
    image = ax.imshow(shares, cmap=relevance_colours(), vmin=0.0, vmax=1.0, aspect="auto")
    label_axis(ax, "y", [explanation.output_names[target] for target in targets])
    label_axis(ax, "x", [explanation.feature_names[unit] for unit in units], rotation=45, longest=22)
    if shares.size <= MAX_NUMBERS:
        for row, column in zip(*np.nonzero(shares), strict=True):
            share = shares[row, column]
            colour = "white" if share > DARK else "black"
            ax.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=colour)
    ax.figure.colorbar(image, ax=ax, label=share_label(explanation))
    shown = "" if n_targets == len(targets) else f" ({len(targets)} of {n_targets} targets)"
    title(ax, f"which features decide which target{shown}")
    return ax


MAX_LABEL = 60


def localities(found: Localities, *, n: int = 12, ax: Any = None) -> Any:
    """Draw one row per locality and one column per feature, darker where the feature matters more."""
    strength: dict[str, float] = {}
    for leaf in found:
        for feature, relevance in zip(leaf.features, leaf.relevance, strict=True):
            strength[feature] = strength.get(feature, 0.0) + leaf.share * relevance
    names = sorted(strength, key=lambda name: -strength[name])[:n]
    table = np.full((len(found), max(len(names), 1)), np.nan)
    for row, leaf in enumerate(found):
        of_feature = dict(zip(leaf.features, leaf.relevance, strict=True))
        table[row, : len(names)] = [of_feature.get(name, np.nan) for name in names]
    ax = make_axes(ax, 4.5 + 0.55 * len(names), 2.0 + 0.45 * len(found))
    shown = ax.imshow(table, cmap=relevance_colours(), vmin=0.0, aspect="auto")
    strongest = float(np.nanmax(table)) if names else 1.0
    places = [f"{shorten(leaf.where, MAX_LABEL)} ({n}%)" for n, leaf in zip(found.percents, found, strict=True)]
    label_axis(ax, "y", places, longest=MAX_LABEL + 7)
    label_axis(ax, "x", names, rotation=45)
    # Lines between cells, so that an empty row is seen to be one.
    ax.set_xticks(np.arange(table.shape[1] + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(len(found) + 1) - 0.5, minor=True)
    ax.grid(which="minor", color=GREY, linewidth=0.4, alpha=0.5)
    ax.tick_params(which="minor", length=0)
    for row, column in zip(*np.nonzero(np.isfinite(table)), strict=True):
        relevance = table[row, column]
        colour = "white" if relevance > DARK * strongest else "black"
        ax.text(column, row, f"{relevance:.2g}", ha="center", va="center", fontsize=7, color=colour)
    ax.figure.colorbar(shown, ax=ax, label="relevance")
    name = shorten(found.target)
    title(ax, f"what decides {name}, by region" if found.decided else f"the strongest of many features for {name}")
    return ax
