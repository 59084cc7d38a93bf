"""The inputs that an energy is trained on: a table of rows, dense or sparse, from which batches are taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from sointer._support.containers import is_sparse
from sointer.energy.sparse import Inputs, SparseRows


class Points:
    """Rows as the networks see them, in single precision."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows  # float32: an array, or a csr_array
        self._room = rows  # an array whose beginning the rows are

    @classmethod
    def of(cls, rows: Any, shift: NDArray[np.float64]) -> Points:
        """Encoded rows, less the shift (sparse rows have none)."""
        if is_sparse(rows):
            return cls(rows.astype(np.float32))
        return cls((rows - shift).astype(np.float32))

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def take(self, index: Tensor | slice) -> Inputs:
        """Some rows, as an energy takes them."""
        some = self._rows[index.numpy() if isinstance(index, Tensor) else index]
        return SparseRows.of(some) if is_sparse(some) else torch.from_numpy(some)

    def where(self, chosen: NDArray[np.bool_]) -> Points:
        return Points(self._rows[chosen])

    def dense(self) -> Tensor:
        """All rows as one tensor."""
        return torch.from_numpy(self._rows.toarray() if is_sparse(self._rows) else self._rows)

    def add(self, more: Points) -> None:
        """More rows below these. Dense ones are given room for twice as many, so that few of them are ever copied."""
        if is_sparse(self._rows):
            self._rows = sparse.vstack([self._rows, more._rows], format="csr")
            return
        n_before, n_rows = len(self), len(self) + len(more)
        if n_rows > len(self._room):
            self._room = np.empty((max(n_rows, 2 * n_before), self._rows.shape[1]), dtype=self._rows.dtype)
            self._room[:n_before] = self._rows
        self._room[n_before:n_rows] = more._rows
        self._rows = self._room[:n_rows]

    @staticmethod
    def join(parts: Sequence[Points]) -> Points:
        """Several tables, one below the other."""
        rows = [part._rows for part in parts]
        return Points(sparse.vstack(rows, format="csr") if is_sparse(rows[0]) else np.concatenate(rows))
