"""The score of a label set: eq. 17-3, a part per label that sees the input and a part that sees all labels."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn


class Coupling(NamedTuple):
    """B, as (labels, units), and b of eq. 17-3."""

    B: Tensor
    b: Tensor


def score_of(unary: Tensor, y: Tensor, coupling: Coupling) -> Tensor:
    """Eq. 17-3: sum_i y_i a_i' F(x) + b' softplus(B y) for every row, with `unary` = a_i' F(x)."""
    return (unary * y).sum(dim=1) + F.softplus(y @ coupling.B) @ coupling.b


def score_gradient(unary: Tensor, y: Tensor, coupling: Coupling) -> Tensor:
    """The gradient of `score_of` in y: (rows, labels)."""
    return unary + (torch.sigmoid(y @ coupling.B) * coupling.b) @ coupling.B.T


class LabelNetwork(nn.Module):
    """F, a, B and b of eq. 17-3, with inputs standardised first."""

    shift: Tensor
    scale: Tensor

    def __init__(self, n_features: int, n_labels: int, hidden: tuple[int, ...], label_units: int) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))
        widths = [n_features, *hidden, n_labels]
        self.layers = nn.ModuleList(nn.utils.skip_init(nn.Linear, a, b) for a, b in pairwise(widths))
        self.B = nn.Parameter(torch.empty(n_labels, label_units))
        self.b = nn.Parameter(torch.empty(label_units))

    def initialise(self, generator: torch.Generator) -> LabelNetwork:
        """Draw all weights: normal, with the variance 2 / number of inputs."""
        with torch.no_grad():
            for layer in self._linear:
                layer.weight.normal_(0, math.sqrt(2 / layer.in_features), generator=generator)
                layer.bias.zero_()
            self.B.normal_(0, math.sqrt(2 / self.B.shape[0]), generator=generator)
            self.b.normal_(0, math.sqrt(2 / len(self.b)), generator=generator)
        return self

    def standardise(self, mean: NDArray[Any], deviation: NDArray[Any]) -> None:
        """Set what is subtracted from each column and what it is divided by; constant columns are left out."""
        varies = deviation > 1e-6 * np.abs(mean)
        self.shift.copy_(torch.from_numpy(mean))
        self.scale.copy_(torch.from_numpy(np.where(varies, 1 / np.where(varies, deviation, 1), 0)))

    @property
    def coupling(self) -> Coupling:
        return Coupling(self.B, self.b)

    @property
    def weights(self) -> list[Tensor]:
        """What weight decay acts on: all but the offsets."""
        return [*(layer.weight for layer in self._linear), self.B, self.b]

    @property
    def offsets(self) -> list[Tensor]:
        return [layer.bias for layer in self._linear]

    def unary(self, x: Tensor) -> Tensor:
        """a_i' F(x) for every label: (rows, labels)."""
        x = (x - self.shift) * self.scale
        for layer in self._linear[:-1]:
            x = F.softplus(layer(x))
        result: Tensor = self._linear[-1](x)
        return result

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return score_of(self.unary(x), y, self.coupling)

    @property
    def _linear(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]


class FrozenNetwork:
    """A fitted network made for answering: sparse rows in, standardisation folded into the first layer.

    The first product runs over the entries of each row alone, so that a row's answer does not depend on the
    rows beside it, nor on whether zeros were stored.
    """

    def __init__(self, network: LabelNetwork) -> None:
        first, *rest = network._linear
        weight = first.weight.detach().double() * network.scale.double()
        self.first: NDArray[Any] = weight.T.float().contiguous().numpy()
        self.offset = (first.bias.detach().double() - weight @ network.shift.double()).float()
        self.rest = [(layer.weight.detach().T.contiguous(), layer.bias.detach()) for layer in rest]
        self.coupling = Coupling(network.B.detach().contiguous(), network.b.detach())
        self.n_labels = len(self.coupling.B)

    def unary(self, X: Any, n_padded: int) -> Tensor:
        """a_i' F(x) for a float32 CSR matrix, with rows of zeros added up to `n_padded`."""
        hidden = torch.zeros(n_padded, self.first.shape[1])
        hidden[: X.shape[0]] = torch.from_numpy(X @ self.first)
        hidden += self.offset
        for weight, offset in self.rest:
            hidden = torch.addmm(offset, F.softplus(hidden), weight)
        return hidden
