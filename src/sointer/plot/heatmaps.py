"""A heat map of targets and features: the share of samples in which each feature is needed for each target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sointer.plot.bars import share_label
from sointer.plot.canvas import label_axis, make_axes, relevance_colours, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explanation import Explanation

MOST_TARGETS, MOST_NUMBERS = 60, 200
DARK = 0.5


def heatmap(explanation: Explanation, n: int = 20, ax: Axes | None = None) -> Axes:
    """For every target explained, the share of its rows that need each of the n features that any needs most."""
    targets, counts = np.unique(explanation.target, return_counts=True)
    n_targets = len(targets)
    targets = np.sort(targets[np.argsort(-counts, kind="stable")][:MOST_TARGETS])
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
    if shares.size <= MOST_NUMBERS:
        for row, column in zip(*np.nonzero(shares), strict=True):
            share = shares[row, column]
            colour = "white" if share > DARK else "black"
            ax.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=colour)
    ax.figure.colorbar(image, ax=ax, label=share_label(explanation))
    some = "" if n_targets == len(targets) else f" ({len(targets)} of {n_targets} targets)"
    title(ax, f"which features decide which target{some}")
    return ax
