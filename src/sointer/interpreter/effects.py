"""Signed effects: how far each unit of a sample pushes an output away from what it is on average.

The first layer of an energy is additive over units, so a unit redrawn, or moved along a path, changes the layer's sum
by the difference of its own contributions, and only what lies behind that layer has to be computed again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer.data.outputs import Outputs
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import AtProjection, TrainableEnergy
from sointer.energy.sparse import Linear, product
from sointer.interpreter.elimination import slopes_along

N_POINTS = 64
"""On paths, at the least."""
MAX_NUMBERS = 2**22
"""Held at a time while units are redrawn."""


class OutputUnits(nn.Module):
    """From means of encoded output columns to what users see: probabilities as they are, numbers by their quantiles."""

    levels: Tensor
    values: Tensor
    is_number: Tensor

    def __init__(self, n_columns: int, n_knots: int) -> None:
        super().__init__()
        self.register_buffer("levels", torch.zeros(n_columns, n_knots))
        self.register_buffer("values", torch.zeros(n_columns, n_knots))
        self.register_buffer("is_number", torch.zeros(n_columns, dtype=torch.bool))

    @classmethod
    def of(cls, outputs: Outputs, column_output: Tensor) -> OutputUnits:
        curves = [outputs.quantiles[output] for output in column_output.tolist()]
        made = cls(len(curves), max([2, *(len(one.values) for one in curves if one is not None)]))
        for column, curve in enumerate(curves):
            made.is_number[column] = curve is not None
            if curve is not None:
                missing = made.levels.shape[1] - len(curve.values)
                # Knots that are not needed lie beyond all levels, and change nothing.
                made.levels[column] = F.pad(torch.as_tensor(curve.levels), (0, missing), value=2.0)
                made.values[column] = F.pad(torch.as_tensor(curve.values), (0, missing), value=float(curve.values[-1]))
        return made

    def forward(self, means: Tensor, columns: Tensor) -> Tensor:
        """The mean of each row's own column, in the output's unit: (rows,)."""
        chosen = means.gather(1, columns.unsqueeze(1))
        if not bool(self.is_number.any()):
            return chosen.squeeze(1)
        levels, values = self.levels[columns], self.values[columns]
        high = torch.searchsorted(levels, chosen.detach().contiguous()).clamp(1, levels.shape[1] - 1)
        low_level, high_level = levels.gather(1, high - 1), levels.gather(1, high)
        low, rise = values.gather(1, high - 1), values.gather(1, high) - values.gather(1, high - 1)
        number = low + rise * (chosen - low_level) / (high_level - low_level).clamp_min(1e-9)
        return torch.where(self.is_number[columns], number.squeeze(1), chosen.squeeze(1))


def mean_outputs(outputs: Outputs, column_output: Tensor, codes: NDArray[Any], encoded: NDArray[np.float64]) -> Tensor:
    """The mean of every output column over samples, in the unit of its output."""
    means = torch.as_tensor(encoded).mean(dim=0)
    for column, output in enumerate(column_output.tolist()):
        curve = outputs.quantiles[output]
        if curve is not None:
            means[column] = float(curve.decode(codes[:, output]).mean())
    return means


class GradientNetwork(nn.Module):
    """Predicts, in one pass, the mean gradient behind the first layer along paths from all references.

    Which unit has which value stays exact; what is learned is only how the output responds, which is smooth.
    """

    center: Tensor
    scale: Tensor
    mean: Tensor
    size: Tensor

    def __init__(self, width: int, n_columns: int, hidden: int) -> None:
        super().__init__()
        self.width, self.n_columns = width, n_columns
        self.first, self.second = Linear(width, hidden), Linear(hidden, hidden)
        self.weight = nn.Parameter(torch.empty(n_columns, width, hidden).uniform_(-(hidden**-0.5), hidden**-0.5))
        self.register_buffer("center", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.register_buffer("mean", torch.zeros(n_columns, width))
        self.register_buffer("size", torch.ones(n_columns))

    def trunk(self, projected: Tensor) -> Tensor:
        return F.silu(self.second(F.silu(self.first((projected - self.center) * self.scale))))

    def standardised(self, projected: Tensor) -> Tensor:
        """For all columns, the gradient less its mean, in units of its size: (rows, columns, width)."""
        return product(self.trunk(projected), self.weight.flatten(0, 1).T).view(-1, self.n_columns, self.width)

    def forward(self, projected: Tensor, columns: Tensor) -> Tensor:
        """The mean gradient of each row's own column: (rows, width)."""
        return self.behind(self.trunk(projected), None, columns)

    def behind(self, trunk: Tensor, sample: Tensor | None, columns: Tensor) -> Tensor:
        """The same of rows that are each about one sample of the trunk: all in their order, if none are named."""
        distinct = columns.unique().tolist()
        if len(distinct) == 1:
            of_samples = self._of_column(trunk, distinct[0])
            return of_samples if sample is None else of_samples.index_select(0, sample)
        found = torch.empty(len(columns), self.width)
        for column in distinct:
            rows = torch.nonzero(columns == column).squeeze(1)
            found[rows] = self._of_column(trunk, column)[rows if sample is None else sample[rows]]
        return found

    def _of_column(self, trunk: Tensor, column: int) -> Tensor:
        # All samples take part, so that none is rounded otherwise than it would be alone.
        return product(trunk, self.weight[column].T) * self.size[column] + self.mean[column]


class FirstLayer(NamedTuple):
    """What the effects on all outputs of samples share."""

    encoded: Tensor
    projected: Tensor
    trunk: Tensor | None
    """Where gradients are predicted: what the network makes of them."""


