"""Masks that a model returned for images, as one table: labels, numbers, or how probable the classes are."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sointer.errors import BlackBoxError

Table = npt.NDArray[Any]
WRONG = "Your function returned an invalid result: "
Size: TypeAlias = tuple[int, int]
"""Height and width."""
SLACK = 1e-3
"""Of class probabilities in half precision, whose sum is not quite 1."""
TOP_TWO = np.dtype([("first", "u1"), ("second", "u1"), ("p_first", "u1"), ("p_second", "u1")])
"""The two most probable classes of a pixel, and 255 times their probabilities: four bytes, however many classes."""
MAX_CLASSES = 256


def flat_masks(masks: Table, n_rows: int, size: Size, got: str) -> Table:
    """Masks (n, height, width) or (n, 1, height, width) as a table (n, height x width).

    Class probabilities (n, classes, height, width) become the probability of the second of two classes, and of more
    than two the `TOP_TWO`.
    """
    height, width = size
    if masks.ndim == 4 and masks.shape[1] > 1 and masks.shape[2:] == size and are_class_probabilities(masks):
        masks = masks[:, 1] if masks.shape[1] == 2 else top_two(masks)
    expected = f"expected masks of shape ({n_rows}, {height}, {width}), one for each image"
    if masks.ndim == 4 and masks.shape[1] == 1:
        masks = masks[:, 0]
    if masks.ndim != 3:
        raise BlackBoxError(f"{WRONG}{got}, {expected}. {_axes_hint(masks, size)}")
    if masks.shape[0] != n_rows:
        raise BlackBoxError(f"{WRONG}{masks.shape[0]} masks ({got}) for {n_rows} images, {expected}.")
    if masks.shape[1:] != size:
        raise BlackBoxError(
            f"{WRONG}masks of {masks.shape[1]} x {masks.shape[2]} pixels ({got}) for images of {height} x {width}, "
            f"{expected}. Resize the masks to the images before you return them."
        )
    return masks.reshape(n_rows, -1)


def are_class_probabilities(masks: Table) -> bool:
    """Whether numbers or booleans (n, classes, ...) are at least 0 and add up to 1 over the classes."""
    if masks.dtype.kind not in "biuf":
        return False
    return bool((masks >= -SLACK).all() and (np.abs(masks.sum(axis=1) - 1) <= SLACK).all())


def top_two(probabilities: Table) -> Table:
    """`TOP_TWO` of class probabilities (n, classes, ...); the first of equally probable classes comes first."""
    first = probabilities.argmax(axis=1)[:, None]
    if probabilities.shape[1] > MAX_CLASSES:
        return np.asarray(first[:, 0])  # masks that really have so many classes are refused
    rest = probabilities.astype(np.float32)
    found = np.empty((len(rest), *rest.shape[2:]), dtype=TOP_TWO)
    for name in ("first", "second"):
        found[name] = first[:, 0]
        found[f"p_{name}"] = np.rint(255 * np.take_along_axis(rest, first, axis=1)[:, 0].clip(0, 1))
        np.put_along_axis(rest, first, -1.0, axis=1)
        first = rest.argmax(axis=1)[:, None]
    return found


def has_top_two(table: Table) -> bool:
    """Whether a table is of `TOP_TWO`."""
    return table.dtype == TOP_TWO


def labels_of(table: Table) -> Table:
    """The most probable classes, where a table is of `TOP_TWO`; any other table as it is."""
    return table["first"].astype(np.int64) if has_top_two(table) else table


def _axes_hint(masks: Table, size: Size) -> str:
    if masks.ndim == 4 and masks.shape[3] == 1 and masks.shape[1:3] == size:
        return "Drop the last axis with outputs[..., 0]."
    if masks.ndim == 4 and masks.shape[1:3] == size:
        return "For one label per pixel take outputs.argmax(axis=3)."
    if masks.ndim == 4:
        return (
            "Class scores that do not add up to 1 are not probabilities: return their softmax over axis 1 or, for one "
            "label per pixel, the largest of them with outputs.argmax(axis=1)."
        )
    return "Return one label or number for each pixel."
