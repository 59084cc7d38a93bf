"""Gradients along paths, and the evidence that is differentiated: completeness and limits."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import VectorEnergy
from sointer.energy.space import OutputSpace
from sointer.interpreter.elimination import path_positions, slopes_along


@dataclass
class LinearEnergy:
    """E(x, y) = y' A x + b' softplus(B y + c)."""

    space: OutputSpace
    A: Tensor
    coupling: tuple[Tensor, Tensor, Tensor] | None = None

    def unary(self, x: Tensor) -> Tensor:
        return x @ self.A.T


@torch.random.fork_rng(devices=[])
def network(space: OutputSpace, seed: int = 0) -> VectorEnergy:
    torch.manual_seed(seed)
    energy = VectorEnergy(3, space, hidden=(8,), coupling_units=5)
    torch.nn.init.normal_(energy.b)
    torch.nn.init.normal_(energy.a.weight)
    return energy


def rows(n: int = 4, seed: int = 1) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))


# --- paths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 7, 32])
def test_positions_are_the_middles_of_equal_parts(n: int) -> None:
    assert sorted(path_positions(n).tolist()) == pytest.approx([(i + 0.5) / n for i in range(n)])


def test_early_and_late_positions_are_mixed() -> None:
    positions = path_positions(32)
    for start in range(0, 32, 8):  # any few steps in a row cover the whole path
        part = positions[start : start + 8]
        assert part.min() < 0.25
        assert part.max() > 0.75
        assert part.mean().item() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("n_steps", [1, 5])
def test_slopes_of_linear_evidence_are_the_same_everywhere(n_steps: int) -> None:
    w, x = torch.tensor([2.0, -1.0, 0.0]), rows()
    slopes = slopes_along(lambda points: points @ w, torch.tensor([[1.0, 0.5, -3.0]]), x, n_steps)
    torch.testing.assert_close(slopes, w.expand(n_steps, 4, 3))


@pytest.mark.parametrize("n_starts", [1, 6])
def test_slopes_are_taken_at_the_middles_of_equal_parts(n_starts: int) -> None:
    """By loops: d/dx of a² b + c³ at points on the way from each start to each row."""
    n_steps, x, starts = 6, rows(2), rows(n_starts, seed=7)
    slopes = slopes_along(lambda p: p[:, 0] ** 2 * p[:, 1] + p[:, 2] ** 3, starts.unsqueeze(1), x, n_steps)
    for step, share in enumerate(path_positions(n_steps).tolist()):
        start = starts[step % n_starts].tolist()
        for row, found in zip(x.tolist(), slopes[step].tolist(), strict=True):
            a, b, c = (r + share * (v - r) for v, r in zip(row, start, strict=True))
            assert found == pytest.approx([2 * a * b, a * a, 3 * c * c], abs=1e-4)


def test_slopes_times_differences_add_up_to_what_changed() -> None:
    energy, likelihood, x = network(OutputSpace((2, 3))), Likelihood(), rows()
    targets, values = torch.tensor([0, 1, 1, 0]), torch.tensor([1, 2, 0, 0])
    reference, n_steps = torch.tensor([[0.2, -0.4, 1.0]]), 200

    def evidence(points: Tensor) -> Tensor:
        n = len(points) // 4
        return likelihood.target_evidence(energy, points, targets.repeat(n), values.repeat(n))

    slopes = slopes_along(evidence, reference, x, n_steps).mean(dim=0)
    with torch.no_grad():
        gap = evidence(x) - evidence(reference.expand(4, -1))
    torch.testing.assert_close((slopes * (x - reference)).sum(dim=1), gap, atol=2e-3, rtol=2e-3)
    assert gap.abs().max() > 0.1


def test_slopes_work_where_gradients_are_off_and_leave_no_graph() -> None:
    with torch.no_grad():
        slopes = slopes_along(lambda p: p.square().sum(dim=1), torch.zeros(1, 3), rows(), 4)
    torch.testing.assert_close(slopes.mean(dim=0), rows())
    assert not slopes.requires_grad


# --- evidence --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [(2, 2, 2), (2, 3), (3, 2, 4)])
def test_evidence_is_the_log_odds_of_the_exact_marginal(n_classes: tuple[int, ...]) -> None:
    energy = network(OutputSpace(n_classes))
    for x in rows(2):
        weights = {}
        for codes in itertools.product(*map(range, n_classes)):
            y = energy.space.encode(torch.tensor([codes]))
            weights[codes] = math.exp(-energy(x.unsqueeze(0), y).item())
        for target, n in enumerate(n_classes):
            for value in range(n):
                yes = sum(w for codes, w in weights.items() if codes[target] == value)
                no = sum(w for codes, w in weights.items() if codes[target] != value)
                arguments = energy, x.unsqueeze(0), torch.tensor([target]), torch.tensor([value])
                assert Likelihood().target_evidence(*arguments).item() == pytest.approx(math.log(yes / no), abs=1e-3)
                assert Likelihood().target_log_likelihood(*arguments).item() == pytest.approx(
                    math.log(yes / (yes + no)), abs=1e-3
                )


@pytest.mark.parametrize("exact_limit", [4096, 1])
def test_a_feature_of_another_output_is_evidence_through_the_coupling(exact_limit: int) -> None:
    parts = (torch.tensor([[6.0, 6.0]]), torch.tensor([-9.0]), torch.tensor([-1.0]))
    A = torch.tensor([[-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    likelihood, x = Likelihood(exact_limit), torch.tensor([[0.5, 1.0, 1.0]], requires_grad=True)
    for coupling in (parts, None):
        evidence = likelihood.target_evidence(
            LinearEnergy(OutputSpace((2, 2)), A, coupling), x, torch.tensor([1]), torch.tensor([1])
        )
        (slope,) = torch.autograd.grad(evidence.sum(), x)
        assert (slope[0, 0] > 0.05) == (coupling is not None)
        assert slope[0, 1:].tolist() == [0.0, 0.0]


def certain(exact_limit: int, size: float) -> tuple[Tensor, Tensor]:
    """Evidence and its slope where the log-odds of y1 = 1 are `size`."""
    parts = (torch.zeros(1, 2), torch.zeros(1), torch.zeros(1))
    energy = LinearEnergy(OutputSpace((2, 2)), torch.tensor([[-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), parts)
    x = torch.tensor([[size, 0.0, 0.0]], requires_grad=True)
    likelihood = Likelihood(exact_limit=exact_limit)
    evidence = likelihood.target_evidence(energy, x, torch.tensor([0]), torch.tensor([1]))
    return evidence, torch.autograd.grad(evidence.sum(), x)[0][0, 0]


@pytest.mark.parametrize("exact_limit", [4096, 1])
@pytest.mark.parametrize("size", [-60.0, -20.0, 0.0, 20.0, 60.0])
def test_evidence_keeps_its_slope_where_the_energy_is_certain(exact_limit: int, size: float) -> None:
    evidence, slope = certain(exact_limit, size)
    assert evidence.item() == pytest.approx(size, rel=1e-4, abs=1e-5)
    assert slope.item() == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("exact_limit", [4096, 1])
@pytest.mark.parametrize("size", [-500.0, 500.0])
def test_evidence_is_finite_beyond_any_probability(exact_limit: int, size: float) -> None:
    evidence, slope = certain(exact_limit, size)
    assert evidence.isfinite().all()
    assert evidence.sign().item() == math.copysign(1, size)
    assert slope.isfinite()


@pytest.mark.parametrize("exact_limit", [4096, 1])
def test_evidence_keeps_its_slope_beyond_the_smallest_probability(exact_limit: int) -> None:
    assert certain(exact_limit, 80.0)[1].item() == pytest.approx(1.0, rel=1e-3)


# --- which inference -------------------------------------------------------------------------------------


def test_inference_is_exact_up_to_the_limit() -> None:
    energy, x = network(OutputSpace((2, 3))), rows()
    assert Likelihood(exact_limit=6).is_exact(energy)
    assert not Likelihood(exact_limit=5).is_exact(energy)
    exact, steps = (Likelihood(exact_limit=n).log_marginals(energy, x) for n in (6, 5))
    assert not torch.allclose(exact, steps)
    assert torch.equal(Likelihood().predict(energy, x), energy.space.most_likely(exact))
