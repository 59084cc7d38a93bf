"""Every study of experiments/horses runs from a clean clone: the smoke setting, the page and its figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from repo_scripts import PICTURES, ROOT, repo_scripts, run_smoke, run_studies

for package in ("matplotlib", "shap", "skimage"):
    pytest.importorskip(package)

HORSES = "experiments/horses"
STUDIES = ("fidelity", "noise", "removal", "settings", "speed", "scale", "paper")


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
    names = ("setting", "measures", "explainers", "gradient", "fidelity", "noise", "pictures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOINTER_CACHE", str(cache))
        with repo_scripts(HORSES, *names) as found:
            yield found


# --- the command -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_results(name, smoke):
    assert (smoke / "results" / f"{name}.jsonl").read_text()


def test_the_page_shows_all_pictures_and_no_others(smoke):
    page = (smoke / "pages" / "horses.md").read_text()
    assert page.startswith("# ")
    shown = PICTURES.findall(page)
    assert sorted(shown) == sorted(path.name for path in (smoke / "images").glob("*.png"))
    assert len(shown) == len(set(shown)) == 9


def test_cases_that_have_a_result_are_not_run_again(smoke):
    listed = run_studies(HORSES, "--list", "--smoke", "--out", str(smoke))
    assert (listed.returncode, listed.stdout) == (0, "")


def test_single_cases_can_be_chosen(tmp_path, modules):
    chosen = modules.fidelity.STUDY.todo(tmp_path / "results.jsonl", smoke=False, only=("dvn", "NearestPixels"))
    assert list(chosen) == [{"black_box": "dvn", "method": "NearestPixels", "seed": 0}]


def test_the_kept_page_shows_pictures_that_exist():
    page = ROOT / "docs" / "results" / "horses.md"
    if not page.exists():
        pytest.skip("the study has not been run yet")
    for image in PICTURES.findall(page.read_text()):
        assert (ROOT / "docs" / "images" / image).exists(), image


def test_fits_are_shared_and_their_costs_kept(smoke, modules):
    rows = [json.loads(line) for line in (smoke / "results" / "fidelity.jsonl").read_text().splitlines()]
    (row,) = [row for row in rows if (row["black_box"], row["method"]) == ("unet", "SOInter")]
    explainer, costs = modules.explainers.fitted(modules.explainers.Recipe(quick=True))
    assert costs == row["fit"], "fitted again"
    assert costs["n_queries"] == explainer.n_queries_ == modules.explainers.QUICK_BUDGET
    assert costs["cpu_seconds"] > 0
    assert 0.05 < costs["peak_gigabytes"] < 4


def test_every_setting_has_a_place_of_its_own(modules):
    recipe = modules.explainers.Recipe
    different = [recipe(quick=True), recipe(quick=True, structured=False), recipe("dvn", quick=True)]
    assert len({one.folder() for one in different}) == 3
    assert recipe(quick=True).folder() == different[0].folder()


# --- what is measured --------------------------------------------------------------------------------------


def questions_of(modules, said, size=4):
    """One image for each answer; the target is its pixel (1, 2)."""
    masks = np.zeros((len(said), size, size), dtype=np.uint8)
    masks[:, 1, 2] = said
    images = np.zeros((len(said), 3, size, size), dtype=np.uint8)
    return modules.setting.Questions(images, masks, np.arange(len(said)), np.tile([1, 2], (len(said), 1)))


def measured(modules, said, again, selected=None):
    selected = np.zeros((len(said), 1), dtype=np.int64) if selected is None else selected
    replies = {"as fitted": {1: np.array(again, dtype=np.uint8)}}
    return modules.measures.Measured(questions_of(modules, said), selected, np.array(said), replies)


def test_f1_and_fidelity(modules):
    rng = np.random.default_rng(0)
    said, again = rng.integers(2, size=(2, 50)).astype(np.uint8)
    found = measured(modules, said, again)
    assert found.f1("as fitted")[1] == pytest.approx(f1_score(said, again), abs=1e-4)
    assert found.fidelity("as fitted")[1] == np.mean(said == again)
    low, high = found.f1_intervals("as fitted")[1]
    assert low < f1_score(said, again) < high


def test_f1_intervals_draw_images_not_pixels(modules):
    said, again = np.array([1, 1] * 20, dtype=np.uint8), np.array([1, 0] * 20, dtype=np.uint8)
    many = questions_of(modules, said)
    two = modules.setting.Questions(many.images[:2], many.masks[:2], np.arange(40) % 2, many.pixel)
    narrow, wide = (modules.measures.interval(of, again) for of in (many, two))
    assert wide == [0.0, 1.0]
    assert 0.4 < narrow[0] < narrow[1] < 0.9


def test_misled_counts_by_what_was_said(modules):
    found = measured(modules, [1, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0]).misled("as fitted")
    assert found == {"background": {1: 0.25}, "horse": {1: 0.5}}


def test_distances_leave_out_what_was_not_selected(modules):
    selected = np.array([[6, 4], [14, -1]])  # (1, 2) itself and (1, 0); (3, 2) and nothing
    found = measured(modules, [1, 1], [1, 1], selected).distance([1, 2, 3])
    assert found == {1: 1.0, 2: pytest.approx(4 / 3, abs=1e-3)}


class Planted:
    """Says of a pixel that it is on if its left neighbour is bright; that neighbour is selected first."""

    def __init__(self):
        from sointer.baselines import NearestPixels

        class LeftNeighbour(NearestPixels):
            told = None

            def _scores(self, source, targets):
                type(self).told = source.predicted
                scores, values = super()._scores(source, targets)
                scores[np.arange(len(targets)), targets - 1] = 1.0
                return scores, values

        def black_box(images):
            return np.pad(images[:, 0, :, :-1] > 127, ((0, 0), (0, 0), (1, 0))).astype(np.int64)

        self.black_box, self.explainer = black_box, LeftNeighbour(black_box, k=1, removal="zero", random_state=0)


def test_a_planted_cause_is_confirmed_and_told_values_arrive(modules):
    planted = Planted()
    images = np.random.default_rng(0).integers(1, 256, size=(30, 3, 6, 6)).astype(np.uint8)
    explainer = planted.explainer.fit(images)
    masks = planted.black_box(images).astype(np.uint8)
    questions = modules.setting.Questions(images, masks, np.arange(30), np.tile([2, 3], (30, 1)))
    found = modules.measures.measure(explainer, questions, (1, 4), removals=("as fitted", "mean"), part=7)
    assert found.f1("as fitted") == found.f1("mean") == {1: 1.0, 4: 1.0}
    assert found.distance([1]) == {1: 1.0}
    modules.measures.measure(explainer, questions, (1,), tell="the opposite", part=30)
    changed = type(explainer).told.reshape(masks.shape) != masks
    assert changed[:, 2, 3].all()
    assert changed.sum() == 30
    modules.measures.measure(explainer, questions, (1,), tell="nothing")
    assert type(explainer).told is None
    assert (masks == planted.black_box(images)).all(), "the questions were changed"


def test_questions_are_the_same_for_all_black_boxes(modules):
    first, second = (modules.setting.setting(name, quick=True).questions() for name in ("unet", "dvn"))
    assert (first.image == second.image).all()
    assert (first.pixel == second.pixel).all()
    parts = list(first.parts(7))
    assert np.concatenate([part.said for part in parts]).tolist() == first.said.tolist()


def test_noise_has_the_variance_it_should_have(modules):
    grey = np.full((20, 3, 32, 32), 128, dtype=np.uint8)
    assert (modules.noise.with_noise(grey, 0.0) == grey).all()
    noisy = modules.noise.with_noise(grey, 1e-2)
    assert noisy.dtype == np.uint8
    assert np.var(noisy / 255) == pytest.approx(1e-2, rel=0.03)


def test_overlap_counts_the_pixels_in_both(modules):
    now, before = np.array([[1, 2, 3], [4, 5, -1]]), np.array([[3, 2, 9], [4, 6, -1]])
    found = measured(modules, [1, 1], [1, 1], now)
    found.replies["as fitted"][3] = np.ones(2, dtype=np.uint8)
    assert modules.noise.overlaps(found, before) == {1: 0.5, 3: 0.5}


# --- the black box's own gradient --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["unet", "dvn"])
def test_gradient_is_that_of_the_black_box(name, modules):
    setting = modules.setting.setting(name, quick=True)
    x = torch.from_numpy(setting.test[:2] / np.float32(255)).requires_grad_()
    at = np.array([5, 9]), np.array([7, 3])
    (gradient,) = torch.autograd.grad(modules.gradient.preference(setting.model, x, *at).sum(), x)
    assert gradient.abs().sum() > 0
    step = 2e-4 * gradient / gradient.norm()
    with torch.no_grad():
        up, down = (modules.gradient.preference(setting.model, x + s * step, *at).sum() for s in (1, -1))
    assert float(up - down) == pytest.approx(2 * float((gradient * step).sum()), rel=0.2)


def test_the_gradient_through_inference_is_zero(modules):
    """The page says so, and that another one was therefore taken."""
    from sointer.models.image_value_network import steepest, step_length

    model = modules.setting.setting("dvn", quick=True).model
    x = torch.rand(3, 3, model.crop, model.crop, generator=torch.Generator().manual_seed(0)).requires_grad_()
    seen, y = model.folded_.seen(x), torch.zeros(3, model.crop, model.crop, requires_grad=True)
    for step in range(model.n_inference_steps):
        gradient = torch.autograd.grad(model.folded_(seen, y).sum(), y, create_graph=True)[0]
        y = (y + step_length(step, model.n_inference_steps, model.step_size) * steepest(gradient)).clamp(0, 1)
    assert 0 < float(y.detach().mean()) < 1
    (through,) = torch.autograd.grad(y.sum(), x, allow_unused=True)
    assert through is None or float(through.abs().max()) == 0.0


# --- pictures ----------------------------------------------------------------------------------------------


def test_examples_keep_what_they_show(modules):
    setting = modules.setting.setting("unet", quick=True)
    explainer, _ = modules.explainers.fitted(modules.explainers.Recipe(quick=True))
    questions = modules.pictures.choose(setting)
    found = modules.pictures.examples(explainer, setting, 5)
    explanation = modules.measures.explain(explainer, questions, 5)
    assert [example["said"] for example in found] == questions.said.tolist() == [1, 1, 1, 1, 0, 0]
    for i, example in enumerate(found):
        ranks = modules.pictures.ranks_of(example, setting.size).ravel()
        assert ranks[explanation.selected[i]].tolist() == [0, 1, 2, 3, 4]
        assert (ranks >= 0).sum() == 5
        assert (modules.pictures.unpack(example["mask"], setting.size) == questions.masks[questions.image[i]]).all()
