"""Localities: planted switches are found, what is not there is not, and tables against recursive twins."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sointer.interpreter.localities import MAX_DEPTH, MAX_OTHERS_KEPT, MIN_TESTS, TargetData
from sointer.interpreter.splits import (
    MAX_CONDITIONS,
    MIN_REDRAWS,
    N_PLACES,
    Mixtures,
    Redraws,
    WeightedSum,
    best_threshold,
    mean_by_unit,
    refitted,
    two_cuts,
    weighted_sums,
)
from sointer.interpreter.tables import (
    OPEN,
    LocalityTable,
    below_needed,
    conditions_of,
    leaf_order,
    own_columns,
    suffices,
)
from sointer.interpreter.trees import Node, complete_node, leaves, prune_unconfirmed
from sointer.training.table_interpreter import share_checks

N_UNITS = 6


def planted(
    model,
    *,
    n: int = 600,
    n_redraws: int = 1500,
    n_mixtures: int = 2000,
    noise: float = 0.0,
    seed: int = 0,
    two_valued: bool = False,
) -> TargetData:
    """What is known of a target `model` (rows -> values in [0, 1]) by an energy that is right, and noisy answers."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, N_UNITS))
    if two_valued:
        X[:, 0] = rng.integers(0, 2, size=n)
    others = X[rng.permutation(n)]

    def answers(rows: np.ndarray) -> np.ndarray:
        flipped = rng.random(len(rows)) < noise
        return np.where(flipped, 1 - model(rows), model(rows))

    effects = np.zeros((n, N_UNITS))
    for unit in range(N_UNITS):
        for draw in range(8):
            moved = X.copy()
            moved[:, unit] = np.roll(others[:, unit], draw)
            effects[:, unit] += (model(moved) - model(X)) ** 2 / 8
    whole = answers(X)
    again = answers(X[:200])
    row, unit = rng.integers(n, size=n_redraws), rng.integers(N_UNITS, size=n_redraws)
    redrawn = X[row].copy()
    redrawn[np.arange(n_redraws), unit] = others[row, unit]
    mixed, kept = rng.integers(n, size=n_mixtures), rng.random((n_mixtures, N_UNITS)) < rng.random((n_mixtures, 1))
    mixtures = np.where(kept, X[mixed], others[rng.integers(n, size=n_mixtures)])
    graded = len(np.unique(model(X))) > 2
    square = float(((again - whole[:200]) ** 2).mean())
    return TargetData(
        np.sqrt(effects),
        X,
        X,
        np.arange(N_UNITS),
        Redraws(row, unit, np.abs(answers(redrawn) - whole[row])),
        Mixtures(mixed, kept, np.abs(answers(mixtures) - whole[mixed])),
        max(1e-6, 3 * square**0.5) if graded else 0.5,
        square,
        float((again != whole[:200]).mean()),
        numeric=np.arange(N_UNITS),
    )


def switch(rows: np.ndarray) -> np.ndarray:
    """Below zero in the first feature, the second decides; above, the third and fourth."""
    return np.where(rows[:, 0] <= 0, rows[:, 1] > 0, rows[:, 2] + rows[:, 3] > 0).astype(float)


def soft_switch(rows: np.ndarray) -> np.ndarray:
    return np.where(
        rows[:, 0] <= 0, 1 / (1 + np.exp(-3 * rows[:, 1])), 1 / (1 + np.exp(-2 * (rows[:, 2] + rows[:, 3])))
    )


def flag(rows: np.ndarray) -> np.ndarray:
    """A switch on a feature with two values."""
    return np.where(rows[:, 0] <= 0.5, rows[:, 1] > 0, rows[:, 2] > 0).astype(float)


# --- trees ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [switch, soft_switch])
@pytest.mark.parametrize("seed", range(3))
def test_a_planted_switch_is_found(model, seed: int) -> None:
    root = planted(model, seed=seed).grow()
    assert root.children is not None
    assert root.condition == 0
    assert abs(root.threshold) < 0.2
    left, right = root.children
    assert left.is_left
    assert not right.is_left
    assert np.flatnonzero(left.active).tolist() in ([1], [0, 1])
    assert set(np.flatnonzero(right.active).tolist()) - {0} == {2, 3}
    assert root.active.tolist() == [True] * 4 + [False] * 2
    assert np.argsort(-left.score)[0] in (0, 1)
    for leaf in leaves(root):
        assert leaf.sufficiency > 0.9 or np.isnan(leaf.sufficiency)


def leaky_switch(rows: np.ndarray) -> np.ndarray:
    """Like a forest: every feature changes it a little everywhere, wherever the switch stands."""
    return 0.9 * soft_switch(rows) + 0.1 * (np.sin(2 * rows).mean(axis=1) + 1) / 2


@pytest.mark.parametrize("seed", range(3))
def test_a_switch_is_found_where_every_feature_matters_a_little(seed: int) -> None:
    data = replace(planted(leaky_switch, seed=seed), min_relative=0.25)
    assert (data.redraws.change > data.tolerance).mean() > 0.99, "that something changed says nothing"
    root = data.grow()
    assert root.condition == 0
    assert abs(root.threshold) < 0.2
    assert root.children is not None
    left, right = root.children
    assert set(np.flatnonzero(left.active).tolist()) - {0} == {1}
    assert set(np.flatnonzero(right.active).tolist()) - {0} == {2, 3}


