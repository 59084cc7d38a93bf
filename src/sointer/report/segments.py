"""The shape of a seven-segment display: one polygon for each of the segments a to g."""

from __future__ import annotations

WIDTH, HEIGHT = 60.0, 100.0

_THICK, _GAP = 11.0, 1.2
_LEFT, _RIGHT = _THICK / 2 + 3, WIDTH - _THICK / 2 - 3
_TOP, _MIDDLE, _BOTTOM = _THICK / 2 + 3, HEIGHT / 2, HEIGHT - _THICK / 2 - 3

Polygon = tuple[tuple[float, float], ...]


def _bar(x0: float, y0: float, x1: float, y1: float) -> Polygon:
    """A bar with pointed ends between two corners; y grows downwards."""
    h = _THICK / 2
    if y0 == y1:
        a, b = x0 + _GAP, x1 - _GAP
        return ((a, y0), (a + h, y0 - h), (b - h, y0 - h), (b, y0), (b - h, y0 + h), (a + h, y0 + h))
    a, b = y0 + _GAP, y1 - _GAP
    return ((x0, a), (x0 + h, a + h), (x0 + h, b - h), (x0, b), (x0 - h, b - h), (x0 - h, a + h))


POLYGONS: tuple[Polygon, ...] = (
    _bar(_LEFT, _TOP, _RIGHT, _TOP),
    _bar(_RIGHT, _TOP, _RIGHT, _MIDDLE),
    _bar(_RIGHT, _MIDDLE, _RIGHT, _BOTTOM),
    _bar(_LEFT, _BOTTOM, _RIGHT, _BOTTOM),
    _bar(_LEFT, _MIDDLE, _LEFT, _BOTTOM),
    _bar(_LEFT, _TOP, _LEFT, _MIDDLE),
    _bar(_LEFT, _MIDDLE, _RIGHT, _MIDDLE),
)
"""In the order a to g, inside a box of WIDTH by HEIGHT with y downwards."""
