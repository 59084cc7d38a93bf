"""What fit of images says of itself: useless fits are warned of, good ones are not, and nothing is flattered."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import uniform_filter

import sointer
from quick import QUICK
from sointer import EnergyConfig, SOInter, TrainingConfig
from sointer.errors import BudgetWarning, FewImagesWarning, PoorFitWarning
from sointer.explainers.fitting import learned_of_images
from sointer.training.energy import Quality

AWAY = 9


def noise(n: int, side: int) -> np.ndarray:
    return np.random.default_rng(0).random((n, 1, side, side))


def from_afar(X) -> np.ndarray:
    """A pixel is on if the one nine columns to its left is bright."""
    return (np.roll(np.asarray(X)[:, 0], AWAY, axis=2) > 0.5).astype(int)


def around(X) -> np.ndarray:
    """A pixel is on if its own surroundings are bright."""
    return (uniform_filter(np.asarray(X)[:, 0], (0, 3, 3)) > 0.5).astype(int)


def parity(X) -> np.ndarray:
    """A pixel is on if one or three of three pixels elsewhere are bright."""
    on = np.asarray(X)[:, 0] > 0.5
    return (np.roll(on, 5, 2) ^ np.roll(on, 3, 1) ^ np.roll(on, -3, 1)).astype(int)


def fitted(model, X, **settings) -> tuple[SOInter, list[str]]:
    """And the words of warnings of a poor fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        explainer = SOInter(model, **{"random_state": 0} | settings).fit(X)
    return explainer, [str(one.message) for one in caught if one.category is PoorFitWarning]


@pytest.mark.parametrize(("n", "side", "query_budget"), [(200, 32, 400), (300, 16, 250)])
def test_a_fit_that_knows_only_who_has_more_pixels_is_warned_of(n, side, query_budget) -> None:
    images = noise(n, side)
    explainer, said = fitted(from_afar, images, query_budget=query_budget)
    targets = np.column_stack([np.arange(60) % side, AWAY + np.arange(60) % (side - AWAY)])
    found = explainer.explain(images[:60], target=targets, k=1).pixels[:, 0]
    assert (found == targets - [0, AWAY]).all(1).mean() < 0.1, "useless"
    assert explainer.held_out_agreement_ > 0.75
    assert explainer.held_out_skill_ < 0.5
    assert "where a simple rule" in said[0]
    assert "could not be tried" in said[0]
    assert "most common value" not in said[0]


def test_a_useless_fit_of_many_queries_says_that_its_best_pixels_change_nothing() -> None:
    settings = {"energy": EnergyConfig(hidden=(4, 4), learning_rate=1e-6), "training": TrainingConfig(n_epochs=1)}
    explainer, said = fitted(from_afar, noise(200, 16), query_budget=4000, **settings)
    assert explainer.held_out_skill_ < 0.5
    assert "put into another image or replaced in their own, take the output along in only" in said[0]


@pytest.mark.parametrize(("model", "side"), [(around, 8), (parity, 12)])
def test_a_good_fit_is_not_warned_of_however_well_simple_rules_do(model, side) -> None:
    explainer, said = fitted(model, noise(200, side), query_budget=4500)
    assert said == []
    if model is parity:
        assert explainer.held_out_skill_ < 0.5, "no sum predicts a parity, but its pixels are the best"


@pytest.mark.parametrize(
    ("agreement", "by_rules", "skill", "swapped", "words"),
    [
        (0.95, 0.75, 0.8, math.nan, None),
        (0.85, 0.8, 0.25, 0.9, None),
        (0.85, 0.8, 0.25, 0.2, "in only 20% of cases"),
        (0.85, 0.8, 0.25, math.nan, "could not be tried"),
        (math.nan, math.nan, 0.0, math.nan, "no mixtures of two images were held out"),
    ],
)
def test_a_fit_is_poor_if_neither_mixtures_nor_swaps_speak_for_it(agreement, by_rules, skill, swapped, words) -> None:
    quality = Quality(0.0, np.array([agreement]), np.array([skill]), [], by_rules, swapped)
    said = learned_of_images(quality)
    assert said is None if words is None else words in said


def test_few_images_are_those_that_were_seen_whole() -> None:
    with pytest.warns(FewImagesWarning, match="room for only 10 of the 60 images among its queries") as caught:
        fitted_quick(query_budget=50)
    assert {Path(one.filename).name for one in caught} == {Path(__file__).name}, "where fit was called"


def test_a_budget_below_the_number_of_images_is_warned_of() -> None:
    with pytest.warns(BudgetWarning, match="query_budget=50 is less than the 60 images given"):
        fitted_quick(query_budget=50)


@pytest.mark.parametrize("query_budget", [1, 3])
def test_nothing_held_out_is_no_number(tmp_path, query_budget) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        explainer = fitted_quick(query_budget=query_budget)
    said = [str(one.message) for one in caught]
    assert not any("nan" in one for one in said)
    assert any("nothing was left to check it on" in one for one in said)
    explainer.save(tmp_path / "why")
    loaded = sointer.load(tmp_path / "why", from_afar)
    assert math.isnan(loaded.held_out_agreement_)
    page = loaded.report(noise(1, 12), tmp_path / "pixels.html", k=1).read_text()
    for shown in (page, explainer._repr_html_(), loaded._repr_html_()):
        assert "nan%" not in shown
    assert "No mixtures of two images were held out" in page


def test_pages_say_what_simple_rules_reach(tmp_path) -> None:
    explainer, _ = fitted(from_afar, noise(60, 12), **QUICK | {"query_budget": 600})
    reached = explainer.history_[-1]["held_out_by_rules"]
    assert 0.6 < reached < 0.95
    page = explainer.report(noise(1, 12), tmp_path / "pixels.html", k=1).read_text()
    assert f"in all or around the target: {reached:.0%})" in page
    assert "a rule that sees no image" in explainer._repr_html_()
    assert "most common value" not in explainer._repr_html_()


def fitted_quick(**settings) -> SOInter:
    return SOInter(from_afar, **QUICK | settings).fit(noise(60, 12))
