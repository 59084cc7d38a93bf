"""One pixel of a segmented horse, on real images: known truth, and a U-Net, beside the nearest pixels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from sointer import SOInter
from sointer.explainers.baselines.base import NearestPixels
from sointer.metrics.ground_truth import r_precision
from sointer.metrics.pixels import pixel_scores
from sointer.metrics.swaps import swap_scores
from sointer.zoo.image_models import UNet
from sointer.zoo.loaders import load_weizmann_horses
from sointer.zoo.planted_segmenters import PLANTED_SEGMENTERS

pytestmark = pytest.mark.slow

N_PAIRS = 384
SLACK = 0.06
"""Twice the standard error of a share of these pairs."""


@pytest.fixture(scope="module")
def horses():
    if not list(Path(os.environ.get("SOINTER_DATA", ".")).glob("*horse*")):
        pytest.skip("the horses are missing; set SOINTER_DATA to the directory that holds them")
    data = load_weizmann_horses(size=32)
    return data.part("train", "val"), data.test


def explained(kind, model, horses):
    """Scores of random pixels of test images by an explainer that has seen the others: X, targets and scores."""
    rng = np.random.default_rng(1)
    X, targets = horses[1].images[np.arange(N_PAIRS) % 128], rng.integers(32, size=(N_PAIRS, 2))
    explainer = kind(model, random_state=0, verbose=False).fit(horses[0].images)
    return X, targets, pixel_scores(explainer.explain(X, target=targets))


@pytest.mark.parametrize(
    ("name", "least"), [("window", 0.97), ("landmark", 0.9), ("offset", 0.95), ("flood", 0.95), ("majority", 0.95)]
)
def test_deciding_pixels_are_found(name, least, horses):
    model = PLANTED_SEGMENTERS[name](horses[0].images)
    X, targets, scores = explained(SOInter, model, horses)
    assert r_precision(scores, model.relevant(X, targets)) >= least


def test_predictions_follow_the_selected_pixels_at_least_as_well_as_the_nearest(horses):
    train, test = horses
    unet = UNet(n_steps=1000, random_state=0, verbose=False).fit(train.images, train.masks)
    assert unet.score(test.images, test.masks) > 0.8
    found = {}
    for kind in (SOInter, NearestPixels):
        X, targets, scores = explained(kind, unet.predict, horses)
        found[kind] = swap_scores(unet.predict, X, targets, scores, test.images, fills=("black", "inpaint"))
    ours, nearest = found.values()
    assert (ours.insert >= nearest.insert - SLACK).all()
    assert (ours.delete >= nearest.delete - SLACK).all()
    assert ours.mean >= nearest.mean - SLACK / 2
    assert (ours.j["inpaint"] >= nearest.j["inpaint"] - 2 * SLACK).all(), "the mask's shape must not carry the label"
