"""explanation.paths(): planted routes are found, a slow twin agrees, and every kind of output and input is served."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quick import TAUGHT, quick_fit
from sointer import SOInter
from sointer.config import TrainingConfig
from sointer.energy.likelihood import outputs_given
from sointer.paths import Route
from sointer.zoo.structural import STRUCTURAL_PROBLEMS, structural


def fitted(known, *, n_queries=2000, n_epochs=20, seed=0):
    problem = known.problem
    explainer = SOInter(
        problem,
        k=len(problem.relevant[known.target]),
        query_budget=n_queries,
        output_names=problem.output_names,
        random_state=seed,
        training=TrainingConfig(n_epochs=n_epochs),
    )
    return explainer.fit(problem.sample(1500, random_state=seed), targets=[known.target])


@pytest.fixture(scope="module")
def mixed():
    known = structural("mixed_sum", 8).shuffled(3)
    return known, fitted(known)


def explained(known, explainer, n=60):
    X = known.problem.sample(n, random_state=77)
    return X, explainer.explain(X, target=known.target, predicted=known.problem(X))


def truth(known, explainer, X, paths, n_draws=16):
    references = explainer.removal_.references(n_draws, np.random.default_rng(0))
    outputs, target = explainer.outputs_, known.target
    center, scale = (0.0, 1.0) if outputs.scale is None else (outputs.center[target], outputs.scale[target])
    return [part / scale for part in known.true_paths(X, paths.selected, references, center=center)]


# --- planted truth -------------------------------------------------------------------------------------------


def test_direct_and_mediated_features_are_told_apart(mixed):
    known, explainer = mixed
    X, explanation = explained(known, explainer)
    paths = explanation.paths()
    total, direct, through = truth(known, explainer, X, paths)
    assert np.abs(paths.total - total).mean() < 0.12
    assert np.abs(paths.direct - direct).mean() < 0.05
    y0 = paths.outputs[0].tolist().index(0)
    assert np.abs(paths.through[:, :, y0] - through[:, :, 0]).mean() < 0.1
    place = np.argsort(known.problem.order)
    means = {j: paths.average(known.target, int(place[j])) for j in range(4)}
    for j in (0, 1):  # by the equations, straight to the target
        assert means[j][1] > 0.8 * means[j][0] > 0
        assert abs(means[j][2][0]) < 0.2 * means[j][0]
    for j in (2, 3):  # by the equations, through y0 only
        assert abs(means[j][1]) < 0.2 * means[j][0]
        assert means[j][2][0] > 0.8 * means[j][0] > 0


def test_effects_on_a_probability_say_how_far_it_moves_and_not_how_often_its_side_changes():
    """Without the feature it is 0.3 or 0.7 at random: on the other side half the time, but only 0.2 nearer to it."""
    X = np.random.default_rng(0).normal(size=(400, 5))
    explainer = quick_fit(
        lambda rows: np.column_stack([np.where(rows[:, 0] > 0, 0.7, 0.3), rows[:, 1] > 0.0]),
        X,
        **TAUGHT | {"k": 1, "query_budget": 1500, "output_kind": "probability"},
    )
    paths = explainer.explain(X[:100], target=0).paths()
    assert paths.unit == "probability"
    assert paths.average(0, 0)[0] == pytest.approx(0.2, abs=0.05)


def test_numbers():
    known = structural("mixed_continuous", 6).shuffled(1)
    explainer = fitted(known)
    X, explanation = explained(known, explainer)
    paths = explanation.paths()
    total, direct, through = truth(known, explainer, X, paths)
    assert paths.unit == "shares of the range"
    assert np.abs(paths.total).max() <= 1
    y0 = paths.outputs[0].tolist().index(0)
    bars = ((paths.total, total, 0.85), (paths.direct, direct, 0.85), (paths.through[:, :, y0], through[:, :, 0], 0.7))
    for found, true, least in bars:
        assert np.corrcoef(found.ravel(), true.ravel())[0, 1] > least


def test_copies_are_reported_and_share_their_number():
    known = structural("copied_outputs", 6)
    explainer = fitted(known)
    _, explanation = explained(known, explainer)
    paths = explanation.paths()
    assert paths.indistinguishable == [["y0", "y1"]]
    assert "y0, y1" in repr(paths)
    of = {name: paths.through[:, :, paths.outputs[0].tolist().index(i)] for i, name in enumerate(("y0", "y1", "y2"))}
    np.testing.assert_array_equal(of["y0"], of["y1"])
    here = np.isin(paths.selected, (0, 1))  # through one of the copies, whichever
    assert of["y0"][here].mean() > 0.75 * paths.total[here].mean() > 0
    assert abs(paths.direct[here].mean()) < 0.25 * paths.total[here].mean()
    assert abs(of["y2"][here].mean()) < 0.1 * paths.total[here].mean()


def test_nothing_goes_mostly_through_an_output_that_carries_nothing():
    route = Route("debt", 9, 0.25, 0.25, "newsletter", 0.004)
    assert not route.is_mediated
    assert not route._replace(through=0.012).is_mediated, "less than a twentieth"
    assert route._replace(through=0.013).is_mediated
    assert not route._replace(total=0.01, through=0.004).is_mediated, "shown as 0.00"
    assert route._replace(total=0.01, through=0.005).is_mediated
    assert not route._replace(through=0.2, output=None).is_mediated


def test_a_copy_of_the_target_is_no_way_to_it(quick_paths):
    def model(X):
        yes = X[:, 0] > 0
        return np.column_stack([yes, ~yes, X[:, 1] > 0])

    X = np.random.default_rng(0).normal(size=(400, 4))
    explainer = quick_fit(model, X, k=1, query_budget=400, output_names=["yes", "no", "other"])
    paths = explainer.explain(X[:5], target="yes").paths()
    assert paths.indistinguishable == [["yes", "no"]]
    assert paths.outputs.tolist() == [[2, -1]] * 5
    assert np.isnan(paths.through[:, :, 1]).all()
    assert f"cannot be distinguished (one-to-one in all {paths.n_answers} predictions for unmasked rows)" in repr(paths)
    assert paths.n_answers == len(explainer.training_codes_)
    assert set(paths.to_frame()["path"]) == {"direct", "other"}


@pytest.mark.slow
@pytest.mark.parametrize("name", STRUCTURAL_PROBLEMS)
def test_main_paths_of_all_problems(name):
    known = STRUCTURAL_PROBLEMS[name](20).shuffled(5)
    explainer = fitted(known, n_queries=4000, n_epochs=60, seed=5)
    X, explanation = explained(known, explainer, n=100)
    paths = explanation.paths()
    total, direct, through = truth(known, explainer, X, paths)
    assert np.abs(paths.total - total).mean() < 0.15
    assert np.abs(paths.direct - direct).mean() < 0.06
    effects = np.concatenate([direct[:, :, None], through[:, :, paths.outputs[0]]], axis=2)
    found = np.concatenate([paths.direct[:, :, None], paths.through], axis=2)
    of_found = np.take_along_axis(np.abs(effects), np.abs(found).argmax(axis=2)[:, :, None], axis=2)[:, :, 0]
    if name != "copied_outputs":  # where the truth cannot be known
        right = of_found >= np.abs(effects).max(axis=2) - 0.1
        assert right[np.abs(total) > 0.1].mean() > 0.9


def test_an_output_that_gives_a_removed_feature_away_carries_no_effect_of_others():
    """Risk depends on voltage and age: held as it was, beside another voltage, it would tell the age."""

    def model(X):
        voltage, age, temperature = X[:, 0], X[:, 1], X[:, 2]
        broken = (temperature > 0.5) | (age > 0.5)
        return np.column_stack([broken, 1 / (1 + np.exp(-2 * voltage - 2 * (age > 0.5)))])

    X = np.random.default_rng(21).normal(size=(600, 4))
    kinds = {"broken": "binary", "risk": "probability"}
    settings = {
        "output_names": list(kinds),
        "output_kind": list(kinds.values()),
        "query_budget": 3000,
        "verbose": False,
    }
    explanation = SOInter(model, k=2, **settings, random_state=0).fit(X).explain(X[:60], target="broken")
    paths = explanation.paths()
    place = explanation.selected == 2
    assert place.any(axis=1).mean() > 0.9
    total, through = np.abs(paths.total[place]).mean(), np.abs(paths.through[:, :, 0][place]).mean()
    assert total > 0.2
    assert through < 0.1 * total


# --- twins ---------------------------------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_definition(mixed):
    """Point by point, from the definition: same draws, one row at a time, the best configuration by enumeration."""
    known, explainer = mixed
    X, explanation = explained(known, explainer, n=4)
    paths = explanation.paths(n_draws=3, random_state=5)
    energy, net, target = explainer.energy_, explainer._tracer.learned[known.target], known.target
    said = known.problem(X)
    weight, offset, b = (part.detach().numpy().astype(np.float64) for part in energy.coupling)

    def outputs_following(x, held=(), kept=None):
        u = energy.unary(torch.from_numpy((x - explainer.shift_).astype(np.float32))[None]).detach().numpy()[0]
        best, least = None, np.inf
        for number in range(2**3):
            y = np.array([number >> 2 & 1, number >> 1 & 1, number & 1])
            if all(y[i] == kept[i] for i in held):
                cost = u @ y + b @ np.logaddexp(0, weight @ y + offset)
                if cost < least:
                    best, least = y, cost
        return best

    def support(x, row, y):
        z = net.project(torch.from_numpy((x - explainer.shift_).astype(np.float32))[None])
        chance = torch.softmax(net(z, torch.tensor(y, dtype=torch.float32)[None]), dim=1)[0]
        return float(chance[said[row, target]])

    references = explainer.removal_.references(3, np.random.default_rng(5))

    def average(row, kept, chosen, held):
        """Outputs are held at what they are with all selected features, for the same draw."""
        total = 0.0
        for reference in references:
            x, whole = (np.where(np.isin(np.arange(8), units), X[row], reference) for units in (kept, chosen))
            before = outputs_following(whole)
            total += support(x, row, before if held == "all" else outputs_following(x, held, before))
        return total / len(references)

    for row in range(4):
        chosen = paths.selected[row]
        for place, unit in enumerate(chosen):
            without = chosen[chosen != unit]

            def effect(held, row=row, chosen=chosen, without=without):
                return average(row, chosen, chosen, held) - average(row, without, chosen, held)

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


def slow_outputs_given(energy, x, codes, held, graded):
    """By enumeration: held outputs as probable as their codes say, the free ones given each of their values."""
    from itertools import product

    space = energy.space
    sizes = space.n_classes
    every = list(product(*map(range, sizes)))
    found = []
    for row, said in zip(x, codes.tolist(), strict=True):
        weight = {y: np.exp(-float(energy(row[None], space.encode(torch.tensor([y]))))) for y in every}
        p = dict.fromkeys(every, 0.0)
        for y in every:
            chance = 1.0
            for i in np.flatnonzero(held):
                share = said[i] if y[i] == 1 else 1 - said[i]
                chance *= share if sizes[i] == 2 else float(said[i] == y[i])
            same = sum(w for z, w in weight.items() if all(z[i] == y[i] for i in np.flatnonzero(held)))
            p[y] = chance * weight[y] / same
        marginals = [[sum(q for y, q in p.items() if y[i] == c) for c in range(n)] for i, n in enumerate(sizes)]
        found.append(
            [
                said[i] if held[i] else marginals[i][1] if graded[i] else float(np.argmax(marginals[i]))
                for i in range(len(sizes))
            ]
        )
    return torch.tensor(found, dtype=torch.float32)


@pytest.mark.parametrize("held", [[], [0], [1], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("graded", [[], [0], [0, 2]])
def test_outputs_given_equals_enumeration(held, graded):
    from sointer.energy.likelihood import Likelihood
    from sointer.energy.space import OutputSpace

    space = OutputSpace((2, 3, 2))
    energy = random_energy(space)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(12, 3)).astype(np.float32))
    is_held, is_graded = np.isin(np.arange(3), held), np.isin(np.arange(3), graded)
    codes = np.column_stack([rng.integers(c, size=12) for c in space.n_classes]).astype(np.float32)
    codes[:, is_graded] = rng.random((12, len(graded)))
    given = torch.from_numpy(codes) if graded else torch.from_numpy(codes).long()
    found = outputs_given(energy, Likelihood(), energy.unary(x), given, torch.from_numpy(is_held), is_graded)
    assert found.dtype == given.dtype
    expected = slow_outputs_given(energy, x, torch.from_numpy(codes), is_held, is_graded)
    torch.testing.assert_close(found.float(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("classes", [(2, 2, 2), (2, 3, 2)])
@pytest.mark.parametrize("graded", [False, True])
def test_mean_field_with_outputs_held(classes, graded):
    from sointer.energy.likelihood import Likelihood
    from sointer.energy.space import OutputSpace

    space = OutputSpace(classes)
    energy, likelihood = random_energy(space, seed=1), Likelihood(exact_limit=0)
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.normal(size=(20, 3)).astype(np.float32))
    is_graded = np.array([graded, False, graded])
    nothing = torch.zeros(3, dtype=torch.bool)
    codes = torch.from_numpy(np.column_stack([rng.integers(c, size=20) for c in space.n_classes]))
    codes = codes.float() if graded else codes
    unary = energy.unary(x)
    free = outputs_given(energy, likelihood, unary, codes, nothing, is_graded)
    expected = space.codes(likelihood.log_marginals(energy, x), is_graded)
    torch.testing.assert_close(free, expected, atol=1e-4, rtol=1e-4)
    held = torch.tensor([False, True, False])
    one_held = outputs_given(energy, likelihood, unary, codes, held, is_graded)
    assert torch.equal(one_held[:, 1], codes[:, 1])
    if graded:  # the damped steps, written out
        weight, offset, b = (part.numpy() for part in energy.coupling)
        columns, u = space.label_columns.numpy(), unary.numpy()
        known, clamped = space.encode(codes).numpy(), space.column_output.numpy() == 1
        logits = -u @ columns.T
        for _ in range(likelihood.n_steps):
            y = np.where(clamped, known, space.normalise(torch.from_numpy(logits)).exp().numpy() @ columns)
            slope = u + (b / (1 + np.exp(-(y @ weight.T + offset)))) @ weight
            logits = 0.5 * logits - 0.5 * slope @ columns.T
        p = space.normalise(torch.from_numpy(logits)).exp()
        np.testing.assert_allclose(one_held[:, 0], p[:, 1], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(one_held[:, 2], p[:, -1], rtol=1e-4, atol=1e-5)
        assert not torch.allclose(one_held[:, 0], free[:, 0], atol=1e-3), "holding an output changed nothing"
    assert torch.equal(outputs_given(energy, likelihood, unary, codes, ~nothing, is_graded), codes)
