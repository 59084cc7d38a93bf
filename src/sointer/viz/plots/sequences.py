"""Explanations of sequences as HTML for notebooks: tokens with their labels, the selected ones marked."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np

from sointer.viz.plots.canvas import NEUTRAL, short, shorten
from sointer.viz.plots.notebook import MAX_NAMES, NOT_QUERIED, _card, _listed, meter
from sointer.viz.plots.words import rgba

if TYPE_CHECKING:
    from sointer.explainers.sequence_explanation import SequenceExplanation


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
