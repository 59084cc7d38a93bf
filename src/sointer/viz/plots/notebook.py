"""Explainers, explanations (of sequences too), verifications, paths and localities as HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sointer._support.files import put
from sointer._support.progress import last_value
from sointer.verification import SHAPE_ALONE
from sointer.viz.plots.canvas import NEUTRAL, labels_with_values, short, shorten, shorten_all, signed
from sointer.viz.plots.images import thumbnail
from sointer.viz.plots.words import html_words, rgba

if TYPE_CHECKING:
    from sointer.explainers.sequence_explanation import SequenceExplanation
    from sointer.explanation import Explanation
    from sointer.paths import Localities, Paths
    from sointer.verification import Verification


MAX_NAMES, MAX_ROWS, N_WEAKEST = 8, 20, 3
REMOVED = {
    "zero": "0",
    "mean": "its mean",
    "marginal": "its value in another sample",
    "conditional": "what it is in a row that is alike",
    "blur": "blurred",
    "array": "a fixed value",
    "delete": "nothing: it is deleted from the text",
    "token": "a token in the text",
    "nan": "missing",
}
# Colours are those of the page around it, so that cards suit light and dark notebooks.
_CARD = (
    "border:1px solid rgba(128,128,128,.45);border-radius:.5em;padding:.6em .9em;display:inline-block;max-width:60em"
)
_CELL = "text-align:left;padding:.15em 1em .15em 0;vertical-align:top"
_METER = "display:inline-block;width:8em;height:.7em;border-radius:.35em;background:rgba(128,128,128,.3)"


def html_explainer(explainer: Any) -> str:
    """What a fitted explainer explains, and how well it learned to, as HTML."""
    names, features = list(explainer.output_names_), list(explainer.feature_names_in_)
    explained = [names[target] for target in explainer.targets_]
    is_image = explainer.input_format_.image is not None
    each = "pixels" if is_image else "features"
    by = (
        f"those that matter (k=auto) of {len(features)}"
        if explainer.k == "auto"
        else f"{explainer.k} of {len(features)}"
    )
    lines = [
        ("explains", f"{len(explained)} of {len(names)} outputs{_listed(explained, is_image)}"),
        ("by", f"{by} {each}{_listed(features, is_image)}"),
        ("what is removed becomes", REMOVED.get(explainer.removal_.name, html.escape(explainer.removal_.name))),
        ("queries in fit", f"{explainer.n_queries_:,} rows"),
    ]
    said, guess = "outputs predicted correctly", "predicting the most common value"
    if is_image and last_value(explainer.history_, "held_out_by_rules") is not None:
        said, guess = "mixtures of two images predicted to follow the right one", "a rule that sees no image"
    quality = f"{meter(explainer.held_out_agreement_)} of held-out {said}"
    skill = f"{meter(explainer.held_out_skill_)} of the errors of {guess} are avoided"
    lines += [("agreement", quality), ("skill", skill)]
    if not is_image and len(explained) > 1:
        lines.append(("weakest outputs", _weakest(explainer)))
    missing = "not attached: expected values are explained, and nothing can be verified"
    model = "attached" if explainer.black_box_ is not None else missing
    return _card(f"{type(explainer).__name__}, fitted", [*lines, ("model", model)])


def _weakest(explainer: Any) -> str:
    """The targets that the explainer knows least of, with their skill."""
    skill = {target: float(explainer.output_skill_[target]) for target in explainer.targets_}
    worst = sorted((target for target in skill if np.isfinite(skill[target])), key=lambda target: skill[target])
    shown = [
        f"{html.escape(shorten(explainer.output_names_[target]))} ({max(skill[target], 0):.0%} skill)"
        for target in worst[:N_WEAKEST]
    ]
    return ", ".join(shown) or "-"


def html_localities(found: Localities) -> str:
    """Localities as an HTML table: where, how many samples, and what matters there, the darker the more."""
    strongest = max((relevance for leaf in found for relevance in leaf.relevance), default=0.0) or 1.0
    rows = [
        _row(
            html.escape(leaf.where),
            meter(leaf.share, f"{percent}%"),
            " ".join(
                f'<span style="background:{rgba(NEUTRAL, 0.06 + 0.28 * relevance / strongest)};border-radius:.4em;'
                f'padding:.1em .4em" title="relevance {relevance:.3g}">{html.escape(shorten(feature))}</span>'
                for feature, relevance in zip(leaf.features[:MAX_NAMES], leaf.relevance, strict=False)
            )
            + (f" and {len(leaf.features) - MAX_NAMES} more" if len(leaf.features) > MAX_NAMES else "")
            or "nothing",
        )
        for percent, leaf in list(zip(found.percents, found, strict=True))[:MAX_ROWS]
    ]
    name = html.escape(shorten(found.target))
    title = f"What decides {name}, by region" if found.decided else f"Many features contribute to {name}"
    return f'<div style="{_CARD}"><b>{title}</b>{_table(rows, "where", "samples", "what matters there")}</div>'


def html_verification(check: Verification) -> str:
    """How many rows the black box confirmed, as HTML."""
    unsure = f", {int(check.unsure.sum())} unsure" if check.unsure.any() else ""
    unit = "" if check.tolerance is None else f" standard deviations, where {check.tolerance:g} agrees,"
    lines = [
        ("fidelity", meter(check.fidelity)),
        ("confirmed", f"{int(check.confirmed.sum())} of {len(check.agreement)} rows{unsure}"),
        ("the target moved by", f"{float(check.difference.mean()):.3g}{unit} on average"),
        ("queries", f"{check.n_queries:,} rows"),
    ]
    if check.value_source == "expected":
        lines.append(("compared with", "expected values: the model was not queried for the unmasked samples"))
    if check.of_images:
        lines.append(("but", html.escape(SHAPE_ALONE)))
    return _card("Does the model predict the same from the selected features alone?", lines)


def html_paths(paths: Paths) -> str:
    """For every target, its features with their effect in total, directly, and through which output, as HTML."""
    parts = []
    for target, routes in list(paths.summary().items())[:MAX_ROWS]:
        rows = [
            _row(
                html.escape(shorten(route.feature)),
                f"{route.total:.2f}",
                f"{route.direct:.2f}",
                f"{html.escape(shorten(str(route.output)))} ({route.through:.2f})" if route.is_mediated else "-",
            )
            for route in routes
        ]
        table = _table(rows, "feature", "effect", "direct", "mostly through")
        parts.append(f"<div><b>{html.escape(shorten(target))}</b>{table}</div>")
    warning = f"<p><small>{html.escape(paths.warning)}</small></p>" if paths.warning else ""
    n = len(paths)
    note = f"<small>{n} row{'s' * (n != 1)}, effects in {html.escape(paths.unit)}</small>"
    return f'<div style="{_CARD}">{note}{"".join(parts)}{warning}</div>'


def meter(share: float, text: str | None = None) -> str:
    """A share as a bar and in per cent."""
    if np.isnan(share):
        return "not known"
    filled = min(max(share, 0.0), 1.0)
    bar = f'<span style="{_METER}"><span style="{_METER};width:{100 * filled:.0f}%;background:{NEUTRAL}"></span></span>'
    return f"{bar} {f'{share:.1%}' if text is None else text}"


def _listed(names: Iterable[str], is_image: bool) -> str:
    names = list(names)
    if is_image:
        return ""
    first = ", ".join(map(html.escape, shorten_all([str(name) for name in names[:MAX_NAMES]])))
    return f": {first}{' …' if len(names) > MAX_NAMES else ''}"


def _card(title: str, lines: list[tuple[str, str]]) -> str:
    rows = [_row(f'<small style="white-space:nowrap">{html.escape(name)}</small>', value) for name, value in lines]
    return f'<div style="{_CARD}"><b>{html.escape(title)}</b>{_table(rows)}</div>'


def _table(rows: list[str], *heads: str) -> str:
    head = "".join(f'<th style="{_CELL}">{word}</th>' for word in heads)
    return f'<table style="color:inherit">{f"<tr>{head}</tr>" if heads else ""}{"".join(rows)}</table>'


def _row(*cells: str) -> str:
    return "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;"
    "border-bottom:1px solid #8884;vertical-align:top}.chip{white-space:nowrap;display:inline-block;margin:.1em 0}"
    "small{opacity:.65}img{image-rendering:pixelated;display:block}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}}"
)

MAX_CHIP_LENGTH = 60
NOT_QUERIED = (
    "Values are those that the explainer expects: the model was not queried. Explain with the model, or with "
    "<code>predicted=</code>, to explain what it predicts."
)


def page_of(table: str, path: str | PathLike[str] | None) -> str:
    """A table in HTML as a page that needs nothing else; written to `path` if given."""
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Explanations</title>'
        f"<style>{_STYLE}</style></head><body><h1>Explanations</h1>{table}</body></html>"
    )
    if path is not None:
        put(Path(path), page.encode())
    return page


def html_table(explanation: Explanation, max_rows: int) -> str:
    """The first rows as an HTML table: what is explained, and the features or the image that explain it."""
    is_image = explanation.source.input_format.image is not None
    is_text, labels = explanation.source.texts is not None, explanation.source.index
    lines = []
    for row in range(min(len(explanation), max_rows)):
        why = thumbnail(explanation, row) if is_image else _chips(explanation, row)
        why += html_words(explanation, row) if is_text else ""
        sample = explanation.sample[row]
        label = html.escape(str(sample if labels is None else labels[sample]))
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
    names = labels_with_values(explanation, row, units.tolist())
    chips = [
        _chip(name, float(score) / strongest if is_needed else None, effect)
        for name, score, effect, is_needed in zip(names, scores, effects, needed, strict=True)
    ]
    return " ".join(chips) or "<small>nothing is needed</small>"


def _chip(name: str, share: float | None, effect: float | None) -> str:
    """A feature, the darker the more relevant, or hollow if not needed; an arrow says which way it pushes."""
    look = f"background:{rgba(NEUTRAL, 0.06 + 0.28 * share)}" if share is not None else "opacity:.65"
    style = (
        f"{look};border:1px solid {rgba(NEUTRAL, 0.5)};border-radius:.4em;padding:.1em .4em;display:inline-block;"
        "margin:.1em 0"
    )
    tip = html.escape(name) + ("" if share is not None else ": not needed, selected only because k is that large")
    shown = html.escape(shorten(name, MAX_CHIP_LENGTH))
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
        notes.append("Hollow ones are not needed: they were selected only because k is that large.")
    if explanation.effects is not None:
        notes.append(
            "▲ and ▼ say how far it pushes the output up or down: a number in its own unit, anything else in "
            "probability (of a label: of the one explained)."
        )
    return f"<p><small>{' '.join(notes)}</small></p>"


def html_sequence_explainer(explainer: Any) -> str:
    """What a fitted explainer of sequences explains, and how well it learned to."""
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
    """The first targets as an HTML table: every token with its label, selected ones marked, the target underlined."""
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
