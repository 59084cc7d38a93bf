"""Interpreter networks: from an input and a target to one score per feature."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import TrainableEnergy
from sointer.energy.products import Linear
from sointer.energy.sparse import Inputs, SparseRows
from sointer.interpreter.elimination import eliminate
from sointer.interpreter.saliency import Saliency, target_saliency


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


@dataclass(frozen=True)
class Blend:
    """How a feature's score is made of its own saliency here and its relevance over all the data.

    `signed` = 1 counts saliency against the prediction as negative, 0 takes its size;
    `shrinkage` adds that many times the feature's average size, so that where the energy is
    undecided about a row, what is known of all rows decides.
    """

    signed: float | Tensor
    shrinkage: float | Tensor

    def __call__(self, saliency: Saliency, relevance: Tensor) -> Tensor:
        own = self.signed * saliency.signed + (1.0 - self.signed) * saliency.size
        return own + self.shrinkage * relevance


class SaliencyInterpreter(nn.Module):
    """One interpreter for all targets: the energy's saliency, shrunk to the global relevance, plus a residual."""

    references: Tensor
    unit_of_column: Tensor
    relevance: Tensor
    signed: Tensor
    shrinkage: Tensor
    residual_share: Tensor

    def __init__(
        self,
        energy: TrainableEnergy,
        likelihood: Likelihood,
        references: Tensor,
        unit_of_column: Tensor,
        n_units: int,
        *,
        n_path_steps: int = 16,
        eliminates: bool = False,
    ) -> None:
        super().__init__()
        self.eliminates = eliminates
        self.energy = energy
        self.likelihood = likelihood
        self.n_path_steps = n_path_steps
        self.residual: ResidualNetwork | None = None
        self.register_buffer("references", references)
        self.register_buffer("unit_of_column", unit_of_column)
        self.register_buffer("relevance", torch.zeros(energy.space.n_outputs, n_units))
        # How each output's scores are blended; see Blend.
        self.register_buffer("signed", torch.zeros(energy.space.n_outputs))
        self.register_buffer("residual_share", torch.zeros(energy.space.n_outputs))
        self.register_buffer("shrinkage", torch.full((energy.space.n_outputs,), 3.0))

    @property
    def signed_only(self) -> bool:
        """Whether no output's scores need the sizes of evidence."""
        return bool((self.signed == 1.0).all())

    @property
    def numbers_per_row(self) -> int:
        """How many numbers scoring a row takes at a time: hidden units, or columns, at every step of a path."""
        hidden = sum(len(weight) for weight in self.energy.input_weights)
        n_references, n_columns = self.references.shape
        if self.signed_only and n_references == 1:
            return max(self.n_path_steps * hidden, n_columns)
        return self.n_path_steps * max(hidden, n_columns)

    def saliency(
        self,
        x: Tensor,
        targets: Tensor,
        values: Tensor,
        *,
        n_steps: int | None = None,
        first_reference: int = 0,
        signed_only: bool = False,
    ) -> Saliency:
        """Evidence of every unit for the target's value: (rows, units)."""
        columns = target_saliency(
            self.energy,
            self.likelihood,
            x,
            targets,
            values,
            self.references.roll(-first_reference, 0) if first_reference else self.references,
            self.n_path_steps if n_steps is None else n_steps,
            signed_only=signed_only,
        )
        return columns.of_units(self.unit_of_column, self.relevance.shape[1])

    def predicted_values(self, x: Inputs, targets: Tensor) -> Tensor:
        """What the energy expects the black box to say about each row's target."""
        with torch.no_grad():
            return self.likelihood.predict(self.energy, x).gather(1, targets.unsqueeze(1)).squeeze(1)

    def prior(self, x: Tensor, targets: Tensor, values: Tensor | None = None, *, n_steps: int | None = None) -> Tensor:
        """Scores before the residual, from paths of so many steps: (rows, units)."""
        values = self.predicted_values(x, targets) if values is None else values
        signed = self.signed[targets].unsqueeze(1)
        blend = Blend(signed, self.shrinkage[targets].unsqueeze(1))
        saliency = self.saliency(x, targets, values, n_steps=n_steps, signed_only=self.signed_only)
        return blend(saliency, self.relevance[targets])

    def forward(self, x: Inputs, targets: Tensor, values: Tensor | None = None) -> Tensor:
        """Scores of the units of rows: (rows, units). Only an interpreter that eliminates takes sparse ones."""
        values = self.predicted_values(x, targets) if values is None else values
        if self.eliminates:
            return self.with_residual(eliminate(self, x, targets, values), x, targets)
        assert isinstance(x, Tensor)
        return self.with_residual(self.prior(x, targets, values), x, targets)

    def with_residual(self, prior: Tensor, x: Inputs, targets: Tensor) -> Tensor:
        """Scores with what was learned on top of them, if anything was."""
        if self.residual is None:
            return prior
        x = x.dense() if isinstance(x, SparseRows) else x
        share = self.residual_share[targets].unsqueeze(1)
        shift: Tensor = share * row_scale(prior) * self.residual(x, targets)
        return prior + shift


class ResidualNetwork(nn.Module):
    """What the interpreter learns on top of saliency; starts at exactly zero."""

    def __init__(
        self, scaling: nn.Module, n_columns: int, n_outputs: int, n_units: int, hidden: tuple[int, ...]
    ) -> None:
        super().__init__()
        # The energy owns the input scaling; holding it in a list keeps it out of this module's state.
        self._scaling = [scaling]
        self.embedding = nn.Embedding(n_outputs, hidden[0])
        self.first = Linear(n_columns, hidden[0])
        self.rest = multilayer(hidden[0], hidden[1:], n_units)
        last = self.rest[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        scaled = self._scaling[0](x)
        result: Tensor = self.rest(torch.relu(self.first(scaled) + self.embedding(targets)))
        return result


def row_scale(prior: Tensor) -> Tensor:
    """The size of each row's largest score: the unit in which residuals are measured."""
    return prior.abs().amax(dim=1, keepdim=True).clamp_min(1e-12)


def multilayer(n_in: int, hidden: tuple[int, ...], n_out: int) -> nn.Sequential:
    """Fully connected layers with ReLU between them."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [Linear(n_in, width), nn.ReLU()]
        n_in = width
    return nn.Sequential(*layers, Linear(n_in, n_out))
