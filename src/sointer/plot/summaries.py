"""Bars over many rows: in how many a feature is needed, and for which value of the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.formatting import by_side, of_kind
from sointer.errors import InputError
from sointer.plot.bars import share_label
from sointer.plot.canvas import DISTINCT, GREY, bars_size, label_axis, make_axes, shorten, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explanation import Explanation

MOST_VALUES = len(DISTINCT) - 1


def summary(explanation: Explanation, n: int = 15, ax: Axes | None = None) -> Axes:
    """The share of rows that need each of the n features needed most, the bars cut by the value that they explain.

    Numbers count as lower or higher than their middle, probabilities as 1 above 0.5; of many classes, the rarest count
    as others.
    """
    targets = np.unique(explanation.target)
    if len(targets) != 1:
        some = ", ".join(shorten(explanation.output_names[t]) for t in targets[:3])
        raise InputError(
            f'summary: this explanation has {len(targets)} targets ({some} ...), expected one; use kind="heatmap", '
            "or explain one target."
        )
    chosen = explanation.needed_mask
    share = chosen.mean(axis=0)
    strength = np.abs(explanation.scores).mean(axis=0)
    units = [unit for unit in np.lexsort((-strength, -share))[:n].tolist() if share[unit] > 0]
    names = [explanation.feature_names[unit] for unit in units]
    width, height = bars_size(names)
    ax = make_axes(ax, width + 1.5, height + 0.4)
    left = np.zeros(len(units))
    outputs = explanation.source.outputs
    is_number = bool(of_kind("continuous", outputs, explanation.target).all())
    kinds = _kinds_of_value(by_side(explanation.value, outputs, explanation.target), is_number=is_number)
    for (label, rows), colour in zip(kinds, (*DISTINCT[:MOST_VALUES], GREY), strict=False):
        share_of = chosen[np.ix_(np.flatnonzero(rows), units)].sum(axis=0) / len(explanation)
        ax.barh(
            range(len(units)), share_of, left=left, color=colour, height=0.7, label=f"{label} ({int(rows.sum())} rows)"
        )
        left += share_of
    label_axis(ax, "y", names)
    ax.set_ylim(max(len(units), 1) - 0.5, -0.5)
    ax.set_xlim(0, 1)
    ax.set_xlabel(share_label(explanation))
    target = shorten(explanation.output_names[targets[0]])
    title(ax, f"what decides {target}, over {len(explanation)} rows")
    whose = "expected value" if explanation.value_source == "expected" else "value"
    legend = ax.legend(title=f"{whose} of {target}", loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _kinds_of_value(explained: NDArray[Any], *, is_number: bool) -> list[tuple[str, NDArray[np.bool_]]]:
    """The values that are explained, in words, and the rows that have them; the largest value first."""
    if is_number:
        middle = float(np.median(explained.astype(float)))
        return [(f"above {middle:.3g}", explained > middle), (f"up to {middle:.3g}", explained <= middle)]
    values, counts = np.unique(explained.astype(str), return_counts=True)
    kept = sorted(values[np.argsort(-counts, kind="stable")][:MOST_VALUES].tolist(), reverse=True)
    as_text = explained.astype(str)
    kinds = [(shorten(value), as_text == value) for value in kept]
    if len(values) > len(kept):
        kinds.append(("another value", ~np.isin(as_text, kept)))
    return kinds
