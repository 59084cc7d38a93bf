"""Mediated problems by brute force, on a grid of all combinations of values: who can change what, and through whom."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from sointer.zoo import mediated_chain, mediated_xor, partly_mediated, shuffled
from sointer.zoo.problem import Problem

VALUES = (-2.0, -0.5, 1.0)  # no two of them add up to zero: no input is on the border between two answers
N_FEATURES = 8
GRID = np.array(list(product(VALUES, repeat=N_FEATURES)))
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "two outputs": lambda: partly_mediated(N_FEATURES),
    **{f"{3 + n} outputs": lambda n=n: mediated_xor(N_FEATURES, n_unrelated=n) for n in range(6)},
    **{f"chain of {n}": lambda n=n: mediated_chain(n, N_FEATURES) for n in range(1, 5)},
}


def changing_features(answers: np.ndarray) -> set[int]:
    """The features along which answers on the whole grid are not constant."""
    table = answers.reshape((len(VALUES),) * N_FEATURES)
    return {feature for feature in range(N_FEATURES) if np.any(np.ptp(table, axis=feature))}


def is_function_of(answers: np.ndarray, causes: np.ndarray) -> bool:
    seen: dict[bytes, int] = {}
    return all(
        seen.setdefault(cause.tobytes(), answer) == answer for cause, answer in zip(causes, answers, strict=True)
    )


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_feature_is_relevant_exactly_if_changing_it_can_change_the_target(name: str) -> None:
    problem = PROBLEMS[name]()
    (target,) = problem.targets
    assert target == problem.n_outputs - 1
    assert changing_features(problem(GRID)[:, target]) == set(problem.relevant[target])
    moved = shuffled(problem, 3)
    assert moved.relevant[target] != problem.relevant[target]
    assert changing_features(moved(GRID)[:, target]) == set(moved.relevant[target])


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_single_output_tells_the_target_but_all_together_do(name: str) -> None:
    problem = PROBLEMS[name]()
    outputs = problem(GRID)
    others, target = outputs[:, :-1], outputs[:, -1]
    for j in range(others.shape[1]):
        assert not is_function_of(target, others[:, [j]])
    assert is_function_of(target, others) == (name != "two outputs")


def test_in_the_smallest_problem_one_feature_acts_directly_and_two_through_the_other_output() -> None:
    outputs = partly_mediated(N_FEATURES)(GRID)
    mediator, target = outputs[:, 0], outputs[:, 1]
    assert changing_features(mediator) == {0, 1}
    assert is_function_of(target, np.column_stack([mediator, GRID[:, 2] > 0]))
    assert partly_mediated(N_FEATURES).output_names == ("y0", "target")


@pytest.mark.parametrize(("length", "names"), [(1, "c0 s1 c1"), (2, "c0 s1 c1 s2 c2")])
def test_each_link_of_a_chain_adds_two_outputs_and_one_feature(length: int, names: str) -> None:
    problem = mediated_chain(length, N_FEATURES)
    assert problem.output_names == tuple(names.split())
    assert len(problem.relevant[problem.targets[0]]) == length + 2
    outputs = problem(GRID)
    np.testing.assert_array_equal(outputs[:, -1], (outputs[:, -2] + outputs[:, -3]) % 2)
    assert changing_features(outputs[:, -2]) == {length + 1}
