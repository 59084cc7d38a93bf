"""Removal: what is kept is never touched, and nothing of what is removed leaks."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from sointer.data.inputs import InputFormat
from sointer.errors import BlackBoxError, InputError, LoadError
from sointer.masking.build import make_removal, restore_removal
from sointer.masking.removal import MAX_BACKGROUND_ROWS

data = np.random.default_rng(0).normal(size=(50, 4))
data[:, 3] = 7.0
plain = InputFormat.infer(data)
frame = pd.DataFrame({"size": [1.0, 2.0, 6.0], "colour": ["red", "blue", "red"]})
mixed = InputFormat.infer(frame)
encoded = mixed.encode(frame)


def halve(Z: np.ndarray, keep: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.where(keep, Z, Z / 2)


SPECS = ["zero", "mean", "marginal", "conditional", np.arange(4.0), halve, "auto"]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(range(len(SPECS))))
def test_kept_values_stay_and_the_input_is_not_written(seed: int, which: int) -> None:
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(rng.integers(1, 6), 4))
    keep = rng.random(Z.shape) < rng.random()
    removal = make_removal(SPECS[which], data, plain)
    before = Z.copy()
    out = removal.apply(Z, keep, rng)
    np.testing.assert_array_equal(Z, before)
    np.testing.assert_array_equal(out[keep], Z[keep])
    np.testing.assert_array_equal(removal.apply(Z, np.ones_like(keep), rng), Z)
    assert out.shape == Z.shape


@pytest.mark.parametrize("spec", ["zero", "mean", "marginal", "conditional", np.arange(4.0)])
def test_nan_cannot_leak_through(spec: object) -> None:
    Z = np.full((3, 4), np.nan)
    Z[:, 0] = np.inf
    removal = make_removal(spec, data, plain)
    out = removal.apply(Z, np.zeros(Z.shape, bool), np.random.default_rng(0))
    assert np.isfinite(out).all()


def test_fixed_values() -> None:
    rng = np.random.default_rng(0)
    nothing = np.zeros((2, 4), bool)
    for spec, reference in [
        ("zero", np.zeros(4)),
        ("mean", data.mean(axis=0)),
        ([1, 2, 3, 4], np.arange(1.0, 5)),
    ]:
        removal = make_removal(spec, data, plain)
        assert not removal.is_random
        np.testing.assert_allclose(removal.apply(data[:2], nothing, rng), np.tile(reference, (2, 1)))
        np.testing.assert_allclose(removal.references(5, rng), reference[None])
    removal = make_removal("zero", data, plain)
    np.testing.assert_array_equal(removal.differs(np.array([[0.0, 1.0, -0.0, 7.0]])), [[0, 1, 0, 1]])
    references = removal.references(1, rng)
    references[:] = 9  # a copy
    np.testing.assert_array_equal(removal.references(1, rng), np.zeros((1, 4)))


def test_marginal_takes_whole_training_rows() -> None:
    removal = make_removal("marginal", data, plain)
    assert removal.is_random
    known = {tuple(row) for row in data}
    rng = np.random.default_rng(1)
    out = removal.apply(np.zeros((200, 4)), np.zeros((200, 4), bool), rng)
    assert {tuple(row) for row in out} <= known
    assert len({tuple(row) for row in out}) > 40
    assert {tuple(row) for row in removal.references(9, rng)} <= known
    half = removal.apply(np.zeros((30, 4)), np.tile([True, False, False, False], (30, 1)), rng)
    assert {tuple(row[1:]) for row in half} <= {row[1:] for row in known}
    np.testing.assert_array_equal(removal.differs(np.zeros((2, 4))), np.tile([True, True, True, False], (2, 1)))
    same = [removal.apply(data, np.zeros(data.shape, bool), np.random.default_rng(3)) for _ in range(2)]
    np.testing.assert_array_equal(*same)


def test_categories_stay_valid() -> None:
    rng = np.random.default_rng(0)
    nothing = np.zeros((1, 3), bool)
    for spec, size in [("zero", 0.0), ("mean", 3.0)]:
        removal = make_removal(spec, encoded, mixed)
        back = mixed.decode(removal.apply(encoded[1:2], nothing, rng))
        assert back.iloc[0].tolist() == [size, "red"]
    chosen = make_removal([5, "blue"], encoded, mixed)
    assert mixed.decode(chosen.references(1, rng)).iloc[0].tolist() == [5.0, "blue"]
    columns = make_removal([5.0, 0.0, 1.0], encoded, mixed)
    assert mixed.decode(columns.references(1, rng)).iloc[0].tolist() == [5.0, "red"]
    drawn = make_removal("marginal", encoded, mixed).references(20, rng)
    np.testing.assert_array_equal(drawn[:, 1:].sum(axis=1), 1)
    with pytest.raises(InputError, match="'green'"):
        make_removal([5, "green"], encoded, mixed)


def test_auto() -> None:
    assert make_removal("auto", data, plain).name == "marginal"
    counts = np.random.default_rng(0).poisson(0.3, size=(50, 4)).astype(float)
    assert make_removal("auto", counts, plain).name == "zero"
    assert make_removal("auto", -counts, plain).name == "marginal"
    assert make_removal("auto", sparse.csr_array(data), plain).name == "marginal", "CSR that is hardly ever zero"
    assert make_removal("auto", sparse.csr_array(counts), plain).name == "zero"
    assert make_removal("auto", sparse.csr_array(-counts), plain).name == "zero"
    many = pd.DataFrame({"size": [1.0, 2.0, 3.0], "c": ["p", "q", "r"], "d": ["p", "q", "r"]})
    format = InputFormat.infer(many)
    Z = format.encode(many)
    assert np.mean(Z == 0) > 0.55
    assert make_removal("auto", Z, format).name == "marginal"
    letters = InputFormat.infer(many[["c", "d"]])
    assert make_removal("auto", letters.encode(many[["c", "d"]]), letters).name == "marginal"


def test_sparse_training_data_stays_sparse() -> None:
    tall = sparse.csr_array((np.ones(3), ([0, 1, 2], [0, 0, 1])), shape=(3, 3))
    format = InputFormat.infer(tall)
    mean = make_removal("mean", tall, format)
    np.testing.assert_allclose(mean.references(1, np.random.default_rng(0)), [[2 / 3, 1 / 3, 0]])
    marginal = make_removal("marginal", tall, format)
    assert sparse.issparse(marginal.background.rows)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(marginal.differs(np.zeros((1, 3))), [[True, True, False]])
    out = marginal.apply(np.full((40, 3), 5.0), np.zeros((40, 3), bool), np.random.default_rng(0))
    assert {tuple(row) for row in out} == {(1.0, 0.0, 0.0), (0.0, 1.0, 0.0)}


def test_a_function_is_checked() -> None:
    rng = np.random.default_rng(0)
    Z, keep = data[:3], np.tile([True, False, True, False], (3, 1))
    removal = make_removal(halve, data, plain)
    np.testing.assert_array_equal(removal.apply(Z, keep, rng), np.where(keep, Z, Z / 2))
    assert removal.references(6, rng).shape == (6, 4)
    np.testing.assert_array_equal(removal.differs(Z), np.tile([True, True, True, False], (3, 1)))
    assert removal.name == "halve"

    def spoils(Z: np.ndarray, keep: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        Z[:] = 0
        keep[:] = False  # must not loosen the check
        return Z

    for function, words in [
        (spoils, "features that are kept"),
        (lambda Z, keep, rng: Z[:, :2], r"expected numbers of shape \(3, 4\)"),
        (lambda Z, keep, rng: np.where(keep, Z, np.nan), "NaN"),
        (lambda Z, keep, rng: Z.astype(str), "expected numbers"),
        (lambda Z, keep, rng: None, "expected numbers"),
    ]:
        with pytest.raises(InputError, match=words):
            make_removal(function, data, plain).apply(Z, keep, rng)
    with pytest.raises(BlackBoxError, match=r"removal function '<lambda>' failed: TypeError.*\(x, keep, rng\) -> x"):
        make_removal(lambda Z: Z, data, plain).apply(Z, keep, rng)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_state_restores_the_same_removal(spec: object, layout: object) -> None:
    removal = make_removal(spec, layout(data), plain)  # type: ignore[operator]
    meta, arrays = removal.state()
    function = halve if spec is halve else None
    back = restore_removal(json.loads(json.dumps(meta)), arrays, function=function)
    keep = np.random.default_rng(0).random(data.shape) < 0.5
    a, b = (one.apply(data, keep, np.random.default_rng(5)) for one in (removal, back))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(removal.differs(data), back.differs(data))
    assert (back.name, back.is_random) == (removal.name, removal.is_random)


def test_a_function_must_be_given_again() -> None:
    back = restore_removal(*make_removal(halve, data, plain).state())
    with pytest.raises(LoadError, match=r"'halve'.*removal="):
        back.apply(data, np.ones(data.shape, bool), np.random.default_rng(0))
    with pytest.raises(LoadError, match="incomplete"):
        restore_removal({}, {})


def test_the_background_is_bounded_and_repeatable() -> None:
    large = np.arange(3000.0).reshape(-1, 1)
    format = InputFormat.infer(large)
    first, again, other = (
        make_removal("marginal", large, format, rng=np.random.default_rng(seed)).state()[1]["rows"]
        for seed in (0, 0, 1)
    )
    assert first.shape == (MAX_BACKGROUND_ROWS, 1)
    assert len(np.unique(first)) == MAX_BACKGROUND_ROWS
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("median", "'median'"),
        (3, "got 3"),
        (None, "None"),
        (np.ones(3), "4 values"),
        (np.ones((1, 4)), "flat"),
        ([1.0, np.nan, 0.0, 0.0], "finite"),
        (["a", 1, 2, 3], "numbers"),
    ],
)
def test_bad_specs(spec: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_removal(spec, data, plain)


def test_bad_masks() -> None:
    removal = make_removal("zero", data, plain)
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="booleans"):
        removal.apply(data, np.ones(data.shape), rng)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="booleans"):
        removal.apply(data, np.ones((1, 4), bool), rng)
    with pytest.raises(InputError, match="dense"):
        removal.apply(sparse.csr_array(data), np.ones(data.shape, bool), rng)  # type: ignore[arg-type]