def switch_beside_others(rows: np.ndarray) -> np.ndarray:
    """Three features matter everywhere; the second only where the first is low, for a quarter of the samples."""
    beside = 1 / (1 + np.exp(-8 * (rows[:, 3] + rows[:, 4] - rows[:, 5])))
    chosen = 1 / (1 + np.exp(-8 * np.where(rows[:, 0] <= -0.7, rows[:, 1], rows[:, 3])))
    return beside * (1 - chosen) + (1 - beside) * chosen


@pytest.mark.parametrize("seed", range(3))
def test_a_clean_switch_is_found_among_larger_effects(seed: int) -> None:
    root = replace(planted(switch_beside_others, n=1000, n_redraws=3000, seed=seed), min_relative=0.03).grow()
    assert root.condition == 0
    assert abs(root.threshold + 0.7) < 0.2
    assert [np.flatnonzero(leaf.active).tolist() for leaf in leaves(root)] == [[0, 1, 3, 4, 5], [0, 3, 4, 5]]


def quiet_corner(rows: np.ndarray) -> np.ndarray:
    """Two features decide, but where both are low nothing does: every feature moves it by next to nothing."""
    gate = 1 / (1 + np.exp(-12 * rows[:, 0]))
    return gate / (1 + np.exp(-6 * rows[:, 1])) + 0.003 * np.tanh(rows).sum(axis=1)


@pytest.mark.parametrize("seed", range(3))
def test_where_nothing_matters_much_not_everything_is_listed(seed: int) -> None:
    root = replace(planted(quiet_corner, n=1000, n_redraws=3000, seed=seed), min_relative=0.03).grow()
    assert len(leaves(root)) <= 4
    for leaf in leaves(root):
        assert set(np.flatnonzero(leaf.active).tolist()) <= {0, 1}


def slow_threshold(at: np.ndarray, right: np.ndarray, size: np.ndarray, threshold: float) -> float:
    values = np.unique(at)
    cuts = [(a + b) / 2 for a, b in pairwise(values)]
    wrong = {c: size[right & (at <= c)].sum() + size[~right & (at > c)].sum() for c in cuts}
    ends = min(size[~right].sum(), size[right].sum())  # everything on one side leaves the threshold as it is
    least = min([*wrong.values(), ends])
    best = [c for c in cuts if wrong[c] <= least + 1e-9 * size.sum()]
    return min(best, key=lambda c: abs(c - threshold)) if best else threshold


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_the_best_threshold_equals_its_slow_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 30))
    at = rng.permutation(n) / n if seed % 2 else rng.integers(0, 4, n).astype(float)  # also of few values
    right, size = rng.random(n) < 0.5, rng.choice([0.1, 1.0], n)
    found = best_threshold(at, right, size, 0.5)
    assert found == pytest.approx(slow_threshold(at, right, size, 0.5))


@pytest.mark.parametrize("seed", range(3))
def test_a_switch_on_a_feature_with_two_values(seed: int) -> None:
    data = planted(flag, seed=seed, two_valued=True)
    root = data.grow()
    assert root.condition == 0
    assert 0 < root.threshold < 1
    assert root.children is not None
    # No sample lies near the threshold: the band must not swallow a whole side.
    sides = [data.rows_in(child).sum() for child in root.children]
    assert sum(sides) == len(data.conditions)
    assert [np.flatnonzero(child.active).tolist() for child in root.children] in ([[0, 1], [0, 2]], [[1], [2]])


def test_a_switch_on_another_output_is_found() -> None:
    """The condition is no input but an output, which follows no single feature."""
    data = planted(switch)
    hidden = (data.conditions[:, 0] <= 0).astype(float)
    rng = np.random.default_rng(1)
    columns = data.conditions.copy()
    columns[:, 0] = rng.normal(size=len(columns))  # what the output follows cannot be seen
    data.conditions = data.pool_conditions = np.column_stack([columns, 1 - hidden])
    root = data.grow()
    assert root.condition == N_UNITS
    assert root.children is not None


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_split_where_nothing_is_switched_off(seed: int) -> None:
    def additive(rows: np.ndarray) -> np.ndarray:
        return (rows[:, 0] + rows[:, 1] + 0.5 * rows[:, 2] > 0).astype(float)

    root = planted(additive, seed=seed).grow()
    assert root.children is None
    assert root.active.tolist() == [True] * 3 + [False] * 3


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_found_in_pure_noise(seed: int) -> None:
    """A model that answers at random: what the energy imagines is not confirmed by redraws."""
    data = planted(lambda rows: np.zeros(len(rows)), noise=0.3, seed=seed)
    data.effects[:] = np.random.default_rng(seed).random(data.effects.shape) * 1e-3
    root = data.grow()
    assert root.children is None
    assert not root.active.any()


