"""Problems whose relevant features differ from sample to sample: by slow twins, and by redrawing features."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import logit

from sointer.zoo import correlated, shuffled
from sointer.zoo.instancewise import INSTANCEWISE_PROBLEMS, switching, syn, syn_model
from sointer.zoo.problem import Problem
from sointer.zoo.published import PUBLISHED_PROBLEMS, clusters, l2x, lspin
from sointer.zoo.regression import REGRESSION_PROBLEMS, friedman2, logistic_regressions, mechanics

ALL: dict[str, Callable[[], Problem]] = {
    **{name: lambda make=make: make(12) for name, make in INSTANCEWISE_PROBLEMS.items()},
    **{f"{name}, labels": lambda make=make: make(12, "binary") for name, make in INSTANCEWISE_PROBLEMS.items()},
    **{name: lambda make=make: make(22) for name, make in PUBLISHED_PROBLEMS.items()},
    "l2x_switch, labels": lambda: l2x("switch", 12, "binary"),
    "clusters, labels": lambda: clusters(22, "binary"),
    **{name: lambda make=make: make(8) for name, make in REGRESSION_PROBLEMS.items()},
    "logistic_regressions": logistic_regressions,
    "logistic_regressions, labels": lambda: logistic_regressions(12, "binary"),
    "syn_model, 100 features": lambda: syn_model(100),
    "syn_model, shuffled": lambda: shuffled(syn_model(12), 3),
    "switch_category, shuffled": lambda: shuffled(switching("category"), 3),
}
N_ROWS = 2000


# --- slow twins: one row at a time, from the published equations, features counted from 1 -----------------


def u1(x: dict[int, float]) -> float:
    return x[1] * x[2]


def u2(x: dict[int, float]) -> float:
    return sum(x[i] ** 2 for i in (3, 4, 5, 6)) - 4


def u3(x: dict[int, float]) -> float:
    return -10 * math.sin(0.2 * x[7]) + abs(x[8]) + x[9] + math.exp(-x[10]) - 2.4


def truth(*features: int) -> set[int]:
    return set(features)


S1, S2, S3 = truth(1, 2), truth(3, 4, 5, 6), truth(7, 8, 9, 10)
Twin = Callable[[dict[int, float]], tuple[float, set[int]]]


def switched(low: tuple[Callable, set[int]], high: tuple[Callable, set[int]]) -> Twin:
    return lambda x: (low[0](x), low[1] | {11}) if x[11] < 0 else (high[0](x), high[1] | {11})


def nested(x: dict[int, float]) -> tuple[float, set[int]]:
    if x[11] < 0:
        return u1(x), S1 | {11}
    return (u2(x), S2 | {10, 11}) if x[10] < 0 else (u3(x), S3 | {10, 11})


def by_category(x: dict[int, float]) -> tuple[float, set[int]]:
    u, s = [(u1(x), S1), (u2(x), S2), (u3(x), S3), (x[5] + x[8], {5, 8})][round(x[11])]
    return u, s | {11}


def l2x_additive(x: dict[int, float], first: int) -> float:
    a, b, c, d = (x[first + i] for i in range(4))
    return -100 * math.sin(0.2 * a) + abs(b) + c + math.exp(-d) - 2.4


def l2x_orange(x: dict[int, float]) -> float:
    return sum(x[i] ** 2 for i in range(1, 5)) - 4


SYN: dict[str, Twin] = {
    "syn1": lambda x: (u1(x), S1),
    "syn2": lambda x: (u2(x), S2),
    "syn3": lambda x: (u3(x), S3),
    "switch": lambda x: (-math.inf if x[11] < 0 else math.inf, {11}),
    "syn4": switched((u1, S1), (u2, S2)),
    "syn5": switched((u1, S1), (u3, S3)),
    "syn6": switched((u2, S2), (u3, S3)),
}
TARGETS: dict[str, Twin] = {
    "switch_axis": SYN["syn4"],
    "switch_oblique": lambda x: (u1(x), S1 | {10, 11}) if x[10] + x[11] < 0 else (u2(x), S2 | {10, 11}),
    "switch_parity": lambda x: (u1(x), S1 | {10, 11}) if x[10] * x[11] < 0 else (u2(x), S2 | {10, 11}),
    "switch_nested": nested,
    "switch_category": by_category,
    "l2x_xor": lambda x: (u1(x), S1),
    "l2x_orange_skin": lambda x: (l2x_orange(x), {1, 2, 3, 4}),
    "l2x_additive": lambda x: (l2x_additive(x, 1), {1, 2, 3, 4}),
    "l2x_switch": lambda x: (l2x_orange(x), {1, 2, 3, 4, 10}) if x[10] >= 0 else (l2x_additive(x, 5), {5, 6, 7, 8, 10}),
}


def check_twin(problem: Problem, target: int, twin: Twin) -> None:
    X = problem.sample(300, random_state=1)
    Y, mask = problem(X)[:, target], problem.relevant_rows(X, target)
    for row, y, chosen in zip(X.tolist(), Y, mask, strict=True):
        u, features = twin({i + 1: value for i, value in enumerate(row)})
        assert set((np.flatnonzero(chosen) + 1).tolist()) == features
        if problem.output_kind == "binary" or math.isinf(u):
            assert y == (u < 0)
        else:
            assert logit(y) == pytest.approx(-u, abs=1e-6) or abs(u) > 15


@pytest.mark.parametrize("kind", ["probability", "binary"])
@pytest.mark.parametrize("n_features", [11, 100])
def test_syn_equals_the_published_equations_alone_and_as_one_model(kind, n_features):
    model = syn_model(n_features, kind)
    assert model.output_names == tuple(SYN)
    for target, name in enumerate(model.output_names):
        check_twin(model, target, SYN[name])
    for number in range(1, 7):
        alone = syn(number, n_features, kind)
        check_twin(alone, 0, SYN[f"syn{number}"])
        X = model.sample(50, random_state=2)
        np.testing.assert_array_equal(alone(X)[:, 0], model(X)[:, model.output_names.index(f"syn{number}")])


@pytest.mark.parametrize("kind", ["probability", "binary"])
@pytest.mark.parametrize("name", TARGETS)
def test_switches_and_l2x_equal_their_equations(name, kind):
    problem = (INSTANCEWISE_PROBLEMS | PUBLISHED_PROBLEMS)[name](12, kind)
    check_twin(problem, problem.targets[-1], TARGETS[name])
    if name.startswith("switch"):
        hidden = INSTANCEWISE_PROBLEMS[f"{name}_hidden"](12, kind)
        assert hidden.n_outputs < problem.n_outputs
        X = problem.sample(100, random_state=3)
        np.testing.assert_array_equal(hidden(X)[:, -1], problem(X)[:, -1])
        np.testing.assert_array_equal(
            hidden.relevant_rows(X, hidden.targets[0]), problem.relevant_rows(X, problem.targets[0])
        )


def test_labels_are_probabilities_above_one_half():
    for name, make in INSTANCEWISE_PROBLEMS.items():
        X = make(12).sample(500, random_state=4)
        np.testing.assert_array_equal(make(12, "binary")(X), make(12)(X) > 0.5, err_msg=name)


# --- the planted truth ------------------------------------------------------------------------------------


def redraw(problem: Problem, X: np.ndarray, where: np.ndarray, seed: int) -> np.ndarray:
    """The same rows with the marked values taken from rows drawn anew."""
    return np.where(where, problem.sample(len(X), random_state=500 + seed), X)


@pytest.mark.parametrize("name", ALL)
def test_irrelevant_features_never_change_the_target_and_relevant_ones_do_in_every_region(name):
    problem = ALL[name]()
    X = problem.sample(N_ROWS, random_state=5)
    Y = problem(X)
    for target in problem.targets:
        relevant = problem.relevant_rows(X, target)
        assert relevant.any(axis=1).all()
        union = np.flatnonzero(relevant.any(axis=0))
        assert tuple(union.tolist()) == problem.relevant[target]
        for seed in range(2):
            together = problem(redraw(problem, X, ~relevant, seed))[:, target]
            np.testing.assert_array_equal(together, Y[:, target])
        changed = np.zeros(X.shape, dtype=bool)
        for feature in union:
            for seed in range(3):
                one = np.zeros(X.shape, dtype=bool)
                one[:, feature] = True
                changed[:, feature] |= problem(redraw(problem, X, one, seed))[:, target] != Y[:, target]
        assert not np.any(changed & ~relevant), "a feature that is called irrelevant changed the target"
        for region in np.unique(relevant, axis=0):
            inside = (relevant == region).all(axis=1)
            assert (changed[inside].any(axis=0) == region).all(), "a relevant feature changed nothing in its region"


@pytest.mark.parametrize("name", ALL)
def test_switches_are_relevant_in_some_region_and_decide_it(name):
    problem = ALL[name]()
    X = problem.sample(N_ROWS, random_state=6)
    for target in problem.targets:
        relevant = problem.relevant_rows(X, target)
        n_sets = len(np.unique(relevant, axis=0))
        deciding = problem.switches.get(target, ())
        assert (n_sets > 1) == bool(deciding)
        keep = np.zeros(X.shape, dtype=bool)
        keep[:, list(deciding)] = True
        same = problem.relevant_rows(redraw(problem, X, ~keep, 0), target)
        np.testing.assert_array_equal(same, relevant)
        for feature in deciding:
            one = np.zeros(X.shape, dtype=bool)
            one[:, feature] = True
            assert np.any(problem.relevant_rows(redraw(problem, X, one, 1), target) != relevant)


@pytest.mark.parametrize("name", ALL)
def test_problems_are_consistent_and_deterministic(name):
    problem = ALL[name]()
    assert len(set(problem.output_names)) == problem.n_outputs
    X = problem.sample(40, random_state=7)
    np.testing.assert_array_equal(X, problem.sample(40, random_state=7))
    Y = problem(X)
    assert Y.shape == (40, problem.n_outputs)
    np.testing.assert_array_equal(Y[10:20], problem(X[10:20]))
    assert problem(X[:0]).shape == (0, problem.n_outputs)
    if problem.output_kind == "probability":
        assert Y.min() >= 0
        assert Y.max() <= 1
    if problem.order is None:
        again: Problem = pickle.loads(pickle.dumps(problem))
        np.testing.assert_array_equal(Y, again(X))


def test_equicorrelated_inputs_keep_the_truth():
    problem = correlated(syn_model(11), 0.9)
    X = problem.sample(20_000, random_state=8)
    off_diagonal = np.corrcoef(X.T)[~np.eye(11, dtype=bool)]
    np.testing.assert_allclose(off_diagonal, 0.9, atol=0.02)
    np.testing.assert_array_equal(problem(X), syn_model(11)(X))
    with pytest.raises(ValueError, match="categorical"):
        correlated(switching("category"), 0.5)


def test_categories_are_marked_in_a_frame_that_the_problem_takes():
    pandas = pytest.importorskip("pandas")
    problem = shuffled(switching("category"), 1)
    (column,) = problem.categorical
    assert problem.switches[problem.targets[0]] == (column,)
    X = problem.sample(200, random_state=9)
    assert set(np.unique(X[:, column])) == {0, 1, 2, 3}
    frame = problem.frame(X)
    assert isinstance(frame[f"x{column}"].dtype, pandas.CategoricalDtype)
    assert sum(isinstance(dtype, pandas.CategoricalDtype) for dtype in frame.dtypes) == 1
    np.testing.assert_array_equal(problem(frame), problem(X))


# --- numbers ----------------------------------------------------------------------------------------------


def test_numbers_by_value():
    np.testing.assert_allclose(mechanics(4)([[2.0, 3.0, 1.0, 2.0]]), [[6.0, 9.0, 19.62, 28.62, 14.31]])
    x = [3.0, 1000.0, 0.5, 2.0]  # reactance 500 - 500
    np.testing.assert_allclose(friedman2(4)([x]), [[0.0, 3.0, 0.0]], atol=1e-9)
    np.testing.assert_allclose(lspin(5)([[1, 2, 4, 8, 16], [1, 2, -4, 8, 16]])[:, 0], [-2.0, 2 + 8 - 32])
    X = np.array([[0.5, 1.0, 0.0, 0.1, 0.2]])
    np.testing.assert_allclose(REGRESSION_PROBLEMS["friedman1"](5)(X), [[10.0, 5.0, 2.0, 17.0]])


def test_clusters_have_their_own_coefficients():
    problem = clusters()
    X = np.zeros((4, 21))
    X[:, 20] = [0, 5, 10, 15]
    sets = {tuple(np.flatnonzero(row)) for row in problem.relevant_rows(X, 0)}
    assert len(sets) == 4
    assert all(20 in features for features in sets)
    assert clusters(random_state=1).relevant_rows(X, 0).tolist() != problem.relevant_rows(X, 0).tolist()


# --- signs ------------------------------------------------------------------------------------------------


def test_contributions_are_those_of_the_coefficients():
    plain = logistic_regressions()
    X = plain.sample(100, random_state=10)
    for target in plain.targets:
        given = plain.contributions(X, target)
        weights = plain.coefficients[target]
        np.testing.assert_allclose(given, weights * X)
        np.testing.assert_allclose(given.sum(axis=1) + plain.intercepts[target], logit(plain(X)[:, target]))
        drop = plain.contributions(X, target, scale="probability")
        np.testing.assert_array_equal(np.sign(drop), np.sign(given))
        at_mean = X.copy()
        at_mean[:, 3] = 0
        np.testing.assert_allclose(drop[:, 3], plain(X)[:, target] - plain(at_mean)[:, target], atol=1e-12)
        np.testing.assert_array_equal(np.any(given != 0, axis=0), plain.relevant_rows(X, target)[0])
    moved = shuffled(plain, 2)
    order = np.asarray(moved.order)
    np.testing.assert_array_equal(moved.contributions(X[:, order], 1), plain.contributions(X, 1)[:, order])
    with pytest.raises(ValueError, match="scale"):
        plain.contributions(X, 0, scale="odds")
    assert (np.sign(plain.coefficients).min(axis=0) < np.sign(plain.coefficients).max(axis=0)).any()


def test_wrong_arguments_are_refused():
    for call, message in (
        (lambda: syn(7), "1 to 6"),
        (lambda: syn(4, 10), "at least 11 features"),
        (lambda: syn(1, 11, "odds"), "output_kind"),
        (lambda: switching("spiral"), "switch must be one of"),
        (lambda: l2x("and"), "name must be one of"),
        (lambda: logistic_regressions(4), "n_relevant"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
