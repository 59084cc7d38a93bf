"""Effects against brute force: units redrawn one by one, long path integrals, sampled Shapley values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from sointer.data.outputs import Outputs
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import SeparateEnergy, VectorEnergy
from sointer.energy.space import OutputSpace, PiecewiseLinear
from sointer.interpreter.effects import Effects, GradientNetwork, OutputUnits, redraw_effects
from sointer.interpreter.scoring import completed, goals, none_above_one

N_COLUMNS = 5
RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(200, N_COLUMNS))
UNITS = torch.tensor([0, 1, 1, 2, 3])  # columns 1 and 2 are one unit
ANSWERS = {
    "labels": np.column_stack([DATA[:, 0] > 0, DATA[:, 1] + DATA[:, 2] > 0]).astype(int),
    "classes": np.column_stack([np.digitize(DATA[:, 0], [-0.5, 0.5]), (DATA[:, 3] > 0).astype(int)]),
    "numbers": np.column_stack([1000 * np.exp(DATA[:, 0]), 5 + DATA[:, 1]]),
}


def outputs_of(kind: str) -> Outputs:
    return Outputs.infer(ANSWERS[kind])


@torch.random.fork_rng(devices=[])
def make_energy(space: OutputSpace, kind: type = VectorEnergy, seed: int = 0) -> VectorEnergy | SeparateEnergy:
    torch.manual_seed(seed)
    encoding = PiecewiseLinear.of(DATA, np.zeros(N_COLUMNS))
    energy = kind(encoding, space, hidden=(12, 8), activation="silu", output_offset=True)
    weight = energy.a.weight if kind is VectorEnergy else energy.a
    torch.nn.init.normal_(weight, std=3.0)
    with torch.no_grad():
        for name, parameter in energy.named_parameters():
            if name.startswith(("layers", "weights")):
                parameter.mul_(2.5)  # so that it bends, and expects something else of each sample
    if kind is VectorEnergy:
        torch.nn.init.normal_(energy.b, std=0.5)
    return energy.requires_grad_(False)


def make_effects(
    kind: str = "labels", *, n_references: int = 1, energy_kind: type = VectorEnergy, seed: int = 0
) -> Effects:
    outputs = outputs_of(kind)
    energy = make_energy(OutputSpace.of(outputs), energy_kind, seed)
    units = OutputUnits.of(outputs, energy.space.column_output)
    effects = Effects(energy, Likelihood(), units, n_references, 4)
    effects.refer_to(rows(n_references, start=100), UNITS)
    return effects


def rows(n: int, start: int = 0) -> Tensor:
    return torch.from_numpy(DATA[start : start + n].astype(np.float32))


# --- redraws -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("energy_kind", [VectorEnergy, SeparateEnergy])
@pytest.mark.parametrize("kind", ["labels", "classes"])
@pytest.mark.parametrize("exact_limit", [4096, 1])
def test_redraws_equal_inputs_redrawn_one_by_one(kind: str, energy_kind: type, exact_limit: int) -> None:
    space = OutputSpace.of(outputs_of(kind))
    energy, likelihood = make_energy(space, energy_kind), Likelihood(exact_limit)
    x, references, units = rows(6), rows(3, start=50), torch.tensor([0, 1, 3])
    found = redraw_effects(energy, likelihood, x, references, UNITS, units)
    assert found.shape == (6, 3, space.n_outputs)
    for i, (place, unit) in itertools.product(range(6), enumerate(units.tolist())):
        before = likelihood.log_marginals(energy, x[i : i + 1]).exp()[0]
        squares = np.zeros(space.n_outputs)
        for reference in references:
            moved = x[i].clone()
            for column in range(N_COLUMNS):
                if UNITS[column] == unit:
                    moved[column] = reference[column]
            after = likelihood.log_marginals(energy, moved.unsqueeze(0)).exp()[0]
            for label, output in enumerate(space.label_output.tolist()):
                squares[output] += float(after[label] - before[label]) ** 2 / 2 / len(references)
        np.testing.assert_allclose(found[i, place], np.sqrt(squares), atol=1e-4)
    assert found.max() > 0.05


def test_redraws_do_not_depend_on_how_many_rows_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    energy = make_energy(OutputSpace((2, 2)))
    whole = redraw_effects(energy, Likelihood(), rows(20), rows(4, 50), UNITS, torch.arange(4))
    monkeypatch.setattr("sointer.interpreter.effects.MAX_NUMBERS", 1)
    torch.testing.assert_close(
        redraw_effects(energy, Likelihood(), rows(20), rows(4, 50), UNITS, torch.arange(4)), whole, atol=1e-5, rtol=1e-4
    )


def test_a_unit_without_weights_has_no_effect() -> None:
    energy = make_energy(OutputSpace((2, 2)))
    energy.first.weight[:, UNITS[energy.encoding.column] == 1] = 0.0
    effects = redraw_effects(energy, Likelihood(), rows(10), rows(4, 50), UNITS, torch.arange(4))
    assert effects[:, 1].abs().max() < 1e-6
    assert effects[:, [0, 2, 3]].mean() > 1e-3


# --- signed effects ------------------------------------------------------------------------------------------


def expected_at(effects: Effects, encoded: Tensor, columns: Tensor) -> Tensor:
    """What the energy expects at encoded points, in the unit of the output."""
    return effects._output(effects.energy.project_encoded(encoded), columns)


def slow_effects(effects: Effects, x: Tensor, columns: Tensor, reference: Tensor, n_points: int = 400) -> np.ndarray:
    """By finite differences, unit by unit, along the straight way of the encoded inputs: nothing is differentiated."""
    encoding = effects.energy.encoding
    start, end = encoding(reference), encoding(x)
    owner, total = UNITS[encoding.column], np.zeros((len(x), 4))
    h = 0.02
    for share in (np.arange(n_points) + 0.5) / n_points:
        point = start + float(share) * (end - start)
        for unit in range(4):
            step = h * (end - start) * (owner == unit)
            rise = expected_at(effects, point + step, columns) - expected_at(effects, point - step, columns)
            total[:, unit] += (rise / (2 * h) / n_points).numpy()
    return total


@pytest.mark.parametrize("energy_kind", [VectorEnergy, SeparateEnergy])
@pytest.mark.parametrize("kind", list(ANSWERS))
def test_effects_are_the_path_integral_by_finite_differences(kind: str, energy_kind: type) -> None:
    effects = make_effects(kind, energy_kind=energy_kind)
    x, n_columns = rows(8), effects.energy.space.n_columns
    columns = torch.arange(8) % n_columns
    found = effects(x, columns).numpy()
    expected = slow_effects(effects, x, columns, rows(1, start=100), n_points=64)
    size = np.abs(expected).max(axis=1, keepdims=True)
    assert (np.abs(found - expected) / size).mean() < 0.05
    assert np.corrcoef((found / size).ravel(), (expected / size).ravel())[0, 1] > 0.99


@pytest.mark.parametrize("kind", ["labels", "classes"])
def test_effects_add_up_to_what_is_expected_less_the_base(kind: str) -> None:
    effects = make_effects(kind)
    x = rows(30)
    for column in range(effects.energy.space.n_columns):
        columns = torch.full((30,), column)
        gap = effects.expected(x, columns) - effects.base[column]
        torch.testing.assert_close(effects(x, columns).sum(dim=1), gap, atol=0.03, rtol=0.05)
        assert gap.abs().max() > 0.05


def test_from_many_references_effects_are_the_mean_of_those_from_each() -> None:
    """Also where the output responds otherwise on the way from one than from another."""
    effects, x, columns = make_effects("labels", n_references=8), rows(20), torch.zeros(20, dtype=torch.long)
    encoded = effects.energy.encoding(x)
    means = effects.along_paths(effects.energy.project_encoded(encoded), columns, 512)
    found = effects.of_means(means, encoded, columns).numpy()
    slow = np.mean([slow_effects(effects, x, columns, rows(1, start=100 + i), n_points=64) for i in range(8)], axis=0)
    np.testing.assert_allclose(found, slow, atol=0.02)
    gap = (effects.expected(x, columns) - effects.base[0]).numpy()
    np.testing.assert_allclose(found.sum(axis=1), gap, atol=0.01)
    by_mean = means._replace(held=None)
    effects.encodings = effects.encodings.mean(dim=0, keepdim=True)
    assert np.abs(effects.of_means(by_mean, encoded, columns).numpy().sum(axis=1) - gap).mean() > 0.02


def test_a_linear_output_needs_no_more_than_two_points_of_many_references() -> None:
    """What references contribute is a covariance: nothing, where the output responds alike everywhere."""
    outputs = Outputs.infer(np.clip(0.5 + 0.02 * DATA[:, :2], 0.01, 0.99), kind="probability")
    torch.manual_seed(0)
    encoding = PiecewiseLinear.of(DATA, np.zeros(N_COLUMNS))
    energy = VectorEnergy(encoding, OutputSpace.of(outputs), hidden=(6,), activation="softplus", output_offset=True)
    with torch.no_grad():
        energy.layers[0].weight.mul_(1e-3)  # so little that it does not bend
        energy.b.zero_()
    energy.requires_grad_(False)
    effects = Effects(energy, Likelihood(), OutputUnits.of(outputs, energy.space.column_output), 40, 4)
    center = energy.encoding(torch.from_numpy(DATA.astype(np.float32))).mean(dim=0)
    effects.refer_to(rows(40, start=100), UNITS, center)
    x, columns = rows(20), torch.zeros(20, dtype=torch.long)
    encoded = energy.encoding(x)
    found = effects.of_means(effects.along_paths(energy.project(x), columns, 2), encoded, columns)
    everything = effects._output(energy.project(torch.from_numpy(DATA.astype(np.float32))), torch.zeros(200).long())
    size = (effects.expected(x, columns) - everything.mean()).abs().mean()
    assert size > 0
    np.testing.assert_allclose(found.sum(dim=1), effects.expected(x, columns) - everything.mean(), atol=0.01 * size)


def test_points_that_use_every_reference_often_need_no_correction() -> None:
    effects = make_effects("numbers", n_references=2)
    x, columns = rows(6), torch.tensor([0, 1, 0, 1, 0, 1])
    encoded, projected = effects.energy.encoding(x), effects.energy.project(x)
    found = effects.of_means(effects.along_paths(projected, columns, 2 * 400), encoded, columns)
    alone = []
    for place in range(2):
        one = make_effects("numbers")
        one.refer_to(rows(2, start=100)[place : place + 1], UNITS)
        alone.append(one.of_means(one.along_paths(projected, columns, 400), encoded, columns))
    wanted = torch.stack(alone).mean(dim=0)
    np.testing.assert_allclose(found, wanted, atol=0.03 * float(wanted.abs().max()))


def test_few_points_are_right_on_average_about_many_references() -> None:
    effects = make_effects("labels", n_references=24)
    x, columns = rows(3), torch.tensor([0, 1, 0])
    encoded, projected = effects.energy.encoding(x), effects.energy.project(x)
    precise = effects.of_means(effects.along_paths(projected, columns, 24 * 40), encoded, columns)
    generator, found = torch.Generator().manual_seed(0), []
    projections, encodings = effects.projections, effects.encodings
    for _ in range(300):
        order = torch.randperm(24, generator=generator)
        effects.projections, effects.encodings = projections[order], encodings[order]
        found.append(effects.of_means(effects.along_paths(projected, columns, 6), encoded, columns))
    mean, error = torch.stack(found).mean(dim=0), torch.stack(found).std(dim=0) / 300**0.5
    assert ((mean - precise).abs() <= 4 * error + 0.03 * precise.abs().max()).all()


def test_more_points_bring_the_sum_closer() -> None:
    effects, x = make_effects("labels"), rows(30)
    columns = torch.zeros(30, dtype=torch.long)
    encoded = effects.energy.encoding(x)
    projected = effects.energy.project_encoded(encoded)
    gap = effects.expected(x, columns) - effects.base[0]
    errors = [
        (effects.of_means(effects.along_paths(projected, columns, n), encoded, columns).sum(dim=1) - gap).abs().mean()
        for n in (2, 16, 256)
    ]
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 2e-3


def test_the_base_is_the_mean_over_references() -> None:
    effects = make_effects("labels", n_references=16)
    for column in range(2):
        expected = effects.expected(rows(16, start=100), torch.full((16,), column)).mean()
        assert effects.base[column].item() == pytest.approx(expected.item(), abs=1e-5)


def test_effects_go_with_sampled_shapley_values() -> None:
    """Over many references: the mean marginal contribution of each unit in random orders."""
    effects = make_effects("labels", n_references=64)
    x, references = rows(20), rows(64, start=100)
    columns = torch.zeros(20, dtype=torch.long)
    rng, shapley = np.random.default_rng(0), np.zeros((20, 4))
    n_orders = 256
    for number in range(n_orders):
        reference = references[number % 64].expand(20, -1)
        present = torch.zeros(N_COLUMNS, dtype=torch.bool)
        before = effects.expected(reference, columns)
        for unit in rng.permutation(4):
            present = present | (unit == UNITS)
            after = effects.expected(torch.where(present, x, reference), columns)
            shapley[:, unit] += (after - before).numpy() / n_orders
            before = after
    found = effects(x, columns).numpy()
    assert np.corrcoef(found.ravel(), shapley.ravel())[0, 1] > 0.9
    strong = np.abs(shapley) > 0.1
    assert strong.any()
    assert (np.sign(found) == np.sign(shapley))[strong].mean() > 0.95


def test_numbers_are_in_their_own_unit() -> None:
    effects, outputs = make_effects("numbers"), outputs_of("numbers")
    x = rows(30)
    for column, curve in enumerate(outputs.quantiles):
        columns = torch.full((30,), column)
        log_p = effects.likelihood.log_marginals(effects.energy, x)
        quantile = log_p.exp()[:, 2 * column + 1].double().numpy()
        inside = (quantile > curve.levels[0]) & (quantile < curve.levels[-1])
        assert inside.mean() > 0.5
        found, decoded = effects.expected(x, columns).numpy(), curve.decode(quantile)
        np.testing.assert_allclose(found[inside], decoded[inside], rtol=1e-3)
        gap = effects.expected(x, columns) - effects.base[column]
        assert np.corrcoef(effects(x, columns).sum(dim=1), gap)[0, 1] > 0.98
    assert effects.base[0] > 100
    assert effects.base[1] < 10


def test_output_units_equal_the_curves_by_interpolation() -> None:
    few, many = np.array([1.0, 1.0, 2.0, 5.0] * 10), np.random.default_rng(0).lognormal(5, 2, size=40)
    outputs = Outputs.infer(np.column_stack([few, many, many > 100]), kind=["continuous", "continuous", "binary"])
    units = OutputUnits.of(outputs, torch.tensor([0, 1, 2]))
    means = torch.rand(300, 3, generator=torch.Generator().manual_seed(0))
    for column in range(3):
        found = units(means, torch.full((300,), column)).numpy()
        own = means[:, column].double().numpy()
        curve = outputs.quantiles[column]
        inside = slice(None) if curve is None else (own > curve.levels[0]) & (own < curve.levels[-1])
        expected = own if curve is None else curve.decode(own)
        np.testing.assert_allclose(found[inside], expected[inside], rtol=1e-3)


# --- one pass ------------------------------------------------------------------------------------------------


@torch.random.fork_rng(devices=[])
def one_pass_effects() -> Effects:
    torch.manual_seed(0)
    effects = make_effects("classes", n_references=3)
    network = GradientNetwork(effects.energy.projection_width, effects.energy.space.n_columns, 16, 4)
    torch.nn.init.normal_(network.held_weight)
    for size, mean in ((network.size, network.mean), (network.held_size, network.held_mean)):
        size.copy_(torch.rand(effects.energy.space.n_columns) + 0.5)
        mean.copy_(torch.randn_like(mean))
    effects.network = network
    return effects.requires_grad_(False)


def test_one_pass_predicts_the_gradient_that_is_pulled_back() -> None:
    effects, x = one_pass_effects(), rows(10)
    columns = torch.arange(10) % effects.energy.space.n_columns
    network = effects.network
    projected = effects.energy.project(x)
    found = network(projected, columns)
    for i, column in enumerate(columns.tolist()):
        gradient, held = (part[0, column] for part in network.standardised(projected[i : i + 1]))
        wanted = network.mean[column] + gradient * network.size[column]
        torch.testing.assert_close(found.gradient[i], wanted, atol=1e-5, rtol=1e-4)
        wanted = network.held_mean[column] + held * network.held_size[column]
        torch.testing.assert_close(found.held[i], wanted, atol=1e-5, rtol=1e-4)
    encoded = effects.energy.encoding(x)
    expected = effects.of_means(found, encoded, columns)
    torch.testing.assert_close(effects(x, columns), expected)


def test_a_row_does_not_depend_on_the_rows_or_the_targets_around_it() -> None:
    """In batches of the same size, as scorers make them: bit by bit."""
    effects, x = one_pass_effects(), rows(64)
    n_columns = effects.energy.space.n_columns
    columns = torch.arange(64) % n_columns
    together = effects(x, columns)
    assert torch.equal(effects(x.flip(0), columns.flip(0)).flip(0), together)
    for alone in (0, 17, 63):
        padded, own = torch.zeros(64, N_COLUMNS), torch.zeros(64, dtype=torch.long)
        padded[0], own[0] = x[alone], columns[alone]
        assert torch.equal(effects(padded, own)[0], together[alone])
    same = effects(x, torch.full((64,), int(columns[5])))
    assert torch.equal(same[5], together[5])


@pytest.mark.parametrize("seed", range(5))
def test_effects_lead_to_the_value_and_keep_their_signs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    effects = rng.normal(size=(50, 6)).astype(np.float32)
    base, goal = rng.normal(size=50).astype(np.float32), rng.normal(size=50)
    goal[:5] = np.nan
    found = completed(effects, base, goal)
    np.testing.assert_array_equal(found[:5], effects[:5])
    assert (np.sign(found) == np.sign(effects)).all()
    missing = goal - base - effects.sum(axis=1)
    within = np.abs(missing) <= 0.9 * np.abs(effects).sum(axis=1)
    assert within[5:].mean() > 0.5
    np.testing.assert_allclose((base + found.sum(axis=1))[within], goal[within], atol=1e-5)
    for before, after in zip(effects, found, strict=True):
        for side in (1, -1):  # those that push the same way keep their order
            own = side * before > 0
            assert (np.argsort(before[own]) == np.argsort(after[own])).all()


def test_nothing_is_shared_out_where_nothing_has_an_effect() -> None:
    found = completed(np.zeros((2, 3), dtype=np.float32), np.zeros(2, dtype=np.float32), np.ones(2))
    assert (found == 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_no_effect_on_a_probability_is_larger_than_one(seed: int) -> None:
    effects = np.random.default_rng(seed).normal(size=(200, 6)).astype(np.float32)
    effects -= effects.mean(axis=1, keepdims=True) * 0.9  # they lead from one probability to another
    found = none_above_one(effects)
    assert (np.abs(effects).max(axis=1) > 1).mean() > 0.5
    assert np.abs(found).max() <= 1 + 1e-6
    fits = np.abs(effects).max(axis=1) <= 1
    np.testing.assert_array_equal(found[fits], effects[fits])
    np.testing.assert_allclose(found.sum(axis=1), effects.sum(axis=1), atol=1e-5)
    assert (np.sign(found) * np.sign(effects) >= 0).all()


def test_effects_on_a_label_lead_nowhere_beyond_zero_or_one() -> None:
    labels, numbers = outputs_of("labels"), outputs_of("numbers")
    effects, base = (
        np.array([[0.9, 0.3], [-0.4, 0.2], [-0.9, 0.1]], dtype=np.float32),
        np.full(3, 0.5, dtype=np.float32),
    )
    targets = np.zeros(3, dtype=np.int64)
    found = completed(effects, base, goals(labels, targets, np.ones(3), effects, base))
    np.testing.assert_allclose(base + found.sum(axis=1), [1.0, 0.3, 0.0], atol=1e-6)
    np.testing.assert_array_equal(found[1], effects[1])
    assert not np.isnan(goals(numbers, targets, np.full(3, 0.5), effects, base)).any()
