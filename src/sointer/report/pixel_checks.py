"""Whether the arrays of a page of pixels fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sointer._support.validation import check_positive_int
from sointer.errors import InputError

if TYPE_CHECKING:
    from sointer.report.pixel_page import PixelPageContent

MOST_UNITS = 65535


def check_pixel_page(content: PixelPageContent) -> None:
    """Raise an InputError that names what does not fit."""
    images, answers, selected = content.images, content.answers, content.selected
    if images.ndim != 4 or 0 in images.shape or images.dtype.kind not in "biuf" or not np.isfinite(images).all():
        raise InputError(
            f"images has shape {images.shape} and dtype {images.dtype}, expected finite numbers (n, channels, height, "
            "width), at least one of each; give channels first, and replace NaN."
        )
    check_positive_int(content.stride, "stride")
    n, _, height, width = images.shape
    if answers.shape != (n, height, width):
        raise InputError(
            f"answers has shape {answers.shape}, expected {(n, height, width)}: one answer for each pixel of images."
        )
    if answers.dtype.kind == "f" and not np.isfinite(answers).all():
        raise InputError("answers has NaN or infinite values, expected finite ones; check the model's masks.")
    if answers.dtype.kind not in "biuf" and len(np.unique(answers.astype(str))) > 256:
        raise InputError("answers has more than 256 labels, expected at most 256; join rare ones.")
    rows, columns = content.grid
    if selected.ndim != 3 or selected.shape[:2] != (n, rows * columns) or selected.shape[2] == 0:
        raise InputError(
            f"selected has shape {selected.shape}, expected ({n}, {rows * columns}, k): k pixels, best first, for "
            f"each of the {rows} x {columns} targets at stride {content.stride}."
        )
    _check_units(content)
    for name in ("confirmed", "known"):
        given = getattr(content, name)
        if given is not None and (given.shape != (n, rows * columns) or given.dtype != np.bool_):
            raise InputError(
                f"{name} has shape {given.shape} and dtype {given.dtype}, expected booleans of shape "
                f"{(n, rows * columns)}, one for each target; leave it out if it is not known."
            )
    if len(content.names) != n:
        raise InputError(f"names has {len(content.names)} entries, expected {n}: one for each image.")


def _check_units(content: PixelPageContent) -> None:
    n, (height, width) = len(content.images), content.size
    if content.units is not None and (
        content.units.shape != (n, height * width) or content.units.dtype.kind not in "iu" or content.units.min() < 0
    ):
        raise InputError(
            f"units has shape {content.units.shape} and dtype {content.units.dtype}, expected whole numbers from 0 of "
            f"shape {(n, height * width)}: the patch or superpixel of each pixel."
        )
    if content.n_units > MOST_UNITS:
        raise InputError(
            f"the page has {content.n_units} pixels or groups to choose from, expected at most {MOST_UNITS}; make the "
            "images smaller."
        )
    selected = content.selected
    if selected.dtype.kind not in "iu" or selected.min() < -1 or selected.max() >= content.n_units:
        what = "" if selected.dtype.kind not in "iu" else f", from {selected.min()} to {selected.max()}"
        raise InputError(
            f"selected holds {selected.dtype}{what}; expected whole numbers from 0 to {content.n_units - 1}, or -1 "
            "for none."
        )
