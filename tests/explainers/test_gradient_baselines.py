"""Gradient x input, expected gradients, RISE and occlusion: definitions, planted truth, queries, and what they refuse.

What all baselines of images share is tested in test_image_baselines.py.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from sointer import BlackBox, Patches, Superpixels
from sointer._support.torch_state import seeded
from sointer.blackbox.adapters import as_black_box
from sointer.errors import InputError
from sointer.explainers.baselines.base import NearestPixels, Random
from sointer.explainers.baselines.by_swaps import MIN_DRAWS, MinimalRegion, Occlusion, Rise, coefficients, windows
from sointer.explainers.baselines.gradients import ExpectedGradients, GradientTimesInput
from sointer.metrics.ground_truth import r_precision
from sointer.metrics.swaps import swap_scores
from sointer.zoo.planted_segmenters import PLANTED_SEGMENTERS, ConvolutionalSegmenter
from sointer.zoo.segmenter import random_scenes
from sointer.zoo.tetrominoes import TetrominoClassifier, tetrominoes

pytestmark = [
    pytest.mark.usefixtures("global_random_state_is_left_alone"),
    pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning"),
]

SCENES = random_scenes(200, size=16, random_state=5).images
TRAIN, X = SCENES[:150], SCENES[150:]
TARGETS = np.random.default_rng(0).integers(16, size=(50, 2))
WHITE_BOX = {"gradient x input": (GradientTimesInput, {}), "expected": (ExpectedGradients, {"n_samples": 8})}
BY_SWAPS = {"Rise": (Rise, {"n_samples": 200}), "Occlusion": (Occlusion, {"n_samples": 200})}
REGION = {"MinimalRegion": (MinimalRegion, {"n_samples": 200})}


class Linear(torch.nn.Module):
    """Two maps that are fixed weights times the image; the weights are known."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.weight = torch.nn.Parameter(torch.from_numpy(rng.normal(size=(shape[1] * shape[2], *shape)).astype("f4")))
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, images):
        size = images.shape[2:]
        return torch.einsum("nchw,ochw->no", self.dropout(images), self.weight).reshape(-1, *size)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).normal(size=(60, 2, 4, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def linear():
    return Linear((2, 4, 5))


# --- gradients -----------------------------------------------------------------------------------------------------


def test_gradient_times_input_of_a_linear_model_is_its_terms(linear, images):
    explainer = GradientTimesInput(linear, k=3).fit(images)
    weight = linear.weight.detach().numpy()
    targets = [(1, 2), (3, 4), (0, 0)]
    explanation = explainer.explain(images[:3], target=targets)
    slow = [
        np.abs((image * weight[r * 5 + c]).sum(axis=0)).ravel() for image, (r, c) in zip(images, targets, strict=False)
    ]
    np.testing.assert_allclose(explanation.scores, slow, rtol=1e-4, atol=1e-5)
    region = explainer.explain(images[:2], target=np.s_[0:2, 1:3])
    inside = weight[[1, 2, 6, 7]].mean(axis=0)
    np.testing.assert_allclose(
        region.scores, np.abs((images[:2] * inside).sum(axis=1)).reshape(2, -1), rtol=1e-4, atol=1e-5
    )
    patches = GradientTimesInput(linear, k=1, groups=Patches(2)).fit(images).explain(images[:1], target=(1, 2))
    terms = (images[0] * weight[7]).sum(axis=0)
    assert patches.scores[0, 0] == pytest.approx(abs(terms[:2, :2].sum()), rel=1e-4)


def test_expected_gradients_of_a_linear_model_sum_to_the_difference(linear, images):
    explainer = ExpectedGradients(linear, k=3, n_samples=4000, random_state=0).fit(images)
    explanation = explainer.explain(images[:3], target=(1, 2))
    weight = linear.weight.detach().numpy()[7]
    slow = np.abs(((images[:3] - images.mean(axis=0)) * weight).sum(axis=1)).reshape(3, -1)
    np.testing.assert_allclose(explanation.scores, slow, atol=0.15)
    assert explainer.n_explain_queries_ == 3


@pytest.mark.parametrize("kind", list(WHITE_BOX))
def test_a_module_is_left_as_it_was_and_tables_work(kind):
    explainer_class, settings = WHITE_BOX[kind]
    with seeded(0):
        layers = torch.nn.Linear(6, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2)
    module = torch.nn.Sequential(*layers).requires_grad_(False)
    module.train()
    table = np.random.default_rng(0).normal(size=(40, 6))
    table[:, 5] = 0.0
    explainer = explainer_class(module, k=2, random_state=0, **settings).fit(table)
    first, second = (explainer.explain(table[:5], target=[0, 1, 0, 1, 0]) for _ in range(2))
    assert module.training
    assert module[1].training
    assert np.array_equal(first.scores, second.scores)  # dropout is off
    assert (first.scores[:, 5] == 0).all()
    assert (first.scores[:, :5] > 0).all()
    assert all(weight.grad is None for weight in module.parameters())


@pytest.mark.parametrize("kind", list(WHITE_BOX))
def test_a_sample_is_explained_the_same_in_any_company(kind):
    explainer_class, settings = WHITE_BOX[kind]
    module = ConvolutionalSegmenter(SCENES).as_module()
    explainer = explainer_class(as_black_box(module), k=5, random_state=0, **settings).fit(TRAIN)
    whole = explainer.explain(X[:6], target=TARGETS[:6])
    order = [4, 1, 5, 0, 2, 3]
    shuffled = explainer.explain(X[order], target=TARGETS[order])
    assert np.array_equal(shuffled.scores, whole.scores[order])
    assert np.array_equal(explainer.explain(X[[3]], target=TARGETS[[3]]).selected[0], whole.selected[3])
    again = (
        clone(explainer_class(module, k=5, random_state=0, **settings)).fit(TRAIN).explain(X[:6], target=TARGETS[:6])
    )
    assert np.array_equal(again.scores, whole.scores)
    superpixels = explainer_class(module, k=2, groups=Superpixels(8), **settings).fit(TRAIN)
    assert (superpixels.explain(X[:3], target=(5, 5)).n_selected == 2).all()


@pytest.mark.parametrize("kind", list(WHITE_BOX))
def test_no_score_outside_the_receptive_field(kind):
    explainer_class, settings = WHITE_BOX[kind]
    segmenter = ConvolutionalSegmenter(SCENES, n_layers=2)
    explanation = explainer_class(segmenter.as_module(), k=5, **settings).fit(TRAIN).explain(X, target=TARGETS)
    field = segmenter.relevant(X, TARGETS).reshape(50, -1)
    assert (explanation.scores[~field] == 0).all()
    assert (explanation.scores[field] > 0).mean() > 0.9
    assert not (explanation.mask & ~field).any()


def test_only_modules_with_gradients():
    with pytest.raises(InputError, match=r"must be a torch.nn.Module, got an object of type function"):
        GradientTimesInput(lambda images: images[:, 0] > 0).fit(TRAIN)
    with pytest.raises(InputError, match=r"must be a torch.nn.Module"):
        ExpectedGradients(BlackBox(lambda images: images[:, 0] > 0)).fit(TRAIN)

    class Labels(torch.nn.Module):
        def forward(self, images):
            return (images[:, 0] > 100).long()

    with pytest.raises(InputError, match="have no gradient"):
        GradientTimesInput(Labels()).fit(TRAIN).explain(X[:1], target=(0, 0))
    with pytest.raises(InputError, match="n_samples"):
        ExpectedGradients(Labels(), n_samples=0).fit(TRAIN)


# --- by swaps ------------------------------------------------------------------------------------------------------


def test_coefficients_are_those_of_a_weighted_regression():
    rng = np.random.default_rng(0)
    keep, values, weights = rng.random((60, 7)) < 0.5, rng.random((60, 3)), rng.random((60, 3))
    found = coefficients(keep, values, weights)
    for target in range(3):
        for unit in range(7):
            line = np.polyfit(keep[:, unit].astype(float), values[:, target], 1, w=np.sqrt(weights[:, target]))
            assert found[target, unit] == pytest.approx(line[0])


@pytest.mark.parametrize("size", [(5, 6), (16, 16), (32, 20), (128, 128)])
@pytest.mark.parametrize("n_samples", [10, 100, 1000, 20000])
def test_windows_cover_all_pixels_within_the_budget(size, n_samples):
    found = windows(size, n_samples)
    assert found.shape[1] == size[0] * size[1]
    assert found.any(axis=0).all()
    assert len(found) <= n_samples
    assert len(found) * MIN_DRAWS <= max(n_samples, 2 * MIN_DRAWS)


@pytest.mark.parametrize("kind", [*BY_SWAPS, *REGION])
def test_queries_are_bounded(kind):
    explainer_class, settings = (BY_SWAPS | REGION)[kind]
    explainer = explainer_class(PLANTED_SEGMENTERS["window"](SCENES), k=3, random_state=0, **settings).fit(TRAIN)
    explainer.explain(X[:4], target=(5, 5))
    assert 4 < explainer.n_explain_queries_ <= 4 * 201
    before = explainer.n_explain_queries_
    explainer.explain(np.repeat(X[:1], 3, axis=0), target=TARGETS[:3])
    used = explainer.n_explain_queries_ - before
    assert used <= (201 if kind == "Rise" else 601)  # mixtures of RISE serve all targets of a sample
    assert explainer.removal_.name == "marginal"


@pytest.mark.slow
def test_planted_truth_is_found_better_than_by_controls():
    found = {}
    for name, segmenter_class in PLANTED_SEGMENTERS.items():
        segmenter = segmenter_class(SCENES)
        truth = segmenter.relevant(X, TARGETS)
        methods = {
            "gradient x input": GradientTimesInput(segmenter.as_module()),
            "expected": ExpectedGradients(segmenter.as_module(), random_state=0),
            "rise": Rise(segmenter, n_samples=500, random_state=0),
            "occlusion": Occlusion(segmenter, n_samples=500, random_state=0),
            "region": MinimalRegion(segmenter, n_samples=500, random_state=0),
            "nearest": NearestPixels(segmenter, random_state=0),
            "random": Random(segmenter, random_state=0),
        }
        for method, explainer in methods.items():
            scores = explainer.fit(TRAIN).explain(X, target=TARGETS, k=5).scores.reshape(-1, 16, 16)
            found[name, method] = r_precision(scores, truth)
    for name in PLANTED_SEGMENTERS:
        assert found[name, "expected"] > 0.75, found
        assert found[name, "rise"] > found[name, "random"] + 0.3, found
        assert found[name, "occlusion"] > found[name, "random"] + 0.2, found
        assert found[name, "random"] < 0.2, found
        assert found[name, "region"] >= found[name, "nearest"] - 0.02, found
    assert found["flood", "region"] > found["flood", "nearest"] + 0.1, found
    assert found["window", "gradient x input"] > 0.98
    assert found["window", "nearest"] > 0.9
    assert found["offset", "rise"] > found["offset", "nearest"]
    assert found["flood", "gradient x input"] < 0.6  # the gradient sees only the darkest pixel of the path
    assert found["flood", "expected"] > found["flood", "gradient x input"] + 0.2


@pytest.mark.parametrize("kind", list(BY_SWAPS))
def test_insert_and_delete_agree_with_the_ranking(kind):
    explainer_class, settings = BY_SWAPS[kind]
    segmenter = PLANTED_SEGMENTERS["offset"](SCENES)
    pool = random_scenes(100, size=16, random_state=9).images
    scores = explainer_class(segmenter, random_state=0, **settings).fit(TRAIN).explain(X, target=TARGETS, k=5).scores
    own = swap_scores(segmenter, X, TARGETS, scores, pool, ks=[18], fills=[])
    random = swap_scores(segmenter, X, TARGETS, np.random.default_rng(0).random(scores.shape), pool, ks=[18], fills=[])
    assert own.mean > random.mean + 0.3


def test_the_region_suffices_also_in_images_that_it_has_not_seen():
    segmenter = PLANTED_SEGMENTERS["majority"](SCENES)
    scores = MinimalRegion(segmenter, random_state=0).fit(TRAIN).explain(X, target=TARGETS, k=5).scores
    sizes = (scores > 1).sum(axis=1)
    assert 2 <= np.median(sizes) < 40
    pool = random_scenes(100, size=16, random_state=9).images
    region = np.where(scores > 1, 1.0, 0.0)
    inserts = []
    for size in np.unique(sizes).tolist():
        own = sizes == size
        inserts += (
            swap_scores(segmenter, X[own], TARGETS[own], region[own], pool, ks=[max(1, size)], fills=[], n_pairs=5)
            .insert_rows[:, 0]
            .tolist()
        )
    assert np.mean(inserts) > 0.75


def test_a_region_of_numbers_and_of_no_counterexample():
    numbers = MinimalRegion(lambda images: np.roll(images[:, 0] * 2.0, 3, axis=2), k=1, random_state=0).fit(TRAIN)
    assert numbers.explain(X[:10], target=(4, 7)).pixels.tolist() == [[[4, 4]]] * 10
    constant = MinimalRegion(lambda images: np.ones((len(images), 16, 16), dtype=int), k=3, random_state=0).fit(TRAIN)
    assert (constant.explain(X[:2], target=(4, 7)).n_selected == 3).all()
    with pytest.raises(InputError, match="must return masks"):
        MinimalRegion(TetrominoClassifier()).fit(tetrominoes(50)[0])


@pytest.mark.parametrize("kind", list(BY_SWAPS))
def test_probabilities_numbers_and_outputs_without_a_counterexample(kind):
    explainer_class, settings = BY_SWAPS[kind]
    segmenter = PLANTED_SEGMENTERS["window"](SCENES, output_kind="probability")
    soft = explainer_class(segmenter, random_state=0, **settings).fit(TRAIN).explain(X[:20], target=TARGETS[:20], k=5)
    assert r_precision(soft.scores.reshape(-1, 16, 16), segmenter.relevant(X[:20], TARGETS[:20])) > 0.4

    def numbers(images):
        return images[:, 0] * 2.0 + 3

    far = explainer_class(numbers, random_state=0, k=1, **{**settings, "n_samples": 2000}).fit(TRAIN)
    assert (far.explain(X[:20], target=(4, 4)).scores >= 0).all()

    def half_constant(images):
        labels = PLANTED_SEGMENTERS["window"](SCENES)(images)
        labels[:, :8] = 1
        return labels

    constant = explainer_class(half_constant, random_state=0, k=4, **settings).fit(TRAIN).explain(X[:3], target=(2, 2))
    assert (constant.scores == 0).all()
    assert (constant.n_selected == 4).all()


@pytest.mark.parametrize("kind", list(BY_SWAPS))
def test_models_that_return_tables_and_tables_themselves(kind):
    explainer_class, _ = BY_SWAPS[kind]
    images, _, relevant = tetrominoes(300, "additive")
    model = TetrominoClassifier("additive", output_kind="probability")  # no single pixel changes the label
    explainer = explainer_class(model, random_state=0, n_samples=1000).fit(images[:250])
    scores = explainer.explain(images[250:], target=0, k=8).scores
    assert r_precision(scores.reshape(-1, 8, 8), relevant[250:]) > 0.4
    with pytest.raises(InputError, match=r"is for images .* got a table"):
        explainer_class(lambda table: table > 0, k=1).fit(np.random.default_rng(0).normal(size=(30, 4)))
    with pytest.raises(InputError, match="n_samples must be an int of at least 10"):
        explainer_class(TetrominoClassifier(), n_samples=3).fit(images)


def test_categories_have_no_gradient():
    frame = pd.DataFrame({"size": np.arange(30.0), "colour": pd.Categorical([1, 2, 3] * 10)})

    class Module(torch.nn.Module):
        def forward(self, rows):
            return rows * 2.0

    with pytest.raises(InputError, match="'colour' holds categories"):
        GradientTimesInput(Module(), k=1).fit(frame)
