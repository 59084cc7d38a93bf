"""How well predicted masks of images cover the true ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def iou(truth: npt.ArrayLike, prediction: npt.ArrayLike) -> float:
    """Intersection over union of masks, averaged over images.

    Masks are (images, height, width), of booleans or of classes 0, 1, ... An image's own is the mean over its
    classes but 0, the background, that are on either side; it is 1 where there are none.
    """
    expected, given = _as_masks(truth), _as_masks(prediction)
    if expected.shape != given.shape:
        raise ValueError(f"the two sides differ in shape: {expected.shape} and {given.shape}")
    return float(np.mean([_one_image(*pair) for pair in zip(expected, given, strict=True)]))


def _one_image(truth: npt.NDArray[Any], prediction: npt.NDArray[Any]) -> float:
    classes = [label for label in np.union1d(truth, prediction) if label != 0]
    shares = [
        np.sum((truth == label) & (prediction == label)) / np.sum((truth == label) | (prediction == label))
        for label in classes
    ]
    return float(np.mean(shares)) if shares else 1.0


def _as_masks(values: npt.ArrayLike) -> npt.NDArray[Any]:
    masks = np.asarray(values)
    if masks.ndim != 3 or masks.size == 0:
        raise ValueError(f"masks need the axes (image, row, column), got shape {masks.shape}")
    if masks.dtype != np.bool_ and (np.any(masks < 0) or np.any(masks != np.floor(masks))):
        raise ValueError("masks must be booleans or the classes 0, 1, ...; threshold probabilities first")
    return masks
