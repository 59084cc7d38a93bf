"""Pages and pictures that show explanations to people."""

from sointer.report.content import BlackBoxFacts, Content, Example, Method
from sointer.report.figure import draw_examples
from sointer.report.page import render_page
from sointer.report.pixel_page import PixelPageContent, render_pixel_page
from sointer.report.report_content import Card, Place, Pushes, ReportContent, TargetPlaces, TargetWays, Way
from sointer.report.report_page import render_report
from sointer.report.shares import Share, confirmed_share
from sointer.report.table import format_table
from sointer.report.target_facts import unusual_share

__all__ = [
    "BlackBoxFacts",
    "Card",
    "Content",
    "Example",
    "Method",
    "PixelPageContent",
    "Place",
    "Pushes",
    "ReportContent",
    "Share",
    "TargetPlaces",
    "TargetWays",
    "Way",
    "confirmed_share",
    "draw_examples",
    "format_table",
    "render_page",
    "render_pixel_page",
    "render_report",
    "unusual_share",
]
