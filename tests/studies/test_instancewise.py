"""The study of features that differ by sample: it runs from a clean clone, and measures what it says."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from repo_scripts import PICTURES, ROOT, run_smoke, run_studies, study_modules
from studies.frame import explaining

INSTANCEWISE = "instancewise"

for package in ("matplotlib", "lime", "shap", "pandas"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    return run_smoke(INSTANCEWISE, folder, folder / "cache")


@pytest.fixture(scope="module")
def modules():
    found = study_modules(INSTANCEWISE, "instancewise", "instancewise_page")
    return SimpleNamespace(**vars(found), explaining=explaining)


def results(folder: Path) -> list[dict]:
    return [
        json.loads(line) for line in (folder / "results" / INSTANCEWISE / "instancewise.jsonl").read_text().splitlines()
    ]


def test_the_smoke_setting_makes_results_page_and_figure(smoke):
    page = (smoke / "pages" / "instancewise.md").read_text()
    assert set(PICTURES.findall(page)) == {"instancewise.png"}
    assert (smoke / "images" / "instancewise.png").exists()
    for heading in ("INVASE's problems", "Harder switches", "Numbers", "What structure adds", "Signs", "Queries"):
        assert f"## {heading}" in page
    assert "Correlated" not in page, "a section without results must not be there"
    assert "nan" not in page


def test_results_hold_every_measure(smoke):
    rows = results(smoke)
    for row in rows:
        for of_target in row["targets"].values():
            assert {"tpr", "fdr", "exact"} <= set(of_target["given"])
            assert of_target["given"]["tpr"] == pytest.approx(1 - of_target["given"]["fdr"], abs=1e-3)
            assert ("own" in of_target) == row["method"].startswith(("SOInter", "Invase", "HideAndSeek"))
            assert ("sign" in of_target) == (row["problem"] == "logistic_regressions")
    syn = next(row for row in rows if row["problem"] == "syn_model")["targets"]
    assert [name for name in syn if "switch" in syn[name]["given"]] == ["syn4", "syn5", "syn6"]
    walks = next(row for row in rows if row["method"] == "ShapleySampling" and row["problem"] == "syn_model")
    assert all(walks["targets"][name]["given"]["exact"] == 1 for name in ("syn1", "syn2", "syn3"))
    assert walks["row_queries"] <= 100


def test_baselines_that_choose_a_size_are_asked_to(smoke):
    """A size that is the same for all outputs is that of the largest set, and was not chosen."""
    for row in results(smoke):
        if row["method"].startswith(("Invase", "HideAndSeek")):
            assert any(of_target["own"]["size"] != 5 for of_target in row["targets"].values())


def test_cases_that_have_a_result_are_not_run_again(smoke):
    again = run_studies("run", INSTANCEWISE, "--smoke", "--out", str(smoke))
    assert again.returncode == 0
    assert again.stdout == ""


def test_full_cases_use_fresh_seeds_in_matched_pairs_of_problems_that_exist(modules):
    study = modules.instancewise
    cases = list(study.cases(False))
    assert len({json.dumps(case) for case in cases}) == len(cases)
    assert {case["seed"] for case in cases} == {102, 103, 104, 105, 106}
    assert not any("quick" in case for case in cases)
    settings = {(c["problem"], c["n_features"], c["kind"]) for c in cases}
    for problem, n_features, kind in settings:
        planted = study.problem_of(problem, n_features, kind)
        assert planted.n_features == n_features
        assert planted.output_kind == kind
    seeds = [case["seed"] for case in cases]
    assert seeds == sorted(seeds), "an early stop must leave every problem"
    assert (cases[0]["problem"], cases[0]["method"]) == ("syn_model", "SOInter")

    def of_method(method):
        return {(c["problem"], c["n_features"], c["kind"], c["seed"]) for c in cases if c["method"] == method}

    assert len(of_method("SOInter")) == 5 * len(settings)
    for method in {case["method"] for case in cases}:
        assert of_method(method) <= of_method("SOInter"), f"{method} has cases without ours"
    assert {n for _, n, _, _ in of_method("Invase") | of_method("Invase, paper")} == {11}
    assert {c["method"] for c in cases if c["n_features"] == 100}.isdisjoint({"SOInter-1", "L2X", "Lime"})


def test_a_baseline_explains_only_its_targets_and_says_how_it_was_trained(modules, smoke):
    for row in results(smoke):
        if row["method"] == "Invase, paper":
            assert set(row["targets"]) == {"syn4", "syn5", "syn6"}
        assert bool(row["setting"]) == (row["method"] in modules.explaining.LEARNED)


def test_a_perfect_method_is_judged_perfect(modules):
    study = modules.instancewise
    planted = study.shuffled(study.problem_of("logistic_regressions", 12, "probability"), 1)
    X = planted.sample(50, random_state=0)
    truth = planted.relevant_rows(X, 2)
    towards_one = np.where(planted(X)[:, [2]] > 0.5, 1.0, -1.0)
    effects = planted.contributions(X, 2) * towards_one  # towards the value that is explained
    found = study.judged(planted, 2, X, truth, study.Found(truth, truth, effects))
    assert found["given"] == {"tpr": 1.0, "fdr": 0.0, "exact": 1.0}
    assert found["own"] == {"tpr": 1.0, "fdr": 0.0, "exact": 1.0, "size": 6.0}
    assert found["sign"] == 1.0


def test_what_an_explanation_says_is_used_if_it_says_it(modules):
    explaining = modules.explaining
    selected, scores = np.array([[2, 0], [1, -1]]), np.array([[0.5, 0.1, 0.9], [0.0, 1.0, 0.2]])
    unit_mask = np.array([[True, False, True], [False, True, False]])
    plain = SimpleNamespace(selected=selected, scores=scores, unit_mask=unit_mask)
    np.testing.assert_array_equal(explaining.own_selection(plain), unit_mask)
    more = SimpleNamespace(
        **vars(plain), needed=unit_mask & [True, True, False], effects=-scores, value=np.array([0.9, 0.2], dtype=object)
    )
    np.testing.assert_array_equal(explaining.own_selection(more), more.needed)
    np.testing.assert_array_equal(explaining.effects_of(more, "binary"), -scores)
    # A probability below one half is explained by what lowers it.
    np.testing.assert_array_equal(explaining.effects_of(more, "probability"), [[-0.5, -0.1, -0.9], [0.0, 1.0, 0.2]])
    first = explaining.first_of(explaining.ranking_of(plain), np.array([1, 2]), 3)
    assert first.tolist() == [[False, False, True], [False, True, False]]
    assert explaining.baseline("NoSuchBaseline") is None
    assert explaining.size_of_fit(lambda model, k="auto": None, 4) == {}
    assert explaining.size_of_fit(lambda model, k=10: None, 4) == {"k": 4}


def test_intervals_are_over_seeds_and_pairs(modules):
    page = modules.instancewise_page

    def row(method: str, seed: int, exact: float) -> dict:
        measures = {"tpr": exact, "fdr": 1 - exact, "exact": exact}
        return {
            "problem": "syn4",
            "n_features": 11,
            "kind": "binary",
            "method": method,
            "seed": seed,
            "targets": {"syn4": {"given": measures}},
        }

    rows = [row(m, s, e + s / 10) for m, e in (("SOInter", 0.5), ("SOInter-1", 0.2)) for s in range(3)]
    assert page.by_seed(rows[:3], "given", "exact") == {0: 0.5, 1: 0.6, 2: 0.7}
    assert page.by_seed(rows[:3], "own", "exact") == {}
    assert "| syn4, 11 features, labels | 3 | 0.30 [0.30, 0.30] |  |" in page.structure_section(rows)


def test_bars_are_judged_by_the_worst_output_and_what_was_missed_comes_first(modules):
    page = modules.instancewise_page

    def row(seed: int, exact: float, tpr: float) -> dict:
        given, own = {"exact": exact}, {"tpr": tpr, "fdr": 0.004}
        targets = {f"syn{number}": {"given": {"exact": 1.0}, "own": own} for number in range(1, 6)}
        return {
            "problem": "syn_model",
            "n_features": 11,
            "kind": "probability",
            "method": "SOInter",
            "seed": seed,
            "targets": {**targets, "syn6": {"given": given, "own": own}},
        }

    rows = [row(101, 0.98, 0.98), row(102, 1.0, 0.99)]
    judged = {one.bar.measure: one for one in page.outcomes(rows)}
    assert {measure: one.is_reached for measure, one in judged.items()} == {"exact": True, "tpr": False, "fdr": True}
    assert judged["exact"].line()[2:] == ("at least 0.99", "0.990 (syn6)", "0.980", "2", "yes")
    section = page.bars_section(rows)
    assert "reached 2 of 3 bars" in section
    assert section.index("**no**") < section.index("| yes |")


def test_a_line_says_how_many_seeds_stand_behind_it(modules):
    page = modules.instancewise_page
    rows = {"SOInter": [{"seed": 1}, {"seed": 2}], "Invase": [{"seed": 1}], "L2X": []}
    assert page.seeds_of_line(rows) == "2; Invase 1"


def test_there_is_no_page_without_results():
    kept = list((ROOT / "studies" / "results" / INSTANCEWISE).glob("*.jsonl"))
    assert bool(kept) == (ROOT / "docs" / "results" / "instancewise.md").exists()


def test_what_is_weak_is_said_with_who_is_better(modules):
    def row(problem: str, method: str, exact: float) -> dict:
        of_target = {"given": {"tpr": exact, "fdr": 1 - exact, "exact": exact}}
        setting = {"problem": problem, "n_features": 11, "kind": "binary", "seed": 1}
        return {**setting, "method": method, "targets": {"y": of_target}}

    rows = [row("syn4", "SOInter", 0.97), row("syn4", "KernelShap", 0.99), row("syn5", "SOInter", 0.5)]
    rows += [row("syn6", "SOInter", 0.95), row("syn6", "KernelShap", 0.4)]
    said = modules.instancewise_page.weak_section(rows)
    assert "| syn4, 11 features, labels | y | 0.97 | 0.99 (KernelShap) |" in said
    assert "| syn5, 11 features, labels | y | 0.50 |  |" in said
    assert "syn6" not in said
    assert modules.instancewise_page.weak_section(rows[3:]) == ""
