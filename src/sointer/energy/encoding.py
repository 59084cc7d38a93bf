"""How numbers enter an energy: as they are, scaled, and piecewise linear over quantile bins."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer.energy.sparse import Inputs, SparseRows, linear

N_BINS = 8
MAX_ENCODED = 4096
"""Encoded columns in all: tables with very many columns have fewer bins for each."""
MAX_DEVIATIONS = 10.0
"""Values further from the mean than this count as if they were there, so that an outlier cannot drown all others."""


class InputScaling(nn.Module):
    """A fixed scale of the inputs, learned from the data and saved with the network."""

    scale: Tensor

    def __init__(self, n_columns: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(n_columns))

    @property
    def n_encoded(self) -> int:
        return len(self.scale)

    @property
    def column(self) -> Tensor:
        """The input column that each encoded column is a function of."""
        return torch.arange(len(self.scale))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale

    def then_linear(self, x: Inputs, weight: Tensor, offset: Tensor) -> Tensor:
        """A linear layer on the scaled inputs; sparse ones stay sparse."""
        return linear(x.scaled(self.scale) if isinstance(x, SparseRows) else self(x), weight, offset)


class PiecewiseLinear(nn.Module):
    """Each encoded column is a clipped linear function of one input column.

    Every input column enters scaled to unit spread, and once for each of its quantile bins as the share of that bin
    that lies below the value (Gorishniy et al. 2022), centred. A first layer on these is additive over the columns and
    can bend at every bin, as trees do.
    """

    column: Tensor
    low: Tensor
    slope: Tensor
    least: Tensor
    most: Tensor

    def __init__(self, n_encoded: int) -> None:
        super().__init__()
        self.register_buffer("column", torch.zeros(n_encoded, dtype=torch.long))
        self.register_buffer("low", torch.zeros(n_encoded))
        self.register_buffer("slope", torch.ones(n_encoded))
        self.register_buffer("least", torch.full((n_encoded,), -MAX_DEVIATIONS))
        self.register_buffer("most", torch.full((n_encoded,), MAX_DEVIATIONS))

    @classmethod
    def of(cls, data: NDArray[np.float64], shift: NDArray[np.float64]) -> PiecewiseLinear:
        """Bins that hold equally many rows of the data, after `shift` is taken off every column."""
        rows = data - shift
        spread, size = rows.std(axis=0), np.abs(data).max(axis=0, initial=0.0)
        # Rounding gives a column of equal numbers a tiny spread, which must not become a huge scale.
        spread = np.where(spread > 1e-9 * size, spread, 1.0)
        n_columns = rows.shape[1]
        parts = [(np.arange(n_columns), rows.mean(axis=0), 1.0 / spread, -MAX_DEVIATIONS, MAX_DEVIATIONS)]
        n_bins = min(N_BINS, MAX_ENCODED // max(n_columns, 1) - 1)
        if n_bins >= 2 and len(rows):
            edges = np.quantile(rows, np.linspace(0, 1, n_bins + 1), axis=0)
            for low, high in pairwise(edges):
                # As far as single precision tells the edges apart; the spread would not do, as outliers may be huge.
                own = np.flatnonzero(high - low > 1e-6 * np.maximum(np.abs(low), np.abs(high)))
                parts.append((own, low[own], 1.0 / (high - low)[own], 0.0, 1.0))
        made = cls(sum(len(part[0]) for part in parts))
        columns = (np.concatenate([np.broadcast_to(part[i], part[0].shape) for part in parts]) for i in range(5))
        for name, values in zip(("column", "low", "slope", "least", "most"), columns, strict=True):
            getattr(made, name).copy_(torch.from_numpy(np.array(values)))
        return made

    @property
    def n_encoded(self) -> int:
        return len(self.column)

    def forward(self, x: Tensor) -> Tensor:
        """Inputs (rows, columns), encoded: (rows, encoded columns)."""
        share = (x[:, self.column] - self.low) * self.slope
        return torch.clamp(share, self.least, self.most) - (self.least + self.most) / 2

    def then_linear(self, x: Inputs, weight: Tensor, offset: Tensor) -> Tensor:
        """A linear layer on the encoded inputs."""
        return linear(self(x.dense() if isinstance(x, SparseRows) else x), weight, offset)


Encoding = InputScaling | PiecewiseLinear
