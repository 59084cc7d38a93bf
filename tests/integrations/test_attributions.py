"""Bridges to shap, captum and Quantus, against the real packages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from quick import TAUGHT, quick_fit
from sointer import Patches, SOInter
from sointer.errors import InputError
from sointer.integrations.attributions import SOInterAttribution, explain_func

pytestmark = [
    pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

NAMES = ["rain", "wind", "sun", "kind of day", "heat"]


def frame(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 5)), columns=NAMES, index=[f"day {i}" for i in range(n)])
    X["kind of day"] = rng.choice(["work", "free"], n)
    return X


def model(X: pd.DataFrame) -> np.ndarray:
    return np.column_stack([X["rain"] > 0, X["sun"] + X["heat"] > 0])


@pytest.fixture(scope="module")
def of_frames() -> SOInter:
    return quick_fit(model, frame(300, 0), **TAUGHT, output_names=["wet", "warm"])


@pytest.fixture(scope="module")
def of_tensors() -> SOInter:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(300, 4, generator=generator)
    return quick_fit(network, X, **TAUGHT | {"k": 1})


def network(X: torch.Tensor) -> torch.Tensor:
    return torch.stack([X[:, 0] > 0, X[:, 1] > 0, X[:, 2] > 0], dim=1)


def segmenter(images: Any) -> Any:
    return (images.mean(1) > 0.5) + 0


@pytest.fixture(scope="module")
def of_images() -> SOInter:
    images = torch.rand(30, 3, 6, 8, generator=torch.Generator().manual_seed(0))
    return quick_fit(segmenter, images, k=4)


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    from matplotlib import pyplot

    pyplot.close("all")


# --- pandas ------------------------------------------------------------------------------------------------


def test_rows_keep_their_labels(of_frames: SOInter) -> None:
    X = frame(20, 1)[5:9]
    table = of_frames.explain(X, "wet").to_frame()
    assert table.index.tolist() == [label for label in X.index for _ in range(2)]
    assert table["sample"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    joined = table.join(X)
    first = joined[(joined["sample"] == 2) & (joined["feature"] == "rain")]
    assert first["rain"].tolist() == [X["rain"].iloc[2]]
    plain = of_frames.explain(X.reset_index(drop=True), "wet").to_frame()
    assert plain.index.tolist() == list(range(8))


# --- shap --------------------------------------------------------------------------------------------------


def test_shap_gets_effects_base_values_data_and_names(of_frames: SOInter) -> None:
    shap = pytest.importorskip("shap")
    X = frame(12, 1)
    explanation = of_frames.explain(X, "warm")
    converted = explanation.to_shap()
    assert isinstance(converted, shap.Explanation)
    is_warm, base = explanation.value.astype(bool), explanation.base_value
    assert base is not None
    assert 0 < is_warm.sum() < 12
    np.testing.assert_allclose(converted.values, explanation.effects * np.where(is_warm, 1, -1)[:, None], rtol=1e-6)
    np.testing.assert_allclose(converted.base_values, np.where(is_warm, base, 1 - base))
    assert (converted.values < 0).any(), "effects have signs"
    reached = converted.base_values + converted.values.sum(axis=1)
    assert ((reached > 0.5) == is_warm).mean() > 0.7, "effects lead to the probability of the second label, in all rows"
    assert converted.feature_names == NAMES
    assert converted.data[:, 3].tolist() == X["kind of day"].tolist()
    only = explanation.to_shap(selected_only=True).values
    np.testing.assert_array_equal(only != 0, explanation.mask)


def test_groups_share_their_effect_so_that_the_sum_stays() -> None:
    groups = {"weather": ["rain", "sun"]}
    explanation = quick_fit(model, frame(300, 0), k=1, groups=groups).explain(frame(9, 1), 0)
    pytest.importorskip("shap")
    converted = explanation.to_shap()
    assert explanation.effects is not None
    signs = np.where(explanation.value.astype(bool), 1, -1)
    np.testing.assert_allclose(converted.values.sum(axis=1), signs * explanation.effects.sum(axis=1), atol=1e-6)
    rain, sun = converted.values[:, NAMES.index("rain")], converted.values[:, NAMES.index("sun")]
    np.testing.assert_allclose(rain, sun)
    weather = explanation.effects[:, explanation.feature_names.index("weather")]
    np.testing.assert_allclose(rain + sun, signs * weather, rtol=1e-6)


def test_the_waterfall_of_shap_begins_at_the_base_value(of_frames: SOInter) -> None:
    shap = pytest.importorskip("shap")
    converted = of_frames.explain(frame(12, 1), "warm").to_shap()
    ax = shap.plots.waterfall(converted[0], show=False)
    words = " ".join(label.get_text() for other in ax.figure.axes for label in other.get_xticklabels())
    reached = converted.base_values[0] + converted.values[0].sum()
    assert f"{converted.base_values[0]:.3f}".rstrip("0") in words
    assert f"{reached:.3f}".rstrip("0") in words


def test_of_images_shap_gets_signed_evidence_from_zero(of_images: SOInter) -> None:
    pytest.importorskip("shap")
    images = torch.rand(2, 3, 6, 8, generator=torch.Generator().manual_seed(1))
    explanation = of_images.explain(images, (2, 3))
    assert explanation.effects is not None
    converted = explanation.to_shap()
    np.testing.assert_allclose(converted.values[..., 0].reshape(2, -1), explanation.effects, rtol=1e-6)
    np.testing.assert_array_equal(converted.base_values, np.zeros(2))


@pytest.mark.parametrize("kind", ["bar", "beeswarm", "heatmap", "waterfall"])
def test_shap_draws_tables(of_frames: SOInter, kind: str) -> None:
    shap = pytest.importorskip("shap")
    converted = of_frames.explain(frame(12, 1), "warm").to_shap()
    draw = getattr(shap.plots, kind)
    ax = draw(converted[0] if kind == "waterfall" else converted, show=False)
    words = " ".join(text.get_text() for text in [*ax.texts, *ax.get_yticklabels(), *ax.get_xticklabels()])
    assert "sun" in words
    assert "heat" in words


def test_shap_draws_images(of_images: SOInter) -> None:
    shap = pytest.importorskip("shap")
    from matplotlib import pyplot

    images = torch.rand(2, 3, 6, 8, generator=torch.Generator().manual_seed(1))
    converted = of_images.explain(images, (2, 3)).to_shap()
    assert converted.values.shape == converted.data.shape == (2, 6, 8, 3)
    np.testing.assert_allclose(converted.data, images.permute(0, 2, 3, 1))
    assert (converted.values[..., 0] == converted.values[..., 2]).all(), "a pixel's score is that of all its channels"
    shap.plots.image(converted, show=False)
    assert sum(len(ax.images) for ax in pyplot.gcf().axes) >= 4


# --- captum ------------------------------------------------------------------------------------------------


def test_attribute_gives_the_inputs_shape_and_finds_the_feature(of_tensors: SOInter) -> None:
    method = SOInterAttribution(of_tensors)
    X = torch.randn(40, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_(True)
    for target in (1, (1,), torch.tensor(1), [1] * 40, torch.ones(40, dtype=torch.long), [(1,)] * 40):
        result = method.attribute(X, target=target)
        assert result.shape == X.shape
        assert result.dtype == torch.float64
        assert (result.abs().argmax(dim=1) == 1).float().mean() > 0.9
    explanation = of_tensors.explain(X.detach(), 1)
    np.testing.assert_allclose(method.attribute(X, target=1).numpy(), explanation.effects, rtol=1e-6)
    other = method.attribute(X, target=torch.arange(40) % 3, selected_only=True)
    assert ((other != 0).sum(dim=1) == 1).all()
    assert (other.abs().argmax(dim=1) == torch.arange(40) % 3).float().mean() > 0.9
    (in_a_tuple,) = method.attribute((X,), target=1)
    assert torch.equal(in_a_tuple, method.attribute(X, target=1))
    assert method.attribute(X.view(40, 1, 4), target=1).shape == (40, 1, 4)
    assert not method.has_convergence_delta()
    with pytest.raises(InputError, match="one tensor, or a tuple of one, got 2 of them"):
        method.attribute((X, X), target=1)
    with pytest.raises(InputError, match="got ndarray"):
        method.attribute(X.detach().numpy(), target=1)


def test_captum_judges_it(of_tensors: SOInter) -> None:
    metrics = pytest.importorskip("captum.metrics")
    method = SOInterAttribution(of_tensors)
    X = torch.randn(10, 4, generator=torch.Generator().manual_seed(1))

    def forward(x: torch.Tensor) -> torch.Tensor:
        return x[:, :3]  # what the tags are cut from

    def perturb(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        noise = 0.1 * torch.tensor([0.0, 1.0, 0.0, 0.0]).expand_as(x)
        return noise, x - noise

    def infidelity(explained: int) -> torch.Tensor:
        scores = method.attribute(X, target=explained)
        shares = scores / scores.abs().sum(dim=1, keepdim=True)
        return metrics.infidelity(forward, perturb, X, shares, target=1)

    assert (infidelity(1) < infidelity(0)).all(), "the right target's explanation says what moves it"
    moved = metrics.sensitivity_max(method.attribute, X, target=1, perturb_radius=0.01, n_perturb_samples=2)
    assert moved.shape == (10,)
    assert (moved < 0.5).all(), "a hundredth of a deviation hardly changes an explanation"


def test_pixels_as_captum_names_them(of_images: SOInter) -> None:
    visualization = pytest.importorskip("captum.attr").visualization
    images = torch.rand(3, 3, 6, 8, generator=torch.Generator().manual_seed(1))
    method = SOInterAttribution(of_images)
    for target in ((2, 3), [(2, 3), (4, 5), (0, 0)], torch.tensor([[2, 3], [4, 5], [0, 0]])):
        assert method.attribute(images, target=target).shape == images.shape
    one = method.attribute(images, target=(2, 3), selected_only=True)
    np.testing.assert_array_equal(one[:, 0].flatten(1) != 0, of_images.explain(images, (2, 3)).mask)
    _, ax = visualization.visualize_image_attr(
        one[0].permute(1, 2, 0).numpy(), images[0].permute(1, 2, 0).numpy(), sign="all", use_pyplot=False
    )
    assert len(ax.images) >= 1


def test_groups_give_every_pixel_their_score() -> None:
    images = torch.rand(30, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    explainer = quick_fit(segmenter, images, groups=Patches(3))
    result = SOInterAttribution(explainer).attribute(images[:2], target=(0, 0), selected_only=True)
    blocks = result[:, 0].unfold(1, 3, 3).unfold(2, 3, 3).flatten(3)
    assert (blocks == blocks[..., :1]).all()
    assert ((blocks[..., 0] != 0).flatten(1).sum(dim=1) <= 2).all()


# --- Quantus -----------------------------------------------------------------------------------------------


class Linear(torch.nn.Module):
    """What the tags are cut from, for Quantus to ask."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :3]


