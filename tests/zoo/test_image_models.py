"""Segmenters of images: planted squares, slow twins, what users may send, and the same bits every time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sealing import edit_model
from sointer._support.unet import StandardisingUNetwork
from sointer.errors import InputError, LoadError
from sointer.metrics import iou
from sointer.zoo import fit_or_load
from sointer.zoo.image_models import UNet, distorted, pixel_loss
from sointer.zoo.image_value import (
    ImageDeepValueNetwork,
    Trajectories,
    ValueNetwork,
    adversarial,
    climb,
    near_truth,
    relaxed_iou,
    steepest,
    value_loss,
)
from sointer.zoo.model_base import endless_batches, one_cycle

KINDS = [UNet, ImageDeepValueNetwork]


def squares(n, seed, size=8, n_classes=2):
    """Dark noise with one rectangle, the brighter the higher its class."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 60, (n, 3, size, size))
    masks = np.zeros((n, size, size), dtype=np.int64)
    for image, mask in zip(images, masks, strict=True):
        top, left = rng.integers(0, size - 4, 2)
        height, width = rng.integers(3, 5, 2)
        mask[top : top + height, left : left + width] = rng.integers(1, n_classes)
        image += 60 * mask
    return images.astype(np.uint8), masks


IMAGES, MASKS = squares(40, 0)


def small(kind, **changes):
    if kind is ImageDeepValueNetwork:
        own = {"crop": 8, "filters": (6, 8), "strides": (2, 2), "hidden": (12,), "image_width": 4}
        changes = {**own, "n_pretraining_steps": 6, "n_inference_steps": 3, **changes}
    else:
        changes = {"width": 4, "depth": 2, **changes}
    return kind(**{"n_steps": 8, "batch_size": 8, "random_state": 0, **changes})


@pytest.fixture(scope="module", params=KINDS)
def fitted(request):
    return small(request.param).fit(IMAGES, MASKS)


# --- intersection over union ---------------------------------------------------------------------------------


def slow_iou(truth, prediction):
    """Pixel by pixel, for masks of 0 and 1."""
    each = []
    for one, other in zip(truth, prediction, strict=True):
        both = either = 0
        for a, b in zip(one.ravel(), other.ravel(), strict=True):
            both += a == 1 and b == 1
            either += a == 1 or b == 1
        each.append(both / either if either else 1.0)
    return sum(each) / len(each)


def test_iou_is_that_of_its_definition():
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 7, 5, 4)) < 0.3
    assert iou(a, b) == pytest.approx(slow_iou(a, b))
    assert iou(a.astype(int), b) == iou(b, a) == iou(a, b)
    assert iou(a, a) == 1
    half = np.zeros((1, 2, 4), dtype=int)
    half[0, 0] = 1
    assert iou(half, np.ones((1, 2, 4))) == 0.5
    assert iou(half, 1 - half) == 0


def test_iou_of_empty_masks_and_of_several_classes():
    empty, full = np.zeros((1, 2, 2)), np.ones((1, 2, 2))
    assert (iou(empty, empty), iou(empty, full), iou(full, empty)) == (1, 0, 0)
    truth, prediction = np.array([[[0, 1], [2, 2]]]), np.array([[[0, 1], [1, 2]]])
    assert iou(truth, prediction) == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert iou(np.concatenate([truth, empty]), np.concatenate([prediction, empty])) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("truth", "prediction", "message"),
    [
        (np.zeros((2, 3, 3)), np.zeros((1, 3, 3)), "differ in shape"),
        (np.zeros((3, 3)), np.zeros((3, 3)), "axes"),
        (np.zeros((0, 3, 3)), np.zeros((0, 3, 3)), "axes"),
        (np.zeros((1, 3, 3)), np.full((1, 3, 3), 0.7), "threshold"),
        (np.zeros((1, 3, 3)), np.full((1, 3, 3), np.nan), "classes"),
        (np.full((1, 3, 3), -1), np.zeros((1, 3, 3)), "classes"),
    ],
)
def test_masks_that_iou_cannot_compare_are_refused(truth, prediction, message):
    with pytest.raises(ValueError, match=message):
        iou(truth, prediction)


