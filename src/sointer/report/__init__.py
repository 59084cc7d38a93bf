"""Pages and pictures that show explanations to people."""

from sointer.report.content import BlackBoxFacts, Content, Example, Method
from sointer.report.figure import draw_examples
from sointer.report.page import render_page
from sointer.report.pixel_page import PixelPageContent, render_pixel_page
from sointer.report.table import format_table

__all__ = [
    "BlackBoxFacts",
    "Content",
    "Example",
    "Method",
    "PixelPageContent",
    "draw_examples",
    "format_table",
    "render_page",
    "render_pixel_page",
]
