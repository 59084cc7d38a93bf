"""The user's own way to fill in what is removed."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer.containers import describe
from sointer.errors import InputError, LoadError
from sointer.inputs import ImageShape
from sointer.removal.background import Background
from sointer.removal.base import BoolArray, FloatArray, RemovalFunction, check_mask
from sointer.removal.marginal import RemovalByRows

# The function is its owner's: fit calls it while training and while asking, which are two threads.
_one_at_a_time = threading.RLock()


class FunctionRemoval(RemovalByRows):
    """The user's own function (Z, keep, rng) -> Z, on encoded numbers; what it returns is checked.

    Images, and what to keep of them, are given to it as (n, channels, height, width).
    """

    def __init__(
        self, function: RemovalFunction | None, background: Background, name: str, image: ImageShape | None = None
    ) -> None:
        self.function = function
        self.background = background
        self.name = name
        self.image = image

    def apply(self, Z: FloatArray, keep: BoolArray, rng: np.random.Generator) -> FloatArray:
        check_mask(Z, keep, self.background.n_columns)
        if self.function is None:
            raise LoadError(
                f"This explainer removes features with its owner's function {self.name!r}, which is not "
                "saved; expected it to be given again on loading. Load it with sointer.load(path, removal=function)."
            )
        given, kept = (Z, keep) if self.image is None else (self.image.unflatten(Z), self.image.unflatten(keep))
        with _one_at_a_time:
            filled = np.asarray(self.function(given.copy(), kept.copy(), rng))
        where = f"The removal function {self.name!r} returned"
        if filled.shape != given.shape or filled.dtype.kind not in "biuf":
            raise InputError(
                f"{where} {describe(filled)}, expected numbers of shape {given.shape}. Return the array it is "
                "given, with values filled in where the mask is False."
            )
        filled = filled.astype(np.float64).reshape(Z.shape)
        if not np.array_equal(filled[keep], Z[keep], equal_nan=True):
            raise InputError(
                f"{where} other values for features that are kept, expected them as they were. Change only "
                "the entries where the mask is False, for example with np.where(keep, x, value)."
            )
        if not np.isfinite(filled[~keep]).all():
            raise InputError(f"{where} NaN or infinite values, expected finite ones. Fill every removed entry.")
        return filled

    def references(self, n: int, rng: np.random.Generator) -> FloatArray:
        base = self.background.draw(n, rng)
        return self.apply(base, np.zeros(base.shape, dtype=bool), rng)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        meta, arrays = self.background.state()
        image = None if self.image is None else [self.image.channels, self.image.height, self.image.width]
        return {"type": "function", "name": self.name, "image": image, **meta}, arrays
