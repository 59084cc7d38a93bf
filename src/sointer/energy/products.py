"""Matrix products in which no row is rounded otherwise than its neighbours.

Of products with few columns, some processors' libraries compute neighbouring rows in different ways. The last digit of
a row's result then depends on where it stands, and so would explanations on the rows that are explained with them. With
16 columns or more, which zeros may fill, all rows are computed alike.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ENOUGH = 16
"""On processors where rows differed, they did with up to 11 columns."""


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b, for rows a: (..., inner) and a matrix b: (inner, columns)."""
    n_inner, n_columns = b.shape
    if n_inner >= ENOUGH and n_columns >= ENOUGH:
        return a @ b
    # The inner size is the number of columns on the way back.
    missing = max(0, ENOUGH - n_inner)
    wide = F.pad(b, (0, max(0, ENOUGH - n_columns), 0, missing))
    return ((F.pad(a, (0, missing)) if missing else a) @ wide)[..., :n_columns]


def product_and(base: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """base + a b."""
    return torch.addmm(base, a, b) if min(b.shape) >= ENOUGH else base + product(a, b)


class Linear(nn.Linear):
    """A linear layer."""

    def forward(self, x: Tensor) -> Tensor:
        return dense_linear(x, self.weight, self.bias)


def dense_linear(x: Tensor, weight: Tensor, offset: Tensor | None) -> Tensor:
    """x W' + offset."""
    if min(weight.shape) >= ENOUGH:
        return F.linear(x, weight, offset)
    result = product(x, weight.T)
    return result if offset is None else result + offset
