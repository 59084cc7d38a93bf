"""Pictures of explanations and of how they were learned, with matplotlib; nothing is shown or styled globally."""

from sointer.plot.bars import bar, effects
from sointer.plot.cards import html_explainer, html_localities, html_paths, html_verification
from sointer.plot.coupling import interactions, neighbours
from sointer.plot.flat_images import pixels
from sointer.plot.flows import flow
from sointer.plot.heatmaps import heatmap
from sointer.plot.html_tables import html_page, html_table
from sointer.plot.images import image, image_grid
from sointer.plot.kinds import draw, kinds
from sointer.plot.localities import localities
from sointer.plot.outlines import outline
from sointer.plot.summaries import summary
from sointer.plot.thumbnails import thumbnail
from sointer.plot.training import history
from sointer.plot.words import words

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
