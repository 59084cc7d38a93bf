"""Outputs: kinds, codes and agreement."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sointer.errors import BlackBoxError, InputError, LoadError
from sointer.outputs import Outputs

rng = np.random.default_rng(0)

KINDS = [
    (np.array([[0, 1], [1, 1]]), "binary", [2, 2]),
    (np.array([[0.0, 0.0], [0.0, 0.0]]), "binary", [2, 2]),
    (np.array([[True, False]]), "binary", [2, 2]),
    (np.array([[-1, 1], [-1, -1]]), "binary", [2, 2]),
    (np.array([["a", "u"], ["b", "u"]]), "binary", [2, 1]),
    (np.array([["a", "u"], ["b", "v"], ["c", "u"]]), "categorical", [3, 2]),
    (np.array([[0, 5], [1, 5], [2, 5]] * 5), "categorical", [3, 1]),
    (np.array([[0.0, 0], [1, 0], [2, 0]] * 5), "categorical", [3, 2]),
    (np.array([["a", 1], ["b", 2], ["b", 3]], dtype=object), "categorical", [2, 3]),
    (np.array([[0.2, 0.9], [1.0, 0.0]]), "probability", [2, 2]),
    (np.array([[0.25, 1.5], [1.0, 0.0]]), "continuous", [1, 1]),
    (np.arange(10).reshape(10, 1), "continuous", [1]),
    (np.arange(200).reshape(200, 1) % 50, "continuous", [1]),
    (np.arange(200).reshape(200, 1) % 32, "categorical", [32]),
    (np.array([[0.3], [0.7]]), "probability", [2]),
    (np.array([[0.5], [2.5]]), "continuous", [1]),
]


@pytest.mark.parametrize(("Y", "kind", "n_classes"), KINDS)
def test_kinds_are_inferred(Y: np.ndarray, kind: str, n_classes: list[int]) -> None:
    outputs = Outputs.infer(Y)
    assert outputs.kind == kind
    assert outputs.n_classes == n_classes
    assert outputs.names == [f"y{j}" for j in range(Y.shape[1])]


labels = st.one_of(
    st.lists(st.sampled_from(["a", "bb", "", "ü"]), min_size=1),
    st.lists(st.integers(-3, 3), min_size=1),
    st.lists(st.booleans(), min_size=1),
    st.lists(st.sampled_from([-1.0, 0.0, 2.0]), min_size=1),
)


@settings(max_examples=60, deadline=None)
@given(labels, st.integers(1, 3))
def test_labels_come_back_from_their_codes_and_through_json(column: list[object], d: int) -> None:
    Y = np.column_stack([np.roll(np.array(column), shift) for shift in range(d)])
    numeric = not isinstance(column[0], str)
    outputs = Outputs.infer(Y, kind="categorical" if numeric else None)
    outputs = Outputs.from_json(json.loads(json.dumps(outputs.to_json())))
    codes = outputs.encode(Y)
    assert codes.dtype == np.int64
    back = outputs.decode(codes)
    assert back.dtype.kind == Y.dtype.kind
    np.testing.assert_array_equal(back, Y)
    assert outputs.agree(Y, back).all()
    assert outputs.constant.all() == (len(set(column)) == 1)


def test_classes_are_sorted_and_a_constant_output_shares_two_labels() -> None:
    outputs = Outputs.infer(np.array([[1, -1], [-1, -1]]))
    assert outputs.classes is not None
    assert [one.tolist() for one in outputs.classes] == [[-1, 1], [-1, 1]]
    assert outputs.constant.tolist() == [False, True]
    np.testing.assert_array_equal(outputs.encode(np.array([[-1, 1]])), [[0, 1]])
    assert Outputs.infer(np.array([[0.5, 2.5]])).classes is None
    strings = Outputs.infer(np.array([["b", "x"], ["a", "x"]]))
    assert [one.tolist() for one in strings.classes or []] == [["a", "b"], ["x"]]


def test_dtype_of_a_later_reply_does_not_matter() -> None:
    outputs = Outputs.infer(np.array([[0, 1], [1, 0]]))
    for dtype in (bool, np.int8, np.float32, object):
        np.testing.assert_array_equal(outputs.encode(np.array([[1, 0]], dtype=dtype)), [[1, 0]])
    mixed = Outputs.infer(np.array([["a", 1], ["b", 2], ["b", 3]], dtype=object))
    np.testing.assert_array_equal(mixed.encode(np.array([["b", 3.0]], dtype=object)), [[1, 2]])
    assert mixed.decode(np.array([[1, 2]])).tolist() == [["b", 3]]


def test_new_labels() -> None:
    outputs = Outputs.infer(np.array([["b", "x"], ["c", "x"]]), names=["first", "second"])
    later = np.array([["a", "x"]])
    with pytest.raises(BlackBoxError, match=r"'first' has new labels 'a', expected one of 'b', 'c'"):
        outputs.encode(later)
    wider = outputs.with_new_labels(later)
    assert (outputs.kind, wider.kind) == ("binary", "categorical")
    np.testing.assert_array_equal(
        wider.encode(np.array([["b", "x"], ["c", "x"], ["a", "x"]])), [[0, 0], [1, 0], [2, 0]]
    )
    assert wider.constant.tolist() == [False, True]
    varied = wider.with_new_labels(np.array([["a", "y"]]))
    assert varied.constant.tolist() == [False, False]
    zero = Outputs.infer(np.zeros((3, 1), int))
    assert zero.with_new_labels(np.zeros((2, 1))).constant.tolist() == [True]
    assert zero.with_new_labels(np.ones((2, 1))).constant.tolist() == [False]
    assert zero.with_new_labels(np.ones((2, 1))).kind == "binary"
    with pytest.raises(BlackBoxError, match="new labels 2"):
        zero.encode(np.full((1, 1), 2))
    with pytest.raises(BlackBoxError, match=r"new labels 0\.5"):
        zero.encode(np.full((1, 1), 0.5))
    with pytest.raises(BlackBoxError, match="new labels 'a'"):
        zero.encode(np.array([["a"]]))


def test_probabilities() -> None:
    P = np.array([[0.2, 0.5, 0.50001], [1.0, 0.0, 0.9]])
    outputs = Outputs.infer(P)
    np.testing.assert_array_equal(outputs.encode(P), [[0, 0, 1], [1, 0, 1]])
    Q = np.array([[0.45, 0.6, 0.9], [0.6, 0.1, 0.4]])
    np.testing.assert_array_equal(outputs.agree(P, Q), [[1, 0, 1], [1, 1, 0]])
    np.testing.assert_allclose(outputs.difference(P, Q), np.abs(P - Q))
    np.testing.assert_array_equal(outputs.decode(outputs.encode(P)), [[0, 0, 1], [1, 0, 1]])
    with pytest.raises(BlackBoxError, match=r"range from 0\.2 to 3"):
        outputs.encode(np.array([[0.2, 3.0, 0.5]]))
    with pytest.raises(BlackBoxError, match="expected numbers"):
        outputs.encode(np.array([["a", "b", "c"]]))


def test_continuous() -> None:
    Y = rng.normal(5, [1, 100], size=(500, 2))
    outputs = Outputs.infer(Y)
    assert outputs.kind == "continuous"
    assert outputs.tolerance == 0.1
    Z = outputs.encode(Y)
    assert Z.dtype == np.float32
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(Z.std(axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(outputs.decode(Z), Y, atol=1e-3)
    step = Y.std(axis=0) * 0.1
    assert outputs.agree(Y, Y + 0.99 * step).all()
    assert not outputs.agree(Y, Y + 1.01 * step).any()
    np.testing.assert_allclose(outputs.difference(Y, Y + step), 0.1)
    wide = Outputs.infer(Y, tolerance=0.5)
    assert wide.agree(Y, Y + 4.9 * step).all()
    back = Outputs.from_json(json.loads(json.dumps(wide.to_json())))
    np.testing.assert_array_equal(back.encode(Y), Z)
    assert back.tolerance == 0.5


def test_a_constant_number_does_not_divide_by_zero() -> None:
    Y = np.column_stack([np.full(20, 0.1), rng.normal(size=20) * 3])
    outputs = Outputs.infer(Y)
    assert outputs.constant.tolist() == [True, False]
    np.testing.assert_allclose(outputs.encode(Y)[:, 0], 0, atol=1e-6)
    assert np.isfinite(outputs.encode(Y)).all()
    assert outputs.agree(Y, Y).all()


def test_labels_disagree_by_zero_or_one() -> None:
    outputs = Outputs.infer(np.array([["a", "x"], ["b", "y"], ["c", "y"]]))
    a, b = np.array([["a", "x"]]), np.array([["a", "y"]])
    np.testing.assert_array_equal(outputs.agree(a, b), [[True, False]])
    np.testing.assert_array_equal(outputs.difference(a, b), [[0.0, 1.0]])
    mixed = np.array([["a", 1]], dtype=object)
    np.testing.assert_array_equal(outputs.agree(a, mixed), [[True, False]])
    np.testing.assert_array_equal(outputs.agree(a, np.array([[1, 2]])), [[False, False]])


def test_kind_can_be_said() -> None:
    ones = np.array([[0, 1], [1, 0]])
    assert Outputs.infer(ones, kind="probability").kind == "probability"
    assert Outputs.infer(ones, kind="continuous").kind == "continuous"
    assert Outputs.infer(np.arange(20).reshape(10, 2), kind="categorical").n_classes == [10, 10]
    for Y, kind, words in [
        (np.array([["a"], ["b"]]), "continuous", "strings"),
        (np.array([["a"], ["b"]]), "probability", "strings"),
        (np.array([[2.0], [0.5]]), "probability", "outside"),
        (np.array([[1], [2], [3]]), "binary", "3 different"),
        (rng.normal(size=(50, 1)), "categorical", "50 different fractions"),
        (ones, "multilabel", "must be one of"),
    ]:
        with pytest.raises(InputError, match=words):
            Outputs.infer(Y, kind=kind)


def test_bad_input() -> None:
    for Y, words in [
        (np.ones(3), "shape"),
        (np.ones((0, 2)), "shape"),
        (np.array([[np.nan]]), "NaN"),
        (np.array([[1j]]), "complex"),
    ]:
        with pytest.raises(InputError, match=words):
            Outputs.infer(Y)
    outputs = Outputs.infer(np.array([[0, 1], [1, 0]]))
    with pytest.raises(InputError, match=r"\(n, 2\)"):
        outputs.encode(np.ones((2, 3)))
    with pytest.raises(InputError, match="the same"):
        outputs.agree(np.ones((1, 2)), np.ones((2, 2)))
    with pytest.raises(InputError, match="from 0 to 1"):
        outputs.decode(np.array([[2, 0]]))
    with pytest.raises(InputError, match="tolerance is for continuous"):
        Outputs.infer(np.array([[0], [1]]), tolerance=0.1)
    with pytest.raises(InputError, match="tolerance must be"):
        Outputs.infer(rng.normal(size=(9, 1)), tolerance=-1.0)
    with pytest.raises(InputError, match="output_names"):
        Outputs.infer(np.array([[0], [1]]), names=["a", "b"])
    with pytest.raises(LoadError):
        Outputs.from_json({"kind": "binary"})
