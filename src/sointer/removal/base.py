"""What every removal can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sointer import containers
from sointer.containers import describe
from sointer.errors import InputError

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
RemovalFunction = Callable[[FloatArray, BoolArray, np.random.Generator], npt.ArrayLike]


class Removal(ABC):
    """Fills removed columns; kept ones are never touched.

    All methods work on encoded numbers (n samples, n columns).
    """

    name: str
    is_random: ClassVar[bool]

    @abstractmethod
    def apply(self, Z: FloatArray, keep: BoolArray, rng: np.random.Generator) -> FloatArray:
        """Z (n, n_columns) where `keep` (n, n_columns) is True, and stand-in values elsewhere."""

    keeps_zeros: bool = False
    """Whether what is removed becomes zero, so that sparse rows stay sparse."""

    def reduce(self, rows: Any, keep: BoolArray, rng: np.random.Generator) -> Any:
        """`apply` for dense or CSR rows; the latter stay CSR where what is removed becomes zero."""
        return self.apply(rows.toarray() if containers.is_sparse(rows) else rows, keep, rng)

    def draws(self, Z: FloatArray, keep: BoolArray, n: int, rng: np.random.Generator) -> Iterator[FloatArray]:
        """Z reduced n times (once if nothing is random), each time by the same draw for all rows where possible.

        What becomes of a row then does not depend on the rows around it.
        """
        for _ in range(n if self.is_random else 1):
            yield self.apply(Z, keep, rng)

    @abstractmethod
    def references(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Rows with everything removed: (m, n_columns), m = 1 if they are all the same, else n."""

    @abstractmethod
    def differs(self, Z: FloatArray) -> BoolArray:
        """Where removal could change Z: (n, n_columns)."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Plain JSON and arrays from which `from_state` makes the same removal."""

    @staticmethod
    def from_state(
        meta: Mapping[str, Any],
        arrays: Mapping[str, npt.NDArray[Any]],
        function: RemovalFunction | None = None,
    ) -> Removal:
        """The inverse of `state`. A function is never saved: give it again, or using the removal fails."""
        from sointer.removal.make import restore_removal

        return restore_removal(meta, arrays, function)


def check_mask(Z: FloatArray, keep: BoolArray, n_columns: int) -> None:
    if not isinstance(Z, np.ndarray) or Z.ndim != 2 or Z.shape[1] != n_columns:
        raise InputError(f"Removal got {describe(Z)}, expected a dense array (n, {n_columns}). Encode X first.")
    if keep.shape != Z.shape or keep.dtype != np.bool_:
        raise InputError(
            f"The mask is {describe(keep)}, expected booleans of shape {Z.shape}. Give True for what is kept."
        )
