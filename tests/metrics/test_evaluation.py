"""Judging explanations with the model: planted truth, measures recomputed slowly, and the same questions for all."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

from quick import few_hide_and_seek_epochs
from sointer.errors import InputError, MissingExtraError
from sointer.explainers.baselines.base import NearestPixels, Random
from sointer.explainers.baselines.invase import DEFAULTS
from sointer.explainers.baselines.lime_and_shap import KernelShap, Lime
from sointer.metrics.evaluation import N_PAIRED_DRAWS, TARGETS_PER_ROW, choose_cases, evaluate
from sointer.metrics.faithfulness import keep_and_delete
from sointer.zoo.planted_segmenters import WindowSegmenter
from sointer.zoo.segmenter import random_scenes

pytest.importorskip("lime")
pytest.importorskip("shap")

METHODS = ["SOInter", "Random", "GlobalList", "Lime", "KernelShap", "HideAndSeek"]


@pytest.fixture(scope="module", autouse=True)
def quick_baselines():
    with few_hide_and_seek_epochs():
        yield


@pytest.fixture(scope="module")
def found(small_explainer, small_data):
    return evaluate(small_explainer, small_data, n_rows=20, n_samples=200)


def test_who_knows_the_truth_wins(found):
    scores = {method.name: method for method in found.methods}
    assert list(scores) == METHODS
    ours, chance = scores["SOInter"], scores["Random"]
    assert ours.fidelity.mean > 0.97
    assert ours.fidelity.low > chance.fidelity.high
    assert ours.sufficient > chance.sufficient
    assert ours.fidelity_otherwise > chance.fidelity_otherwise
    assert ours.stability > 0.95 > 0.6 > chance.stability
    assert ours.size < 4 < chance.size
    assert (found.fidelity, found.k, found.removal, found.other_removal) == (ours.fidelity.mean, 4, "marginal", "mean")


def test_without_a_size_every_method_keeps_as_many_as_the_explainer_selects(small_explainer, small_data):
    found = evaluate(small_explainer, small_data, n_rows=20, k="auto", against=["Random"])
    ours, chance = found.methods
    assert found.k == "auto"
    assert found.n_kept == 4  # which is how many matter, of 8
    assert ours.fidelity.mean > 0.95
    assert ours.fidelity.low > chance.fidelity.high
    assert f"as many features kept as SOInter selects ({found.n_kept:.1f} on average)" in found.table()
    assert json.loads(json.dumps(found.to_json()))["k"] == "auto"


def test_keep_and_delete_stand_side_by_side(found):
    scores = {method.name: method for method in found.methods}
    assert found.ks == [1, 3, 4]
    for method in found.methods:
        assert len(method.keep) == len(method.delete) == 3
        assert all(0 <= share <= 1 for share in [*method.keep, *method.delete])
    ours, chance = scores["SOInter"], scores["Random"]
    for place in (1, 2):
        assert ours.keep[place] > chance.keep[place]
        assert ours.delete[place] > chance.delete[place]
    assert ours.keep[2] > 0.97
    lines = found.table().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("keep/delete"))
    assert lines[start].split() == ["keep/delete", "k=1", "k=3", "k=4", "fit", "queries", "fit", "s"]
    shown = f"{ours.keep[2]:.2f}/{ours.delete[2]:.2f}"
    assert lines[start + 1].split()[:4][-1] == shown
    assert [line.split()[0] for line in lines[start + 1 : start + 7]] == METHODS


def test_keep_and_delete_are_those_of_the_metric(small_problem, small_data):
    explainer = Random(small_problem, k=5, random_state=0).fit(small_data)
    rows = small_data[:25]
    found = evaluate(explainer, rows, n_rows=25, against=[], ks=[2, 6])
    every = explainer.explain(np.repeat(rows, 2, axis=0), [0, 1] * 25, k=8)
    measured = keep_and_delete(every, ks=[2, 6], n_draws=N_PAIRED_DRAWS)
    assert found.ks == [2, 6]
    assert found.methods[0].keep == pytest.approx(measured.keep.tolist())
    assert found.methods[0].delete == pytest.approx(measured.delete.tolist())


def test_one_list_for_all_rows_is_a_control_that_rows_that_differ_beat():
    """Which of two features counts depends on a third: no single list is right everywhere."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 8))

    def model(X):
        return np.where(X[:, 0] > 0, X[:, 1], X[:, 2])[:, None] > 0

    explainer = KernelShap(model, k=2, n_samples=500, random_state=0).fit(X)
    found = evaluate(explainer, X, n_rows=60, ks=[2], against=["GlobalList", "Random"])
    scores = {method.name: method for method in found.methods}
    assert scores["KernelShap"].keep[0] > scores["GlobalList"].keep[0] + 0.03
    assert scores["GlobalList"].keep[0] > scores["Random"].keep[0]
    assert scores["GlobalList"].stability == 1.0


