"""Curves: how an explainer learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sointer.errors import InputError
from sointer.plot.canvas import BLUE, GREY, ORANGE, make_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def history(rows: Sequence[Mapping[str, Any]], ax: Axes | None = None) -> Axes:
    """Held-out loss, and agreement with the black box on a second scale, over training steps (`history_`)."""
    kept = [row for row in rows if "step" in row and "held_out_loss" in row]
    if not kept:
        raise InputError(
            "history: no row has both 'step' and 'held_out_loss', so there is nothing to draw; expected the "
            "history_ of an explainer fitted with preset='default'."
        )
    steps = [row["step"] for row in kept]
    ax = make_axes(ax)
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