def test_relaxed_iou_is_the_ratio_of_minima_and_maxima_and_of_hard_masks_the_iou():
    y = torch.rand(9, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    truth = (y.roll(1, 0) > 0.6).double()
    expected = torch.minimum(y, truth).sum((1, 2)) / torch.maximum(y, truth).sum((1, 2))
    torch.testing.assert_close(relaxed_iou(y, truth), expected)
    hard = (y > 0.5).double()
    assert float(relaxed_iou(hard, truth).mean()) == pytest.approx(iou(truth.numpy(), hard.numpy()))
    assert relaxed_iou(torch.zeros(1, 2, 2), torch.zeros(1, 2, 2)) == 1


# --- planted squares -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "least"),
    [
        (UNet(width=6, depth=2, n_steps=80, batch_size=16, learning_rate=1e-2, random_state=0), 0.8),
        (
            small(
                ImageDeepValueNetwork,
                filters=(8, 16),
                hidden=(32,),
                n_pretraining_steps=60,
                n_steps=300,
                batch_size=16,
                learning_rate=5e-3,
                n_inference_steps=8,
                augment=False,
            ),
            0.5,
        ),
    ],
    ids=["UNet", "ImageDeepValueNetwork"],
)
def test_squares_not_seen_before_are_found(model, least):
    new_images, new_masks = squares(60, 1)
    model.fit(IMAGES, MASKS)
    assert model.score(new_images, new_masks) > max(least, iou(new_masks, np.ones_like(new_masks)) + 0.2)
    losses = [row["loss"] for row in model.history_ if row["stage"] == model.history_[0]["stage"]]
    assert losses[-1] < 0.8 * losses[0]


def test_classes_are_told_apart():
    images, masks = squares(60, 0, n_classes=4)
    new_images, new_masks = squares(60, 1, n_classes=4)
    model = UNet(width=6, depth=1, n_steps=200, batch_size=16, learning_rate=1e-2, augment=False, random_state=0)
    model.fit(images, masks)
    shares = model.predict_proba(new_images)
    assert shares.shape == (60, 4, 8, 8)
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(model.predict(new_images), shares.argmax(1))
    assert model.score(new_images, new_masks) > 0.7
    assert model.score(new_images, new_masks) == pytest.approx(iou(new_masks, model.predict(new_images)))


# --- the mathematics -----------------------------------------------------------------------------------------


def test_the_folded_network_answers_as_the_trained_one():
    generator = torch.Generator().manual_seed(0)
    network = StandardisingUNetwork(3, 2, 4, 2).initialise(generator)
    images = torch.rand(6, 3, 8, 8, generator=generator)
    network.standardise(images)
    for _ in range(3):
        network.train()(images)  # gives the normalisations something to fold
    assert (network.eval()(images) - network.train()(images)).abs().max() > 1e-2
    torch.testing.assert_close(network.folded()(images), network.eval()(images), atol=1e-4, rtol=1e-4)


def test_the_loss_of_pixels_is_cross_entropy_and_dice():
    logits = torch.tensor([[[[0.0, 2.0], [-1.0, 3.0]]]], dtype=torch.float64)
    truth = torch.tensor([[[0, 1], [0, 1]]])
    p, y = 1 / (1 + np.exp(-logits[0, 0].numpy())), truth[0].numpy()
    entropy = -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))
    dice = (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)
    assert float(pixel_loss(logits, truth)) == pytest.approx(entropy + 1 - dice)


def test_image_and_mask_are_distorted_together():
    """Pictures of their own masks stay so, but for half-covered pixels at the borders."""
    _, masks = squares(200, 3, size=16)
    images = torch.from_numpy(masks)[:, None].float().repeat(1, 3, 1, 1)
    x, y = distorted(images, torch.from_numpy(masks), 2, torch.Generator().manual_seed(0))
    assert (y != torch.from_numpy(masks)).any((1, 2)).float().mean() > 0.9
    assert x.min() >= 0
    assert x.max() <= 1
    inside, outside = x.mean(1)[y == 1], x.mean(1)[y == 0]
    assert inside.mean() > outside.mean() + 0.5


def test_batches_hold_every_image_once_before_any_again():
    batches = endless_batches(10, 4, torch.Generator().manual_seed(0))
    drawn = torch.cat([next(batches) for _ in range(10)])
    for start in range(0, 40, 10):
        assert sorted(drawn[start : start + 10].tolist()) == list(range(10))
    assert len(next(endless_batches(3, 8, torch.Generator()))) == 8


def test_the_learning_rate_rises_and_falls_to_nothing():
    rates = [one_cycle(step, 100) for step in range(101)]
    assert rates[0] == pytest.approx(0.04)
    assert int(np.argmax(rates)) == 30
    assert max(rates) == pytest.approx(1)
    assert rates[100] == pytest.approx(0)
    assert np.all(np.diff(rates[:31]) > 0)
    assert np.all(np.diff(rates[30:]) < 0)


