"""Eq. 17-3 against loops over plain numbers, and what must hold of any energy network."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sointer.energy.networks import AtProjection, SeparateEnergy, VectorEnergy, energy_of
from sointer.energy.space import InputScaling, OutputSpace, PiecewiseLinear

SPACES = {
    "binary": OutputSpace((2, 2, 2)),
    "categorical": OutputSpace((3, 2, 4)),
    "constant": OutputSpace((1, 2, 3)),
}
Rows = list[list[float]]


# --- slow twins, from the paper's text -------------------------------------------------------------------


def softplus(z: float) -> float:
    return max(z, 0.0) + math.log1p(math.exp(-abs(z)))


def slow_layers(x: list[float], layers: list[tuple[Rows, list[float]]]) -> list[float]:
    """F(x): successive fully connected layers with the softplus non-linearity."""
    for weight, offset in layers:
        x = [
            softplus(sum(w * v for w, v in zip(row, x, strict=True)) + shift)
            for row, shift in zip(weight, offset, strict=True)
        ]
    return x


def slow_energy(features: list[float], y: list[float], a: Rows, B: Rows, offset: list[float], b: list[float]) -> float:
    """sum_i y_i a_i' F(x) + sum_u b_u softplus(sum_i B_ui y_i + offset_u)."""
    total = 0.0
    for i in range(len(y)):
        total += y[i] * sum(a[i][j] * features[j] for j in range(len(features)))
    for u in range(len(b)):
        total += b[u] * softplus(sum(B[u][i] * y[i] for i in range(len(y))) + offset[u])
    return total


# --- helpers ---------------------------------------------------------------------------------------------


@torch.random.fork_rng(devices=[])
def vector_energy(space: OutputSpace, *, offset: bool = True, seed: int = 0) -> VectorEnergy:
    torch.manual_seed(seed)
    energy = VectorEnergy(4, space, hidden=(5, 3), coupling_units=6, coupling_offset=offset)
    torch.nn.init.normal_(energy.b)
    energy.encoding.scale.copy_(torch.rand(4) + 0.5)
    return energy


@torch.random.fork_rng(devices=[])
def separate_energy(space: OutputSpace, seed: int = 0) -> SeparateEnergy:
    torch.manual_seed(seed)
    energy = SeparateEnergy(4, space, hidden=(5, 3))
    energy.encoding.scale.copy_(torch.rand(4) + 0.5)
    return energy


@torch.random.fork_rng(devices=[])
def some_rows(space: OutputSpace, n: int = 6) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    x = torch.randn(n, 4)
    codes = torch.stack([torch.randint(c, (n,)) for c in space.n_classes], dim=1)
    return x, space.encode(codes)


def scaled_rows(energy: VectorEnergy | SeparateEnergy, x: Tensor) -> Rows:
    scale = energy.encoding.scale.tolist()
    return [[v * f for v, f in zip(row, scale, strict=True)] for row in x.tolist()]


# --- VectorEnergy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("offset", [True, False])
def test_vector_energy_equals_the_paper_by_loops(kind: str, offset: bool) -> None:
    space = SPACES[kind]
    energy = vector_energy(space, offset=offset)
    x, y = some_rows(space)
    layers = [(layer.weight.tolist(), layer.bias.tolist()) for layer in energy.layers]
    shifts = energy.B.bias.tolist() if offset else [0.0] * 6
    expected = []
    for row, out in zip(scaled_rows(energy, x), y.tolist(), strict=True):
        features = slow_layers(row, layers)
        value = slow_energy(
            features, out, energy.a.weight.tolist(), energy.B.weight.tolist(), shifts, energy.b.tolist()
        )
        expected.append(value)
    assert energy(x, y).tolist() == pytest.approx(expected, abs=1e-4)


def test_energy_of_is_the_two_terms_of_the_equation() -> None:
    unary, y = torch.tensor([[2.0, -1.0]]), torch.tensor([[1.0, 1.0]])
    b, projected = torch.tensor([3.0, -1.0]), torch.tensor([[0.0, 100.0]])
    assert energy_of(unary, y, b, projected).item() == pytest.approx(2 - 1 + 3 * math.log(2) - 100)


