"""SOInter on images with planted truth: the pixels that decide a pixel of the mask are known."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone

import sointer
from quick import QUICK, TABLE, labels, quick_fit
from sointer import BlackBox, Patches, SOInter, Superpixels
from sointer.config import EnergyConfig, TrainingConfig
from sointer.errors import (
    BlackBoxError,
    BudgetWarning,
    ConstantOutputWarning,
    InputError,
    LoadError,
    NoOppositeWarning,
    PoorFitWarning,
)
from sointer.explainers.baselines.base import NearestPixels

pytestmark = pytest.mark.usefixtures("global_random_state_is_left_alone")

SIDE, AWAY = 8, 3


def settings(*hidden: int, n_epochs: int = 8) -> dict:
    return {
        "energy": EnergyConfig(hidden=hidden, learning_rate=1e-2),
        "training": TrainingConfig(n_epochs=n_epochs),
        "query_budget": 2000,
        "random_state": 0,
    }


TINY = {"energy": EnergyConfig(hidden=(4, 4), batch_size=3), "query_budget": 60}


def tiny(model, X, *, targets=None, **changes) -> SOInter:
    """Fitted so quickly that the warning of it is no news."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)
        return SOInter(model, **QUICK | TINY | changes).fit(X, targets=targets)


def shifted(X) -> np.ndarray:
    """A pixel is on if the one three to the left is bright."""
    images = np.asarray(X)
    mask = np.zeros((len(images), *images.shape[2:]), dtype=np.int64)
    mask[:, :, AWAY:] = images[:, 0, :, :-AWAY] > 0.5
    return mask


def bright(X) -> np.ndarray:
    return (np.asarray(X)[:, 0] > 0.5).astype(np.int64)


def far(X) -> np.ndarray:
    """The last row is on if a pixel of the first corner is bright."""
    images = np.asarray(X)
    mask = np.zeros((len(images), *images.shape[2:]), dtype=np.int64)
    mask[:, -1] = (images[:, 0, :2, :2].mean((1, 2)) > 0.15)[:, None]
    return mask


def strongest_channel(X) -> np.ndarray:
    return np.asarray(X).argmax(1)


def random_images(n: int, seed: int = 0, shape=(1, SIDE, SIDE)) -> np.ndarray:
    return np.random.default_rng(seed).random((n, *shape))