def test_few_units_matter_by_noise_alone() -> None:
    """Units count from two standard deviations above chance on, so one of fifty may be wrong by chance."""
    roots = [planted(switch, noise=0.05, n_redraws=4000, seed=seed).grow() for seed in range(8)]
    assert all(root.active[:4].all() for root in roots)
    assert np.mean([root.active[4:] for root in roots]) < 0.15
    assert {root.condition for root in roots} <= {-1, 0}


def test_a_split_that_redraws_deny_is_not_made() -> None:
    """The energy sees a switch that the black box does not have."""
    data = planted(lambda rows: (rows[:, 1] + rows[:, 2] > 0).astype(float))
    imagined = planted(switch)
    data.effects = imagined.effects
    data.pool_conditions = imagined.pool_conditions
    assert data.grow().children is None


def test_trees_stay_small() -> None:
    def deep(rows: np.ndarray) -> np.ndarray:
        place = (rows[:, 0] > 0).astype(int) * 4 + (rows[:, 1] > 0) * 2 + (rows[:, 2] > 0)
        return (rows[np.arange(len(rows)), 3 + place % 3] > 0).astype(float)

    root = planted(deep, n=1000, n_redraws=6000).grow()
    assert all(len(node.path()) <= MAX_DEPTH + 1 for node in root.walk())
    assert sum(len(leaf.pool) for leaf in leaves(root)) == 1000
    assert min(len(leaf.pool) for leaf in leaves(root)) >= 50 or len(leaves(root)) == 1


# --- weighted sums, and two cuts together --------------------------------------------------------------------


def oblique(rows: np.ndarray) -> np.ndarray:
    """Which features decide depends on a weighted sum of two others."""
    return np.where(rows[:, 0] - 2 * rows[:, 5] <= 0.5, rows[:, 1] > 0, rows[:, 2] + rows[:, 3] > 0).astype(float)


def soft_oblique(rows: np.ndarray) -> np.ndarray:
    low, high = 1 / (1 + np.exp(-3 * rows[:, 1])), 1 / (1 + np.exp(-2 * (rows[:, 2] + rows[:, 3])))
    return np.where(rows[:, 0] - 2 * rows[:, 5] <= 0.5, low, high)


@pytest.mark.parametrize("model", [oblique, soft_oblique])
@pytest.mark.parametrize("seed", range(3))
def test_a_switch_on_a_weighted_sum_is_found(model, seed: int) -> None:
    data = planted(model, n=1000, n_redraws=3000, seed=seed)
    root = data.grow()
    (found,) = data.sums
    assert root.condition == N_UNITS
    assert found.columns.tolist() == [5, 0]
    np.testing.assert_allclose(found.weights, [1, -0.5], atol=0.08)
    assert abs(root.threshold + 0.25) < 0.15  # x5 - x0 / 2 <= -1 / 4 is the other side of the planted condition
    assert [np.flatnonzero(leaf.active).tolist() for leaf in leaves(root)] == [[0, 2, 3, 5], [0, 1, 5]]


def window(rows: np.ndarray) -> np.ndarray:
    return np.where(np.abs(rows[:, 0]) <= 0.7, rows[:, 1] > 0, rows[:, 2] + rows[:, 3] > 0).astype(float)


def exclusive_or(rows: np.ndarray) -> np.ndarray:
    differ = (rows[:, 0] > 0.3) ^ (rows[:, 4] > -0.2)
    return np.where(differ, rows[:, 1] > 0, rows[:, 2] + rows[:, 3] > 0).astype(float)


@pytest.mark.parametrize(
    ("model", "looked_at", "planted_units"),
    [(window, {0}, [{2, 3}, {1}, {2, 3}]), (exclusive_or, {0, 4}, [{2, 3}, {1}, {1}, {2, 3}])],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_switch_that_takes_two_cuts_is_found(model, looked_at, planted_units, seed: int) -> None:
    root = planted(model, n=1000, n_redraws=4000, n_mixtures=4000, seed=seed).grow()
    assert {node.condition for node in root.walk()} - {-1} == looked_at
    assert [set(np.flatnonzero(leaf.active).tolist()) - looked_at for leaf in leaves(root)] == planted_units


def steep_sum(rows: np.ndarray) -> np.ndarray:
    """Far from where this is one half hardly anything changes it, but the same features decide everywhere."""
    return 1 / (1 + np.exp(-3 * rows[:, :4] @ np.array([1.0, -0.8, 0.6, 0.5])))


@pytest.mark.parametrize("model", [steep_sum, lambda rows: (steep_sum(rows) > 0.5).astype(float)])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_decided_already_is_no_other_locality(model, seed: int) -> None:
    data = planted(model, n=1000, n_redraws=3000, seed=seed)
    assert data.grow().children is None
    assert data.sums == []


@pytest.mark.parametrize("seed", range(3))
def test_a_single_feature_is_preferred_to_a_sum(seed: int) -> None:
    data = planted(switch, n=1000, n_redraws=3000, seed=seed)
    data.grow()
    assert data.sums == []


def test_sums_are_of_plain_numbers_only() -> None:
    data = replace(planted(oblique, n=1000, n_redraws=3000), numeric=np.arange(5))  # x5 is a category, say
    data.grow()
    assert all(5 not in one.columns for one in data.sums)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e4, 2e6), (1e-5, -1.0)])
