"""Explanations as a table in HTML: features with their weights, or small pictures of images."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

from sointer.plot.canvas import shorten
from sointer.plot.thumbnails import thumbnail
from sointer.plot.words import html_words

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
        expected = html.escape(str(explanation.expected[row]))
        lines.append(f"<tr><td>{label}</td><td>{target}</td><td>{expected}</td><td>{why}</td></tr>")
    left_out = len(explanation) - len(lines)
    note = f"<p>{left_out} more rows not shown.</p>" if left_out > 0 else ""
    reason = "because of the green pixels (best strongest)" if is_image else "because of (best first)"
    head = f"<tr><th>row</th><th>target</th><th>value explained</th><th>{reason}</th></tr>"
    # Old-style pages do not hand their colour on to tables, which dark notebooks need.
    return f'<table style="color:inherit">{head}{"".join(lines)}</table>{note}'


def _chips(explanation: Explanation, row: int) -> str:
    units = explanation.selected[row][explanation.selected[row] >= 0]
    scores = explanation.scores[row]
    strongest = float(np.abs(scores[units]).max(initial=0.0)) or 1.0
    return " ".join(_chip(explanation.feature_names[unit], float(scores[unit]), strongest) for unit in units)


def _chip(name: str, score: float, strongest: float) -> str:
    """A feature with its weight, the darker the stronger: blue for the value that is explained, orange against it."""
    colour = "31,111,178" if score >= 0 else "217,96,10"
    style = (
        f"background:rgba({colour},{0.12 + 0.5 * abs(score) / strongest:.2f});border-radius:.4em;padding:.1em .4em;"
        "display:inline-block;margin:.1em 0"
    )
    whole = html.escape(name)
    shown = html.escape(shorten(name, LONGEST_CHIP))
    return f'<span class="chip" style="{style}" title="{whole}">{shown} <small>{score:.3g}</small></span>'
