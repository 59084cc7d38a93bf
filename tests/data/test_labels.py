"""Numbers as quantiles: there and back, ties, outliers, and curves that are none."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sointer.data.labels import FENCE, LOWEST, N_KNOTS, Quantiles

numbers = st.lists(
    st.floats(-1e12, 1e12, allow_nan=False).map(lambda x: float(np.float32(x))), min_size=1, max_size=200
)


@settings(max_examples=100, deadline=None)
@given(numbers)
def test_codes_rise_with_numbers_and_stay_between_zero_and_one(column: list[float]) -> None:
    values = np.array(column)
    curve = Quantiles.of(values)
    codes = curve.encode(np.sort(values))
    assert (np.diff(codes) >= 0).all()
    assert codes.min() >= LOWEST - 1e-12
    assert codes.max() <= 1 - LOWEST + 1e-12
    assert (np.diff(curve.values) > 0).all()
    assert (np.diff(curve.levels) > 0).all()
    assert 1 <= len(curve.values) <= N_KNOTS
    assert np.isfinite(curve.deviation)
    assert curve.deviation > 0


@settings(max_examples=100, deadline=None)
@given(numbers)
def test_numbers_come_back_but_for_the_outermost(column: list[float]) -> None:
    values = np.array(column)
    curve = Quantiles.of(values)
    back = curve.decode(curve.encode(values))
    wanted = np.clip(values, curve.values[0], curve.values[-1])
    np.testing.assert_allclose(back, wanted, atol=1e-6 * max(1.0, np.abs(values).max()))
    # Of the numbers that are no outliers the outermost knots leave out two percent, at the most.
    low, high = np.quantile(values, [0.25, 0.75])
    fence = FENCE * (high - low) if high > low else np.inf
    usual = values[(values >= low - fence) & (values <= high + fence)]
    outside = (usual < curve.values[0]).sum() + (usual > curve.values[-1]).sum()
    assert outside <= 2 * np.ceil(LOWEST * len(values))


@settings(max_examples=50, deadline=None)
@given(numbers)
def test_a_curve_is_the_same_after_json(column: list[float]) -> None:
    curve = Quantiles.of(np.array(column))
    again = Quantiles.from_json(json.loads(json.dumps(curve.to_json())))
    assert np.array_equal(again.values, curve.values)
    assert np.array_equal(again.levels, curve.levels)
    assert again.deviation == curve.deviation


def slow_code(values: np.ndarray, number: float) -> float:
    """The share of numbers below, those equal to it counting half."""
    return float((values < number).mean() + (values == number).mean() / 2)


@pytest.mark.parametrize("draw", ["normal", "exponential", "lognormal", "uniform"])
def test_a_code_is_the_share_of_numbers_below(draw: str) -> None:
    values = getattr(np.random.default_rng(0), draw)(size=2000)
    codes = Quantiles.of(values).encode(values)
    expected = np.array([slow_code(values, number) for number in values])
    np.testing.assert_allclose(codes, np.clip(expected, LOWEST, 1 - LOWEST), atol=0.01)


def test_numbers_that_occur_often_lie_in_the_middle_of_their_levels() -> None:
    values = np.array([0.0] * 60 + [1.0] * 20 + [5.0] * 20)
    curve = Quantiles.of(values)
    assert len(curve.values) <= 5  # three, and perhaps one between each two
    expected = [slow_code(values, number) for number in (0.0, 1.0, 5.0)]
    np.testing.assert_allclose(curve.encode(np.array([0.0, 1.0, 5.0])), expected, atol=0.02)
    np.testing.assert_allclose(curve.decode(curve.encode(values)), values)


def test_many_zeros_beside_numbers() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(1000) < 0.5, 0.0, rng.exponential(size=1000))
    curve = Quantiles.of(values)
    codes = curve.encode(values)
    assert len(np.unique(codes[values == 0])) == 1
    assert codes[values == 0][0] == pytest.approx(0.25, abs=0.02)
    assert (codes[values > 0.05] > codes[values == 0][0]).all()


@pytest.mark.parametrize("size", [1e6, 1e15, -1e6])
def test_an_outlier_changes_neither_codes_nor_deviation(size: float) -> None:
    values = np.random.default_rng(0).normal(size=1000)
    plain, curve = Quantiles.of(values), Quantiles.of(np.append(values, size))
    np.testing.assert_allclose(curve.encode(values), plain.encode(values), atol=0.01)
    assert curve.deviation == pytest.approx(plain.deviation, rel=0.02)
    assert curve.encode(np.array([size])).tolist() == [1 - LOWEST if size > 0 else LOWEST]
    assert abs(curve.decode(curve.encode(np.array([size])))[0]) < 5


def test_equal_numbers_have_one_code() -> None:
    for value in (0.0, 0.1, -3e9):
        curve = Quantiles.of(np.full(20, value))
        assert curve.encode(np.array([value - 1, value, value + 1])) == pytest.approx([0.5] * 3)
        assert curve.decode(np.array([0.0, 0.5, 1.0])).tolist() == [value] * 3
        assert curve.deviation > 0
        assert np.isfinite(curve.deviation)


@pytest.mark.parametrize(
    "change",
    [
        {"values": [1.0, 0.0, 2.0]},
        {"values": [0.0, 0.0, 2.0]},
        {"values": [0.0, 1.0]},
        {"values": [0.0, 1.0, float("nan")]},
        {"values": [0.0, 1.0, float("inf")]},
        {"values": [[0.0, 1.0, 2.0]]},
        {"values": [], "levels": []},
        {"levels": [0.5, 0.4, 0.9]},
        {"shares": [0.5, 0.4, 0.9]},
        {"shares": [0.1, 0.9]},
        {"deviation": 0.0},
        {"deviation": -1.0},
        {"deviation": float("inf")},
        {"deviation": float("nan")},
        {"values": list(range(100)), "levels": np.linspace(0.1, 0.9, 100).tolist()},
    ],
)
def test_what_is_no_rising_curve_is_refused(change: dict) -> None:
    good = {"values": [0.0, 1.0, 2.0], "levels": [0.1, 0.5, 0.9], "deviation": 1.0}
    assert Quantiles.from_json(good).decode(np.array(0.5)) == 1.0
    with pytest.raises(ValueError, match="no rising curve"):
        Quantiles.from_json(good | change)


# --- codes that are nearly linear ----------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(numbers)
def test_nearly_linear_codes_rise_and_lead_back(column: list[float]) -> None:
    values = np.array(column)
    curve = Quantiles.of(values).nearly_linear(values)
    codes = curve.encode(np.sort(values))
    assert (np.diff(codes) >= 0).all()
    assert LOWEST - 1e-12 <= codes.min() <= codes.max() <= 1 - LOWEST + 1e-12
    wanted = np.clip(values, curve.values[0], curve.values[-1])
    np.testing.assert_allclose(curve.decode(curve.encode(values)), wanted, atol=1e-6 * max(1.0, np.abs(values).max()))
    again = Quantiles.from_json(json.loads(json.dumps(curve.to_json())))
    for name in ("values", "levels", "shares"):
        assert np.array_equal(getattr(again, name), getattr(curve, name))


def test_between_clusters_nearly_linear_codes_rise_as_the_numbers_do() -> None:
    rng = np.random.default_rng(0)
    values = 100.0 * (rng.random(2000) < 0.4) + rng.normal(size=2000)
    ranks, curve = Quantiles.of(values), Quantiles.of(values).nearly_linear(values)
    gap = np.array([5.0, 95.0])
    assert np.diff(ranks.encode(gap))[0] < 0.1  # so that nothing can be said of the way between them
    assert np.diff(curve.encode(gap))[0] == pytest.approx(0.9 * 0.8, abs=0.08)
    # Small numbers are told apart by their ranks, as before.
    assert curve.rank(curve.encode(values)) == pytest.approx(np.argsort(np.argsort(values)) / 2000, abs=0.02)
    assert curve.decode(np.array(curve.middle)) == pytest.approx(np.median(values), abs=0.05)
    assert curve.deviation == ranks.deviation


def test_outliers_do_not_squeeze_all_other_numbers_together() -> None:
    values = np.random.default_rng(0).normal(size=1000)
    curve = Quantiles.of(np.append(values, 1e6)).nearly_linear(np.append(values, 1e6))
    low, high = curve.encode(np.array([-1.0, 1.0]))
    assert high - low > 0.2
    assert curve.values[-1] < 20


def test_skewed_numbers_are_not_cut_off() -> None:
    values = np.exp(1.4 * np.random.default_rng(0).normal(size=5000))
    curve = Quantiles.of(values).nearly_linear(values)
    assert (values > curve.values[-1]).mean() < 0.005
    assert (values > Quantiles.of(values).values[-1]).mean() > 0.009


def test_numbers_too_close_to_be_told_apart_keep_their_ranks() -> None:
    for column in (np.full(20, 3.0), np.array([1.0, np.nextafter(1.0, 2.0)])):
        curve = Quantiles.of(column).nearly_linear(column)
        assert np.isfinite(curve.encode(column)).all()
        np.testing.assert_allclose(curve.decode(curve.encode(column)), column)
