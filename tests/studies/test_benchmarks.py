"""The benchmarks run from a clean clone, count what they say they count, and compute what they say they compute."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from repo_scripts import PICTURES, ROOT, run_smoke, study_modules
from studies.frame.apart import apart
from studies.frame.markdown import duration
from studies.frame.study import Selection

STUDIES = ("peers", "scaling", "explain", "slow_black_box", "streaming", "fan_out", "imports")
PEERS = (
    "shap KernelExplainer",
    "lime",
    "captum KernelShap",
    "captum Lime",
    "captum FeatureAblation",
    "captum KernelShap, 1,000 samples",
    "captum Lime, 1,000 samples",
    "shapiq KernelSHAP",
)

for package in ("matplotlib", "lime", "shap", "captum", "shapiq"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory, cache) -> Path:
    """All studies in their smoke setting, run once, as `make bench` runs them in full."""
    return run_smoke("speed", tmp_path_factory.mktemp("bench"), cache)


@pytest.fixture(scope="module")
def rows(smoke) -> dict[tuple[str, str], dict]:
    """What was found about every method."""
    lines = (smoke / "results" / "speed" / "peers.jsonl").read_text().splitlines()
    return {(row["black_box"], row["method"]): row for row in map(json.loads, lines)}


@pytest.fixture(scope="module")
def modules(cache):
    names = ("bare", "counted", "packages", "peers_page", "planted", "scaling_page", "subjects")
    names += ("ours", "page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOINTER_CACHE", str(cache))
        yield study_modules("speed", *names)


# --- the command -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_results(name, smoke):
    assert (smoke / "results" / "speed" / f"{name}.jsonl").read_text()


def test_the_page_shows_all_pictures_and_a_section_of_every_study(smoke):
    page = (smoke / "pages" / "benchmarks.md").read_text()
    assert page.startswith("# ")
    assert sorted(PICTURES.findall(page)) == sorted(path.name for path in (smoke / "images").glob("*.png"))
    assert len(re.findall("^## ", page, re.MULTILINE)) == len(STUDIES), (
        "two studies have no section; opening and closing have one"
    )
    assert page.index("required") < page.index("## Against other packages") < page.index("## How it was measured")


@pytest.mark.parametrize("name", STUDIES)
def test_cases_that_have_a_result_are_not_run_again(name, smoke, modules):
    study = importlib.import_module(f"studies.speed.{name}").STUDY
    assert list(study.todo(smoke / "results" / "speed", Selection(smoke=True))) == []
    assert list(study.todo(smoke / "elsewhere", Selection(smoke=True))) != []


def test_the_full_run_has_every_method_on_every_black_box(modules):
    cases = [
        (case["black_box"], case["method"])
        for case in importlib.import_module("studies.speed.peers").STUDY.cases(False)
    ]
    for black_box in ("e1-20", "e1-200", "bibtex", "horses"):
        for method in (*PEERS, "shap PermutationExplainer", "SOInter", "our KernelShap", "our Lime"):
            assert cases.count((black_box, method)) == 1


def test_the_kept_page_shows_pictures_that_exist():
    page = ROOT / "docs" / "results" / "benchmarks.md"
    if not page.exists():
        pytest.skip("the benchmarks have not been run yet")
    for image in PICTURES.findall(page.read_text()):
        assert (ROOT / "docs" / "images" / image).exists(), image


# --- what is counted ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "n_queries"),
    [
        (
            "shap KernelExplainer",
            100 + 1 + 100 * (2**8 - 2),
        ),  # the background, the row, all coalitions x the background
        ("lime", 5000),
        ("captum KernelShap", 25),
        ("captum Lime", 25),
        ("captum FeatureAblation", 8 + 1),
        ("captum KernelShap, 1,000 samples", 1000),
        ("captum Lime, 1,000 samples", 1000),
    ],
)
def test_queries_of_an_explanation(method, n_queries, rows):
    row = rows["e1-20", method]
    assert row["each"]["queries"] == n_queries
    assert 0 < row["each"]["inside"] < row["each"]["seconds"]
    assert row["fit"]["queries"] == 0


@pytest.mark.parametrize("black_box", ["e1-20", "bibtex", "horses"])
def test_sointer_queries_in_fit_and_then_at_most_once_per_sample(black_box, rows):
    row = rows[black_box, "SOInter"]
    assert 50 <= row["fit"]["queries"] <= (60 if black_box == "horses" else 100)
    assert 0 < row["each"]["queries"] <= 1
    assert row["all_outputs"]["queries"] <= 1
    assert row["bare"]["seconds"] > 0


@pytest.mark.parametrize("method", ["our KernelShap", "our Lime", "L2X"])
def test_our_other_explainers_are_counted(method, rows):
    row = rows["e1-20", method]
    assert row["fit"]["queries"] == 300
    assert (row["each"]["queries"] > 1) == (method != "L2X")


def test_several_outputs_in_one_go_cost_no_more_queries(rows):
    together, apart = rows["horses", "lime"], rows["horses", "captum FeatureAblation"]
    assert together["all_outputs"]["queries"] == together["each"]["queries"] == 1000
    assert apart["all_outputs"]["queries"] == 64 * apart["each"]["queries"] == 64 * 65


def test_a_sleeping_black_box_is_inside_while_it_sleeps(modules):
    box = modules.counted.Counted(lambda X: X, seconds_per_row=0.002)
    cost = modules.counted.spent(box, lambda: [box(np.zeros((5, 2))), box(np.zeros((1, 2)))])
    assert cost["queries"] == 6
    assert 6 * 0.002 <= cost["inside"] <= cost["seconds"]
    assert modules.counted.each(cost, 3)["queries"] == 2


# --- what is compared --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table_subject(modules):
    """Output j is whether feature 2 j + 1 is above zero."""
    X = np.random.default_rng(0).normal(loc=1.0, size=(120, 6))

    def predict(X):
        return (X[:, 1::2] > 0).astype(int)

    return modules.subjects.Subject("signs", predict, X, np.abs(X[:20]) + 0.1, np.zeros(20, int), 3, 1, "zero")


@pytest.fixture(scope="module")
def image_subject(modules):
    """Every pixel is decided by the one to its left; the first of a line by nothing."""
    images = np.random.default_rng(0).integers(200, 256, size=(20, 3, 4, 4)).astype(np.uint8)

    def predict(images):
        return np.pad(images[:, 0, :, :-1] > 127, ((0, 0), (0, 0), (1, 0))).astype(int)

    return modules.subjects.Subject("neighbours", predict, images, images, np.full(20, 6), 16, 1, "zero")


@pytest.mark.parametrize("method", [*PEERS, pytest.param("shap PermutationExplainer", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["table", "image"])
def test_every_package_finds_what_decides(method, kind, modules, request):
    if method in ("captum KernelShap", "captum Lime") and kind == "image":
        pytest.skip("25 samples are too few")
    subject = request.getfixturevalue(f"{kind}_subject")
    peer = modules.packages.PACKAGES[method](subject, subject.predict)
    peer.fit()
    outputs = [0, 2] if kind == "table" else [6, 15]
    weights = np.abs(peer.weights(3, outputs))
    assert weights.argmax(axis=1).tolist() == ([1, 5] if kind == "table" else [5, 14])
    assert peer.explain([3, 4], np.array(outputs)).tolist() == ([[1], [5]] if kind == "table" else [[5], [14]])


@pytest.mark.parametrize("method", ["shap KernelExplainer", "captum KernelShap", "captum Lime"])
def test_packages_draw_the_same_in_every_run(method, image_subject, modules, global_random_state_is_left_alone):
    found = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            found.append(modules.packages.PACKAGES[method](image_subject, image_subject.predict).weights(3, [6]))
    assert np.array_equal(*found)


def test_equal_weights_are_ranked_at_random(table_subject, modules):
    class Blind(modules.packages.Package):
        def weights(self, index, outputs):
            return np.zeros((len(outputs), 6))

    first = Blind(table_subject, None).explain(range(20), np.zeros(20, int))[:, 0]
    assert len(set(first.tolist())) > 3


def test_the_bare_pass_computes_the_scores_of_explain(small_explainer, small_problem, modules):
    X = small_problem.sample(300, random_state=7)
    kept = []
    calls = modules.bare.recorded(lambda: kept.append(small_explainer.explain(X, target=1)))
    for batch in (calls, modules.bare.in_one_batch(calls)):
        with torch.no_grad():
            found = [network(*inputs) for network, inputs in batch]
        scores = torch.cat([one.relevance for one in found if hasattr(one, "relevance")]).numpy()
        np.testing.assert_allclose(scores, kept[0].scores, rtol=1e-3, atol=1e-4)


def test_planted_pairs_decide_and_nothing_else_does(modules):
    planted = modules.planted.Pairs.draw(10, 40)
    X, other = planted.sample(500, seed=0), planted.sample(500, seed=1)
    deciding = np.zeros((40, 10), dtype=bool)
    deciding[np.arange(40), planted.first] = deciding[np.arange(40), planted.second] = True
    changed = np.array([(planted(np.where(np.arange(10) == j, other, X)) != planted(X)).any(axis=0) for j in range(10)])
    assert np.array_equal(changed.T, deciding)
    right = np.array([[planted.second[7], planted.first[7], 0]])
    assert planted.found(right, 7) == planted.found(right[:, :1], 7) == 1.0
    assert planted.found(right[:, ::-1], 7) == 0.0


# --- processes of their own --------------------------------------------------------------------------------


@pytest.fixture
def probe(tmp_path, monkeypatch):
    code = "def hold(megabytes):\n    block = b'x' * (megabytes * 2**20)\n    return {'held': len(block)}\n"
    (tmp_path / "bench_probe.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return importlib.import_module("bench_probe")


def test_peak_memory_is_that_of_the_process_and_not_of_its_parent(probe, modules):
    ballast = b"x" * (300 * 2**20)
    found = {megabytes: apart(probe.hold, megabytes=megabytes) for megabytes in (1, 200)}
    assert found[200]["held"] == 200 * 2**20
    small, large = (found[megabytes]["peak_gigabytes"] for megabytes in (1, 200))
    assert small < 0.2 < len(ballast) / 2**30 + 0.1
    assert large - small == pytest.approx(199 / 1024, abs=0.03)


def test_what_fails_in_a_process_of_its_own_is_shown(probe, modules):
    with pytest.raises(RuntimeError, match=r"hold\(\{'megabytes': 'many'\}\) failed.*(\n.*)*TypeError"):
        apart(probe.hold, megabytes="many")


# --- from results to the page ------------------------------------------------------------------------------


def cost(seconds, inside=0.0, queries=0):
    return {"seconds": seconds, "inside": inside, "queries": queries}


def peer(method, fit, each, **more):
    row = {"black_box": "e1-20", "title": "E1, n = 20", "method": method, "fit": fit, "each": each}
    return {**row, "all_outputs": each, "n_outputs": 2, "peak_gigabytes": 0.5, "n_timed": 7, "n_cores": 2, **more}


@pytest.fixture
def made_up():
    explained = {"1": cost(0.02), "100": cost(0.03), "10000": cost(0.5)}
    ours = peer("SOInter", cost(10.0, 1.0, 5000), cost(0.00005), explained=explained)
    return [ours, peer("lime", cost(0.0), cost(0.06, 0.02, 5000)), peer("L2X", cost(5.0, 0.0, 6000), cost(0.0001))]


def test_ratios_and_when_training_has_paid_off(made_up, modules):
    page = modules.peers_page
    results = page.by_black_box(made_up)["E1, n = 20"]
    assert page.ratio(results, "lime") == pytest.approx(10_000 * 0.06 / 0.5)
    assert page.ratio(results, "lime", with_fit=True) == pytest.approx(600 / 10.5)
    ours, lime, l2x = (results[method] for method in ("SOInter", "lime", "L2X"))
    assert page.pays_off(ours, lime, "seconds") == 167  # 10 s / (60 ms - 0.05 ms)
    assert page.pays_off(ours, lime, "queries") == 1
    assert page.pays_off(ours, l2x, "seconds") == 100_000
    assert page.pays_off(ours, l2x, "queries") == 1
    assert page.pays_off(l2x, ours, "queries") == np.inf


def test_a_slow_black_box_replaces_the_time_inside(made_up, modules):
    slow = modules.peers_page.by_black_box(made_up)["E1, n = 20, 10 ms per row"]
    assert slow["lime"]["each"]["seconds"] == pytest.approx(0.04 + 50)
    assert slow["SOInter"]["fit"]["seconds"] == pytest.approx(9 + 50)
    assert slow["SOInter"]["explained"]["10000"]["seconds"] == 0.5


@pytest.mark.parametrize(("seconds_each", "verdict"), [(0.06, "reached"), (0.04, "**not reached**")])
def test_bars_are_judged_by_the_results(seconds_each, verdict, made_up, modules):
    made_up[1]["each"] = cost(seconds_each, 0.01, 5000)
    (line,) = modules.page.judged_peers(made_up)
    assert "1,000 x as fast as lime" in line[0]
    assert line[2] == verdict


def test_slopes_are_those_of_power_laws(modules):
    sizes = (1, 10, 100, 1000)
    rows = [{"axis": "outputs", "size": n, "fit": cost(2 * n**0.5), "explain": cost(3.0)} for n in sizes]
    page = modules.scaling_page
    assert page.slope(rows, "fit") == pytest.approx(0.5)
    assert page.slope(rows, "explain") == pytest.approx(0.0, abs=1e-9)
    assert page.growth(rows) == pytest.approx(1000**0.5)
    lines = [line for line in modules.page.judged({"scaling": rows}) if "outputs" in line[0]]
    assert lines == [["from 1 to 1,000 outputs: the fit costs at most 10 x as much", "31.6 x", "**not reached**"]]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (3e-6, "3.00 µs"),
        (4e-4, "400 µs"),
        (0.012, "12.0 ms"),
        (0.5, "0.50 s"),
        (90, "90 s"),
        (7200, "2.0 h"),
        (1e6, "11.6 days"),
    ],
)
def test_durations_read_well(seconds, text, modules):
    assert duration(seconds) == text