def test_queries_are_counted(found, small_explainer):
    queried = {method.name: method.queries_per_row for method in found.methods}
    assert (queried["SOInter"], queried["Random"]) == (0, 0)
    assert 100 < queried["Lime"] <= 200
    assert 100 < queried["KernelShap"] <= 200
    fitting = {method.name: method.n_fit_queries for method in found.methods}
    assert fitting["SOInter"] == fitting["HideAndSeek"] == small_explainer.n_queries_
    assert fitting["Random"] == fitting["GlobalList"] == fitting["Lime"] == 0
    assert np.isnan(found.methods[0].fit_seconds)
    assert found.methods[-1].fit_seconds > 0
    assert found.n_queries > 20 * (queried["Lime"] + queried["KernelShap"])


def test_fidelity_is_that_of_verify(small_problem, small_data):
    """With every row and output, and no randomness in the removal, both ask the very same questions."""
    explainer = Random(small_problem, k=5, removal="mean", random_state=0).fit(small_data)
    rows = small_data[:25]
    found = evaluate(explainer, rows, n_rows=25, against=[])
    said = small_problem(rows)
    checks = [explainer.explain(rows, t, predicted=said).verify() for t in range(2)]
    assert found.fidelity == pytest.approx(np.mean([check.fidelity for check in checks]))
    assert found.methods[0].sufficient == pytest.approx(np.mean([check.confirmed for check in checks]))
    shares = {target.target: target.fidelity for target in found.targets}
    assert shares == pytest.approx({f"y{t}": checks[t].fidelity for t in range(2)})
    smallest = [explainer.explain(rows, t, k="auto", predicted=said).n_selected.mean() for t in range(2)]
    assert found.methods[0].size == pytest.approx(np.mean(smallest))


def test_the_same_seed_gives_the_same_result(small_explainer, small_data):
    ask = {"n_rows": 5, "against": ["Random"], "random_state": 3}
    first, second = (evaluate(small_explainer, small_data, **ask).to_json() for _ in range(2))
    for result in (first, second):
        for method in result["methods"]:
            del method["ms_per_row"], method["fit_seconds"]
    assert first == second
    other = evaluate(small_explainer, small_data, n_rows=5, against=["Random"], random_state=4).to_json()
    assert other["methods"][1]["fidelity"] != first["methods"][1]["fidelity"]


@pytest.mark.usefixtures("global_random_state_is_left_alone")
def test_global_random_state_is_left_alone(small_explainer, small_data):
    evaluate(small_explainer, small_data, n_rows=2, n_samples=20)


def test_the_table_has_a_line_for_every_method_and_output(found):
    lines = found.table().splitlines()
    assert lines[0] == "20 rows, 40 explanations, 4 features kept, the others removed: marginal"
    assert [line.split()[0] for line in lines[3:9]] == METHODS
    assert {line.split()[0] for line in lines[-2:]} == {"y0", "y1"}
    assert max(map(len, lines)) <= 105


def test_as_json_it_is_all_there(found):
    result = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert result["n_rows"] == 20
    assert result["methods"][0]["fidelity"]["mean"] == found.fidelity


def test_of_many_outputs_some_are_asked_about_and_half_of_them_are_unusual():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20))

    def tags(X):
        return (X > 1.5).astype(int)  # each is rarely given

    explainer = Random(tags, k=1, random_state=0).fit(X)
    answers = tags(X[:60])
    row, target = choose_cases(answers, explainer, list(range(20)), rng)
    assert len(row) == len(target) == 60 * TARGETS_PER_ROW
    for i in range(60):
        chosen = target[row == i]
        assert len(set(chosen.tolist())) == TARGETS_PER_ROW
        assert answers[i, chosen].sum() >= min(TARGETS_PER_ROW // 2, answers[i].sum())


def test_any_explainer_of_tables_with_categories_and_some_targets():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"colour": pd.Categorical(rng.choice(["red", "blue"], 300)), "size": rng.normal(size=300)})

    def model(X):
        return pd.DataFrame({"is red": X["colour"] == "red", "is big": X["size"] > 0})

    explainer = Lime(model, k=1, n_samples=50, random_state=0).fit(X)
    found = evaluate(explainer, X, n_rows=10, targets=["is big"], n_samples=50)
    assert [method.name for method in found.methods] == [
        "Lime",
        "Random",
        "GlobalList",
        "Lime",
        "KernelShap",
        "HideAndSeek",
    ]
    assert [target.target for target in found.targets] == ["is big"]
    assert found.fidelity == 1.0


def test_methods_that_are_not_installed_are_left_out_unless_named(small_explainer, small_data, monkeypatch):
    monkeypatch.setitem(sys.modules, "lime", None)
    messages: list[str] = []
    found = evaluate(small_explainer, small_data, n_rows=4, n_samples=20, tell=messages.append)
    assert [method.name for method in found.methods] == [name for name in METHODS if name != "Lime"]
    assert messages[0] == 'Lime is left out, for lime is not installed (pip install "sointer[baselines]")'
    with pytest.raises(MissingExtraError, match="lime"):
        evaluate(small_explainer, small_data, n_rows=4, against=["Lime"])


