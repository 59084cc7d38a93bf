"""The losses against numpy twins written from the paper's equations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sointer.energy import likelihood as losses
from sointer.energy.inference import exact_log_marginals, mean_field_log_marginals
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
    for exact_limit in (4096, 1):
        likelihood = Likelihood(exact_limit, is_joint=False)
        torch.testing.assert_close(likelihood.loss(energy, x, codes), exact)


# --- which loss serves which space -----------------------------------------------------------------------


def slow_cross_entropy(log_p: Tensor, codes: list[list[float]], n_classes: tuple[int, ...]) -> list[float]:
    """-sum over labels of their probability by the code times their log-probability by the energy."""
    totals = []
    for log_q, row in zip(log_p.tolist(), codes, strict=True):
        total, label = 0.0, 0
        for code, n in zip(row, n_classes, strict=True):
            for c in range(n):
                share = (code if c == 1 else 1 - code) if n == 2 else float(code == c)
                total -= share * log_q[label]
                label += 1
        totals.append(total)
    return totals


GRADED = [[0.3, 2.0], [0.0, 0.0], [1.0, 1.0], [0.9, 1.0]]
"""Codes of a probability and a class."""


def test_the_loss_of_graded_outputs_is_the_soft_cross_entropy_of_marginals() -> None:
    energy, x, codes = network(OutputSpace((2, 3))), rows(), torch.tensor(GRADED)
    exact = slow_cross_entropy(exact_log_marginals(energy, x), GRADED, (2, 3))
    steps = slow_cross_entropy(mean_field_log_marginals(energy, x), GRADED, (2, 3))
    assert exact != pytest.approx(steps, abs=1e-3)
    for is_joint in (True, False):
        assert Likelihood(6, is_joint=is_joint).loss(energy, x, codes).tolist() == pytest.approx(exact, abs=1e-4)
        assert Likelihood(5, is_joint=is_joint).loss(energy, x, codes).tolist() == pytest.approx(steps, abs=1e-4)


def test_the_loss_is_least_where_probabilities_are_those_of_the_codes() -> None:
    """Not where they are certain, as it would be if codes were rounded to labels."""
    space, codes = OutputSpace((2,)), torch.tensor([[0.3]])

    class Constant:
        def __init__(self, p: float) -> None:
            self.space, self.coupling, self.p = space, None, p

        def unary(self, x: Tensor) -> Tensor:
            return torch.full((len(x), 1), -math.log(self.p / (1 - self.p)))

    found = {p: Likelihood().loss(Constant(p), rows(1), codes).item() for p in (0.01, 0.1, 0.25, 0.3, 0.35, 0.5, 0.9)}
    assert min(found, key=found.__getitem__) == 0.3
    assert found[0.3] == pytest.approx(-(0.3 * math.log(0.3) + 0.7 * math.log(0.7)), abs=1e-5)


@torch.random.fork_rng(devices=[])
def test_training_loss_is_exact_while_outputs_can_be_listed() -> None:
    energy, x, codes = network(OutputSpace((2, 3))), rows(), torch.tensor([[1, 2], [0, 0], [1, 0], [0, 1]])
    exact = losses.negative_log_likelihood(energy, x, codes)
    pseudo = losses.negative_pseudo_log_likelihood(energy, x, codes)
    by_marginals = [
        torch.tensor(slow_cross_entropy(log_p, codes.tolist(), (2, 3)))
        for log_p in (mean_field_log_marginals(energy, x), exact_log_marginals(energy, x))
    ]
    torch.testing.assert_close(Likelihood(exact_limit=6).loss(energy, x, codes), exact)
    torch.testing.assert_close(Likelihood(exact_limit=5).loss(energy, x, codes), by_marginals[0] + pseudo)
    torch.testing.assert_close(Likelihood(5, is_joint=False).loss(energy, x, codes), by_marginals[0])
    torch.testing.assert_close(Likelihood(6, is_joint=False).loss(energy, x, codes), by_marginals[1])
    torch.manual_seed(0)
    separate = SeparateEnergy(3, OutputSpace((2, 3)), hidden=(4,))
    torch.testing.assert_close(
        Likelihood().loss(separate, x, codes), losses.negative_log_likelihood(separate, x, codes)
    )


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_training_loss_falls_along_its_gradient(seed: int) -> None:
    for codes in (torch.tensor([[1, 2], [0, 0], [1, 0], [0, 1]]), torch.tensor(GRADED)):
        energy, x, likelihood = network(OutputSpace((2, 3)), seed), rows(), Likelihood()
        before = likelihood.loss(energy, x, codes).mean()
        before.backward()
        with torch.no_grad():
            for parameter in energy.parameters():
                parameter -= 1e-3 * parameter.grad / parameter.grad.norm().clamp_min(1e-9)
        assert likelihood.loss(energy, x, codes).mean() < before
