"""explanation.paths(): planted routes are found, a slow twin agrees, and every kind of output and input is served."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sointer import SOInter
from sointer.config import InterpreterConfig, TrainingConfig
from sointer.datasets import STRUCTURAL_PROBLEMS, copied_outputs, mixed_continuous, mixed_sum
from sointer.energy.clamping import outputs_given
from sointer.training import conditional_steps

HASTY = {
    "training": TrainingConfig(n_epochs=4, n_rounds=1),
    "interpreter": InterpreterConfig(n_residual_steps=5, n_path_steps=4),
    "random_state": 0,
}


def fitted(structural, *, n_queries=2000, n_epochs=20, seed=0):
    problem = structural.problem
    explainer = SOInter(
        problem,
        k=len(problem.relevant[structural.target]),
        query_budget=n_queries,
        output_names=problem.output_names,
        random_state=seed,
        training=TrainingConfig(n_epochs=n_epochs),
    )
    return explainer.fit(problem.sample(1500, random_state=seed), targets=[structural.target])


@pytest.fixture(scope="module")
def mixed():
    structural = mixed_sum(8).shuffled(3)
    return structural, fitted(structural)


@pytest.fixture
def quick_nets(monkeypatch):
    """For tests of form, not of quality."""
    monkeypatch.setattr(conditional_steps, "N_STEPS", 40)


def explained(structural, explainer, n=60):
    X = structural.problem.sample(n, random_state=77)
    return X, explainer.explain(X, target=structural.target, predicted=structural.problem(X))


def truth(structural, explainer, X, paths, n_draws=16):
    references = explainer.removal_.references(n_draws, np.random.default_rng(0))
    outputs, target = explainer.outputs_, structural.target
    center, scale = (0.0, 1.0) if outputs.scale is None else (outputs.center[target], outputs.scale[target])
    return [part / scale for part in structural.true_paths(X, paths.selected, references, center=center)]


# --- planted truth -------------------------------------------------------------------------------------------


def test_direct_and_mediated_features_are_told_apart(mixed):
    structural, explainer = mixed
    X, explanation = explained(structural, explainer)
    paths = explanation.paths()
    total, direct, through = truth(structural, explainer, X, paths)
    assert np.abs(paths.total - total).mean() < 0.12
    assert np.abs(paths.direct - direct).mean() < 0.05
    y0 = paths.outputs[0].tolist().index(0)
    assert np.abs(paths.through[:, :, y0] - through[:, :, 0]).mean() < 0.1
    place = np.argsort(structural.problem.order)
    means = {j: paths.average(structural.target, int(place[j])) for j in range(4)}
    for j in (0, 1):  # by the equations, straight to the target
        assert means[j][1] > 0.8 * means[j][0] > 0
        assert abs(means[j][2][0]) < 0.2 * means[j][0]
    for j in (2, 3):  # by the equations, through y0 only
        assert abs(means[j][1]) < 0.2 * means[j][0]
        assert means[j][2][0] > 0.8 * means[j][0] > 0


def test_numbers():
    structural = mixed_continuous(6).shuffled(1)
    explainer = fitted(structural)
    X, explanation = explained(structural, explainer)
    paths = explanation.paths()
    total, direct, through = truth(structural, explainer, X, paths)
    assert paths.unit == "standard deviations"
    assert np.abs(paths.total - total).mean() < 0.1
    assert np.abs(paths.direct - direct).mean() < 0.06
    y0 = paths.outputs[0].tolist().index(0)
    assert np.abs(paths.through[:, :, y0] - through[:, :, 0]).mean() < 0.1


def test_copies_are_reported_and_share_their_number():
    structural = copied_outputs(6)
    explainer = fitted(structural)
    _, explanation = explained(structural, explainer)
    paths = explanation.paths()
    assert paths.indistinguishable == [["y0", "y1"]]
    assert "y0, y1" in repr(paths)
    of = {name: paths.through[:, :, paths.outputs[0].tolist().index(i)] for i, name in enumerate(("y0", "y1", "y2"))}
    np.testing.assert_array_equal(of["y0"], of["y1"])
    here = np.isin(paths.selected, (0, 1))  # through one of the copies, whichever
    assert of["y0"][here].mean() > 0.75 * paths.total[here].mean() > 0
    assert abs(paths.direct[here].mean()) < 0.25 * paths.total[here].mean()
    assert abs(of["y2"][here].mean()) < 0.1 * paths.total[here].mean()


def test_a_copy_of_the_target_is_no_way_to_it(quick_nets):
    def model(X):
        yes = X[:, 0] > 0
        return np.column_stack([yes, ~yes, X[:, 1] > 0])

    X = np.random.default_rng(0).normal(size=(400, 4))
    explainer = SOInter(model, k=1, query_budget=400, output_names=["yes", "no", "other"], **HASTY).fit(X)
    paths = explainer.explain(X[:5], target="yes").paths()
    assert paths.indistinguishable == [["yes", "no"]]
    assert paths.outputs.tolist() == [[2, -1]] * 5
    assert np.isnan(paths.through[:, :, 1]).all()
    assert f"cannot be told apart (one-to-one in all {paths.n_answers} answers about whole rows)" in repr(paths)
    assert paths.n_answers == len(explainer.remembered_.codes)
    assert set(paths.to_frame()["path"]) == {"direct", "other"}


@pytest.mark.slow
@pytest.mark.parametrize("name", STRUCTURAL_PROBLEMS)
def test_main_ways_of_all_problems(name):
    structural = STRUCTURAL_PROBLEMS[name](20).shuffled(5)
    explainer = fitted(structural, n_queries=4000, n_epochs=60, seed=5)
    X, explanation = explained(structural, explainer, n=100)
    paths = explanation.paths()
    total, direct, through = truth(structural, explainer, X, paths)
    assert np.abs(paths.total - total).mean() < 0.15
    assert np.abs(paths.direct - direct).mean() < 0.06
    ways = np.concatenate([direct[:, :, None], through[:, :, paths.outputs[0]]], axis=2)
    found = np.concatenate([paths.direct[:, :, None], paths.through], axis=2)
    of_found = np.take_along_axis(np.abs(ways), np.abs(found).argmax(axis=2)[:, :, None], axis=2)[:, :, 0]
    if name != "copied_outputs":  # where the truth cannot be known
        right = of_found >= np.abs(ways).max(axis=2) - 0.1
        assert right[np.abs(total) > 0.1].mean() > 0.9


# --- twins ---------------------------------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_definition(mixed):
    """Point by point, from the definition: same draws, one row at a time, the best configuration by enumeration."""
    structural, explainer = mixed
    X, explanation = explained(structural, explainer, n=4)
    paths = explanation.paths(n_draws=3, random_state=5)
    energy, net, target = explainer.energy_, explainer._tracer.learned[structural.target], structural.target
    said = structural.problem(X)
    weight, offset, b = (part.detach().numpy().astype(np.float64) for part in energy.coupling)

    def outputs_following(x, row, held):
        u = energy.unary(torch.from_numpy((x - explainer.shift_).astype(np.float32))[None]).detach().numpy()[0]
        best, least = None, np.inf
        for number in range(2**3):
            y = np.array([number >> 2 & 1, number >> 1 & 1, number & 1])
            if all(y[i] == said[row, i] for i in held):
                cost = u @ y + b @ np.logaddexp(0, weight @ y + offset)
                if cost < least:
                    best, least = y, cost
        return best

    def support(x, row, y):
        z = net.project(torch.from_numpy((x - explainer.shift_).astype(np.float32))[None])
        chance = torch.softmax(net(z, torch.tensor(y, dtype=torch.float32)[None]), dim=1)[0]
        return float(chance[said[row, target]])

    references = explainer.removal_.references(3, np.random.default_rng(5))

    def average(row, kept, held):
        points = [np.where(np.isin(np.arange(8), kept), X[row], reference) for reference in references]
        everything = held == "all"
        return np.mean([support(x, row, said[row] if everything else outputs_following(x, row, held)) for x in points])

    for row in range(4):
        chosen = paths.selected[row]
        for place, unit in enumerate(chosen):
            without = chosen[chosen != unit]

            def effect(held, row=row, chosen=chosen, without=without):
                return average(row, chosen, held) - average(row, without, held)

            assert paths.total[row, place] == pytest.approx(effect([]), abs=1e-4)
            assert paths.direct[row, place] == pytest.approx(effect("all"), abs=1e-4)
            for column, output in enumerate(paths.outputs[row]):
                lost = effect([]) - effect([output])
                assert paths.through[row, place, column] == pytest.approx(lost, abs=1e-4)


def random_energy(space, seed=0):
    from sointer.energy.networks import VectorEnergy

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        energy = VectorEnergy(3, space, hidden=(8,), coupling_units=5)
        torch.nn.init.normal_(energy.b)
    return energy.requires_grad_(False)


def test_outputs_given_is_the_best_configuration_by_enumeration():
    from itertools import product

    from sointer.energy.likelihood import Likelihood
    from sointer.energy.space import OutputSpace

    space = OutputSpace((2, 3, 2))
    energy = random_energy(space)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(40, 3)).astype(np.float32))
    codes = torch.from_numpy(np.column_stack([rng.integers(c, size=40) for c in space.n_classes]))
    held = torch.from_numpy(rng.random((40, 3)) < 0.5)
    found = outputs_given(energy, Likelihood(), energy.unary(x), codes, held)
    for row in range(40):
        possible = [
            y
            for y in product(*map(range, space.n_classes))
            if all(y[i] == codes[row, i] for i in range(3) if held[row, i])
        ]
        costs = [float(energy(x[row : row + 1], space.encode(torch.tensor([y])))) for y in possible]
        assert tuple(found[row].tolist()) == possible[int(np.argmin(costs))]


@pytest.mark.parametrize("classes", [(2, 2, 2), (2, 3, 2), None])
def test_mean_field_with_outputs_held(classes):
    from sointer.energy.likelihood import Likelihood
    from sointer.energy.space import OutputSpace

    space = OutputSpace(classes) if classes else OutputSpace((1, 1, 1), is_continuous=True)
    energy, likelihood = random_energy(space, seed=1), Likelihood(exact_limit=0)
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.normal(size=(20, 3)).astype(np.float32))
    nothing = torch.zeros(20, 3, dtype=torch.bool)
    codes = torch.from_numpy(np.column_stack([rng.integers(c, size=20) for c in space.n_classes]))
    codes = codes.float() + 0.5 if space.is_continuous else codes
    unary = energy.unary(x)
    free = outputs_given(energy, likelihood, unary, codes, nothing)
    torch.testing.assert_close(free, likelihood.predict(energy, x))
    held = nothing.clone()
    held[:, 1] = True
    one_held = outputs_given(energy, likelihood, unary, codes, held)
    assert torch.equal(one_held[:, 1], codes[:, 1])
    if space.is_continuous:  # the damped steps, written out
        weight, offset, b = (part.numpy() for part in energy.coupling)
        mean, u = -unary.numpy(), unary.numpy()
        for _ in range(likelihood.n_steps):
            y = mean.copy()
            y[:, 1] = codes[:, 1]
            slope = u + (b / (1 + np.exp(-(y @ weight.T + offset)))) @ weight
            mean = 0.5 * mean - 0.5 * slope
        np.testing.assert_allclose(one_held[:, [0, 2]], mean[:, [0, 2]], rtol=1e-4, atol=1e-5)
    assert torch.equal(outputs_given(energy, likelihood, unary, codes, ~nothing), codes)