def test_weights_do_not_depend_on_units_of_measurement(scale: float, shift: float) -> None:
    rng = np.random.default_rng(0)
    plain = rng.normal(size=(800, 4))
    left = plain[:, 0] + plain[:, 1] <= 0
    shares = np.column_stack([left, ~left]) + 0.01 * rng.normal(size=(800, 2))
    measured = plain * [scale, 1, 1, 1] + [shift, 0, 0, 0]
    (found,) = weighted_sums(measured, np.arange(4), shares)
    better, threshold = refitted(found, 0.0, measured, ~left, np.ones(800))
    wrong = ((better.of(measured) > threshold) != ~left).mean()
    assert set(found.columns.tolist()) == {0, 1}
    assert min(wrong, 1 - wrong) < 0.01


def test_too_little_to_refit_leaves_a_sum_as_it_is() -> None:
    found, rows = WeightedSum(np.array([0, 1]), np.array([1.0, 2.0])), np.random.default_rng(0).normal(size=(200, 2))
    right = rows[:, 0] > 0
    for n, side in ((20, right[:20]), (200, np.ones(200, dtype=bool)), (200, rows[:, 0] < 0)):
        assert refitted(found, 0.3, rows[:n], side, np.ones(n)) == (found, 0.3)


def slow_two_cuts(conditions: np.ndarray, shares: np.ndarray) -> float:
    """What the best two cuts explain, of one condition or of two, trying all."""

    def explained(part: np.ndarray) -> float:
        own = [shares[part == value] for value in np.unique(part)]
        return sum(len(one) * float((one.mean(axis=0) ** 2).sum()) for one in own) / len(shares)

    cuts = [np.unique(np.quantile(column, np.linspace(0, 1, N_PLACES + 1)[1:-1])) for column in conditions.T]
    best = 0.0
    for i, j in ((0, 0), (1, 1), (0, 1)):
        for a in cuts[i]:
            for b in cuts[j]:
                if i == j and a >= b:
                    continue
                best = max(best, explained((conditions[:, i] <= a) + 2.0 * (conditions[:, j] <= b)))
    return best - float((shares.mean(axis=0) ** 2).sum())


@pytest.mark.parametrize("seed", range(4))
def test_two_cuts_equal_their_slow_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    conditions, shares = rng.normal(size=(120, 2)), rng.random((120, 3))
    if seed % 2:
        conditions[:, 1] = rng.integers(0, 3, size=120)
    gain, first, second = two_cuts(conditions, shares)
    assert gain == pytest.approx(slow_two_cuts(conditions, shares))
    assert first.condition != second.condition or first.threshold < second.threshold


def test_two_cuts_need_something_that_varies_and_not_too_much() -> None:
    shares = np.random.default_rng(0).random((50, 3))
    for conditions in (np.zeros((50, 2)), np.random.default_rng(1).normal(size=(50, MAX_CONDITIONS + 1))):
        assert two_cuts(conditions, shares)[0] == 0


def test_what_tells_localities_apart_is_never_left_out() -> None:
    """It decides that the sample is here, even where that seldom changes the label."""
    data = planted(oblique, n=1000, n_redraws=3000)
    root = data.grow()
    for leaf in leaves(root):
        assert {0, 5} <= set(np.flatnonzero(leaf.active).tolist())
        assert not leaf.left_out[[0, 5]].any()
    assert set(data._units_above(leaves(root)[0]).tolist()) == {0, 5}
    assert data._units_above(root).tolist() == []


@pytest.mark.parametrize("seed", range(3))
def test_where_nothing_was_seen_to_change_nothing_is_active(seed: int) -> None:
    """Removed features are low here: where the first is low anyway, the output is off whatever is removed."""
    rng = np.random.default_rng(seed)
    X, n_redraws, n_mixtures = rng.normal(size=(300, N_UNITS)), 150, 300

    def both(rows: np.ndarray) -> np.ndarray:
        return ((rows[:, 0] > 0) & (rows[:, 1] > -1)).astype(float)

    row, unit = rng.integers(300, size=n_redraws), rng.integers(N_UNITS, size=n_redraws)
    redrawn = X[row].copy()
    redrawn[np.arange(n_redraws), unit] = -2.0
    mixed, kept = rng.integers(300, size=n_mixtures), rng.random((n_mixtures, N_UNITS)) < 0.5
    data = TargetData(
        np.abs(rng.normal(size=(300, N_UNITS))) * 0.01 + both(X)[:, None] * [0.9, 0.9, 0, 0, 0, 0],
        X,
        X,
        np.arange(N_UNITS),
        Redraws(row, unit, np.abs(both(redrawn) - both(X)[row])),
        Mixtures(mixed, kept, np.abs(both(np.where(kept, X[mixed], -2.0)) - both(X)[mixed])),
        0.5,
        0.0,
        0.0,
    )
    root = Node(np.arange(300), data.effects.mean(axis=0))
    low = Node(np.flatnonzero(X[:, 0] <= -0.8), data.effects[X[:, 0] <= -0.8].mean(axis=0), root, is_left=True)
    root.condition, root.threshold, root.children = 0, -0.8, (low, low)
    data.describe(root)
    data.describe(low)
    assert np.flatnonzero(root.active).tolist() == [0, 1]
    assert (data.rows_in(low)[row] & (unit == 3)).sum() < MIN_REDRAWS
    assert not low.active.any()
    assert not low.doubtful.any()


