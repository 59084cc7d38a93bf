"""A map of localities: where which features matter."""

from __future__ import annotations

from typing import Any

import numpy as np

from sointer.paths import Localities
from sointer.plot.canvas import GREY, label_axis, make_axes, relevance_colours, shorten, title
from sointer.plot.heatmaps import DARK

MAX_LABEL = 60


def localities(found: Localities, *, n: int = 12, ax: Any = None) -> Any:
    """One row per locality, one column per feature, darker where the feature matters more; returns the Axes."""
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
    places = [f"{shorten(leaf.where, MAX_LABEL)} ({leaf.share:.0%})" for leaf in found]
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
    what = "where which features decide" if found.decided else "the strongest of many features for"
    title(ax, f"{what} {shorten(found.target)}")
    return ax