def test_quantus_judges_it(of_tensors: SOInter) -> None:
    quantus = pytest.importorskip("quantus")
    X = np.random.default_rng(1).normal(size=(12, 4)).astype(np.float32)
    Y = np.arange(12) % 3
    function = explain_func(of_tensors)
    attributions = function(Linear(), X, Y)
    np.testing.assert_allclose(attributions, of_tensors.explain(X, Y).effects, rtol=1e-6)
    sparse = quantus.Sparseness(disable_warnings=True, abs=True)
    scores = sparse(
        model=Linear(), x_batch=X, y_batch=Y, a_batch=None, explain_func=function, explain_func_kwargs={"method": "x"}
    )
    assert len(scores) == 12
    selected = explain_func(of_tensors, selected_only=True)
    only = sparse(model=Linear(), x_batch=X, y_batch=Y, a_batch=None, explain_func=selected)
    assert np.mean(only) == pytest.approx(0.75, abs=1e-4), "one of four features: the sparsest there is"
    assert (np.array(only) >= np.array(scores) - 1e-6).all()


def test_quantus_shapes(of_tensors: SOInter, of_images: SOInter) -> None:
    assert explain_func(of_tensors)(None, np.zeros((2, 1, 4)), np.array([0, 1])).shape == (2, 1, 4)
    images = np.random.default_rng(0).random((2, 3, 6, 8))
    assert explain_func(of_images, k=2)(None, images, np.array([[2, 3], [1, 1]])).shape == images.shape
