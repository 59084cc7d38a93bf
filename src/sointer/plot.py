"""Pictures of explanations and of how they were learned, with matplotlib; nothing is shown or styled globally."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sointer.errors import InputError, require_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explanation import Explanation

BLUE, ORANGE, GREY = "#1f6fb2", "#d9600a", "#8a8f98"

Line = tuple[tuple[float, float], tuple[float, float]]


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