class Effects(nn.Module):
    """Signed effects of units on the outputs of an energy, in the unit of each output."""

    projections: Tensor
    mean_encoding: Tensor
    unit_of_encoded: Tensor
    base: Tensor

    def __init__(
        self, energy: TrainableEnergy, likelihood: Likelihood, units: OutputUnits, n_references: int, n_units: int
    ) -> None:
        super().__init__()
        self.energy, self.likelihood, self.output_units, self.n_units = energy, likelihood, units, n_units
        self.network: GradientNetwork | None = None
        n_encoded = energy.encoding.n_encoded
        self.register_buffer("projections", torch.zeros(n_references, energy.projection_width))
        self.register_buffer("mean_encoding", torch.zeros(n_encoded))
        self.register_buffer("unit_of_encoded", torch.zeros(n_encoded, dtype=torch.long))
        self.register_buffer("base", torch.zeros(energy.space.n_columns))

    @torch.no_grad()
    def refer_to(self, references: Tensor, unit_of_column: Tensor) -> None:
        """What everything is compared with: the mean over these rows."""
        encoding = self.energy.encoding
        self.projections.copy_(self.energy.project(references))
        self.mean_encoding.copy_(encoding(references).mean(dim=0))
        self.unit_of_encoded.copy_(unit_of_column[encoding.column])
        for column in range(len(self.base)):
            columns = torch.full((len(references),), column)
            self.base[column] = self._output(self.projections, columns).mean()

    def forward(self, x: Tensor, columns: Tensor) -> Tensor:
        """Effects of all units on each row's own output column: (rows, units)."""
        return self.behind(self.first_layer(x), None, columns)

    def first_layer(self, x: Tensor) -> FirstLayer:
        """One pass for all outputs of these samples."""
        encoded = self.energy.encoding(x)
        projected = self.energy.project_encoded(encoded)
        return FirstLayer(encoded, projected, None if self.network is None else self.network.trunk(projected))

    def behind(self, first: FirstLayer, sample: Tensor | None, columns: Tensor) -> Tensor:
        """Effects on the column of each row, which is about one of these samples, else all in order: (rows, units)."""
        encoded = first.encoded if sample is None else first.encoded.index_select(0, sample)
        if self.network is None or first.trunk is None:
            projected = first.projected if sample is None else first.projected[sample]
            gradient = self.mean_gradient(projected, columns)
        else:
            gradient = self.network.behind(first.trunk, sample, columns)
        return self.of_gradient(gradient, encoded, columns)

    def of_gradient(self, gradient: Tensor, encoded: Tensor, columns: Tensor) -> Tensor:
        """Effects (rows, units) by gradients behind the first layer."""
        outputs = self.energy.space.column_output[columns]
        products = self.energy.pull_back(gradient, outputs) * (encoded - self.mean_encoding)
        return torch.zeros(len(products), self.n_units).index_add_(1, self.unit_of_encoded, products)

    def mean_gradient(self, projected: Tensor, columns: Tensor, n_points: int | None = None) -> Tensor:
        """The gradient of each row's own output column, averaged along paths from the references: (rows, width)."""
        n_points = max(len(self.projections), N_POINTS) if n_points is None else n_points
        starts = self.projections[torch.arange(n_points) % len(self.projections)].unsqueeze(1)
        many = columns.repeat(n_points)
        return slopes_along(lambda points: self._output(points, many), starts, projected, n_points).mean(dim=0)

    def expected(self, x: Tensor, columns: Tensor) -> Tensor:
        """What the energy expects of each row's own output column, in the output's unit: (rows,)."""
        return self._output(self.energy.project(x), columns)

    def _output(self, projected: Tensor, columns: Tensor) -> Tensor:
        value: Tensor = self.output_units(self.likelihood.means(AtProjection(self.energy), projected), columns)
        return value


@torch.no_grad()
def redraw_effects(
    energy: TrainableEnergy,
    likelihood: Likelihood,
    x: Tensor,
    references: Tensor,
    unit_of_column: Tensor,
    units: Tensor,
) -> Tensor:
    """Root mean square change of every output's probabilities when one unit is redrawn: (rows, units, outputs).

    Only the units listed are redrawn. The squared change of an output is half the sum over its labels, which for two
    labels is the squared change of either.
    """
    owner = unit_of_column[energy.encoding.column]
    blocks = [torch.nonzero(owner == unit).squeeze(1) for unit in units.tolist()]
    of_references = _contributions(energy, energy.encoding(references), blocks)  # (references, units, width)
    space, width, n_references = energy.space, energy.projection_width, len(references)
    n_rows = max(1, MAX_NUMBERS // (len(units) * n_references * max(width, space.n_labels)))
    parts = []
    for batch in x.split(n_rows):
        encoded = energy.encoding(batch)
        projected = energy.project_encoded(encoded)
        before = likelihood.log_marginals(AtProjection(energy), projected).exp()
        own = _contributions(energy, encoded, blocks)
        moved = projected[:, None, None] + (of_references.transpose(0, 1)[None] - own[:, :, None])
        after = likelihood.log_marginals(AtProjection(energy), moved.reshape(-1, width)).exp()
        change = (after.view(len(batch), len(units), n_references, -1) - before[:, None, None]).square().mean(dim=2) / 2
        by_output = torch.zeros(len(batch), len(units), space.n_outputs).index_add_(2, space.label_output, change)
        parts.append(by_output.sqrt())
    return torch.cat(parts)


def _contributions(energy: TrainableEnergy, encoded: Tensor, blocks: list[Tensor]) -> Tensor:
    """What each unit adds to the first layer: (rows, units, width)."""
    weight = energy.projection_weight
    return torch.stack([encoded[:, block] @ weight[:, block].T for block in blocks], dim=1)
