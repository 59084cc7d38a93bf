"""Planted segmenters: they follow their rules, and their truth is the truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sointer.errors import InputError
from sointer.metrics.ground_truth import r_precision
from sointer.zoo.planted_segmenters import PLANTED_SEGMENTERS, ConvolutionalSegmenter
from sointer.zoo.segmenter import random_scenes
from sointer.zoo.tetrominoes import TetrominoClassifier, tetrominoes

pytestmark = pytest.mark.usefixtures("global_random_state_is_left_alone")

IMAGES = random_scenes(120, size=32, random_state=1).images / np.float32(255)


def targets_of(n: int, height: int, width: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(height, size=n), rng.integers(width, size=n)], axis=1)


# --- the rules, written down once more, slowly, for 32 x 32 pixels ---------------------------------------------


def window_mean(channel, row, column, half):
    return channel[max(0, row - half) : row + half + 1, max(0, column - half) : column + half + 1].mean()


def all_means(images, half):
    return [[[window_mean(i, r, c, half) for c in range(32)] for r in range(32)] for i in images]


def slow_label(name, image, row, column, estimates):
    red, bright = image[0], image.mean(axis=0)
    if name == "window":
        return window_mean(red, row, column, 2) > estimates["red5"]
    if name == "landmark":
        near = (window_mean(red, row, column, 1) - estimates["red3 mean"]) / estimates["red3 std"]
        return near + (bright[3:7, 25:29].mean() - estimates["patch mean"]) / estimates["patch std"] > 0
    if name == "offset":
        other = row + 12 if row < 16 else row - 12
        is_red = window_mean(red, row, column, 1) > estimates["red3 at .4"]
        return is_red and window_mean(bright, other, column, 1) > estimates["bright3 at .4"]
    if name == "flood":
        if bright[row, column] <= estimates["bright at .15"]:
            return False
        towards = column + np.sign(16 - column)
        return True if column == 16 else slow_label(name, image, row, towards, estimates)
    votes = [window_mean(red, row, c % 32, 1) > estimates["red3 median"] for c in (column, column - 7, column + 7)]
    return sum(votes) >= 2


@pytest.fixture(scope="module")
def estimates():
    few = IMAGES[:12].astype(np.float64)
    red3, bright3 = np.array(all_means(few[:, 0], 1)), np.array(all_means(few.mean(axis=1), 1))
    patch = few.mean(axis=1)[:, 3:7, 25:29].mean(axis=(1, 2))
    return {
        "red5": np.median(all_means(few[:, 0], 2)),
        "red3 mean": red3.mean(),
        "red3 std": red3.std(),
        "patch mean": patch.mean(),
        "patch std": patch.std(ddof=1),
        "red3 at .4": np.quantile(red3, 0.4),
        "bright3 at .4": np.quantile(bright3, 0.4),
        "bright at .15": np.quantile(few.mean(axis=1), 0.15),
        "red3 median": np.median(red3),
    }


@pytest.mark.parametrize("name", list(PLANTED_SEGMENTERS))
def test_labels_follow_the_rule(name, estimates):
    labels = PLANTED_SEGMENTERS[name](IMAGES[:12])(IMAGES[20:40])
    places = [(i, r, c) for i in range(20) for r, c in targets_of(25, 32, 32, seed=i)]
    slow = [slow_label(name, IMAGES[20 + i].astype(np.float64), r, c, estimates) for i, r, c in places]
    fast = [bool(labels[place]) for place in places]
    assert np.mean(np.array(slow) == np.array(fast)) > 0.995  # rounding, in float32, may decide a tie


# --- the truth ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [16, 32, (20, 44)])
@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("name", list(PLANTED_SEGMENTERS))
def test_nothing_outside_the_truth_matters_and_all_of_it_together_does(name, size, channels):
    images = random_scenes(160, size=size, channels=channels).images
    segmenter = PLANTED_SEGMENTERS[name](images)
    rng = np.random.default_rng(0)
    n_checked = {"kept": 0, "flipped": 0}
    for seed in range(4):
        targets = targets_of(160, *images.shape[2:], seed)
        rows = np.arange(160), targets[:, 0], targets[:, 1]
        truth, cases, labels = segmenter.relevant(images, targets), segmenter.cases(images, targets), segmenter(images)
        assert np.array_equal(truth.any(axis=(1, 2)), cases != "ambiguous")
        known = np.isin(cases, list(segmenter.sufficient_cases))
        others = rng.permutation(160)
        outside = segmenter(np.where(truth[:, None], images, images[others]))
        assert (outside[rows] == labels[rows])[known].all()
        n_checked["kept"] += int(known.sum())
        opposite = known & (labels[(others, *rows[1:])] != labels[rows])
        inside = segmenter(np.where(truth[:, None], images[others], images))
        assert (inside[rows] != labels[rows])[opposite].all()
        n_checked["flipped"] += int(opposite.sum())
    assert n_checked["kept"] > 150
    assert n_checked["flipped"] > 60


def test_the_landmarks_stronger_side_decides():
    segmenter = PLANTED_SEGMENTERS["landmark"](IMAGES)
    for target in [(20, 5), (9, 14), (30, 30)]:
        cases, truth = segmenter.cases(IMAGES, target), segmenter.relevant(IMAGES, target)
        assert set(cases) == {"both", "near", "far"}
        size = {case: set(truth[cases == case].sum(axis=(1, 2)).tolist()) for case in ("both", "near", "far")}
        assert (size["far"], size["near"], size["both"]) == ({16}, {9}, {25})
        # Where the far side wins against the near one, an average near side does not change the label.
        margins = segmenter.margins(IMAGES)[:, target[0], target[1]]
        far = IMAGES.mean(axis=1)[:, 3:7, 25:29].mean(axis=(1, 2)) > segmenter.far_mean
        assert ((margins > 0) == far)[cases == "far"].all()
        assert ((margins > 0) != far)[cases == "near"].all()


@pytest.mark.parametrize("name", list(PLANTED_SEGMENTERS))
def test_one_target_for_all_probabilities_and_the_module(name):
    segmenter = PLANTED_SEGMENTERS[name](IMAGES)
    soft = PLANTED_SEGMENTERS[name](IMAGES, output_kind="probability")
    labels, probabilities = segmenter(IMAGES), soft(IMAGES)
    assert labels.shape == probabilities.shape == (120, 32, 32)
    assert 0.1 < labels.mean() < 0.9
    assert np.array_equal(labels == 1, segmenter.margins(IMAGES) > 0)
    assert (probabilities >= 0).all()
    assert (probabilities <= 1).all()
    assert np.array_equal(labels == 1, probabilities > 0.5)
    same = np.tile([5, 20], (120, 1))
    assert np.array_equal(segmenter.relevant(IMAGES, (5, 20)), segmenter.relevant(IMAGES, same))
    pixels = torch.from_numpy(IMAGES[:3]).requires_grad_(True)
    margins = segmenter.as_module()(pixels)
    assert np.allclose(margins.detach().numpy(), segmenter.margins(IMAGES[:3]), atol=1e-4)
    margins[0, 5, 20].backward()
    moved = pixels.grad[0].abs().sum(0).numpy() > 0
    field = segmenter.relevant(IMAGES[:1], (5, 20))[0]
    if name in ("window", "landmark"):
        assert not (field & ~moved).any()
    assert not pixels.grad[1:].any()


def test_bytes_and_floats_mean_the_same():
    whole = random_scenes(60).images
    for kind in PLANTED_SEGMENTERS.values():
        assert np.mean(kind(whole)(whole) == kind(whole / 255)(whole / 255)) > 0.999


@pytest.mark.parametrize("n_layers", [1, 2, 4])
def test_the_receptive_field_is_exact(n_layers):
    segmenter = ConvolutionalSegmenter(IMAGES, n_layers=n_layers)
    target = (12, 30)
    field = segmenter.relevant(IMAGES[:1], target)[0]
    assert field.sum() == (2 * n_layers + 1) * (n_layers + 2)
    noise = np.random.default_rng(0).random((200, 3, 32, 32)).astype(np.float32)
    image = np.repeat(IMAGES[:1], 200, axis=0)
    before = segmenter.margins(image)[:, 12, 30]
    outside = segmenter.margins(np.where(field, image, noise))[:, 12, 30]
    assert np.allclose(outside, before, atol=1e-5)
    corners = np.zeros((32, 32), dtype=bool)
    corners[12 - n_layers, 30 - n_layers] = True
    assert not np.allclose(segmenter.margins(np.where(corners, noise, image))[:, 12, 30], before, atol=1e-4)
    assert 0.3 < segmenter(IMAGES).mean() < 0.7


@pytest.mark.parametrize("images", [IMAGES[0], IMAGES[:1], IMAGES[:, :, :15], np.repeat(IMAGES[:1], 5, axis=0)])
def test_images_that_do_not_do(images):
    with pytest.raises(InputError, match="needs"):
        PLANTED_SEGMENTERS["window"](images)


def test_bad_targets_and_settings():
    segmenter = PLANTED_SEGMENTERS["flood"](IMAGES)
    with pytest.raises(InputError, match="outside the images"):
        segmenter.relevant(IMAGES[:2], (32, 0))
    with pytest.raises(InputError, match=r"\(row, column\) or integers \(2, 2\)"):
        segmenter.relevant(IMAGES[:2], [(1, 1)] * 3)
    with pytest.raises(InputError, match=r"takes images of shape \(n, 3, 32, 32\)"):
        segmenter(IMAGES[:, :1])
    with pytest.raises(InputError, match="output_kind"):
        PLANTED_SEGMENTERS["flood"](IMAGES, output_kind="logit")


# --- R-precision -------------------------------------------------------------------------------------------------


def test_r_precision_of_known_rankings():
    segmenter = PLANTED_SEGMENTERS["offset"](IMAGES)
    targets = targets_of(120, 32, 32)
    truth = segmenter.relevant(IMAGES, targets)
    assert r_precision(truth, truth) == 1.0
    known = truth.any(axis=(1, 2))
    assert 0.3 < known.mean() < 1
    scores = np.random.default_rng(0).random(truth.shape)
    slow = []
    for score, own in zip(scores.reshape(120, -1), truth.reshape(120, -1), strict=True):
        if own.any():
            best = sorted(range(len(score)), key=lambda i: -score[i])[: own.sum()]
            slow.append(own[best].mean())
    assert r_precision(scores, truth) == pytest.approx(np.mean(slow))
    constant = np.mean([r_precision(np.zeros(truth.shape), truth, random_state=seed) for seed in range(20)])
    assert constant == pytest.approx(truth[known].mean(), abs=0.006)


def test_r_precision_refuses():
    with pytest.raises(ValueError, match="same shape"):
        r_precision(np.zeros((3, 4)), np.zeros((3, 5), dtype=bool))
    with pytest.raises(ValueError, match="no feature of any sample"):
        r_precision(np.zeros((3, 4)), np.zeros((3, 4), dtype=bool))


def test_nearest_pixels_find_windows_and_nothing_else():
    targets = targets_of(120, 32, 32)
    down, right = (np.arange(32) - targets[:, axis, None] for axis in (0, 1))
    nearness = -np.hypot(down[:, :, None], right[:, None, :])
    found = {
        name: r_precision(nearness, kind(IMAGES).relevant(IMAGES, targets)) for name, kind in PLANTED_SEGMENTERS.items()
    }
    assert found["window"] > 0.97
    assert max(found[name] for name in found if name != "window") < 0.7


# --- scenes and tetrominoes --------------------------------------------------------------------------------------


def test_scenes_are_smooth_and_repeat():
    data = random_scenes(50, size=(16, 24), channels=2, random_state=3)
    assert data.images.shape == (50, 2, 16, 24)
    assert data.images.dtype == np.uint8
    assert np.array_equal(data.images, random_scenes(50, size=(16, 24), channels=2, random_state=3).images)
    assert not np.array_equal(data.images, random_scenes(50, size=(16, 24), channels=2, random_state=4).images)
    assert [len(part.images) for part in (data.train, data.val, data.test)] == [30, 5, 15]
    values = data.images.astype(float)
    neighbour = np.corrcoef(values[..., :-1].ravel(), values[..., 1:].ravel())[0, 1]
    assert neighbour > 0.8
    assert 0.02 < data.masks.mean() < 0.4
    inside = data.masks[:, None].astype(bool)
    contrast = [
        abs(image[:, own[0]].mean() - image[:, ~own[0]].mean()) for image, own in zip(values, inside, strict=True)
    ]
    assert np.median(contrast) > 10


@pytest.mark.parametrize("background", ["white", "correlated"])
@pytest.mark.parametrize("scenario", ["additive", "multiplicative", "translated", "xor"])
def test_tetrominoes_hold_the_label_where_they_say(scenario, background):
    images, labels, relevant = tetrominoes(600, scenario, background=background, random_state=2)
    model = TetrominoClassifier(scenario)
    predicted = model(images)
    assert images.shape == (600, 1, 8, 8)
    assert predicted.shape == (600, 1)
    assert (predicted[:, 0] == labels).mean() > (0.85 if background == "white" else 0.7)
    assert 0.4 < labels.mean() < 0.6
    read = model.relevant(images)
    assert (relevant.sum(axis=(1, 2)) == (4 if scenario == "translated" else 8)).all()
    right = predicted[:, 0] == labels
    assert (read[right] == relevant[right]).mean() > 0.97
    soft = TetrominoClassifier(scenario, output_kind="probability")(images)
    assert np.array_equal(soft > 0.5, predicted == 1)
    if scenario != "translated":
        noise = np.random.default_rng(0).normal(size=images.shape)
        assert np.array_equal(model(np.where(read[:, None], images, noise)), predicted)
        assert not np.array_equal(model(np.where(read[:, None], noise, images)), predicted)


def test_no_single_place_tells_the_label_of_xor():
    images, labels, _ = tetrominoes(4000, "xor")
    correlation = [abs(np.corrcoef(images[:, 0].reshape(4000, -1)[:, i], labels)[0, 1]) for i in range(64)]
    assert max(correlation) < 0.08
    plain, labels, _ = tetrominoes(4000, "additive")
    assert max(abs(np.corrcoef(plain.reshape(4000, -1)[:, i], labels)[0, 1]) for i in range(64)) > 0.5


def test_tetrominoes_refuse():
    with pytest.raises(InputError, match="scenario must be one of"):
        tetrominoes(5, "rotated")
    with pytest.raises(InputError, match="alpha"):
        tetrominoes(5, alpha=2.0)
    with pytest.raises(InputError, match="background"):
        tetrominoes(5, background="imagenet")
    with pytest.raises(InputError, match="expected images"):
        TetrominoClassifier()(np.zeros((2, 3, 8, 8)))
