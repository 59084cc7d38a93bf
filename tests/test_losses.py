"""The losses against numpy twins written from the paper's equations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sointer.energy import losses
from sointer.energy.inference import mean_field_log_marginals
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import SeparateEnergy, VectorEnergy
from sointer.energy.space import OutputSpace

energies = st.lists(st.tuples(st.floats(-20, 20), st.floats(-20, 20)), min_size=1, max_size=6)
label_rows = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 1), min_size=2 * n, max_size=2 * n), min_size=1, max_size=4)
)


@torch.random.fork_rng(devices=[])
def network(space: OutputSpace, seed: int = 0) -> VectorEnergy:
    torch.manual_seed(seed)
    energy = VectorEnergy(3, space, hidden=(4,), coupling_units=5)
    torch.nn.init.normal_(energy.b)
    return energy


def rows(n: int = 4) -> torch.Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(1))


# --- the paper's equations -------------------------------------------------------------------------------


@settings(deadline=None)
@given(energies)
def test_equations_6_and_9_equal_their_twins(pairs: list[tuple[float, float]]) -> None:
    swapped, perturbed = torch.tensor(pairs, dtype=torch.float64).T
    difference = [a - b for a, b in pairs]
    assert losses.penalty(swapped, perturbed).tolist() == pytest.approx(difference)
    assert losses.interpreter_hinge(swapped, perturbed).tolist() == pytest.approx([max(0.0, d) for d in difference])


@settings(deadline=None)
@given(energies, st.floats(0, 5))
def test_equation_10_equals_its_twin(pairs: list[tuple[float, float]], margin: float) -> None:
    perturbed, other = torch.tensor(pairs, dtype=torch.float64).T
    expected = [max(0.0, a - b + margin) for a, b in pairs]
    assert losses.energy_hinge(perturbed, other, margin).tolist() == pytest.approx(expected)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-15, 15), st.floats(0, 1)), min_size=1, max_size=6))
def test_appendix_b_equals_its_twin(pairs: list[tuple[float, float]]) -> None:
    energy, value = torch.tensor(pairs, dtype=torch.float64).T
    expected = []
    for e, v in pairs:
        sigma = 1 / (1 + math.exp(e))  # sigmoid(-E)
        expected.append(-v * math.log(sigma) - (1 - v) * math.log(1 / (1 + math.exp(-e))))
    assert losses.value_network_loss(energy, value).tolist() == pytest.approx(expected, abs=1e-9)


def test_appendix_b_is_least_where_sigmoid_of_minus_energy_is_the_value() -> None:
    grid = torch.linspace(-4, 4, 801, dtype=torch.float64)
    best = grid[losses.value_network_loss(grid, torch.full_like(grid, 0.8)).argmin()]
    assert best.item() == pytest.approx(-math.log(0.8 / 0.2), abs=0.01)


def test_target_is_put_back_and_nothing_else() -> None:
    black_box, perturbed = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.zeros(2, 3, dtype=torch.long)
    assert losses.target_substituted(black_box, perturbed, 1).tolist() == [[0, 2, 0], [0, 5, 0]]
    assert perturbed.sum() == 0


def test_penalty_is_zero_where_the_target_did_not_change() -> None:
    energy = network(OutputSpace((2, 3)))
    y, perturbed = torch.tensor([[1, 2]] * 4), torch.tensor([[1, 0]] * 4)
    encode = energy.space.encode
    swapped = losses.target_substituted(y, perturbed, 0)
    assert losses.penalty(energy(rows(), encode(swapped)), energy(rows(), encode(perturbed))).tolist() == [0] * 4
    swapped = losses.target_substituted(y, perturbed, 1)
    assert losses.penalty(energy(rows(), encode(swapped)), energy(rows(), encode(perturbed))).abs().min() > 0


# --- values ----------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(label_rows)
def test_example_f1_equals_sets(both: list[list[int]]) -> None:
    half = len(both[0]) // 2
    both = [row[: 2 * half] for row in both if len(row) == 2 * half]
    a, b = [row[:half] for row in both], [row[half:] for row in both]
    expected = []
    for one, two in zip(a, b, strict=True):
        first, second = {i for i, v in enumerate(one) if v}, {i for i, v in enumerate(two) if v}
        if not first and not second:
            expected.append(1.0)
        else:
            expected.append(2 * len(first & second) / (len(first) + len(second)))
    assert losses.example_f1(torch.tensor(a), torch.tensor(b)).tolist() == pytest.approx(expected)
    share = [float(np.mean(np.equal(one, two))) for one, two in zip(a, b, strict=True)]
    assert losses.matching_share(torch.tensor(a), torch.tensor(b)).tolist() == pytest.approx(share)


def test_values_by_hand() -> None:
    a = torch.tensor([[0, 0, 0], [0, 0, 0], [1, 1, 0], [1, 1, 0]])
    b = torch.tensor([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 0, 1]])
    assert losses.example_f1(a, b).tolist() == pytest.approx([1, 0, 1, 0.5])
    assert losses.example_f1(b, a).tolist() == pytest.approx([1, 0, 1, 0.5])
    assert losses.matching_share(torch.tensor([[2, 0, 1]]), torch.tensor([[2, 1, 1]])).item() == pytest.approx(2 / 3)


# --- likelihoods -----------------------------------------------------------------------------------------


def slow_probabilities(energy: VectorEnergy, x: torch.Tensor) -> list[dict[tuple[int, ...], float]]:
    """p(y | x) of every y, from the network's own energies, one y at a time."""
    result = []
    for row in x:
        weights = {}
        for codes in itertools.product(*map(range, energy.space.n_classes)):
            y = energy.space.encode(torch.tensor([codes]))
            weights[codes] = math.exp(-energy(row.unsqueeze(0), y).item())
        total = sum(weights.values())
        result.append({codes: w / total for codes, w in weights.items()})
    return result