def test_one_redraw_that_happened_to_change_much_makes_no_unit_of_a_graded_target_active() -> None:
    data = planted(lambda rows: np.where(rows[:, 1] > 0, 0.9, 0.1) + 1e-5 * rows[:, 4], n_redraws=1500)
    (of_unit,) = np.nonzero(data.redraws.unit == 4)
    for n_large, is_active in ((1, False), (4, True)):
        data.redraws.change[of_unit[:n_large]] = 0.5
        node = Node(np.arange(len(data.effects)), data.effects.mean(axis=0))
        few = replace(data, min_relative=0.03, tolerance=1e-6)
        few.describe(node)
        assert node.score[4] > 0.03 * node.score.max()
        assert np.flatnonzero(node.active).tolist() == ([1, 4] if is_active else [1])


def test_units_that_were_never_seen_to_change_a_target_are_inert() -> None:
    node = planted(switch).grow()
    assert np.flatnonzero(node.inert).tolist() == [4, 5]
    for is_sparse in (True, False):  # where many contribute a little, single redraws that change no label say nothing
        table = LocalityTable.of({0: node}, 1, {0: 0.98}, {0: is_sparse}, {}, N_UNITS)
        assert table.inert[0].nonzero().flatten().tolist() == ([4, 5] if is_sparse else [])
    few = planted(switch, n_redraws=60)
    assert not few.grow().inert.any(), "too few redraws to say so"


def test_sums_in_tables_are_found_and_checked() -> None:
    data = planted(oblique, n=1000, n_redraws=3000)
    root = data.grow()
    table = LocalityTable.of({0: root}, 1, {0: 0.98}, {0: True}, {0: data.sums}, N_UNITS)
    rows = np.random.default_rng(5).normal(size=(300, N_UNITS))
    found = table.find(np.zeros(300, dtype=int), rows, np.arange(300))
    right = data.sums[0].of(rows) > root.threshold
    np.testing.assert_array_equal(found, np.where(right, int(table.right[0]), int(table.left[0])))
    assert table.condition[0] == -2
    table.check(N_UNITS, N_UNITS, [0])
    for broken in (-1, N_UNITS):
        table.sum_column[0, 0] = broken
        with pytest.raises(ValueError, match="add up what is not there"):
            table.check(N_UNITS, N_UNITS, [0])


# --- sufficiency ---------------------------------------------------------------------------------------------


def slow_sufficiency(data: TargetData, inside: list[bool], units: list[int]) -> float:
    lost, all_changes, few_changes = [], [], []
    for row, kept, change in zip(data.mixtures.row, data.mixtures.kept, data.mixtures.change, strict=True):
        if inside[row]:
            all_changes.append(change**2)
            if kept.mean() < 0.1:
                few_changes.append(change**2)
            others = [kept[unit] for unit in range(N_UNITS) if unit not in units]
            if all(kept[unit] for unit in units) and others and np.mean(others) <= MAX_OTHERS_KEPT:
                lost.append(change**2)
    if len(units) == N_UNITS:
        return 1.0
    least = min(max(len(data.mixtures.row) / 10, MIN_TESTS[0]), MIN_TESTS[1])
    if len(lost) < least:
        return float("nan")
    usual = few_changes if len(few_changes) >= least else all_changes
    return 1 - max(float(np.mean(lost)) - data.noise, 0.0) / (float(np.mean(usual)) - data.noise)


@pytest.mark.parametrize("units", [[], [0], [0, 1, 2, 3], [4, 5], list(range(6))])
def test_sufficiency_equals_its_slow_twin(units: list[int]) -> None:
    data = planted(switch)
    root = data.grow()
    for node in root.walk():
        inside = data.rows_in(node)
        found = data.sufficiency(node, np.isin(np.arange(N_UNITS), units))
        assert found == pytest.approx(slow_sufficiency(data, inside.tolist(), units), nan_ok=True)
    assert data.sufficiency(root, np.isin(np.arange(N_UNITS), [0, 1, 2, 3])) > 0.99
    assert data.sufficiency(root, np.isin(np.arange(N_UNITS), [4, 5])) < 0.9


def test_rows_near_a_threshold_are_in_no_child() -> None:
    data = planted(switch)
    root = data.grow()
    assert root.children is not None
    inside = [data.rows_in(child) for child in root.children]
    at = data.conditions[:, root.condition]
    assert not (inside[0] & inside[1]).any()
    assert data.rows_in(root).all()
    np.testing.assert_array_equal(inside[0] | inside[1], np.abs(at - root.threshold) >= root.band)
    assert 0.9 < (inside[0] | inside[1]).mean() < 1


