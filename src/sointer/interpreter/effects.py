"""Signed effects: how far each unit of a sample pushes an output away from what it is on average.

The first layer of an energy is additive over units, so a unit redrawn, or moved along a path, changes the layer's sum
by the difference of its own contributions, and only what lies behind that layer has to be computed again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer.data.labels import Quantiles
from sointer.data.outputs import Outputs
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import AtProjection, TrainableEnergy
from sointer.energy.sparse import Linear, product
from sointer.interpreter.elimination import slopes_along

N_POINTS = 64
"""On paths, at the least."""
MAX_NUMBERS = 2**22
"""Held at a time while units are redrawn."""


ORDINARY = 1e-9, 1e15
"""Numbers as large as these are computed as they are."""


class OutputUnits(nn.Module):
    """From means of encoded output columns to what users see: probabilities as they are, numbers by their quantiles.

    Numbers of unusual size are seen as multiples of a power of ten: squares of others leave single precision.
    """

    levels: Tensor
    values: Tensor
    is_number: Tensor
    unit: Tensor
    """(columns,) what numbers are multiples of, in double precision; 1 but for those of unusual size."""

    def __init__(self, n_columns: int, n_knots: int) -> None:
        super().__init__()
        self.register_buffer("levels", torch.zeros(n_columns, n_knots))
        self.register_buffer("values", torch.zeros(n_columns, n_knots))
        self.register_buffer("is_number", torch.zeros(n_columns, dtype=torch.bool))
        self.register_buffer("unit", torch.ones(n_columns, dtype=torch.float64))

    @classmethod
    def of(cls, outputs: Outputs, column_output: Tensor) -> OutputUnits:
        curves = [outputs.quantiles[output] for output in column_output.tolist()]
        made = cls(len(curves), max([2, *(len(one.values) for one in curves if one is not None)]))
        for column, curve in enumerate(curves):
            made.is_number[column] = curve is not None
            if curve is not None:
                missing, unit = made.levels.shape[1] - len(curve.values), unit_of(curve)
                values = torch.as_tensor(curve.values / unit)
                # Knots that are not needed lie beyond all levels, and change nothing.
                made.levels[column] = F.pad(torch.as_tensor(curve.levels), (0, missing), value=2.0)
                made.values[column] = F.pad(values, (0, missing), value=float(values[-1]))
                made.unit[column] = unit
        return made

    def forward(self, means: Tensor, columns: Tensor) -> Tensor:
        """The mean of each row's own column, as a multiple of its unit: (rows,)."""
        chosen = means.gather(1, columns.unsqueeze(1))
        if not bool(self.is_number.any()):
            return chosen.squeeze(1)
        levels, values = self.levels[columns], self.values[columns]
        high = torch.searchsorted(levels, chosen.detach().contiguous()).clamp(1, levels.shape[1] - 1)
        low_level, high_level = levels.gather(1, high - 1), levels.gather(1, high)
        low, rise = values.gather(1, high - 1), values.gather(1, high) - values.gather(1, high - 1)
        number = low + rise * (chosen - low_level) / (high_level - low_level).clamp_min(1e-9)
        return torch.where(self.is_number[columns], number.squeeze(1), chosen.squeeze(1))


def unit_of(curve: Quantiles) -> float:
    """The power of ten that numbers are seen as multiples of: 1 unless they are of unusual size."""
    largest, (least, most) = float(np.abs(curve.values).max()), ORDINARY
    return 1.0 if largest == 0 or least <= largest <= most else 10.0 ** math.floor(math.log10(largest))


def mean_outputs(outputs: Outputs, column_output: Tensor, codes: NDArray[Any], encoded: NDArray[np.float64]) -> Tensor:
    """The mean of every output column over samples, as a multiple of the unit of its output."""
    means = torch.as_tensor(encoded).mean(dim=0)
    for column, output in enumerate(column_output.tolist()):
        curve = outputs.quantiles[output]
        if curve is not None:
            means[column] = float(curve.decode(codes[:, output]).mean()) / unit_of(curve)
    return means


class PathMeans(NamedTuple):
    """Means over points on paths that lead from all references to each row."""

    gradient: Tensor
    """(rows, width) behind the first layer."""
    held: Tensor | None
    """(rows, units) what the references contribute by the gradients on their own paths, beyond what their mean does by
    the mean gradient; None is nothing."""