@pytest.mark.parametrize("n_classes", [(2, 2, 2), (2, 3), (3, 1, 2)])
def test_likelihood_equals_enumeration_and_sums_to_one(n_classes: tuple[int, ...]) -> None:
    energy, x = network(OutputSpace(n_classes)), rows()
    slow = slow_probabilities(energy, x)
    total = torch.zeros(len(x))
    for codes in itertools.product(*map(range, n_classes)):
        loss = losses.negative_log_likelihood(energy, x, torch.tensor([codes] * len(x)))
        assert loss.tolist() == pytest.approx([-math.log(p[codes]) for p in slow], abs=1e-4)
        total = total + torch.exp(-loss)
    torch.testing.assert_close(total, torch.ones(len(x)))


@pytest.mark.parametrize("n_classes", [(2, 2, 2), (2, 3), (3, 1, 2)])
def test_pseudo_likelihood_equals_its_definition(n_classes: tuple[int, ...]) -> None:
    energy, x = network(OutputSpace(n_classes)), rows()
    slow = slow_probabilities(energy, x)
    for codes in itertools.product(*map(range, n_classes)):
        expected = []
        for p in slow:
            total = 0.0
            for i, n in enumerate(n_classes):
                others = sum(p[(*codes[:i], c, *codes[i + 1 :])] for c in range(n))
                total -= math.log(p[codes] / others)
            expected.append(total)
        result = losses.negative_pseudo_log_likelihood(energy, x, torch.tensor([codes] * len(x)))
        assert result.tolist() == pytest.approx(expected, abs=1e-4)


def test_all_likelihoods_agree_without_coupling() -> None:
    energy, x, codes = network(OutputSpace((2, 3))), rows(), torch.tensor([[1, 2], [0, 0], [1, 0], [0, 1]])
    torch.nn.init.zeros_(energy.b)
    exact = losses.negative_log_likelihood(energy, x, codes)
    torch.testing.assert_close(losses.negative_pseudo_log_likelihood(energy, x, codes), exact)
    torch.testing.assert_close(losses.negative_mean_field_likelihood(energy, x, codes, 6, 0.5), exact)