# --- ranking in a leaf ---------------------------------------------------------------------------------------


def node(score: list[float], active: list[bool], sufficiency: float, parent: Node | None = None) -> Node:
    made = Node(np.arange(3), np.array(score), parent)
    made.score, made.active, made.sufficiency = np.array(score), np.array(active), sufficiency
    return made


def test_the_nearest_complete_node_is_the_first_whose_units_suffice() -> None:
    root = node([3, 2, 1, 0], [True, True, True, False], 1.0)
    middle = node([3, 2, 0, 0], [True, True, False, False], 0.97, root)
    leaf = node([3, 0, 0, 0], [True, False, False, False], 0.5, middle)
    assert complete_node(leaf, 0.98) is root
    assert complete_node(leaf, 0.95) is middle
    assert complete_node(leaf, 0.4) is leaf
    assert complete_node(leaf, 1.1) is None
    leaf.sufficiency = float("nan")
    assert complete_node(leaf, 0.0) is middle, "what is not known does not suffice"
    leaf.sufficiency, leaf.active[:] = 1.0, False
    assert complete_node(leaf, 0.4) is middle, "nothing suffices for nothing"


@pytest.mark.parametrize(("beyond", "is_needed"), [(2.6, False), (2.1, True)])
def test_what_hardly_changes_a_label_is_left_out_if_the_others_suffice(beyond: float, is_needed: bool) -> None:
    """A trained model depends a little on everything: two changes in hundreds of redraws do not make a unit needed."""

    def model(rows: np.ndarray) -> np.ndarray:
        return ((rows[:, 1] + rows[:, 2] > 0) ^ (rows[:, 5] > beyond)).astype(float)

    data = planted(model, n=2000, n_redraws=3000, n_mixtures=4000)
    _, changes = mean_by_unit(data.redraws.unit, data.redraws.change, N_UNITS)
    assert 0 < changes[5] < 0.12 * changes.max(), "it does change the label, seldom"
    assert data.grow().active.tolist() == [False, True, True, False, False, is_needed]


def test_units_of_the_leaf_come_before_those_of_its_parents() -> None:
    root = node([9, 5, 1, 0.5], [True, True, True, False], 1.0)
    leaf = node([0, 2, 0, 3], [False, True, False, False], 0.99, root)
    order = leaf_order(leaf, 0.98)
    assert order.needed.tolist() == [False, True, False, False]
    assert order.key.argmax() == 1
    assert order.key[0] > order.key[2], "then those that matter around it, by their score"
    order = leaf_order(leaf, 0.995)  # the leaf does not suffice, its parent does
    assert order.needed.tolist() == [True, True, True, False]
    assert order.key.argmax() == 1, "what matters in the leaf comes first"
    assert order.key[3] == min(order.key)
    order = leaf_order(leaf, 1.1)  # none suffices
    assert order.needed.tolist() == leaf.active.tolist()


def test_what_was_left_out_comes_before_what_never_changed_anything() -> None:
    root = node([9, 5, 1, 0.5], [True, False, False, False], 1.0)
    leaf = node([9, 5, 0.4, 0.5], [True, False, False, False], 0.99, root)
    leaf.left_out[2] = True
    order = leaf_order(leaf, 0.98)
    assert order.needed.tolist() == [True, False, False, False]
    assert np.argsort(-order.key)[:2].tolist() == [0, 2]
    assert order.key[2] > order.key[[1, 3]].max() + OPEN, "whatever the evidence of a sample"
    root.active[1] = True  # what matters around the leaf, but not in it, follows
    assert np.argsort(-leaf_order(leaf, 0.98).key).tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize("size", [0.01, 1.0])
def test_what_surely_but_hardly_changes_a_graded_target_comes_before_what_never_does(size: float) -> None:
    def model(rows: np.ndarray) -> np.ndarray:
        return np.abs(rows[:, 1]) + size * rows[:, 4]

    leaf = replace(planted(model), min_relative=0.03).grow()
    assert leaf.active.tolist() == [False, True, False, False, size == 1.0, False]
    assert leaf.idle.tolist() == [True, False, True, True, False, True]
    order = leaf_order(leaf, 0.98)
    assert order.key[4] > order.key[[0, 2, 3, 5]].max() + 2 * OPEN, "whatever the evidence of a sample"
    assert np.array_equal(order.needed, leaf.active)


def test_only_what_clearly_matters_is_ordered_by_each_sample() -> None:
    of_three = node([9, 4, 3, 5], [True, True, True, False], 1.0)
    order = leaf_order(of_three, 0.98)
    of_three.noise_rate = 0.1
    assert not leaf_order(of_three, 0.98).open.any(), "where the model is noisy, needed units may be too many"
    assert order.open.tolist() == [True, True, False, True], "what is not needed too, among itself"
    lowest_open = order.key[:2].min() - OPEN
    assert lowest_open > order.key[2] > order.key[3] + OPEN
    assert np.floor(order.key[:2].max() + OPEN) == np.floor(order.key[0]), "no unit leaves its level"
    lowest, highest = order.score, order.score + 2 * order.span
    assert lowest[:2].tolist() == [4, 4]
    assert highest[:2].tolist() == [9, 9]
    assert lowest[:2].min() > order.score[2] > highest[3]
    assert order.score[3] + order.span[3] == 0, "what is not needed has no score without evidence"


