"""What explanations of tables say besides scores: signed effects, which units are needed, and where a sample lies."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from quick import TAUGHT, quick_fit
from sointer import SOInter, TrainingConfig
from sointer.explainers.baselines.base import Random
from sointer.explainers.baselines.lime_and_shap import KernelShap

pytestmark = [
    pytest.mark.usefixtures("global_random_state_is_left_alone"),
    pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning"),
]

X = np.random.default_rng(0).normal(size=(600, 6))
NEW = np.random.default_rng(1).normal(size=(80, 6))
MODELS = {
    "binary": lambda X: np.column_stack([X[:, 0] > 0, X[:, 1] - X[:, 2] > 0]).astype(int),
    "categorical": lambda X: np.array(["low", "middle", "high"])[np.digitize(X[:, :2], [-0.5, 0.5])],
    "probability": lambda X: 1 / (1 + np.exp(-2 * np.column_stack([X[:, 0], X[:, 1] - X[:, 2]]))),
    "continuous": lambda X: 100 + 10 * np.column_stack([X[:, 0], X[:, 1] - X[:, 2]]),
}


@pytest.fixture(scope="module", params=list(MODELS))
def fitted(request):
    return quick_fit(MODELS[request.param], X, **TAUGHT | {"k": "auto", "query_budget": 1500})


# --- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 5, 6])
def test_a_number_gives_exactly_so_many_units_the_needed_ones_first(fitted, k):
    explanation = fitted.explain(NEW, 1, k=k)
    assert explanation.selected.shape == (80, k)
    assert (explanation.n_selected == k).all()
    assert [len(set(row)) for row in explanation.selected.tolist()] == [k] * 80
    n_needed = np.minimum(explanation.needed.sum(axis=1), k)
    for row, n in enumerate(n_needed):
        assert explanation.needed[row, explanation.selected[row, :n]].all()
        assert not explanation.needed[row, explanation.selected[row, n:]].any()


def test_auto_gives_the_needed_units_and_nothing_else(fitted):
    before = fitted.black_box_.n_queries
    explanation = fitted.explain(NEW, 1)
    assert fitted.black_box_.n_queries == before + len(NEW)
    assert fitted.n_explain_queries_ >= len(NEW)
    assert np.array_equal(explanation.unit_mask, explanation.needed)
    assert explanation.needed.dtype == bool
    assert np.array_equal(explanation.n_selected, explanation.needed.sum(axis=1))
    assert explanation.selected.shape[1] == explanation.n_selected.max()
    given = fitted.explain(NEW, 1, predicted=MODELS[fitted.outputs_.kind](NEW))
    assert fitted.black_box_.n_queries == before + len(NEW)
    assert np.array_equal(given.selected, explanation.selected)


def test_needed_units_do_not_depend_on_k(fitted):
    for k in (1, 3, "auto"):
        assert np.array_equal(fitted.explain(NEW, 0, k=k).needed, fitted.explain(NEW, 0, k=6).needed)


def test_what_decides_is_needed_and_noise_is_not(fitted):
    explanation = fitted.explain(NEW, 0)
    assert explanation.needed[:, 0].all()
    assert explanation.needed[:, 1:].mean() < 0.1


def test_units_equal_to_their_reference_are_never_needed():
    rows = NEW[:20].copy()
    rows[:, 0] = 0.0
    explanation = quick_fit(MODELS["binary"], X, k="auto", removal="zero").explain(rows, 0)
    assert not explanation.needed[:, 0].any()


def test_a_sample_with_nothing_to_select_has_an_empty_explanation():
    explainer = quick_fit(lambda X: np.column_stack([X[:, 0] > 0, np.ones(len(X))]).astype(int), X[:200], k="auto")
    explanation = explainer.explain(NEW[:5], 1)
    assert (explanation.n_selected == explanation.needed.sum(axis=1)).all()
    frame = explanation.to_frame()
    assert len(frame) == explanation.n_selected.sum()
    assert explanation.verify().agreement.tolist() == [1.0] * 5
    assert explanation.summary().keys() <= {"y1"}
    assert "rows" in repr(explanation)


# --- effects ----------------------------------------------------------------------------------------------------------


def test_scores_are_not_negative_and_effects_are_signed(fitted):
    explanation = fitted.explain(NEW, 1)
    assert explanation.effects.shape == explanation.scores.shape == (80, 6)
    assert explanation.base_value.shape == explanation.locality.shape == (80,)
    assert np.isfinite(explanation.effects).all()
    assert (explanation.scores >= 0).all()
    assert (explanation.effects > 0).any()
    if fitted.outputs_.kind != "categorical":  # there one feature decides, so that nothing speaks against its label
        assert (explanation.effects < 0).any()


def test_effects_point_where_the_model_goes(fitted):
    """Of numbers and probabilities upwards, of labels towards the label that is explained."""
    kind = fitted.outputs_.kind
    explanation = fitted.explain(NEW, 0)
    own = explanation.effects[:, 0]
    clear = np.abs(NEW[:, 0]) > 0.7
    if kind in ("probability", "continuous"):
        assert (np.sign(own) == np.sign(NEW[:, 0]))[clear].mean() > 0.95
    else:
        assert (own > 0)[clear].mean() > 0.95


def test_effects_lead_from_the_base_value_to_the_output(fitted):
    if fitted.outputs_.kind not in ("probability", "continuous"):
        pytest.skip("labels are not graded")
    explanation = fitted.explain(NEW, 1)
    value = explanation.value.astype(float)
    found = explanation.base_value + explanation.effects.sum(axis=1)
    assert np.abs(found - value).mean() < 0.35 * np.abs(value - explanation.base_value).mean()
    raised, lowered = explanation.effects[:, 1], explanation.effects[:, 2]
    assert np.corrcoef(raised, NEW[:, 1])[0, 1] > 0.9
    assert np.corrcoef(lowered, -NEW[:, 2])[0, 1] > 0.9


def test_effects_are_changes_that_a_probability_can_make():
    steep = quick_fit(lambda X: np.column_stack([X[:, 0] + X[:, 1] > 0, X[:, 2] > 0]).astype(int), X, **TAUGHT)
    explanation = steep.explain(np.concatenate([X, NEW]), 0)
    total = explanation.base_value + explanation.effects.sum(axis=1)
    assert total.min() > -1e-5
    assert total.max() < 1 + 1e-5
    assert np.abs(explanation.effects).max() < 1 + 1e-5


def test_what_never_changes_an_output_has_no_effect_on_it():
    shops = pd.DataFrame({"income": X[:, 0], "debt": X[:, 1], "shop": [f"shop {i % 100}" for i in range(len(X))]})
    model = lambda Z: pd.DataFrame({"loan": Z["income"] > Z["debt"], "card": Z["income"] > 0.3})  # noqa: E731
    explainer = quick_fit(model, shops, **TAUGHT | {"query_budget": 1500})
    effects = np.abs(explainer.explain(shops, "loan").effects)
    assert (effects[:, 2] == 0).all()
    assert (effects[:, :2].max(axis=1) > 0).all()
    assert (np.abs(explainer.explain(shops, "card").effects)[:, 1:] == 0).all()


def test_where_signs_are_unknown_there_are_no_effects():
    paper = quick_fit(MODELS["binary"], X, preset="paper", training=TrainingConfig(n_rounds=1, n_pretraining_steps=5))
    settings = {"k": 2, "random_state": 0}
    baselines = [
        Random(MODELS["binary"], **settings).fit(X),
        KernelShap(MODELS["binary"], n_samples=40, **settings).fit(X),
    ]
    for explainer, data, target in (
        (paper, X[:3], 0),
        *((baseline, X[:3], 0) for baseline in baselines),
    ):
        explanation = explainer.explain(data, target, k=1)
        assert explanation.effects is explanation.base_value is explanation.needed is explanation.locality is None


# --- localities -------------------------------------------------------------------------------------------------------


def switching(X):
    """Below zero of the first feature the second decides, above it the third."""
    return np.column_stack([np.where(X[:, 0] < 0, X[:, 1], X[:, 2]) > 0, X[:, 0] > 0]).astype(int)


@pytest.fixture(scope="module")
def switch():
    rows = np.random.default_rng(0).normal(size=(2000, 6))
    return quick_fit(switching, rows, **TAUGHT | {"k": "auto", "query_budget": 3000})


def test_a_sample_lies_in_one_of_the_localities(switch):
    leaves = switch.localities(0)
    explanation = switch.explain(NEW, 0)
    assert set(explanation.locality) <= {leaf.number for leaf in leaves}
    assert sum(leaf.share for leaf in leaves) == pytest.approx(1.0)
    assert len(leaves) >= 2
    for leaf in leaves:
        inside = explanation.locality == leaf.number
        names = {f"x{unit}" for unit in np.flatnonzero(explanation.needed[inside].any(axis=0))}
        assert names <= set(leaf.features)


def test_different_features_matter_in_different_places(switch):
    explanation = switch.explain(NEW, 0)
    clear = np.abs(NEW[:, 0]) > 0.3
    below = clear & (NEW[:, 0] < 0)
    above = clear & (NEW[:, 0] > 0)
    assert explanation.needed[below, 1].mean() > 0.9
    assert explanation.needed[above, 2].mean() > 0.9
    assert explanation.needed[below, 2].mean() < 0.2
    assert explanation.needed[above, 1].mean() < 0.2
    assert explanation.needed[:, 3:].mean() < 0.05


# --- what is explained ------------------------------------------------------------------------------------------------


def test_the_value_explained_is_what_the_model_predicts_on_new_samples(fitted):
    said = MODELS[fitted.outputs_.kind](NEW)
    for target in (0, 1):
        explanation = fitted.explain(NEW, target)
        assert explanation.value.tolist() == said[:, target].tolist()
        assert explanation.value_source == "model"
    frame = pd.DataFrame(fitted.explain(NEW, 1).to_frame())
    assert [said[line.sample, 1] for line in frame.itertuples()] == frame["value"].tolist()


def test_effects_on_numbers_in_clusters_are_of_the_right_size():
    """Both what chooses one of two distant clusters, and what moves the number within it, have their own size."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame({name: rng.normal(size=1500) for name in "abcd"})
    X["kind"] = rng.choice(["u", "v", "w"], 1500)

    def model(X):
        return np.column_stack([100.0 * (X["kind"] == "v") + 3 * X["a"], X["b"] - X["c"]])

    explainer = SOInter(model, query_budget=4000, random_state=0, verbose=False).fit(X)
    found, truth = explainer.explain(X, target=0), np.zeros((1500, 5))
    truth[:, 0] = 3 * (X["a"] - X["a"].mean())
    truth[:, 4] = 100 * ((X["kind"] == "v") - (X["kind"] == "v").mean())
    assert np.abs(found.effects - truth).sum(axis=1).mean() < 0.25 * np.abs(truth).sum(axis=1).mean()
    clear = np.abs(truth) > 1
    assert (np.sign(found.effects) == np.sign(truth))[clear].mean() > 0.99
    assert {tuple(sorted(row[row >= 0])) for row in found.selected} == {(0, 4)}


