"""Bars: the features of one row, or how often each feature was selected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sointer.errors import InputError
from sointer.plot.canvas import BLUE, check_row, make_axes, why

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explanation import Explanation


def bar(explanation: Explanation, row: int | None = None, n: int = 10, ax: Axes | None = None) -> Axes:
    """The features selected for one row with their scores; without a row, how often each was selected."""
    if row is None:
        names, lengths, title = _shares(explanation, n)
        label = "share of rows that selected it"
    else:
        names, lengths, title = _row_scores(explanation, row, n)
        label = "score"
    ax = make_axes(ax, height=1.2 + 0.3 * max(len(names), 1))
    ax.barh(range(len(names)), lengths, color=BLUE, height=0.7)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    if row is None:
        ax.set_xlim(0, 1)
    ax.set_xlabel(label)
    ax.set_title(title)
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
    title = f"what decides {target}, over {len(explanation)} rows"
    return [name for name, _ in shares], [share for _, share in shares], title