def value_problem(n=12):
    generator = torch.Generator().manual_seed(0)
    network = ValueNetwork(3, 8, (6, 8), (2, 2), (12,), 0).initialise(generator).double()
    images = torch.rand(n, 3, 8, 8, generator=generator, dtype=torch.float64)
    y = torch.rand(n, 8, 8, generator=generator, dtype=torch.float64)
    truth = (torch.rand(n, 8, 8, generator=generator) < 0.3).double()
    return network, network.seen(images).detach(), y, truth


def test_inference_raises_the_score_and_adversaries_raise_the_loss():
    network, seen, y, truth = value_problem()
    start = 0.25 + 0.5 * y
    climbed = climb(network, seen, start, 10, 0.02)
    assert (network(seen, climbed) > network(seen, start)).all()
    attacked = adversarial(network, seen, truth, start, 2, 0.01)
    before = value_loss(network(seen, start), relaxed_iou(start, truth))
    after = value_loss(network(seen, attacked), relaxed_iou(attacked, truth))
    assert (after > before).all()
    for changed in (climb(network, seen, start, 5, 3.0), adversarial(network, seen, truth, start, 3, 3.0)):
        assert changed.min() >= 0
        assert changed.max() <= 1


def test_trajectories_are_inference_done_a_step_at_a_time():
    network, seen, _, truth = value_problem()
    underway = Trajectories(torch.zeros(12, 3, 8, 8).double(), truth.clone(), 4, 0.1)
    underway.age[:] = 0
    for step in range(4):
        y = underway.y.clone().requires_grad_()
        ended = underway.advance(torch.autograd.grad(network(seen, y).sum(), y)[0])
        assert len(ended) == (12 if step == 3 else 0)
    torch.testing.assert_close(underway.y, climb(network, seen, torch.zeros_like(truth), 4, 0.1))
    underway.replace(ended[:5], torch.ones(5, 3, 8, 8).double(), 1 - truth[:5])
    assert (underway.y[:5] == 0).all()
    assert underway.age.tolist() == [0] * 5 + [4] * 7
    torch.testing.assert_close(underway.truth, torch.cat([1 - truth[:5], truth[5:]]))


