"""The contract of SOInter: what every fitted explainer promises, whatever its preset."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.tree import DecisionTreeRegressor

import sointer
from quick import TAUGHT, quick_fit
from sointer import BlackBox, EnergyConfig, SOInter, TrainingConfig

pytestmark = [
    pytest.mark.usefixtures("global_random_state_is_left_alone"),
    pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning"),
]

PAPER = {"preset": "paper", "query_budget": 600, "training": TrainingConfig(n_rounds=4, n_pretraining_steps=50)}
VARIANTS = {
    "default": {},
    "target alone": {"structured": False},
    "paper": PAPER,
    "paper, target alone": {**PAPER, "structured": False},
}


@pytest.fixture(scope="module", params=list(VARIANTS))
def fitted(request, small_problem, small_data):
    return quick_fit(small_problem, small_data[:300], k=3, random_state=7, **VARIANTS[request.param])


def test_shapes_and_meaning(fitted, small_data):
    explanation = fitted.explain(small_data[:20], target=1)
    assert explanation.selected.shape == (20, 3)
    assert explanation.scores.shape == (20, 8)
    assert explanation.mask.shape == (20, 8)
    assert (explanation.mask.sum(axis=1) == 3).all()
    for row in range(20):
        assert set(np.flatnonzero(explanation.mask[row])) == set(explanation.selected[row])
        chosen = explanation.scores[row, explanation.selected[row]]
        assert (np.diff(chosen) <= 0).all()
        assert chosen.min() >= np.delete(explanation.scores[row], explanation.selected[row]).max()


def test_the_same_seed_gives_the_same_explainer(fitted, small_problem, small_data):
    again = clone(fitted).fit(small_data[:300])
    assert_same_rows(again.explain(small_data, target=0), fitted.explain(small_data, target=0), slice(None))


def test_a_row_is_explained_the_same_alone_shuffled_and_in_any_batch(fitted, small_data):
    whole = fitted.explain(small_data, target=1)
    order = np.random.default_rng(0).permutation(len(small_data))
    assert_same_rows(fitted.explain(small_data[order], target=1), whole, order)
    for row in (0, 17, 255, 256, 599):
        assert_same_rows(fitted.explain(small_data[[row]], target=1), whole, [row])
    assert np.array_equal(fitted.explain(small_data[:37], target=1).selected, whole.selected[:37])


def assert_same_rows(explanation, whole, rows):
    """Bit for bit what was said of these rows of another explanation."""
    for name in ("scores", "selected", "effects", "base_value", "needed", "locality"):
        one, other = getattr(explanation, name), getattr(whole, name)
        assert (one is None) == (other is None), name
        assert one is None or np.array_equal(one, other[rows]), name


def test_one_target_per_row_equals_one_call_per_target(fitted, small_data):
    targets = np.arange(40) % 2
    mixed = fitted.explain(small_data[:40], target=targets)
    for target in (0, 1):
        rows = targets == target
        assert_same_rows(fitted.explain(small_data[:40][rows], target=target), mixed, rows)


def test_save_and_load_give_identical_selections(fitted, small_data, tmp_path, small_problem):
    fitted.save(tmp_path / "explainer")
    loaded = sointer.load(tmp_path / "explainer", black_box=small_problem)
    one, two = fitted.explain(small_data, target=1), loaded.explain(small_data, target=1)
    assert_same_rows(two, one, slice(None))
    assert list(one.value) == list(two.value)
    if fitted.preset == "default":
        assert loaded.localities(1) == fitted.localities(1)
    assert loaded.get_params()["k"] == 3
    assert loaded.n_queries_ == fitted.n_queries_
    assert np.allclose(loaded.output_interactions_, fitted.output_interactions_)
    assert two.verify().fidelity == one.verify().fidelity
    assert loaded.history_ == fitted.history_


def test_explaining_queries_the_model_once_per_sample(fitted, small_data):
    before = fitted.black_box_.n_queries
    explanation = fitted.explain(small_data, target=0)
    assert fitted.black_box_.n_queries == before + len(small_data)
    assert fitted.explain(small_data, target=0, query=False).value_source == "expected"
    assert fitted.explain(small_data, target=0, predicted=explanation.source.predicted).value_source == "given"
    assert fitted.black_box_.n_queries == before + len(small_data)


def test_the_budget_is_kept(fitted):
    assert fitted.n_queries_ <= fitted.query_budget


def test_k_can_be_overridden_and_prefixes_agree(fitted, small_data):
    few, many = fitted.explain(small_data, target=1, k=2), fitted.explain(small_data, target=1, k=5)
    assert np.array_equal(few.selected, many.selected[:, :2])


def test_automatic_k_costs_no_query_but_the_predictions(fitted, small_data):
    rows, before = small_data[:25], fitted.black_box_.n_queries
    explanation = fitted.explain(rows, target=1, k="auto")
    assert fitted.black_box_.n_queries == before + 25
    assert explanation.selected.shape[1] == explanation.n_selected.max()
    ranked = fitted.explain(rows, target=1, k=8)
    for row, n in enumerate(explanation.n_selected):
        assert np.array_equal(explanation.selected[row, :n], ranked.selected[row, :n])
    fitted.explain(rows, target=1, k="auto", query=False)
    assert fitted.black_box_.n_queries == before + 50


def test_automatic_k_is_the_default(small_problem):
    assert SOInter(small_problem).k == "auto"


def test_fitted_attributes(fitted):
    assert fitted.n_features_in_ == 8
    assert fitted.n_outputs_ == 2
    assert list(fitted.feature_names_in_) == [f"x{i}" for i in range(8)]
    assert fitted.targets_ == [0, 1]
    assert fitted.output_interactions_.shape == (2, 2)
    assert len(fitted.history_) > 0


def test_clone_keeps_the_model_fitted():
    X, Y = make_multilabel_classification(200, n_features=6, random_state=0)
    model = RandomForestClassifier(5, random_state=0).fit(X, Y)
    explainer = SOInter(model, k=2)
    copy = clone(explainer)
    assert copy.model is model
    assert copy.get_params()["k"] == 2
    copy.model.predict(X)


# --- real models ------------------------------------------------------------------------------------------


def test_a_classifier_chain_given_a_data_frame_sees_a_data_frame():
    X, Y = make_multilabel_classification(400, n_features=6, n_classes=3, random_state=0)
    frame = pd.DataFrame(X, columns=[f"word {i}" for i in range(6)])
    model = ClassifierChain(LogisticRegression(max_iter=500), random_state=0).fit(frame, Y)
    explanation = quick_fit(model, frame, output_names=["a", "b", "c"]).explain(frame[:10], target="b")
    table = explanation.to_frame()
    known = "sample target value value_source rank feature feature_value score needed effect locality"
    assert set(table.columns) == set(known.split())
    assert set(table["target"]) == {"b"}
    assert set(table["feature"]) <= set(frame.columns)
    assert explanation.verify().agreement.shape == (10,)


def test_sparse_input_stays_sparse_on_its_way_to_the_model():
    X, Y = make_multilabel_classification(400, n_features=30, n_classes=3, length=10, random_state=0)
    sparse = sp.csr_matrix(X)
    seen = []

    def predict(batch):
        seen.append(sp.issparse(batch))
        return model.predict(batch)

    model = MultiOutputClassifier(LogisticRegression(max_iter=500)).fit(sparse, Y)
    explainer = quick_fit(predict, sparse, k=5)
    explanation = explainer.explain(sparse[:30], target=0)
    assert all(seen)
    assert explainer.removal_.name == "zero"
    present = sparse[:30].toarray() != 0
    assert (explanation.mask <= present).all(), "only words that occur can be selected"


def test_a_torch_module_and_tensors():
    with torch.random.fork_rng(devices=[]):
        torch_model = torch.nn.Linear(5, 3)
    with torch.no_grad():
        torch_model.weight.copy_(torch.eye(3, 5))
        torch_model.bias.zero_()
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(400, 5)).astype(np.float32))
    explainer = quick_fit(torch_model, X, **TAUGHT | {"k": 1})
    assert explainer.outputs_.kind == "continuous"
    for target in range(3):
        assert (explainer.explain(X[:50], target=target).selected[:, 0] == target).mean() > 0.95


def test_regression_trees_agree_within_the_stated_tolerance():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 6))
    Y = np.column_stack([X[:, 0] + X[:, 1], X[:, 2]])
    model = DecisionTreeRegressor(random_state=0).fit(X, Y)
    explainer = quick_fit(model, X, tolerance=0.5)
    assert explainer.outputs_.tolerance == 0.5
    assert explainer.explain(X[:20], target=0, k=6).verify().fidelity == 1.0, "nothing is removed"
    assert explainer.explain(X[:200], target=0, k=1).verify().fidelity < 0.9, "one of two summands is not enough"


def test_probabilities_stay_probabilities():
    X, Y = make_multilabel_classification(300, n_features=6, n_classes=3, random_state=0)
    forest = RandomForestClassifier(20, random_state=0).fit(X, Y)
    box = sointer.blackbox.adapters.as_black_box(forest, method="predict_proba")
    explainer = quick_fit(box, X, k=3)
    assert explainer.outputs_.kind == "probability"
    explanation = explainer.explain(X[:20], target=0)
    assert explanation.value.tolist() == box(X[:20])[:, 0].tolist()
    check = explanation.verify()
    assert ((check.difference > 0) & (check.difference < 1)).any()


def test_string_classes_of_each_output():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 5))

    def predict(batch):
        colour = np.select([batch[:, 0] > 0.5, batch[:, 0] < -0.5], ["red", "blue"], "green")
        size = np.where(batch[:, 1] > 0, "large", "small")
        return np.column_stack([colour, size])

    explainer = quick_fit(predict, X, **TAUGHT | {"k": 1, "output_names": ["colour", "size"]})
    explanation = explainer.explain(X[:50], target="colour")
    assert set(explanation.value) <= {"red", "green", "blue"}
    assert (explanation.selected[:, 0] == 0).all()


def test_groups_stand_or_fall_together(small_problem, small_data):
    groups = {"first": ["x0", "x1"], "rest": [4, 5, 6, 7]}
    explainer = quick_fit(small_problem, small_data, **TAUGHT | {"k": 3, "groups": groups})
    explanation = explainer.explain(small_data[:30], target=1)
    assert explanation.feature_names == ["first", "x2", "x3", "rest"]
    assert explanation.scores.shape == (30, 4)
    assert (explanation.mask[:, 0] == explanation.mask[:, 1]).all()
    assert explanation.mask[:, :4].all()
    assert not explanation.mask[:, 4:].any()


def test_one_hot_columns_of_a_category_are_one_feature():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"colour": rng.choice(["red", "green", "blue"], 600), "a": rng.normal(size=600)})
    frame["b"] = rng.normal(size=600)

    def predict(batch):
        assert list(batch.columns) == ["colour", "a", "b"]
        return np.column_stack([batch["colour"] == "red", (batch["colour"] == "blue") ^ (batch["a"] > 0)])

    explainer = quick_fit(predict, frame, **TAUGHT)
    explanation = explainer.explain(frame[:50], target=1)
    assert explanation.scores.shape == (50, 3)
    assert {tuple(sorted(row)) for row in explanation.selected.tolist()} == {(0, 1)}


def test_fitting_some_targets_only(small_problem, small_data):
    explainer = quick_fit(small_problem, small_data, targets=["y1"])
    assert explainer.targets_ == [1]
    explainer.explain(small_data[:5])
    with pytest.raises(sointer.errors.InputError, match="not among the targets given to fit"):
        explainer.explain(small_data[:5], target="y0")


def test_verification_under_another_removal(small_explainer, small_data):
    explanation = small_explainer.explain(small_data[:50], target=1)
    for removal in ("zero", "mean", np.zeros(8), lambda x, keep, rng: np.where(keep, x, 1.0)):
        check = explanation.verify(removal=removal)
        assert check.agreement.shape == (50,)
    assert explanation.verify().fidelity == 1.0
    assert "confirmed 50 of 50" in repr(explanation.verify())


def test_summary_counts_selections(small_explainer, small_data):
    explanation = small_explainer.explain(small_data, target=np.arange(len(small_data)) % 2)
    summary = explanation.summary(4)
    assert set(summary) == {"y0", "y1"}
    for pairs in summary.values():
        assert {name for name, _ in pairs} == {"x0", "x1", "x2", "x3"}
        assert all(share == 1.0 for _, share in pairs)


def test_html_escapes_what_users_supply(small_problem, small_data):
    names = ["<script>alert(1)</script>", *[f"f{i}" for i in range(7)]]
    explainer = quick_fit(small_problem, small_data, k=8, feature_names=names)
    page = explainer.explain(small_data[:3], target=0).to_html()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_finer_settings_are_used_and_printed(small_problem, small_data):
    explainer = quick_fit(small_problem, small_data, energy=EnergyConfig(hidden=(11,)))
    assert explainer.energy_.layers[0].out_features == 11
    assert "hidden=(11,)" in repr(explainer.config_[0])


def test_a_black_box_can_be_shared_and_keeps_its_own_budget(small_problem, small_data):
    box = BlackBox(small_problem, query_budget=400)
    explainer = quick_fit(box, small_data, query_budget=None)
    assert box.n_queries <= 400
    assert explainer.n_queries_ == box.n_queries
    explainer.explain(small_data[:3], target=0, query=False)
    box.reset_budget(3)
    assert explainer.explain(small_data[:3], target=0).value_source == "model"
