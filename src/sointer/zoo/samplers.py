"""How the inputs of problems are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
Sampler: TypeAlias = Callable[[int, int, np.random.Generator], FloatArray]


def standard_normal(n_rows: int, n_features: int, rng: np.random.Generator) -> FloatArray:
    """Independent standard normal inputs, one row per sample."""
    return rng.standard_normal((n_rows, n_features))


def equicorrelated(n_rows: int, n_features: int, rng: np.random.Generator, rho: float) -> FloatArray:
    """Normal inputs of which every pair has the correlation rho."""
    own = rng.standard_normal((n_rows, n_features))
    shared = rng.standard_normal((n_rows, 1))
    inputs: FloatArray = np.sqrt(rho) * shared + np.sqrt(1 - rho) * own
    return inputs


def autoregressive(n_rows: int, n_features: int, rng: np.random.Generator, rho: float) -> FloatArray:
    """Normal inputs of which features i and j have the correlation `rho ** |i - j|`."""
    inputs = rng.standard_normal((n_rows, n_features))
    for i in range(1, n_features):
        inputs[:, i] = rho * inputs[:, i - 1] + np.sqrt(1 - rho**2) * inputs[:, i]
    return inputs


def with_copies(
    n_rows: int,
    n_features: int,
    rng: np.random.Generator,
    sampler: Sampler,
    originals: Mapping[int, int],
    rho: float,
) -> FloatArray:
    """Inputs of another sampler, in which `originals` maps features to those that they copy with noise."""
    inputs: FloatArray = sampler(n_rows, n_features, rng).copy()
    noise = rng.standard_normal((n_rows, len(originals)))
    for column, (decoy, original) in enumerate(originals.items()):
        inputs[:, decoy] = rho * inputs[:, original] + np.sqrt(1 - rho**2) * noise[:, column]
    return inputs