@settings(deadline=None)
@given(st.integers(0, 10_000))
def test_scores_of_what_is_not_needed_lie_below(seed: int) -> None:
    rng = np.random.default_rng(seed)
    score, needed = rng.random(6), rng.random(6) < 0.5
    found = below_needed(score, needed)
    np.testing.assert_array_equal(found[needed], score[needed])
    if needed.any():
        assert (found[~needed] < found[needed].min()).all()
    else:
        np.testing.assert_array_equal(found, score)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 1.0))
def test_the_strongest_units_that_hold_a_share_of_the_evidence(seed: int, share: float) -> None:
    evidence = torch.randn(5, 6, generator=torch.Generator().manual_seed(seed))
    found = suffices(evidence, share)
    for row, kept in zip(evidence.tolist(), found.tolist(), strict=True):
        order = sorted((unit for unit in range(6) if row[unit] > 0), key=lambda unit: -row[unit])
        total, held, expected = sum(row[unit] for unit in order), 0.0, set()
        for unit in order:
            if held >= share * total - 1e-6:
                break
            expected.add(unit)
            held += row[unit]
        assert {unit for unit in range(6) if kept[unit]} == expected


# --- as tables -----------------------------------------------------------------------------------------------


def slow_find(root: Node, conditions: np.ndarray) -> Node:
    if root.children is None:
        return root
    left, right = root.children
    return slow_find(left if conditions[root.condition] <= root.threshold else right, conditions)


@pytest.fixture(scope="module")
def trees() -> dict[int, Node]:
    return {0: planted(switch).grow(), 2: planted(lambda rows: (rows[:, 5] > 0).astype(float), seed=1).grow()}


@pytest.fixture
def table(trees: dict[int, Node]) -> LocalityTable:
    return LocalityTable.of(trees, 3, dict.fromkeys(trees, 0.98), {0: True, 2: False}, {}, N_UNITS)


def test_every_row_is_found_in_its_leaf(trees: dict[int, Node], table: LocalityTable) -> None:
    nodes = [node for root in trees.values() for node in root.walk()]
    assert len(table.condition) == len(nodes) > 3
    conditions = np.random.default_rng(5).normal(size=(200, N_UNITS))
    targets = np.random.default_rng(6).choice([0, 2], size=200)
    found = table.find(targets, conditions, np.arange(len(targets)))
    for row, target, place in zip(conditions, targets, found, strict=True):
        leaf = slow_find(trees[target], row)
        assert nodes[place] is leaf
        order = leaf_order(leaf, 0.98)
        np.testing.assert_allclose(table.key[place], order.key, rtol=1e-5)
        assert (table.open[place] > 0).tolist() == order.open.tolist()
        assert table.needed[place].tolist() == order.needed.tolist()
        assert table.share[place].item() == pytest.approx(len(leaf.pool) / 600)
    on_threshold = np.zeros((1, N_UNITS))
    on_threshold[0, 0] = trees[0].threshold
    assert nodes[table.find(np.array([0]), on_threshold, np.array([0]))[0]] is slow_find(trees[0], on_threshold[0])
    assert table.is_sparse.tolist() == [True, False, False]
    assert table.root.tolist()[1] == -1
    assert table.looks_at(np.array([2])).tolist() == []
    assert 0 in table.looks_at(np.array([0, 2])).tolist()


def test_tables_are_checked(table: LocalityTable) -> None:
    table.check(N_UNITS, N_UNITS, [0, 2])
    with pytest.raises(ValueError, match="not there"):
        table.check(N_UNITS, N_UNITS, [1])  # a target without a tree
    with pytest.raises(ValueError, match="not there"):
        table.check(0, 0, [0])


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("left", 0, 0),  # a node below itself
        ("right", 0, 0),
        ("left", 0, -1),  # a split without a side
        ("right", 0, 10**6),
        ("left", -1, 0),  # a leaf with something below
        ("condition", 0, 10**6),
        ("condition", 0, -2),  # a sum that is not there
        ("condition", -1, 0),  # a leaf that splits
        ("root", 0, 10**6),
        ("root", 0, -1),
    ],
)
def test_what_is_no_tree_is_refused(table: LocalityTable, name: str, place: int, value: int) -> None:
    getattr(table, name)[place] = value
    with pytest.raises(ValueError, match="localities"):
        table.check(N_UNITS, N_UNITS, [0, 2])


def test_conditions_are_inputs_and_then_outputs() -> None:
    columns, encoded = np.ones((2, 3)), np.zeros((2, 4))
    assert conditions_of(columns, encoded).tolist() == [[1, 1, 1, 0, 0, 0, 0]] * 2
    assert own_columns([0, 1, 1, 2], 1, 3).tolist() == [4, 5]


# --- splits taken back, checks shared ------------------------------------------------------------------------


