"""The two networks of L2X: one selects features for a target, one tells its value from those alone."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer._support.torch_state import seeded
from sointer.base import Subject
from sointer.data.outputs import Outputs
from sointer.masking.removal import FixedRemoval
from sointer.training.context import is_mostly_zero

NEVER = -1e9


class Networks(nn.Module):
    """The selector, which sees the row and the target, and the predictor, which sees the masked row."""

    center: Tensor
    spread: Tensor
    unit_of_column: Tensor
    n_classes: Tensor

    def __init__(self, n_columns: int, unit_of_column: Tensor, n_units: int, n_classes: Tensor, hidden: int) -> None:
        super().__init__()
        n_outputs, width = len(n_classes), int(n_classes.max())
        self.register_buffer("unit_of_column", unit_of_column)
        self.register_buffer("n_classes", n_classes)
        self.register_buffer("center", torch.zeros(n_columns, dtype=torch.float64))
        self.register_buffer("spread", torch.ones(n_columns, dtype=torch.float64))
        self.target_seen = nn.Embedding(n_outputs, hidden)
        self.selector_first = nn.Linear(n_columns, hidden)
        self.selector_rest = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, n_units))
        self.target_told = nn.Embedding(n_outputs, 2 * hidden)
        self.predictor_first = nn.Linear(n_columns, 2 * hidden)
        self.predictor_rest = nn.Sequential(nn.ReLU(), nn.Linear(2 * hidden, 2 * hidden), nn.ReLU())
        self.heads = nn.Embedding(n_outputs, 2 * hidden * width)
        self.biases = nn.Embedding(n_outputs, width)
        nn.init.normal_(self.heads.weight, std=(2 * hidden) ** -0.5)
        nn.init.zeros_(self.biases.weight)

    @classmethod
    def build(cls, subject: Subject, outputs: Outputs, hidden: int, seed: int) -> Networks:
        with seeded(seed):
            networks = cls(
                subject.input_format.n_columns,
                torch.from_numpy(subject.groups.unit_of_column),
                subject.groups.n_units,
                torch.tensor(outputs.n_classes),
                hidden,
            )
        center, spread = _scale_of(subject)
        networks.center.copy_(torch.from_numpy(center))
        networks.spread.copy_(torch.from_numpy(spread))
        return networks

    def scale(self, rows: NDArray[np.float64]) -> Tensor:
        """Encoded rows as the networks see them: zero is what an absent feature looks like."""
        return ((torch.from_numpy(rows) - self.center) / self.spread).float()

    def select(self, x: Tensor, targets: Tensor) -> Tensor:
        scores: Tensor = self.selector_rest(self.selector_first(x) + self.target_seen(targets))
        return scores

    def predict(self, x: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
        """From rows with a mask over units to scores of the target's classes (rows, classes); numbers have two."""
        seen = x * mask[:, self.unit_of_column]
        inner = self.predictor_rest(self.predictor_first(seen) + self.target_told(targets))
        heads = self.heads(targets).view(len(x), inner.shape[1], -1)
        scores: Tensor = torch.einsum("rh,rhc->rc", inner, heads) + self.biases(targets)
        return scores.masked_fill(torch.arange(scores.shape[1]) >= self.n_classes[targets].unsqueeze(1), NEVER)


def answer_loss(scores: Tensor, truth: Tensor) -> Tensor:
    """Cross-entropy of labels, or of the codes of graded outputs, which are the probability of their second label."""
    if not truth.dtype.is_floating_point:
        return nn.functional.cross_entropy(scores, truth)
    # Beside graded outputs, class codes are floating-point numbers too.
    low = truth.floor().long()
    wanted = torch.zeros_like(scores).scatter_add_(1, low.unsqueeze(1), (1 - (truth - low)).unsqueeze(1))
    high = (low + 1).clamp_max(scores.shape[1] - 1)
    return nn.functional.cross_entropy(scores, wanted.scatter_add_(1, high.unsqueeze(1), (truth - low).unsqueeze(1)))


def _scale_of(subject: Subject) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What stands for an absent value in every column, and by how much values stray from their mean."""
    n_columns = subject.input_format.n_columns
    mostly_zero = is_mostly_zero(subject.data)
    if isinstance(subject.removal, FixedRemoval):
        center = subject.removal.reference
    elif mostly_zero:
        center = np.zeros(n_columns)
    else:
        center = subject.data.mean(axis=0)
    spread = np.ones(n_columns) if mostly_zero else subject.data.std(axis=0)
    return np.asarray(center, dtype=np.float64), np.where(spread > 0, spread, 1.0)
