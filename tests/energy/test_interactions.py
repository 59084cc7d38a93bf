"""Interactions of outputs against second differences by brute force."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from sointer.energy import inference
from sointer.energy.inference import output_interactions
from sointer.energy.networks import SeparateEnergy, VectorEnergy
from sointer.energy.space import OutputSpace


@dataclass
class Coupled:
    """Only the part of an energy that couples outputs."""

    space: OutputSpace
    coupling: tuple[Tensor, Tensor, Tensor] | None

    def unary(self, x: Tensor) -> Tensor:
        raise AssertionError("interactions do not depend on x")

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        raise AssertionError("interactions do not depend on x")


def random_coupling(space: OutputSpace, seed: int = 0, n_units: int = 4) -> Coupled:
    generator = torch.Generator().manual_seed(seed)
    parts = (
        torch.randn(n_units, space.n_columns, generator=generator),
        torch.randn(n_units, generator=generator),
        torch.randn(n_units, generator=generator),
    )
    return Coupled(space, parts)


def slow_g(energy: Coupled, y: list[float]) -> float:
    """b' softplus(B y + c) by loops."""
    assert energy.coupling is not None
    total = 0.0
    for w, c, b in zip(*(part.tolist() for part in energy.coupling), strict=True):
        total += b * math.log1p(math.exp(sum(w[i] * y[i] for i in range(len(y))) + c))
    return total


def slow_binary(energy: Coupled) -> np.ndarray:
    """Mean over all values of the others of |g(1,1) - g(1,0) - g(0,1) + g(0,0)|."""
    n = energy.space.n_outputs
    result = np.zeros((n, n))
    for i, j in itertools.permutations(range(n), 2):
        sizes = []
        for rest in itertools.product([0.0, 1.0], repeat=n - 2):
            corner = {}
            for a, b in itertools.product([0.0, 1.0], repeat=2):
                others = iter(rest)
                y = [a if m == i else b if m == j else next(others) for m in range(n)]
                corner[a, b] = slow_g(energy, y)
            sizes.append(abs(corner[1, 1] - corner[1, 0] - corner[0, 1] + corner[0, 0]))
        result[i, j] = sum(sizes) / len(sizes)
    return result


