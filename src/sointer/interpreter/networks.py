"""Interpreter networks: from an input and a target to one score per feature."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sointer.energy.encoding import InputScaling
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import TrainableEnergy
from sointer.energy.products import Linear
from sointer.energy.sparse import Inputs
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
