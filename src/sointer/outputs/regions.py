"""Targets that are pixels or regions of masks, and the value of a table at such targets.

A target below the number of outputs is a pixel. One above is a region: a row of `Regions`, counted from there.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Regions: TypeAlias = npt.NDArray[np.bool_]
"""Which outputs belong to each region: (n_regions, n_outputs)."""

NO_REGIONS: Regions = np.zeros((0, 0), dtype=bool)


def at_targets(table: npt.NDArray[Any], targets: IntArray, regions: Regions = NO_REGIONS) -> npt.NDArray[Any]:
    """The entry of a table (rows, n_outputs) at each row's target; of a region, the mean of its outputs: (rows,)."""
    n_outputs = table.shape[1]
    single = targets < n_outputs
    if single.all():
        return np.asarray(table[np.arange(len(table)), targets])
    values = np.empty(len(targets))
    values[single] = table[np.flatnonzero(single), targets[single]]
    for target in np.unique(targets[~single]):
        rows = np.flatnonzero(targets == target)
        values[rows] = table[np.ix_(rows, np.flatnonzero(regions[target - n_outputs]))].mean(axis=1)
    return values


def target_columns(table: npt.NDArray[Any], targets: IntArray, regions: Regions = NO_REGIONS) -> npt.NDArray[Any]:
    """Every row of a table (rows, n_outputs) at every target: (rows, targets)."""
    n_outputs = table.shape[1]
    single = targets < n_outputs
    if single.all():
        return np.asarray(table[:, targets])
    values = np.empty((len(table), len(targets)))
    values[:, single] = table[:, targets[single]]
    for place in np.flatnonzero(~single):
        values[:, place] = table[:, regions[targets[place] - n_outputs]].mean(axis=1)
    return values


def majority(codes: npt.NDArray[Any], targets: IntArray, regions: Regions = NO_REGIONS) -> IntArray:
    """The code of each row's target; of a region, that of most of its outputs, the smallest if several are: (rows,)."""
    n_outputs = codes.shape[1]
    single = targets < n_outputs
    chosen = np.empty(len(targets), dtype=np.int64)
    chosen[single] = codes[np.flatnonzero(single), targets[single]]
    for target in np.unique(targets[~single]):
        rows = np.flatnonzero(targets == target)
        inside = codes[np.ix_(rows, np.flatnonzero(regions[target - n_outputs]))]
        present = np.unique(inside)
        counts = np.stack([(inside == code).sum(axis=1) for code in present], axis=1)
        chosen[rows] = present[counts.argmax(axis=1)]
    return chosen


def outputs_of(targets: IntArray, n_outputs: int, regions: Regions = NO_REGIONS) -> IntArray:
    """All outputs that are a target or belong to one, sorted."""
    inside = np.zeros(n_outputs, dtype=bool)
    inside[targets[targets < n_outputs]] = True
    for target in np.unique(targets[targets >= n_outputs]):
        inside |= regions[target - n_outputs]
    return np.flatnonzero(inside)
