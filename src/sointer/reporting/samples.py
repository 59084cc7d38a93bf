"""Which samples of X a report shows, how they are called, and what they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import is_sparse, n_rows, row_labels
from sointer._support.validation import check_unique_names
from sointer.masking.groups import FixedGroups
from sointer.masking.rows import Source

FEW_LOOKED_AT, MOST_COUNTS = 100_000, 200


def names_of_samples(X: Any, given: Sequence[str] | None) -> list[str]:
    """The caller's names, or the labels of the rows where they are all different, or their numbers."""
    n = n_rows(X)
    if given is not None:
        return check_unique_names([str(name) for name in given], n, "sample_names")
    labels = row_labels(X)
    names = range(n) if labels is None or len(set(map(str, labels))) < n else labels
    return [str(name) for name in names]


def drawn(n_given: int, n: int) -> NDArray[np.int64]:
    """All rows, or some drawn at random, in their order."""
    if n >= n_given:
        return np.arange(n_given)
    return np.sort(np.random.default_rng(0).permutation(n_given)[:n])


def n_own(source: Source) -> NDArray[np.integer[Any]]:
    """At most how many units of each sample can be selected."""
    if is_sparse(source.data) and source.removal.keeps_zeros:
        return np.asarray(np.diff(source.data.indptr))
    return np.full(source.data.shape[0], source.groups.n_units)


def holds_counts(source: Source) -> bool:
    """Whether few different numbers occur, so that each needs to be spelt out once only."""
    return is_sparse(source.data) and len(np.unique(source.data.data[:FEW_LOOKED_AT])) <= MOST_COUNTS


def present(source: Source) -> list[NDArray[np.int64]] | None:
    """The units that each sample of a mostly-zero table has; None for other tables, where each has all."""
    if not is_sparse(source.data) or not isinstance(source.groups, FixedGroups):
        return None
    unit_of_column, data = source.groups.unit_of_column, source.data
    return [np.unique(unit_of_column[data[i : i + 1].tocoo().col]) for i in range(data.shape[0])]
