"""Masks that a model returned for images: checked, and flattened to one row of outputs per image."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sointer._support import containers
from sointer.errors import BlackBoxError

Size: TypeAlias = tuple[int, int]
"""Height and width."""


SLACK = 1e-3
"""Of class probabilities in half precision, whose sum is not quite 1."""


def image_size(X: Any) -> Size | None:
    """Height and width of images (n, channels, height, width); None for anything else."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    return (int(shape[2]), int(shape[3])) if len(shape) == 4 and not containers.is_sparse(X) else None


def flat_masks(masks: npt.NDArray[Any], n_rows: int, size: Size, got: str, wrong: str) -> npt.NDArray[Any]:
    """Masks (n, height, width) or (n, 1, height, width) as a table (n, height x width).

    Class probabilities (n, classes, height, width) become the probability of the second of two classes, and of more
    than two the number of the most probable one.
    """
    height, width = size
    if masks.ndim == 4 and masks.shape[1] > 1 and masks.shape[2:] == size and are_class_probabilities(masks):
        masks = masks[:, 1] if masks.shape[1] == 2 else masks.argmax(axis=1)
    expected = f"expected masks of shape ({n_rows}, {height}, {width}), one for each image"
    if masks.ndim == 4 and masks.shape[1] == 1:
        masks = masks[:, 0]
    if masks.ndim != 3:
        raise BlackBoxError(f"{wrong}{got}, {expected}. {_axes_hint(masks, size)}")
    if masks.shape[0] != n_rows:
        raise BlackBoxError(f"{wrong}{masks.shape[0]} masks ({got}) for {n_rows} images, {expected}.")
    if masks.shape[1:] != size:
        raise BlackBoxError(
            f"{wrong}masks of {masks.shape[1]} x {masks.shape[2]} pixels ({got}) for images of {height} x {width}, "
            f"{expected}. Resize the masks to the images before you return them."
        )
    return masks.reshape(n_rows, -1)


def are_class_probabilities(masks: npt.NDArray[Any]) -> bool:
    """Whether numbers (n, classes, ...) are at least 0 and add up to 1 over the classes."""
    if not np.issubdtype(masks.dtype, np.floating):
        return False
    return bool((masks >= -SLACK).all() and (np.abs(masks.sum(axis=1) - 1) <= SLACK).all())


def check_same_shape(shape: Size | None, known: Size | None, wrong: str) -> None:
    """Refuse outputs that are laid out differently from those of earlier calls."""
    if shape != known:
        raise BlackBoxError(
            f"{wrong}{_in_words(shape)}, expected {_in_words(known)} as in earlier calls. "
            "Return outputs of the same shape on every call."
        )


def _in_words(shape: Size | None) -> str:
    return "a flat table of outputs" if shape is None else f"masks of {shape[0]} x {shape[1]} pixels"


def _axes_hint(masks: npt.NDArray[Any], size: Size) -> str:
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
