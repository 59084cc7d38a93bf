"""Images, masks and models that cannot be explained: a clear sentence before queries are spent, or a usable result."""

from __future__ import annotations

import numpy as np
import pytest

from sointer import SOInter
from sointer.errors import BlackBoxError, BudgetWarning, ConstantOutputWarning, FewImagesWarning, InputError
from sointer.zoo.planted_segmenters import WindowSegmenter
from sointer.zoo.segmenter import random_scenes

IMAGES = random_scenes(60, size=16).images
MODEL = WindowSegmenter(IMAGES)
WHOLE = {np.ascontiguousarray(image).tobytes() for image in (*IMAGES, *IMAGES[..., ::-1])}


class Counted:
    def __init__(self, model=MODEL) -> None:
        self.model, self.n = model, 0

    def __call__(self, images: np.ndarray) -> np.ndarray:
        self.n += len(images)
        return self.model(images)


def fit(images, model=MODEL, **settings) -> SOInter:
    return SOInter(model, random_state=0, verbose=False, **{"query_budget": 300, **settings}).fit(images)


def with_value(value: float) -> np.ndarray:
    images = IMAGES.astype(float)
    images[3, 0, 2, 1] = value
    return images


def with_mixed_ranges() -> np.ndarray:
    images = IMAGES.astype(float)
    images[::2] /= 255
    return images


def of_different_sizes() -> np.ndarray:
    images = np.empty(2, dtype=object)
    images[0], images[1] = IMAGES[0], IMAGES[1, :, :12]
    return images


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (list(of_different_sizes()), r"2 images of 2 different shapes, such as \(3, 12, 16\) and .* Resize or crop"),
        (of_different_sizes(), "2 images of 2 different shapes"),
        (with_value(np.nan), r"1 NaN or infinite values, in rows 3 and pixels '\(2, 1\)'; .* Replace them"),
        (with_value(-np.inf), "1 infinite"),
        (with_mixed_ranges(), r"30 images with values from 0 to 1 \(such as number 0\) beside 30 .* Divide the latter"),
    ],
)
def test_bad_images_are_refused_before_the_first_query(images, message: str) -> None:
    model = Counted()
    with pytest.raises(InputError, match=message):
        fit(images, model)
    assert model.n == 0


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (lambda images: MODEL(images)[:, :8, :8], BlackBoxError, "masks of 8 x 8 pixels .* Resize the masks"),
        (lambda images: 8.5 * MODEL(images) - 4.2, InputError, "returned numbers for images, .*sigmoid of logits"),
    ],
)
def test_bad_masks_are_refused_after_the_first_few_queries(model, error, message: str) -> None:
    counted = Counted(model)
    with pytest.raises(error, match=message):
        fit(IMAGES, counted)
    assert counted.n <= 16


def whole_only(images: np.ndarray) -> np.ndarray:
    if any(np.ascontiguousarray(image).tobytes() not in WHOLE for image in np.asarray(images, dtype=np.uint8)):
        raise ValueError("not a natural image")
    return MODEL(images)


def test_a_model_that_fails_on_mixtures_is_found_out_early() -> None:
    counted = Counted(whole_only)
    with pytest.raises(BlackBoxError, match=r"not a natural image.*mixtures of two images.*return the usual mask"):
        fit(IMAGES, counted, query_budget=10_000)
    assert counted.n <= 64


def test_few_images_give_a_usable_explainer_that_says_so() -> None:
    with pytest.warns(FewImagesWarning, match="fit has 12 images to learn from, expected at least 20"):
        explainer = fit(IMAGES[:12])
    explanation = explainer.explain(IMAGES[:4], target=(5, 9), k=5)
    assert np.isfinite(explanation.scores).all()


def test_a_budget_below_the_number_of_images_gives_a_usable_explainer_and_is_kept() -> None:
    counted = Counted()
    with pytest.warns(BudgetWarning):
        explainer = fit(IMAGES, counted, query_budget=30)
    assert counted.n == explainer.n_queries_ <= 30
    assert explainer.explain(IMAGES[:4], target=(5, 9), k=5).selected.shape == (4, 5)


def test_a_mask_that_never_changes_is_said_to_be_decided_by_nothing() -> None:
    with pytest.warns(ConstantOutputWarning, match="no pixel of the masks ever changed"):
        explainer = fit(IMAGES, lambda images: np.ones((len(images), 16, 16), dtype=int))
    with pytest.warns(UserWarning, match="no image in fit has another label there"):
        explanation = explainer.explain(IMAGES[:2], target=(5, 9))
    assert explanation.n_opposite.tolist() == [0, 0]
    assert explanation.n_selected.tolist() == [0, 0]
