"""The output space as tensors: labels, their encoding, and the list of all configurations."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer._support import cached_property
from sointer.data.outputs import Outputs
from sointer.energy.sparse import Inputs, SparseRows, linear


@dataclass(frozen=True)
class OutputSpace:
    """What the energy sees of the outputs.

    An output with c classes owns c *labels*. An output with two of them enters the energy as one number, 0 or 1 or,
    where it is graded (a probability, the quantile of a number), anything between; any other output enters one-hot.
    `q` below is always a matrix (rows, labels): one-hot for known labels, probabilities for graded or uncertain
    ones, so that `q @ label_columns` is the encoded output y.
    """

    n_classes: tuple[int, ...]

    def forget(self) -> None:
        """Drop the tensors made so far: they are made again where they are needed next."""
        for name in [name for name, value in vars(self).items() if isinstance(value, Tensor)]:
            del vars(self)[name]

    @classmethod
    def of(cls, outputs: Outputs) -> OutputSpace:
        return cls(tuple(int(c) for c in outputs.n_classes))

    @property
    def n_outputs(self) -> int:
        return len(self.n_classes)

    @cached_property
    def is_binary(self) -> bool:
        """Whether every output is a yes or no."""
        return all(c == 2 for c in self.n_classes)

    @property
    def n_labels(self) -> int:
        return sum(self.n_classes)

    @cached_property
    def first_label(self) -> Tensor:
        """The label at which each output's classes begin."""
        return torch.tensor(np.concatenate([[0], np.cumsum(self.n_classes)[:-1]]), dtype=torch.long)

    @cached_property
    def label_output(self) -> Tensor:
        """The output that owns each label."""
        return torch.tensor(np.repeat(np.arange(self.n_outputs), self.n_classes), dtype=torch.long)

    @cached_property
    def label_columns(self) -> Tensor:
        """(labels, columns): what each label adds to the encoded output."""
        rows = []
        for n_classes in self.n_classes:
            block = torch.eye(n_classes)
            rows.append(block[:, 1:] if n_classes == 2 else block)
        blocks: Tensor = torch.block_diag(*rows)
        return blocks

    @cached_property
    def n_columns(self) -> int:
        return sum(1 if c == 2 else c for c in self.n_classes)

    @cached_property
    def column_output(self) -> Tensor:
        """The output that owns each encoded column."""
        n_each = [1 if c == 2 else c for c in self.n_classes]
        return torch.tensor(np.repeat(np.arange(self.n_outputs), n_each), dtype=torch.long)

    @property
    def n_configurations(self) -> float:
        """How many outputs there are in all."""
        return float(np.prod([float(c) for c in self.n_classes]))

    @cached_property
    def configurations(self) -> Tensor:
        """(configurations, outputs) class codes of every possible output, lexicographic."""
        grids = torch.meshgrid(*[torch.arange(c) for c in self.n_classes], indexing="ij")
        return torch.stack([g.reshape(-1) for g in grids], dim=1)

    @cached_property
    def configuration_labels(self) -> Tensor:
        """(configurations, labels) one-hot form of `configurations`."""
        return self.one_hot(self.configurations)

    @cached_property
    def configuration_columns(self) -> Tensor:
        """(configurations, columns) encoded form of `configurations`."""
        return self.configuration_labels @ self.label_columns

    def one_hot(self, codes: Tensor) -> Tensor:
        """Class codes (rows, outputs) as (rows, labels) of zeros and ones."""
        q = torch.zeros(codes.shape[0], self.n_labels)
        return q.scatter_(1, codes + self.first_label, 1.0)

    def probabilities(self, codes: Tensor) -> Tensor:
        """Class codes as (rows, labels); codes of graded outputs are the probability of their second label."""
        if not codes.dtype.is_floating_point:
            return self.one_hot(codes)
        if self.is_binary:
            return torch.stack([1 - codes, codes], dim=2).flatten(1)
        blocks = [
            torch.stack([1 - own, own], dim=1) if c == 2 else F.one_hot(own.long(), c).float()
            for c, own in zip(self.n_classes, codes.unbind(dim=1), strict=True)
        ]
        return torch.cat(blocks, dim=1)

    def encode(self, codes: Tensor) -> Tensor:
        """Codes as the y that enters the energy: (rows, columns)."""
        return self.probabilities(codes) @ self.label_columns

    def labels(self, codes: Tensor) -> Tensor:
        """Class codes; of graded outputs, the label that is more likely."""
        if not codes.dtype.is_floating_point:
            return codes
        two = torch.tensor(self.n_classes) == 2
        return torch.where(two, (codes > 0.5).float(), codes).long()

    def configuration_index(self, codes: Tensor) -> Tensor:
        """The row of `configurations` that equals each row of codes."""
        return (codes * self._strides).sum(dim=1)

    @cached_property
    def _strides(self) -> Tensor:
        return torch.tensor(np.concatenate([np.cumprod(self.n_classes[::-1])[::-1][1:], [1]]).astype(np.int64))

    def normalise(self, label_logits: Tensor) -> Tensor:
        """Log-probabilities of labels: a softmax over each output's own classes."""
        if self.is_binary:
            pairs = label_logits.reshape(label_logits.shape[0], -1, 2)
            return torch.log_softmax(pairs, dim=2).reshape(label_logits.shape)
        blocks = label_logits.split(list(self.n_classes), dim=1)
        return torch.cat([torch.log_softmax(block, dim=1) for block in blocks], dim=1)

    def from_log_odds(self, log_odds: Tensor) -> Tensor:
        """Binary outputs: log-probabilities of labels (rows, labels) from log-odds of "yes" (rows, outputs)."""
        return torch.stack([F.logsigmoid(-log_odds), F.logsigmoid(log_odds)], dim=2).flatten(1)

    def most_likely(self, label_log_p: Tensor) -> Tensor:
        """Class codes (rows, outputs) with the largest probability."""
        if self.is_binary:
            return label_log_p.reshape(len(label_log_p), -1, 2).argmax(dim=2)
        blocks = label_log_p.split(list(self.n_classes), dim=1)
        return torch.stack([block.argmax(dim=1) for block in blocks], dim=1)

    def codes(self, label_log_p: Tensor, graded: NDArray[np.bool_]) -> Tensor:
        """Codes (rows, outputs): the most likely class; of graded outputs, the probability of their second label."""
        labels = self.most_likely(label_log_p)
        if not graded.any():
            return labels
        second = label_log_p[:, self.first_label + (torch.tensor(self.n_classes) == 2).long()].exp()
        return torch.where(torch.as_tensor(graded), second, labels.float())


