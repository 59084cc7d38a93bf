"""What one may point at in a mask: pixels, boxes, sets and masks, for all images or one per image."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sointer.data.images import pixel_names
from sointer.data.outputs import Outputs
from sointer.data.targets import (
    at_targets,
    majority,
    outputs_of,
    pixels_of_targets,
    resolve_mask_targets,
    target_columns,
    target_values,
)
from sointer.errors import InputError

SHAPE = (4, 6)
NAMES = pixel_names(SHAPE)
MASK = np.zeros(SHAPE, dtype=bool)
MASK[1:3, 2:5] = True


def resolve(target, n_rows=3):
    return resolve_mask_targets(target, NAMES, SHAPE, n_rows)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ((1, 2), [8, 8, 8]),
        ((np.int64(1), np.int32(2)), [8, 8, 8]),
        (8, [8, 8, 8]),
        ("(1, 2)", [8, 8, 8]),
        ([(0, 0), (1, 2), (3, 5)], [0, 8, 23]),
        (((0, 0), (1, 2), (3, 5)), [0, 8, 23]),
        (np.array([[0, 0], [1, 2], [3, 5]]), [0, 8, 23]),
        (torch.tensor([[0, 0], [1, 2], [3, 5]]), [0, 8, 23]),
        ([0, 8, 23], [0, 8, 23]),
        (np.array([0, 8, 23]), [0, 8, 23]),
        (["(0, 0)", 8, (3, 5)], [0, 8, 23]),
        (np.s_[1:2, 2:3], [8, 8, 8]),  # a region of one pixel is that pixel
        (np.s_[1, 2:3], [8, 8, 8]),
        ({(1, 2)}, [8, 8, 8]),
    ],
)
def test_pixels(target, expected) -> None:
    found = resolve(target)
    assert found.index.tolist() == expected
    assert found.regions.shape == (0, 24)
    assert found.region_names == []


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (np.s_[1:3, 2:5], "box 1:3, 2:5"),
        (np.s_[1:-1, -4:5], "box 1:3, 2:5"),
        ({(r, c) for r in (1, 2) for c in (2, 3, 4)}, "6 pixels around (2, 3)"),
        (frozenset((r, c) for r in (1, 2) for c in (2, 3, 4)), "6 pixels around (2, 3)"),
        (MASK, "6 pixels around (2, 3)"),
        (torch.from_numpy(MASK), "6 pixels around (2, 3)"),
        (np.stack([MASK] * 3), "6 pixels around (2, 3)"),
        ([MASK, np.s_[1:3, 2:5], {(r, c) for r in (1, 2) for c in (2, 3, 4)}], "6 pixels around (2, 3)"),
    ],
)
def test_regions(target, name) -> None:
    found = resolve(target)
    assert found.index.tolist() == [24, 24, 24]
    assert found.regions.shape == (1, 24)
    assert np.array_equal(found.regions[0], MASK.ravel())
    assert found.region_names == [name]


def test_whole_sides_and_steps() -> None:
    found = resolve(np.s_[:, 1::2], 1)
    expected = np.zeros(SHAPE, dtype=bool)
    expected[:, [1, 3, 5]] = True
    assert np.array_equal(found.regions[0].reshape(SHAPE), expected)


def test_regions_are_numbered_once_and_named_apart() -> None:
    other = {(1, 3), (2, 3)}, {(1, 2), (1, 4), (2, 2), (2, 4)}, {(0, 3), (3, 3)}
    found = resolve([MASK, (0, 1), other[0], other[2], MASK, other[0]], 6)
    assert found.index.tolist() == [24, 1, 25, 26, 24, 25]
    assert len(set(found.region_names)) == 3
    assert found.region_names[1:] == ["2 pixels around (2, 3)", "2 pixels around (2, 3) [2]"]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (None, "got None"),
        ((4, 0), r"\(4, 0\) lies outside the image, which has 4 rows and 6 columns.*to \(3, 5\)"),
        ((0, 6), "outside the image"),
        ((-1, 0), "outside the image"),
        ([(0, 0), (0, 6), (0, 0)], r"\(0, 6\) lies outside"),
        (24, "from 0 to 23"),
        ("(9, 9)", "unknown output"),
        (np.s_[0:5, 0:2], "box 0:5, 0:2 reaches outside the image, which has 4 rows and 6 columns"),
        (np.s_[0:2, 7:9], "outside"),
        (np.s_[2:2, 0:3], "empty"),
        (np.s_[3:1, 0:3], "empty"),
        (set(), "empty set"),
        ({(0, 0), (9, 9)}, r"\(9, 9\) lies outside"),
        ({3, 4}, r"a set must hold pixels \(row, column\), got [34]"),
        (np.zeros((5, 6), dtype=bool), "a mask of 5 x 6 pixels, but the images have 4 x 6"),
        (np.zeros(SHAPE, dtype=bool), "without any True pixel"),
        (np.zeros((3, 4, 6), dtype=bool), "without any True pixel"),
        (np.ones((3, 4, 5), dtype=bool), "a mask of 4 x 5 pixels"),
        (np.ones(SHAPE, dtype=int), r"integers of shape \(n, 2\) .*mask\.astype\(bool\)"),
        (np.ones((3, 3), dtype=int), r"integers of shape \(n, 2\)"),
        ([(0, 0), (0, 1)], r"one pixel or region per image \(3\), got 2"),
        ([1, 2], r"one pixel or region per image \(3\), got 2.*a tuple"),
        (np.ones((2, 4, 6), dtype=bool), "per image .3., got 2"),
        ([1.5, 2.0, 3.0], "got 1.5"),
        ((1.0, 2.0), "per image .3., got 2"),
        ([True, False, True], "got True"),
        ({"a": 1}, "got {'a': 1}"),
        (slice(0, 3), r"got slice\(0, 3"),
        ([(0, 0, 0)] * 3, r"got \(0, 0, 0\)"),
    ],
)
def test_bad_targets(target, words) -> None:
    with pytest.raises(InputError, match=words):
        resolve(target)


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ((1, 2), {8}),
        ([(1, 2), (1, 2), 3], {3, 8}),
        (np.s_[0:2, 0:2], {0, 1, 6, 7}),
        ([np.s_[0:2, 0:2], (3, 5)], {0, 1, 6, 7, 23}),
        (MASK, set(np.flatnonzero(MASK).tolist())),
        (np.array([[0, 1], [0, 2]]), {1, 2}),
        ({(0, 1), (0, 2)}, {1, 2}),
        (range(5), {0, 1, 2, 3, 4}),
    ],
)
def test_the_targets_of_fit_are_all_their_pixels(targets, expected) -> None:
    assert pixels_of_targets(targets, NAMES, SHAPE).tolist() == sorted(expected)


def test_no_targets_and_wrong_targets_of_fit() -> None:
    with pytest.raises(InputError, match="empty"):
        pixels_of_targets([], NAMES, SHAPE)
    with pytest.raises(InputError, match="outside"):
        pixels_of_targets([(0, 0), (4, 4)], NAMES, SHAPE)


# --- values at targets --------------------------------------------------------------------------------------

rng = np.random.default_rng(0)
REGIONS = rng.random((3, 24)) < 0.3
TARGETS = np.array([3, 24, 26, 0, 25, 24, 23])


def slowly(table, combine):
    """Row by row, as the words have it."""
    result = []
    for row, target in zip(table, TARGETS, strict=True):
        result.append(row[target] if target < 24 else combine(row[REGIONS[target - 24]]))
    return np.array(result)


def test_the_value_of_a_region_is_the_mean_of_its_pixels() -> None:
    table = rng.normal(size=(7, 24))
    np.testing.assert_allclose(at_targets(table, TARGETS, REGIONS), slowly(table, np.mean))
    agree = rng.random((7, 24)) < 0.5
    np.testing.assert_allclose(at_targets(agree, TARGETS, REGIONS), slowly(agree, np.mean))
    assert (at_targets(np.ones((7, 24), dtype=bool), TARGETS, REGIONS) == 1.0).all()
    columns = target_columns(table, TARGETS, REGIONS)
    for i in range(7):
        np.testing.assert_allclose(columns[i, i], slowly(table, np.mean)[i])
    np.testing.assert_array_equal(target_columns(table, np.array([2, 5])), table[:, [2, 5]])


def test_the_label_of_a_region_is_that_of_most_of_its_pixels() -> None:
    codes = rng.integers(0, 3, size=(7, 24))
    expected = slowly(codes, lambda inside: np.bincount(inside).argmax())
    np.testing.assert_array_equal(majority(codes, TARGETS, REGIONS), expected)
    labels = np.array(["a", "b", "c"])[codes]
    outputs = Outputs.infer(labels, shape=SHAPE)
    found, known = outputs.encode_targets(labels, TARGETS, REGIONS)
    assert known.all()
    np.testing.assert_array_equal(found, expected)
    assert outputs.label_targets(found, TARGETS).tolist() == np.array(["a", "b", "c"])[expected].tolist()


def test_the_number_of_a_region_is_the_mean_in_its_own_unit() -> None:
    table = rng.normal(size=(7, 24)) * np.arange(1, 25) + 100
    outputs = Outputs.infer(table, shape=SHAPE)
    assert outputs.encode_targets(table, TARGETS, REGIONS)[1].all()
    values = target_values(outputs, table, TARGETS, REGIONS).astype(float)
    np.testing.assert_allclose(values, slowly(table, np.mean), rtol=1e-5)


def test_all_outputs_of_targets() -> None:
    expected = {0, 3, 23} | set(np.flatnonzero(REGIONS.any(axis=0)).tolist())
    assert outputs_of(TARGETS, 24, REGIONS).tolist() == sorted(expected)
    assert outputs_of(np.array([5, 5, 2]), 24).tolist() == [2, 5]