def test_steps_have_one_length_whatever_the_gradient():
    gradient = torch.randn(5, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(steepest(gradient).square().mean((1, 2)), torch.ones(5))
    torch.testing.assert_close(steepest(1e-4 * gradient), steepest(gradient))
    assert (steepest(torch.zeros(1, 8, 8)) == 0).all()


def test_masks_near_the_truth_are_of_all_qualities():
    truth = torch.from_numpy(squares(400, 0)[1]).float()
    y = near_truth(truth, torch.Generator().manual_seed(0))
    assert y.min() >= 0
    assert y.max() <= 1
    quality = relaxed_iou(y, truth)
    assert (quality == 1).float().mean() > 0.05
    assert (quality < 0.3).float().mean() > 0.1
    assert ((quality > 0.4) & (quality < 0.9)).float().mean() > 0.1


def test_every_pixel_of_an_image_is_in_a_crop():
    model = small(ImageDeepValueNetwork, n_offsets=3, n_pretraining_steps=1, n_steps=1).fit(*squares(8, 0, size=15))
    covered = np.zeros((15, 15), dtype=int)
    for window in model._windows():
        covered[window] += 1
    assert covered.min() >= 1
    assert np.isfinite(model.predict_proba(squares(3, 1, size=15)[0])).all()


# --- estimator manners ---------------------------------------------------------------------------------------


def test_answers_have_the_promised_form(fitted):
    relaxed, masks = fitted.predict_proba(IMAGES), fitted.predict(IMAGES)
    assert (relaxed.shape, relaxed.dtype, masks.dtype) == ((40, 8, 8), np.float32, np.int64)
    assert relaxed.min() >= 0
    assert relaxed.max() <= 1
    np.testing.assert_array_equal(masks, relaxed >= 0.5)
    assert fitted.score(IMAGES, MASKS) == pytest.approx(iou(MASKS, masks))
    weights = np.arange(40)
    each = [fitted.score(IMAGES[i : i + 1], MASKS[i : i + 1]) for i in range(40)]
    assert fitted.score(IMAGES, MASKS, sample_weight=weights) == pytest.approx(np.average(each, weights=weights))
    assert fitted.predict(IMAGES[:0]).shape == (0, 8, 8)
    assert {"stage", "step", "loss", "seconds"} == set(fitted.history_[-1])


def test_an_image_gets_the_same_bits_in_any_company(fitted):
    many = np.tile(IMAGES, (3, 1, 1, 1))
    answer = fitted.predict_proba(many)
    np.testing.assert_array_equal(answer[:40], answer[80:])
    shuffled = np.random.default_rng(1).permutation(120)
    np.testing.assert_array_equal(fitted.predict_proba(many[shuffled]), answer[shuffled])
    for rows in (slice(0, 1), slice(5, 7), slice(10, 43), slice(30, 97)):
        np.testing.assert_array_equal(fitted.predict_proba(many[rows]), answer[rows])


def test_numbers_in_any_container_get_the_same_answer(fitted):
    answer = fitted.predict_proba(IMAGES)
    same = (IMAGES.astype(np.float64), IMAGES.astype(np.int64), torch.from_numpy(IMAGES), IMAGES.tolist())
    for images in same:
        np.testing.assert_array_equal(fitted.predict_proba(images), answer)
    apart = np.ascontiguousarray(IMAGES.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(fitted.predict_proba(apart), answer)


@pytest.mark.parametrize("kind", KINDS)
def test_floats_up_to_1_are_as_good_as_bytes(kind):
    by_bytes, by_floats = small(kind).fit(IMAGES, MASKS), small(kind).fit(IMAGES / 255, torch.from_numpy(MASKS > 0))
    assert (by_bytes.image_format_.brightest, by_floats.image_format_.brightest) == (255, 1)
    np.testing.assert_allclose(by_floats.predict_proba(IMAGES / 255), by_bytes.predict_proba(IMAGES), atol=1e-3)


@pytest.mark.usefixtures("global_random_state_is_left_alone")
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_model(kind):
    first, second, other = (small(kind, random_state=seed).fit(IMAGES, MASKS) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.predict_proba(IMAGES), second.predict_proba(IMAGES))
    assert not np.array_equal(first.predict_proba(IMAGES), other.predict_proba(IMAGES))


def test_images_are_left_as_they_were(fitted):
    images = IMAGES / 255 if fitted.image_format_.brightest == 1 else IMAGES.astype(np.float32)
    before = images.copy()
    fitted.predict(images)
    clone(fitted).fit(images / 255, MASKS)
    np.testing.assert_array_equal(images, before)


# --- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (IMAGES[0], r"shape \(3, 8, 8\), expected \(images, 3, 8, 8\)"),
        (IMAGES[:, :1], r"shape \(40, 1, 8, 8\)"),
        (IMAGES[..., :4], r"expected \(images, 3, 8, 8\)"),
        (IMAGES - 1.0, "holds -1.0, expected numbers from 0 to 255"),
        (IMAGES * 2.0 + 250, "expected numbers from 0 to 255"),
        (IMAGES / 255, "Multiply them by 255"),
        (np.where(IMAGES > 100, np.nan, 1.0), "holds nan"),
        (np.full(IMAGES.shape, np.inf), "holds inf"),
        (np.full(IMAGES.shape, "white"), "expected an array of numbers"),
    ],
    ids=str,
)
def test_images_unlike_those_of_the_fit_are_refused(fitted, images, message):
    with pytest.raises(InputError, match=message):
        fitted.predict(images)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("images", "masks", "message"),
    [
        (IMAGES[0], MASKS[0], "images, channels, height, width"),
        (IMAGES[:0], MASKS[:0], "images, channels, height, width"),
        (IMAGES / 100, MASKS, "expected numbers from 0 to 1"),
        (IMAGES, MASKS[:-1], r"shape \(39, 8, 8\), expected \(40, 8, 8\)"),
        (IMAGES, MASKS[:, :4], r"shape \(40, 4, 8\)"),
        (IMAGES, MASKS * 0.5, "holds 0.5, expected the classes"),
        (IMAGES, MASKS - 1, "holds -1"),
        (IMAGES, np.where(MASKS == 1, np.nan, 0), "holds nan"),
        (IMAGES, np.where(MASKS == 1, "horse", "grass"), "expected an array of numbers"),
    ],
    ids=str,
)
def test_data_that_cannot_be_learned_from_are_refused(kind, images, masks, message):
    with pytest.raises(InputError, match=message):
        small(kind).fit(images, masks)


