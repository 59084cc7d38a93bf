"""The study of real tables: it runs from a clean clone, and measures what it says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logit

from repo_scripts import PICTURES, ROOT, run_smoke, run_studies, study_modules
from sointer.explainers.baselines.tree_shap import TreeShap

TABLES = "tables"

for package in ("matplotlib", "lime", "shap"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    return run_smoke(TABLES, folder, folder / "cache")


@pytest.fixture(scope="module")
def modules():
    return study_modules(TABLES, "tables", "tables_page", "black_boxes")


def test_the_smoke_setting_makes_results_page_and_figure(smoke):
    rows = [json.loads(line) for line in (smoke / "results" / TABLES / "tables.jsonl").read_text().splitlines()]
    for row in rows:
        assert len(row["keep"]) == len(row["delete"]) == len(row["sizes"])
        assert all(0 <= value <= 1 for value in row["keep"] + row["delete"])
    ours = next(row for row in rows if row["method"] == "SOInter")
    assert ours["row_queries"] == 0
    assert 0 < ours["fit_queries"] <= 300
    walks = next(row for row in rows if row["method"] == "ShapleySampling")
    assert 0 < walks["row_queries"] <= 60
    page = (smoke / "pages" / "tables.md").read_text()
    assert set(PICTURES.findall(page)) == {"tables.png"}
    assert (smoke / "images" / "tables.png").exists()
    assert "| wine, forest | TreeShap | 2 |" in page
    assert "nan" not in page


def test_cases_that_have_a_result_are_not_run_again(smoke):
    again = run_studies("run", TABLES, "--smoke", "--out", str(smoke))
    assert again.returncode == 0
    assert again.stdout == ""


def test_full_cases_use_fresh_seeds_and_only_methods_that_apply(modules):
    cases = list(modules.tables.cases(False))
    assert len({json.dumps(case) for case in cases}) == len(cases)
    assert {case["seed"] for case in cases} == {102, 103, 104, 105, 106}
    by_model = {(case["table"], case["model"]) for case in cases}
    assert by_model == {(table, model) for table, models in modules.black_boxes.MODELS.items() for model in models}
    for model in modules.tables_page.BAR_MODELS:
        for method in ("SOInter", "ShapleySampling", "One list", "Random"):
            of_both = [c["seed"] for c in cases if (c["table"], c["model"]) == model and c["method"] == method]
            assert sorted(of_both) == [102, 103, 104, 105, 106]
    firsts = [(case["seed"], case["table"], case["model"]) for case in cases]
    assert [seed for seed, *_ in firsts] == sorted(seed for seed, *_ in firsts), "an early stop must leave every model"
    assert firsts[0] == (102, "emotions", "forest")
    looked_inside = {case["model"] for case in cases if case["method"] == "TreeShap"}
    assert looked_inside == {"forest", "boosting", "extra trees", "demo"}
    assert all(
        {"SOInter", "ShapleySampling", "Random"} <= set(modules.tables.methods_of(model)) for _, model in by_model
    )


# --- keep and delete ----------------------------------------------------------------------------------------


def test_rankings_are_judged_target_by_target(modules):
    rng = np.random.default_rng(1)
    data = modules.black_boxes.Table(rng.normal(size=(300, 6)), None, None, None, sizes=(1, 5), n_queries=300)
    X = rng.normal(size=(150, 6))
    model = modules.black_boxes.Model(lambda Z: (Z[:, [2, 4]] > 0).astype(int), kind="binary")
    right = np.array([[2, 0, 1, 3, 5], [4, 0, 1, 3, 5]])[:, None].repeat(150, axis=1)
    found = modules.tables.judge(data, model, X, right, seed=0, n_draws=6)
    assert found.keep.tolist() == [1.0, 1.0]
    assert 0.4 < found.delete[0] < 0.6
    wrong = modules.tables.judge(data, model, X, right[::-1], seed=0, n_draws=6)
    assert wrong.keep[0] < 0.6
    assert wrong.delete.tolist() == [0.0, 0.0]


def test_numbers_stay_within_half_a_standard_deviation(modules):
    rng = np.random.default_rng(1)
    data = modules.black_boxes.Table(
        rng.normal(size=(2000, 3)), None, None, None, sizes=(1,), n_queries=300, numbers=True
    )
    X = rng.normal(size=(500, 3))
    order = np.zeros((2, 500, 1), dtype=int)
    # With the first feature kept, outputs differ by less and by more than half of their standard deviation.
    numbers = lambda Z: np.column_stack([Z[:, 0] + 0.1 * (Z[:, 1] > 0), Z[:, 1] + Z[:, 0]])  # noqa: E731
    model = modules.black_boxes.Model(numbers, kind="continuous")
    keep = modules.tables.judge(data, model, X, order, seed=0, n_draws=1).keep_rows.reshape(2, -1)
    assert (keep[0] == 1).all()
    assert 0.2 < keep[1].mean() < 0.6


def test_a_model_that_is_certain_about_training_rows_is_judged_by_its_side_of_one_half(modules):
    rng = np.random.default_rng(1)
    X_train, X = rng.normal(size=(300, 6)), rng.normal(size=(60, 6))
    certain = {row.tobytes() for row in X_train}

    def predict(Z: np.ndarray) -> np.ndarray:
        sure = np.array([z.tobytes() in certain for z in Z])[:, None]
        return np.where(
            Z[:, [2, 4]] > 0, np.where(sure, 1.0, 0.6 + 0.03 * Z[:, [0]].clip(-1, 1)), np.where(sure, 0.0, 0.3)
        )

    data = modules.black_boxes.Table(X_train, None, None, None, sizes=(1, 5), n_queries=300)
    model = modules.black_boxes.Model(predict)
    ranked = modules.tables.rank("ShapleySampling", data, model, X, seed=0, quick=True)
    assert (ranked.rankings[:, :, 0] == [[2], [4]]).mean() > 0.8
    right = np.array([[2, 0, 1, 3, 5], [4, 0, 1, 3, 5]])[:, None].repeat(60, axis=1)
    assert modules.tables.judge(data, model, X, right, seed=0, n_draws=3).keep.tolist() == [1.0, 1.0]


def test_methods_draw_from_the_training_rows_that_judge_them(modules):
    """More training rows than the 1,000 that are kept to draw from, so that the choice of rows matters."""
    rng = np.random.default_rng(1)
    X, X_train = rng.normal(size=(40, 3)), rng.normal(size=(1500, 3))
    second = dict(zip(X_train[:, 0], X_train[:, 1], strict=True))
    drawn: set[float] = set()

    def predict(Z: np.ndarray) -> np.ndarray:
        # The first feature is that of a training row whose second feature was not taken: a draw, not the row itself.
        drawn.update(z[0] for z in Z if second.get(z[0], z[1]) != z[1])
        return (Z[:, [0, 1]] > 0).astype(float)

    data = modules.black_boxes.Table(X_train, None, None, None, sizes=(1, 2), n_queries=6000)
    model = modules.black_boxes.Model(predict)
    modules.tables.judge(data, model, X, np.zeros((2, 40, 2), dtype=int), seed=3, n_draws=120)
    judging = set(drawn)
    assert 900 < len(judging) <= 1000
    drawn.clear()
    modules.tables.rank("ShapleySampling", data, model, X, seed=3, quick=True)
    assert len(drawn) > 100
    assert len(drawn - judging) <= 0.05 * len(drawn), "removed features come from other rows than in the judge's draws"


# --- TreeSHAP -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "model"), [("wine", "forest"), ("breast cancer", "boosting"), ("diabetes", "forest")]
)
def test_tree_shap_is_evidence_for_what_was_predicted(modules, table, model):
    """Together with the expectation, which is the same for all rows, it adds up to the output."""
    data, fitted = modules.black_boxes.load_table(table, 0), modules.black_boxes.fit_model(table, model, 0)
    X = data.X_test[:20]
    predicted = np.asarray(fitted(X), dtype=float)
    n_targets, k = predicted.shape[1], max(data.sizes)
    ranked = modules.tables.rank("TreeShap", data, fitted, X, 0, quick=True)
    assert ranked.rankings.shape == (n_targets, len(X), k)
    assert (ranked.fit_queries, ranked.row_queries) == (0, 0.0)
    trees = TreeShap(fitted.trees, k=k, random_state=0).fit(data.X_train)
    labels = predicted if data.numbers else (predicted > 0.5).astype(int)
    scores = modules.tables.explain_all(trees, X, n_targets, labels)
    assert (ranked.rankings == modules.tables.ranking(scores, k, 0)).all()
    if table == "diabetes":  # of numbers, sizes
        assert scores.min() >= 0
        return
    outputs = logit(predicted) if model == "boosting" else predicted
    signs = np.where(predicted > 0.5, 1.0, -1.0)
    left_over = outputs.T - signs.T * scores.sum(axis=2)
    np.testing.assert_allclose(left_over, np.repeat(left_over[:, :1], len(X), axis=1), atol=1e-4)


# --- tables and models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["wine", "breast cancer", "diabetes", "digits"])
def test_tables_have_several_outputs_that_are_no_inputs(modules, table):
    data = modules.black_boxes.load_table(table, 0)
    assert data.Y_train.shape[1] >= 3
    assert max(data.sizes) < data.X_train.shape[1]
    assert len(data.X_train) == len(data.Y_train)
    if not data.numbers:
        assert set(np.unique(data.Y_train)) == {0, 1}
        assert (data.Y_train.min(axis=0) < data.Y_train.max(axis=0)).all()
    seen = {row.tobytes() for row in data.X_train}
    assert np.mean([row.tobytes() in seen for row in data.X_test]) < 0.05


@pytest.mark.parametrize("model", ["forest", "chain", "MLP"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_models_give_one_probability_per_output(modules, model):
    data, fitted = modules.black_boxes.load_table("wine", 0), modules.black_boxes.fit_model("wine", model, 0)
    given = fitted(data.X_test)
    assert given.shape == data.Y_test.shape
    assert given.min() >= 0
    assert given.max() <= 1
    assert modules.tables.quality(data, fitted) > 0.8


@pytest.mark.skipif("SOINTER_DATA" not in os.environ, reason="needs local copies of emotions and scene")
@pytest.mark.parametrize(("table", "n_rows"), [("emotions", 100), ("scene", 60)])
def test_public_tables_come_with_their_official_split(modules, table, n_rows):
    data = modules.black_boxes.load_table(table, 101)
    assert data.Y_train.shape[1] == 6
    assert data.sizes == (3, 8, 15, 30)
    assert data.n_rows == n_rows < len(data.X_test)
    assert data is modules.black_boxes.load_table(table, 101)


# --- the page -----------------------------------------------------------------------------------------------


def row_of(method: str, seed: int, keep: float, delete: float) -> dict:
    return {
        "table": "digits",
        "model": "extra trees",
        "method": method,
        "seed": seed,
        "sizes": [3, 5, 10, 20],
        "keep": [0.0, 0.0, keep, 1.0],
        "delete": [0.0, 0.0, delete, 1.0],
    }


def test_bars_are_judged_at_their_k_over_common_seeds_and_what_was_missed_comes_first(modules):
    page = modules.tables_page
    rows = [
        row_of("SOInter", 101, 0.80, 0.45),
        row_of("SOInter", 102, 0.90, 0.35),
        row_of("SOInter", 103, 0.00, 0.00),  # the other methods have not come that far
        *(row_of("TreeShap", seed, 0.87, 0.45) for seed in (101, 102)),
        row_of("ShapleySampling", 101, 0.80, 0.47),
    ]
    found = page.by_subject_and_method(rows)
    judged = {(one.baseline, one.measure): one for one in page.outcomes(found)}
    assert {key: one.is_reached for key, one in judged.items()} == {
        ("ShapleySampling", "keep"): True,
        ("ShapleySampling", "delete"): False,
        ("TreeShap", "keep"): True,
        ("TreeShap", "delete"): True,
    }
    assert judged["TreeShap", "keep"].line()[3:] == ("0.850 (0.870 - 0.02)", "0.850", "2", "yes")
    section = page.bars_section(found)
    assert "reached 3 of 4 bars" in section
    assert section.index("**no**") < section.index("| yes |")
    assert "| digits, extra trees | ShapleySampling | 10 | 1 | 0.00 | -0.02 |" in page.pairs_section(found)


def test_there_is_no_page_without_results():
    kept = list((ROOT / "studies" / "results" / TABLES).glob("tables*.jsonl"))
    assert bool(kept) == (ROOT / "docs" / "results" / "tables.md").exists()
