"""Explanations of sequences, drawn and as HTML for notebooks: tokens with their labels, the selected ones marked."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np

from sointer.errors import require_extra
from sointer.viz.plots.canvas import GREY, NEUTRAL, POINTS_PER_INCH, check_row, short, shorten, title
from sointer.viz.plots.notebook import MAX_NAMES, NOT_QUERIED, _card, _listed, meter
from sointer.viz.plots.words import LETTERS_PER_LINE, MONOSPACED_WIDTH, rgba

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sointer.explainers.sequence_explanation import SequenceExplanation

MAX_LINES, WIDTH, LINE_HEIGHT = 12, 8.0, 3.0
"""Of a picture: lines of tokens at most, inches across, and heights of a letter from one line to the next."""


def html_explainer(explainer: Any) -> str:
    """What a fitted explainer of sequences explains, and how well it learned to.

    Parameters
    ----------
    explainer : SequenceExplainer

    Returns
    -------
    str
    """
    classes = [str(label) for label in explainer.outputs_.classes]
    missing = "not attached: expected values are explained, and nothing can be verified"
    lines = [
        ("explains", f"{len(classes)} labels of tokens{_listed(classes, False)}"),
        ("a label sees", f"{explainer.window_} tokens on either side, others through the labels between"),
        ("queries in fit", f"{explainer.n_queries_:,} sequences"),
        ("agreement", f"{meter(explainer.held_out_agreement_)} of held-out labels predicted correctly"),
        ("skill", f"{meter(explainer.held_out_skill_)} of the errors of predicting the most common label are avoided"),
        ("model", "attached" if explainer.black_box_ is not None else missing),
    ]
    return _card("SequenceExplainer, fitted", lines)


def tokens(explanation: SequenceExplanation, row: int, ax: Axes | None = None) -> Axes:
    """Draw the sequence of a target: every token above its label, selected ones marked, the target framed.

    Of long sequences, the lines around the target.

    Parameters
    ----------
    explanation : SequenceExplanation
        What `explain` returned.
    row : int
        Number of the target, of those explained; negative numbers count from the end.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
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
    first = max(0, min(own - MAX_LINES // 2, len(lines) - MAX_LINES))
    shown = lines[first : first + MAX_LINES]
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


def html_sequences(explanation: SequenceExplanation, max_rows: int) -> str:
    """The first targets as an HTML table: every token with its label, selected ones marked, the target underlined.

    Parameters
    ----------
    explanation : SequenceExplanation
    max_rows : int

    Returns
    -------
    str
    """
    lines = []
    for i in range(min(len(explanation), max_rows)):
        value, keeps = html.escape(short(explanation.value[i])), f"{explanation.keeps[i]:.0%}"
        token = html.escape(shorten(explanation.sequences[explanation.sample[i]][explanation.position[i]]))
        lines.append(
            f"<tr><td>{explanation.sample[i]}</td><td>{token}</td><td>{value}</td><td>{_tokens(explanation, i)}</td>"
            f"<td>{keeps}</td></tr>"
        )
    left_out = len(explanation) - len(lines)
    note = f"<p>{left_out} more targets not shown.</p>" if left_out > 0 else ""
    note += f"<p><small>{NOT_QUERIED}</small></p>" if explanation.value_source == "expected" else ""
    heads = ("sequence", "token", "value", "because of the marked tokens", "they keep it in")
    head = "".join(f"<th>{one}</th>" for one in heads)
    return f'<table style="color:inherit"><tr>{head}</tr>{"".join(lines)}</table>{note}'


def _tokens(explanation: SequenceExplanation, i: int) -> str:
    sample, position = explanation.sample[i], explanation.position[i]
    tokens, labels = explanation.sequences[sample], explanation.labels[sample]
    scores = np.nan_to_num(explanation.scores[i])
    strongest = float(scores.max(initial=0.0)) or 1.0
    chosen = set(explanation.selected[i].tolist())
    far = {at for at in range(len(tokens)) if at not in chosen and abs(at - position) > MAX_NAMES}
    parts = []
    for at, (token, label) in enumerate(zip(tokens, labels, strict=True)):
        if at in far:
            if at - 1 not in far:
                parts.append("…")
            continue
        look = f"background:{rgba(NEUTRAL, 0.1 + 0.3 * scores[at] / strongest)};" if at in chosen else ""
        line = "text-decoration:underline;" if at == position else ""
        parts.append(
            f'<span style="display:inline-block;text-align:center;margin:0 .2em"><span style="{look}{line}'
            f'border-radius:.4em;padding:.1em .3em">{html.escape(shorten(token))}</span><br>'
            f"<small>{html.escape(short(label))}</small></span>"
        )
    return "".join(parts)
