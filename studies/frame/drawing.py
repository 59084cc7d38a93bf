"""What the figures of all studies share: one colour per method, means with intervals, one way to save."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from sointer.metrics import mean_interval

mpl.use("Agg")
mpl.rcParams.update(
    {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25}
)

# Okabe and Ito's colours, which everybody can tell apart; a method looks the same in every figure.
METHODS: dict[str, dict[str, Any]] = {
    "SOInter": {"color": "#d55e00", "marker": "o", "linewidth": 2.6, "zorder": 5},
    "SOInter-1": {"color": "#0072b2", "marker": "s"},
    "SOInter, paper preset": {"color": "#7a5195", "marker": "h", "linestyle": "-."},
    "L2X": {"color": "#3c9fd6", "marker": "X"},
    "KernelShap": {"color": "#cc79a7", "marker": "D"},
    "KernelShap, as packaged": {"color": "#cc79a7", "marker": "D", "linestyle": "--", "markerfacecolor": "white"},
    "Lime": {"color": "#b8860b", "marker": "v"},
    "Lime, as packaged": {"color": "#b8860b", "marker": "v", "linestyle": "--", "markerfacecolor": "white"},
    "ShapleySampling": {"color": "#009e73", "marker": "^"},
    "Random": {"color": "#999999", "marker": ".", "linestyle": ":"},
}


def band(
    ax: Axes,
    values: Mapping[float, Sequence[float]],
    label: str | None,
    style: Mapping[str, Any],
    *,
    low: float = 0.0,
    high: float = 1.0,
) -> None:
    """Means over seeds against x, with the 95 % interval shaded, cut off where no value can be.

    Of two seeds there is no interval worth showing.
    """
    x = np.array(sorted(values))
    found = [mean_interval(values[position]) for position in x]
    ax.plot(x, [f.mean for f in found], label=label, markersize=5, **style)
    enough = np.array([len(values[position]) > 2 for position in x])
    ax.fill_between(
        x,
        np.clip([f.low for f in found], low, high),
        np.clip([f.high for f in found], low, high),
        where=enough,
        color=style["color"],
        alpha=0.12,
        linewidth=0,
    )


def legend_below(figure: Figure, axes: Axes, columns: int = 5) -> None:
    """One legend for all panels, below them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=columns, frameon=False)


def finish(figure: Figure, path: Path) -> None:
    """Write a figure with 256 colours, which take a third of the bytes."""
    figure.savefig(path, dpi=130, bbox_inches="tight", facecolor="white")
    figure.clear()
    with Image.open(path) as drawn:
        drawn.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def seeds(counts: Iterable[int]) -> str:
    """How many seeds stand behind the points of a page."""
    found = sorted(set(counts))
    if found[0] == found[-1]:
        return f"{found[0]} seed{'s' * (found[0] > 1)}"
    return f"{found[0]} to {found[-1]} seeds"


def seeds_in(rows: Iterable[Mapping[str, Any]]) -> str:
    """Which seeds there are: "seeds 101, 102 and 103"."""
    found = [str(seed) for seed in sorted({row["seed"] for row in rows})]
    return f"seed {found[0]}" if len(found) == 1 else f"seeds {', '.join(found[:-1])} and {found[-1]}"


def interval(values: Sequence[float], low: float = 0.0, high: float = 1.0) -> str:
    """Mean and 95 % interval as text; a single value alone."""
    found = mean_interval(values)
    if len(values) < 2:
        return f"{found.mean:.2f}"
    return f"{found.mean:.2f} [{max(low, found.low):.2f}, {min(high, found.high):.2f}]"
