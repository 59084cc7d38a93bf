"""Energy networks for vector inputs: how well an input and an output go together, and how the settings shape them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sointer._support.torch_state import seeded
from sointer.config import EnergyConfig
from sointer.data.images import ImageShape
from sointer.energy.image import ImageEnergy
from sointer.energy.paper import PaperImageEnergy, paper_image_energy
from sointer.energy.space import Encoding, InputScaling, OutputSpace, PiecewiseLinear
from sointer.energy.sparse import Inputs, Linear, SparseRows, dense_linear, product

PULLED_ROWS = 32
Activation = Literal["silu", "softplus"]


def energy_of(unary: Tensor, y: Tensor, b: Tensor, projected: Tensor) -> Tensor:
    """Eq. 17-3: sum_i y_i a_i' F(x) + b' softplus(B y), with `unary` = a_i' F(x), `projected` = B y."""
    return (unary * y).sum(dim=-1) + F.softplus(projected) @ b


class Coupled(Protocol):
    """What can be read off an energy without an input: which outputs there are, and what couples them."""

    space: OutputSpace

    @property
    def coupling(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """B, its offset and b of eq. 17-3; None where outputs are not coupled, or not in that form."""


class Energy(Coupled, Protocol):
    """What inference and training need of an energy: a part per output, and a part that couples outputs."""

    def unary(self, x: Inputs) -> Tensor:
        """a_i' F(x) for every encoded output column: (rows, columns)."""


class LayeredEnergy(Energy, Protocol):
    """What effects and elimination need besides: F in two parts, the first of them linear in encoded inputs."""

    def project(self, x: Inputs) -> Tensor:
        """The first layer of F before its activation: (rows, width)."""

    def unary_of(self, projected: Tensor) -> Tensor:
        """The rest of F, and a: unary(x) = unary_of(project(x))."""

    def pull_back(self, gradient: Tensor, targets: Tensor) -> Tensor:
        """From gradients in project(x) of something said of each row's target to gradients in encoded columns."""

    def push(self, difference: SparseRows) -> Tensor:
        """By how much project(x) differs where encoded columns differ by so much: (rows, width)."""


class AtProjection:
    """An energy seen from behind its first layer: what was project(x) is now the input."""

    def __init__(self, energy: LayeredEnergy) -> None:
        self.space, self.coupling, self._energy = energy.space, energy.coupling, energy

    def unary(self, x: Inputs) -> Tensor:
        assert isinstance(x, Tensor)
        return self._energy.unary_of(x)


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "softplus": F.softplus}


class VectorEnergy(nn.Module):
    """Eq. 17-3: E(x, y) = sum_i y_i a_i' F(x) + b' softplus(B y), F fully connected.

    `encoding` is how x enters; a number of input columns gives them a scale only. The paper's F has
    softplus and no output offset.
    """

    def __init__(
        self,
        encoding: int | Encoding,
        space: OutputSpace,
        *,
        hidden: tuple[int, ...] = (150, 150),
        coupling_units: int = 64,
        coupling_spread: float | None = 1.0,
        coupling_offset: bool = True,
        activation: Activation = "softplus",
        output_offset: bool = False,
    ) -> None:
        super().__init__()
        self.space = space
        self.encoding = InputScaling(encoding) if isinstance(encoding, int) else encoding
        self.activation: Callable[[Tensor], Tensor] = ACTIVATIONS[activation]
        widths = [self.encoding.n_encoded, *hidden]
        self.layers = nn.ModuleList(Linear(a, b) for a, b in pairwise(widths))
        # Column by column in memory, as products with sparse rows want it.
        self.first.weight.data = self.first.weight.data.T.contiguous().T
        self.a = Linear(widths[-1], space.n_columns, bias=output_offset)
        self.B = nn.Linear(space.n_columns, coupling_units, bias=coupling_offset)
        self.b = nn.Parameter(torch.randn(coupling_units) * 0.1)
        if coupling_spread is not None:
            # Wide random directions cover the corners of the output cube, so that b alone can learn
            # relations such as "exclusive or" quickly; narrow ones leave softplus almost linear.
            nn.init.normal_(self.B.weight, std=coupling_spread)
            if coupling_offset:
                nn.init.normal_(self.B.bias, std=coupling_spread)
            nn.init.zeros_(self.b)

    @property
    def first(self) -> nn.Linear:
        layer = self.layers[0]
        assert isinstance(layer, nn.Linear)
        return layer

    def project(self, x: Inputs) -> Tensor:
        return self.encoding.then_linear(x, self.first.weight, self.first.bias)

    def project_encoded(self, encoded: Tensor) -> Tensor:
        return dense_linear(encoded, self.first.weight, self.first.bias)

    @property
    def projection_weight(self) -> Tensor:
        """(width, encoded columns)."""
        return self.first.weight

    @property
    def projection_width(self) -> int:
        return len(self.first.weight)

    def unary_of(self, projected: Tensor) -> Tensor:
        features = self.activation(projected)
        for layer in self.layers[1:]:
            features = self.activation(layer(features))
        result: Tensor = self.a(features)
        return result

    def pull_back(self, gradient: Tensor, targets: Tensor) -> Tensor:
        return product(gradient, self.first.weight)

    def push(self, difference: SparseRows) -> Tensor:
        return difference.times(self.first.weight.T)

    def unary(self, x: Inputs) -> Tensor:
        return self.unary_of(self.project(x))

    @property
    def coupling(self) -> tuple[Tensor, Tensor, Tensor]:
        offset = self.B.bias if self.B.bias is not None else torch.zeros_like(self.b)
        return self.B.weight, offset, self.b

    def forward(self, x: Inputs, y: Tensor) -> Tensor:
        return energy_of(self.unary(x), y, self.b, self.B(y))

    @property
    def input_weights(self) -> list[Tensor]:
        """First-layer weights, inputs last: what input sparsity shrinks."""
        return [self.first.weight]


