"""Outputs: kinds, codes and agreement."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sointer.data.outputs import Outputs
from sointer.errors import BlackBoxError, InputError, LoadError

rng = np.random.default_rng(0)

KINDS = [
    (np.array([[0, 1], [1, 1]]), ["binary", "binary"], [2, 2]),
    (np.array([[0.0, 0.0], [0.0, 0.0]]), ["binary", "binary"], [2, 2]),
    (np.array([[True, False]]), ["binary", "binary"], [2, 2]),
    (np.array([[-1, 1], [-1, -1]]), ["binary", "binary"], [2, 2]),
    (np.array([["a", "u"], ["b", "u"]]), ["binary", "binary"], [2, 1]),
    (np.array([["a", "u"], ["b", "v"], ["c", "u"]]), ["categorical", "binary"], [3, 2]),
    (np.array([[0, 5], [1, 5], [2, 5]] * 5), ["categorical", "binary"], [3, 1]),
    (np.array([[0.0, 0], [1, 0], [2, 0]] * 5), ["categorical", "binary"], [3, 2]),
    (np.array([["a", 1], ["b", 2], ["b", 3]] * 5, dtype=object), ["binary", "categorical"], [2, 3]),
    (np.array([[0.2, 0.9], [1.0, 0.0]]), ["probability", "probability"], [2, 2]),
    (np.array([[0.2, 1.0], [1.0, 0.0]]), ["probability", "probability"], [2, 2]),  # zeros and ones beside fractions
    (np.array([[0.25, 1.5], [1.0, 0.0]]), ["continuous", "continuous"], [2, 2]),
    (np.array([[0.25, 7.5, 1], [0.5, 0.1, 0], [0.1, 0.2, 1]]), ["continuous", "continuous", "binary"], [2, 2, 2]),
    (np.arange(10).reshape(10, 1), ["continuous"], [2]),
    (np.arange(200).reshape(200, 1) % 50, ["continuous"], [2]),
    (np.arange(200).reshape(200, 1) % 32, ["categorical"], [32]),
    (np.array([[0.3], [0.7]]), ["probability"], [2]),
    (np.array([[0.5], [2.5]]), ["continuous"], [2]),
    (np.array([["a", 0.5], ["b", 7.25], ["a", 3.5]], dtype=object), ["binary", "continuous"], [2, 2]),
]


@pytest.mark.parametrize(("Y", "kinds", "n_classes"), KINDS)
def test_kinds_are_inferred(Y: np.ndarray, kinds: list[str], n_classes: list[int]) -> None:
    outputs = Outputs.infer(Y)
    assert list(outputs.kinds) == kinds
    assert outputs.kind == (kinds[0] if len(set(kinds)) == 1 else "mixed")
    assert outputs.graded.tolist() == [kind in ("probability", "continuous") for kind in kinds]
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
    assert [one.labels for one in outputs.label_sets] == [(-1, 1), (-1, 1)]
    assert outputs.constant.tolist() == [False, True]
    np.testing.assert_array_equal(outputs.encode(np.array([[-1, 1]])), [[0, 1]])
    assert Outputs.infer(np.array([[0.5, 2.5]])).label_sets == [None, None]
    strings = Outputs.infer(np.array([["b", "x"], ["a", "x"]]))
    assert [one.labels for one in strings.label_sets] == [("a", "b"), ("x",)]


def test_dtype_of_a_later_reply_does_not_matter() -> None:
    outputs = Outputs.infer(np.array([[0, 1], [1, 0]]))
    for dtype in (bool, np.int8, np.float32, object):
        np.testing.assert_array_equal(outputs.encode(np.array([[1, 0]], dtype=dtype)), [[1, 0]])
    several = Outputs.infer(np.array([["a", 1], ["b", 2], ["b", 3]] * 3, dtype=object))
    np.testing.assert_array_equal(several.encode(np.array([["b", 3.0]], dtype=object)), [[1, 2]])
    assert several.decode(np.array([[1, 2]])).tolist() == [["b", 3]]


def test_new_labels() -> None:
    outputs = Outputs.infer(np.array([["b", "x"], ["c", "x"]]), names=["first", "second"])
    later = np.array([["a", "x"]])
    with pytest.raises(BlackBoxError, match=r"'first' has new labels 'a', expected one of 'b', 'c'"):
        outputs.encode(later)
    wider = outputs.with_new_labels(later)
    assert (outputs.kinds, wider.kinds) == (("binary", "binary"), ("categorical", "binary"))
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
    codes = outputs.encode(P)
    assert codes.dtype == np.float32
    np.testing.assert_allclose(codes, P, atol=1e-6)
    np.testing.assert_array_equal(outputs.labels(P), [[0, 0, 1], [1, 0, 1]])
    Q = np.array([[0.45, 0.6, 0.9], [0.6, 0.1, 0.4]])
    np.testing.assert_array_equal(outputs.agree(P, Q), [[1, 0, 1], [1, 1, 0]])
    np.testing.assert_allclose(outputs.difference(P, Q), np.abs(P - Q))
    np.testing.assert_allclose(outputs.decode(codes), P, atol=1e-6)
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
    assert Z.min() >= 0
    assert Z.max() <= 1
    for j in range(2):  # a code is the share of numbers seen that lie below
        below = (Y[:, j][:, None] > Y[:, j][None]).mean(axis=1)
        np.testing.assert_allclose(Z[:, j], below, atol=0.02)
    np.testing.assert_array_equal(outputs.labels(Y), np.median(Y, axis=0) < Y)
    inside = (Z > 0.011) & (Z < 0.989)
    np.testing.assert_allclose(outputs.decode(Z)[inside], Y[inside], rtol=1e-3, atol=0.01)
    step = outputs.scale * 0.1
    np.testing.assert_allclose(outputs.scale, Y.std(axis=0), rtol=0.1)
    assert outputs.agree(Y, Y + 0.99 * step).all()
    assert not outputs.agree(Y, Y + 1.01 * step).any()
    np.testing.assert_allclose(outputs.difference(Y, Y + step), 0.1)
    wide = Outputs.infer(Y, tolerance=0.5)
    assert wide.agree(Y, Y + 4.9 * step).all()
    back = Outputs.from_json(json.loads(json.dumps(wide.to_json())))
    np.testing.assert_array_equal(back.encode(Y), Z)
    assert back.tolerance == 0.5


def test_an_outlier_of_a_million_deviations_changes_little() -> None:
    Y = rng.normal(size=(500, 1))
    with_outlier = np.concatenate([Y, [[1e6]], [[-1e6]]])
    plain, outputs = Outputs.infer(Y), Outputs.infer(with_outlier)
    assert outputs.scale == pytest.approx(plain.scale, rel=0.05)
    np.testing.assert_allclose(outputs.encode(Y), plain.encode(Y), atol=0.01)
    codes = outputs.encode(with_outlier)
    assert codes[-2] == codes.max() < 1
    assert codes[-1] == codes.min() > 0
    assert not outputs.agree(Y[:1], Y[:1] + outputs.scale * 0.2).any(), "an outlier made everything agree"


def test_a_constant_number_does_not_divide_by_zero() -> None:
    Y = np.column_stack([np.full(20, 0.1), rng.normal(size=20) * 3])
    outputs = Outputs.infer(Y)
    assert outputs.constant.tolist() == [True, False]
    np.testing.assert_allclose(outputs.encode(Y)[:, 0], 0.5, atol=1e-6)
    np.testing.assert_allclose(outputs.decode(outputs.encode(Y))[:, 0], 0.1)
    assert np.isfinite(outputs.encode(Y)).all()
    assert outputs.agree(Y, Y).all()
    assert np.isfinite(outputs.scale).all()


# --- several kinds in one model ----------------------------------------------------------------------------

NAMES = ["class", "chance", "price"]
MIXED = np.empty((40, 3), dtype=object)
MIXED[:, 0] = np.array(["dog", "cat", "emu"])[np.arange(40) % 3]
MIXED[:, 1] = np.linspace(0, 1, 40)
MIXED[:, 2] = np.linspace(100, 500, 40) ** 2
KINDS_SAID = ["categorical", "probability", "continuous"]


@pytest.mark.parametrize(
    "kind",
    [
        KINDS_SAID,
        tuple(KINDS_SAID),
        [None, "probability", None],
        {"chance": "probability"},
        dict(zip(NAMES, KINDS_SAID, strict=True)),
    ],
)
def test_each_output_has_a_kind_of_its_own(kind) -> None:
    outputs = Outputs.infer(MIXED, names=NAMES, kind=kind)
    assert list(outputs.kinds) == KINDS_SAID
    assert outputs.kind == "mixed"
    outputs = Outputs.from_json(json.loads(json.dumps(outputs.to_json())))
    codes = outputs.encode(MIXED)
    assert codes.dtype == np.float32
    assert codes[:3, 0].tolist() == [1, 0, 2]  # cat, dog, emu
    np.testing.assert_allclose(codes[:, 1], MIXED[:, 1].astype(float), atol=1e-6)
    assert (np.diff(codes[:, 2]) >= 0).all()
    assert 0 <= codes[:, 2].min() < codes[:, 2].max() <= 1
    labels = outputs.labels(MIXED)
    assert labels.dtype == np.int64
    assert labels[:, 0].tolist() == codes[:, 0].tolist()
    assert labels[:, 1].tolist() == [0] * 20 + [1] * 20
    back = outputs.decode(codes)
    assert back[:, 0].tolist() == MIXED[:, 0].tolist()
    np.testing.assert_allclose(back[1:-1, 2].astype(float), MIXED[1:-1, 2].astype(float), rtol=0.02)
    assert outputs.agree(MIXED, MIXED).all()
    other = MIXED[::-1]
    same = outputs.agree(MIXED, other)
    assert same[:, 0].tolist() == (MIXED[:, 0] == other[:, 0]).tolist()
    assert same[:, 1].tolist() == [False] * 40
    apart = outputs.difference(MIXED, other)
    assert apart[:, 0].tolist() == (~same[:, 0]).astype(float).tolist()
    np.testing.assert_allclose(apart[:, 1], np.abs((MIXED[:, 1] - other[:, 1]).astype(float)))
    np.testing.assert_allclose(apart[:, 2] * outputs.scale[2], np.abs((MIXED[:, 2] - other[:, 2]).astype(float)))


def test_targets_of_several_kinds() -> None:
    outputs = Outputs.infer(MIXED, names=NAMES, kind=KINDS_SAID)
    targets = np.arange(40) % 3
    codes, known = outputs.encode_targets(MIXED, targets)
    assert known.all()
    np.testing.assert_array_equal(codes, outputs.encode(MIXED)[np.arange(40), targets])
    values = outputs.label_targets(codes, targets)
    assert values[::3].tolist() == MIXED[::3, 0].tolist()
    np.testing.assert_allclose(values[1::3].astype(float), MIXED[1::3, 1].astype(float), atol=1e-6)
    new = MIXED.copy()
    new[0, 0] = "yak"
    codes, known = outputs.encode_targets(new, targets)
    assert known.tolist() == [False] + [True] * 39
    assert outputs.knows(new).tolist() == [False] + [True] * 39
    with pytest.raises(BlackBoxError, match="'class' has new labels 'yak'"):
        outputs.encode(new)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (["categorical", "probability"], "one for each of the 3 outputs"),
        ({"prize": "continuous"}, "'prize', which is no output"),
        (["categorical", "chance", None], "must be one of"),
        (3, "must be one of"),
        ({"class": "continuous"}, "strings"),
        ({"price": "probability"}, "outside"),
    ],
)
def test_kinds_that_cannot_be_are_refused(kind, words) -> None:
    with pytest.raises(InputError, match=words):
        Outputs.infer(MIXED, names=NAMES, kind=kind)


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
        Outputs.from_json({"kinds": ["binary"]})
    numbers = Outputs.infer(rng.normal(size=(50, 1))).to_json()
    numbers["quantiles"][0]["levels"] = numbers["quantiles"][0]["levels"][::-1]
    with pytest.raises(LoadError, match="rising"):
        Outputs.from_json(numbers)


def test_truth_values_beside_probabilities_are_labels_and_zeros_and_ones_are_not() -> None:
    risk = np.linspace(0, 1, 12)
    flags = np.array([[bool(p > 0.5), p] for p in risk.tolist()], dtype=object)
    assert Outputs.infer(flags).kinds == ("binary", "probability")
    assert Outputs.infer(np.column_stack([risk > 0.5, risk])).kinds == ("probability", "probability")
    beside = np.array([[float(p > 0.5), p, 1] for p in risk.tolist()], dtype=object)
    assert Outputs.infer(beside).kinds == ("probability", "probability", "binary")