def far_images(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    images = rng.random((n, 1, SIDE, SIDE))
    images[:, :, :2, :2] *= 0.15
    images[rng.random(n) < 0.5, :, :2, :2] += 0.8
    return images


def coloured_images(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    images = rng.integers(1, 60, size=(n, 3, SIDE, SIDE))
    strongest = rng.integers(3, size=(n, 1, SIDE, SIDE))
    np.put_along_axis(images, strongest, 200, axis=1)
    return images.astype(np.uint8)


def pixels_that_are(mask: np.ndarray, seed: int = 0) -> np.ndarray:
    """One pixel per mask whose value is not 0: (n, 2)."""
    rng = np.random.default_rng(seed)
    places = [np.argwhere(one) for one in mask]
    return np.array([place[rng.integers(len(place))] for place in places])


@pytest.fixture(scope="module", autouse=True)
def small_chunks():
    """Images here are tiny: so many of them at a time would be mostly padding."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sointer.interpreter.image.CHUNK_PIXELS", 2**11)
        yield


@pytest.fixture(scope="module")
def shift_explainer() -> SOInter:
    return SOInter(shifted, k=1, **settings(8, 16)).fit(random_images(200))


@pytest.fixture(scope="module")
def far_explainer() -> SOInter:
    return SOInter(far, k=1, **settings(8, 16, 16)).fit(far_images(200, seed=0))


@pytest.fixture(scope="module")
def colour_explainer() -> SOInter:
    return SOInter(strongest_channel, k=1, **settings(8, 16)).fit(coloured_images(150, seed=0))


@pytest.fixture(scope="module")
def tiny_explainer() -> SOInter:
    return tiny(bright, random_images(12))


# --- planted truth -------------------------------------------------------------------------------------------


def test_the_pixel_that_decides_is_found_for_all_targets(shift_explainer) -> None:
    images = random_images(64, seed=1)
    targets = pixels_that_are(shifted(images))
    explanation = shift_explainer.explain(images, target=targets)
    assert (explanation.value == 1).mean() > 0.95
    assert (explanation.pixels[:, 0] == targets - [0, AWAY]).all(1).mean() > 0.9
    assert explanation.verify().fidelity > 0.9
    nearest = NearestPixels(shifted, k=1, random_state=0).fit(images)
    assert nearest.explain(images, target=targets).verify().fidelity < 0.65, "hardly more often than by chance"
    assert len({tuple(target) for target in targets}) > 20, "one explainer must have served many targets"
    assert shift_explainer.held_out_skill_ > 0.8
    assert shift_explainer.n_queries_ <= 2000


def test_a_far_cause_is_found(far_explainer) -> None:
    images = far_images(80, seed=1)
    images = images[far(images)[:, -1, 0] == 1]
    targets = np.column_stack([np.full(len(images), SIDE - 1), np.arange(len(images)) % SIDE])
    explanation = far_explainer.explain(images, target=targets)
    assert (explanation.pixels[:, 0] < 2).all(1).mean() > 0.95
    assert explanation.verify().fidelity > 0.95
    nearest = NearestPixels(far, k=1, random_state=0).fit(far_images(80, seed=1))
    assert nearest.explain(images, target=targets).verify().fidelity < 0.65


def test_a_region_with_one_far_cause(far_explainer) -> None:
    images = far_images(40, seed=2)
    images = images[far(images)[:, -1, 0] == 1]
    explanation = far_explainer.explain(images, target=np.s_[7:8, 2:6])
    assert (explanation.pixels[:, 0] < 2).all(1).mean() > 0.9
    assert explanation.verify().fidelity > 0.9
    assert set(explanation.value) == {1}


def test_classes_of_coloured_bytes(colour_explainer) -> None:
    images = coloured_images(64, seed=1)
    mask = strongest_channel(images)
    targets = pixels_that_are(mask)
    explanation = colour_explainer.explain(images, target=targets)
    assert (explanation.value == mask[np.arange(64), targets[:, 0], targets[:, 1]]).mean() > 0.95
    assert set(explanation.value) >= {1, 2}
    assert (explanation.pixels[:, 0] == targets).all(1).mean() > 0.9
    assert explanation.verify().fidelity > 0.9


def test_torch_images_give_what_numpy_images_give(colour_explainer) -> None:
    images = coloured_images(5, seed=2)
    explainer = tiny(lambda X: X.argmax(1), torch.from_numpy(images))
    twin = tiny(lambda X: X.argmax(1), images)
    scores = [
        one.explain(X, target=(2, 3)).scores for one, X in ((explainer, torch.from_numpy(images)), (twin, images))
    ]
    assert np.array_equal(*scores)


# --- targets -------------------------------------------------------------------------------------------------


def test_ways_to_name_the_same_region(shift_explainer) -> None:
    images = random_images(6, seed=3)
    mask = np.zeros((SIDE, SIDE), dtype=bool)
    mask[2:4, 4:6] = True
    ways = [np.s_[2:4, 4:6], {(2, 4), (2, 5), (3, 4), (3, 5)}, mask, np.repeat(mask[None], 6, axis=0)]
    found = [shift_explainer.explain(images, target=way, k=4) for way in ways]
    for one in found[1:]:
        assert np.array_equal(one.scores, found[0].scores)
        assert np.array_equal(one.selected, found[0].selected)
        assert np.array_equal(one.verify().agreement, found[0].verify().agreement)
    assert np.isin(4 * found[0].verify().agreement, range(5)).all(), "of four pixels, a whole number agrees"


def test_a_region_of_one_pixel_is_that_pixel(shift_explainer) -> None:
    images = random_images(6, seed=3)
    one, region = (shift_explainer.explain(images, target=way, k=3) for way in ((2, 5), {(2, 5)}))
    assert np.array_equal(one.selected, region.selected)


def test_pixels_and_regions_side_by_side(shift_explainer) -> None:
    images = random_images(3, seed=3)
    together = shift_explainer.explain(images, target=[(2, 5), np.s_[0:2, 3:5], {(7, 7), (7, 6)}])
    for i, target in enumerate([(2, 5), np.s_[0:2, 3:5], {(7, 7), (7, 6)}]):
        alone = shift_explainer.explain(images[[i]], target=target)
        assert np.array_equal(alone.scores[0], together.scores[i])


def test_only_some_targets() -> None:
    explainer = tiny(bright, random_images(12), targets=[(1, 1), np.s_[2:4, 0:2]])
    assert explainer.targets_ == [9, 16, 17, 24, 25]
    assert len(explainer.explain(random_images(2), target=np.s_[2:4, 0:2])) == 2
    with pytest.raises(InputError, match=r"\(2, 2\).*not among the targets"):
        explainer.explain(random_images(2), target=np.s_[2:4, 1:3])


@pytest.mark.parametrize(
    ("images", "target", "words"),
    [
        (random_images(3), (8, 0), "8 x 8|outside"),
        (random_images(3), None, "target is missing"),
        (random_images(3), np.zeros((8, 8), dtype=bool), "without any True"),
        (random_images(3), np.ones((9, 8), dtype=bool), "8"),
        (random_images(3)[:, 0], (1, 1), r"\[:, None\]"),
        (random_images(3)[0], (1, 1), r"\[None\]"),
        (random_images(3, shape=(1, 8, 9)), (1, 1), "9"),
        (random_images(3, shape=(3, 8, 8)), (1, 1), "channel"),
        (255 * random_images(3), (1, 1), "255"),
        (np.full((1, 1, 8, 8), np.nan), (1, 1), "(?i)nan"),
    ],
)
def test_wrong_images_and_targets_are_refused(tiny_explainer, images, target, words) -> None:
    with pytest.raises(InputError, match=words):
        tiny_explainer.explain(images, target=target)


# --- what masks may be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (lambda X: bright(X).astype(bool), True),
        (lambda X: bright(X)[:, None], 1),
        (lambda X: np.where(bright(X) == 1, "horse", "ground"), "horse"),
        (lambda X: torch.from_numpy(bright(X)), 1),
    ],
)
def test_all_kinds_of_masks_say_the_same(tiny_explainer, model, value) -> None:
    """Apart from "ground" and "horse", which are in the same order as 0 and 1, only names differ."""
    images = random_images(12)
    plain, other = tiny_explainer.explain(images, target=(3, 3)), tiny(model, images).explain(images, target=(3, 3))
    assert np.array_equal(plain.scores, other.scores)
    said = other.value > 0.5 if other.source.outputs.graded.all() else other.value == value
    assert np.array_equal(said, plain.value == 1)
    assert np.array_equal(plain.verify().agreement, other.verify().agreement)


def test_probabilities_teach_more_than_labels_and_classes_are_their_most_probable() -> None:
    """One pixel decides by degrees; its label would be the same in nearly all images."""

    def soft(X):
        return 0.5 + 0.45 * np.roll(np.asarray(X)[:, 0], 2, axis=2) ** 2

    images = random_images(150)
    explainer = SOInter(soft, k=1, **settings(8, 16)).fit(images)
    explanation = explainer.explain(images[:20], target=(3, 5))
    assert explanation.value == pytest.approx(soft(images[:20])[:, 3, 5])
    assert (explanation.pixels[:, 0] == [3, 3]).all(1).mean() > 0.9
    of_two = tiny(lambda X: np.stack([1 - soft(X), soft(X)], axis=1), images)
    assert of_two.outputs_.kind == "probability"
    with pytest.raises(BlackBoxError, match="softmax"):
        tiny(lambda X: 3 * np.stack([soft(X)] * 3, axis=1), images)


@pytest.mark.parametrize("shares", [(0.7, 0.3), (0.3, 0.7)])
def test_probabilities_of_several_classes_teach_where_labels_tell_nothing(shares) -> None:
    """The first class is always the most probable one: by how much, one pixel decides."""

    def soft(X):
        first = 0.5 + 0.45 * np.roll(np.asarray(X)[:, 0], 2, axis=2) ** 2
        return np.stack([first, *(share * (1 - first) for share in shares)], axis=1)

    images = random_images(150)
    explainer = SOInter(soft, k=1, **settings(8, 16)).fit(images)
    explanation = explainer.explain(images[:20], target=(3, 5))
    assert explanation.value.tolist() == [0] * 20
    assert (explanation.pixels[:, 0] == [3, 3]).all(1).mean() > 0.9
    assert (explanation.n_opposite > 0).all()
    with pytest.warns(ConstantOutputWarning):
        assert (tiny(lambda X: soft(X).argmax(axis=1), images).explain(images[:1], target=(3, 5)).n_opposite == 0).all()


def levels(X, n: int, dtype=np.int64) -> np.ndarray:
    """As many classes, by how bright the pixel two columns to the left is."""
    return np.floor(np.roll(np.asarray(X)[:, 0], 2, axis=2) * n).astype(dtype)


@pytest.mark.parametrize(("n", "dtype"), [(40, np.int64), (150, np.uint8), (256, float)])
def test_masks_of_many_classes(tmp_path, n, dtype) -> None:
    images = random_images(60, shape=(1, 12, 12))
    explainer = tiny(lambda X: levels(X, n, dtype), images)
    assert explainer.outputs_.kind == "categorical"
    assert len(explainer.outputs_.label_sets[0]) == len(np.unique(levels(images, n)))
    assert explainer.interpreter_.n_seen.sum(0).unique().numel() == 1, "no label is taken for another"
    explainer.save(tmp_path / "why")
    loaded = sointer.load(tmp_path / "why", lambda X: levels(X, n, dtype))
    assert np.array_equal(loaded.explain(images[:3], target=(5, 5)).value, levels(images[:3], n)[:, 5, 5])
    assert loaded.report(images[:2], tmp_path / "pixels.html", k=1).exists()


@pytest.mark.parametrize("kind", [None, "categorical"])
@pytest.mark.parametrize("dtype", [np.int64, float])
def test_masks_of_more_classes_than_a_byte_holds_are_refused(kind, dtype) -> None:
    with pytest.raises(InputError, match=r"masks with \d+ different values, expected at most 256 classes"):
        tiny(lambda X: levels(X, 299, dtype), random_images(60, shape=(1, 12, 12)), output_kind=kind)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, float])
def test_one_hot_masks_are_their_classes(n, dtype) -> None:
    images = random_images(12)

    def one_hot(X) -> np.ndarray:
        return (levels(X, n)[:, None] == np.arange(n)[None, :, None, None]).astype(dtype)

    explanation = tiny(one_hot, images).explain(images[:4], target=(3, 3))
    assert explanation.value.tolist() == levels(images[:4], n)[:, 3, 3].tolist()
    with pytest.raises(BlackBoxError, match="do not add up to 1"):
        tiny(lambda X: one_hot(X) + one_hot(X)[:, ::-1], images)


def test_targets_without_any_opposite_are_marked() -> None:
    explainer = tiny(shifted, random_images(12))  # the first columns are always off
    with pytest.warns(NoOppositeWarning, match="2 of 3 targets"):
        explanation = explainer.explain(random_images(3), target=[(1, 0), (1, 6), (2, 1)])
    assert (explanation.n_opposite == 0).tolist() == [True, False, True]


def test_signed_evidence_adds_up_to_the_odds_and_points_the_right_way(shift_explainer) -> None:
    images = random_images(40, seed=9)
    explanation = shift_explainer.explain(images, target=(3, 6), k=1)
    own = explanation.effects[np.arange(40), 3 * SIDE + 3]
    assert (own > 0).mean() > 0.95, "the pixel that decides speaks for the output"
    assert np.abs(np.delete(explanation.effects, 3 * SIDE + 3, axis=1)).max() < own.mean()
    assert (explanation.base_value == 0).all()


def test_masks_that_never_change() -> None:
    with pytest.warns(ConstantOutputWarning):
        explainer = tiny(lambda X: np.full((len(X), SIDE, SIDE), 2), random_images(8))
    explanation = explainer.explain(random_images(2), target=(1, 1))
    assert explanation.value.tolist() == [2, 2]
    assert explanation.verify().fidelity == 1.0


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda X: 7.3 * np.asarray(X)[:, 0] - 1, "numbers for images, expected masks of classes"),
        (lambda X: bright(X).reshape(len(X), -1), "64 outputs for images, expected masks"),
    ],
)
def test_what_is_no_mask_is_refused(model, words) -> None:
    with pytest.raises(InputError, match=words):
        tiny(model, random_images(8))


def test_a_class_that_was_not_seen_in_fit() -> None:
    def sometimes_new(X):
        images = np.asarray(X)
        mask = bright(images)
        mask[images[:, 0, 0, 0] < 0.1] = 2
        return mask

    images = random_images(12)
    images[:, :, 0, 0] = 0.5
    explainer = tiny(sometimes_new, images, removal="mean")
    images[:2, :, 0, 0] = 0.0
    for asked in ({}, {"k": "auto"}, {"refine": 3}):
        explanation = explainer.explain(images, target=(3, 3), **asked)
        assert explanation.value.tolist() == sometimes_new(images)[:, 3, 3].tolist()
        assert (explanation.value[:2] == 2).all(), "what the model said"
    guessed = explainer.explain(images, target=(3, 3), query=False)
    assert np.isin(guessed.value, [0, 1]).all(), "the energy's best guess"
    assert len(explainer.explain(images[:2], target=(3, 3), refine=2)) == 2


# --- settings of explain -------------------------------------------------------------------------------------


def test_auto_selects_as_few_as_are_confirmed(shift_explainer) -> None:
    images = random_images(20, seed=4)
    targets = pixels_that_are(shifted(images))
    explanation = shift_explainer.explain(images, target=targets, k="auto")
    assert explanation.verify().fidelity == 1.0
    assert np.median(explanation.n_selected) == 1


def test_refining_finds_what_was_missed() -> None:
    """Of an explainer that has learned nothing, a search must find more."""
    images = random_images(30, seed=5)
    explainer = tiny(shifted, images, removal="zero")
    targets = pixels_that_are(shifted(images))
    before = explainer.explain(images, target=targets, k=4, predicted=shifted(images))
    n_before = explainer.black_box_.n_queries
    after = explainer.explain(images, target=targets, k=4, predicted=shifted(images), refine=20)
    assert explainer.black_box_.n_queries - n_before <= 20 * 30
    assert (after.verify().agreement >= before.verify().agreement).all()
    assert after.verify().fidelity > before.verify().fidelity + 0.1


def test_what_was_predicted_is_what_is_explained(shift_explainer) -> None:
    images = random_images(8, seed=6)
    wrong = 1 - shifted(images)
    n_before = shift_explainer.black_box_.n_queries
    other = shift_explainer.explain(images, target=(3, 5), predicted=wrong)
    assert other.value.tolist() == wrong[:, 3, 5].tolist()
    right = shift_explainer.explain(images, target=(3, 5), predicted=shifted(images)[:, None])
    assert right.value.tolist() == shifted(images)[:, 3, 5].tolist()
    assert np.array_equal(other.scores, right.scores), "what decides does not depend on what is said to be predicted"
    assert shift_explainer.black_box_.n_queries == n_before
    with pytest.raises(InputError, match="8 x 8"):
        shift_explainer.explain(images, target=(3, 5), predicted=wrong[:, :5])


def test_the_mask_that_the_model_predicts_is_explained(tiny_explainer) -> None:
    images = random_images(12)
    n_before = tiny_explainer.black_box_.n_queries
    explanation = tiny_explainer.explain(images, target=(4, 4))
    assert explanation.value.tolist() == bright(images)[:, 4, 4].tolist()
    assert explanation.value_source == "model"
    assert tiny_explainer.black_box_.n_queries == n_before + 12
    assert tiny_explainer.explain(images, target=(4, 4), query=False).value_source == "expected"
    assert tiny_explainer.black_box_.n_queries == n_before + 12


# --- removals and groups -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "removal",
    ["zero", "mean", "blur", "marginal", "conditional", np.full((1, SIDE, SIDE), 0.3), lambda x, keep, rng: x * keep],
    ids=["zero", "mean", "blur", "marginal", "conditional", "array", "function"],
)
def test_every_removal(removal) -> None:
    images = random_images(12)
    explainer = tiny(bright, images, removal=removal)
    explanation = explainer.explain(images, target=(3, 3), k=5)
    assert (explanation.n_selected == 5).all()
    assert 0 <= explanation.verify().fidelity <= 1
    order = np.random.default_rng(0).permutation(12)
    again = explainer.explain(images[order][:7], target=(3, 3), k=5)
    assert np.array_equal(again.scores, explanation.scores[order][:7]), "an image stands for itself"


@pytest.mark.parametrize(("groups", "n_units"), [(Patches(3), 9), (Patches(8), 1), (Superpixels(6), 6)])
def test_groups_of_pixels(groups, n_units) -> None:
    images = random_images(10)
    explainer = tiny(bright, images, groups=groups, k=1)
    explanation = explainer.explain(images, target=(3, 3), k=1)
    assert explanation.scores.shape == (10, n_units)
    assert (explanation.n_selected == 1).all()
    assert explanation.mask.sum(1).min() >= 1
    assert np.array_equal(explainer.explain(images[[7]], target=(3, 3)).scores[0], explanation.scores[7])
    everything = explainer.explain(images, target=(3, 3), k=n_units)
    assert everything.mask.all(), "all units together are the image"
    assert everything.verify().fidelity == 1.0


def test_a_patch_far_away_is_found() -> None:
    explainer = SOInter(far, k=1, groups=Patches(2), **settings(8, 16, 16))
    explainer.set_params(query_budget=800)
    explainer.fit(far_images(150, seed=0))
    images = far_images(40, seed=1)
    images = images[far(images)[:, -1, 0] == 1]
    explanation = explainer.explain(images, target=(7, 4))
    assert (explanation.selected[:, 0] == 0).mean() > 0.8
    assert explanation.verify().fidelity > 0.8


# --- sizes and budgets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1, 5), (1, 1, 1), (3, 9, 7), (5, 4, 6), (1, 50, 50)])
def test_images_of_all_sizes(shape) -> None:
    images = random_images(9, shape=shape)
    explainer = tiny(bright, images, k=1)
    corner = (shape[1] - 1, shape[2] - 1)
    explanation = explainer.explain(images, target=corner)
    assert explanation.scores.shape == (9, shape[1] * shape[2])
    assert np.isfinite(explanation.scores).all()
    assert explanation.verify().agreement.shape == (9,)


def test_one_image_is_enough_to_begin_with() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explainer = tiny(bright, random_images(1))
        explanation = explainer.explain(random_images(2, seed=1), target=(1, 1))
    assert np.isfinite(explanation.scores).all()


@pytest.mark.parametrize("budget", [1, 2, 3, 20])
def test_tiny_budgets_are_kept(budget) -> None:
    asked = []

    def counted(X):
        asked.append(len(X))
        return bright(X)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explainer = tiny(counted, random_images(12), query_budget=budget)
    assert sum(asked) == explainer.n_queries_ <= budget
    assert sum(asked) >= budget - 1
    assert len(explainer.explain(random_images(3), target=(1, 1), query=False)) == 3
    assert sum(asked) <= budget, "query=False asks nothing"
    explainer.explain(random_images(3), target=(1, 1))
    assert sum(asked) == explainer.n_queries_ + 3


def test_a_black_box_with_too_small_a_budget_of_its_own() -> None:
    black_box = BlackBox(bright, query_budget=20)
    with pytest.warns(BudgetWarning, match="ended after 20 rows, of 60 planned"):
        explainer = tiny(black_box, random_images(12))
    assert explainer.n_queries_ == black_box.n_queries == 20


def test_little_learned_is_said() -> None:
    def noise(X: np.ndarray) -> np.ndarray:
        """Whatever changes, all pixels are drawn anew."""
        return (np.sin(1e4 * X.sum(axis=(1, 2, 3)))[:, None, None] * 1e4 * bright(1 - X) % 1 > 0.5).astype(int)

    with pytest.warns(PoorFitWarning, match="learned little"):
        SOInter(noise, **QUICK | TINY).fit(random_images(30))


@pytest.mark.parametrize("batch_size", [1, 8])
def test_images_that_become_one_pixel_on_the_way_and_are_learned_from_one_at_a_time(batch_size) -> None:
    explainer = tiny(bright, random_images(12), energy=EnergyConfig(hidden=(4, 4, 4, 4), batch_size=batch_size))
    assert (explainer.explain(random_images(3), target=(1, 1)).n_selected == 2).all()


def test_a_black_box_that_fails_half_way() -> None:
    asked = []

    def failing(X):
        asked.append(len(X))
        if sum(asked) > 30:
            raise RuntimeError("the model is gone")
        return bright(X)

    with pytest.raises(BlackBoxError, match="the model is gone"):
        tiny(failing, random_images(12))


def test_large_numbers_that_differ_little() -> None:
    images = 30_000 + random_images(60)
    explainer = SOInter(lambda X: bright(np.asarray(X) - 30_000), k=1, removal="mean", **settings(8))
    explainer.fit(images)
    assert explainer.held_out_skill_ > 0.7


# --- the same again ------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_explainer(tiny_explainer) -> None:
    images = random_images(12)
    again = tiny(bright, images).explain(images, target=(2, 2))
    other = tiny(bright, images, random_state=1).explain(images, target=(2, 2))
    first = tiny_explainer.explain(images, target=(2, 2))
    assert np.array_equal(first.scores, again.scores)
    assert not np.array_equal(first.scores, other.scores)


def test_an_explanation_does_not_hang_on_the_images_around(shift_explainer) -> None:
    images = random_images(70, seed=8)  # more than are worked on at a time
    targets = np.random.default_rng(0).integers(SIDE, size=(70, 2))
    whole = shift_explainer.explain(images, target=targets)
    order = np.random.default_rng(1).permutation(70)
    shuffled = shift_explainer.explain(images[order], target=targets[order])
    assert np.array_equal(shuffled.scores, whole.scores[order])
    for i in (0, 33, 69):
        alone = shift_explainer.explain(images[[i]], target=targets[[i]])
        assert np.array_equal(alone.scores[0], whole.scores[i])


def test_two_threads_select_what_one_selects(shift_explainer, tiny_explainer) -> None:
    """Fits on images this small are the same to the bit; explanations, up to rounding."""
    images = random_images(12)
    before = torch.get_num_threads()
    found = []
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            found.append((shift_explainer.explain(images, target=(3, 5)), tiny(bright, images)))
    finally:
        torch.set_num_threads(before)
    (one, first), (two, second) = found
    np.testing.assert_allclose(one.scores, two.scores, rtol=1e-4, atol=1e-4)
    assert np.array_equal(one.selected, two.selected)
    states = first.interpreter_.state_dict(), second.interpreter_.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize("case", ["pixels", "colours", "superpixels", "blur", "function"])
def test_saved_and_loaded_it_explains_the_same(case, tmp_path, colour_explainer) -> None:
    images = coloured_images(4, seed=3) if case == "colours" else random_images(6)

    def half(x, keep, rng):
        return np.where(keep, x, 0.5)

    changes = {
        "superpixels": {"groups": Superpixels(6)},
        "blur": {"removal": "blur"},
        "function": {"removal": half},
    }.get(case, {})
    explainer = colour_explainer if case == "colours" else tiny(bright, images, **changes)
    explainer.save(tmp_path / "saved")
    loaded = sointer.load(tmp_path / "saved", **({"removal": half} if case == "function" else {}))
    for target in ((2, 3), np.s_[1:3, 2:6]):
        before, after = (one.explain(images, target=target, k=2, query=False) for one in (explainer, loaded))
        assert np.array_equal(before.scores, after.scores)
        assert np.array_equal(before.selected, after.selected)
        assert np.array_equal(before.value, after.value)
    with pytest.raises(InputError, match="no model to query"):
        after.verify()
    assert np.array_equal(explainer.output_interactions_, loaded.output_interactions_)
    if case != "function":
        model = strongest_channel if case == "colours" else bright
        asked = sointer.load(tmp_path / "saved", black_box=model).explain(images, target=(2, 3), k=2)
        assert asked.verify().fidelity == explainer.explain(images, target=(2, 3), k=2).verify().fidelity


def test_a_loaded_explainer_can_be_cloned_and_fitted_again(tiny_explainer, tmp_path) -> None:
    images = random_images(12)
    tiny_explainer.save(tmp_path / "saved")
    twin = clone(sointer.load(tmp_path / "saved", black_box=bright))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)
        again = clone(twin).fit(images)
        twin.fit(images)
    scores = [one.explain(images, target=(2, 3)).scores for one in (tiny_explainer, twin, again)]
    assert np.array_equal(scores[0], scores[1])
    assert np.array_equal(scores[0], scores[2])


def test_damaged_files_are_refused(tiny_explainer, tmp_path) -> None:
    tiny_explainer.save(tmp_path / "saved")
    path = tmp_path / "saved" / "explainer.json"
    metadata = json.loads(path.read_text())
    weights = next((tmp_path / "saved").glob("*.safetensors"))
    for key, value in (("input_format", {}), ("config", [{}, {}, {}]), ("outputs", None)):
        path.write_text(json.dumps({**metadata, key: value}))
        with pytest.raises(LoadError):
            sointer.load(tmp_path / "saved")
    path.write_text(json.dumps(metadata))
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(LoadError):
        sointer.load(tmp_path / "saved")


def test_attention_by_displacement_points_at_what_decides(shift_explainer) -> None:
    strength = shift_explainer.output_interactions_
    assert strength.shape == (2 * SIDE - 1, 2 * SIDE - 1)
    assert strength.sum() == pytest.approx(1.0, abs=1e-5)
    assert np.unravel_index(strength.argmax(), strength.shape) == (SIDE - 1, SIDE - 1 - AWAY)
    with pytest.raises(InputError, match="pixels of a mask"):
        shift_explainer.explain(random_images(1), target=(1, 1)).paths()


def test_nothing_helps_to_paths_of_images(tiny_explainer) -> None:
    images = random_images(4)
    for explainer in (tiny_explainer, NearestPixels(bright, k=1, random_state=0).fit(images)):
        with pytest.raises(InputError, match="not available for images") as caught:
            explainer.explain(images, target=(1, 1)).paths()
        assert "structured=True" not in str(caught.value)


def test_fidelity_of_images_is_never_shown_without_what_it_does_not_prove(tiny_explainer, tmp_path) -> None:
    """A mask can keep the answer by its shape, whatever the pixels."""
    check = tiny_explainer.explain(random_images(4), target=(1, 1)).verify()
    for shown in (repr(check), check._repr_html_()):
        assert "by its shape alone: see J" in shown
    pages = [
        tiny_explainer.report(random_images(1), tmp_path / f"{verify}.html", k=1, verify=verify).read_text()
        for verify in (True, False)
    ]
    assert ["by its shape alone: see J" in page for page in pages] == [True, False]
    table = quick_fit(labels, TABLE)
    of_table = table.explain(TABLE[:4], target=0).verify()
    assert "shape" not in repr(of_table) + of_table._repr_html_()


def test_settings_that_images_do_not_use_are_refused() -> None:
    with pytest.raises(InputError, match=r"input_sparsity.*no effect.*images"):
        SOInter(bright, energy=EnergyConfig(input_sparsity=1.0)).fit(random_images(3))