def test_sizes_that_do_not_fit_the_network_are_refused():
    with pytest.raises(InputError, match=r"12 by 12 pixels, expected multiples of 8: with depth=3"):
        UNet(depth=3).fit(*squares(3, 0, size=12))
    with pytest.raises(InputError, match=r"8 by 8 pixels, expected from 24 to 48"):
        ImageDeepValueNetwork().fit(IMAGES, MASKS)
    with pytest.raises(InputError, match=r"20 by 20 pixels, expected from 8 to 16"):
        small(ImageDeepValueNetwork).fit(*squares(3, 0, size=20))
    with pytest.raises(InputError, match="3 classes, expected 0 and 1"):
        small(ImageDeepValueNetwork).fit(IMAGES, MASKS * 2)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (UNet, {"width": 0}),
        (UNet, {"depth": 1.5}),
        (UNet, {"n_steps": 0}),
        (UNet, {"learning_rate": "fast"}),
        (UNet, {"weight_decay": -1}),
        (UNet, {"random_state": "seed"}),
        (ImageDeepValueNetwork, {"batch_size": 3}),
        (ImageDeepValueNetwork, {"crop": 12}),
        (ImageDeepValueNetwork, {"filters": 16}),
        (ImageDeepValueNetwork, {"strides": (2, 2, 1)}),
        (ImageDeepValueNetwork, {"hidden": (0,)}),
        (ImageDeepValueNetwork, {"step_size": 0.0}),
        (ImageDeepValueNetwork, {"image_width": -1}),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(kind, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        small(kind, **wrong).fit(IMAGES, MASKS)


def test_the_published_network_can_be_had():
    published = {"filters": (6, 12, 12), "strides": (1, 2, 2), "hidden": (38, 19), "image_width": 0}
    model = small(ImageDeepValueNetwork, crop=7, n_steps=2, **published).fit(IMAGES, MASKS)
    assert model.network_.evidence is None
    assert model.predict(IMAGES).shape == MASKS.shape


@pytest.mark.parametrize("kind", KINDS)
def test_an_unfitted_model_says_so(kind, tmp_path):
    for use in (lambda m: m.predict(IMAGES), lambda m: m.save(tmp_path / "m")):
        with pytest.raises(NotFittedError, match="fit"):
            use(kind())


# --- saving --------------------------------------------------------------------------------------------------


def test_a_saved_model_answers_bit_for_bit_alike(fitted, tmp_path):
    fitted.save(tmp_path / "m")
    loaded = type(fitted).load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(IMAGES), fitted.predict_proba(IMAGES))
    assert loaded.get_params() == fitted.get_params()
    assert (loaded.image_format_, loaded.n_classes_, loaded.history_) == (
        fitted.image_format_,
        fitted.n_classes_,
        fitted.history_,
    )
    np.testing.assert_array_equal(clone(loaded).fit(IMAGES, MASKS).predict_proba(IMAGES), fitted.predict_proba(IMAGES))
    assert {path.suffix for path in (tmp_path / "m").iterdir()} == {".json", ".safetensors"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (edit_model(model="SPEN"), "holds a SPEN, expected a UNet"),
        (edit_model(parameters={"width": 5, "depth": 2}), "whole UNet"),
        (edit_model(parameters={"colour": 1}), "whole UNet"),
        (edit_model(pictures={"channels": 1, "height": 8, "width": 8, "brightest": 255}), "whole UNet"),
        (edit_model(pictures=None), "whole UNet"),
        (edit_model(n_classes=3), "whole UNet"),
    ],
)
def test_a_damaged_model_gives_one_clear_error(tmp_path, damage, message):
    small(UNet, n_steps=1).fit(IMAGES, MASKS).save(tmp_path / "m")
    damage(tmp_path / "m")
    with pytest.raises(LoadError, match=message):
        UNet.load(tmp_path / "m")


@pytest.mark.parametrize("kind", KINDS)
def test_models_are_trained_once_for_the_same_data_and_parameters(kind, tmp_path, monkeypatch):
    trained = []
    fit = kind.fit
    monkeypatch.setattr(kind, "fit", lambda self, *data: trained.append(1) or fit(self, *data))
    first = fit_or_load(small(kind), IMAGES, MASKS, tmp_path)
    again = fit_or_load(small(kind, verbose=False), IMAGES, MASKS, tmp_path)
    assert len(trained) == 1
    np.testing.assert_array_equal(first.predict_proba(IMAGES), again.predict_proba(IMAGES))
    other = IMAGES.copy()
    other[0, 0, 0, 0] += 1
    fit_or_load(small(kind), other, MASKS, tmp_path)
    fit_or_load(small(kind), IMAGES, 1 - MASKS, tmp_path)
    fit_or_load(small(kind, n_steps=9), IMAGES, MASKS, tmp_path)
    assert len(trained) == 4
