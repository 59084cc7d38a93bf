"""One value for every removed column: zero, its mean, or one that the user gave."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sointer import containers
from sointer.removal.base import BoolArray, FloatArray, Removal, check_mask


class FixedRemoval(Removal):
    """Every removed column takes the same value in every sample."""

    is_random = False

    def __init__(self, name: str, reference: FloatArray) -> None:
        self.name = name
        self.reference = reference
        self.keeps_zeros = not reference.any()

    def apply(self, Z: FloatArray, keep: BoolArray, rng: np.random.Generator) -> FloatArray:
        check_mask(Z, keep, len(self.reference))
        # where, never multiplication: a value that is not finite must not leak into what was removed.
        return np.where(keep, Z, self.reference)

    def reduce(self, rows: Any, keep: BoolArray, rng: np.random.Generator) -> Any:
        if not (self.keeps_zeros and containers.is_sparse(rows)):
            return super().reduce(rows, keep, rng)
        row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        kept = keep[row, rows.indices]
        starts = np.concatenate([[0], np.cumsum(kept)])[rows.indptr]
        return containers.csr_array((rows.data[kept], rows.indices[kept], starts), shape=rows.shape)

    def references(self, n: int, rng: np.random.Generator) -> FloatArray:
        return np.tile(self.reference, (1, 1))

    def differs(self, Z: FloatArray) -> BoolArray:
        return np.asarray(self.reference != Z)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        return {"type": "fixed", "name": self.name}, {"reference": self.reference}
