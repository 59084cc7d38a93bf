"""Every inference routine against enumeration by loops, on small energies built by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from sointer.energy import inference as enumeration
from sointer.energy.inference import (
    best_other,
    cheapest_change,
    conditional_log_probabilities,
    energy_table,
    exact_log_marginals,
    gradient_inference,
    mean_field_log_marginals,
    mean_field_log_odds,
    target_log_odds,
    target_log_weights,
)
from sointer.energy.networks import SeparateEnergy, VectorEnergy
from sointer.energy.space import OutputSpace

SPACES = [(2, 2, 2), (2, 3, 4), (3, 3), (1, 2, 3)]


@dataclass
class LinearEnergy:
    """E(x, y) = y' A x + b' softplus(B y + c)."""

    space: OutputSpace
    A: Tensor
    parts: tuple[Tensor, Tensor, Tensor] | None

    def unary(self, x: Tensor) -> Tensor:
        return x @ self.A.T

    @property
    def coupling(self) -> tuple[Tensor, Tensor, Tensor] | None:
        return self.parts

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        total = (self.unary(x) * y).sum(dim=1)
        if self.parts is not None:
            weight, offset, b = self.parts
            total = total + torch.log1p(torch.exp(y @ weight.T + offset)) @ b
        return total


def random_energy(space: OutputSpace, seed: int, *, strength: float = 1.0, n_units: int = 5) -> LinearEnergy:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    parts = (normal(n_units, space.n_columns), normal(n_units), strength * normal(n_units))
    return LinearEnergy(space, normal(space.n_columns, 3), parts)


def rows(n: int = 5, seed: int = 1) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))


# --- slow twins ------------------------------------------------------------------------------------------


def slow_encode(codes: tuple[int, ...], n_classes: tuple[int, ...]) -> list[float]:
    columns: list[float] = []
    for code, n in zip(codes, n_classes, strict=True):
        columns += [float(code)] if n == 2 else [float(code == c) for c in range(n)]
    return columns


def slow_energies(energy: LinearEnergy, x: list[float]) -> dict[tuple[int, ...], float]:
    """E(x, y) of every y, by loops."""
    result = {}
    A = energy.A.tolist()
    for codes in itertools.product(*map(range, energy.space.n_classes)):
        y = slow_encode(codes, energy.space.n_classes)
        total = sum(y[i] * A[i][j] * x[j] for i in range(len(y)) for j in range(len(x)))
        if energy.parts is not None:
            for w, c, b in zip(*(part.tolist() for part in energy.parts), strict=True):
                total += b * math.log1p(math.exp(sum(w[i] * y[i] for i in range(len(y))) + c))
        result[codes] = total
    return result


def slow_log_marginals(energies: dict[tuple[int, ...], float], n_classes: tuple[int, ...]) -> list[float]:
    total = sum(math.exp(-e) for e in energies.values())
    return [
        math.log(sum(math.exp(-e) for codes, e in energies.items() if codes[i] == c) / total)
        for i, n in enumerate(n_classes)
        for c in range(n)
    ]


# --- exact -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", SPACES)
def test_energy_table_lists_every_energy_in_order(n_classes: tuple[int, ...]) -> None:
    energy, x = random_energy(OutputSpace(n_classes), 0), rows()
    table = energy_table(energy, energy.unary(x))
    for row, values in zip(x.tolist(), table.tolist(), strict=True):
        assert values == pytest.approx(list(slow_energies(energy, row).values()), abs=1e-4)


@pytest.mark.parametrize("n_classes", SPACES)
@pytest.mark.parametrize("seed", range(3))
def test_exact_marginals_equal_enumeration(n_classes: tuple[int, ...], seed: int) -> None:
    energy, x = random_energy(OutputSpace(n_classes), seed), rows()
    result = exact_log_marginals(energy, x)
    for row, values in zip(x.tolist(), result.tolist(), strict=True):
        assert values == pytest.approx(slow_log_marginals(slow_energies(energy, row), n_classes), abs=1e-4)


def test_exact_marginals_do_not_depend_on_the_table_size(monkeypatch: pytest.MonkeyPatch) -> None:
    energy, x = random_energy(OutputSpace((2, 3)), 0), rows(50)
    expected = exact_log_marginals(energy, x)
    monkeypatch.setattr(enumeration, "TABLE_ENTRIES", 1)
    torch.testing.assert_close(exact_log_marginals(energy, x), expected)
    assert exact_log_marginals(energy, x[:0]).shape == (0, 5)


def slow_log_weights(energy: LinearEnergy, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    here = energy.space.configuration_labels.T.bool()[label]
    log_weight = -energy_table(energy, energy.unary(x)).double()
    with_label = torch.logsumexp(log_weight.masked_fill(~here, -torch.inf), dim=1)
    return with_label, torch.logsumexp(log_weight.masked_fill(here, -torch.inf), dim=1)


@pytest.mark.parametrize("table_entries", [1, 2**17])
@pytest.mark.parametrize("certainty", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("n_classes", [(2, 2, 2), (2, 3, 4), (3, 3)])
def test_weights_with_a_label_and_without_and_their_slopes(monkeypatch, n_classes, certainty, table_entries) -> None:
    monkeypatch.setattr(enumeration, "TABLE_ENTRIES", table_entries)
    energy = random_energy(OutputSpace(n_classes), 1)
    x = (certainty * rows(40)).requires_grad_(True)
    label = torch.arange(40) % energy.space.n_labels
    for found, expected in zip(target_log_weights(energy, x, label), slow_log_weights(energy, x, label), strict=True):
        torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-5)
        slopes = [
            torch.autograd.grad((side * torch.arange(40)).sum(), x, retain_graph=True)[0] for side in (found, expected)
        ]
        torch.testing.assert_close(slopes[0], slopes[1], atol=2e-3, rtol=1e-3)


@torch.random.fork_rng(devices=[])
def test_exact_marginals_of_a_network_equal_its_own_energies() -> None:
    torch.manual_seed(0)
    energy = VectorEnergy(3, OutputSpace((2, 3)), hidden=(4,), coupling_units=3)
    torch.nn.init.normal_(energy.b)
    x = rows(4)
    y = energy.space.configuration_columns
    table = torch.stack([energy(x, one.expand(4, -1)) for one in y], dim=1)
    expected = torch.softmax(-table.double(), dim=1) @ energy.space.configuration_labels.double()
    torch.testing.assert_close(exact_log_marginals(energy, x).exp().double(), expected, atol=1e-5, rtol=1e-5)


# --- conditionals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", SPACES)
def test_conditionals_are_ratios_of_exponentials(n_classes: tuple[int, ...]) -> None:
    energy = random_energy(OutputSpace(n_classes), 3)
    space = energy.space
    for x in rows(3):
        energies = slow_energies(energy, x.tolist())
        codes = space.configurations
        q = space.one_hot(codes)
        result = conditional_log_probabilities(energy, x.expand(len(codes), -1), q).tolist()
        for y, values in zip(itertools.product(*map(range, n_classes)), result, strict=True):
            expected = []
            for i, n in enumerate(n_classes):
                weights = [math.exp(-energies[(*y[:i], c, *y[i + 1 :])]) for c in range(n)]
                expected += [math.log(w / sum(weights)) for w in weights]
            assert values == pytest.approx(expected, abs=1e-4)


# --- mean field ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", SPACES)
def test_mean_field_is_exact_without_coupling(n_classes: tuple[int, ...]) -> None:
    energy, x = random_energy(OutputSpace(n_classes), 0, strength=0.0), rows()
    expected = exact_log_marginals(energy, x)
    torch.testing.assert_close(mean_field_log_marginals(energy, x), expected, atol=1e-4, rtol=1e-4)
    uncoupled = LinearEnergy(energy.space, energy.A, None)
    torch.testing.assert_close(mean_field_log_marginals(uncoupled, x), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("n_classes", SPACES)
def test_mean_field_is_close_to_exact_for_weak_coupling(n_classes: tuple[int, ...]) -> None:
    energy, x = random_energy(OutputSpace(n_classes), 0, strength=0.3), rows(20)
    exact = exact_log_marginals(energy, x).exp()
    uncoupled = mean_field_log_marginals(energy, x, n_steps=0).exp()
    error = (mean_field_log_marginals(energy, x).exp() - exact).abs()
    assert error.max() < 0.05
    assert error.mean() < 0.3 * (uncoupled - exact).abs().mean()


@pytest.mark.parametrize("n_steps", [1, 2, 6])
@pytest.mark.parametrize("n_outputs", [3, 20])
def test_log_odds_of_the_target_and_their_slopes(n_outputs, n_steps) -> None:
    energy = random_energy(OutputSpace((2,) * n_outputs), 2, n_units=18)
    unary = energy.unary(rows(50)).requires_grad_(True)
    targets = torch.arange(50) % n_outputs
    every = mean_field_log_odds(energy, unary, n_steps=n_steps, damping=0.3)
    expected = every.gather(1, targets.unsqueeze(1)).squeeze(1)
    found = target_log_odds(energy, unary, targets, n_steps=n_steps, damping=0.3)
    torch.testing.assert_close(found, expected)
    slopes = [torch.autograd.grad((side * torch.arange(50)).sum(), unary)[0] for side in (found, expected)]
    assert slopes[1].abs().gt(1e-3).float().mean() > 0.9, "the target would depend on itself alone"
    torch.testing.assert_close(slopes[0], slopes[1], atol=1e-4, rtol=1e-4)
    uncoupled = LinearEnergy(energy.space, energy.A, None)
    alone = target_log_odds(uncoupled, unary, targets, n_steps=n_steps, damping=0.3)
    assert torch.equal(alone, -unary.gather(1, targets.unsqueeze(1)).squeeze(1))
    with torch.no_grad():
        assert torch.equal(target_log_odds(energy, unary, targets, n_steps=n_steps, damping=0.3), found)


@pytest.mark.parametrize("damping", [0.2, 0.5])
def test_mean_field_ends_where_every_output_fits_the_slope_at_the_mean(damping: float) -> None:
    space = OutputSpace((2, 3))
    energy, x = random_energy(space, 4, strength=0.5), rows()
    q = mean_field_log_marginals(energy, x, n_steps=60, damping=damping).exp()
    A, (weight, offset, b) = energy.A.tolist(), (part.tolist() for part in energy.parts)
    for row, values in zip(x.tolist(), q.tolist(), strict=True):
        mean = [values[1], *values[2:]]  # the encoded mean: one number, then one-hot

        def slope(i: int, row: list[float] = row, mean: list[float] = mean) -> float:
            units = [
                v * w[i] / (1 + math.exp(-(sum(w[j] * mean[j] for j in range(4)) + c)))
                for w, c, v in zip(weight, offset, b, strict=True)
            ]
            return sum(A[i][j] * row[j] for j in range(3)) + sum(units)

        first = [1.0, math.exp(-slope(0))]
        second = [math.exp(-slope(i)) for i in (1, 2, 3)]
        expected = [v / sum(first) for v in first] + [v / sum(second) for v in second]
        assert values == pytest.approx(expected, abs=1e-4)


def through_another_output(strength: float) -> LinearEnergy:
    """y1 follows x; y2 sees x only through "y1 and y2 together", which costs -strength."""
    parts = (torch.tensor([[6.0, 6.0]]), torch.tensor([-9.0]), torch.tensor([-strength]))
    return LinearEnergy(OutputSpace((2, 2)), torch.tensor([[-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), parts)


@pytest.mark.parametrize("marginals", [exact_log_marginals, mean_field_log_marginals])
def test_credit_flows_through_other_outputs(marginals) -> None:
    x = torch.tensor([[-1.0, 1.0, -1.0]], requires_grad=True)
    energy = through_another_output(1.0)
    (gradient,) = torch.autograd.grad(marginals(energy, x)[0, 3], x)
    # d log p(y2 = 1) / dx1 = p(y1 = 1 | y2 = 1) - p(y1 = 1): more x1, more y1, more y2.
    p = {codes: math.exp(-e) for codes, e in slow_energies(energy, x.tolist()[0]).items()}
    expected = p[1, 1] / (p[0, 1] + p[1, 1]) - (p[1, 0] + p[1, 1]) / sum(p.values())
    assert expected > 0.05
    assert gradient[0, 0] > 0.05
    if marginals is exact_log_marginals:
        assert gradient[0, 0].item() == pytest.approx(expected, rel=1e-3)
    assert gradient[0, 1:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("marginals", [exact_log_marginals, mean_field_log_marginals])
def test_gradients_of_marginals_equal_finite_differences(marginals) -> None:
    energy = random_energy(OutputSpace((2, 3)), 5, strength=0.5)
    x = rows(1).requires_grad_(True)
    (gradient,) = torch.autograd.grad(marginals(energy, x)[0, 3], x)
    h = 1e-2
    for j in range(3):
        step = torch.zeros(1, 3)
        step[0, j] = h
        with torch.no_grad():
            slope = (marginals(energy, x + step) - marginals(energy, x - step))[0, 3] / (2 * h)
        assert gradient[0, j].item() == pytest.approx(slope.item(), abs=2e-3)


# --- the least energy ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [(2, 2, 2, 2), (2, 3, 4), (3, 3, 3)])
def test_gradient_inference_usually_finds_the_minimum(n_classes: tuple[int, ...]) -> None:
    found, total = 0, 0
    for seed in range(4):
        energy, x = random_energy(OutputSpace(n_classes), seed, strength=0.5), rows(25, seed)
        codes = gradient_inference(energy, x)
        for row, y in zip(x.tolist(), codes.tolist(), strict=True):
            energies = slow_energies(energy, row)
            found += tuple(y) == min(energies, key=energies.__getitem__)
            total += 1
    assert found / total > 0.9


def test_gradient_inference_is_exact_without_coupling() -> None:
    energy, x = LinearEnergy(OutputSpace((2, 3)), rows(4, seed=2), None), rows(20)
    exact = energy.space.configurations[energy_table(energy, energy.unary(x)).argmin(dim=1)]
    assert torch.equal(gradient_inference(energy, x), exact)


def test_gradient_inference_follows_the_coupling() -> None:
    # Alone, both outputs are slightly better off; together they are not.
    parts = (torch.tensor([[4.0, 4.0]]), torch.tensor([-6.0]), torch.tensor([5.0]))
    energy = LinearEnergy(OutputSpace((2, 2)), torch.tensor([[-1.0, 0.0, 0.0], [-0.5, 0.0, 0.0]]), parts)
    assert gradient_inference(energy, torch.tensor([[1.0, 0.0, 0.0]])).tolist() == [[1, 0]]


@pytest.mark.parametrize("n_classes", SPACES)
def test_best_other_is_the_least_energy_but_one(n_classes: tuple[int, ...]) -> None:
    energy, x = random_energy(OutputSpace(n_classes), 6), rows(8)
    expected, given = [], []
    for number, row in enumerate(x.tolist()):
        energies = slow_energies(energy, row)
        order = sorted(energies, key=energies.__getitem__)
        given.append(order[0] if number % 2 else order[-1])
        expected.append(list(order[1] if number % 2 else order[0]))
    assert best_other(energy, x, torch.tensor(given), exact=True).tolist() == expected


@pytest.mark.parametrize("n_classes", SPACES)
def test_best_other_is_never_the_same(n_classes: tuple[int, ...]) -> None:
    space = OutputSpace(n_classes)
    n = len(space.configurations)
    x, codes = rows(10).repeat_interleave(n, dim=0), space.configurations.repeat(10, 1)
    for exact in (True, False):
        other = best_other(random_energy(space, 0), x, codes, exact=exact)
        assert (other != codes).any(dim=1).all()
        assert (other >= 0).all()
        assert (other < torch.tensor(n_classes)).all()


def test_best_other_keeps_what_the_search_found() -> None:
    energy, x = random_energy(OutputSpace((2, 2, 2)), 0, strength=0.1), rows(20)
    found = gradient_inference(energy, x)
    assert torch.equal(best_other(energy, x, 1 - found, exact=False), found)
    changed = best_other(energy, x, found, exact=False)
    assert torch.equal(changed, cheapest_change(energy, x, found))


@pytest.mark.parametrize("n_classes", SPACES)
def test_cheapest_change_is_the_best_single_change(n_classes: tuple[int, ...]) -> None:
    space = OutputSpace(n_classes)
    energy = random_energy(space, 7)
    for x in rows(4):
        energies = slow_energies(energy, x.tolist())
        codes = space.configurations
        result = cheapest_change(energy, x.expand(len(codes), -1), codes).tolist()
        for y, changed in zip(itertools.product(*map(range, n_classes)), result, strict=True):
            near = [z for z in energies if sum(a != b for a, b in zip(y, z, strict=True)) == 1]
            assert tuple(changed) == min(near, key=energies.__getitem__)


def test_cheapest_change_leaves_its_argument_alone() -> None:
    energy, codes = random_energy(OutputSpace((2, 3)), 0), torch.tensor([[0, 1]])
    cheapest_change(energy, rows(1), codes)
    assert codes.tolist() == [[0, 1]]


@torch.random.fork_rng(devices=[])
def test_separate_energies_need_no_coupling() -> None:
    torch.manual_seed(0)
    energy, x = SeparateEnergy(3, OutputSpace((2, 3)), hidden=(4,)), rows(4)
    torch.testing.assert_close(mean_field_log_marginals(energy, x), exact_log_marginals(energy, x))
    codes = gradient_inference(energy, x)
    assert torch.equal(best_other(energy, x, codes, exact=True), best_other(energy, x, codes, exact=False))
