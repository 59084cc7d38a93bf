"""The piecewise-linear encoding against a twin in numpy, and what must hold of outliers and odd columns."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sointer.energy.space import MAX_ENCODED, InputScaling, PiecewiseLinear
from sointer.energy.sparse import SparseRows

N_BINS = 8


def slow_encoding(data: np.ndarray, row: np.ndarray) -> list[tuple[int, float]]:
    """Of one row: (input column, value) for every encoded column, from the definition, in double precision."""
    found = []
    for j, values in enumerate(data.T):
        spread = values.std()
        spread = spread if spread > 1e-9 * np.abs(values).max() else 1.0
        found.append((j, float(np.clip((row[j] - values.mean()) / spread, -10, 10))))
    edges = [np.quantile(values, np.linspace(0, 1, N_BINS + 1)) for values in data.T]
    for b in range(N_BINS):
        for j in range(data.shape[1]):
            low, high = edges[j][b], edges[j][b + 1]
            if high - low > 1e-6 * max(abs(low), abs(high)):
                share = min(max((row[j] - low) / (high - low), 0.0), 1.0)
                found.append((j, share - 0.5))
    return found


def encode(data: np.ndarray, rows: np.ndarray, shift: np.ndarray | None = None) -> np.ndarray:
    shift = np.zeros(data.shape[1]) if shift is None else shift
    encoding = PiecewiseLinear.of(data, shift)
    return encoding(torch.from_numpy((rows - shift).astype(np.float32))).double().numpy()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_the_encoding_equals_its_slow_twin(seed: int, shifted: bool) -> None:
    rng = np.random.default_rng(seed)
    data = np.column_stack(
        [
            rng.normal(3, 2, 60),
            rng.integers(0, 2, 60),
            rng.exponential(size=60),
            np.full(60, 7.0),
            rng.integers(0, 4, 60),
        ]
    )
    rows = np.concatenate([data[:5], rng.normal(0, 5, size=(5, 5))])
    shift = data.mean(axis=0) if shifted else np.zeros(5)
    encoding, found = PiecewiseLinear.of(data, shift), encode(data, rows, shift)
    for row, values in zip(rows, found, strict=True):
        expected = slow_encoding(data, row)
        assert encoding.column.tolist() == [j for j, _ in expected]
        np.testing.assert_allclose(values, [value for _, value in expected], atol=2e-4)
    assert encoding.n_encoded == found.shape[1]


def test_every_column_enters_as_it_is_and_by_its_bins() -> None:
    data = np.random.default_rng(0).normal(size=(100, 3))
    encoding = PiecewiseLinear.of(data, np.zeros(3))
    assert np.bincount(encoding.column.numpy()).tolist() == [1 + N_BINS] * 3


def test_a_constant_column_says_nothing() -> None:
    for value in (0.0, 7.0, 1e9, 0.1):  # the mean of equal numbers may differ from them in the last digit
        data = np.column_stack([np.full(50, value), np.arange(50.0)])
        encoding = PiecewiseLinear.of(data, data.mean(axis=0))
        assert (encoding.column == 0).sum() == 1
        found = encode(data, data, data.mean(axis=0))
        assert np.abs(found[:, 0]).max() < 1e-3
        assert np.isfinite(found).all()


def test_a_two_valued_column_has_one_bin_in_which_it_moves() -> None:
    rng = np.random.default_rng(0)
    for values in ([0.0, 1.0], [5.0, 9.0], [-1e6, 1e6]):
        data = rng.choice(values, size=(200, 1), p=[0.7, 0.3])
        found = encode(data, np.array([[values[0]], [values[1]]]))
        assert found.shape == (2, 2)  # scaled, and one bin
        assert found[:, 1].tolist() == [-0.5, 0.5]
        assert found[1, 0] > found[0, 0]


@pytest.mark.parametrize("size", [1e6, 1e8, -1e8])
def test_outliers_are_clipped_and_leave_the_others_their_bins(size: float) -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(1000, 1))
    with_outlier = data.copy()
    with_outlier[0] = size
    found = encode(with_outlier, with_outlier)
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 10.0
    assert np.abs(found[0]).max() == pytest.approx(10.0)
    # Seven of the eight bins are those without the outlier: what lies in them is told apart as well as before.
    between = slice(1, 8) if size > 0 else slice(2, 9)
    np.testing.assert_allclose(found[1:, between], encode(data, data)[1:, between], atol=0.05)


def test_values_beyond_the_data_count_as_the_outermost_bins() -> None:
    data = np.linspace(0, 1, 101)[:, None]
    found = encode(data, np.array([[-5.0], [0.0], [1.0], [5.0]]))
    assert found[:, 1:].tolist() == [[-0.5] * N_BINS, [-0.5] * N_BINS, [0.5] * N_BINS, [0.5] * N_BINS]
    assert (np.diff(found[:, 0]) > 0).all()  # the plain value tells them apart


def test_what_is_encoded_is_linear_within_bins_and_rises() -> None:
    data = np.random.default_rng(0).exponential(size=(500, 1))
    points = np.linspace(-1, 8, 400)[:, None]
    found = encode(data, points)
    assert (np.diff(found, axis=0) >= -1e-6).all()
    assert (np.diff(found[:, 1:].sum(axis=1)) >= -1e-6).all()
    edges = np.quantile(data, np.linspace(0, 1, N_BINS + 1))
    for low, high in pairwise(edges):
        three = encode(data, np.array([[low], [(low + high) / 2], [high]]))
        np.testing.assert_allclose(three[1], (three[0] + three[2]) / 2, atol=1e-3)


@pytest.mark.parametrize(
    ("n_columns", "n_bins"), [(10, 8), (455, 8), (456, 7), (1000, 3), (1365, 2), (1366, 0), (4096, 0), (9000, 0)]
)
def test_many_columns_have_fewer_bins(n_columns: int, n_bins: int) -> None:
    data = np.random.default_rng(0).normal(size=(30, n_columns))
    encoding = PiecewiseLinear.of(data, np.zeros(n_columns))
    assert encoding.n_encoded == n_columns * (1 + n_bins)
    assert encoding.n_encoded <= max(MAX_ENCODED, n_columns)
    assert torch.equal(encoding.column[:n_columns], torch.arange(n_columns))


def test_a_linear_layer_on_it_is_additive_over_columns() -> None:
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(40, 3, generator=generator)
    encoding = PiecewiseLinear.of(data.double().numpy(), np.zeros(3))
    weight, offset = torch.randn(5, encoding.n_encoded, generator=generator), torch.randn(5, generator=generator)
    found = encoding.then_linear(data, weight, offset)
    torch.testing.assert_close(found, encoding(data) @ weight.T + offset, atol=1e-4, rtol=1e-4)
    sparse = SparseRows.of_dense(data)
    torch.testing.assert_close(encoding.then_linear(sparse, weight, offset), found, atol=1e-4, rtol=1e-4)
    # Moving one column changes the layer by the same amount, whatever the other columns are.
    moved, other = data.clone(), data.flip(0).clone()
    other[:, 0], moved[:, 0] = data[:, 0], data[:, 0] + 0.7
    both = other.clone()
    both[:, 0] = moved[:, 0]
    change = encoding.then_linear(moved, weight, offset) - found
    torch.testing.assert_close(
        encoding.then_linear(both, weight, offset) - encoding.then_linear(other, weight, offset),
        change,
        atol=1e-4,
        rtol=1e-3,
    )


def test_it_is_saved_and_not_learned() -> None:
    data = np.random.default_rng(0).normal(size=(50, 2))
    encoding = PiecewiseLinear.of(data, np.zeros(2))
    assert not list(encoding.parameters())
    state = encoding.state_dict()
    again = PiecewiseLinear(encoding.n_encoded)
    again.load_state_dict(state)
    x = torch.from_numpy(data.astype(np.float32))
    assert torch.equal(again(x), encoding(x))


def test_one_row_of_data_and_columns_that_are_plain() -> None:
    assert np.isfinite(encode(np.ones((1, 2)), np.array([[5.0, 1.0]]))).all()
    scaling = InputScaling(3)
    assert scaling.n_encoded == 3
    assert scaling.column.tolist() == [0, 1, 2]
