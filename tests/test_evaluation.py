"""Judging explanations with the model: planted truth, measures recomputed slowly, and the same questions for all."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest

from sointer.baselines import Lime, Random
from sointer.errors import InputError, MissingExtraError
from sointer.evaluation import evaluate
from sointer.evaluation.compare import TARGETS_PER_ROW, choose_questions

pytest.importorskip("lime")
pytest.importorskip("shap")


@pytest.fixture(scope="module")
def found(small_explainer, small_data):
    return evaluate(small_explainer, small_data, n_rows=20, n_samples=200)


def test_who_knows_the_truth_wins(found):
    scores = {method.name: method for method in found.methods}
    assert list(scores) == ["SOInter", "Random", "Lime", "KernelShap"]
    ours, chance = scores["SOInter"], scores["Random"]
    assert ours.fidelity.mean > 0.97
    assert ours.fidelity.low > chance.fidelity.high
    assert ours.sufficient > chance.sufficient
    assert ours.fidelity_otherwise > chance.fidelity_otherwise
    assert ours.stability > 0.95 > 0.6 > chance.stability
    assert ours.size < 4 < chance.size
    assert (found.fidelity, found.k, found.removal, found.other_removal) == (ours.fidelity.mean, 4, "marginal", "mean")


def test_queries_are_counted(found, small_explainer):
    asked = {method.name: method.queries_per_row for method in found.methods}
    assert (asked["SOInter"], asked["Random"]) == (0, 0)
    assert 100 < asked["Lime"] <= 200
    assert 100 < asked["KernelShap"] <= 200
    assert found.methods[0].n_fit_queries == small_explainer.n_queries_
    assert found.n_queries > 20 * (asked["Lime"] + asked["KernelShap"])


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
    for facts in (first, second):
        for method in facts["methods"]:
            del method["ms_per_row"]
    assert first == second
    other = evaluate(small_explainer, small_data, n_rows=5, against=["Random"], random_state=4).to_json()
    assert other["methods"][1]["fidelity"] != first["methods"][1]["fidelity"]


@pytest.mark.usefixtures("global_random_state_is_left_alone")
def test_global_random_state_is_left_alone(small_explainer, small_data):
    evaluate(small_explainer, small_data, n_rows=2, n_samples=20)


def test_the_table_has_a_line_for_every_method_and_output(found):
    lines = found.table().splitlines()
    assert lines[0] == "20 rows, 40 questions, 4 features kept, the others removed: marginal"
    assert [line.split()[0] for line in lines[3:7]] == ["SOInter", "Random", "Lime", "KernelShap"]
    assert {line.split()[0] for line in lines[-2:]} == {"y0", "y1"}
    assert max(map(len, lines)) <= 105


def test_as_json_it_is_all_there(found):
    facts = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert facts["n_rows"] == 20
    assert facts["methods"][0]["fidelity"]["mean"] == found.fidelity


def test_of_many_outputs_some_are_asked_about_and_half_of_them_are_unusual():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20))

    def tags(X):
        return (X > 1.5).astype(int)  # each is rarely given

    explainer = Random(tags, k=1, random_state=0).fit(X)
    answers = tags(X[:60])
    row, target = choose_questions(answers, explainer, list(range(20)), rng)
    assert len(row) == len(target) == 60 * TARGETS_PER_ROW
    for i in range(60):
        asked = target[row == i]
        assert len(set(asked.tolist())) == TARGETS_PER_ROW
        assert answers[i, asked].sum() >= min(TARGETS_PER_ROW // 2, answers[i].sum())


def test_any_explainer_of_tables_with_categories_and_some_targets():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"colour": pd.Categorical(rng.choice(["red", "blue"], 300)), "size": rng.normal(size=300)})

    def model(X):
        return pd.DataFrame({"is red": X["colour"] == "red", "is big": X["size"] > 0})

    explainer = Lime(model, k=1, n_samples=50, random_state=0).fit(X)
    found = evaluate(explainer, X, n_rows=10, targets=["is big"], n_samples=50)
    assert [method.name for method in found.methods] == ["Lime", "Random", "Lime", "KernelShap"]
    assert [target.target for target in found.targets] == ["is big"]
    assert found.fidelity == 1.0


def test_methods_that_are_not_installed_are_left_out_unless_named(small_explainer, small_data, monkeypatch):
    monkeypatch.setitem(sys.modules, "lime", None)
    told: list[str] = []
    found = evaluate(small_explainer, small_data, n_rows=4, n_samples=20, tell=told.append)
    assert [method.name for method in found.methods] == ["SOInter", "Random", "KernelShap"]
    assert told[0] == 'Lime is left out, for lime is not installed (pip install "sointer[baselines]")'
    with pytest.raises(MissingExtraError, match="lime"):
        evaluate(small_explainer, small_data, n_rows=4, against=["Lime"])


def test_wrong_arguments(small_explainer, small_data, tmp_path):
    import sointer

    with pytest.raises(InputError, match="no method 'Shap'"):
        evaluate(small_explainer, small_data, against=["Shap"])
    with pytest.raises(InputError, match="unknown output"):
        evaluate(small_explainer, small_data, targets=["nothing"])
    with pytest.raises(InputError, match="k must be from 1 to 8"):
        evaluate(small_explainer, small_data, k=9, n_rows=1)
    with pytest.raises(InputError, match="n_rows must be"):
        evaluate(small_explainer, small_data, n_rows=0)
    small_explainer.save(tmp_path / "why")
    with pytest.raises(InputError, match="no model to ask"):
        evaluate(sointer.load(tmp_path / "why"), small_data)