def described(active: list[int], score: list[float], sufficiency: float, parent: Node | None = None) -> Node:
    node = Node(np.arange(10), np.array(score), parent)
    node.active, node.score, node.sufficiency = np.isin(np.arange(4), active), np.array(score), sufficiency
    return node


def split(left: tuple[list[int], float], right: tuple[list[int], float]) -> Node:
    """A root that suffices, and two leaves: units that matter in each, all by as much, and whether they suffice."""
    root = described([0, 1, 2, 3], [1.0, 1.0, 1.0, 1.0], 1.0)
    root.condition = 0
    root.children = tuple(  # type: ignore[assignment]
        described(active, [float(unit in active) for unit in range(4)], sufficiency, root)
        for active, sufficiency in (left, right)
    )
    return root


def test_a_split_that_switches_units_off_on_both_sides_stays() -> None:
    root = split(([0, 1], 1.0), ([2, 3], 1.0))
    prune_unconfirmed(root, 0.98, least_off=0.4)
    assert root.children is not None
    assert root.condition == 0


@pytest.mark.parametrize("sufficiency", [0.6, float("nan")])
def test_a_split_into_leaves_that_do_not_suffice_is_taken_back(sufficiency: float) -> None:
    root = split(([0, 1], sufficiency), ([2, 3], sufficiency))
    prune_unconfirmed(root, 0.98, least_off=0.4)
    assert root.children is None
    assert root.condition == -1


@pytest.mark.parametrize(("least_off", "stays"), [(0.2, True), (0.4, False)])
def test_a_unit_lost_on_one_side_only_must_hold_enough_of_the_other(least_off: float, stays: bool) -> None:
    root = split(([0, 1, 2], 1.0), ([0, 1], 1.0))  # the third unit has a third of the effects
    prune_unconfirmed(root, 0.98, least_off=least_off)
    assert (root.children is not None) == stays


def test_whole_spaces_are_checked_together_and_regions_alone() -> None:
    few, others, many = (
        described([0], [1.0] * 4, 1.0),
        described([1], [1.0] * 4, 1.0),
        described([0, 1, 2], [1.0] * 4, 1),
    )
    leaf = described([3], [1.0] * 4, 1.0, parent=many)
    found = share_checks([(0, few), (1, others), (2, many), (2, leaf)], 2)
    assert sorted(np.flatnonzero(units).tolist() for _, _, units in found) == [[0, 1], [0, 1, 2], [3]]
    assert all(units[node.active].all() for _, node, units in found)
    assert [target for target, node, _ in found if node is leaf] == [2]
    together = share_checks([(0, few), (1, others), (2, many)], 3)
    assert [np.flatnonzero(units).tolist() for _, _, units in together] == [[0, 1, 2]]


@pytest.mark.parametrize("seed", range(3))
def test_what_mostly_goes_with_the_switch_leaks(seed: int) -> None:
    data = planted(soft_switch, seed=seed, n_redraws=3000)
    beside = data.conditions.copy()
    beside[:, 5] = beside[:, 0] + 0.3 * np.random.default_rng(seed).normal(size=len(beside))
    data.conditions, data.pool_conditions = beside, beside
    root, inside = data.grow(), np.ones(len(data.redraws.row), dtype=bool)
    switch, blurred = (data._split(root, inside, condition, 0.0, 0.02) for condition in (0, 5))
    assert switch.leak < 1e-3 < 0.01 < blurred.leak
    as_much = replace(switch, leak=blurred.leak)
    assert as_much.saved < switch.saved


# --- few queries -----------------------------------------------------------------------------------------


def xor(rows: np.ndarray) -> np.ndarray:
    return ((rows[:, 0] > 0) ^ (rows[:, 1] > 0)).astype(float)


def every_feature(rows: np.ndarray) -> np.ndarray:
    return (rows @ np.linspace(1.0, 0.5, N_UNITS) > 0).astype(float)


def units_of(*chosen: int) -> np.ndarray:
    return np.isin(np.arange(N_UNITS), chosen)


@pytest.mark.parametrize("seed", range(5))
def test_few_queries_tell_that_two_units_decide(seed: int) -> None:
    data = planted(xor, n_redraws=60, n_mixtures=60, seed=seed)
    root = data.grow()
    assert data.seem_to_suffice(root, units_of(0, 1), 0.9)
    assert not data.seem_to_suffice(root, units_of(0), 0.9)
    assert not data.seem_to_suffice(root, units_of(0, 1, 2), 0.9)  # one that does not stand out


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_few_units_do_not_seem_to_suffice_where_all_matter(n: int, seed: int) -> None:
    data = planted(every_feature, n_redraws=60, n_mixtures=60, seed=seed)
    root = data.grow()
    best = units_of(*np.argsort(-root.score)[:n])
    assert not data.seem_to_suffice(root, best, 0.85)


def test_nothing_seems_to_suffice_without_queries_that_could_tell() -> None:
    data = planted(xor, n_redraws=60, n_mixtures=3)
    assert not data.seem_to_suffice(data.grow(), units_of(0, 1), 0.9)
