"""Pictures of explanations and of how they were learned, with matplotlib; nothing is shown or styled globally."""

from sointer.viz.plots.bars import bar, effects, history, summary
from sointer.viz.plots.images import image, image_grid, outline, pixels, thumbnail
from sointer.viz.plots.kinds import draw, kinds
from sointer.viz.plots.maps import flow, heatmap, interactions, localities, neighbours
from sointer.viz.plots.notebook import (
    html_explainer,
    html_localities,
    html_page,
    html_paths,
    html_table,
    html_verification,
)
from sointer.viz.plots.words import words

__all__ = [
    "bar",
    "draw",
    "effects",
    "flow",
    "heatmap",
    "history",
    "html_explainer",
    "html_localities",
    "html_page",
    "html_paths",
    "html_table",
    "html_verification",
    "image",
    "image_grid",
    "interactions",
    "kinds",
    "localities",
    "neighbours",
    "outline",
    "pixels",
    "summary",
    "thumbnail",
    "words",
]
