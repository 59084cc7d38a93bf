"""One pixel of a segmented horse, on real images: what the selected pixels say, against the nearest ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score

from sointer import SOInter
from sointer.baselines import NearestPixels
from sointer.datasets import load_weizmann_horses
from sointer.models import UNet

pytestmark = pytest.mark.slow

N_PAIRS = 600


@pytest.fixture(scope="module")
def horses():
    if not list(Path(os.environ.get("SOINTER_DATA", ".")).glob("*horse*")):
        pytest.skip("the horses are missing; set SOINTER_DATA to the directory that holds them")
    data = load_weizmann_horses(size=32)
    test = data.split == "test"
    return data.images[~test], data.masks[~test], data.images[test], data.masks[test]


@pytest.fixture(scope="module")
def unet(horses):
    images, masks, *_ = horses
    return UNet(n_steps=3000, random_state=0).fit(images, masks)


@pytest.fixture(scope="module")
def explainer(unet, horses):
    return SOInter(unet, k=30, removal="zero", random_state=0).fit(horses[0])


def relative_f1(explainer, unet, images, k):
    """Of random pixels: what the model says of the whole image against what it says of the selected pixels alone."""
    rng = np.random.default_rng(1)
    image, pixel = rng.integers(len(images), size=N_PAIRS), rng.integers(32, size=(N_PAIRS, 2))
    said = unet.predict(images)
    explanation = explainer.explain(images[image], pixel, k=k, predicted=said[image])
    kept = images[image] * explanation.mask.reshape(N_PAIRS, 1, 32, 32)
    again = unet.predict(kept.astype(images.dtype))[np.arange(N_PAIRS), pixel[:, 0], pixel[:, 1]]
    return f1_score(said[image, pixel[:, 0], pixel[:, 1]], again)


def test_the_black_box_segments_horses(unet, horses):
    assert unet.score(*horses[2:]) > 0.8


@pytest.mark.parametrize(("k", "least"), [(10, 0.80), (30, 0.88), (100, 0.95), (300, 0.95)])
def test_the_selected_pixels_repeat_the_answer_better_than_the_nearest_do(explainer, unet, horses, k, least):
    nearest = NearestPixels(unet, k=k, removal="zero", random_state=0).fit(horses[0])
    ours = relative_f1(explainer, unet, horses[2], k)
    assert ours >= least
    assert ours > relative_f1(nearest, unet, horses[2], k)
