"""The studies of studies/horses run from a clean clone: the smoke setting, the page and its figures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from repo_scripts import PICTURES, ROOT, run_smoke, run_studies, study_modules
from sointer.metrics.ground_truth import r_precision
from sointer.metrics.swaps import swap_scores
from studies.frame.study import Selection

for package in ("matplotlib", "shap", "skimage"):
    pytest.importorskip(package)

HORSES = "horses"
STUDIES = ("planted", "segmenters", "large", "speed")
MODULES = (
    "black_boxes",
    "methods",
    "page",
    "pairs",
    "pictures",
    "planted",
    "segmenters",
    "segmenters_page",
    "large",
    "speed",
    "swapped",
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory, cache) -> Path:
    """All studies in their smoke setting, run once, as `make reproduce-horses` runs them in full."""
    return run_smoke(HORSES, tmp_path_factory.mktemp("horses"), cache)


@pytest.fixture(scope="module")
def modules(cache):
    """The modules of the study, which keep what they train in the same place as the smoke setting."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOINTER_CACHE", str(cache))
        yield study_modules(HORSES, *MODULES)


@pytest.fixture(scope="module")
def segmenter(modules):
    return modules.black_boxes.load_segmenter("U-Net", quick=True)


def results(smoke: Path, study: str) -> list[dict]:
    return [json.loads(line) for line in (smoke / "results" / HORSES / f"{study}.jsonl").read_text().splitlines()]


# --- the command -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_results(name, smoke):
    assert results(smoke, name)


def test_the_page_shows_all_pictures_and_no_others(smoke):
    page = (smoke / "pages" / "horses.md").read_text()
    assert page.startswith("# ")
    assert page.index("## Reached and not reached") < 1500, "what was reached comes first"
    assert "nan" not in page
    shown = PICTURES.findall(page)
    assert sorted(shown) == sorted(path.name for path in (smoke / "images").glob("*.png"))
    assert len(shown) == len(set(shown)) == 5


def test_fidelity_is_never_shown_without_j(smoke):
    page = (smoke / "pages" / "horses.md").read_text()
    heads = [line for line in page.splitlines() if line.startswith("|") and "fidelity" in line]
    assert len(heads) == 3
    assert all("fidelity / J" in head for head in heads)


def test_nearest_pixels_stand_beside_sointer_in_every_comparison(smoke):
    page = (smoke / "pages" / "horses.md").read_text()
    tables = [
        part for part in page.split("\n\n") if part.startswith("|") and re.search(r"^\| (\w+ \| )?SOInter ", part, re.M)
    ]
    shown = [part for part in tables if "queries in fit" not in part and "share outside" not in part]
    assert len(shown) >= 8
    assert all("nearest" in part for part in shown)


def test_cases_that_have_a_result_are_not_run_again(smoke):
    listed = run_studies("list", HORSES, "--smoke", "--out", str(smoke))
    assert (listed.returncode, listed.stdout) == (0, "")


def test_single_cases_can_be_chosen(tmp_path, modules):
    chosen = modules.segmenters.STUDY.todo(tmp_path, Selection(only=("302", "nearest pixels")))
    assert list(chosen) == [{"segmenter": "U-Net", "method": "nearest pixels", "seed": 302}]


def test_the_kept_page_shows_pictures_that_exist():
    page = ROOT / "docs" / "results" / "horses.md"
    if not page.exists():
        pytest.skip("the study has not been run yet")
    for image in PICTURES.findall(page.read_text()):
        assert (ROOT / "docs" / "images" / image).exists(), image


@pytest.mark.parametrize("name", ["planted", "segmenters", "large"])
def test_full_cases_are_different_and_go_seed_by_seed(name, modules):
    cases = list(getattr(modules, name).cases(False))
    assert len({json.dumps(case, sort_keys=True) for case in cases}) == len(cases)
    seeds = [case["seed"] for case in cases]
    assert seeds == sorted(seeds), "an early stop must leave fewer seeds, not fewer models"
    assert set(seeds) == {301, 302, 303}
    for case in cases:
        assert {**case, "method": "SOInter"} in cases, "nothing is measured without SOInter beside it"
    controlled = {tuple(case[key] for key in case if key not in ("method", "seed")) for case in cases}
    for subject in controlled:
        for control in ("nearest pixels", "random"):
            assert any((*subject, control) == tuple(c[key] for key in (*keys(c), "method")) for c in cases)