def test_trees_are_looked_into_and_trained_baselines_named(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5))
    forest = RandomForestClassifier(10, random_state=0).fit(X, (X[:, [0, 3]] > 0).astype(int))
    explainer = Random(forest, k=1, random_state=0).fit(X)
    messages: list[str] = []
    found = evaluate(explainer, X, n_rows=10, n_samples=20, ks=[1], tell=messages.append)
    assert [method.name for method in found.methods] == ["Random", *METHODS[1:5], "TreeShap", "HideAndSeek"]
    scores = {method.name: method for method in found.methods}
    assert scores["TreeShap"].keep[0] > 0.9 > scores["Random"].keep[0]
    assert scores["TreeShap"].queries_per_row == scores["TreeShap"].n_fit_queries == 0
    assert "Invase is left out, for it trains for minutes; name it to include it" in messages
    assert "training HideAndSeek with 200 queries, once for each of 2 outputs" in messages
    pytest.importorskip("invase")
    monkeypatch.setattr("sointer.explainers.baselines.invase.ESTIMATOR_STEPS", 200)
    monkeypatch.setitem(DEFAULTS["package"], "n_steps", 10)
    named = evaluate(explainer, X, n_rows=10, n_samples=20, ks=[1], against=["all"])
    assert [method.name for method in named.methods] == [*(method.name for method in found.methods), "Invase"]
    assert named.methods[-1].n_fit_queries == 200
    assert named.methods[-1].keep[0] > scores["Random"].keep[0]


def test_images_are_judged_by_swaps_and_fidelity_is_never_without_j():
    images = random_scenes(80, size=16).images
    model = WindowSegmenter(images)
    explainer = NearestPixels(model, k=9, random_state=0).fit(images)
    messages: list[str] = []
    targets = [(2, 2), (3, 5), (5, 4)]
    pixels = [row * 16 + column for row, column in targets]
    found = evaluate(explainer, images, targets=pixels, n_rows=30, n_samples=60, ks=[1, 9], tell=messages.append)
    names = [method.name for method in found.methods]
    assert names == ["NearestPixels", "Random", "NearestPixels", "Rise", "Occlusion", "Lime", "KernelShap"]
    assert not any("is left out" in line for line in messages)
    scores = {method.name: method for method in found.methods[1:]}
    nearest, random = scores["NearestPixels"], scores["Random"]
    # The window around the target decides: its nine pixels carry the label, others do not.
    assert nearest.insert[1] == nearest.delete[1] == 1.0
    assert max(random.insert[1], random.delete[1]) < 0.5
    assert nearest.j["black"][1] == 1.0
    assert abs(random.j["black"][1]) < 0.5
    assert found.methods[0].keep == []
    assert found.to_json()["methods"][0]["j"]["mean"] == found.methods[0].j["mean"]
    table = found.table()
    assert "insert/delete" in table
    assert "J black/mean" in table
    assert "keep/delete" not in table
    with pytest.raises(InputError, match="TreeShap is for tables only; leave it out"):
        evaluate(explainer, images, against=["treeshap"])


def test_where_no_image_has_another_label_nothing_is_said_of_swaps():
    images = np.random.default_rng(0).random((40, 1, 3, 3))
    explainer = Random(lambda X: np.zeros((len(X), 3, 3), dtype=int), k=1, random_state=0).fit(images)
    found = evaluate(explainer, images, n_rows=3, against=[])
    assert found.methods[0].insert == []
    assert "insert" not in found.table()
    with pytest.raises(InputError, match="ks must be from 1 to 9, the number of pixels"):
        evaluate(explainer, images, n_rows=3, ks=[10], against=[])


def test_methods_for_images_are_refused_for_tables(small_explainer, small_data):
    with pytest.raises(InputError, match="Rise is for images and models that return masks only; leave it out"):
        evaluate(small_explainer, small_data, against=["Random", "Rise"])


def test_many_outputs_are_not_trained_for_unless_named():
    X = np.random.default_rng(0).normal(size=(100, 10))
    explainer = Random(lambda X: (X > 0).astype(int), k=1, random_state=0).fit(X)
    messages: list[str] = []
    evaluate(explainer, X, n_rows=2, n_samples=10, tell=messages.append)
    assert "HideAndSeek is left out, for it would train 10 times, once per output; name it to include it" in messages


def test_wrong_arguments(small_explainer, small_data, tmp_path):
    import sointer

    with pytest.raises(InputError, match="no method 'Shap'"):
        evaluate(small_explainer, small_data, against=["Shap"])
    with pytest.raises(InputError, match="unknown output"):
        evaluate(small_explainer, small_data, targets=["nothing"])
    with pytest.raises(InputError, match="k must be from 1 to 8"):
        evaluate(small_explainer, small_data, k=9, n_rows=1)
    with pytest.raises(InputError, match="ks must be from 1 to 8"):
        evaluate(small_explainer, small_data, ks=[9], n_rows=1, against=[])
    with pytest.raises(InputError, match="TreeShap looks inside tree models"):
        evaluate(small_explainer, small_data, n_rows=1, against=["TreeShap"])
    with pytest.raises(InputError, match="n_rows must be"):
        evaluate(small_explainer, small_data, n_rows=0)
    small_explainer.save(tmp_path / "why")
    with pytest.raises(InputError, match="no model to query"):
        evaluate(sointer.load(tmp_path / "why"), small_data)
