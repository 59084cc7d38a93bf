"""Small cards for notebooks: what an explainer explains and how well, what was confirmed, which way effects go."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from sointer.plot.canvas import NEUTRAL, shorten, shorten_all
from sointer.plot.words import rgba

if TYPE_CHECKING:
    from sointer.explanation import Verification
    from sointer.paths import Localities, Paths

MOST_NAMES, MOST_ROWS, N_WEAKEST = 8, 20, 3
REMOVED = {
    "zero": "0",
    "mean": "its mean",
    "marginal": "what it is in another row",
    "conditional": "what it is in a row that is alike",
    "blur": "blurred",
    "array": "a fixed value",
}
# Colours are those of the page around it, so that cards suit light and dark notebooks.
_CARD = (
    "border:1px solid rgba(128,128,128,.45);border-radius:.5em;padding:.6em .9em;display:inline-block;max-width:60em"
)
_CELL = "text-align:left;padding:.15em 1em .15em 0;vertical-align:top"
_METER = "display:inline-block;width:8em;height:.7em;border-radius:.35em;background:rgba(128,128,128,.3)"


def html_explainer(explainer: Any) -> str:
    """What a fitted explainer explains, and how well it learned to."""
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
    quality = f"{meter(explainer.held_out_agreement_)} of held-out outputs predicted correctly"
    skill = f"{meter(explainer.held_out_skill_)} of the errors of always guessing the usual value are avoided"
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
    """A map of localities as a table: where, how many samples, and what matters there, the darker the more."""
    strongest = max((relevance for leaf in found for relevance in leaf.relevance), default=0.0) or 1.0
    head = "".join(f'<th style="{_CELL}">{word}</th>' for word in ("where", "samples", "what matters there"))
    rows = "".join(
        _row(
            html.escape(leaf.where),
            meter(leaf.share, f"{leaf.share:.0%}"),
            " ".join(
                f'<span style="background:{rgba(NEUTRAL, 0.06 + 0.28 * relevance / strongest)};border-radius:.4em;'
                f'padding:.1em .4em" title="relevance {relevance:.3g}">{html.escape(shorten(feature))}</span>'
                for feature, relevance in zip(leaf.features[:MOST_NAMES], leaf.relevance, strict=False)
            )
            + (f" and {len(leaf.features) - MOST_NAMES} more" if len(leaf.features) > MOST_NAMES else "")
            or "nothing",
        )
        for leaf in found.leaves[:MOST_ROWS]
    )
    name = html.escape(shorten(found.target))
    title = f"Where which features decide {name}" if found.decided else f"Many features contribute to {name}"
    return f'<div style="{_CARD}"><b>{title}</b><table style="color:inherit"><tr>{head}</tr>{rows}</table></div>'


def html_verification(check: Verification) -> str:
    """How many rows the black box confirmed."""
    lines = [
        ("fidelity", meter(check.fidelity)),
        ("confirmed", f"{int(check.confirmed.sum())} of {len(check.agreement)} rows{_unsure(check)}"),
        ("the target moved by", f"{float(check.difference.mean()):.3g} on average"),
        ("queries", f"{check.n_queries:,} rows"),
    ]
    if check.value_source == "expected":
        lines.append(("compared with", "expected values: the model was not queried for the unmasked samples"))
    return _card("Does the model predict the same from the selected features alone?", lines)


def _unsure(check: Verification) -> str:
    return f", {int(check.unsure.sum())} unsure" if check.unsure.any() else ""


def html_paths(paths: Paths) -> str:
    """For every target, its features with their effect: in all, direct, and through which output."""
    head = "".join(f'<th style="{_CELL}">{word}</th>' for word in ("feature", "effect", "direct", "mostly through"))
    parts = []
    for target, routes in list(paths.summary().items())[:MOST_ROWS]:
        rows = "".join(
            _row(
                html.escape(shorten(route.feature)),
                f"{route.total:.2f}",
                f"{route.direct:.2f}",
                "-"
                if route.output is None or route.through <= 0
                else f"{html.escape(shorten(route.output))} ({route.through:.2f})",
            )
            for route in routes
        )
        name = html.escape(shorten(target))
        parts.append(f'<div><b>{name}</b><table style="color:inherit"><tr>{head}</tr>{rows}</table></div>')
    warning = f"<p><small>{html.escape(paths.warning)}</small></p>" if paths.warning else ""
    n = len(paths)
    note = f"<small>{n} row{'s' * (n != 1)}, effects in {html.escape(paths.unit)}</small>"
    return f'<div style="{_CARD}">{note}{"".join(parts)}{warning}</div>'


def meter(share: float, text: str | None = None) -> str:
    """A share as a bar and in per cent."""
    filled = min(max(share, 0.0), 1.0)
    bar = f'<span style="{_METER}"><span style="{_METER};width:{100 * filled:.0f}%;background:{NEUTRAL}"></span></span>'
    return f"{bar} {f'{share:.1%}' if text is None else text}"


def _listed(names: Iterable[str], is_image: bool) -> str:
    names = list(names)
    if is_image:
        return ""
    some = ", ".join(map(html.escape, shorten_all([str(name) for name in names[:MOST_NAMES]])))
    return f": {some}{' …' if len(names) > MOST_NAMES else ''}"


def _card(title: str, lines: list[tuple[str, str]]) -> str:
    rows = "".join(
        _row(f'<small style="white-space:nowrap">{html.escape(name)}</small>', value) for name, value in lines
    )
    return f'<div style="{_CARD}"><b>{html.escape(title)}</b><table style="color:inherit">{rows}</table></div>'


def _row(*cells: str) -> str:
    return "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"
