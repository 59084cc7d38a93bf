"""A document with its selected words marked, and a sequence with its selected tokens."""

from __future__ import annotations

import html
import re
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from sointer.errors import require_extra
from sointer.viz.plots.canvas import (
    DOWN,
    GREY,
    LINE_SPACING,
    NEUTRAL,
    POINTS_PER_INCH,
    UP,
    check_row,
    labels_with_values,
    short,
    shorten,
    title,
    why,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explainers.sequence_explanation import SequenceExplanation
    from sointer.explanation import Explanation

LETTERS_PER_LINE, MAX_LINES, MAX_HTML_LENGTH = 84, 30, 1200
MONOSPACED_WIDTH = 0.602  # of a letter, in units of the font's size
MIN_ALPHA, MAX_ALPHA = 0.18, 0.6
READABLE_FONT = 9.0
MAX_TOKEN_LINES, WIDTH, LINE_HEIGHT = 12, 8.0, 3.0
"""Of a sequence: lines of tokens at most, inches across, and heights of a letter from one line to the next."""
GAP = "…"


Mark = tuple[int, int, int]
"""Where a selected unit stands in a text: its start, its end, and its place among those selected."""
Line = list[tuple[int, int, int]]
"""The words of a line: the column, and where each begins and ends in the text."""


def marks(explanation: Explanation, row: int) -> list[Mark]:
    """Where the selected units of a text stand, in their order."""
    place_of = {int(unit): place for place, unit in enumerate(explanation.selected[row]) if unit >= 0}
    spans = explanation.source.spans(row)
    return [(start, end, place_of[unit]) for start, end, unit in spans if unit in place_of]


def words(explanation: Explanation, row: int, ax: Axes | None = None) -> Axes:
    """Draw a document with its selected words marked: blue pushes the output up, orange down, the stronger the darker.

    Where effects are not known, all marks are grey, the darker the more relevant. Of long documents, lines without any
    are left out.

    Parameters
    ----------
    explanation : Explanation
    row : int
        Index of the row; negative ones count from the end.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    row = check_row(explanation, row)
    text, found = document(explanation, row), marks(explanation, row)
    strength_of, colours = _selected(explanation, row)
    letters = LETTERS_PER_LINE if ax is None else _letters_across(ax)
    lines, n_left_out = _wrapped(text, found, letters)
    strength = _strengths(strength_of)
    ax = _page(ax, len(lines))
    box, dpi = ax.get_window_extent(), ax.figure.dpi
    width, height = (side / dpi * POINTS_PER_INCH for side in (box.width, box.height))
    font = min(width / letters / MONOSPACED_WIDTH, height / (len(lines) + 1.6) / LINE_SPACING)
    # One unit across is a letter, one unit down is a line.
    ax.set_xlim(0, width / font / MONOSPACED_WIDTH)
    ax.set_ylim(height / font / LINE_SPACING, 0)
    from matplotlib.patches import Rectangle

    for number, line in enumerate(lines):
        # Word by word, since letters that are rounded to whole dots would drift away from their marks.
        for column, start, end in line:
            for first, last, place in found:
                low, high = max(start, first), min(end, last)
                if low < high:
                    at = (column + low - start, number + 0.05)
                    mark = Rectangle(at, high - low, 0.9, color=colours[place], alpha=strength[place], linewidth=0)
                    mark.set_gid(explanation.feature_names[explanation.selected[row, place]])
                    ax.add_patch(mark)
            word = text[start:end]
            ax.text(column, number + 0.5, word, family="monospace", fontsize=font, va="center", parse_math=False)
    if not text.strip():
        ax.text(0, 0.5, "(an empty text)", family="monospace", fontsize=font, va="center")
    inside = {unit for _, _, unit in explanation.source.spans(row)}
    beside = [int(unit) for unit in explanation.selected[row] if unit >= 0 and unit not in inside]  # other columns
    notes = [f"also selected: {', '.join(labels_with_values(explanation, row, beside))}"] if beside else []
    notes += [f"{n_left_out} lines without selected words are left out"] if n_left_out else []
    notes += ["blue pushes up, orange pushes down"] if explanation.effects is not None else []
    if notes:
        note = textwrap.shorten("; ".join(notes), 110, placeholder=" ...")
        ax.text(0, len(lines) + 0.9, note, fontsize=0.8 * font, color=GREY, va="center", parse_math=False)
    ax.set_axis_off()
    title(ax, why(explanation, row))
    return ax


def html_words(explanation: Explanation, row: int) -> str:
    """A document with its selected words marked, as HTML."""
    strength_of, colours = _selected(explanation, row)
    text, strength = document(explanation, row), _strengths(strength_of)
    shown = text[:MAX_HTML_LENGTH]
    parts, last = [], 0
    for start, end, place in marks(explanation, row):
        if end > len(shown):
            break
        style = f"background:{rgba(colours[place], strength[place])};color:inherit;border-radius:.25em;padding:0 .15em"
        parts += [html.escape(shown[last:start]), f'<mark style="{style}">{html.escape(shown[start:end])}</mark>']
        last = end
    more = f" {GAP}" if len(text) > len(shown) else ""
    return f'<div style="max-width:60em;text-align:left">{"".join(parts)}{html.escape(shown[last:])}{more}</div>'


def document(explanation: Explanation, row: int) -> str:
    """The text of a row."""
    texts = explanation.source.texts
    assert texts is not None
    return str(texts[explanation.sample[row]])


def rgba(colour: str, alpha: float) -> str:
    """A colour such as #1f6fb2 as CSS that lets the page shine through."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:.2f})"


def _selected(explanation: Explanation, row: int) -> tuple[list[float], list[str]]:
    """How strong each selected unit of a row is, and its colour: by sign, where that is known."""
    units = [int(unit) for unit in explanation.selected[row] if unit >= 0]
    if explanation.effects is None:
        return [float(explanation.scores[row, unit]) for unit in units], [NEUTRAL] * len(units)
    effects = [float(explanation.effects[row, unit]) for unit in units]
    return effects, [UP if effect >= 0 else DOWN for effect in effects]


def _strengths(sizes: list[float]) -> list[float]:
    largest = max((abs(size) for size in sizes), default=0.0) or 1.0
    return [MIN_ALPHA + (MAX_ALPHA - MIN_ALPHA) * abs(size) / largest for size in sizes]


def _letters_across(ax: Axes) -> int:
    """How many letters of a readable size fit on a line of given axes."""
    points = ax.get_window_extent().width / ax.figure.dpi * POINTS_PER_INCH
    return int(min(max(points / READABLE_FONT / MONOSPACED_WIDTH, 20), LETTERS_PER_LINE))


def _wrapped(text: str, found: list[Mark], letters: int) -> tuple[list[Line], int]:
    """The lines of a text, and how many without a mark are left out where there are too many."""
    lines: list[Line] = [[]]
    column = 0
    for match in re.finditer(rf"\S{{1,{letters}}}", text):
        if column and column + len(match.group()) > letters:
            lines.append([])
            column = 0
        lines[-1].append((column, match.start(), match.end()))
        column += len(match.group()) + 1
    if len(lines) <= MAX_LINES:
        return lines, 0

    def has_mark(line: Line) -> bool:
        return any(start < line[-1][2] and end > line[0][1] for start, end, _ in found)

    wanted = [number for number, line in enumerate(lines) if has_mark(line)][:MAX_LINES]
    kept = sorted({*wanted, *range(max(0, MAX_LINES - len(wanted)))})[:MAX_LINES]
    return [lines[number] for number in kept], len(lines) - len(kept)


def _page(ax: Axes | None, n_lines: int) -> Axes:
    require_extra("matplotlib", "plot")
    if ax is not None:
        return ax
    from matplotlib import pyplot

    width, margin, heading = 8.0, 0.15, 0.45
    letter = (width - 2 * margin) / LETTERS_PER_LINE / MONOSPACED_WIDTH
    height = LINE_SPACING * letter * (n_lines + 1.6)
    figure = pyplot.figure(figsize=(width, height + heading + margin))
    total = height + heading + margin
    return figure.add_axes((margin / width, margin / total, 1 - 2 * margin / width, height / total))


def tokens(explanation: SequenceExplanation, row: int, ax: Axes | None = None) -> Axes:
    """Draw the sequence of a target: every token above its label, selected ones marked, the target framed.

    Of long sequences, the lines around the target.
    """
    row = check_row(explanation, row)
    require_extra("matplotlib", "plot")
    from matplotlib import pyplot
    from matplotlib.patches import Rectangle

    sample, position = explanation.sample[row], int(explanation.position[row])
    words = [shorten(token) for token in explanation.sequences[sample]]
    labels = [shorten(short(label)) for label in explanation.labels[sample]]
    lines: list[list[tuple[int, int, int]]] = [[]]  # the token, its column, and its width in letters
    for at, (word, label) in enumerate(zip(words, labels, strict=True)):
        width = max(len(word), len(label)) + 1
        column = sum(lines[-1][-1][1:]) if lines[-1] else 0
        if lines[-1] and column + width > LETTERS_PER_LINE:
            lines.append([])
            column = 0
        lines[-1].append((at, column, width))
    own = next(number for number, line in enumerate(lines) if any(at == position for at, _, _ in line))
    first = max(0, min(own - MAX_TOKEN_LINES // 2, len(lines) - MAX_TOKEN_LINES))
    shown = lines[first : first + MAX_TOKEN_LINES]
    font = WIDTH * POINTS_PER_INCH / LETTERS_PER_LINE / MONOSPACED_WIDTH
    if ax is None:
        height = LINE_HEIGHT * len(shown) * 1.25 * font / POINTS_PER_INCH
        ax = pyplot.subplots(figsize=(WIDTH, height + 0.5), layout="constrained")[1]
    scores = np.nan_to_num(explanation.scores[row])
    strongest, chosen = float(scores.max(initial=0.0)) or 1.0, set(explanation.selected[row].tolist())
    for number, line in enumerate(shown):
        for at, column, width in line:
            top, centre = LINE_HEIGHT * number, column + (width - 1) / 2
            if at in chosen:
                alpha = 0.15 + 0.35 * max(scores[at], 0) / strongest
                mark = Rectangle((column - 0.4, top), width - 0.2, 2.3, color=NEUTRAL, alpha=alpha, linewidth=0)
                mark.set_gid(words[at])
                ax.add_patch(mark)
            if at == position:
                ax.add_patch(Rectangle((column - 0.4, top), width - 0.2, 2.3, fill=False, edgecolor="black"))
            shared: dict[str, Any] = {"family": "monospace", "ha": "center", "va": "center", "parse_math": False}
            ax.text(centre, top + 0.7, words[at], fontsize=font, **shared)
            ax.text(
                centre, top + 1.7, labels[at], fontsize=0.8 * font, color="black" if at in chosen else GREY, **shared
            )
    ax.set_xlim(-1, LETTERS_PER_LINE)
    ax.set_ylim(LINE_HEIGHT * len(shown), -0.3)
    ax.set_axis_off()
    cut = "" if len(shown) == len(lines) else f" (lines {first + 1} to {first + len(shown)} of {len(lines)})"
    title(ax, f"what makes {words[position]} (token {position}) {short(explanation.value[row])}{cut}")
    return ax