N_BINS = 8
MAX_ENCODED = 4096
"""Encoded columns in all: tables with very many columns have fewer bins for each."""
MIN_WIDTH = 1e-37
"""Of bins: one over it must be a number in single precision."""
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
                width = np.maximum(1e-6 * np.maximum(np.abs(low), np.abs(high)), MIN_WIDTH)
                own = np.flatnonzero(high - low > width)
                parts.append((own, low[own], 1.0 / (high - low)[own], 0.0, 1.0))
        made = cls(sum(len(part[0]) for part in parts))
        columns = (np.concatenate([np.broadcast_to(part[i], part[0].shape) for part in parts]) for i in range(5))
        for name, values in zip(("column", "low", "slope", "least", "most"), columns, strict=True):
            getattr(made, name).copy_(torch.as_tensor(np.array(values)))
        return made

    @property
    def n_encoded(self) -> int:
        return len(self.column)

    def forward(self, x: Tensor) -> Tensor:
        """Inputs (rows, columns), encoded: (rows, encoded columns)."""
        share = (x.index_select(1, self.column) - self.low) * self.slope  # much quicker than x[:, column]
        return torch.clamp(share, self.least, self.most) - (self.least + self.most) / 2

    def then_linear(self, x: Inputs, weight: Tensor, offset: Tensor) -> Tensor:
        """A linear layer on the encoded inputs."""
        return linear(self(x.dense() if isinstance(x, SparseRows) else x), weight, offset)


Encoding = InputScaling | PiecewiseLinear
