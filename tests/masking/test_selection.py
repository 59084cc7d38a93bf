"""Rankings and the smallest confirmed selection against loops."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sointer.masking.selection import (
    EnergyConfirms,
    Scored,
    first_units,
    rank_units,
    smallest_confirmed,
    smallest_sufficient,
)

# --- ranking ---------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(0, 1000))
def test_ranking_equals_sorting(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(-2, 3, size=(3, n)).astype(np.float32)  # with ties
    allowed = rng.random((3, n)) < 0.6
    ranking = rank_units(scores, allowed)
    sizes = rng.integers(0, n + 1, size=3)
    mask = first_units(ranking, sizes, n)
    for row in range(3):
        free = [i for i in range(n) if allowed[row, i]]
        order = sorted(free, key=lambda i: (-scores[row, i], i))
        assert ranking[row].tolist() == order + [-1] * (n - len(order))
        assert np.flatnonzero(mask[row]).tolist() == sorted(order[: sizes[row]])


def test_first_units_may_be_of_a_shorter_ranking() -> None:
    mask = first_units(np.array([[3, 1], [0, -1]]), np.array([1, 2]), 4)
    assert mask.tolist() == [[False, False, False, True], [True, False, False, False]]


# --- the smallest confirmed selection --------------------------------------------------------------------


class Counter:
    """Confirms a row once its known number of best units is kept; counts the calls and the rows asked."""

    def __init__(self, ranking: np.ndarray, needed: list[int], partial: float = 0.8) -> None:
        self.ranking, self.needed, self.partial = ranking, np.array(needed), partial
        self.n_calls = 0
        self.queried: list[tuple[int, int]] = []

    def agreement(self, keep: np.ndarray, targets: np.ndarray, *, rows: Any, n_draws: int, seed: int) -> np.ndarray:
        assert len(keep) == len(targets) == len(rows)
        assert targets.tolist() == [10 + row for row in rows]
        assert (n_draws, seed) == (3, 7)
        self.n_calls += 1
        answers = []
        for mask, row in zip(keep, rows, strict=True):
            size = int(mask.sum())
            assert set(np.flatnonzero(mask)) == set(self.ranking[row][:size])  # always a prefix
            self.queried.append((int(row), size))
            answers.append(1.0 if size >= self.needed[row] else self.partial)
        return np.array(answers)


def find(ranking: np.ndarray, needed: list[int]) -> tuple[list[int], Counter]:
    source = Counter(ranking, needed)
    sizes = smallest_confirmed(source, ranking, 10 + np.arange(len(ranking)), n_draws=3, seed=7)
    return sizes.tolist(), source


@pytest.mark.parametrize("n_units", [1, 2, 3, 8, 13, 100])
def test_the_smallest_prefix_is_found_in_few_calls(n_units: int) -> None:
    rng = np.random.default_rng(0)
    needed = list(range(1, n_units + 1))
    ranking = np.stack([rng.permutation(n_units) for _ in needed])
    sizes, source = find(ranking, needed)
    assert sizes == needed
    assert source.n_calls <= 2 * math.ceil(math.log2(n_units + 1)) + 1
    assert len(set(source.queried)) == len(source.queried)  # no question is asked twice


def test_a_row_that_is_never_confirmed_keeps_everything() -> None:
    ranking = np.array([[2, 0, 1, 3, 4], [4, 3, -1, -1, -1], [-1] * 5])
    sizes, _ = find(ranking, [99, 99, 99])
    assert sizes == [5, 2, 1]


def test_only_units_that_may_be_chosen_are_counted() -> None:
    ranking = np.array([[2, 0, 1, -1, -1], [4, -1, -1, -1, -1]])
    sizes, source = find(ranking, [3, 1])
    assert sizes == [3, 1]
    assert max(size for _, size in source.queried) == 3


def test_easy_rows_are_not_asked_again() -> None:
    ranking = np.tile(np.arange(64), (3, 1))
    _, source = find(ranking, [1, 1, 64])
    assert [row for row, _ in source.queried].count(0) == 1


@pytest.mark.parametrize("n", [1, 3, 6, 7, 24, 25, None])
@pytest.mark.parametrize("n_units", [7, 300])
def test_a_short_ranking_is_the_beginning_of_the_whole_one(n, n_units):
    rng = np.random.default_rng(0)
    scores = rng.choice(np.array([-2.0, -0.0, 0.0, 1.5, 1e-30, -1e30], dtype=np.float32), size=(400, n_units))
    scores[200:] += rng.normal(size=(200, n_units)).astype(np.float32)  # equal ones, and all different
    allowed = rng.random((400, n_units)) < rng.choice([0.01, 0.7], size=(400, 1))
    slow = [sorted(np.flatnonzero(may), key=lambda unit: -row[unit]) for row, may in zip(scores, allowed, strict=True)]
    ranking = rank_units(scores, allowed, n)
    for found, expected in zip(ranking, slow, strict=True):
        padded = [*expected, *[-1] * (n_units - len(expected))]
        assert found.tolist() == padded[:n]


# --- the energy's word, and what is needed ------------------------------------------------------------------


def test_the_energy_confirms_where_it_is_sure_enough() -> None:
    queried = []

    def likely(rows: np.ndarray, keep: np.ndarray) -> np.ndarray:
        queried.append((rows.tolist(), keep.tolist()))
        return np.log(np.array([0.89, 0.91]))

    keep = np.array([[True, False], [False, True]])
    confirms = EnergyConfirms(likely)
    assert confirms.agreement(keep, np.zeros(2, int), rows=np.array([4, 7]), n_draws=9, seed=3).tolist() == [0.0, 1.0]
    assert queried == [([4, 7], keep.tolist())]  # once, however many draws
    assert EnergyConfirms(likely, least=0.5).agreement(
        keep, np.zeros(2, int), rows=np.array([4, 7]), n_draws=1, seed=0
    ).tolist() == [1.0, 1.0]


@settings(deadline=None)
@given(st.integers(1, 8), st.booleans(), st.sampled_from([1e-12, 1.0, 1e9]), st.integers(0, 1000))
def test_what_is_needed_comes_first(n: int, has_key: bool, unit: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, key = (unit * rng.normal(size=(2, 4, n))).astype(np.float32)
    key[0] = scores[0] = 0.0  # all alike
    needed = rng.random((4, n)) < 0.5
    scored = Scored(scores, np.zeros(4), key=key if has_key else None, needed=needed)
    by = key if has_key else scores
    ranking = rank_units(scored.ranked_by, np.ones((4, n), dtype=bool))
    for row in range(4):
        assert ranking[row].tolist() == sorted(range(n), key=lambda unit: (not needed[row, unit], -by[row, unit]))
    plain = Scored(scores, np.zeros(4), key=key if has_key else None)
    assert np.array_equal(plain.ranked_by, by)


RULES = {
    "nothing": lambda keep: np.ones(len(keep), dtype=bool),
    "one of two": lambda keep: keep[:, 3] | keep[:, 7],
    "both": lambda keep: keep[:, 2] & keep[:, 5],
    "one, or three others": lambda keep: keep[:, 9] | keep[:, :3].all(axis=1),
    "two, or three others": lambda keep: keep[:, 8:10].all(axis=1) | keep[:, :3].all(axis=1),
    "four of six": lambda keep: keep[:, 2:8].sum(axis=1) >= 4,
    "all": lambda keep: keep.all(axis=1),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(5))
def test_as_small_as_any(rule, seed) -> None:
    n_units = 10
    rng = np.random.default_rng(seed)
    ranking = np.stack([rng.permutation(n_units) for _ in range(4)])

    def likely(rows, keep):
        return np.log(np.where(RULES[rule](keep), 0.95, 0.05))

    found = smallest_sufficient(likely, np.arange(4), ranking, n_units)
    assert RULES[rule](found).all()
    sizes = (
        size
        for size in range(n_units + 1)
        for chosen in combinations(range(n_units), size)
        if RULES[rule](np.isin(np.arange(n_units), chosen)[None, :])[0]
    )
    smallest = next(sizes)
    assert (found.sum(axis=1) == smallest).all()


def test_where_even_everything_is_not_sure_the_value_must_stay_as_probable() -> None:
    def likely(rows, keep):
        return np.log(0.3 + 0.3 * keep[:, 1])

    found = smallest_sufficient(likely, np.array([0]), np.array([[0, 1, 2]]), 3)
    assert found.tolist() == [[False, True, False]]
