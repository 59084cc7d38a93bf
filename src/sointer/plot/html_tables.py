"""Explanations as a table in HTML: features, how relevant they are and which way they push, or pictures of images."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

from sointer.plot.canvas import NEUTRAL, short, shorten, signed
from sointer.plot.thumbnails import thumbnail
from sointer.plot.words import html_words, rgba

if TYPE_CHECKING:
    from sointer.explanation import Explanation

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;"
    "border-bottom:1px solid #8884;vertical-align:top}.chip{white-space:nowrap;display:inline-block;margin:.1em 0}"
    "small{opacity:.65}img{image-rendering:pixelated;display:block}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}}"
)

LONGEST_CHIP = 60
NOT_QUERIED = (
    "Values are those that the explainer expects: the model was not queried. Explain with the model, or with "
    "<code>predicted=</code>, to explain what it predicts."
)


def html_page(explanation: Explanation, max_rows: int) -> str:
    """`html_table` as a page that needs nothing else."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Explanations</title>'
        f"<style>{_STYLE}</style></head><body><h1>Explanations</h1>{html_table(explanation, max_rows)}</body></html>"
    )


def html_table(explanation: Explanation, max_rows: int) -> str:
    """One line for each of the first rows: what is explained, and the features or the picture that explain it."""
    is_image = explanation.source.input_format.image is not None
    is_text, labels = explanation.source.texts is not None, explanation.source.index
    lines = []
    for row in range(min(len(explanation), max_rows)):
        why = thumbnail(explanation, row) if is_image else _chips(explanation, row)
        why += html_words(explanation, row) if is_text else ""
        label = html.escape(str(row if labels is None else labels[row]))
        target = html.escape(explanation.output_names[explanation.target[row]])
        value = html.escape(short(explanation.value[row]))
        lines.append(f"<tr><td>{label}</td><td>{target}</td><td>{value}</td><td>{why}</td></tr>")
    left_out = len(explanation) - len(lines)
    note = f"<p>{left_out} more rows not shown.</p>" if left_out > 0 else ""
    reason = "because of the green pixels (best strongest)" if is_image else "because of (best first)"
    is_expected = explanation.value_source == "expected"
    value_head = "expected" if is_expected else "the model predicts"
    head = f"<tr><th>row</th><th>target</th><th>{value_head}</th><th>{reason}</th></tr>"
    note += "" if is_image else _notes(explanation)
    note += f"<p><small>{NOT_QUERIED}</small></p>" if is_expected else ""
    # Old-style pages do not hand their colour on to tables, which dark notebooks need.
    return f'<table style="color:inherit">{head}{"".join(lines)}</table>{note}'


def _chips(explanation: Explanation, row: int) -> str:
    units = explanation.selected[row][explanation.selected[row] >= 0]
    needed = np.ones(len(units), dtype=bool) if explanation.needed is None else explanation.needed[row, units]
    scores = np.maximum(explanation.scores[row, units], 0.0)
    strongest = float(scores[needed].max(initial=0.0)) or 1.0
    effects = [None] * len(units) if explanation.effects is None else explanation.effects[row, units].tolist()
    chips = [
        _chip(explanation.feature_names[unit], float(score) / strongest if is_needed else None, effect)
        for unit, score, effect, is_needed in zip(units, scores, effects, needed, strict=True)
    ]
    return " ".join(chips) or "<small>nothing is needed</small>"


def _chip(name: str, share: float | None, effect: float | None) -> str:
    """A feature, the darker the more relevant, or hollow if not needed; an arrow says which way it pushes."""
    look = f"background:{rgba(NEUTRAL, 0.06 + 0.28 * share)}" if share is not None else "opacity:.65"
    style = (
        f"{look};border:1px solid {rgba(NEUTRAL, 0.5)};border-radius:.4em;padding:.1em .4em;display:inline-block;"
        "margin:.1em 0"
    )
    tip = html.escape(name) + ("" if share is not None else ": not needed, selected only because k asked for as many")
    shown = html.escape(shorten(name, LONGEST_CHIP))
    push = ""
    if effect is not None:
        # Lighter than in pictures, so that they are read on dark pages too.
        colour, arrow = ("#3f8fd2", "▲") if effect >= 0 else ("#e8792b", "▼")
        push = f' <small style="opacity:1"><span style="color:{colour}">{arrow}</span> {signed(effect)}</small>'
    return f'<span class="chip" style="{style}" title="{tip}">{shown}{push}</span>'


def _notes(explanation: Explanation) -> str:
    """What chips mean, as far as any of it is shown."""
    notes = ["The darker a feature, the more relevant it is."]
    if explanation.needed is not None and (explanation.unit_mask & ~explanation.needed).any():
        notes.append("Hollow ones are not needed: they were selected only because k asked for as many.")
    if explanation.effects is not None:
        notes.append(
            "▲ and ▼ say how far it pushes the output up or down: a number in its own unit, anything else in "
            "probability (of a label: of the one explained)."
        )
    return f"<p><small>{' '.join(notes)}</small></p>"
