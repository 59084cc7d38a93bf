"""Patches and superpixels: units of pixels, the same for all images or of each image's own."""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest

from sointer import Patches, Superpixels
from sointer.data.inputs import InputFormat
from sointer.errors import InputError, MissingExtraError
from sointer.masking.build import make_groups, make_removal, restore_groups
from sointer.masking.selection import allowed_units
from sointer.masking.superpixels import merge_smallest

rng = np.random.default_rng(0)


def build(spec, images):
    form = InputFormat.infer(images)
    return make_groups(spec, form.feature_names, form.column_feature, form), form.encode(images)


def halves(n=4, channels=3, height=12, width=16, scale=1.0):
    """Images of two flat colours with a border that differs from image to image."""
    images = np.zeros((n, channels, height, width))
    for i in range(n):
        images[i, :, :, 4 + 2 * i :] = scale
    return images


def through_json(groups):
    return restore_groups(json.loads(json.dumps(groups.to_json())))


# --- patches ------------------------------------------------------------------------------------------------


def test_patches_cover_the_image_and_the_last_may_be_smaller() -> None:
    images = rng.random((2, 3, 5, 7))
    groups, data = build(Patches(3), images)
    assert groups.unit_names == [f"patch ({i}, {j})" for i in range(2) for j in range(3)]
    expected = np.array([[(r // 3) * 3 + c // 3 for c in range(7)] for r in range(5)])
    np.testing.assert_array_equal(groups.unit_of_feature.reshape(5, 7), expected)
    mask = np.zeros((2, 6), dtype=bool)
    mask[0, 4] = mask[1, 2] = True
    kept = groups.to_columns(mask).reshape(images.shape)
    assert np.array_equal(kept[0], np.broadcast_to(expected == 4, (3, 5, 7)))
    sums = groups.sum_columns(data)
    np.testing.assert_allclose(sums[1, 2], images[1][:, expected == 2].sum())
    assert groups.bind(data) is groups
    assert groups.take(np.array([0])) is groups
    again = through_json(groups)
    assert again.unit_names == groups.unit_names
    assert np.array_equal(again.unit_of_column, groups.unit_of_column)
    assert again.spec == groups.spec == Patches(3)
    assert len(json.dumps(groups.to_json())) < 200


@pytest.mark.parametrize("size", [0, -1, 2.5, "3", True])
def test_bad_patches(size) -> None:
    with pytest.raises(InputError, match="size of Patches must be an int of at least 1"):
        Patches(size)


def test_patches_and_superpixels_are_for_images() -> None:
    for spec in (Patches(2), Superpixels()):
        with pytest.raises(InputError, match="was given with a table, but is for images"):
            build(spec, np.zeros((3, 4)))
    with pytest.raises(InputError, match="groups is the class Patches"):
        build(Patches, np.zeros((3, 1, 4, 4)))


def test_a_map_of_group_numbers() -> None:
    images = rng.random((2, 2, 3, 4))
    parts = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 2, 2]])
    groups, _ = build(parts, images)
    np.testing.assert_array_equal(groups.unit_of_feature, parts.ravel())
    np.testing.assert_array_equal(groups.unit_of_column, np.tile(parts.ravel(), 2))
    with pytest.raises(InputError, match=r"integers of shape \(3, 4\), one group id per pixel"):
        build(parts.T, images)


def test_what_to_build_the_same_groups_from() -> None:
    images = rng.random((2, 1, 2, 3))
    assert build(None, images)[0].spec is None
    named = {"left": [0, 3], "right": [2, 5]}
    assert build(named, images)[0].spec == named


# --- superpixels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
@pytest.mark.parametrize("scale", [1.0, 255.0, -7.5])
def test_superpixels_follow_the_border_of_each_image(channels, scale) -> None:
    images = halves(channels=channels, scale=scale)
    compactness = 10.0 if channels in (1, 3) else 0.1
    groups, data = build(Superpixels(12, compactness=compactness), images)
    bound = groups.bind(data)
    for i, units in enumerate(bound.unit_of_features(len(data)).reshape(-1, 12, 16)):
        left, right = set(units[:, : 4 + 2 * i].ravel()), set(units[:, 4 + 2 * i :].ravel())
        assert len(left) + len(right) > 2
        assert not left & right
        assert max(left | right) < 12
        first = [int(np.flatnonzero(units.ravel() == u)[0]) for u in sorted(left | right)]
        assert first == sorted(first)  # numbered from the top left
    assert groups.n_units == 12
    assert groups.unit_names[7] == "superpixel 7"


def test_masks_and_sums_of_superpixels_row_by_row() -> None:
    images = rng.random((5, 3, 12, 16))
    groups, data = build(Superpixels(9), images)
    bound = groups.bind(data)
    units = bound.unit_of_features(5)
    mask = rng.random((5, 9)) < 0.5
    columns, features, sums = bound.to_columns(mask), bound.to_features(mask), bound.sum_columns(data)
    assert bound.sum_columns(data.astype(np.float32)).dtype == np.float32
    for i in range(5):
        slow = mask[i][units[i]]
        np.testing.assert_array_equal(features[i], slow)
        np.testing.assert_array_equal(columns[i].reshape(3, -1), np.tile(slow, (3, 1)))
        for unit in range(9):
            inside = (units[i] == unit).reshape(12, 16)
            np.testing.assert_allclose(sums[i, unit], images[i][:, inside].sum())
    index = np.array([3, 3, 0])
    np.testing.assert_array_equal(bound.take(index).to_columns(mask[index]), columns[index])
    np.testing.assert_array_equal(groups.bind(data[[3]]).to_columns(mask[[3]]), columns[[3]])


def test_more_superpixels_than_asked_for_are_never_made() -> None:
    images = rng.random((3, 3, 20, 20))
    for n in (2, 3, 7, 11, 50):
        groups, data = build(Superpixels(n, compactness=50.0), images)
        assert groups.bind(data).unit_of_features(3).max() < n


def test_the_smallest_segments_join_their_nearest_neighbours() -> None:
    segments = np.array([[0, 0, 0, 5], [0, 3, 2, 2], [0, 3, 2, 2], [1, 1, 1, 2]])
    merged = merge_smallest(segments, 3)
    assert merged.tolist() == [[0, 0, 0, 0], [0, 0, 2, 2], [0, 0, 2, 2], [1, 1, 1, 2]]
    assert segments[0, 3] == 5
    assert np.array_equal(merge_smallest(segments, 5), segments)
    assert len(np.unique(merge_smallest(segments, 1))) == 1


def test_a_superpixel_that_an_image_does_not_have_is_never_allowed() -> None:
    images = np.stack([np.full((1, 8, 8), 0.5), halves(1, 1, 8, 8)[0] + 0.1, rng.random((1, 8, 8)) + 0.1])
    groups, data = build(Superpixels(20), images)
    bound = replace(groups.bind(data), labels=groups.bind(data).labels // np.array([[1], [2], [5]], dtype=np.int32))
    allowed = allowed_units(make_removal("zero", data, InputFormat.infer(images)), bound, data)
    for i, units in enumerate(bound.unit_of_features(3)):
        assert set(np.flatnonzero(allowed[i])) == set(units.tolist())
    assert not allowed[1:, 10:].any()


def test_equal_images_are_segmented_once(monkeypatch) -> None:
    groups, data = build(Superpixels(6), rng.random((2, 1, 8, 8)))
    calls = []
    segment = Superpixels.segment
    monkeypatch.setattr(Superpixels, "segment", lambda self, image: calls.append(1) or segment(self, image))
    bound = groups.bind(data[[0, 1, 0, 0]])
    assert len(calls) == 2
    units = bound.unit_of_features(4)
    assert np.array_equal(units[0], units[2])


def test_the_settings_are_saved_and_not_the_superpixels() -> None:
    groups, data = build(Superpixels(6, compactness=3.0), rng.random((2, 1, 8, 8)))
    bound = groups.bind(data)
    again = through_json(bound)
    assert again.spec == Superpixels(6, compactness=3.0)
    assert np.array_equal(again.bind(data).unit_of_features(2), bound.unit_of_features(2))
    with pytest.raises(InputError, match=r"call groups\.bind\(rows\)"):
        again.to_columns(np.ones((2, 6), dtype=bool))


def test_superpixels_can_be_sent_to_other_processes() -> None:
    groups, data = build(Superpixels(6), rng.random((2, 1, 8, 8)))
    again = pickle.loads(pickle.dumps(groups.bind(data)))
    assert np.array_equal(again.unit_of_features(2), groups.bind(data).unit_of_features(2))
    assert again.unit_names == groups.unit_names


def test_misuse_of_superpixels_is_explained() -> None:
    groups, data = build(Superpixels(6), rng.random((3, 1, 8, 8)))
    bound = groups.bind(data)
    with pytest.raises(InputError, match="those of 3 images, but 2 rows were given"):
        bound.to_columns(np.ones((2, 6), dtype=bool))
    with pytest.raises(InputError, match=r"boolean of shape \(n, 6\)"):
        bound.to_columns(np.ones((3, 5), dtype=bool))
    with pytest.raises(InputError, match=r"expected \(n, 64\)"):
        bound.sum_columns(np.ones((3, 6)))
    with pytest.raises(InputError, match="superpixels have no unit_of_column: they differ from image to image"):
        _ = bound.unit_of_column
    with pytest.raises(AttributeError):
        _ = bound.nonsense
    for bad in (1, 0, "many"):
        with pytest.raises(InputError, match="n_segments of Superpixels"):
            Superpixels(bad)
    for bad in (0, -1.0, "much", True, np.inf, 1e-300):
        with pytest.raises(InputError, match="compactness of Superpixels"):
            Superpixels(5, compactness=bad)


def test_without_scikit_image_the_extra_is_named(monkeypatch) -> None:
    groups, data = build(Superpixels(6), rng.random((1, 1, 8, 8)))
    monkeypatch.setitem(sys.modules, "skimage.segmentation", None)
    with pytest.raises(MissingExtraError, match=r"sointer\[images\]"):
        groups.bind(data)