def test_coupling_hands_out_the_parts_of_the_second_term() -> None:
    energy = vector_energy(SPACES["categorical"])
    x, y = some_rows(energy.space)
    weight, offset, b = energy.coupling
    torch.testing.assert_close(energy(x, y), energy_of(energy.unary(x), y, b, y @ weight.T + offset))
    assert torch.equal(vector_energy(energy.space, offset=False).coupling[1], torch.zeros(6))


def test_empty_output_leaves_the_coupling_only() -> None:
    energy = vector_energy(SPACES["binary"])
    x, y = some_rows(energy.space)
    expected = sum(b * softplus(c) for b, c in zip(energy.b.tolist(), energy.B.bias.tolist(), strict=True))
    assert energy(x, torch.zeros_like(y)).tolist() == pytest.approx([expected] * len(x), abs=1e-5)


@torch.random.fork_rng(devices=[])
def test_defaults_are_the_papers_architecture() -> None:
    energy = VectorEnergy(7, SPACES["binary"])
    assert [tuple(layer.weight.shape) for layer in energy.layers] == [(150, 7), (150, 150)]
    assert tuple(energy.a.weight.shape) == (3, 150)
    assert energy.a.bias is None


@torch.random.fork_rng(devices=[])
def test_wide_start_has_no_coupling_yet() -> None:
    torch.manual_seed(0)
    wide = VectorEnergy(4, SPACES["binary"], coupling_units=400, coupling_spread=2.0)
    assert torch.equal(wide.b, torch.zeros(400))
    assert wide.B.weight.std().item() == pytest.approx(2.0, rel=0.1)
    assert wide.B.bias.std().item() == pytest.approx(2.0, rel=0.15)
    narrow = VectorEnergy(4, SPACES["binary"], coupling_spread=None)
    assert narrow.b.abs().sum() > 0


@pytest.mark.parametrize("make", [vector_energy, separate_energy])
def test_without_its_input_weights_a_column_has_no_effect(make) -> None:
    energy = make(SPACES["categorical"])
    x, y = some_rows(energy.space)
    moved = x.clone()
    moved[:, 2] += 3.0
    assert not torch.allclose(energy(x, y), energy(moved, y))
    with torch.no_grad():
        for weight in energy.input_weights:
            weight[..., 2] = 0.0
    torch.testing.assert_close(energy(x, y), energy(moved, y))


# --- input scaling ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [vector_energy, separate_energy])
def test_scaling_is_the_same_as_scaled_inputs(make) -> None:
    energy = make(SPACES["binary"])
    x, y = some_rows(energy.space)
    scaled = x * energy.encoding.scale
    expected = energy(x, y)
    energy.encoding.load_state_dict(InputScaling(4).state_dict())
    torch.testing.assert_close(energy(scaled, y), expected)


def test_scaling_is_saved_but_not_learned() -> None:
    energy = vector_energy(SPACES["binary"])
    assert "encoding.scale" in energy.state_dict()
    assert not any(name.startswith("encoding") for name, _ in energy.named_parameters())


# --- SeparateEnergy --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SPACES)
def test_separate_energy_equals_one_network_per_output(kind: str) -> None:
    space = SPACES[kind]
    energy = separate_energy(space)
    x, y = some_rows(space)
    owner = []
    for output, n_classes in enumerate(space.n_classes):
        owner += [output] * (1 if n_classes == 2 else n_classes)
    expected = []
    for row, out in zip(scaled_rows(energy, x), y.tolist(), strict=True):
        total = 0.0
        for column, value in enumerate(out):
            own = owner[column]
            layers = [
                (weight[own].tolist(), offset[own][0].tolist())
                for weight, offset in zip(energy.weights, energy.offsets, strict=True)
            ]
            features = slow_layers(row, layers)
            total += value * sum(a * f for a, f in zip(energy.a[column].tolist(), features, strict=True))
        expected.append(total)
    assert energy(x, y).tolist() == pytest.approx(expected, abs=1e-4)


