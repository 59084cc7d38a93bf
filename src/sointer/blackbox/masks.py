"""Masks that a model returned for images: checked, and flattened to one row of outputs per image."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy.typing as npt

from sointer import containers
from sointer.errors import BlackBoxError

Size: TypeAlias = tuple[int, int]
"""Height and width."""


def image_size(X: Any) -> Size | None:
    """Height and width of images (n, channels, height, width); None for anything else."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    return (int(shape[2]), int(shape[3])) if len(shape) == 4 and not containers.is_sparse(X) else None


def flat_masks(masks: npt.NDArray[Any], n_rows: int, size: Size, got: str, wrong: str) -> npt.NDArray[Any]:
    """Masks (n, height, width) or (n, 1, height, width) as a table (n, height x width)."""
    height, width = size
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


def check_same_shape(shape: Size | None, known: Size | None, wrong: str) -> None:
    """Refuse a reply whose outputs are laid out differently from those of the replies before."""
    if shape != known:
        raise BlackBoxError(
            f"{wrong}{_in_words(shape)}, expected {_in_words(known)} as in the replies before. "
            "Return outputs of the same shape on every call."
        )


def _in_words(shape: Size | None) -> str:
    return "a flat table of outputs" if shape is None else f"masks of {shape[0]} x {shape[1]} pixels"


def _axes_hint(masks: npt.NDArray[Any], size: Size) -> str:
    if masks.ndim == 4 and masks.shape[3] == 1 and masks.shape[1:3] == size:
        return "Drop the last axis with reply[..., 0]."
    if masks.ndim == 4 and masks.shape[1:3] == size:
        return "For one label per pixel take reply.argmax(axis=3)."
    if masks.ndim == 4:
        return "For one label per pixel take the largest of the class scores with reply.argmax(axis=1)."
    return "Return one label or number for each pixel."