class SideBySideEnergies(nn.Module):
    """One whole energy for each target, each seeing that target alone (SOInter-1 as published)."""

    def __init__(self, space: OutputSpace, of_target: Mapping[int, VectorEnergy | PaperImageEnergy]) -> None:
        super().__init__()
        self.space = space
        self.of_target = nn.ModuleDict({str(target): energy for target, energy in of_target.items()})

    def unary(self, x: Inputs) -> Tensor:
        unary = torch.zeros(len(x), self.space.n_columns)
        for target, energy in self.of_target.items():
            assert isinstance(energy, VectorEnergy | PaperImageEnergy)
            columns = torch.nonzero(self.space.column_output == int(target)).squeeze(1)
            n_classes = self.space.n_classes[int(target)]
            of_class = [energy(x, energy.space.encode(torch.full((len(x), 1), c))) for c in range(n_classes)]
            table = torch.stack(of_class, dim=1)
            unary[:, columns] = table[:, 1:] - table[:, :1] if n_classes == 2 else table
        return unary

    @property
    def coupling(self) -> None:
        return None

    def forward(self, x: Inputs, y: Tensor) -> Tensor:
        return (self.unary(x) * y).sum(dim=-1)


class SeparateEnergy(nn.Module):
    """SOInter-1: every output has an F of its own and is coupled to no other output.

    Nothing is shared, so that no output can help another: the networks of all outputs are only
    stacked into one tensor to be evaluated together.
    """

    def __init__(
        self,
        encoding: int | Encoding,
        space: OutputSpace,
        *,
        hidden: tuple[int, ...] = (150, 150),
        activation: Activation = "softplus",
        output_offset: bool = False,
    ) -> None:
        super().__init__()
        self.space = space
        self.encoding = InputScaling(encoding) if isinstance(encoding, int) else encoding
        self.activation: Callable[[Tensor], Tensor] = ACTIVATIONS[activation]
        widths = [self.encoding.n_encoded, *hidden]
        n_outputs = space.n_outputs
        self.weights = nn.ParameterList()
        self.offsets = nn.ParameterList()
        for fan_in, fan_out in pairwise(widths):
            bound = fan_in**-0.5
            self.weights.append(nn.Parameter(torch.empty(n_outputs, fan_out, fan_in).uniform_(-bound, bound)))
            self.offsets.append(nn.Parameter(torch.empty(n_outputs, 1, fan_out).uniform_(-bound, bound)))
        bound = widths[-1] ** -0.5
        self.a = nn.Parameter(torch.empty(space.n_columns, widths[-1]).uniform_(-bound, bound))
        self.output_offset: nn.Parameter | None = nn.Parameter(torch.zeros(space.n_columns)) if output_offset else None

    def project(self, x: Inputs) -> Tensor:
        return self.encoding.then_linear(x, self.projection_weight, self.offsets[0].flatten())

    def project_encoded(self, encoded: Tensor) -> Tensor:
        return dense_linear(encoded, self.projection_weight, self.offsets[0].flatten())

    @property
    def projection_weight(self) -> Tensor:
        """(outputs x width, encoded columns)."""
        return torch.flatten(self.weights[0], 0, 1)

    @property
    def projection_width(self) -> int:
        return len(self.projection_weight)

    def unary_of(self, projected: Tensor) -> Tensor:
        n_outputs, width, _ = self.weights[0].shape
        features = self.activation(projected).view(-1, n_outputs, width).transpose(0, 1)
        for weight, offset in zip(self.weights[1:], self.offsets[1:], strict=True):
            features = self.activation(features @ weight.transpose(1, 2) + offset)
        if self.space.n_columns != self.space.n_outputs:
            features = features[self.space.column_output]  # (columns, rows, width)
        unary = torch.bmm(features, self.a.unsqueeze(2)).squeeze(2).T
        return unary if self.output_offset is None else torch.add(unary, self.output_offset)

    def pull_back(self, gradient: Tensor, targets: Tensor) -> Tensor:
        # What is said of a target depends on that target's own network only.
        weights = self.weights[0]
        blocks = gradient.view(len(gradient), *weights.shape[:2])
        result = torch.empty(len(gradient), weights.shape[2])
        for target in targets.unique():
            for rows in torch.nonzero(targets == target).squeeze(1).split(PULLED_ROWS):
                # Always as many rows, so that a row's gradient cannot depend on how many others share its target.
                padded = torch.zeros(PULLED_ROWS, blocks.shape[2])
                padded[: len(rows)] = blocks[rows, target]
                result[rows] = product(padded, weights[target])[: len(rows)]
        return result

    def push(self, difference: SparseRows) -> Tensor:
        return difference.times(self.weights[0].flatten(0, 1).T)

    def unary(self, x: Inputs) -> Tensor:
        return self.unary_of(self.project(x))

    @property
    def coupling(self) -> None:
        return None

    def forward(self, x: Inputs, y: Tensor) -> Tensor:
        return (self.unary(x) * y).sum(dim=-1)

    @property
    def input_weights(self) -> list[Tensor]:
        return [self.weights[0]]


