"""Training rows kept to draw from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer import containers
from sointer.removal.base import BoolArray, FloatArray

MOST_BACKGROUND_ROWS = 1000


class Background:
    """A sample of training rows, sparse if they came so, and which columns vary in all of them."""

    def __init__(self, rows: Any, varies: BoolArray) -> None:
        self.rows = rows
        self.varies = varies
        self.n_columns = int(rows.shape[1])

    @classmethod
    def of(cls, data: Any, rng: np.random.Generator) -> Background:
        """At most 1000 rows of the training matrix."""
        if containers.is_sparse(data):
            low, high = np.asarray(data.min(axis=0).todense()), np.asarray(data.max(axis=0).todense())
        else:
            low, high = data.min(axis=0), data.max(axis=0)
        n = data.shape[0]
        chosen = np.arange(n)
        if n > MOST_BACKGROUND_ROWS:
            chosen = np.sort(rng.choice(n, MOST_BACKGROUND_ROWS, replace=False))
        return cls(data[chosen], (low != high).ravel())

    def draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Whole rows, drawn with replacement: (n, n_columns)."""
        return self.take(rng.integers(self.rows.shape[0], size=n))

    def take(self, index: npt.NDArray[np.int64]) -> FloatArray:
        """Whole rows by number, dense: (n, n_columns)."""
        taken = self.rows[index]
        return np.asarray(taken.toarray() if containers.is_sparse(taken) else taken, dtype=np.float64)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        if not containers.is_sparse(self.rows):
            return {"shape": None}, {"varies": self.varies, "rows": self.rows}
        kept = {"data": self.rows.data, "indices": self.rows.indices, "indptr": self.rows.indptr}
        return {"shape": [int(side) for side in self.rows.shape]}, {"varies": self.varies, **kept}

    @classmethod
    def from_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Background:
        varies = np.asarray(arrays["varies"], dtype=bool)
        if meta["shape"] is None:
            return cls(np.asarray(arrays["rows"], dtype=np.float64), varies)
        parts = (arrays["data"], arrays["indices"], arrays["indptr"])
        return cls(containers.csr_array(parts, shape=tuple(meta["shape"])), varies)
