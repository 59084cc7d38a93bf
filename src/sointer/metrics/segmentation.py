"""How well predicted masks of images cover the true ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit


def iou(truth: npt.ArrayLike, prediction: npt.ArrayLike) -> float:
    """Intersection over union of masks, averaged over images.

    That of an image is the mean over the classes, but 0, the background, that are on either side; it is 1 where there
    are none.

    Parameters
    ----------
    truth, prediction : arrays (images, height, width) of booleans or of classes 0, 1, ...

    Returns
    -------
    float
        From 0 to 1.

    Raises
    ------
    ValueError
        If the shapes differ, or the values are not classes.

    Examples
    --------
    >>> iou([[[1, 1], [0, 0]]], [[[1, 0], [0, 0]]])
    0.5
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


class MeanInterval(NamedTuple):
    """A mean and the bounds of its confidence interval."""

    mean: float
    low: float
    high: float


def mean_interval(values: npt.ArrayLike, confidence: float = 0.95) -> MeanInterval:
    """Mean and t-interval of one value per seed.

    Parameters
    ----------
    values : array (seeds,)
    confidence : float, default 0.95

    Returns
    -------
    MeanInterval
        From a single value the bounds are NaN.

    Raises
    ------
    ValueError
        If there is no value, or confidence is not between 0 and 1.

    Examples
    --------
    >>> mean_interval([0.9, 1.0, 0.8]).mean
    0.9
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError(f"give one value per seed, got shape {sample.shape}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    mean = float(sample.mean())
    if sample.size == 1:
        return MeanInterval(mean, float("nan"), float("nan"))
    standard_error = sample.std(ddof=1) / np.sqrt(sample.size)
    half_width = float(stdtrit(sample.size - 1, (1 + confidence) / 2) * standard_error)
    return MeanInterval(mean, mean - half_width, mean + half_width)