TrainableEnergy = VectorEnergy | SeparateEnergy
AnyEnergy = TrainableEnergy | SideBySideEnergies | PaperImageEnergy | ImageEnergy
PaperEnergy: TypeAlias = VectorEnergy | PaperImageEnergy
# A layer of all outputs' networks together: many outputs must do with narrower ones.
MAX_UNITS_ALONE, MIN_UNITS_ALONE = 2000, 16


def build_energy(
    encoding: int | Encoding, space: OutputSpace, config: EnergyConfig, *, structured: bool, seed: int
) -> TrainableEnergy:
    """A fresh energy; the global random state of torch is left as it was.

    Inputs that are encoded piecewise linear enter a network that bends smoothly; sparse ones that of the paper.
    """
    is_table = isinstance(encoding, PiecewiseLinear)
    more: dict[str, Any] = {"activation": "silu" if is_table else "softplus", "output_offset": is_table}
    with seeded(seed):
        if structured:
            return VectorEnergy(encoding, space, hidden=config.hidden, coupling_units=config.coupling_units, **more)
        most = max(MIN_UNITS_ALONE, MAX_UNITS_ALONE // space.n_outputs)
        return SeparateEnergy(encoding, space, hidden=tuple(min(width, most) for width in config.hidden), **more)


def build_paper_energy(
    n_columns: int, image: ImageShape | None, space: OutputSpace, config: EnergyConfig, pixel: int | None = None
) -> PaperEnergy:
    """The paper's energy of all outputs, or of one pixel alone.

    Of vectors, eq. 17-3 to the letter: no offset inside softplus, the library's default initial weights.
    """
    if image is not None:
        return paper_image_energy(image, space, config, pixel=pixel)
    return VectorEnergy(
        n_columns,
        space,
        hidden=config.hidden,
        coupling_units=config.coupling_units,
        coupling_spread=None,
        coupling_offset=False,
    )


WIDTH, BINS_AT_FIRST = 64, 0.1


class TargetGivenOthers(nn.Module):
    """Two hidden layers over features and encoded other outputs together.

    The energy of eq. 17-3 adds what features say of an output to what other outputs say of it, so it cannot hold a
    target such as "this output, unless that feature"; this network can. Graded outputs enter also piecewise linear
    over their bins, as features do, so that a threshold between two numbers is as easily found in either.
    """

    def __init__(
        self, encoding: Encoding, space: OutputSpace, target: int, others: Sequence[int], edges: Tensor | None = None
    ) -> None:
        """`edges`: (columns, bins + 1) of encoded outputs, rising; NaN for columns of labels."""
        super().__init__()
        self.encoding = encoding
        edges = torch.full((space.n_columns, 2), torch.nan) if edges is None else edges
        binned, place = torch.nonzero(edges[:, 1:] > edges[:, :-1], as_tuple=True)
        self.register_buffer("binned", binned)
        self.register_buffer("low", edges[binned, place])
        self.register_buffer("size", edges[binned, place + 1] - edges[binned, place])
        self.register_buffer("column_output", torch.cat([space.column_output, space.column_output[binned]]))
        self.register_buffer("columns", torch.isin(self.column_output, torch.tensor(others, dtype=torch.long)))
        self.of_features = nn.Linear(encoding.n_encoded, WIDTH)
        self.of_outputs = nn.Linear(len(self.columns), WIDTH, bias=False)
        nn.init.normal_(self.of_outputs.weight)
        with torch.no_grad():  # bins are used where they are needed, not because there are many
            self.of_outputs.weight[:, space.n_columns :] *= BINS_AT_FIRST
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, space.n_classes[target])

    binned: Tensor
    low: Tensor
    size: Tensor
    column_output: Tensor
    columns: Tensor

    def project(self, x: Inputs) -> Tensor:
        """What the first layer sees of the features: (rows, width)."""
        return self.encoding.then_linear(x, self.of_features.weight, self.of_features.bias)

    def forward(self, projected: Tensor, y: Tensor) -> Tensor:
        """Logits of the target's classes, from project(x) and encoded outputs y."""
        bins = ((y[:, self.binned] - self.low) / self.size).clamp(0.0, 1.0)
        first = F.softplus(projected + self.of_outputs(torch.cat([y, bins], dim=1) * self.columns))
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
        return torch.zeros(space.n_outputs).index_add(0, self.column_output, squares).sqrt()
