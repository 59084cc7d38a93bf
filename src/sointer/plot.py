"""Pictures of explanations and of how they were learned, with matplotlib; nothing is shown or styled globally."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sointer.errors import InputError, require_extra
from sointer.validation import check_positive_int

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explanation import Explanation
    from sointer.paths import Paths

BLUE, ORANGE, GREY = "#1f6fb2", "#d9600a", "#8a8f98"

Line = tuple[tuple[float, float], tuple[float, float]]

WIDEST_LINE, LEAST_SHOWN = 13.0, 0.06


def bar(explanation: Explanation, row: int | None = None, n: int = 10, ax: Axes | None = None) -> Axes:
    """The features selected for one row with their scores; without a row, how often each was selected."""
    if row is None:
        names, lengths, title = _shares(explanation, n)
        label = "share of rows that selected it"
    else:
        names, lengths, title = _row_scores(explanation, row, n)
        label = "score"
    ax = _axes(ax, height=1.2 + 0.3 * max(len(names), 1))
    ax.barh(range(len(names)), lengths, color=BLUE, height=0.7)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    if row is None:
        ax.set_xlim(0, 1)
    ax.set_xlabel(label)
    ax.set_title(title)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def history(rows: Sequence[Mapping[str, Any]], ax: Axes | None = None) -> Axes:
    """Held-out loss, and agreement with the black box on a second scale, over training steps (`history_`)."""
    kept = [row for row in rows if "step" in row and "held_out_loss" in row]
    if not kept:
        raise InputError(
            "history: no row has both 'step' and 'held_out_loss', so there is nothing to draw; expected the "
            "history_ of an explainer fitted with preset='default'."
        )
    steps = [row["step"] for row in kept]
    ax = _axes(ax)
    ax.plot(steps, [row["held_out_loss"] for row in kept], color=BLUE)
    ax.set_xlabel("training step")
    ax.set_ylabel("held-out loss", color=BLUE)
    agreement = [row.get("held_out_agreement", np.nan) for row in kept]
    right = ax.twinx()
    right.plot(steps, agreement, color=ORANGE)
    right.set_ylabel("agreement with the black box", color=ORANGE)
    stages = [row.get("stage") for row in kept]
    for before, after, step in zip(stages, stages[1:], steps, strict=False):
        if before != after:
            ax.axvline(step, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_title("training on held-out queries")
    return ax


def interactions(matrix: npt.ArrayLike, names: Sequence[str], ax: Axes | None = None) -> Axes:
    """How strongly each pair of outputs is coupled (`output_interactions_`), as a heat map."""
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim != 2 or values.shape != (len(names), len(names)):
        raise InputError(
            f"interactions: matrix has shape {values.shape}, expected one row and one column for each of the "
            f"{len(names)} names."
        )
    side = 1.8 + 0.45 * len(names)
    ax = _axes(ax, width=side + 0.8, height=side)
    hidden_diagonal = np.where(np.eye(len(names), dtype=bool), np.nan, values)
    image = ax.imshow(hidden_diagonal, cmap="Blues", vmin=0.0)
    ax.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(names)), names)
    ax.figure.colorbar(image, ax=ax, label="strength of coupling", shrink=0.8)
    ax.set_title("interactions between outputs")
    return ax


def pixels(
    explanation: Explanation,
    row: int,
    image_shape: tuple[int, int],
    ax: Axes | None = None,
    color: str = ORANGE,
) -> Axes:
    """The image of one row, dark where its values are large, with the selected pixels outlined."""
    row = _check_row(explanation, row)
    mask = explanation.mask[row]
    values = explanation.source.data[row]
    values = np.asarray(values.toarray() if hasattr(values, "toarray") else values, dtype=np.float64).ravel()
    n_pixels = int(np.prod(image_shape))
    if len(image_shape) != 2 or n_pixels != len(mask) or n_pixels != len(values):
        raise InputError(
            f"pixels: image_shape is {tuple(image_shape)}, expected (height, width) with height * width = "
            f"{len(mask)}, the number of features."
        )
    from matplotlib.collections import LineCollection

    ax = _axes(ax, width=3.2, height=3.5)
    ax.imshow(values.reshape(image_shape), cmap="Greys", interpolation="nearest")
    ax.add_collection(LineCollection(outline(mask.reshape(image_shape)), colors=color, linewidths=2.5))
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(_why(explanation, row))
    return ax


def outline(mask: npt.NDArray[np.bool_]) -> list[Line]:
    """The border between True and False pixels of a (height, width) mask, as lines ((x, y), (x, y)).

    Pixel centres are at whole numbers, as imshow draws them.
    """
    framed = np.pad(np.asarray(mask, dtype=bool), 1)
    lines: list[Line] = []
    for y, x in np.argwhere(framed[1:, 1:-1] != framed[:-1, 1:-1]):
        lines.append(((x - 0.5, y - 0.5), (x + 0.5, y - 0.5)))
    for y, x in np.argwhere(framed[1:-1, 1:] != framed[1:-1, :-1]):
        lines.append(((x - 0.5, y - 0.5), (x - 0.5, y + 0.5)))
    return lines


def flow(paths: Paths, row: int | None = None, n: int = 6, ax: Axes | None = None) -> Axes:
    """What features do to the target: straight to it, or through other outputs; lines as wide as the effects.

    The n features that matter most (as in `paths.summary()`) and the outputs that carry any of their effect, for one
    row or averaged over all.
    """
    check_positive_int(n, "n")
    if row is not None:
        picked, row = paths.pick(row), row % len(paths)
        title = f"row {row}: why {picked.output_names[picked.target[0]]} is {_short(picked.expected[0])}"
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
    ax = _axes(ax, width=6.4, height=1.3 + 0.55 * max(len(units), len(outputs), 2))

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


def _axes(ax: Axes | None, width: float = 6.0, height: float = 4.0) -> Axes:
    require_extra("matplotlib", "plot")
    if ax is not None:
        return ax
    from matplotlib import pyplot

    _, made = pyplot.subplots(figsize=(width, height), layout="constrained")
    return made


def _check_row(explanation: Explanation, row: int) -> int:
    if not -len(explanation) <= row < len(explanation):
        raise InputError(f"row is {row}, expected 0 to {len(explanation) - 1}: there are {len(explanation)} rows.")
    return row % len(explanation)


def _why(explanation: Explanation, row: int) -> str:
    name, value = explanation.output_names[explanation.target[row]], explanation.expected[row]
    return f"what decides {name} (expected {_short(value)}), row {row}"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float | np.floating) else str(value)


def _row_scores(explanation: Explanation, row: int, n: int) -> tuple[list[str], list[float], str]:
    row = _check_row(explanation, row)
    units = [int(unit) for unit in explanation.selected[row] if unit >= 0][:n]
    names = [explanation.feature_names[unit] for unit in units]
    return names, [float(explanation.scores[row, unit]) for unit in units], _why(explanation, row)


def _shares(explanation: Explanation, n: int) -> tuple[list[str], list[float], str]:
    summary = explanation.summary(n)
    if len(summary) != 1:
        raise InputError(
            f"bar: this explanation has {len(summary)} targets ({', '.join(list(summary)[:3])} ...), "
            "expected one; choose a row, as in bar(explanation, row=0), or explain one target."
        )
    [(target, shares)] = summary.items()
    title = f"what decides {target}, over {len(explanation)} rows"
    return [name for name, _ in shares], [share for _, share in shares], title