def keys(case: dict) -> list[str]:
    return [key for key in case if key not in ("method", "seed")]


# --- pairs and what is kept of them ------------------------------------------------------------------------


def test_pairs_take_every_image_equally_often_and_fewer_are_the_first_of_more(modules):
    many, few = (modules.pairs.draw_pairs(n, 12, 16) for n in (60, 7))
    assert np.bincount(many.image).tolist() == [5] * 12
    first = many.first(7)
    assert (few.image == first.image).all()
    assert (few.pixel == first.pixel).all()
    assert 0 <= many.pixel.min() <= many.pixel.max() < 16


def test_bits_are_kept_as_they_are(modules):
    bits = np.random.default_rng(0).random(77) > 0.5
    assert (modules.pairs.unpack(modules.pairs.pack(bits), 77) == bits).all()


def test_intervals_draw_images_not_pairs(modules):
    values = [np.array([1.0, 0.0] * 20)]
    two, many = (modules.pairs.mean_of_images(values, [image]) for image in (np.arange(40) % 2, np.arange(40)))
    assert two == (0.5, 0.0, 1.0)
    assert 0.3 < many[1] < 0.5 < many[2] < 0.7


@pytest.fixture
def swapped_rows(modules, segmenter):
    """Rows of results for the nearest pixels and for the farthest ones, and the scores that they are about."""
    pairs = modules.pairs.draw_pairs(24, len(segmenter.test_images), 16)
    X = segmenter.test_images[pairs.image]
    explainer = modules.methods.fit("nearest pixels", segmenter, 0).explainer
    nearest = modules.methods.score(explainer, X, pairs.pixel)
    rows, scores = [], []
    for one in (nearest, -nearest):
        found = swap_scores(segmenter.predict, X, pairs.pixel, one, segmenter.test_images, ks=[10, 100])
        rows.append({"seed": 0, "ks": [10, 100], **modules.segmenters.kept(found, pairs)})
        scores.append(found)
    return rows, scores


def test_results_give_back_insert_delete_and_j(modules, swapped_rows):
    (row, _), (found, _) = swapped_rows
    for place, k in enumerate((10, 100)):
        assert modules.swapped.share([row], "insert", k) == pytest.approx(found.insert[place])
        assert modules.swapped.share([row], "delete", k) == pytest.approx(found.delete[place])
        for fill, j in found.j.items():
            assert modules.swapped.share([row], f"J {fill}", k) == pytest.approx(j[place])


def test_differences_are_taken_pair_by_pair(modules, swapped_rows):
    (near, far), (ours, theirs) = swapped_rows
    gap = modules.swapped.difference([near], [far], ("insert", "delete"), (10, 100))
    assert gap.mean == pytest.approx(ours.mean - theirs.mean)
    assert gap.low < gap.mean < gap.high
    same = modules.swapped.difference([near], [near], ("insert",), (10,))
    assert (same.mean, same.low, same.high, same.verdict) == (0.0, 0.0, 0.0, "level")
    other_seed = {**far, "seed": 1}
    assert modules.swapped.difference([near], [far, other_seed], ("insert",), (10,)).theirs == pytest.approx(
        theirs.insert[0]
    )


def test_fewer_pairs_are_measured_as_the_first_of_more(modules, segmenter):
    """Methods with few pairs are compared with the others on the same pairs and the same other images."""
    pairs = modules.pairs.draw_pairs(24, len(segmenter.test_images), 16)
    scores = np.random.default_rng(0).random((24, 16, 16))
    rows = []
    for n in (24, 12):
        part = pairs.first(n)
        X = segmenter.test_images[part.image]
        found = swap_scores(segmenter.predict, X, part.pixel, scores[:n], segmenter.test_images, ks=[100], fills=())
        rows.append({"ks": [100], **modules.segmenters.kept(found, part)})
    many, few = (modules.swapped.values(row, "insert", 100) for row in rows)
    assert rows[0]["images"][: len(few)] == rows[1]["images"]
    assert (many[: len(few)] == few).all()


