"""Bars: the features of one row, or how often each feature was selected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sointer.errors import InputError
from sointer.plot.canvas import BLUE, ORANGE, bars_size, check_row, label_axis, make_axes, shorten, title, why

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explanation import Explanation


def bar(explanation: Explanation, row: int | None = None, n: int = 10, ax: Axes | None = None) -> Axes:
    """The features selected for one row with their scores; without a row, how often each was selected."""
    if row is None:
        names, lengths, heading = _shares(explanation, n)
        label = "share of rows that selected it"
    else:
        names, lengths, heading = _row_scores(explanation, row, n)
        label = "score"
    ax = make_axes(ax, *bars_size(names))
    # What speaks against the value that is explained has another colour, and points the other way.
    ax.barh(range(len(names)), lengths, color=[BLUE if length >= 0 else ORANGE for length in lengths], height=0.7)
    label_axis(ax, "y", names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    if row is None:
        ax.set_xlim(0, 1)
    ax.set_xlabel(label)
    title(ax, heading)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _row_scores(explanation: Explanation, row: int, n: int) -> tuple[list[str], list[float], str]:
    row = check_row(explanation, row)
    units = [int(unit) for unit in explanation.selected[row] if unit >= 0][:n]
    names = [explanation.feature_names[unit] for unit in units]
    return names, [float(explanation.scores[row, unit]) for unit in units], why(explanation, row)


def _shares(explanation: Explanation, n: int) -> tuple[list[str], list[float], str]:
    summary = explanation.summary(n)
    if len(summary) != 1:
        raise InputError(
            f"bar: this explanation has {len(summary)} targets ({', '.join(list(summary)[:3])} ...), "
            "expected one; choose a row, as in bar(explanation, row=0), or explain one target."
        )
    [(target, shares)] = summary.items()
    heading = f"what decides {shorten(target)}, over {len(explanation)} rows"
    return [name for name, _ in shares], [share for _, share in shares], heading
