"""Pictures of explanations and of how they were learned, with matplotlib; nothing is shown or styled globally.

In all of them, `row` is the number of an explained row (negative ones count from the end), `n` how many features are
shown at most, and `ax` where to draw, by default on a new figure; the Axes that were drawn on are returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sointer._support.validation import check_positive_int
from sointer.errors import InputError
from sointer.viz.plots.bars import bar, effects, summary
from sointer.viz.plots.images import image, image_grid
from sointer.viz.plots.maps import heatmap
from sointer.viz.plots.words import words

if TYPE_CHECKING:
    from sointer.explanation import Explanation

OF_EXPLAINERS = ("interactions", "history")
DEFAULT_N = {"bar": 10, "effects": 10, "summary": 15, "heatmap": 20}


def kinds(explanation: Explanation) -> list[str]:
    """List the kinds of plots that suit an explanation.

    Parameters
    ----------
    explanation : Explanation

    Returns
    -------
    list of str
    """
    if explanation.source.input_format.image is not None:
        return ["image"]
    known = ["bar", *(["effects"] if explanation.effects is not None else []), "summary", "heatmap"]
    return [*known, *(["words"] if explanation.source.texts is not None else [])]


def usual_kind(explanation: Explanation, row: int | None) -> str:
    """Name the plot that is drawn by default.

    Parameters
    ----------
    explanation : Explanation
    row : int or None
        None for all rows.

    Returns
    -------
    str
    """
    known = kinds(explanation)
    if "image" in known:
        return "image"
    if row is not None:
        return "words" if "words" in known else "bar"
    return "summary" if len(np.unique(explanation.target)) == 1 else "heatmap"


def draw(explanation: Explanation, kind: str | None, *, row: int | None, n: int | None, ax: Any) -> Any:
    """Draw a plot of one row, or of all.

    Parameters
    ----------
    explanation : Explanation
    kind : str or None
        One of `kinds(explanation)`; None for the default.
    row : int or None
        Index of the row; None for all.
    n : int or None
        Maximum number of features (of images, rows).
    ax : Axes or None
        Where to draw; None for a new figure.

    Returns
    -------
    Axes, or an array of them

    Raises
    ------
    InputError
        If the arguments do not fit the explanation, or each other.
    """
    known = kinds(explanation)
    kind = usual_kind(explanation, row) if kind is None else kind
    if kind not in known:
        suit = ", ".join(map(repr, known))
        instead = f" Call explainer.plot_{kind}() for that." if kind in OF_EXPLAINERS else ""
        raise InputError(f"plot: kind is {kind!r}, expected one of {suit}, which suit this explanation.{instead}")
    if n is not None:
        check_positive_int(n, "n")
    if kind == "image":
        return _images(explanation, row, n, ax)
    if kind == "words":
        if row is None or n is not None:
            raise InputError(
                f'plot: kind="words" got row={row!r} and n={n!r}; expected a row alone, as in plot(row=0): it marks '
                "all words selected for one document."
            )
        return words(explanation, row, ax=ax)
    number = DEFAULT_N[kind] if n is None else n
    if kind == "bar":
        return bar(explanation, row=row, n=number, ax=ax)
    if kind == "effects":
        if row is None:
            raise InputError('plot: kind="effects" is about one row, but none was given; expected plot(row=0).')
        return effects(explanation, row, number, ax)
    if row is not None:
        raise InputError(
            f'plot: kind={kind!r} is about all rows, but row={row!r} was given; leave it out, or use "bar".'
        )
    return summary(explanation, number, ax) if kind == "summary" else heatmap(explanation, number, ax)


def _images(explanation: Explanation, row: int | None, n: int | None, ax: Any) -> Any:
    if row is not None and n is None:
        return image(explanation, row, ax=ax)
    if row is not None or ax is not None:
        raise InputError(
            f"plot: got row={row!r}, n={n!r} and {'no ax' if ax is None else 'an ax'}; for images expected a row "
            "(with ax, if you like), or no row and how many images to show, n."
        )
    return image_grid(explanation, None if n is None else range(min(n, len(explanation))))
