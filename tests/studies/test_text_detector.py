"""The study of a text detector: it runs from a clean clone, draws what it says, and measures what it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt

from repo_scripts import PICTURES, ROOT, run_smoke, run_studies, study_modules

FOLDER = "text_detector"

for package in ("matplotlib", "onnxruntime"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def modules():
    return study_modules(FOLDER, "drawn_words", "detector", "text_detector", "text_detector_page")


@pytest.fixture(scope="module")
def model(modules):
    if not modules.detector.is_installed():
        pytest.skip("rapidocr-onnxruntime is not installed: pip install 'sointer[ocr]'")
    return modules.detector.detector()


@pytest.fixture(scope="module")
def smoke(tmp_path_factory, model) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    return run_smoke(FOLDER, folder, folder / "cache")


# --- the command --------------------------------------------------------------------------------------------


def test_the_smoke_setting_makes_results_page_and_figure(smoke, modules):
    rows = [json.loads(line) for line in (smoke / "results" / FOLDER / "text_detector.jsonl").read_text().splitlines()]
    assert [row["method"] for row in rows] == list(modules.text_detector_page.METHODS)
    for row in rows:
        assert row["ks"] == [10, 30, 100, 300]
        for name in ("own", "on", "other", "insert", "delete", "own_most"):
            assert len(row[name]) == 4
            assert all(0 <= value <= 1 for value in row[name]), name
        assert all(on <= own <= most for on, own, most in zip(row["on"], row["own"], row["own_most"], strict=True))
        assert all(own + other <= 1 for own, other in zip(row["own"], row["other"], strict=True))
        assert row["n_targets"] == row["n_swapped"] == 6
    by_method = {row["method"]: row for row in rows}
    assert 0 < by_method["SOInter"]["fit_queries"] <= modules.text_detector.SMOKE.n_queries
    assert by_method["SOInter"]["sample_queries"] == by_method["NearestPixels"]["sample_queries"] == 0
    assert 0 < by_method["Rise"]["sample_queries"] <= modules.text_detector.SMOKE.n_per_sample
    assert by_method["NearestPixels"]["own"][0] > 0.9 > 0.3 > by_method["Random"]["own"][0]
    page = (smoke / "pages" / "text-detector.md").read_text()
    assert set(PICTURES.findall(page)) == {"text-detector.png"}
    assert (smoke / "images" / "text-detector.png").exists()
    assert "| SOInter | NearestPixels | 1 |" in page
    assert "nan" not in page
    assert all(len(line) < 120 for line in page.splitlines() if not line.startswith("|"))


def test_cases_that_have_a_result_are_not_run_again(smoke):
    again = run_studies("run", FOLDER, "--smoke", "--out", str(smoke))
    assert (again.returncode, again.stdout) == (0, "")


def test_full_cases_are_three_fresh_seeds_of_every_method(modules):
    cases = list(modules.text_detector.cases(False))
    assert [case["seed"] for case in cases] == sorted(case["seed"] for case in cases)
    for method in modules.text_detector_page.METHODS:
        assert [case["seed"] for case in cases if case["method"] == method] == [101, 102, 103]


def test_there_is_no_page_without_results():
    kept = list((ROOT / "studies" / "results" / FOLDER).glob("*.jsonl"))
    assert bool(kept) == (ROOT / "docs" / "results" / "text-detector.md").exists()


# --- images -------------------------------------------------------------------------------------------------


def test_drawn_words_have_known_strokes_far_from_each_other(modules):
    drawn = modules.drawn_words.draw_words(60, np.random.default_rng(0))
    assert drawn.images.shape == (60, 3, 64, 160)
    assert drawn.images.dtype == np.uint8
    assert set(drawn.n_words.tolist()) == {2, 3}
    assert set(drawn.backgrounds.tolist()) == {0, 1, 2}
    distances = drawn.distances()
    assert ((distances == 0) == drawn.strokes).all()
    assert ((distances <= modules.drawn_words.NEAR).sum(axis=1) <= 1).all(), "a pixel near the strokes of two words"
    assert np.isinf(distances[drawn.n_words == 2, 2]).all()
    has_word = drawn.strokes.any(axis=(2, 3))
    assert drawn.strokes[has_word].sum(axis=(1, 2)).min() > 15


def test_strokes_are_where_the_image_differs_from_its_background(modules):
    drawn = modules.drawn_words.draw_words(40, np.random.default_rng(1))
    for image, strokes in zip(drawn.images[drawn.backgrounds == 0], drawn.strokes[drawn.backgrounds == 0], strict=True):
        differs = (image != image[:, :1, :1]).any(axis=0)
        ink = strokes.any(axis=0)
        assert differs[ink].all()
        assert distance_transform_edt(~ink)[differs].max() < 3, "ink beside the strokes"


def test_images_depend_on_their_generator_alone(modules):
    first, second, third = (modules.drawn_words.draw_words(4, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert (first.images == second.images).all()
    assert (first.strokes == second.strokes).all()
    assert (first.images != third.images).any()


# --- the detector -------------------------------------------------------------------------------------------


def test_the_detector_finds_drawn_words_and_nothing_else(modules, model):
    drawn = modules.drawn_words.draw_words(40, np.random.default_rng(2))
    probability = model(drawn.images)
    assert probability.shape == (40, 64, 160)
    assert probability.min() >= 0
    assert probability.max() <= 1
    near = drawn.distances() <= modules.drawn_words.NEAR
    is_text = probability > modules.detector.THRESHOLD
    assert near.any(axis=1)[is_text].mean() > 0.9
    words_found = (near & is_text[:, None]).any(axis=(2, 3)).sum() / drawn.n_words.sum()
    assert words_found > 0.9
    assert (model(np.full((1, 3, 64, 160), 128, dtype=np.uint8)) < 0.5).all()


def test_the_detector_takes_bytes_and_floats_one_by_one_or_many(modules, model):
    images = modules.drawn_words.draw_words(modules.detector.N_AT_ONCE + 1, np.random.default_rng(3)).images
    together = model(images)
    np.testing.assert_allclose(model(images.astype(np.float64)), together, atol=1e-6)
    np.testing.assert_allclose(model(images[-1:]), together[-1:], atol=1e-4)
    assert model(images[:0]).shape == (0, 64, 160)
    with pytest.raises(ValueError, match="multiples of 32"):
        model(images[:, :, :60])


# --- targets and measures -----------------------------------------------------------------------------------


def test_targets_are_pixels_of_their_word_that_are_called_text(modules, model):
    given = modules.text_detector.setting(0, modules.text_detector.SMOKE)
    rows = np.arange(len(given.targets))
    assert (given.predicted[(rows, *given.targets.T)] > modules.detector.THRESHOLD).all()
    assert (given.test.distances()[(rows, given.words, *given.targets.T)] <= modules.drawn_words.NEAR).all()
    np.testing.assert_array_equal(model(given.test.images) > 0.5, given.predicted > 0.5)


def planted(modules):
    """One image with two words, straight lines, of which the second is the target's."""
    strokes = np.zeros((1, 3, 64, 160), dtype=bool)
    strokes[0, 0, 10, 20:60] = strokes[0, 1, 40, 100:140] = True
    test = modules.drawn_words.DrawnWords(np.zeros((1, 3, 64, 160), dtype=np.uint8), strokes, np.zeros(1, dtype=int))
    predicted = np.zeros((1, 64, 160), dtype=np.float32)
    return modules.text_detector.Setting(
        test.images, test.images, test, predicted, np.array([[40, 120]]), np.array([1]), 1.0, 1.0
    )


