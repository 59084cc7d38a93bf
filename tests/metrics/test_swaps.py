"""Measures by swaps: definitions against slow twins, planted truth, and models built to be fooled."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sointer import Patches, Superpixels
from sointer.errors import InputError
from sointer.explainers.baselines.base import NearestPixels, Random
from sointer.metrics.masked_predictor import MaskedEvaluator, random_masks
from sointer.metrics.pixels import fill_masked, opposite_samples, pixel_scores
from sointer.metrics.robustness import noise_stability, persuasion_credit, top_k_overlap, transfer_scores
from sointer.metrics.swaps import swap_scores
from sointer.zoo.planted_segmenters import PLANTED_SEGMENTERS
from sointer.zoo.segmenter import random_scenes
from sointer.zoo.tetrominoes import TetrominoClassifier, tetrominoes

pytestmark = pytest.mark.usefixtures("global_random_state_is_left_alone")

SCENES = random_scenes(260, size=16, random_state=5).images
X, POOL = SCENES[:80], SCENES[80:]
TARGETS = np.random.default_rng(0).integers(16, size=(80, 2))
SCORES = np.random.default_rng(1).random((80, 16, 16))
WINDOW = PLANTED_SEGMENTERS["window"](SCENES)


def nearness(targets, n=16):
    down, right = (np.arange(n) - targets[:, axis, None] for axis in (0, 1))
    return -np.hypot(down[:, :, None], right[:, None, :])


# --- definitions, slowly -----------------------------------------------------------------------------------------


def slow_fill(image, keep, fill, mean):
    """One image, pixel by pixel; the slow twin of `fill_masked`."""
    out = np.zeros(image.shape) if fill == "black" else mean.astype(np.float64).copy()
    height, width = keep.shape
    if fill == "inpaint":
        for half in (7, 3, 1):  # 15, 7 and 3 pixels a side, for images of 16
            for r in range(height):
                for c in range(width):
                    box = np.s_[max(0, r - half) : r + half + 1, max(0, c - half) : c + half + 1]
                    if keep[box].any():
                        out[:, r, c] = image[(slice(None), *box)][:, keep[box]].mean(axis=1)
        for _ in range(40):
            around = np.pad(out, ((0, 0), (1, 1), (1, 1)), mode="edge")
            shifted = [around[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
            out = np.where(keep, image, np.mean(shifted, axis=0))
    out = np.where(keep, image, out)
    return np.rint(out).astype(image.dtype) if image.dtype.kind in "iu" else out


def slow_swaps(model, X, targets, scores, pool, k, fill):
    """Insert, delete, own and foreign of every sample that has an opposite."""
    rows = {"insert": [], "delete": [], "own": [], "foreign": []}
    pool_labels = np.array([[model(z[None])[0][tuple(t)] for z in pool] for t in targets])
    labels = np.array([model(x[None])[0][tuple(t)] for x, t in zip(X, targets, strict=True)])
    partners = opposite_samples(labels, pool_labels, 1, 0)[:, 0]
    for x, t, score, y, z in zip(X, targets, scores, labels, partners, strict=True):
        if z < 0:
            continue
        assert model(pool[z][None])[0][tuple(t)] != y
        keep = np.zeros(score.size, dtype=bool)
        keep[sorted(range(score.size), key=lambda i: -score.ravel()[i])[:k]] = True
        keep = keep.reshape(score.shape)

        def says_y(image, t=t, y=y):
            return model(image[None])[0][tuple(t)] == y

        rows["insert"].append(says_y(np.where(keep, x, pool[z])))
        rows["delete"].append(not says_y(np.where(keep, pool[z], x)))
        rows["own"].append(says_y(slow_fill(x, keep, fill, pool.mean(axis=0))))
        rows["foreign"].append(says_y(slow_fill(pool[z], keep, fill, pool.mean(axis=0))))
    return rows


@pytest.mark.parametrize("fill", ["black", "mean", "inpaint"])
def test_definitions(fill):
    few, pool, targets = X[:25], POOL[:9], TARGETS[:25]
    found = swap_scores(WINDOW, few, targets, SCORES[:25], pool, ks=[4, 60], fills=[fill], batch_size=7)
    for place, k in enumerate((4, 60)):
        slow = slow_swaps(WINDOW, few, targets, SCORES[:25], pool, k, fill)
        assert found.insert_rows[:, place].tolist() == slow["insert"]
        assert found.delete_rows[:, place].tolist() == slow["delete"]
        assert found.own_rows[fill][:, place].tolist() == slow["own"]
        assert found.foreign_rows[fill][:, place].tolist() == slow["foreign"]
        row = found.rows()[place]
        assert row["k"] == k
        assert row[f"j_{fill}"] == pytest.approx(np.mean(slow["own"]) - np.mean(slow["foreign"]))
        assert row["insert"] == pytest.approx(np.mean(slow["insert"]))
    assert found.to_frame()["delete"].tolist() == found.delete.tolist()
    assert found.used.sum() == len(found.insert_rows)
    assert found.without_opposite == pytest.approx(1 - found.used.mean())
    assert found.mean == pytest.approx((found.insert.mean() + found.delete.mean()) / 2)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("fill", ["black", "mean", "inpaint"])
def test_fills(fill, dtype):
    images = X[:6].astype(dtype)
    keep = np.random.default_rng(0).random((6, 16, 16)) < np.array([0, 0.01, 0.1, 0.5, 0.9, 1])[:, None, None]
    mean = POOL.mean(axis=0)
    filled = fill_masked(images, keep, fill, mean)
    assert filled.dtype == dtype
    slow = np.array([slow_fill(image, own, fill, mean) for image, own in zip(images, keep, strict=True)])
    np.testing.assert_allclose(filled, slow, atol=1 if dtype == np.uint8 else 2e-3)
    assert np.array_equal(np.where(keep[:, None], filled, 0), np.where(keep[:, None], images, 0))
    assert np.array_equal(filled[5], images[5])


def test_inpainting_continues_what_is_kept():
    rows = np.linspace(0, 1, 16)
    ramp = np.broadcast_to(rows[:, None], (1, 1, 16, 16))
    keep = np.zeros((1, 16, 16), dtype=bool)
    keep[:, [0, 4, 8, 12, 15]] = True
    assert np.abs(fill_masked(ramp, keep, "inpaint") - ramp).max() < 0.05
    assert np.abs(fill_masked(ramp, keep, "black") - ramp).max() > 0.9


def test_fills_refuse():
    with pytest.raises(InputError, match="fill must be one of"):
        fill_masked(X, np.ones((80, 16, 16), dtype=bool), "blur")
    with pytest.raises(InputError, match="keep must be booleans"):
        fill_masked(X, np.ones((80, 16, 15), dtype=bool), "black")


def test_pairs_have_another_label_and_repeat():
    rng = np.random.default_rng(0)
    labels, pool_labels = rng.integers(3, size=50), rng.integers(3, size=(50, 30))
    pool_labels[:5] = labels[:5, None]
    found = opposite_samples(labels, pool_labels, 4, 7)
    assert (found[:5] == -1).all()
    for own, partners, known in zip(labels[5:], found[5:], pool_labels[5:], strict=True):
        assert len(set(partners.tolist())) == 4
        assert (known[partners] != own).all()
    assert np.array_equal(found, opposite_samples(labels, pool_labels, 4, 7))
    assert not np.array_equal(found, opposite_samples(labels, pool_labels, 4, 8))
    pool_labels[9] = labels[9]
    pool_labels[9, 2] += 1
    assert opposite_samples(labels, pool_labels, 4, 7)[9].tolist() == [2] * 4


# --- planted truth and controls ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["window", "offset", "flood", "majority"])
def test_the_truth_gets_everything_and_random_pixels_nothing(name):
    model = PLANTED_SEGMENTERS[name](SCENES)
    truth = model.relevant(X, TARGETS)
    sizes = truth.sum(axis=(1, 2))
    n_measured = 0
    for k in np.unique(sizes[sizes > 0]).tolist():
        own = sizes == k
        found = swap_scores(model, X[own], TARGETS[own], truth[own], POOL, ks=[k], n_pairs=3)
        assert found.insert.tolist() == found.delete.tolist() == [1.0]
        n_measured += len(found.insert_rows)
    assert n_measured > 50
    random = swap_scores(model, X, TARGETS, SCORES, POOL, ks=[5], n_pairs=3)
    assert max(random.insert[0], random.delete[0]) < 0.25
    assert max(abs(random.j[fill][0]) for fill in ("black", "mean")) < 0.25  # inpainting guesses from pixels nearby
    whole = swap_scores(model, X, TARGETS, SCORES, POOL, ks=[256])
    assert whole.insert.tolist() == whole.delete.tolist() == [1.0]
    assert all(j.tolist() == [1.0] for j in whole.j.values())


def test_nearest_pixels_are_the_truth_of_windows_and_not_of_the_rest():
    scores = {}
    for name in ("window", "majority"):
        model = PLANTED_SEGMENTERS[name](SCENES)
        scores[name] = swap_scores(model, X, TARGETS, nearness(TARGETS), POOL, ks=[9])
    inside = ((TARGETS > 0) & (TARGETS < 15)).all(axis=1)
    window = swap_scores(WINDOW, X[inside], TARGETS[inside], nearness(TARGETS)[inside], POOL, ks=[9])
    assert window.insert.tolist() == window.delete.tolist() == [1.0]
    assert scores["majority"].insert[0] < 0.7


def fooled(images):
    """Whole images are read by a window; of mostly black ones, only where the visible pixels are."""
    labels = WINDOW(images)
    visible = images.any(axis=1)
    left = visible[:, :, :8].sum(axis=(1, 2)) > visible[:, :, 8:].sum(axis=(1, 2))
    mostly_black = visible.mean(axis=(1, 2)) < 0.5
    labels[mostly_black] = left[mostly_black, None, None]
    return labels


def test_a_mask_that_speaks_by_its_shape_has_full_fidelity_and_no_j():
    images, pool = np.maximum(X, 1), np.maximum(POOL, 1)
    labels = WINDOW(images)[np.arange(80), TARGETS[:, 0], TARGETS[:, 1]]
    on_left = (np.arange(16) < 8)[None, None, :]
    talking = np.where(labels[:, None, None] == 1, on_left, ~on_left) + 0.5 * SCORES
    # Away from the target, so that the pixels themselves say nothing.
    talking[nearness(TARGETS) > -3] -= 2
    found = swap_scores(fooled, images, TARGETS, talking, pool, ks=[30], fills=["black"])
    assert found.own_rows["black"].mean() == 1.0
    assert found.j["black"].tolist() == [0.0]
    assert found.mean == 0.0
    honest = swap_scores(WINDOW, images, TARGETS, nearness(TARGETS), pool, ks=[30], fills=["black"])
    assert honest.j["black"][0] > 0.9


def test_samples_without_an_opposite_are_left_out_and_counted():
    def model(images):
        labels = WINDOW(images)
        labels[:, :8] = 1
        return labels

    found = swap_scores(model, X, TARGETS, nearness(TARGETS), POOL, ks=[9], fills=[])
    assert np.array_equal(found.used, TARGETS[:, 0] >= 8)
    assert found.without_opposite == pytest.approx(np.mean(TARGETS[:, 0] < 8))
    assert found.j == {}
    with pytest.raises(InputError, match="no sample has an image of another label"):
        swap_scores(model, X, (3, 3), SCORES, POOL)


def test_labels_probabilities_class_scores_and_tensors_agree():
    words = np.array(["no", "yes"])
    margins = PLANTED_SEGMENTERS["window"](SCENES).margins
    models = {
        "labels": WINDOW,
        "words": lambda images: words[WINDOW(images)],
        "booleans": lambda images: WINDOW(images) == 1,
        "probabilities": PLANTED_SEGMENTERS["window"](SCENES, output_kind="probability"),
        "one channel": lambda images: torch.from_numpy(WINDOW(images)[:, None]),
        "class scores": lambda images: np.stack([-margins(images), margins(images)], axis=1),
    }
    found = {name: swap_scores(model, X, TARGETS, nearness(TARGETS), POOL, ks=[4]) for name, model in models.items()}
    for scores in found.values():
        assert np.array_equal(scores.insert_rows, found["labels"].insert_rows)
        assert scores.rows() == found["labels"].rows()
    with pytest.raises(InputError, match="Apply a sigmoid"):
        swap_scores(margins, X, TARGETS, SCORES, POOL)


@pytest.mark.parametrize("channels", [1, 4])
def test_several_classes_and_any_channels(channels):
    images = random_scenes(200, size=16, channels=channels, random_state=2).images
    cuts = np.quantile(images[:, 0], [0.33, 0.66])

    def model(images):
        return np.digitize(images[:, 0], cuts)

    targets = TARGETS[:60]
    found = swap_scores(model, images[:60], targets, nearness(targets), images[60:], ks=[1, 20], n_pairs=2)
    assert found.insert.tolist() == found.delete.tolist() == [1.0, 1.0]
    assert found.j["black"][0] == found.j["mean"][0] == 1.0
    random = swap_scores(model, images[:60], targets, SCORES[:60], images[60:], ks=[1])
    assert random.insert[0] < 0.1


def test_models_that_return_tables():
    images, _, relevant = tetrominoes(300, "additive")
    model = TetrominoClassifier("additive")
    found = swap_scores(model, images[:100], 0, relevant[:100], images[100:], ks=[8], fills=["black"])
    assert found.insert.tolist() == found.delete.tolist() == [1.0]
    per_row = swap_scores(
        model, images[:100], np.zeros(100, int), relevant[:100], images[100:], ks=[8], fills=["black"]
    )
    assert per_row.rows() == found.rows()
    with pytest.raises(InputError, match="targets must be output numbers"):
        swap_scores(model, images[:100], (0, 0), relevant[:100], images[100:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": (16, 0)}, "outside the outputs"),
        ({"targets": TARGETS[:3]}, "targets must be a pixel"),
        ({"targets": TARGETS / 2}, "whole numbers"),
        ({"scores": SCORES[:, :3]}, "scores must have shape"),
        ({"ks": [0]}, "each of ks"),
        ({"ks": [257]}, "from 1 to 256"),
        ({"pool": POOL[:, :1]}, "images of one shape"),
        ({"X": X[0]}, "X must be images"),
        ({"fills": ["blur"]}, "fill must be one of"),
        ({"n_pairs": 0}, "n_pairs"),
    ],
)
def test_bad_input(change, message):
    given = {"X": X, "targets": TARGETS, "scores": SCORES, "pool": POOL, **change}
    with pytest.raises(InputError, match=message):
        swap_scores(WINDOW, **given)


def test_ties_are_broken_at_random_and_repeat():
    constant = np.zeros((80, 256))
    one, two, three = (
        swap_scores(WINDOW, X, TARGETS, constant, POOL, ks=[100], fills=[], random_state=seed) for seed in (0, 0, 1)
    )
    assert np.array_equal(one.insert_rows, two.insert_rows)
    assert not np.array_equal(one.insert_rows, three.insert_rows)
    # A ranking by place would keep the upper rows only.
    assert one.insert_rows[TARGETS[one.used, 0] > 8].mean() > 0


@pytest.mark.parametrize("groups", [None, Patches(4), Superpixels(9)])
def test_scores_of_groups_become_scores_of_pixels(groups):
    explainer = NearestPixels(WINDOW, k=1, groups=groups, random_state=0).fit(POOL)
    explanation = explainer.explain(X, target=TARGETS)
    maps = pixel_scores(explanation)
    assert maps.shape == (80, 16, 16)
    units = explanation.source.groups.unit_of_features(80)
    for row in range(80):
        assert maps[row].ravel().tolist() == [explanation.scores[row, unit] for unit in units[row]]
    k = 9 if groups is None else int(explanation.mask.sum(axis=1).max())
    assert swap_scores(WINDOW, X, TARGETS, maps, POOL, ks=[k], fills=[]).insert[0] > 0.5
    table = Random(lambda rows: rows > 0.5, k=1).fit(SCORES[:, 0]).explain(SCORES[:2, 0], target=1)
    with pytest.raises(InputError, match="pixel_scores is for images"):
        pixel_scores(table)


# --- the evaluator -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def evaluator():
    return MaskedEvaluator(n_steps=150, widths=(8, 16, 16), random_state=0).fit(POOL, WINDOW(POOL))


def test_the_evaluator_sees_contents_and_not_shapes(evaluator):
    whole = evaluator.predict(X, np.ones((80, 16, 16), dtype=bool))
    assert (whole == WINDOW(X)).mean() > 0.85
    labels = WINDOW(X)[np.arange(80), TARGETS[:, 0], TARGETS[:, 1]]
    side = (np.arange(16) < 8)[None, None, :]
    talking = np.where(labels[:, None, None] == 1, side, ~side) + 0.5 * SCORES
    talking[nearness(TARGETS) > -4] -= 2

    def j_of(scores):
        found = swap_scores(WINDOW, X, TARGETS, scores, POOL, ks=[30], fills=[], evaluator=evaluator, n_pairs=3)
        return found.j["evaluator"][0]

    assert j_of(nearness(TARGETS)) > 0.6
    assert j_of(nearness(TARGETS)) > j_of(talking) + 0.3
    assert j_of(nearness(TARGETS)) > j_of(SCORES) + 0.2


def test_the_evaluator_repeats_and_takes_words_and_probabilities(evaluator):
    keep = SCORES > 0.5
    again = MaskedEvaluator(n_steps=150, widths=(8, 16, 16), random_state=0).fit(POOL, WINDOW(POOL))
    assert np.array_equal(again.predict(X, keep), evaluator.predict(X, keep))
    words = MaskedEvaluator(n_steps=2, widths=(4, 8)).fit(POOL, np.array(["a", "b"])[WINDOW(POOL)])
    assert set(words.predict(X[:3], keep[:3]).ravel()) <= {"a", "b"}
    soft = PLANTED_SEGMENTERS["window"](SCENES, output_kind="probability")(POOL)
    numbers = MaskedEvaluator(n_steps=2, widths=(4, 8)).fit(POOL, soft)
    assert numbers.classes_.tolist() == [0, 1]
    with pytest.raises(InputError, match="outputs must be masks"):
        MaskedEvaluator().fit(POOL, soft[:, :3])


def test_random_masks_have_all_shares_and_scales():
    masks = random_masks(600, (16, 24), np.random.default_rng(0))
    shares = masks.mean(axis=(1, 2))
    assert np.histogram(shares, bins=5, range=(0, 1))[0].min() > 40
    alike = (masks[:, :, 1:] == masks[:, :, :-1]).mean(axis=(1, 2))
    middling = (shares > 0.3) & (shares < 0.7)
    assert np.quantile(alike[middling], 0.05) < 0.6
    assert np.quantile(alike[middling], 0.95) > 0.9


# --- transfer, persuasion, stability -------------------------------------------------------------------------------


def test_truth_transfers_to_a_model_of_the_same_rule_only():
    values = WINDOW(X)[np.arange(80), TARGETS[:, 0], TARGETS[:, 1]]
    models = {"same": PLANTED_SEGMENTERS["window"](POOL), "other": PLANTED_SEGMENTERS["majority"](POOL)}
    truth = WINDOW.relevant(X, TARGETS) + 0.5 * SCORES
    found = transfer_scores(models, X, TARGETS, truth, POOL, values, ks=[9], fills=["black"])
    assert found["same"].mean > 0.97
    assert found["same"].other_value < 0.1
    assert found["other"].mean < 0.7
    predicted = models["other"](X)[np.arange(80), TARGETS[:, 0], TARGETS[:, 1]]
    assert found["other"].other_value == pytest.approx(np.mean(predicted != values))
    assert not found["other"].used[predicted != values].any()
    alone = swap_scores(models["other"], X, TARGETS, truth, POOL, values=values, ks=[9], fills=["black"])
    assert alone.rows() == found["other"].rows()


def test_persuasion():
    images = np.maximum(X, 1)
    truth = WINDOW.relevant(images, TARGETS)
    honest = persuasion_credit(WINDOW, images, TARGETS, truth, truth, ks=[9])
    assert honest.fidelity.tolist() == [1.0]
    assert honest.credit.tolist() == [1.0]
    labels = WINDOW(images)[np.arange(80), TARGETS[:, 0], TARGETS[:, 1]]
    side = (np.arange(16) < 8)[None, None, :]
    own, wrong = (np.where(y[:, None, None] == 1, side, ~side) + 0.5 * SCORES for y in (labels, 1 - labels))
    talking = persuasion_credit(fooled, images, TARGETS, own, wrong, ks=[20, 40])
    assert talking.fidelity.tolist() == talking.persuaded.tolist() == [1.0, 1.0]
    assert talking.credit.tolist() == [0.0, 0.0]
    named = persuasion_credit(fooled, images, TARGETS, own, wrong, opposite_values=1 - labels, ks=[20])
    assert named.persuaded.tolist() == [1.0]
    assert named.n_queries == 3 * 80


def test_stability_of_constant_honest_and_random_explainers():
    places = nearness(TARGETS)
    assert noise_stability(lambda images: places, X, k=10).overlap == 1.0
    constant = noise_stability(lambda images: np.zeros((len(images), 256)), X, k=10)
    assert constant.overlap == 1.0
    rng = np.random.default_rng(0)
    random = noise_stability(lambda images: rng.random((len(images), 256)), X, k=64, n_draws=4)
    assert random.overlap == pytest.approx(random.chance, abs=0.02)
    assert random.chance == 0.25
    small, large = (noise_stability(lambda images: images[:, 0], X, k=30, noise=s).overlap for s in (0.02, 0.5))
    assert small > large + 0.1
    seen = []
    noise_stability(lambda images: seen.append(images) or images[:, 0], X, k=3, n_draws=1)
    assert seen[1].dtype == np.uint8
    assert 0 < np.abs(seen[1].astype(int) - X).mean() < 5


def test_stability_leaves_out_images_whose_label_changes():
    def truth(images):
        return PLANTED_SEGMENTERS["flood"](SCENES).relevant(images, TARGETS)

    found = noise_stability(truth, X, k=4, noise=0.3, model=WINDOW, targets=TARGETS, n_draws=1)
    assert 0 < found.label_changed < 0.5
    assert np.isnan(found.overlap_rows).mean() == pytest.approx(found.label_changed)
    assert 0 < found.overlap <= 1
    with pytest.raises(InputError, match="model and targets together"):
        noise_stability(truth, X, k=4, model=WINDOW)
    with pytest.raises(InputError, match="both scores must have one shape"):
        top_k_overlap(np.zeros((3, 4)), np.zeros((3, 5)), 2)