# --- what is measured --------------------------------------------------------------------------------------


def test_planted_rows_hold_every_kind_of_truth(smoke):
    rows = {(row["segmenter"], row["method"]): row for row in results(smoke, "planted")}
    assert rows["window", "nearest pixels"]["r_precision"] == 1.0
    row = rows["majority", "SOInter"]
    found, counts = np.array([row["by_case"][kind] for kind in ("2 of 3", "3 of 3")]).T
    assert counts.sum() == row["n_known"] == row["n_pairs"]
    assert found @ counts / counts.sum() == pytest.approx(row["r_precision"], abs=0.05)  # ties are drawn anew
    assert rows["majority", "SOInter"]["explain_queries"] <= 1 < rows["majority", "RISE"]["explain_queries"]


def test_pixels_outside_the_receptive_field_are_counted(modules):
    field = np.zeros((2, 16, 16), dtype=bool)
    field[:, :5, :5] = True
    assert modules.planted.outside(field.astype(np.float32), field, 0) == {
        "outside_few": 0.0,
        "n_few": 10,
        "outside_all": 0.0,
        "chance": round(1 - 25 / 256, 4),
    }
    assert modules.planted.outside(-field.astype(np.float32), field, 0)["outside_all"] == 1.0


def test_the_example_is_chosen_by_its_truth(modules):
    model = modules.black_boxes.load_segmenter("flood", quick=True)
    pairs = modules.pairs.draw_pairs(24, len(model.test_images), 16)
    truth = model.planted.relevant(model.test_images[pairs.image], pairs.pixel)
    shown = modules.planted.example(model, pairs, truth.astype(np.float32), truth)
    assert shown["truth"] == shown["selected"]
    assert modules.pictures.mask_of(shown, "truth").sum() == truth[:20].sum(axis=(1, 2)).max()


def test_no_scores_of_units_beat_their_true_shares(modules):
    rng = np.random.default_rng(0)
    units = np.repeat(np.repeat(np.arange(16).reshape(4, 4), 4, axis=0), 4, axis=1).ravel()[None].repeat(5, axis=0)
    truth = np.zeros((5, 16, 16), dtype=bool)
    truth[:, 2:9, 3:10] = True
    best = r_precision(modules.large.shares(units, truth), truth)
    for _ in range(20):
        scores = np.take_along_axis(rng.random((5, 16)), units, axis=1).reshape(truth.shape)
        assert r_precision(scores, truth) <= best + 0.02  # ties are drawn at random
    assert 0.5 < best < 1


def test_an_explainer_that_is_not_told_is_not_persuaded(modules, segmenter, swapped_rows):
    pairs = modules.pairs.draw_pairs(24, len(segmenter.test_images), 16)
    explainer = modules.methods.fit("nearest pixels", segmenter, 0).explainer
    scores = modules.methods.score(explainer, segmenter.test_images[pairs.image], pairs.pixel)
    masks = segmenter.predict(segmenter.test_images)
    before = masks.copy()
    found = modules.segmenters.told_the_opposite(explainer, segmenter, pairs, masks, scores, [10, 100], 0)
    assert found["overlap"] == 1.0
    assert found["persuaded"] == found["own_error"]
    assert (masks == before).all()
    row = {**swapped_rows[0][0], "segmenter": "U-Net", "method": "SOInter", "told": found}
    assert "this control does not apply" in modules.segmenters_page.told_section([row], ["U-Net"]).replace("\n", " ")