def test_shares_count_pixels_up_to_three_away_from_the_own_word(modules):
    given = planted(modules)
    place = lambda row, column: row * 160 + column  # noqa: E731
    far = [place(60, column) for column in range(160)] + [place(25, column) for column in range(160)]
    on, near = [place(40, 100), place(40, 101)], [place(37, 120), place(43, 139), place(40, 142)]
    beyond, other = [place(36, 120), place(40, 143), place(43, 142)], [place(10, 30), place(7, 40)]
    best = np.array([(on + near + beyond + other + far)[:300]])
    found = modules.text_detector.near_strokes(best, given)
    assert found["own"] == [0.5, round(5 / 30, 4), 0.05, round(5 / 300, 4)]
    assert found["on"][0] == found["other"][0] == 0.2
    n_near = int((given.test.distances()[0, 1] <= 3).sum())
    assert found["near_share"] == round(n_near / 10240, 4)
    assert found["own_most"] == [1.0, 1.0, 1.0, round(min(1, n_near / 300), 4)]
    assert modules.text_detector.from_target(np.array([[place(40, 120), place(44, 117)]]), given).tolist() == [[0, 5]]


def test_examples_come_back_as_they_were(modules):
    given = planted(modules)
    best = np.arange(300)[None]
    (example,) = modules.text_detector.show(best, given)
    page = modules.text_detector_page
    assert page.pixels_of(example["image"]).shape == (64, 160, 3)
    over = page.selected_over(page.pixels_of(example["image"]), example["selected"])
    assert (over.reshape(-1, 3) == page.GREEN).all(axis=1).nonzero()[0].tolist() == list(range(page.N_SHOWN))
