"""Groups: units, their names and the way between units, features and columns."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sointer.errors import InputError, LoadError
from sointer.masking.build import make_groups, restore_groups

NAMES = ["a", "b", "c", "d"]


def test_no_groups_is_the_identity() -> None:
    groups = make_groups(None, NAMES)
    assert groups.unit_names == NAMES
    assert [m.tolist() for m in groups.members] == [[0], [1], [2], [3]]
    values = np.arange(8.0, dtype=np.float32).reshape(2, 4)
    total = groups.sum_columns(values)
    np.testing.assert_array_equal(total, values)
    assert total.dtype == np.float32
    assert total is not values


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({"g": ["d", "b"]}, ["a", "g", "c"]),
        ({"g": [3, "b"], "h": np.array([0])}, ["h", "g", "c"]),
        ([["d", 1]], ["a", "d+b", "c"]),
        (np.array([5, 2, 7, 2]), ["a", "b+d", "c"]),
        ([5, 2, 7, 2], ["a", "b+d", "c"]),
    ],
)
def test_all_forms_give_the_same_units(spec: object, names: list[str]) -> None:
    groups = make_groups(spec, NAMES)
    assert groups.unit_names == names
    assert groups.unit_of_feature.tolist() == [0, 1, 2, 1]
    assert [m.tolist() for m in groups.members] == [[0], [1, 3], [2]]


def test_labels_of_a_frame_that_are_no_strings_name_features() -> None:
    years = make_groups({"g": [2021, 2023]}, ["2020", "2021", "2022", "2023"])
    assert [m.tolist() for m in years.members] == [[0], [1, 3], [2]]
    pairs = make_groups({"g": [("a", 1), ("b", 2)]}, ["('a', 1)", "('a', 2)", "('b', 2)"])
    assert [m.tolist() for m in pairs.members] == [[0, 2], [1]]
    assert make_groups({"g": [0, 1]}, ["0", "1", "2"]).unit_names == ["g", "2"]
    assert make_groups([1, 0, 1], ["1", "2", "3"]).unit_names == ["1+3", "2"]  # an id for each feature
    with pytest.raises(InputError, match=r"the name of one feature and the index of another, '2'.*: '1' or '2'"):
        make_groups({"g": [1, 3]}, ["1", "2", "3"])


def test_one_hot_columns_follow_their_feature() -> None:
    groups = make_groups({"g": ["a", "c"]}, ["a", "b", "c"], column_feature=[0, 1, 1, 2])
    assert groups.unit_of_column.tolist() == [0, 1, 1, 0]
    mask = np.array([[True, False], [False, True]])
    np.testing.assert_array_equal(groups.to_columns(mask), [[1, 0, 0, 1], [0, 1, 1, 0]])
    np.testing.assert_array_equal(groups.to_features(mask), [[1, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(groups.sum_columns([[1, 10, 100, 1000]]), [[1001, 110]])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(0, 99))
def test_sums_and_masks_match_a_slow_twin(ids: list[int], seed: int) -> None:
    groups = make_groups(ids, [f"f{j}" for j in range(len(ids))])
    rng = np.random.default_rng(seed)
    values = rng.integers(-9, 9, size=(3, len(ids))).astype(float)
    slow = np.array([[row[list(m)].sum() for m in groups.members] for row in values])
    np.testing.assert_array_equal(groups.sum_columns(values), slow)
    assert groups.n_units == len(set(ids))
    assert sorted(np.concatenate(groups.members).tolist()) == list(range(len(ids)))
    mask = rng.random((3, groups.n_units)) < 0.5
    twin = np.zeros((3, len(ids)), bool)
    for unit, members in enumerate(groups.members):
        twin[:, members] = mask[:, [unit]]
    np.testing.assert_array_equal(groups.to_features(mask), twin)
    back = restore_groups(json.loads(json.dumps(groups.to_json())))
    assert back.unit_names == groups.unit_names
    np.testing.assert_array_equal(back.unit_of_column, groups.unit_of_column)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"g": ["a", "b"], "h": ["b"]}, "'b' in both 'g' and 'h'"),
        ({"g": ["a", "a"]}, "overlap"),
        ({"g": []}, "at least one"),
        ({"g": "ab"}, "list of"),
        ({"g": ["z"]}, "'z'"),
        ({"g": [4]}, "0 to 3"),
        ({"g": [-1]}, "0 to 3"),
        ({"g": [True]}, "True"),
        ({"a": ["b", "c"]}, "'a'"),
        ([0, 1], "2 ids"),
        ([0, 1, -1, 2], "at least 0"),
        ("ab", "dict of lists"),
        (3, "dict of lists"),
    ],
)
def test_bad_groups_are_refused_in_words(spec: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_groups(spec, NAMES)


def test_bad_masks_and_values() -> None:
    groups = make_groups(None, NAMES)
    with pytest.raises(InputError, match=r"\(n, 4\)"):
        groups.to_columns(np.ones((2, 3), bool))
    with pytest.raises(InputError, match="boolean"):
        groups.to_features(np.ones((2, 4)))
    with pytest.raises(InputError, match=r"\(n, 4\)"):
        groups.sum_columns(np.ones((2, 3)))
    with pytest.raises(LoadError):
        restore_groups({})


def test_many_features_are_quick() -> None:
    n = 100_000
    groups = make_groups(np.arange(n) // 2, [f"f{j}" for j in range(n)])
    assert groups.n_units == n // 2
