"""Bars: the features of one row, or the share of rows that need each feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sointer.data.targets import by_side, effects_from, effects_on, of_kind
from sointer.errors import InputError
from sointer.masking.selection import most_needed
from sointer.viz.plots.canvas import (
    BLUE,
    DISTINCT,
    DOWN,
    GREY,
    NEUTRAL,
    ORANGE,
    UP,
    bars_size,
    check_row,
    digits,
    label_axis,
    labels_with_values,
    make_axes,
    short,
    shorten,
    signed,
    title,
    why,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explanation import Explanation


HEIGHT = 0.7
OTHERS = "all others"
MAX_UNIT_LENGTH = 44


def bar(explanation: Explanation, row: int | None = None, n: int = 10, ax: Axes | None = None) -> Axes:
    """Draw the features selected for one row; without a row, the share of rows that need each.

    Beside the relevance, effects are drawn where they are known and no `ax` is given; `effects` draws them on any axes.
    Bars of features that the row does not need are hollow.

    Parameters
    ----------
    explanation : Explanation
    row : int, optional
        Index of the row; negative ones count from the end.
    n : int, default 10
        Maximum number of features.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    if row is None:
        return _shares(explanation, n, ax)
    row = check_row(explanation, row)
    units = _units(explanation, row, n)
    names = labels_with_values(explanation, row, units)
    if ax is not None or explanation.effects is None or not units:
        ax = make_axes(ax, *bars_size(names))
        _relevance(ax, explanation, row, units)
        title(ax, why(explanation, row))
        return ax
    width, height = bars_size([*names, OTHERS])
    left = make_axes(None, width + 4.2, height + 0.5)
    figure = left.figure
    figure.clear()
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.25))
    _effects(right, explanation, row, units, has_names=False)
    _relevance(left, explanation, row, units, n_lines=len(units) + 1)
    label_axis(left, "y", [*names, OTHERS])
    figure.suptitle(why(explanation, row), fontsize=11, parse_math=False)
    return left  # type: ignore[no-any-return]


