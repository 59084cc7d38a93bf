"""What the black box said about the rows it was asked about whole, found again by their content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.blackbox.rowkeys import row_keys
from sointer.containers import is_sparse


@dataclass(frozen=True, eq=False)
class Remembered:
    """Answers to whole rows: a key per row, sorted, and the encoded outputs of that row."""

    keys: NDArray[np.int64]
    codes: NDArray[Any]

    @classmethod
    def of(cls, rows: Any, codes: NDArray[Any]) -> Remembered:
        """From encoded rows, dense or CSR, and their encoded outputs."""
        keys, first = np.unique(_keys(rows), return_index=True)
        small = codes.astype(np.int16) if codes.dtype.kind == "i" else codes
        return cls(keys, small[first])

    def find(self, rows: Any) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Which rows are remembered: (rows,), and their outputs: (found, outputs)."""
        keys = _keys(rows)
        if len(self.keys) == 0:
            return np.zeros(len(keys), dtype=bool), self.codes
        position = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        found = self.keys[position] == keys
        return np.asarray(found), self.codes[position[found]]


def _keys(rows: Any) -> NDArray[np.int64]:
    """Equal numbers give equal keys, however their zeros are written."""
    if is_sparse(rows):
        rows = rows.copy()
        rows.eliminate_zeros()
    else:
        rows = rows + 0.0
    return np.frombuffer(b"".join(key[:8] for key in row_keys(rows)), dtype=np.int64)
