"""Synthetic problems do what they say: by value, by slow twins, and by redrawing every feature."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest

from sointer.zoo import (
    ALL_PROBLEMS,
    correlated,
    energy_e1,
    energy_e2,
    instancewise_switch,
    mediated_categorical,
    mediated_chain,
    mediated_xor,
    paper_e1,
    paper_e2,
    partly_mediated,
    with_decoys,
)
from sointer.zoo.digits import SEGMENTS, load_seven_segment_digits
from sointer.zoo.problem import Problem

N_FEATURES = 12
NAMES = sorted(ALL_PROBLEMS)


@pytest.fixture(autouse=True)
def _global_generator_untouched() -> Iterator[None]:
    before = np.random.get_state(legacy=False)  # noqa: NPY002
    yield
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert before["state"]["pos"] == after["state"]["pos"]
    np.testing.assert_array_equal(before["state"]["key"], after["state"]["key"])


# --- slow twins: one row at a time, in plain Python ----------------------------------------------------


def slow_e1(x: list[float], y: tuple[int, ...]) -> float:
    return (x[0] * y[0] + x[3]) * (1 - y[1]) + (x[1] * (1 - y[0]) + x[2]) * y[1]


def slow_e2(x: list[float], y: tuple[int, ...]) -> float:
    y1, y2, y3, y4 = y
    first = (math.sin(x[0]) * y1 * y3 + abs(x[3])) * (1 - y2) * y4
    second = (math.exp(x[1] / 10 - 1) * (1 - y1) * (1 - y3) + x[2]) * y2 * (1 - y4)
    return first + second


def slow_minimiser(
    energy: Callable[[list[float], tuple[int, ...]], float], x: list[float], n_outputs: int
) -> tuple[int, ...]:
    best, least = None, math.inf
    for y in product((0, 1), repeat=n_outputs):  # lexicographic: an equal energy later does not replace it
        if energy(x, y) < least:
            best, least = y, energy(x, y)
    assert best is not None
    return best


def _on(value: float) -> int:
    return 1 if value > 0 else 0


def _class(value: float, cuts: list[float]) -> int:
    return sum(value >= cut for cut in cuts)


def twin_xor(x: list[float]) -> list[int]:
    y0, y1 = _on(x[0] + x[1]), _on(x[2] * x[3])
    return [y0, y1, _on(x[4]), _on(x[5] + x[6]), int(y0 != y1)]


def twin_partly_mediated(x: list[float]) -> list[int]:
    same_sign = (x[0] < 0) == (x[1] < 0)
    return [int(same_sign), int(same_sign) if x[2] <= 0 else int(not same_sign)]


def twin_and(x: list[float]) -> list[int]:
    y0, y1 = _on(x[0] + x[1]), _on(x[2] * x[3])
    return [y0, y1, _on(x[4]), _on(x[5] + x[6]), y0 * y1]


def twin_majority(x: list[float]) -> list[int]:
    votes = [_on(x[0] + x[1]), _on(x[2] - x[3]), _on(x[4] + x[5])]
    return [*votes, _on(x[6]), _on(x[7] + x[8]), sorted(votes)[1]]


def twin_switch(x: list[float]) -> list[int]:
    y0, y1, y2 = _on(x[0]), _on(x[1] * x[2]), _on(x[3] + x[4])
    return [y0, y1, y2, _on(x[5]), _on(x[6] + x[7]), y1 if x[0] > 0 else y2]


def twin_chain(length: int) -> Callable[[list[float]], list[int]]:
    def outputs(x: list[float]) -> list[int]:
        found = [_on(x[0] + x[1])]
        for j in range(1, length + 1):
            side = _on(x[1 + j])
            found += [side, (found[-1] + side) % 2]
        return found

    return outputs


def twin_categorical(x: list[float]) -> list[str]:
    by_sum = _class(x[0] + x[1], [-0.60914, 0.60914])
    by_product = _class(x[2] * x[3], [-0.18682, 0.18682])
    quartile = _class(x[4], [-0.67449, 0.0, 0.67449])
    return [
        ["low", "mid", "high"][by_sum],
        ["negative", "small", "positive"][by_product],
        f"q{quartile + 1}",
        "abc"[(by_sum + by_product) % 3],
    ]


def twin_continuous(x: list[float]) -> list[float]:
    y0, y1 = x[0] + x[1], x[2] * x[3]
    return [y0, y1, x[4], x[5] + x[6], math.tanh(y0) + y0 * y1 / 2]


TWINS: dict[str, Callable[[list[float]], list[int] | list[str] | list[float] | tuple[int, ...]]] = {
    "e1": lambda x: slow_minimiser(slow_e1, x, 2),
    "e2": lambda x: slow_minimiser(slow_e2, x, 4),
    "mediated_xor": twin_xor,
    "partly_mediated": twin_partly_mediated,
    "mediated_and": twin_and,
    "mediated_majority": twin_majority,
    "mediated_chain_1": twin_chain(1),
    "mediated_chain_2": twin_chain(2),
    "mediated_chain_3": twin_chain(3),
    "mediated_chain_4": twin_chain(4),
    "mediated_categorical": twin_categorical,
    "mediated_continuous": twin_continuous,
    "switch": twin_switch,
}


def twin_of(name: str) -> Callable[[list[float]], list[int] | list[str] | list[float] | tuple[int, ...]]:
    return TWINS[name.removesuffix("_correlated").removesuffix("_decoys")]


@pytest.mark.parametrize("name", NAMES)
def test_black_box_equals_its_slow_twin(name: str) -> None:
    problem = ALL_PROBLEMS[name](N_FEATURES)
    X = problem.sample(1000, random_state=1)
    expected = np.array([twin_of(name)(row) for row in X.tolist()])
    given = problem.predict(X)
    assert given.shape == (1000, problem.n_outputs)
    if problem.output_kind == "continuous":
        np.testing.assert_allclose(given, expected, rtol=1e-12, atol=1e-12)
    else:
        np.testing.assert_array_equal(given, expected)


# --- the planted truth ---------------------------------------------------------------------------------


def redrawn(X: np.ndarray, columns: list[int], seed: int) -> np.ndarray:
    changed = X.copy()
    changed[:, columns] = np.random.default_rng(seed).standard_normal((len(X), len(columns)))
    return changed


@pytest.mark.parametrize("name", NAMES)
def test_exactly_the_relevant_features_change_the_target(name: str) -> None:
    problem = ALL_PROBLEMS[name](N_FEATURES)
    X = problem.sample(3000, random_state=2)
    Y = problem(X)
    for target in problem.targets:
        changing = {
            feature
            for feature in range(problem.n_features)
            for seed in range(2)
            if np.any(problem(redrawn(X, [feature], seed))[:, target] != Y[:, target])
        }
        assert changing == set(problem.relevant[target])
        others = [i for i in range(problem.n_features) if i not in problem.relevant[target]]
        for seed in range(3):
            together = problem(redrawn(X, others, seed))[:, target]
            np.testing.assert_array_equal(together, Y[:, target])


@pytest.mark.parametrize("name", NAMES)
def test_relevant_rows_are_the_rows_where_a_feature_can_change_the_target(name: str) -> None:
    problem = ALL_PROBLEMS[name](N_FEATURES)
    X = problem.sample(300, random_state=3)
    Y = problem(X)
    for target in problem.targets:
        mask = problem.relevant_rows(X, target)
        assert mask.shape == X.shape
        assert mask.dtype == np.bool_
        for feature in range(problem.n_features):
            changes = np.zeros(len(X), dtype=bool)
            for seed in range(20):
                changes |= problem(redrawn(X, [feature], seed))[:, target] != Y[:, target]
            assert not np.any(changes & ~mask[:, feature])
            assert np.any(changes) == np.any(mask[:, feature])
        if name != "switch":
            assert {tuple(np.flatnonzero(row)) for row in mask} == {problem.relevant[target]}


def test_switch_relevance_by_value() -> None:
    problem = instancewise_switch(8)
    X = np.zeros((2, 8))
    X[:, 0] = [0.5, -0.5]
    (target,) = problem.targets
    mask = problem.relevant_rows(X, target)
    assert [np.flatnonzero(row).tolist() for row in mask] == [[0, 1, 2], [0, 3, 4]]
    with pytest.raises(ValueError, match="no truth is planted"):
        problem.relevant_rows(X, 0)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("mediated", "switch"))])
def test_mediated_targets_are_functions_of_the_other_outputs(name: str) -> None:
    problem = ALL_PROBLEMS[name](N_FEATURES)
    Y = problem(problem.sample(5000, random_state=4))
    (target,) = problem.targets
    if problem.output_kind == "continuous":
        np.testing.assert_allclose(Y[:, target], np.tanh(Y[:, 0]) + Y[:, 0] * Y[:, 1] / 2)
        return
    seen: dict[tuple[object, ...], object] = {}
    for row in Y.tolist():
        others = tuple(value for j, value in enumerate(row) if j != target)
        assert seen.setdefault(others, row[target]) == row[target]


def test_e2_has_three_answers_and_the_paper_counts_one_feature_too_many() -> None:
    problem = paper_e2(5)
    X = problem.sample(5000, random_state=5)
    answers = {"".join(map(str, row)) for row in problem(X).tolist()}
    assert answers == {"0000", "0110", "1011"}
    extreme = X.copy()
    for value in (-50.0, -1.0, 0.0, 1.0, 50.0):
        extreme[:, 1] = value
        np.testing.assert_array_equal(problem(extreme), problem(X))
    assert problem.paper_relevant == {target: (0, 1, 2, 3) for target in range(4)}
    assert problem.relevant == {target: (0, 2, 3) for target in range(4)}
    assert paper_e1(5).paper_relevant is None


def test_e2_ties_are_as_documented() -> None:
    candidates = np.array(list(product((0, 1), repeat=4)))

    def minimisers(x: list[float]) -> list[str]:
        energies = energy_e2(np.array([x]), candidates)
        return ["".join(map(str, y)) for y in candidates[energies == energies.min()].tolist()]

    # All with y2 = y4 tie at zero.
    assert minimisers([1.0, 0.0, 1.0, 1.0]) == [
        "0000",
        "0010",
        "0101",
        "0111",
        "1000",
        "1010",
        "1101",
        "1111",
    ]
    # x3 least: y2 = 1, y4 = 0 and not y1 = y3 = 0.
    assert minimisers([1.0, 0.0, -1.0, 1.0]) == ["0110", "1100", "1110"]
    # sin(x1) + |x4| least: alone.
    assert minimisers([-1.0, 0.0, 1.0, 0.1]) == ["1011"]


def test_energies_by_value() -> None:
    x = np.array([2.0, 3.0, 5.0, 7.0, 11.0])
    y = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    assert energy_e1(x, y).tolist() == [7.0, 8.0, 9.0, 5.0]
    np.testing.assert_array_equal(paper_e1(5)([x]), [[1, 1]])
    zeros = np.zeros((1, 4))
    np.testing.assert_array_equal(paper_e1(4)(zeros), [[0, 0]])  # all tie: the first
    assert energy_e2(x, np.array([1, 0, 1, 1])) == pytest.approx(math.sin(2.0) + 7.0)
    assert energy_e2(x, np.array([0, 1, 0, 0])) == pytest.approx(math.exp(-0.7) + 5.0)


# --- inputs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_problems_are_consistent_deterministic_and_picklable(name: str) -> None:
    problem = ALL_PROBLEMS[name](N_FEATURES)
    assert problem.name == name
    assert len(problem.output_names) == len(set(problem.output_names)) == problem.n_outputs
    assert set(problem.relevant) == set(problem.targets)
    X = problem.sample(50, random_state=7)
    assert X.shape == (50, N_FEATURES)
    assert X.dtype == np.float64
    np.testing.assert_array_equal(X, problem.sample(50, random_state=7))
    np.testing.assert_array_equal(X, problem.sample(50, np.random.default_rng(7)))
    assert not np.array_equal(X, problem.sample(50, random_state=8))
    assert not np.array_equal(problem.sample(50), problem.sample(50))
    before = X.copy()
    Y = problem(X)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(Y, problem.predict(X.tolist()))
    np.testing.assert_array_equal(Y[10:20], problem(X[10:20]))
    again: Problem = pickle.loads(pickle.dumps(problem))
    np.testing.assert_array_equal(Y, again(again.sample(50, random_state=7)))
    assert problem(X[:0]).shape == (0, problem.n_outputs)
    assert problem(X[:0]).dtype == Y.dtype


@pytest.mark.parametrize("name", NAMES)
def test_every_problem_also_has_fewer_and_more_features(name: str) -> None:
    for n_features in (11, 40):
        problem = ALL_PROBLEMS[name](n_features)
        assert problem(problem.sample(5, 0)).shape == (5, problem.n_outputs)


def test_classes_are_equally_likely() -> None:
    problem = mediated_categorical(5)
    Y = problem(problem.sample(30000, random_state=0))
    for column, n_classes in enumerate((3, 3, 4, 3)):
        _, counts = np.unique(Y[:, column], return_counts=True)
        np.testing.assert_allclose(counts / len(Y), np.full(n_classes, 1 / n_classes), atol=0.01)


def test_correlations_are_as_asked() -> None:
    base = mediated_xor(8)
    positions = np.arange(8)
    distance = np.abs(positions[:, None] - positions[None, :])
    expected = {"equal": np.where(distance == 0, 1.0, 0.6), "ar1": 0.6**distance}
    for kind in ("equal", "ar1"):
        covariance = np.cov(correlated(base, 0.6, kind=kind).sample(60000, 0), rowvar=False)
        np.testing.assert_allclose(covariance, expected[kind], atol=0.03)


def test_decoys_copy_relevant_features_and_leave_the_rest_alone() -> None:
    X = with_decoys(mediated_xor(12), n_decoys=5, rho=0.9).sample(60000, 0)
    expected = np.eye(12)
    for decoy, original in {7: 0, 8: 1, 9: 2, 10: 3, 11: 0}.items():
        expected[decoy, original] = expected[original, decoy] = 0.9
    expected[7, 11] = expected[11, 7] = 0.81
    np.testing.assert_allclose(np.cov(X, rowvar=False), expected, atol=0.03)


def test_unrelated_outputs_cycle_over_the_free_features() -> None:
    problem = mediated_xor(7, n_unrelated=4)  # free: 4, 5, 6
    X = problem.sample(200, 0)
    expected = np.column_stack([X[:, 4], X[:, 5] + X[:, 6], X[:, 4], X[:, 5] + X[:, 6]]) > 0
    np.testing.assert_array_equal(problem(X)[:, 2:6], expected)
    assert problem.output_names == ("y0", "y1", *(f"unrelated_{j}" for j in range(4)), "target")
    assert mediated_xor(4, n_unrelated=0).n_outputs == 3


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 4 features"):
        paper_e1(3)
    with pytest.raises(ValueError, match="at least 5 features"):
        mediated_xor(4)
    for length in (0, 5, 1.5):
        with pytest.raises(ValueError, match="length must be 1, 2, 3 or 4"):
            mediated_chain(length)
    with pytest.raises(ValueError, match="at least 3 features"):
        partly_mediated(2)
    with pytest.raises(ValueError, match="at least 3 features"):
        mediated_chain(1, n_features=2)
    with pytest.raises(ValueError, match="relevant"):
        with_decoys(mediated_xor(6), n_decoys=4)
    with pytest.raises(ValueError, match="rho"):
        correlated(paper_e1(4), rho=1.0)
    with pytest.raises(ValueError, match="5 features per row"):
        paper_e1(5).predict(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="5 features per row"):
        paper_e1(5).predict(np.zeros(5))


# --- seven-segment digits ------------------------------------------------------------------------------


def test_segments_of_known_digits() -> None:
    assert SEGMENTS.shape == (10, 7)
    assert len({tuple(row) for row in SEGMENTS.tolist()}) == 10
    assert SEGMENTS.sum(axis=1).tolist() == [6, 2, 5, 5, 4, 5, 6, 3, 7, 6]
    assert SEGMENTS[1].tolist() == [0, 1, 1, 0, 0, 0, 0]
    assert SEGMENTS[2].tolist() == [1, 1, 0, 1, 1, 0, 1]
    assert SEGMENTS[0, 6] == SEGMENTS[9, 4] == SEGMENTS[6, 1] == 0
    with pytest.raises(ValueError, match="read-only"):
        SEGMENTS[0, 0] = 0


def test_seven_segment_digits() -> None:
    data = load_seven_segment_digits()
    assert data.X_train.shape[1] == data.X_test.shape[1] == len(data.feature_names) == 64
    assert len(data.X_train) + len(data.X_test) == 1797
    assert data.image_shape == (8, 8)
    assert data.feature_names[0] == "row 0, col 0"
    assert data.feature_names[10] == "row 1, col 2"
    assert [name[0] for name in data.output_names] == list("abcdefg")
    for digits, Y in ((data.digits_train, data.Y_train), (data.digits_test, data.Y_test)):
        np.testing.assert_array_equal(Y, SEGMENTS[digits])
        np.testing.assert_allclose(np.bincount(digits) / len(digits), 0.1, atol=0.005)
    again, other = load_seven_segment_digits(), load_seven_segment_digits(random_state=1)
    np.testing.assert_array_equal(data.X_test, again.X_test)
    assert not np.array_equal(data.X_test, other.X_test)
    rows = {row.tobytes() for row in data.X_train}
    assert sum(row.tobytes() in rows for row in data.X_test) <= 1  # the splits do not overlap
