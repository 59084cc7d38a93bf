"""Measures by value, against slow twins and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import f1_score

from sointer.metrics import mean_interval
from sointer.metrics.faithfulness import agreement, f1, post_hoc_f1, target_columns
from sointer.metrics.ground_truth import (
    exact_match,
    false_discovery_rates,
    median_rank,
    recall_at_k,
    sign_accuracy,
    switch_accuracy,
    top_k,
    top_of_sizes,
    true_positive_rates,
)

# --- ground truth --------------------------------------------------------------------------------------


def test_exact_match_by_value() -> None:
    selected = np.array([[3, 0], [0, 3], [0, 1], [3, 3]])
    assert exact_match(selected, [0, 3]) == 0.5
    assert exact_match(selected, (3, 0)) == 0.5
    assert exact_match(selected, np.array([True, False, False, True])) == 0.5
    by_row = np.array([[1, 0, 0, 1], [1, 0, 0, 1], [1, 1, 0, 0], [1, 0, 0, 1]], dtype=bool)
    assert exact_match(selected, by_row) == 0.75
    assert exact_match(by_row, by_row) == 1.0
    assert exact_match(by_row, [0, 3]) == 0.75
    assert exact_match(np.array([[0, 1]]), [0, 1, 2]) == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_set_measures_equal_slow_twins(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, n_features, k = 60, 6, 3
    selected = np.array([rng.choice(n_features, size=k, replace=False) for _ in range(n)])
    truth = rng.random((n, n_features)) < 0.5
    truth[~truth.any(axis=1), 0] = True
    mask = np.zeros((n, n_features), dtype=bool)
    for row, features in enumerate(selected.tolist()):
        mask[row, features] = True
    sets = [set(row) for row in selected.tolist()]
    truths = [set(np.flatnonzero(row).tolist()) for row in truth]
    same = sum(a == b for a, b in zip(sets, truths, strict=True)) / n
    assert exact_match(selected, truth) == pytest.approx(same)
    assert exact_match(mask, truth) == pytest.approx(same)
    for size in (1, 2, 3):
        recall = sum(len(set(a[:size]) & b) / len(b) for a, b in zip(selected.tolist(), truths, strict=True)) / n
        assert recall_at_k(selected, truth, size) == pytest.approx(recall)
    assert recall_at_k(mask, truth) == pytest.approx(recall_at_k(selected, truth, k))
    ranks = [sorted(row)[1] + 1 for row in selected.tolist()]
    assert median_rank(selected) == median_rank(mask) == pytest.approx(sum(ranks) / n)


def test_median_rank_of_the_first_four_is_two_and_a_half() -> None:
    assert median_rank(np.array([[3, 1, 0, 2], [0, 1, 2, 3]])) == 2.5
    assert median_rank(np.array([[True, False, True], [False, True, False]])) == 2.0


def test_top_k_puts_the_best_first() -> None:
    scores = np.array([[0.1, 0.9, -np.inf, 0.5], [4.0, 3.0, 2.0, 1.0]])
    assert top_k(scores, 2, 0).tolist() == [[1, 3], [0, 1]]
    assert top_k(scores, 4, 0).tolist() == [[1, 3, 0, 2], [0, 1, 2, 3]]
    assert top_k(scores, 0, 0).shape == (2, 0)


def test_top_k_breaks_ties_at_random_but_never_against_the_scores() -> None:
    scores = np.zeros((6000, 5))
    scores[:, 3] = 1.0
    chosen = top_k(scores, 2, np.random.default_rng(0))
    assert np.all(chosen[:, 0] == 3)
    shares = np.bincount(chosen[:, 1], minlength=5) / len(chosen)
    np.testing.assert_allclose(shares, [0.25, 0.25, 0.25, 0.0, 0.25], atol=0.03)
    np.testing.assert_array_equal(chosen, top_k(scores, 2, 0))
    assert not np.array_equal(chosen, top_k(scores, 2, 1))


def test_ground_truth_measures_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="negative"):
        exact_match(np.array([[0, -1]]), [0, 1])
    with pytest.raises(ValueError, match="integer indices"):
        exact_match(np.array([[0.5, 1.0]]), [0, 1])
    with pytest.raises(ValueError, match="boolean mask"):
        exact_match(np.array([[0, 1]]), [[0, 1]])
    with pytest.raises(ValueError, match="rows"):
        exact_match(np.array([[0], [1], [0]]), np.array([[True, False], [False, True]]))
    with pytest.raises(ValueError, match="cannot hold"):
        exact_match(np.array([[True, False]]), [5])
    with pytest.raises(ValueError, match="no order"):
        recall_at_k(np.array([[True, False]]), [0], 1)
    with pytest.raises(ValueError, match="undefined"):
        recall_at_k(np.array([[0], [1]]), np.array([[True, False], [False, False]]))
    with pytest.raises(ValueError, match="undefined"):
        median_rank(np.array([[False, False]]))
    with pytest.raises(ValueError, match="NaN"):
        top_k([[np.nan, 1.0]], 1, 0)
    with pytest.raises(ValueError, match="between"):
        top_k([[0.0, 1.0]], 3, 0)


@pytest.mark.parametrize("seed", range(5))
def test_rates_switches_and_signs_equal_slow_twins(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen, truth = rng.random((60, 7)) < 0.4, rng.random((60, 7)) < 0.4
    truth[:, 2] = True
    chosen[0] = False
    sets = [
        (set(np.flatnonzero(a).tolist()), set(np.flatnonzero(b).tolist())) for a, b in zip(chosen, truth, strict=True)
    ]
    tpr = [len(s & t) / len(t) for s, t in sets]
    fdr = [len(s - t) / len(s) if s else 0.0 for s, t in sets]
    np.testing.assert_allclose(true_positive_rates(chosen, truth), tpr)
    np.testing.assert_allclose(false_discovery_rates(chosen, truth), fdr)
    assert false_discovery_rates(chosen, truth)[0] == 0.0
    found = sum(all(f in s for f in (2, 5) if f in t) for s, t in sets) / len(sets)
    assert switch_accuracy(chosen, truth, (2, 5)) == pytest.approx(found)
    effects, true = rng.normal(size=(60, 7)), np.where(truth, rng.normal(size=(60, 7)), 0.0)
    effects[:, 3] = 0.0
    for quantile in (0.0, 0.5, 0.9):
        sizes = sorted(abs(float(c)) for c in true.ravel() if c != 0)
        cut = float(np.quantile(sizes, quantile))
        pairs = [(e, c) for e, c in zip(effects.ravel(), true.ravel(), strict=True) if c != 0 and abs(c) >= cut]
        right = sum(e * c > 0 for e, c in pairs) / len(pairs)
        assert sign_accuracy(effects, true, quantile) == pytest.approx(right)
    assert sign_accuracy(true, true) == 1.0
    assert sign_accuracy(-true, true) == 0.0


def test_the_best_of_each_row_in_its_own_number_with_ties_at_random() -> None:
    scores = np.array([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [0.5, 0.0, 0.1]])
    expected = [[False] * 3, [True, False, False], [True, False, True], [True] * 3]
    assert top_of_sizes(scores, [0, 1, 2, 3], 0).tolist() == expected
    tied = top_of_sizes(np.zeros((6000, 3)), np.full(6000, 2), 0)
    assert (tied.sum(axis=1) == 2).all()
    np.testing.assert_allclose(tied.mean(axis=0), np.full(3, 2 / 3), atol=0.03)
    np.testing.assert_array_equal(tied, top_of_sizes(np.zeros((6000, 3)), np.full(6000, 2), 0))
    truth = scores > 1.5
    truth[3, 0] = True
    assert exact_match(top_of_sizes(scores, truth.sum(axis=1), 0), truth) == 1.0


def test_measures_by_sample_refuse_nonsense() -> None:
    mask = np.array([[True, False]])
    with pytest.raises(ValueError, match="undefined"):
        true_positive_rates(mask, np.array([[False, False]]))
    with pytest.raises(ValueError, match="at least one feature"):
        switch_accuracy(mask, mask, [])
    with pytest.raises(ValueError, match="only 2"):
        switch_accuracy(mask, mask, [2])
    with pytest.raises(ValueError, match="same two axes"):
        sign_accuracy([[1.0]], [[1.0, 2.0]])
    with pytest.raises(ValueError, match="other than 0"):
        sign_accuracy([[1.0]], [[0.0]])
    with pytest.raises(ValueError, match="quantile"):
        sign_accuracy([[1.0]], [[1.0]], 1.0)
    with pytest.raises(ValueError, match="one size"):
        top_of_sizes([[1.0, 2.0]], 1, 0)
    with pytest.raises(ValueError, match="between 0 and 2"):
        top_of_sizes([[1.0, 2.0]], [3], 0)


# --- faithfulness --------------------------------------------------------------------------------------


def slow_f1(pairs: list[tuple[int, int]]) -> float | None:
    both = sum(a and b for a, b in pairs)
    positives = sum(a + b for a, b in pairs)
    return 2 * both / positives if positives else None


@pytest.mark.parametrize("seed", range(5))
def test_f1_equals_slow_twin_and_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = (rng.random((40, 8)) < 0.2).astype(int)
    prediction = (rng.random((40, 8)) < 0.2).astype(int)
    truth[:, 2] = prediction[:, 2] = 0  # a tag without positives is left out
    truth[4] = prediction[4] = 0  # and so is a sample
    tags = [slow_f1(list(zip(truth[:, t].tolist(), prediction[:, t].tolist(), strict=True))) for t in range(8)]
    rows = [slow_f1(list(zip(truth[i].tolist(), prediction[i].tolist(), strict=True))) for i in range(40)]
    assert tags[2] is None
    assert rows[4] is None
    for average, parts in (("macro", tags), ("example", rows)):
        counted = [part for part in parts if part is not None]
        assert f1(truth, prediction, average) == pytest.approx(sum(counted) / len(counted))
    assert f1(truth, prediction, "micro") == pytest.approx(f1_score(truth, prediction, average="micro"))
    keep_tags = (truth + prediction).any(axis=0)
    keep_rows = (truth + prediction).any(axis=1)
    assert f1(truth, prediction) == pytest.approx(
        f1_score(truth[:, keep_tags], prediction[:, keep_tags], average="macro", zero_division=0)
    )
    assert f1(truth, prediction, "example") == pytest.approx(
        f1_score(truth[keep_rows], prediction[keep_rows], average="samples", zero_division=0)
    )


def test_f1_by_value() -> None:
    truth = [[1, 0, 0], [1, 1, 0]]
    prediction = [[1, 1, 0], [0, 1, 0]]
    assert f1(truth, prediction, "macro") == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert f1(truth, prediction, "micro") == pytest.approx(4 / 6)
    assert f1(truth, prediction, "example") == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert f1(truth, truth) == 1.0
    assert f1([[1, 0]], [[0, 1]]) == 0.0
    for average in ("macro", "micro", "example"):
        assert math.isnan(f1([[0, 0]], [[0, 0]], average))
    with pytest.raises(ValueError, match="0 or 1"):
        f1([[0.5]], [[1]])
    with pytest.raises(ValueError, match="shape"):
        f1([[1, 0]], [[1]])
    with pytest.raises(ValueError, match="average"):
        f1([[1]], [[1]], "weighted")  # type: ignore[arg-type]


def test_post_hoc_f1_by_value() -> None:
    truth = np.array([[1, 0], [0, 1]])
    original = np.array([[1, 0], [1, 1]])
    explained = np.array([[1, 0], [1, 0]])
    scores = post_hoc_f1(truth, original, explained)
    assert scores.plain == pytest.approx((2 / 3 + 1) / 2)
    assert scores.post_hoc == pytest.approx((2 / 3 + 0) / 2)
    assert scores.relative_post_hoc == pytest.approx((1 + 0) / 2)
    assert post_hoc_f1(truth, original, explained, "micro").relative_post_hoc == pytest.approx(4 / 5)


def test_target_columns_keep_each_targets_own_output() -> None:
    outputs = np.arange(3 * 2 * 3).reshape(3, 2, 3)
    expected = [[outputs[t, i, t] for t in range(3)] for i in range(2)]
    assert target_columns(outputs).tolist() == expected
    chosen = target_columns(outputs[:2], targets=[2, 0])
    assert chosen.tolist() == [[outputs[0, i, 2], outputs[1, i, 0]] for i in range(2)]
    with pytest.raises(ValueError, match="as many targets"):
        target_columns(outputs[:2])


def test_agreement_by_value() -> None:
    assert agreement([1, 0, 1, 1], [1, 1, 1, 1]) == 0.75
    assert agreement(np.array(["a", "b"]), np.array(["a", "c"])) == 0.5
    with pytest.raises(ValueError, match="shape"):
        agreement([[1], [0]], [1, 0])
    with pytest.raises(ValueError, match="empty"):
        agreement([], [])


# --- intervals -----------------------------------------------------------------------------------------


def test_mean_interval_by_value() -> None:
    mean, low, high = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    half_width = 2.7764451052 * math.sqrt(2.5) / math.sqrt(5)  # t of 4 degrees of freedom at 0.975
    assert mean == 3.0
    assert low == pytest.approx(3.0 - half_width)
    assert high == pytest.approx(3.0 + half_width)
    assert mean_interval([0.5, 0.5, 0.5]) == (0.5, 0.5, 0.5)
    single = mean_interval([0.25])
    assert single.mean == 0.25
    assert math.isnan(single.low)
    assert math.isnan(single.high)
    with pytest.raises(ValueError, match="one value per seed"):
        mean_interval([])


def test_mean_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    intervals = [mean_interval(rng.standard_normal(5)) for _ in range(2000)]
    covered = np.mean([low <= 0 <= high for _, low, high in intervals])
    assert covered == pytest.approx(0.95, abs=0.015)
