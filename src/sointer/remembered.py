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
    marks: NDArray[np.float64] | None = None
    """A number for every such row, sorted, which is quicker to compute than its key: most rows are told new by it."""

    @classmethod
    def of(cls, rows: Any, codes: NDArray[Any]) -> Remembered:
        """From encoded rows, dense or CSR, and their encoded outputs."""
        keys, first = np.unique(_keys(rows), return_index=True)
        small = codes.astype(np.int16) if codes.dtype.kind == "i" else codes
        return cls(keys, small[first], np.sort(_marks(rows)))

    def find(self, rows: Any) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Which rows are remembered: (rows,), and their outputs: (found, outputs)."""
        found = np.zeros(rows.shape[0], dtype=bool)
        if len(self.keys) == 0:
            return found, self.codes
        perhaps = np.flatnonzero(self._may_be_known(rows))
        keys = _keys(rows[perhaps])
        position = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        equal = self.keys[position] == keys
        found[perhaps[equal]] = True
        return found, self.codes[position[equal]]

    def _may_be_known(self, rows: Any) -> NDArray[np.bool_]:
        if self.marks is None:
            return np.ones(rows.shape[0], dtype=bool)
        marks, slack = _marks(rows), _slack(rows)
        next_above = np.append(self.marks, np.inf)[np.searchsorted(self.marks, marks - slack)]
        return ~(next_above > marks + slack)  # also of rows whose marks are no numbers


def _marks(rows: Any) -> NDArray[np.float64]:
    """A weighted sum of each row, with weights that rows share by accident only."""
    weights = np.modf(1e4 * np.sqrt(np.arange(1.0, rows.shape[1] + 1)))[0]
    return np.asarray(rows @ weights)


def _slack(rows: Any) -> NDArray[np.float64]:
    """By how much the marks of equal rows may differ: sums are rounded as they come, which depends on rows around."""
    squares = rows.multiply(rows).sum(axis=1) if is_sparse(rows) else np.einsum("ij,ij->i", rows, rows)
    return np.asarray(4 * np.finfo(np.float64).eps * rows.shape[1] ** 1.5 * np.sqrt(squares))


def _keys(rows: Any) -> NDArray[np.int64]:
    """Equal numbers give equal keys, however their zeros are written."""
    if is_sparse(rows):
        rows = rows.copy()
        rows.eliminate_zeros()
    else:
        rows = rows + 0.0
    return np.frombuffer(b"".join(key[:8] for key in row_keys(rows)), dtype=np.int64)
