"""Every baseline on images and masks: pixels, patches, superpixels; pixels and regions as targets."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone

from sointer import BlackBox, Patches, Superpixels
from sointer.errors import BlackBoxError, ConstantFeatureWarning, ConstantOutputWarning, InputError
from sointer.explainers.baselines.base import NearestPixels, Random
from sointer.explainers.baselines.by_swaps import MinimalRegion, Occlusion, Rise
from sointer.explainers.baselines.l2x import L2X
from sointer.explainers.baselines.lime_and_shap import KernelShap, Lime, ShapleySampling
from sointer.metrics.leakage import leakage

pytestmark = pytest.mark.usefixtures("global_random_state_is_left_alone")

HEIGHT, WIDTH = 5, 6
IMAGES = np.random.default_rng(0).integers(1, 256, size=(40, 3, HEIGHT, WIDTH)).astype(np.uint8)
BOX = np.s_[1:3, 2:5]

BASELINES = {
    "Random": (Random, {"removal": "zero"}),
    "NearestPixels": (NearestPixels, {"removal": "zero"}),
    "Lime": (Lime, {"n_samples": 150, "removal": "zero"}),
    "KernelShap": (KernelShap, {"n_samples": 100, "removal": "zero"}),
    "ShapleySampling": (ShapleySampling, {"n_samples": 100, "removal": "zero"}),
    "Rise": (Rise, {"n_samples": 100, "removal": "zero"}),
    "Occlusion": (Occlusion, {"n_samples": 100, "removal": "zero"}),
    "MinimalRegion": (MinimalRegion, {"n_samples": 100, "removal": "zero"}),
}
BY_REMOVAL = ("Lime", "KernelShap", "ShapleySampling")
ASKING = (*BY_REMOVAL, "Rise", "Occlusion", "MinimalRegion")
GROUPS = {"pixels": None, "patches": Patches(2), "superpixels": Superpixels(6)}


class Shifted:
    """A pixel of the mask is what the pixel two to its left is, if bright: the planted truth."""

    def __init__(self) -> None:
        self.n_rows = 0

    def __call__(self, images):
        assert images.shape[1:] == (3, HEIGHT, WIDTH)
        assert images.dtype == np.uint8
        self.n_rows += len(images)
        return np.roll(images[:, 1], 2, axis=2) > 128


@pytest.fixture(scope="module", params=list(BASELINES))
def make(request):
    kind, settings = BASELINES[request.param]

    def build(model=None, **more):
        return kind(model or Shifted(), **{"random_state": 3, "k": 3, **settings, **more})

    build.asks = request.param in ASKING
    return build


@pytest.fixture(scope="module", params=list(GROUPS))
def fitted(request, make):
    return make(groups=GROUPS[request.param]).fit(IMAGES)


def test_shapes_and_meaning(fitted) -> None:
    explanation = fitted.explain(IMAGES[:7], target=(2, 4))
    assert explanation.mask.shape == (7, HEIGHT * WIDTH)
    assert explanation.selected.shape == (7, 3)
    assert np.isfinite(explanation.scores).all()
    assert explanation.output_names[explanation.target[0]] == "(2, 4)"
    units = explanation.source.groups.unit_of_features(7)
    for row in range(7):
        chosen = explanation.selected[row][explanation.selected[row] >= 0]
        assert len(chosen) == len(set(chosen))
        assert set(chosen) <= set(units[row].tolist())
        np.testing.assert_array_equal(explanation.mask[row], np.isin(units[row], chosen))
        assert (np.diff(explanation.scores[row, chosen]) <= 0).all()
    check = explanation.verify()
    assert set(check.agreement) <= {0.0, 1.0}


def test_a_row_is_explained_the_same_in_any_company(fitted) -> None:
    targets = [(2, 4), BOX, (0, 0), {(4, 5), (0, 3)}, BOX, (2, 4)]
    whole = fitted.explain(IMAGES[:6], target=targets)
    order = np.array([5, 3, 0, 1, 4, 2])  # the regions come in another order, too
    shuffled = fitted.explain(IMAGES[order], target=[targets[i] for i in order])
    np.testing.assert_array_equal(shuffled.selected, whole.selected[order])
    np.testing.assert_array_equal(shuffled.scores, whole.scores[order])
    assert list(shuffled.value) == [whole.value[i] for i in order]
    for i in range(6):
        alone = fitted.explain(IMAGES[[i]], target=targets[i])
        np.testing.assert_array_equal(alone.selected[0], whole.selected[i])
    again = clone(fitted).fit(IMAGES).explain(IMAGES[:6], target=targets)
    np.testing.assert_array_equal(again.scores, whole.scores)


def test_one_image_with_many_targets(fitted) -> None:
    images = np.repeat(IMAGES[:1], 4, axis=0)
    together = fitted.explain(images, target=np.array([[0, 0], [1, 3], [4, 5], [1, 3]]))
    apart = fitted.explain(IMAGES[:1], target=(1, 3))
    np.testing.assert_array_equal(together.selected[[1, 3]], np.repeat(apart.selected, 2, axis=0))


def test_a_region_agrees_by_the_share_of_its_pixels(fitted) -> None:
    explanation = fitted.explain(IMAGES[:5], target=BOX)
    model = Shifted()
    reduced = np.where(explanation.mask.reshape(-1, 1, HEIGHT, WIDTH), IMAGES[:5], 0).astype(np.uint8)
    same = (model(IMAGES[:5]) == model(reduced))[:, 1:3, 2:5]
    np.testing.assert_allclose(explanation.verify().agreement, same.mean(axis=(1, 2)))
    assert explanation.output_names[explanation.target[0]] == "box 1:3, 2:5"
    assert "box 1:3, 2:5" in repr(explanation)
    assert list(explanation.summary()) == ["box 1:3, 2:5"]
    assert set(explanation.to_frame()["target"]) == {"box 1:3, 2:5"}


def test_as_few_as_confirm_a_region(fitted) -> None:
    explanation = fitted.explain(IMAGES[:4], target=BOX, k="auto")
    assert (explanation.verify().agreement == 1.0).all()


def test_what_is_expected_of_a_region_is_the_label_of_most_pixels(make) -> None:
    explainer = make().fit(IMAGES)
    said = Shifted()(IMAGES[:8])
    explanation = explainer.explain(IMAGES[:8], target=BOX, predicted=said)
    share = said[:, 1:3, 2:5].mean(axis=(1, 2))
    assert list(explanation.value) == (share > 0.5).tolist()
    flat = explainer.explain(IMAGES[:8], target=BOX, predicted=said.reshape(8, -1))
    np.testing.assert_array_equal(flat.scores, explanation.scores)
    for wrong in (said[:7], said[:, :4], said.transpose(0, 2, 1)):
        with pytest.raises(InputError, match=r"what the model predicts for X, 8 masks of 5 x 6 pixels"):
            explainer.explain(IMAGES[:8], target=BOX, predicted=wrong)


def test_pixels_of_an_explanation(make) -> None:
    explanation = make().fit(IMAGES).explain(IMAGES[:3], target=(2, 4))
    assert explanation.pixels.shape == (3, 3, 2)
    np.testing.assert_array_equal(explanation.pixels @ [WIDTH, 1], explanation.selected)
    black = np.zeros((1, 3, HEIGHT, WIDTH), dtype=np.uint8)
    black[0, 2, 1, 1] = 7  # one pixel can be chosen
    one = make().fit(IMAGES).explain(black, target=(2, 4))
    assert one.pixels.tolist() == [[[1, 1], [-1, -1], [-1, -1]]]
    grouped = make(groups=Patches(2)).fit(IMAGES).explain(IMAGES[:1], target=(0, 0))
    with pytest.raises(InputError, match=r"units of groups=Patches\(size=2\), not pixels"):
        _ = grouped.pixels


def test_images_as_tensors_are_given_to_the_model_as_tensors(make) -> None:
    def model(images):
        assert isinstance(images, torch.Tensor)
        assert images.dtype == torch.float32
        return images[:, 0].roll(2, dims=2)

    images = torch.from_numpy(IMAGES[:, :1] / 255).float()
    explanation = make(model).fit(images).explain(images[:2], target=(2, 4))
    assert explanation.source.outputs.kind == "probability"
    assert explanation.verify().difference.max() <= 1


# --- targets ------------------------------------------------------------------------------------------------


def test_only_the_targets_of_fit_can_be_explained(make) -> None:
    explainer = make().fit(IMAGES, targets=[BOX, (4, 4)])
    assert explainer.targets_ == [8, 9, 10, 14, 15, 16, 28]
    explainer.explain(IMAGES[:2], target=np.s_[1:3, 3:5])
    with pytest.raises(InputError, match=r"'\(1, 1\)' was not among the targets given to fit"):
        explainer.explain(IMAGES[:2], target=np.s_[1:3, 1:4])
    with pytest.raises(InputError, match=r"target is missing"):
        explainer.explain(IMAGES[:2])
    alone = make().fit(IMAGES, targets=(2, 3))
    assert alone.explain(IMAGES[:2]).target.tolist() == [15, 15]


def test_wrong_targets_come_to_light_early(make) -> None:
    model = Shifted()
    with pytest.raises(InputError, match="outside the image, which has 5 rows and 6 columns"):
        make(model).fit(IMAGES, targets=[(5, 0)])
    assert model.n_rows <= 16
    explainer = make().fit(IMAGES)
    with pytest.raises(InputError, match=r"outside the image"):
        explainer.explain(IMAGES[:2], target=(0, 6))
    with pytest.raises(InputError, match=r"per image \(2\), got 3"):
        explainer.explain(IMAGES[:2], target=[(0, 1)] * 3)


# --- models and images that do not fit ----------------------------------------------------------------------


def test_masks_of_another_size_are_refused_in_fit(make) -> None:
    with pytest.raises(BlackBoxError, match=r"masks of 2 x 3 pixels .*for images of 5 x 6.*Resize"):
        make(lambda images: images[:, 0, ::2, ::2][:, :2]).fit(IMAGES)
    with pytest.raises(BlackBoxError, match="argmax"):
        make(lambda images: images).fit(IMAGES)


def test_images_unlike_those_of_fit_are_refused(make) -> None:
    explainer = make().fit(IMAGES)
    with pytest.raises(InputError, match="by 255"):
        explainer.explain(IMAGES[:2] / 255, target=(0, 0))
    with pytest.raises(InputError, match="channels"):
        explainer.explain(IMAGES[:2, :1], target=(0, 0))
    with pytest.raises(InputError, match=r"k must be from 1 to 30"):
        explainer.explain(IMAGES[:2], target=(0, 0), k=31)


def test_constant_pixels_are_usual_and_constant_masks_are_not(make) -> None:
    framed = IMAGES.copy()
    framed[:, :, 0] = 0

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(lambda images: images[:, 0] > 128).fit(framed)
    with pytest.warns(ConstantOutputWarning, match="no pixel of the masks ever changed in 40 predictions"):
        make(lambda images: images[:, 0] < 0).fit(framed)
    with pytest.warns((ConstantFeatureWarning, ConstantOutputWarning)) as reported:
        make().fit(np.repeat(IMAGES[:1], 20, axis=0))
    assert {warning.category for warning in reported} == {ConstantFeatureWarning, ConstantOutputWarning}


@pytest.mark.parametrize(
    "removal", ["blur", "mean", "marginal", "conditional", lambda x, keep, rng: np.where(keep, x, 9)]
)
def test_removals_on_images(make, removal) -> None:
    for groups in (None, Superpixels(6)):
        explanation = make(removal=removal, groups=groups, k=2).fit(IMAGES).explain(IMAGES[:3], target=(2, 4))
        assert (explanation.n_selected >= 1).all()
        assert 0 <= explanation.verify(n_draws=2).fidelity <= 1
        assert 0 <= explanation.verify(removal="blur").fidelity <= 1


def test_two_settings_and_l2x_say_that_they_know_no_images() -> None:
    for kind in (Lime, KernelShap):
        with pytest.raises(InputError, match="knows no images"):
            kind(Shifted(), protocol="package").fit(IMAGES)
    with pytest.raises(InputError, match="L2X is for tables"):
        L2X(Shifted(), k=2).fit(IMAGES)


# --- planted truth ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BY_REMOVAL)
def test_the_planted_pixel_is_found(kind) -> None:
    explainer_class, settings = BASELINES[kind]
    bright = np.where(IMAGES > 128, 255, 1).astype(np.uint8)
    bright[:, 1, 2, 2] = 255  # so that removal changes the answer
    explainer = explainer_class(Shifted(), k=1, random_state=0, **{**settings, "n_samples": 400}).fit(bright)
    explanation = explainer.explain(bright[:5], target=(2, 4))
    assert explanation.pixels.tolist() == [[[2, 2]]] * 5
    assert explanation.verify().fidelity == 1.0
    patch = explainer_class(Shifted(), k=1, groups=Patches(2), random_state=0, **settings).fit(bright)
    found = patch.explain(bright[:5], target=(2, 4))
    assert [found.feature_names[unit] for unit in found.selected[:, 0]] == ["patch (1, 1)"] * 5


def test_kernel_shap_finds_the_superpixel_of_the_planted_pixel() -> None:
    bright = np.where(IMAGES > 128, 255, 1).astype(np.uint8)
    bright[:, 1, 2, 2] = 255
    explainer = KernelShap(Shifted(), k=1, groups=Superpixels(6), n_samples=100, removal="zero", random_state=0).fit(
        bright
    )
    explanation = explainer.explain(bright[:8], target=(2, 4))
    units = explanation.source.groups.unit_of_features(8)
    assert explanation.selected[:, 0].tolist() == units[:, 2 * WIDTH + 2].tolist()
    assert len({tuple(row) for row in units.tolist()}) > 1


def test_nearest_pixels_are_the_nearest() -> None:
    explainer = NearestPixels(Shifted(), k=12, random_state=0).fit(IMAGES)
    at = (3, 1)
    explanation = explainer.explain(IMAGES[:6], target=at)
    rows, columns = np.divmod(np.arange(HEIGHT * WIDTH), WIDTH)
    distance = np.hypot(rows - at[0], columns - at[1])
    for selected in explanation.selected:
        assert (np.diff(distance[selected]) >= 0).all()
        assert distance[selected].max() <= np.delete(distance, selected).min()
    assert (explanation.selected[:, 0] == at[0] * WIDTH + at[1]).all()
    assert len({tuple(row) for row in explanation.selected}) > 1  # ties are broken at random
    assert explainer.n_explain_queries_ == 6
    assert np.array_equal(explainer.explain(IMAGES[:6], target=at, query=False).selected, explanation.selected)
    assert explainer.n_explain_queries_ == 6


def test_nearest_to_a_region_and_among_groups() -> None:
    explainer = NearestPixels(Shifted(), k=7, random_state=0).fit(IMAGES)
    inside = set(np.flatnonzero(explainer.explain(IMAGES[:1], target=BOX, k=6).mask[0]))
    assert inside == {8, 9, 10, 14, 15, 16}
    for spec in (Patches(2), Superpixels(8)):
        grouped = NearestPixels(Shifted(), k=2, groups=spec, random_state=0).fit(IMAGES)
        explanation = grouped.explain(IMAGES[:4], target=(4, 5))
        units = explanation.source.groups.unit_of_features(4)
        assert (explanation.selected[:, 0] == units[:, -1]).all()
        rows, columns = np.divmod(np.arange(30), WIDTH)
        distance = np.hypot(rows - 4, columns - 5)
        for row in range(4):
            for unit in set(units[row].tolist()):
                assert explanation.scores[row, unit] == pytest.approx(-distance[units[row] == unit].min())


def test_nearest_pixels_are_for_images() -> None:
    with pytest.raises(InputError, match="NearestPixels is for images"):
        NearestPixels(lambda X: X > 0, k=1).fit(np.random.default_rng(0).normal(size=(20, 3)))
    with pytest.raises(InputError, match="NearestPixels is for images"):
        NearestPixels(lambda images: images.mean(axis=(2, 3)) > 128, k=1).fit(IMAGES)


def test_numbers_and_classes_as_masks(make) -> None:
    numbers = make(lambda images: np.roll(images[:, 1], 2, axis=2) * 3.5 - 7).fit(IMAGES)
    reported = np.roll(IMAGES[:3, 1], 2, axis=2) * 3.5 - 7
    explanation = numbers.explain(IMAGES[:3], target=[(2, 4), BOX, BOX], predicted=reported)
    expected = [reported[0, 2, 4], reported[1, 1:3, 2:5].mean(), reported[2, 1:3, 2:5].mean()]
    np.testing.assert_allclose(explanation.value.astype(float), expected, rtol=1e-4, atol=1e-3)
    words = np.array(["sky", "grass", "horse"])
    classes = make(lambda images: words[images[:, 1] // 86]).fit(IMAGES)
    explanation = classes.explain(IMAGES[:3], target=(2, 4), predicted=words[IMAGES[:3, 1] // 86])
    assert list(explanation.value) == words[IMAGES[:3, 1, 2, 4] // 86].tolist()


def test_queries_are_counted(make) -> None:
    model = Shifted()
    explainer = make(BlackBox(model)).fit(IMAGES)
    before = model.n_rows
    explainer.explain(IMAGES[:2], target=(1, 1))
    assert explainer.n_explain_queries_ == model.n_rows - before
    assert (explainer.n_explain_queries_ > 2) == make.asks  # the others only for what the model predicts


def test_leakage_cannot_be_told_for_superpixels() -> None:
    segments = Random(Shifted(), k=1, groups=Superpixels(6), random_state=0).fit(IMAGES)
    with pytest.raises(InputError, match="leakage cannot be measured for superpixels"):
        leakage(segments.explain(IMAGES, target=BOX))


@pytest.mark.slow
def test_leakage_of_a_region() -> None:
    random = Random(Shifted(), k=3, random_state=0).fit(IMAGES)
    more = np.random.default_rng(1).integers(1, 256, size=(60, 3, HEIGHT, WIDTH)).astype(np.uint8)
    found = leakage(random.explain(more, target=BOX), random_state=0)
    assert found.n_rows == 60
    assert not found.leaks


@pytest.mark.usefixtures("forked_workers")
def test_superpixels_are_explained_the_same_in_other_processes() -> None:
    settings = {"k": 2, "groups": Superpixels(6), "n_samples": 60, "random_state": 3}
    one, two = (ShapleySampling(Shifted(), n_jobs=n, **settings).fit(IMAGES) for n in (1, 2))
    np.testing.assert_array_equal(
        one.explain(IMAGES[:3], target=BOX).scores, two.explain(IMAGES[:3], target=BOX).scores
    )
