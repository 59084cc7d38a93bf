"""Rows that are mostly zero: kept as their non-zero entries, and multiplied as such by the first layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sointer._support import containers
from sointer._support.torch_state import computing_on

MIN_WIDTH = 16
"""On processors where rows differed, they did with up to 11 columns."""


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b, for rows a: (..., inner) and a matrix b: (inner, columns)."""
    n_inner, n_columns = b.shape
    if n_inner >= MIN_WIDTH and n_columns >= MIN_WIDTH:
        return a @ b
    # The inner size is the number of columns on the way back.
    missing = max(0, MIN_WIDTH - n_inner)
    wide = F.pad(b, (0, max(0, MIN_WIDTH - n_columns), 0, missing))
    return ((F.pad(a, (0, missing)) if missing else a) @ wide)[..., :n_columns]


def product_and(base: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """base + a b."""
    return torch.addmm(base, a, b) if min(b.shape) >= MIN_WIDTH else base + product(a, b)


class Linear(nn.Linear):
    """A linear layer."""

    def forward(self, x: Tensor) -> Tensor:
        return dense_linear(x, self.weight, self.bias)


def dense_linear(x: Tensor, weight: Tensor, offset: Tensor | None) -> Tensor:
    """x W' + offset."""
    if min(weight.shape) >= MIN_WIDTH:
        return F.linear(x, weight, offset)
    result = product(x, weight.T)
    return result if offset is None else result + offset


@dataclass(frozen=True)
class SparseRows:
    """A matrix of network inputs in CSR form."""

    starts: Tensor  # (rows + 1,)
    columns: Tensor
    values: Tensor
    n_columns: int

    @classmethod
    def of(cls, matrix: Any) -> SparseRows:
        """From a scipy CSR matrix."""
        return cls(
            torch.as_tensor(matrix.indptr.astype(np.int64)),
            torch.as_tensor(matrix.indices.astype(np.int64)),
            torch.as_tensor(matrix.data.astype(np.float32)),
            int(matrix.shape[1]),
        )

    @classmethod
    def of_dense(cls, x: Tensor) -> SparseRows:
        """From a dense matrix (rows, columns)."""
        row, column = torch.nonzero(x, as_tuple=True)
        starts = torch.searchsorted(row, torch.arange(len(x) + 1))
        return cls(starts, column, x[row, column], x.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.n_columns

    def __len__(self) -> int:
        return len(self.starts) - 1

    def entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row, column and value of all entries that are not zero."""
        row = torch.repeat_interleave(torch.arange(len(self)), self.starts.diff())
        there = self.values != 0
        if bool(there.all()):
            return row, self.columns, self.values
        return row[there], self.columns[there], self.values[there]

    def take(self, rows: Tensor) -> SparseRows:
        """Some rows; -1 stands for one without entries."""
        n_entries = torch.where(rows < 0, 0, self.starts.diff()[rows]) if len(self) else torch.zeros_like(rows)
        starts = starts_of(n_entries)
        shift = torch.repeat_interleave(self.starts[rows] - starts[:-1], n_entries)
        entries = torch.arange(len(shift)) + shift
        return SparseRows(starts, self.columns[entries], self.values[entries], self.n_columns)

    def dense(self) -> Tensor:
        row, column, value = self.entries()
        return torch.zeros(self.shape).index_put_((row, column), value, accumulate=True)

    def scaled(self, scale: Tensor) -> SparseRows:
        """Every column multiplied by its scale."""
        return SparseRows(self.starts, self.columns, self.values * scale[self.columns], self.n_columns)

    def transposed(self) -> SparseRows:
        parts = (self.values.numpy(), self.columns.numpy(), self.starts.numpy())
        return SparseRows.of(containers.csr_array(parts, shape=self.shape).T.tocsr())

    def times(self, matrix: Tensor) -> Tensor:
        """The product with a dense matrix (columns, width)."""
        # A weighted bag of embeddings is this product, and the fastest form of it that torch has on a processor.
        return F.embedding_bag(
            self.columns, matrix.contiguous(), self.starts[:-1], mode="sum", per_sample_weights=self.values
        )


def starts_of(counts: Tensor) -> Tensor:
    """Where each of some lists begins that follow each other, and where the last one ends."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


Inputs: TypeAlias = Tensor | SparseRows


class _SparseLinear(torch.autograd.Function):
    """x W' for sparse x, whose gradient in W costs no more than the product itself."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: SparseRows) -> Tensor:
        ctx.x = x
        return x.times(weight.T)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        with computing_on(gradients[0].device):  # torch goes back in a thread of the device's own
            return ctx.x.transposed().times(gradients[0]).T, None


def linear(x: Inputs, weight: Tensor, offset: Tensor) -> Tensor:
    """x W' + offset, for dense or sparse x."""
    if isinstance(x, SparseRows):
        product: Tensor = _SparseLinear.apply(weight, x)  # type: ignore[no-untyped-call]
        return product + offset
    return dense_linear(x, weight, offset)
