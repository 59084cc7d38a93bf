"""Path saliency and the evidence it differentiates: completeness, signs, and limits."""

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
from sointer.interpreter.saliency import Saliency, path_positions, path_saliency, target_saliency


@dataclass
class LinearEnergy:
    """E(x, y) = y' A x + b' softplus(B y + c)."""

    space: OutputSpace
    A: Tensor
    coupling: tuple[Tensor, Tensor, Tensor] | None = None

    def unary(self, x: Tensor) -> Tensor:
        return x @ self.A.T

    def project(self, x: Tensor) -> Tensor:
        return x

    def unary_of(self, projected: Tensor) -> Tensor:
        return self.unary(projected)

    def pull_back(self, gradient: Tensor, targets: Tensor) -> Tensor:
        return gradient


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
def test_saliency_of_linear_evidence_is_exact(n_steps: int) -> None:
    w, x = torch.tensor([2.0, -1.0, 0.0]), rows()
    reference = torch.tensor([[1.0, 0.5, -3.0]])
    saliency = path_saliency(lambda points: points @ w, x, reference, n_steps)
    torch.testing.assert_close(saliency.signed, w * (x - reference))
    torch.testing.assert_close(saliency.size, (w * (x - reference)).abs())


def test_saliency_equals_the_midpoint_rule_by_loops() -> None:
    reference, n_steps = [0.5, -1.0, 0.0], 6
    x = rows(2)
    saliency = path_saliency(lambda p: p[:, 0] ** 2 * p[:, 1] + p[:, 2] ** 3, x, torch.tensor([reference]), n_steps)
    for row, values in zip(x.tolist(), saliency.signed.tolist(), strict=True):
        expected = [0.0, 0.0, 0.0]
        for step in range(n_steps):
            t = (step + 0.5) / n_steps
            a, b, c = (r + t * (v - r) for v, r in zip(row, reference, strict=True))
            for j, slope in enumerate([2 * a * b, a * a, 3 * c * c]):
                expected[j] += slope * (row[j] - reference[j]) / n_steps
        assert values == pytest.approx(expected, abs=1e-4)


def test_saliency_is_complete_for_one_reference() -> None:
    energy, likelihood, x = network(OutputSpace((2, 3))), Likelihood(), rows()
    targets, values = torch.tensor([0, 1, 1, 0]), torch.tensor([1, 2, 0, 0])
    reference = torch.tensor([[0.2, -0.4, 1.0]])
    saliency = target_saliency(energy, likelihood, x, targets, values, reference, 200)
    with torch.no_grad():
        gap = likelihood.target_evidence(energy, x, targets, values) - likelihood.target_evidence(
            energy, reference.expand(4, -1), targets, values
        )
    torch.testing.assert_close(saliency.signed.sum(dim=1), gap, atol=2e-3, rtol=2e-3)
    assert gap.abs().max() > 0.1


def test_saliency_is_complete_on_average_over_references() -> None:
    references, x = rows(8, seed=3), rows()

    def evidence(points: Tensor) -> Tensor:
        return torch.tanh(points).sum(dim=1)

    saliency = path_saliency(evidence, x, references, 800)
    gap = evidence(x) - evidence(references).mean()
    torch.testing.assert_close(saliency.signed.sum(dim=1), gap, atol=0.05, rtol=0)


def test_opposite_paths_cancel_in_the_sign_but_not_in_the_size() -> None:
    saliency = path_saliency(lambda p: p.sum(dim=1), torch.zeros(1, 3), torch.tensor([[1.0] * 3, [-1.0] * 3]), 4)
    assert saliency.signed.tolist() == [[0.0] * 3]
    assert saliency.size.tolist() == [[1.0] * 3]


@pytest.mark.parametrize("at_once", [1, 30, 10**6])
def test_saliency_does_not_depend_on_how_many_steps_are_taken_at_once(monkeypatch, at_once) -> None:
    references, x, positions = rows(5, seed=3), rows(), path_positions(7)
    monkeypatch.setattr("sointer.interpreter.saliency.AT_ONCE", at_once)
    found = path_saliency(lambda p: p.pow(3).sum(dim=1), x, references, 7)
    each = [
        3 * (start + share * (x - start)).square() * (x - start)
        for share, start in zip(positions, references.repeat(2, 1), strict=False)
    ]
    torch.testing.assert_close(found.signed, torch.stack(each).mean(dim=0))
    torch.testing.assert_close(found.size, torch.stack(each).abs().mean(dim=0))


