"""Rows that are nobody's: drawn column by column, for explainers that are shared without their training rows."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from sointer._support import containers
from sointer.masking.removal import Background, FloatArray, Removal, RemovalByRows, TextTableRemoval

MAX_LEVELS = 32
"""A column with at most so many different values keeps them; of others, numbers between two of them are drawn."""


def without_rows(background: Background) -> Background:
    """Which columns vary, and no rows."""
    return Background(background.rows[:0], background.varies)


def synthetic_background(background: Background, column_feature: npt.NDArray[np.int64], seed: int) -> Background:
    """As many rows, in which features are independent of each other; each alone is distributed as before.

    Columns of one feature, which say its category, are drawn together.
    """
    rng, rows = np.random.default_rng(seed), background.rows
    if containers.is_sparse(rows):
        return Background(_sparse(rows, rng), background.varies)
    drawn = _drawn(np.asarray(rows, dtype=np.float64), rng)
    for feature in np.flatnonzero(np.bincount(column_feature) > 1):
        block = np.flatnonzero(column_feature == feature)
        drawn[:, block] = rows[np.ix_(rng.permutation(len(rows)), block)]
    return Background(drawn, background.varies)


def with_background(removal: Removal, background: Background) -> Removal:
    """The removal, to be saved with other rows."""
    changed = copy(removal)
    if isinstance(changed, RemovalByRows | TextTableRemoval):
        changed.background = background
    return changed


def _drawn(rows: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Each column by itself: shuffled if it has few values, else somewhere between two values that follow another."""
    ordered = np.sort(rows, axis=0)
    place = rng.uniform(0.0, max(len(rows) - 1, 0), size=rows.shape)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, len(rows) - 1)
    below, above = np.take_along_axis(ordered, low, axis=0), np.take_along_axis(ordered, high, axis=0)
    between = below + (place - low) * (above - below)
    between = np.where((rows == np.rint(rows)).all(axis=0), np.rint(between), between)
    n_levels = (np.diff(ordered, axis=0) > 0).sum(axis=0) + 1
    return np.where(n_levels <= MAX_LEVELS, rng.permuted(rows, axis=0), between)


def _sparse(rows: Any, rng: np.random.Generator) -> Any:
    """The entries of each column, in other rows."""
    columns = sparse.csc_array(rows)
    indices, data = columns.indices.copy(), columns.data.copy()
    for start, end in zip(columns.indptr[:-1], columns.indptr[1:], strict=True):
        indices[start:end] = rng.choice(rows.shape[0], end - start, replace=False)
        data[start:end] = _drawn(data[start:end, None].astype(np.float64), rng)[:, 0]
    return containers.csr_array(sparse.csc_array((data, indices, columns.indptr), shape=rows.shape).tocsr())
