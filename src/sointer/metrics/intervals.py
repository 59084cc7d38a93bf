"""How sure a mean over a few repetitions is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit


class MeanInterval(NamedTuple):
    """A mean and the bounds of its confidence interval."""

    mean: float
    low: float
    high: float


def mean_interval(values: npt.ArrayLike, confidence: float = 0.95) -> MeanInterval:
    """Mean and t-interval of one value per seed; from a single value the bounds are NaN."""
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