def test_noise_has_the_variance_it_should_have(modules):
    grey = np.full((20, 3, 32, 32), 128, dtype=np.uint8)
    assert (modules.segmenters.with_noise(grey, 0.0) == grey).all()
    noisy = modules.segmenters.with_noise(grey, 1e-2)
    assert noisy.dtype == np.uint8
    assert np.var(noisy / 255) == pytest.approx(1e-2, rel=0.03)


def test_no_noise_changes_nothing(smoke):
    for row in results(smoke, "segmenters"):
        for level in row.get("noise", [])[:1]:
            assert (level["variance"], level["same_label"]) == (0.0, 1.0)
            assert level["overlap"] == 1.0


def test_selections_move_to_unets_of_other_seeds_only(smoke):
    rows = [row for row in results(smoke, "segmenters") if "transfer" in row]
    assert {row["segmenter"] for row in rows} == {"U-Net"}
    assert all(set(row["transfer"]) == {str(1 - row["seed"])} for row in rows)


def test_memory_and_time_of_fits_are_measured(smoke):
    rows = [row for row in results(smoke, "large") if row["method"] == "SOInter"]
    (speed,) = results(smoke, "speed")
    for row in (*rows, speed):
        assert 0.05 < row["peak_gigabytes"] < 4
        assert row["fit_cpu_seconds"] > 0
        assert 0 < row["fit_queries"] <= 150
    assert set(speed["timed"]) == {"SOInter", "nearest pixels", "KernelSHAP, superpixels", "shap's KernelExplainer"}


# --- models ------------------------------------------------------------------------------------------------


def test_explainers_see_no_test_image(modules, segmenter):
    test = {image.tobytes() for image in segmenter.test_images}
    assert not test & {image.tobytes() for image in segmenter.fit_images}


def test_logits_are_those_of_the_model(segmenter):
    with torch.no_grad():
        logits = segmenter.module(torch.from_numpy(segmenter.test_images).float()).numpy()
    assert ((logits >= 0) == segmenter.predict(segmenter.test_images)).all()


def test_the_gradient_through_inference_is_zero(modules, cache):
    """The page says so of the deep value network, which therefore has no row of gradients."""
    from sointer.zoo.image_value import steepest, step_length

    model = modules.black_boxes.load_segmenter("deep value network", quick=True).predict.__self__
    x = torch.rand(3, 3, model.crop, model.crop, generator=torch.Generator().manual_seed(0)).requires_grad_()
    seen, y = model.folded_.seen(x), torch.zeros(3, model.crop, model.crop, requires_grad=True)
    for step in range(model.n_inference_steps):
        gradient = torch.autograd.grad(model.folded_(seen, y).sum(), y, create_graph=True)[0]
        y = (y + step_length(step, model.n_inference_steps, model.step_size) * steepest(gradient)).clamp(0, 1)
    assert 0 < float(y.detach().mean()) < 1
    (through,) = torch.autograd.grad(y.sum(), x, allow_unused=True)
    assert through is None or float(through.abs().max()) == 0.0


# --- pictures ----------------------------------------------------------------------------------------------


def test_the_smallest_rectangle_holds_all_selected_pixels_and_no_more(modules):
    selected = np.zeros((6, 6), dtype=bool)
    selected[1, 2] = selected[4, 3] = True
    window = modules.pictures.smallest_rectangle(selected)
    assert window == (slice(1, 5), slice(2, 4))
    only = modules.pictures.within(np.zeros((6, 6, 3), dtype=np.uint8), window)
    assert (only == 0).all(axis=2).sum() == 8


def test_examples_keep_what_they_show(modules, segmenter):
    explainer = modules.methods.fit("nearest pixels", segmenter, 0).explainer
    masks = segmenter.predict(segmenter.test_images)
    found = modules.segmenters.examples(explainer, segmenter, masks, k=5)
    assert len({one["image"] for one in found}) == len(found) == 6
    for one in found:
        assert one["label"] == masks[(one["image"], *one["target"])]
        assert (modules.pictures.mask_of(one, "mask") == masks[one["image"]]).all()
        assert modules.pictures.mask_of(one, "selected").sum() == 5
        assert modules.pictures.mask_of(one, "selected")[tuple(one["target"])]