def effects(explanation: Explanation, row: int, n: int = 10, ax: Axes | None = None) -> Axes:
    """Draw which way the features selected for one row push the output, and how far; the rest is summed up.

    Parameters
    ----------
    explanation : Explanation
    row : int
        Index of the row; negative ones count from the end.
    n : int, default 10
        Maximum number of features.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    row = check_row(explanation, row)
    units = _units(explanation, row, n)
    names = [*labels_with_values(explanation, row, units), OTHERS]
    width, height = bars_size(names)
    ax = make_axes(ax, width + 0.6, height + 0.5)
    _effects(ax, explanation, row, units, has_names=True)
    title(ax, why(explanation, row))
    return ax


def _units(explanation: Explanation, row: int, n: int) -> list[int]:
    return [int(unit) for unit in explanation.selected[row] if unit >= 0][:n]


def _hollow(explanation: Explanation, row: int, units: list[int]) -> NDArray[np.bool_]:
    """Units that are there only because k is that large."""
    if explanation.needed is None:
        return np.zeros(len(units), dtype=bool)
    return np.asarray(~explanation.needed[row, units])


def _relevance(ax: Axes, explanation: Explanation, row: int, units: list[int], n_lines: int | None = None) -> None:
    """Relevance in one colour: it has no sign."""
    names = labels_with_values(explanation, row, units)
    lengths, hollow = explanation.scores[row, units], _hollow(explanation, row, units)
    _draw(ax, lengths, [NEUTRAL] * len(units), hollow)
    label_axis(ax, "y", names)
    ax.set_ylim((n_lines or len(names)) - 0.5, -0.5)
    ax.set_xlabel("relevance" if (lengths >= 0).all() else "score")
    if hollow.any():
        _key(ax)
    ax.spines[["top", "right"]].set_visible(False)


def _effects(ax: Axes, explanation: Explanation, row: int, units: list[int], *, has_names: bool) -> None:
    """Effects in the unit of the output, the sum of all that are not shown at the end."""
    assert explanation.effects is not None
    own = explanation.effects[row, units].astype(float)
    rest = float(explanation.effects[row].sum() - own.sum())
    lengths = np.array([*own, rest])
    hollow = np.array([*_hollow(explanation, row, units), False])
    _draw(ax, lengths, [UP if length >= 0 else DOWN for length in lengths], hollow)
    ax.axvline(0.0, color=GREY, linewidth=0.8, zorder=0)
    for place, length in enumerate(lengths):
        side = "left" if length >= 0 else "right"
        ax.annotate(
            signed(length),
            (length, place),
            xytext=(4 if length >= 0 else -4, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=8,
        )
    if has_names:
        label_axis(ax, "y", [*labels_with_values(explanation, row, units), OTHERS])
    else:
        ax.tick_params(axis="y", left=False, labelleft=False)
    ax.set_ylim(len(lengths) - 0.5, -0.5)
    ax.margins(x=0.18)  # space for the numbers
    target, value = int(explanation.target[row]), short(explanation.value[row])
    what = shorten(effects_on(explanation.source.outputs, target, value), MAX_UNIT_LENGTH)
    ax.set_xlabel(f"pushes {what} up (+) or down (−)\n{from_to(explanation, row)}", parse_math=False)
    ax.spines[["top", "right", "left"]].set_visible(False)


def from_to(explanation: Explanation, row: int) -> str:
    """Where effects lead: from what the output is on average to what is expected of it, and what it is."""
    assert explanation.effects is not None
    parts = []
    if explanation.base_value is not None:
        base = float(explanation.base_value[row])
        start = effects_from(explanation.source.removal.name, is_text=explanation.source.input_format.has_words)
        parts = [f"{digits(base)} {start}", f"{digits(base + float(explanation.effects[row].sum()))} with all effects"]
    outputs, target = explanation.source.outputs, int(explanation.target[row])
    if outputs.graded[target] and explanation.value_source != "expected":
        parts.append(f"the model predicts {short(explanation.value[row])}")
    return ", ".join(parts)


def _draw(ax: Axes, lengths: NDArray[Any], colours: list[str], hollow: NDArray[np.bool_]) -> None:
    faces = ["none" if is_hollow else colour for colour, is_hollow in zip(colours, hollow, strict=True)]
    edges = [GREY if is_hollow else colour for colour, is_hollow in zip(colours, hollow, strict=True)]
    ax.barh(range(len(lengths)), lengths, color=faces, edgecolor=edges, linewidth=0.8, height=HEIGHT)


def _key(ax: Axes) -> None:
    """Says what hollow bars are."""
    from matplotlib.patches import Patch

    ax.legend(
        handles=[Patch(facecolor="none", edgecolor=GREY, label="not needed")],
        loc="lower right",
        fontsize=8,
        frameon=False,
    )


def _shares(explanation: Explanation, n: int, ax: Axes | None) -> Axes:
    """The share of rows that need each feature."""
    summary = explanation.summary(n)
    if len(summary) != 1:
        raise InputError(
            f"bar: this explanation has {len(summary)} targets ({', '.join(list(summary)[:3])} ...), "
            "expected one; choose a row, as in bar(explanation, row=0), or explain one target."
        )
    [(target, shares)] = summary.items()
    names = [name for name, _ in shares]
    ax = make_axes(ax, *bars_size(names))
    ax.barh(range(len(names)), [share for _, share in shares], color=NEUTRAL, height=HEIGHT)
    _label_shares(ax, explanation, names, shorten(target))
    return ax


def _label_shares(ax: Axes, explanation: Explanation, names: list[str], target: str) -> None:
    label_axis(ax, "y", names)
    ax.set_ylim(max(len(names), 1) - 0.5, -0.5)
    ax.set_xlim(0, 1)
    ax.set_xlabel(share_label(explanation))
    title(ax, f"what decides {target}, over {len(explanation)} rows")
    ax.spines[["top", "right"]].set_visible(False)


def share_label(explanation: Explanation) -> str:
    """What is counted over rows: features that are needed, where that is known."""
    return "share of rows that selected it" if explanation.needed is None else "share of rows that need it"


MAX_VALUES = len(DISTINCT) - 1


def summary(explanation: Explanation, n: int = 15, ax: Axes | None = None) -> Axes:
    """Draw the share of rows that need each of the top n features, split by the value explained.

    Numbers count as above or below their median, probabilities as 1 above 0.5; of many classes, the rarest are joined.

    Parameters
    ----------
    explanation : Explanation
    n : int, default 15
        Maximum number of features.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        If several targets were explained.
    """
    targets = np.unique(explanation.target)
    if len(targets) != 1:
        first = ", ".join(shorten(explanation.output_names[t]) for t in targets[:3])
        raise InputError(
            f'summary: this explanation has {len(targets)} targets ({first} ...), expected one; use kind="heatmap", '
            "or explain one target."
        )
    chosen = explanation.needed_mask
    units = np.array([unit for unit, _ in most_needed(chosen, explanation.scores, n)], dtype=np.int64)
    names = [explanation.feature_names[unit] for unit in units]
    width, height = bars_size(names)
    ax = make_axes(ax, width + 1.5, height + 0.4)
    left = np.zeros(len(units))
    outputs = explanation.source.outputs
    is_number = bool(of_kind("continuous", outputs, explanation.target).all())
    kinds = _kinds_of_value(by_side(explanation.value, outputs, explanation.target), is_number=is_number)
    for (label, rows), colour in zip(kinds, (*DISTINCT[:MAX_VALUES], GREY), strict=False):
        share_of = chosen[np.ix_(np.flatnonzero(rows), units)].sum(axis=0) / len(explanation)
        ax.barh(
            range(len(units)), share_of, left=left, color=colour, height=0.7, label=f"{label} ({int(rows.sum())} rows)"
        )
        left += share_of
    target = shorten(explanation.output_names[targets[0]])
    _label_shares(ax, explanation, names, target)
    whose = "expected value" if explanation.value_source == "expected" else "value"
    legend = ax.legend(title=f"{whose} of {target}", loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)
    return ax


def _kinds_of_value(explained: NDArray[Any], *, is_number: bool) -> list[tuple[str, NDArray[np.bool_]]]:
    """The values that are explained, as text, and the rows that have them; the largest value first."""
    if is_number:
        middle = float(np.median(explained.astype(float)))
        return [(f"above {digits(middle)}", explained > middle), (f"up to {digits(middle)}", explained <= middle)]
    values, counts = np.unique(explained.astype(str), return_counts=True)
    kept = sorted(values[np.argsort(-counts, kind="stable")][:MAX_VALUES].tolist(), reverse=True)
    as_text = explained.astype(str)
    kinds = [(shorten(value), as_text == value) for value in kept]
    if len(values) > len(kept):
        kinds.append(("another value", ~np.isin(as_text, kept)))
    return kinds


def history(rows: Sequence[Mapping[str, Any]], ax: Axes | None = None) -> Axes:
    """Draw held-out loss, and agreement with the model on a second scale, over training steps (rows of `history_`)."""
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
    right.set_ylabel("agreement with the model", color=ORANGE)
    stages = [row.get("stage") for row in kept]
    for before, after, step in zip(stages, stages[1:], steps, strict=False):
        if before != after:
            ax.axvline(step, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_title("training on held-out queries")
    return ax
