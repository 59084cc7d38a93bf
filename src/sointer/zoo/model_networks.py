"""The score of a label set: eq. 17-3, a part per label that sees the input and a part that sees all labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
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
        """What couples the labels: B and b."""
        return Coupling(self.B, self.b)

    @property
    def weights(self) -> list[Tensor]:
        """What weight decay acts on: all but the offsets."""
        return [*(layer.weight for layer in self._linear), self.B, self.b]

    @property
    def offsets(self) -> list[Tensor]:
        """The offsets of all layers."""
        return [layer.bias for layer in self._linear]

    def unary(self, x: Tensor) -> Tensor:
        """a_i' F(x) for every label: (rows, labels)."""
        x = (x - self.shift) * self.scale
        for layer in self._linear[:-1]:
            x = F.softplus(layer(x))
        result: Tensor = self._linear[-1](x)
        return result

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The score of every row: (rows,)."""
        return score_of(self.unary(x), y, self.coupling)

    @property
    def _linear(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]


class FrozenNetwork:
    """A fitted network for predictions only: sparse rows in, standardisation folded into the first layer.

    The first product runs over the entries of each row alone, so that its output does not depend on the
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


def row_batches(
    X: Any, Y: NDArray[np.float32], batch_size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless dense batches of CSR inputs and their labels, every row once before any comes again."""
    while True:
        order = torch.randperm(len(Y), generator=generator).numpy()
        shuffled, labels = X[order], torch.from_numpy(Y[order])
        for start in range(0, len(Y), batch_size):
            batch = slice(start, start + batch_size)
            yield torch.from_numpy(shuffled[batch].toarray()), labels[batch]


def column_moments(X: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of every column of a CSR matrix."""
    n_rows, n_columns = X.shape
    mean = np.bincount(X.indices, X.data, minlength=n_columns) / n_rows
    squares = np.bincount(X.indices, (X.data - mean[X.indices]) ** 2, minlength=n_columns)
    n_zeros = n_rows - np.bincount(X.indices, minlength=n_columns)
    return mean, np.sqrt((squares + n_zeros * mean**2) / n_rows)


def relaxed_f1(y: Tensor, truth: Tensor) -> Tensor:
    """Example-F1 of relaxed labels against 0/1 truth, 2 sum min / (sum min + sum max); 1 where both are empty."""
    size = y.sum(dim=1) + truth.sum(dim=1)  # for 0/1 truth, min is y * truth and min + max is y + truth
    f1 = 2 * (y * truth).sum(dim=1) / size.clamp_min(torch.finfo(y.dtype).tiny)
    return torch.where(size > 0, f1, 1.0)


def relaxed_f1_gradient(y: Tensor, truth: Tensor) -> Tensor:
    """The gradient of `relaxed_f1` in y; 0 where both are empty, at which F1 jumps."""
    size = (y.sum(dim=1) + truth.sum(dim=1))[:, None]
    gradient = (2 * truth - relaxed_f1(y, truth)[:, None]) / size.clamp_min(torch.finfo(y.dtype).tiny)
    return torch.where(size > 0, gradient, 0.0)


def climb_value(
    unary: Tensor, coupling: Coupling, n_steps: int, step_size: float, start: Tensor | None = None
) -> Tensor:
    """Gradient ascent of sigmoid(score) on labels kept in [0, 1], from zeros or from `start`."""
    B, b = coupling
    back = (B * b).T.contiguous()
    y = torch.zeros_like(unary) if start is None else start.clone()
    work = torch.empty_like(unary)
    for _ in range(n_steps):
        projected = y @ B
        score = torch.mul(unary, y, out=work).sum(dim=1).add_(F.softplus(projected) @ b)
        value = score.sigmoid_()
        slope = value.mul_(1 - value).mul_(step_size)
        gradient = torch.addmm(unary, projected.sigmoid_(), back, out=work)
        y.addcmul_(gradient, slope[:, None]).clamp_(0, 1)
    return y


def value_loss(unary: Tensor, coupling: Coupling, y: Tensor, truth: Tensor) -> Tensor:
    """Cross-entropy between the value and the example-F1 it should predict, for every row."""
    return F.binary_cross_entropy_with_logits(score_of(unary, y, coupling), relaxed_f1(y, truth), reduction="none")


def climb_loss(
    unary: Tensor, coupling: Coupling, truth: Tensor, start: Tensor, n_steps: int, step_size: float
) -> Tensor:
    """Adversarial labels: gradient ascent of `value_loss` on labels kept in [0, 1], from `start`."""
    y = start
    for _ in range(n_steps):
        score = score_of(unary, y, coupling)[:, None]
        f1 = relaxed_f1(y, truth)[:, None]
        through_value = (torch.sigmoid(score) - f1) * score_gradient(unary, y, coupling)
        through_f1 = score * relaxed_f1_gradient(y, truth)
        y = (y + step_size * (through_value - through_f1)).clamp(0, 1)
    return y


def descend_energy(
    unary: Tensor, coupling: Coupling, n_steps: int, step_size: float, *, truth: Tensor | None = None, margin: float = 0
) -> Tensor:
    """Mirror descent of the score taken as an energy, on labels in (0, 1), from one half.

    Steps are taken on the labels' logits, so that labels never leave (0, 1). With `truth` and `margin`, inference
    is loss-augmented: it lowers E(x, y) - margin * (1 - F1(y, truth)).
    """
    B, b = coupling
    back = (B * b).T.contiguous()
    logits = torch.zeros_like(unary)
    y = torch.full_like(unary, 0.5)
    gradient = torch.empty_like(unary)
    for _ in range(n_steps):
        torch.addmm(unary, (y @ B).sigmoid_(), back, out=gradient)
        if truth is not None:
            gradient.add_(relaxed_f1_gradient(y, truth), alpha=margin)
        logits.sub_(gradient, alpha=step_size)
        torch.sigmoid(logits, out=y)
    return y


def structured_hinge(unary: Tensor, coupling: Coupling, y: Tensor, truth: Tensor, margin: float) -> Tensor:
    """max(0, E(x, truth) - E(x, y) + margin * (1 - F1(y, truth))) for every row."""
    gap = score_of(unary, truth, coupling) - score_of(unary, y, coupling)
    return F.relu(gap + margin * (1 - relaxed_f1(y, truth)))
