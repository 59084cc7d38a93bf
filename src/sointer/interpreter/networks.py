"""Interpreter networks: from an input and a target to one score per feature."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import TrainableEnergy
from sointer.energy.space import InputScaling
from sointer.energy.sparse import Inputs, Linear
from sointer.interpreter.elimination import eliminate


class PaperInterpreter(nn.Module):
    """The paper's W: for every target a network of its own, fully connected with ReLU, last layer linear."""

    def __init__(self, n_columns: int, n_units: int, n_outputs: int, hidden: tuple[int, ...] = (100, 100, 100)) -> None:
        super().__init__()
        self.networks = nn.ModuleList(multilayer(n_columns, hidden, n_units) for _ in range(n_outputs))

    def network_for(self, target: int) -> nn.Module:
        return self.networks[target]

    def scores_for(self, x: Tensor, target: int) -> Tensor:
        scores: Tensor = self.network_for(target)(x)
        return scores

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        # Each network sees all rows, so that a row's scores cannot depend on which rows share its target.
        present = targets.unique()
        of_each = torch.stack([self.scores_for(x, int(target)) for target in present])
        return of_each[torch.searchsorted(present, targets), torch.arange(len(x))]


class EliminationInterpreter(nn.Module):
    """Of rows that are mostly zero: the energy's evidence, made anew on ever smaller parts of a row."""

    references: Tensor
    unit_of_column: Tensor

    def __init__(
        self,
        energy: TrainableEnergy,
        likelihood: Likelihood,
        references: Tensor,
        unit_of_column: Tensor,
        n_units: int,
        *,
        n_path_steps: int = 4,
    ) -> None:
        super().__init__()
        self.energy, self.likelihood = energy, likelihood
        self.n_units, self.n_path_steps = n_units, n_path_steps
        self.register_buffer("references", references)
        self.register_buffer("unit_of_column", unit_of_column)

    @property
    def scaling(self) -> InputScaling:
        """How inputs enter the energy."""
        encoding = self.energy.encoding
        assert isinstance(encoding, InputScaling)
        return encoding

    def forward(self, x: Inputs, targets: Tensor, labels: Tensor) -> Tensor:
        """Evidence of the units of rows for the labels of their targets: (rows, units)."""
        return eliminate(self, x, targets, labels)


def multilayer(n_in: int, hidden: tuple[int, ...], n_out: int) -> nn.Sequential:
    """Fully connected layers with ReLU between them."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [Linear(n_in, width), nn.ReLU()]
        n_in = width
    return nn.Sequential(*layers, Linear(n_in, n_out))


def gumbel_noise(u: Tensor) -> Tensor:
    """Eq. 13: g = -log(-log(u)) for u uniform on (0, 1)."""
    tiny = torch.finfo(u.dtype).tiny
    return -torch.log(-torch.log(u.clamp(min=tiny, max=1 - 1e-7)))


def gumbel_softmax(log_w: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """Eq. 14 as it must read: softmax((log w_i + g_i) / tau), w a distribution over features."""
    return torch.softmax((log_w + noise) / temperature, dim=-1)


def k_hot(draws: Tensor) -> Tensor:
    """Eq. 15: the element-wise maximum of the draws, (draws, rows, features) -> (rows, features)."""
    return draws.amax(dim=0)


def gumbel_k_hot(logits: Tensor, k: int, temperature: float, generator: torch.Generator) -> Tensor:
    """Eqs. 13 to 15: k relaxed draws from softmax(logits), combined by maximum."""
    u = torch.rand((k, *logits.shape), generator=generator)
    return k_hot(gumbel_softmax(torch.log_softmax(logits, dim=-1), gumbel_noise(u), temperature))


def hard_top_k(scores: Tensor, k: int, allowed: Tensor | None = None, sizes: Tensor | None = None) -> Tensor:
    """Boolean mask of the k largest scores of each row, among the allowed features only; `sizes` keeps fewer."""
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    best = scores.topk(min(k, scores.shape[1]), dim=1).indices
    kept = torch.ones_like(best, dtype=torch.bool)
    if sizes is not None:
        kept = torch.arange(best.shape[1]) < sizes.unsqueeze(1)
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, best, kept)
    return chosen if allowed is None else chosen & allowed