def test_mean_field_likelihood_adds_up_the_chosen_labels() -> None:
    energy, x, codes = network(OutputSpace((2, 3))), rows(), torch.tensor([[1, 2], [0, 0], [1, 0], [0, 1]])
    log_q = mean_field_log_marginals(energy, x, n_steps=3, damping=0.2).tolist()
    expected = [-(q[y[0]] + q[2 + y[1]]) for q, y in zip(log_q, codes.tolist(), strict=True)]
    result = losses.negative_mean_field_likelihood(energy, x, codes, 3, 0.2)
    assert result.tolist() == pytest.approx(expected, abs=1e-5)


@torch.random.fork_rng(devices=[])
def test_squared_errors_vanish_at_the_joint_fixed_point_only() -> None:
    energy = network(OutputSpace((1, 1), is_continuous=True))
    with torch.no_grad():
        energy.b.mul_(0.1)
    x = rows()
    y = Likelihood(n_steps=60).predict(energy, x)
    assert losses.squared_errors(energy, x, y, 60, 0.5).max() < 1e-6
    moved = y + torch.tensor([0.5, 0.0])
    # Both parts count: the joint error alone would be 0.25.
    result = losses.squared_errors(energy, x, moved, 60, 0.5)
    assert (result > 0.35).all()
    assert (result < 0.75).all()
    separate = SeparateEnergy(3, energy.space, hidden=(4,))
    y = -separate.unary(x)
    assert losses.squared_errors(separate, x, y + 1.0, 6, 0.5).tolist() == pytest.approx([2.0] * 4, abs=1e-5)


def test_squared_errors_equal_the_joint_and_the_conditional_part() -> None:
    energy = network(OutputSpace((1, 1, 1), is_continuous=True))
    x, y = rows(), rows(5)[1:] * 2
    joint = Likelihood(n_steps=3, damping=0.2).predict(energy, x).detach()
    expected = (y - joint).square().sum(dim=1)
    for i in range(3):
        # Where output i goes from its joint value, the others held at their true ones.
        point = y.clone()
        point[:, i] = joint[:, i]
        point.requires_grad_(True)
        (slope,) = torch.autograd.grad(energy(x, point).sum(), point)
        expected = expected + (y[:, i] - (joint[:, i] - slope[:, i])).square()
    torch.testing.assert_close(losses.squared_errors(energy, x, y, 3, 0.2), expected, atol=1e-4, rtol=1e-4)


# --- which loss serves which space -----------------------------------------------------------------------


@torch.random.fork_rng(devices=[])
def test_training_loss_is_exact_while_outputs_can_be_listed() -> None:
    energy, x, codes = network(OutputSpace((2, 3))), rows(), torch.tensor([[1, 2], [0, 0], [1, 0], [0, 1]])
    exact = losses.negative_log_likelihood(energy, x, codes)
    pseudo = losses.negative_pseudo_log_likelihood(energy, x, codes)
    joint = losses.negative_mean_field_likelihood(energy, x, codes, 6, 0.5)
    torch.testing.assert_close(Likelihood(exact_limit=6).loss(energy, x, codes), exact)
    torch.testing.assert_close(Likelihood(exact_limit=5).loss(energy, x, codes), joint + pseudo)
    torch.manual_seed(0)
    separate = SeparateEnergy(3, OutputSpace((2, 3)), hidden=(4,))
    torch.testing.assert_close(
        Likelihood().loss(separate, x, codes), losses.negative_log_likelihood(separate, x, codes)
    )


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_training_loss_falls_along_its_gradient(seed: int) -> None:
    for space, codes in [
        (OutputSpace((2, 3)), torch.tensor([[1, 2], [0, 0], [1, 0], [0, 1]])),
        (OutputSpace((1, 1), is_continuous=True), torch.tensor([[1.0, -1.0]] * 4)),
    ]:
        energy, x, likelihood = network(space, seed), rows(), Likelihood()
        before = likelihood.loss(energy, x, codes).mean()
        before.backward()
        with torch.no_grad():
            for parameter in energy.parameters():
                parameter -= 1e-3 * parameter.grad / parameter.grad.norm().clamp_min(1e-9)
        assert likelihood.loss(energy, x, codes).mean() < before