@pytest.mark.parametrize("seed", range(3))
def test_two_binary_outputs_equal_brute_force(seed: int) -> None:
    energy = random_coupling(OutputSpace((2, 2)), seed)
    np.testing.assert_allclose(output_interactions(energy), slow_binary(energy), atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_more_binary_outputs_equal_brute_force(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "N_INTERACTION_SAMPLES", 20_000)
    energy = random_coupling(OutputSpace((2,) * 4), seed)
    np.testing.assert_allclose(output_interactions(energy), slow_binary(energy), atol=0.02)


def test_few_samples_are_enough() -> None:
    energy = random_coupling(OutputSpace((2,) * 4))
    np.testing.assert_allclose(output_interactions(energy), slow_binary(energy), rtol=0.15, atol=0.02)


@pytest.mark.parametrize(
    "space",
    [OutputSpace((2, 2, 2)), OutputSpace((2, 3, 4))],
)
def test_interactions_are_symmetric_with_a_zero_diagonal(space: OutputSpace) -> None:
    result = output_interactions(random_coupling(space))
    assert result.shape == (3, 3)
    # The two ways round see different random values of the pair itself, never of the others.
    np.testing.assert_allclose(result, result.T, rtol=1e-4, atol=1e-5)
    assert np.diag(result).tolist() == [0, 0, 0]
    assert (result[~np.eye(3, dtype=bool)] > 0.01).all()


@torch.random.fork_rng(devices=[])
def test_nothing_couples_without_coupling() -> None:
    space = OutputSpace((2, 3, 2))
    assert not output_interactions(Coupled(space, None)).any()
    assert not output_interactions(SeparateEnergy(3, space, hidden=(2,))).any()
    weight, offset, b = random_coupling(space).coupling
    assert not output_interactions(Coupled(space, (weight, offset, 0 * b))).any()
    assert output_interactions(random_coupling(OutputSpace((2,)))).tolist() == [[0.0]]


@torch.random.fork_rng(devices=[])
def test_a_fresh_network_couples_nothing_and_a_trained_one_keeps_its_gradients() -> None:
    energy = VectorEnergy(3, OutputSpace((2, 2)), hidden=(2,), coupling_units=4)
    assert not output_interactions(energy).any()
    torch.nn.init.normal_(energy.b)
    assert output_interactions(energy)[0, 1] > 0
    assert energy.b.requires_grad


def test_a_planted_pair_stands_out() -> None:
    # One unit sees outputs 0 and 1, the other output 2 alone.
    weight = torch.tensor([[3.0, 3.0, 0.0], [0.0, 0.0, 3.0]])
    energy = Coupled(OutputSpace((2, 2, 2)), (weight, torch.tensor([-4.0, 0.0]), torch.tensor([2.0, 2.0])))
    result = output_interactions(energy)
    assert result[0, 1] > 0.5
    assert result[0, 2] == pytest.approx(0.0, abs=1e-6)
    assert result[1, 2] == pytest.approx(0.0, abs=1e-6)


def test_a_pair_whose_sign_depends_on_a_third_output_still_counts() -> None:
    # Outputs 0 and 1 attract each other where output 2 is off, and repel where it is on.
    weight = torch.tensor([[6.0, 6.0, -30.0], [6.0, 6.0, 30.0]])
    energy = Coupled(OutputSpace((2, 2, 2)), (weight, torch.tensor([-9.0, -39.0]), torch.tensor([-1.0, 1.0])))
    assert output_interactions(energy)[0, 1] == pytest.approx(slow_binary(energy)[0, 1], rel=0.05)
    assert slow_binary(energy)[0, 1] > 2.0


def test_a_planted_pair_of_classes_stands_out() -> None:
    # Class 2 of output 0 goes with output 1; output 2 is on its own.
    space = OutputSpace((3, 2, 3))
    weight = torch.zeros(1, space.n_columns)
    weight[0, 2] = weight[0, 3] = 4.0
    energy = Coupled(space, (weight, torch.tensor([-6.0]), torch.tensor([-1.0])))
    result = output_interactions(energy)
    assert result[0, 1] > 1.0
    assert result[0, 2] == result[1, 2] == pytest.approx(0.0, abs=1e-6)


def test_the_random_state_of_torch_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    output_interactions(random_coupling(OutputSpace((2, 2))))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("n_classes", [(3, 2), (1, 2)])
def test_an_output_that_changes_nothing_is_coupled_to_nothing(n_classes: tuple[int, int]) -> None:
    # Every class of output 0 adds the same to B y, so on all real outputs g depends on output 1 alone.
    weight = torch.tensor([[2.0] * n_classes[0] + [3.0]])
    energy = Coupled(OutputSpace(n_classes), (weight, torch.tensor([-3.0]), torch.tensor([1.0])))
    assert output_interactions(energy)[0, 1] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("n_classes", [(2,) * 12, (3, 2, 4, 2, 3)])
def test_among_very_many_outputs_the_second_derivative_stands_in_for_second_differences(n_classes, monkeypatch):
    coupled = random_coupling(OutputSpace(n_classes))
    weight, offset, b = coupled.coupling
    gentle = Coupled(coupled.space, (0.05 * weight, offset, b))  # little changes along the way
    one_by_one = output_interactions(gentle)
    monkeypatch.setattr(inference, "MAX_CHANGES_COMPARED", 0)
    by_curvature = output_interactions(gentle)
    assert one_by_one.max() > 0
    assert np.allclose(by_curvature, one_by_one, atol=0.15 * one_by_one.max())
    assert np.array_equal(by_curvature == 0, np.eye(len(n_classes), dtype=bool))