def test_effects_on_labels_lead_to_the_label_also_of_missing_values():
    """An output that is on at few samples: off it is because of what these have and this one has not."""
    rng = np.random.default_rng(5)
    amount = rng.gamma(2, 200, 600)
    amount[rng.random(600) < 0.15] = np.nan
    X = pd.DataFrame({"age": rng.integers(18, 90, 600), "amount": amount, "land": rng.choice(["DE", "JP", "FR"], 600)})

    def model(X):
        risk = (X["amount"].fillna(0) > 400) & (X["land"] != "DE")
        return np.column_stack([risk, X["age"] > 65]).astype(int)

    explainer = SOInter(model, query_budget=2000, random_state=0, training=TrainingConfig(n_epochs=20)).fit(X)
    found = explainer.explain(X, target=0)
    toward = np.where(found.value.astype(int) == 1, 1, -1) * found.effects[:, 1]
    for rows in (X["amount"].isna().to_numpy(), (X["amount"] < 350).to_numpy()):
        assert (toward[rows] < -0.05).mean() > 0.95
        assert (found.base_value + found.effects.sum(axis=1))[rows].mean() > 0.85
    assert (toward[((X["amount"] > 450) & (X["land"] != "DE")).to_numpy()] > 0.2).all()


def test_what_lowers_a_number_is_as_relevant_as_what_raises_it():
    weights = np.tile([2.0, -1.5, 1.0], 3)
    rows = np.random.default_rng(2).normal(size=(700, 9))
    X, new = rows[:600], rows[600:]
    explainer = SOInter(lambda X: X @ weights, random_state=0, query_budget=3000, verbose=False).fit(X)
    pushes = np.abs(weights * (new - X.mean(axis=0)))
    strong = pushes > 2
    explanation = explainer.explain(new, target=0)
    assert (explanation.scores[strong] > 0).all()
    assert explanation.needed[strong].mean() > 0.95
    best = np.argsort(-pushes, axis=1)[:, :3].tolist()
    chosen = explainer.explain(new, target=0, k=3).selected.tolist()
    assert np.mean([len(set(a) & set(b)) / 3 for a, b in zip(best, chosen, strict=True)]) > 0.85
