"""Swaps against brute force over all subsets; rankings and the smallest confirmed selection against loops."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sointer.selection import first_units, rank_units, smallest_confirmed
from sointer.training.search import add_most_useful, drop_least_useful, improve_by_swaps


def additive(weights: Tensor):
    """A selection is worth the sum of its units' weights in that row."""
    return lambda rows, keep: (weights[rows] * keep).sum(dim=1)


def pairwise(weights: Tensor, pairs: Tensor):
    """As `additive`, plus something for every pair of selected units."""

    def value(rows: Tensor, keep: Tensor) -> Tensor:
        k = keep.to(weights.dtype)
        return (weights[rows] * k).sum(dim=1) + torch.einsum("ri,rij,rj->r", k, pairs[rows], k)

    return value


def brute_force(value, row: int, allowed: Tensor, k: int) -> float:
    free = torch.nonzero(allowed[row]).flatten().tolist()
    best = -math.inf
    for chosen in itertools.combinations(free, min(k, len(free))):
        keep = torch.zeros(1, allowed.shape[1], dtype=torch.bool)
        keep[0, list(chosen)] = True
        best = max(best, float(value(torch.tensor([row]), keep)))
    return best


def random_problem(n_rows: int = 12, n_units: int = 7, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(n_rows, n_units, generator=generator, dtype=torch.float64)
    scores = torch.randn(n_rows, n_units, generator=generator, dtype=torch.float64)
    allowed = torch.rand(n_rows, n_units, generator=generator) < 0.8
    allowed[0] = True
    return weights, scores, allowed


# --- swaps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3, 5])
def test_swaps_find_the_optimum_of_additive_values(k: int) -> None:
    weights, scores, allowed = random_problem()
    value = additive(weights)
    keep = improve_by_swaps(value, scores, allowed, k, n_candidates=7, n_sweeps=10, margin=0.0)
    for row in range(len(weights)):
        got = float(value(torch.tensor([row]), keep[row : row + 1]))
        assert got == pytest.approx(brute_force(value, row, allowed, k), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_swaps_never_lower_the_value(seed: int, margin: float) -> None:
    weights, scores, allowed = random_problem(seed=seed)
    pairs = torch.randn(12, 7, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    value, rows = pairwise(weights, pairs), torch.arange(12)
    start = improve_by_swaps(value, scores, allowed, 3, n_candidates=7, n_sweeps=0, margin=margin)
    before = value(rows, start)
    for n_sweeps in (1, 2, 6):
        keep = improve_by_swaps(value, scores, allowed, 3, n_candidates=7, n_sweeps=n_sweeps, margin=margin)
        after = value(rows, keep)
        assert torch.equal(keep & ~allowed, torch.zeros_like(keep))
        assert torch.equal(keep.sum(dim=1), allowed.sum(dim=1).clamp_max(3))
        assert (after >= before).all()
        changed = (keep != start).any(dim=1)
        assert (after[changed] > before[changed] + margin).all()
        before, start = after, keep
    optimum = torch.tensor([brute_force(value, row, allowed, 3) for row in range(12)], dtype=torch.float64)
    assert (before <= optimum + 1e-9).all()


def test_swaps_start_from_the_best_scores() -> None:
    weights, scores, allowed = random_problem()
    keep = improve_by_swaps(additive(weights), scores, allowed, 2, n_candidates=7, n_sweeps=0, margin=0.0)
    for row in range(12):
        order = [i for i in scores[row].argsort(descending=True).tolist() if allowed[row, i]]
        assert torch.nonzero(keep[row]).flatten().tolist() == sorted(order[:2])


def test_a_gain_of_the_margin_is_not_enough() -> None:
    weights = torch.tensor([[1.0, 1.25, 0.0]], dtype=torch.float64)
    scores, allowed = torch.tensor([[3.0, 2.0, 1.0]]), torch.ones(1, 3, dtype=torch.bool)
    for margin, chosen in [(0.2, 1), (0.25, 0), (0.3, 0)]:
        keep = improve_by_swaps(additive(weights), scores, allowed, 1, n_candidates=3, n_sweeps=4, margin=margin)
        assert torch.nonzero(keep[0]).flatten().tolist() == [chosen]


def test_only_candidates_come_in() -> None:
    weights = torch.tensor([[0.0, 1.0, 2.0, 9.0]])
    scores, allowed = torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.ones(1, 4, dtype=torch.bool)
    keep = improve_by_swaps(additive(weights), scores, allowed, 1, n_candidates=3, n_sweeps=5, margin=0.0)
    assert keep.tolist() == [[False, False, True, False]]


def test_one_sweep_makes_one_swap() -> None:
    weights = torch.tensor([[0.0, 0.0, 1.0, 2.0]])
    scores, allowed = torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.ones(1, 4, dtype=torch.bool)
    keep = improve_by_swaps(additive(weights), scores, allowed, 2, n_candidates=4, n_sweeps=1, margin=0.0)
    assert keep.tolist() == [[True, False, False, True]]  # of the two useless ones the lower score leaves


def test_the_unit_missed_least_is_dropped() -> None:
    weights = torch.tensor([[3.0, 1.0, 2.0, -5.0], [1.0, 2.0, 3.0, 0.0]])
    keep = torch.tensor([[True, True, True, False], [True, False, False, False]])
    without = drop_least_useful(additive(weights), torch.arange(2), keep, torch.zeros(2, 4))
    assert without.tolist() == [[True, False, True, False], [False] * 4]


def test_the_most_useful_free_candidate_is_added() -> None:
    weights = torch.tensor([[3.0, 1.0, 2.0, 9.0]])
    keep, allowed = torch.tensor([[True, False, False, False]]), torch.tensor([[True, True, True, False]])
    candidates = torch.tensor([[0, 1, 2, 3]])
    added, gained = add_most_useful(additive(weights), torch.arange(1), keep, candidates, allowed)
    assert (added.tolist(), gained.tolist()) == ([[True, False, True, False]], [5.0])


def test_rows_with_fewer_allowed_units_keep_all_of_them() -> None:
    weights, scores, _ = random_problem(3)
    allowed = torch.tensor([[True] * 7, [False, True, True, False, False, False, False], [False] * 7])
    keep = improve_by_swaps(additive(weights), scores, allowed, 4, n_candidates=7, n_sweeps=5, margin=0.0)
    assert keep.sum(dim=1).tolist() == [4, 2, 0]
    assert torch.equal(keep[1:], allowed[1:])


def test_a_table_without_any_allowed_unit_selects_nothing() -> None:
    weights, scores, allowed = random_problem(3)
    keep = improve_by_swaps(
        additive(weights), scores, torch.zeros_like(allowed), 2, n_candidates=7, n_sweeps=2, margin=0.0
    )
    assert not keep.any()


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
        self.asked: list[tuple[int, int]] = []

    def agreement(self, keep: np.ndarray, targets: np.ndarray, *, rows: Any, n_draws: int, seed: int) -> np.ndarray:
        assert len(keep) == len(targets) == len(rows)
        assert targets.tolist() == [10 + row for row in rows]
        assert (n_draws, seed) == (3, 7)
        self.n_calls += 1
        answers = []
        for mask, row in zip(keep, rows, strict=True):
            size = int(mask.sum())
            assert set(np.flatnonzero(mask)) == set(self.ranking[row][:size])  # always a prefix
            self.asked.append((int(row), size))
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
    assert len(set(source.asked)) == len(source.asked)  # no question is asked twice


def test_a_row_that_is_never_confirmed_keeps_everything() -> None:
    ranking = np.array([[2, 0, 1, 3, 4], [4, 3, -1, -1, -1], [-1] * 5])
    sizes, _ = find(ranking, [99, 99, 99])
    assert sizes == [5, 2, 1]


def test_only_units_that_may_be_chosen_are_counted() -> None:
    ranking = np.array([[2, 0, 1, -1, -1], [4, -1, -1, -1, -1]])
    sizes, source = find(ranking, [3, 1])
    assert sizes == [3, 1]
    assert max(size for _, size in source.asked) == 3


def test_easy_rows_are_not_asked_again() -> None:
    ranking = np.tile(np.arange(64), (3, 1))
    _, source = find(ranking, [1, 1, 64])
    assert [row for row, _ in source.asked].count(0) == 1


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
