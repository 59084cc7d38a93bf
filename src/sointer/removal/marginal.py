"""Removed columns take the values of another row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer.removal.background import Background
from sointer.removal.base import BoolArray, FloatArray, Removal, check_mask


class RemovalByRows(Removal):
    """What is removed comes from rows of the training data: from any of them where nothing is kept."""

    is_random = True
    background: Background

    def references(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.background.draw(n, rng)

    def differs(self, Z: FloatArray) -> BoolArray:
        return np.tile(self.background.varies, (len(Z), 1))


class MarginalRemoval(RemovalByRows):
    """The removed columns of a sample are taken together from one training row drawn at random.

    One row for all of them keeps one-hot blocks valid and the absent features consistent with each other.
    """

    name = "marginal"

    def __init__(self, background: Background) -> None:
        self.background = background

    def apply(self, Z: FloatArray, keep: BoolArray, rng: np.random.Generator) -> FloatArray:
        check_mask(Z, keep, self.background.n_columns)
        return np.where(keep, Z, self.background.draw(len(Z), rng))

    def draws(self, Z: FloatArray, keep: BoolArray, n: int, rng: np.random.Generator) -> Iterator[FloatArray]:
        for reference in self.references(n, rng):
            yield np.where(keep, Z, reference)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        meta, arrays = self.background.state()
        return {"type": "marginal", "name": self.name, **meta}, arrays
