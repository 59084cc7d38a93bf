"""Pictures of explanations and of how they were learned, with matplotlib; nothing is shown or styled globally."""

from sointer.plot.bars import bar
from sointer.plot.coupling import interactions
from sointer.plot.flat_images import pixels
from sointer.plot.flows import flow
from sointer.plot.html_tables import html_page, html_table
from sointer.plot.images import image, image_grid
from sointer.plot.outlines import outline
from sointer.plot.thumbnails import thumbnail
from sointer.plot.training import history

__all__ = [
    "bar",
    "flow",
    "history",
    "html_page",
    "html_table",
    "image",
    "image_grid",
    "interactions",
    "outline",
    "pixels",
    "thumbnail",
]
