"""The pieces that a function of the user's cuts a text into, and where they stand in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from sointer._support import containers
from sointer._support.validation import call_function, is_integer
from sointer.errors import InputError

SPLITTING = "the function given as groups="


def read_pieces(pieces: Iterable[Any], text: str) -> list[tuple[int, int]]:
    """Where the pieces stand that the owner's function made of a text."""
    spans: list[tuple[int, int]] = []
    last = 0
    for piece in pieces:
        if isinstance(piece, str):
            start = text.find(piece, last)
            span = (start, start + len(piece))
        else:
            span = _span(piece, text)
        if not last <= span[0] <= span[1] <= len(text):
            raise InputError(
                f"{SPLITTING} splits a text into {piece!r:.60}, which does not stand in the text "
                f"{text!r:.60} after the piece before it. Return parts of the text as they are written, in their "
                "order, or (start, end) for each."
            )
        if span[0] < span[1]:
            spans.append(span)
            last = span[1]
    return spans


def pieces_of(split: Callable[[str], Iterable[Any]], text: str) -> list[Any]:
    """What the owner's function makes of a text."""

    def splitting(text: str) -> Any:
        found = split(text)
        return list(found) if isinstance(found, Iterable) and not isinstance(found, str) else found

    given = f"the text {text!r:.60}"
    pieces = call_function(splitting, text, what=SPLITTING, signature="(text) -> pieces", given=given)
    if not isinstance(pieces, list):
        raise InputError(
            f"{SPLITTING} splits the text {text!r:.60} into {containers.describe(pieces)}, expected a list of its "
            "parts as they are written, in their order, or of (start, end) for each."
        )
    return pieces


def _span(piece: Any, text: str) -> tuple[int, int]:
    pair = list(piece) if isinstance(piece, (tuple, list, np.ndarray)) else []
    if len(pair) != 2 or not all(is_integer(place) for place in pair):
        raise InputError(
            f"{SPLITTING} splits the text {text!r:.60} into pieces such as {piece!r:.60}, expected strings, or two "
            "whole numbers (start, end) for each."
        )
    return int(pair[0]), int(pair[1])
