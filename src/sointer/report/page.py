"""The demo's page: one HTML file that needs nothing else, with everything in it escaped."""

from __future__ import annotations

import base64
from typing import Any

from sointer.report.content import Content, Example
from sointer.report.environment import render_template
from sointer.report.segments import HEIGHT, POLYGONS, WIDTH


def render_page(content: Content, figure_png: bytes | None = None) -> str:
    """The page as text; `figure_png` is put at its end."""
    return render_template(
        "demo.html",
        content=content,
        data=_data(content),
        removals=list(content.methods[0].fidelity),
        strongest=max((value for row in content.interactions for value in row), default=0.0) or 1.0,
        display={"width": WIDTH, "height": HEIGHT},
        figure=None if figure_png is None else base64.b64encode(figure_png).decode("ascii"),
    )


def _data(content: Content) -> dict[str, Any]:
    """What the page's script needs to draw any image and any segment."""
    return {
        "names": list(content.segment_names),
        "polygons": [" ".join(f"{x:g},{y:g}" for x, y in polygon) for polygon in POLYGONS],
        "display": [WIDTH, HEIGHT],
        "examples": [_example(example) for example in content.examples],
    }


def _example(example: Example) -> dict[str, Any]:
    return {
        "title": example.title,
        "pixels": [[int(value) for value in row] for row in example.pixels],
        "lit": [bool(value) for value in example.lit],
        "truth": [bool(value) for value in example.truth],
        "selected": [[int(pixel) for pixel in pixels] for pixels in example.selected],
        "kept": [round(float(share), 3) for share in example.kept],
        "mistake": example.is_mistake,
    }