def test_saliency_works_where_gradients_are_off_and_leaves_no_graph() -> None:
    with torch.no_grad():
        saliency = path_saliency(lambda p: p.square().sum(dim=1), rows(), torch.zeros(1, 3), 4)
    torch.testing.assert_close(saliency.signed, rows().square())
    assert not saliency.signed.requires_grad


def test_columns_add_up_to_their_units() -> None:
    columns = Saliency(torch.tensor([[1.0, -2.0, 4.0]]), torch.tensor([[1.0, 2.0, 4.0]]))
    units = columns.of_units(torch.tensor([1, 0, 1]), 3)
    assert units.signed.tolist() == [[-2.0, 5.0, 0.0]]
    assert units.size.tolist() == [[2.0, 5.0, 0.0]]


# --- targets ---------------------------------------------------------------------------------------------


def test_what_speaks_for_the_predicted_class_is_positive() -> None:
    # Energy -x1 for y1 = 1: a large x1 speaks for y1 = 1 and against y1 = 0.
    energy = LinearEnergy(OutputSpace((2, 2)), torch.tensor([[-1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]))
    x, reference = torch.tensor([[3.0, 1.0, 1.0]] * 3), torch.zeros(1, 3)
    saliency = target_saliency(energy, Likelihood(), x, torch.tensor([0, 0, 1]), torch.tensor([1, 0, 1]), reference, 4)
    assert saliency.signed.flatten().tolist() == pytest.approx([3, 0, 0, -3, 0, 0, 0, 0, -2], abs=1e-5)
    assert saliency.size.flatten().tolist() == pytest.approx([3, 0, 0, 3, 0, 0, 0, 0, 2], abs=1e-5)


def test_every_row_has_its_own_target_on_every_step() -> None:
    energy, x = network(OutputSpace((2, 3))), rows(3)
    targets, values = torch.tensor([0, 1, 1]), torch.tensor([1, 2, 0])
    together = target_saliency(energy, Likelihood(), x, targets, values, rows(2, seed=5), 6)
    for i in range(3):
        alone = target_saliency(energy, Likelihood(), x[[i]], targets[[i]], values[[i]], rows(2, seed=5), 6)
        torch.testing.assert_close(together.signed[[i]], alone.signed, atol=1e-5, rtol=1e-4)


def test_a_feature_of_another_output_gets_credit_through_the_coupling() -> None:
    parts = (torch.tensor([[6.0, 6.0]]), torch.tensor([-9.0]), torch.tensor([-1.0]))
    A = torch.tensor([[-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    x, target, value = torch.tensor([[2.0, 1.0, 1.0]]), torch.tensor([1]), torch.tensor([1])
    for likelihood in (Likelihood(), Likelihood(exact_limit=1)):
        coupled = LinearEnergy(OutputSpace((2, 2)), A, parts)
        saliency = target_saliency(coupled, likelihood, x, target, value, torch.full((1, 3), -4.0), 16)
        assert saliency.signed[0, 0] > 0.5
        assert saliency.signed[0, 1:].tolist() == [0.0, 0.0]
        alone = target_saliency(LinearEnergy(OutputSpace((2, 2)), A), likelihood, x, target, value, x * 0, 16)
        assert not alone.signed.any()


def test_continuous_saliency_points_towards_the_prediction() -> None:
    # The mean of y is x1; the usual value is that of the references, 1.
    energy = LinearEnergy(OutputSpace((1,), is_continuous=True), torch.tensor([[-1.0, 0.0, 0.0]]))
    references = torch.tensor([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    x, targets = (
        torch.tensor([[5.0, 1.0, 1.0], [-5.0, 1.0, 1.0], [5.0, 1.0, 1.0]]),
        torch.zeros(3, dtype=torch.long),
    )
    values = torch.tensor([4.0, -4.0, 0.5])
    saliency = target_saliency(energy, Likelihood(), x, targets, values, references, 4)
    # Up for the high prediction, down for the low one; the third prediction is low although x1 is high.
    assert saliency.signed[:, 0].tolist() == pytest.approx([4.0, 6.0, -4.0])
    assert saliency.size[:, 0].tolist() == pytest.approx([4.0, 6.0, 4.0])


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


def test_continuous_evidence_is_the_mean_and_its_likelihood_a_square() -> None:
    energy = LinearEnergy(OutputSpace((1, 1), is_continuous=True), torch.tensor([[-1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]))
    x, targets, values = torch.tensor([[3.0, 1.0, 0.0]] * 2), torch.tensor([0, 1]), torch.tensor([1.0, 1.0])
    assert Likelihood().target_evidence(energy, x, targets, values).tolist() == [3.0, -2.0]
    assert Likelihood().target_log_likelihood(energy, x, targets, values).tolist() == [-2.0, -4.5]


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