def test_separate_outputs_share_no_parameter() -> None:
    space = SPACES["categorical"]
    energy = separate_energy(space)
    x, _ = some_rows(space)
    for output in range(space.n_outputs):
        energy.zero_grad()
        energy.unary(x)[:, space.column_output == output].square().sum().backward()
        for parameter in [*energy.weights, *energy.offsets]:
            per_output = parameter.grad.abs().flatten(1).sum(dim=1)
            assert (per_output > 0).tolist() == [i == output for i in range(space.n_outputs)]
        used = energy.a.grad.abs().sum(dim=1) > 0
        assert torch.equal(used, space.column_output == output)


def test_separate_energy_is_not_coupled() -> None:
    assert separate_energy(SPACES["binary"]).coupling is None
    # With nothing that couples, energies of single outputs add up.
    energy = separate_energy(SPACES["binary"])
    x, _ = some_rows(energy.space)
    singles = sum(energy(x, row.expand(len(x), -1)) for row in torch.eye(3))
    torch.testing.assert_close(energy(x, torch.ones(len(x), 3)), singles)


# --- tables: piecewise linear inputs, SiLU, offsets --------------------------------------------------------


def silu(z: float) -> float:
    return z / (1.0 + math.exp(-z))


@torch.random.fork_rng(devices=[])
@pytest.mark.parametrize("kind", [VectorEnergy, SeparateEnergy])
def test_the_energy_of_tables_by_loops(kind: type) -> None:
    torch.manual_seed(0)
    space, data = SPACES["categorical"], torch.randn(50, 4)
    encoding = PiecewiseLinear.of(data.double().numpy(), torch.zeros(4).double().numpy())
    energy = kind(encoding, space, hidden=(5, 3), activation="silu", output_offset=True)
    offset = energy.a.bias if kind is VectorEnergy else energy.output_offset
    torch.nn.init.normal_(offset)
    x = data[:6]
    if kind is VectorEnergy:
        per_output = [[(layer.weight, layer.bias) for layer in energy.layers]] * space.n_outputs
        a = energy.a.weight.tolist()
    else:
        per_output = [
            [(w[own], o[own][0]) for w, o in zip(energy.weights, energy.offsets, strict=True)]
            for own in range(space.n_outputs)
        ]
        a = energy.a.tolist()
    for row, found in zip(encoding(x).tolist(), energy.unary(x).tolist(), strict=True):
        for column, own in enumerate(space.column_output.tolist()):
            features = row
            for weight, shift in per_output[own]:
                features = [
                    silu(sum(w * v for w, v in zip(line, features, strict=True)) + s)
                    for line, s in zip(weight.tolist(), shift.tolist(), strict=True)
                ]
            expected = sum(w * v for w, v in zip(a[column], features, strict=True)) + offset[column].item()
            assert found[column] == pytest.approx(expected, abs=1e-4)


@torch.random.fork_rng(devices=[])
@pytest.mark.parametrize("kind", [VectorEnergy, SeparateEnergy])
def test_behind_the_first_layer_an_energy_is_the_same(kind: type) -> None:
    torch.manual_seed(0)
    data = torch.randn(30, 4)
    encoding = PiecewiseLinear.of(data.double().numpy(), torch.zeros(4).double().numpy())
    energy = kind(encoding, SPACES["binary"], hidden=(5, 3), activation="silu", output_offset=True)
    projected = energy.project(data)
    assert projected.shape == (30, energy.projection_width)
    torch.testing.assert_close(energy.project_encoded(encoding(data)), projected)
    torch.testing.assert_close(AtProjection(energy).unary(projected), energy.unary(data))
    # The first layer is linear: what it does to differences is what the weights say.
    moved = energy.project_encoded(encoding(data) + 1.0)
    torch.testing.assert_close(
        moved - projected, energy.projection_weight.sum(dim=1).expand(30, -1), atol=1e-4, rtol=1e-4
    )
