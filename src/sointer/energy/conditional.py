"""A target given features and other outputs, where the two may act together: p(y_t | x, other outputs)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sointer.energy.space import Encoding, OutputSpace
from sointer.energy.sparse import Inputs

WIDTH = 64


class TargetGivenOthers(nn.Module):
    """Two hidden layers over features and encoded other outputs together.

    The energy of eq. 17-3 adds what features say of an output to what other outputs say of it, so it cannot hold a
    target such as "this output, unless that feature"; this network can.
    """

    def __init__(self, encoding: Encoding, space: OutputSpace, target: int, others: Sequence[int]) -> None:
        super().__init__()
        self.encoding = encoding
        self.register_buffer("columns", torch.isin(space.column_output, torch.tensor(others, dtype=torch.long)))
        self.of_features = nn.Linear(encoding.n_encoded, WIDTH)
        self.of_outputs = nn.Linear(space.n_columns, WIDTH, bias=False)
        nn.init.normal_(self.of_outputs.weight)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, space.n_classes[target])

    columns: Tensor

    def project(self, x: Inputs) -> Tensor:
        """What the first layer sees of the features: (rows, width)."""
        return self.encoding.then_linear(x, self.of_features.weight, self.of_features.bias)

    def forward(self, projected: Tensor, y: Tensor) -> Tensor:
        """Logits of the target's classes, from project(x) and encoded outputs y."""
        first = F.softplus(projected + self.of_outputs(y * self.columns))
        result: Tensor = self.last(F.softplus(self.hidden(first)))
        return result

    def loss(self, projected: Tensor, y: Tensor, values: Tensor) -> Tensor:
        """How badly the target's codes are predicted, on average; graded ones by soft cross-entropy."""
        logits = self(projected, y)
        if values.dtype.is_floating_point and logits.shape[1] == 2:
            values = torch.stack([1 - values, values], dim=1)
        return F.cross_entropy(logits, values if values.ndim == 2 else values.long())

    def support(self, projected: Tensor, y: Tensor, labels: Tensor) -> Tensor:
        """The probability of the label: (rows,)."""
        logits: Tensor = self(projected, y)
        return torch.softmax(logits, dim=1).gather(1, labels.unsqueeze(1)).squeeze(1)

    def reliance(self, space: OutputSpace) -> Tensor:
        """How strongly the target follows each other output, as the length of its first weights: (outputs,)."""
        squares = (self.of_outputs.weight * self.columns).square().sum(dim=0)
        return torch.zeros(space.n_outputs).index_add(0, space.column_output, squares).sqrt()