class GradientNetwork(nn.Module):
    """Predicts, in one pass, the means of gradients behind the first layer along paths from all references.

    Which unit of a sample has which value stays exact; what is learned is only how the output responds, which is
    smooth.
    """

    center: Tensor
    scale: Tensor
    mean: Tensor
    size: Tensor
    held_mean: Tensor
    held_size: Tensor

    def __init__(self, width: int, n_columns: int, hidden: int, n_units: int) -> None:
        super().__init__()
        self.width, self.n_columns, self.n_units = width, n_columns, n_units
        self.first, self.second = Linear(width, hidden), Linear(hidden, hidden)
        self.weight = nn.Parameter(torch.empty(n_columns, width, hidden).uniform_(-(hidden**-0.5), hidden**-0.5))
        self.held_weight = nn.Parameter(torch.zeros(n_columns, n_units, hidden))
        self.register_buffer("center", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.register_buffer("mean", torch.zeros(n_columns, width))
        self.register_buffer("size", torch.ones(n_columns))
        self.register_buffer("held_mean", torch.zeros(n_columns, n_units))
        self.register_buffer("held_size", torch.ones(n_columns))

    def trunk(self, projected: Tensor) -> Tensor:
        return F.silu(self.second(F.silu(self.first((projected - self.center) * self.scale))))

    def standardised(self, projected: Tensor) -> tuple[Tensor, Tensor]:
        """For all columns, gradient and held contributions less their means, in units of their size.

        (rows, columns, width) and (rows, columns, units).
        """
        trunk = self.trunk(projected)
        gradient, held = (product(trunk, weight.flatten(0, 1).T) for weight in (self.weight, self.held_weight))
        shape = len(trunk), self.n_columns
        return gradient.view(*shape, self.width), held.view(*shape, self.n_units)

    def forward(self, projected: Tensor, columns: Tensor) -> PathMeans:
        """Of each row's own column."""
        return self.behind(self.trunk(projected), None, columns)

    def behind(self, trunk: Tensor, sample: Tensor | None, columns: Tensor) -> PathMeans:
        """The same of rows that are each about one sample of the trunk: all in their order, if none are named."""
        distinct = columns.unique().tolist()
        if len(distinct) == 1:
            found = self._of_column(trunk, distinct[0])
            return found if sample is None else PathMeans(*(_rows(part, sample) for part in found))
        gradient, held = torch.empty(len(columns), self.width), torch.empty(len(columns), self.n_units)
        for column in distinct:
            rows = torch.nonzero(columns == column).squeeze(1)
            own = self._of_column(trunk, column)
            of_rows = rows if sample is None else sample[rows]
            gradient[rows] = own.gradient[of_rows]
            if own.held is not None:
                held[rows] = own.held[of_rows]
        return PathMeans(gradient, held if self.n_units else None)

    def _of_column(self, trunk: Tensor, column: int) -> PathMeans:
        # All samples take part, so that none is rounded otherwise than it would be alone.
        gradient = product(trunk, self.weight[column].T) * self.size[column] + self.mean[column]
        if not self.n_units:
            return PathMeans(gradient, None)
        held = product(trunk, self.held_weight[column].T) * self.held_size[column] + self.held_mean[column]
        return PathMeans(gradient, held)


def _rows(table: Tensor | None, sample: Tensor) -> Any:
    return None if table is None else table.index_select(0, sample)


class FirstLayer(NamedTuple):
    """What the effects on all outputs of samples share."""

    encoded: Tensor
    projected: Tensor
    trunk: Tensor | None
    """Where gradients are predicted: what the network makes of them."""


class Effects(nn.Module):
    """Signed effects of units on the outputs of an energy, as multiples of the unit of each output."""

    projections: Tensor
    encodings: Tensor
    """(references, encoded columns); or one row, the mean over them, if each reference is taken for their mean."""
    center: Tensor
    """(encoded columns,) the mean over all that the references stand for."""
    unit_of_encoded: Tensor
    base: Tensor

    def __init__(
        self,
        energy: TrainableEnergy,
        likelihood: Likelihood,
        units: OutputUnits,
        n_references: int,
        n_units: int,
        n_encodings: int | None = None,
    ) -> None:
        super().__init__()
        self.energy, self.likelihood, self.output_units, self.n_units = energy, likelihood, units, n_units
        self.network: GradientNetwork | None = None
        n_encoded = energy.encoding.n_encoded
        self.register_buffer("projections", torch.zeros(n_references, energy.projection_width))
        self.register_buffer("encodings", torch.zeros(n_references if n_encodings is None else n_encodings, n_encoded))
        self.register_buffer("center", torch.zeros(n_encoded))
        self.register_buffer("unit_of_encoded", torch.zeros(n_encoded, dtype=torch.long))
        self.register_buffer("base", torch.zeros(energy.space.n_columns))

    @torch.no_grad()
    def refer_to(self, references: Tensor, unit_of_column: Tensor, center: Tensor | None = None) -> None:
        """What everything is compared with: the mean over these rows, or over more, whose mean encoding is given."""
        encoding = self.energy.encoding
        self.projections.copy_(self.energy.project(references))
        self.encodings.copy_(encoding(references))
        self.center.copy_(self.encodings.mean(dim=0) if center is None else center)
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
            means = self.along_paths(projected, columns)
        else:
            means = self.network.behind(first.trunk, sample, columns)
        return self.of_means(means, encoded, columns)

    def of_means(self, means: PathMeans, encoded: Tensor, columns: Tensor) -> Tensor:
        """Effects (rows, units): what the units of rows contribute by the gradients, less what references do.

        Both, and not only the mean gradient times the way from the mean reference: an output that is switched on at
        some references responds on the way from these alone.
        """
        pulled = self.energy.pull_back(means.gradient, self.energy.space.column_output[columns])
        found = self._by_unit(pulled * (encoded - self.center))
        return found if means.held is None else found - means.held

    def along_paths(self, projected: Tensor, columns: Tensor, n_points: int | None = None) -> PathMeans:
        """Means of each row's own output column at so many points on paths from the references."""
        n_points = max(len(self.projections), N_POINTS) if n_points is None else n_points
        reference = torch.arange(n_points) % len(self.projections)
        many = columns.repeat(n_points)
        starts = self.projections[reference].unsqueeze(1)
        slopes = slopes_along(lambda points: self._output(points, many), starts, projected, n_points)
        if len(self.encodings) == 1:
            return PathMeans(slopes.mean(dim=0), None)
        outputs, mean = self.energy.space.column_output[columns], slopes.mean(dim=0)
        apart = self.encodings[reference] - self.encodings[reference].mean(dim=0)
        held = torch.zeros(len(projected), self.encodings.shape[1])
        for own, offset in zip(slopes, apart, strict=True):
            held += self.energy.pull_back(own - mean, outputs) * offset
        # A covariance, so that outputs that respond alike everywhere hold exactly nothing; over some of the references
        # it is corrected for these being few.
        n_references = len(self.projections)
        n_used = min(n_points, n_references)
        correction = (n_references - 1) * n_used / (n_references * max(n_used - 1, 1))
        return PathMeans(mean, self._by_unit(held * (correction / n_points)))

    def _by_unit(self, of_encoded: Tensor) -> Tensor:
        return torch.zeros(len(of_encoded), self.n_units).index_add_(1, self.unit_of_encoded, of_encoded)

    def expected(self, x: Tensor, columns: Tensor) -> Tensor:
        """What the energy expects of each row's own output column, as a multiple of its unit: (rows,)."""
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
    curves: Sequence[Quantiles | None] = (),
) -> Tensor:
    """Root mean square change of every output's probabilities when one unit is redrawn: (rows, units, outputs).

    Only the units listed are redrawn. The squared change of an output is half the sum over its labels, which for two
    labels is the squared change of either. Of outputs that have curves it is the rank of the number that changes.
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
        before = _probabilities(energy, likelihood, projected, curves)
        own = _contributions(energy, encoded, blocks)
        moved = projected[:, None, None] + (of_references.transpose(0, 1)[None] - own[:, :, None])
        after = _probabilities(energy, likelihood, moved.reshape(-1, width), curves)
        change = (after.view(len(batch), len(units), n_references, -1) - before[:, None, None]).square().mean(dim=2) / 2
        by_output = torch.zeros(len(batch), len(units), space.n_outputs).index_add_(2, space.label_output, change)
        parts.append(by_output.sqrt())
    return torch.cat(parts)


def _probabilities(
    energy: TrainableEnergy, likelihood: Likelihood, projected: Tensor, curves: Sequence[Quantiles | None]
) -> Tensor:
    """Of all labels (rows, labels); of numbers, their ranks and what is missing to one."""
    found = likelihood.log_marginals(AtProjection(energy), projected).exp()
    for output, curve in enumerate(curves):
        if curve is not None:
            first = int(energy.space.first_label[output])
            found[:, first + 1] = torch.as_tensor(curve.rank(found[:, first + 1].numpy()))
            found[:, first] = 1 - found[:, first + 1]
    return found


def _contributions(energy: TrainableEnergy, encoded: Tensor, blocks: list[Tensor]) -> Tensor:
    """What each unit adds to the first layer: (rows, units, width)."""
    weight = energy.projection_weight
    return torch.stack([encoded[:, block] @ weight[:, block].T for block in blocks], dim=1)
