"""Bad input and failing black boxes: one clear error or warning, and nothing lost."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier

import sointer
from quick import QUICK, TAUGHT
from sointer import BlackBox, SOInter, TrainingConfig
from sointer.errors import (
    BlackBoxError,
    BudgetWarning,
    ConstantFeatureWarning,
    ConstantOutputWarning,
    InputError,
    MethodWarning,
    PoorFitWarning,
    QueryBudgetExceeded,
    SointerWarning,
    UnstableBlackBoxWarning,
)

pytestmark = pytest.mark.usefixtures("global_random_state_is_left_alone")

X = np.random.default_rng(0).normal(size=(100, 4))


def two_outputs(batch):
    return (np.asarray(batch)[:, :2] > 0).astype(int)


def tiny(model=two_outputs, **changes):
    return SOInter(model, **QUICK | changes)


# --- what is given to fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (X[0], "reshape"),
        (X[None], "2"),
        (X[:0], "empty"),
        (np.where(X > 2, np.inf, X), "infinite"),
        (np.array([["a", "b"]]), "dtype"),
        ("text", "expected"),
        (None, "expected"),
    ],
)
def test_data_that_cannot_be_fitted(data, words):
    with pytest.raises(InputError, match=words):
        tiny().fit(data)


@pytest.mark.parametrize("k", [0, -1, 5, 2.5, "many", True, None])
def test_k_out_of_range(k):
    with pytest.raises(InputError, match="k"):
        tiny(k=k).fit(X)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"preset": "best"}, "preset"),
        ({"feature_names": ["a", "a", "b", "c"]}, "'a'"),
        ({"feature_names": ["a"]}, "feature_names"),
        ({"output_names": ["only one"]}, "names"),
        ({"output_names": ["same", "same"]}, "same"),
        ({"output_kind": "colours"}, "kind"),
        ({"removal": "shuffle"}, "removal"),
        ({"removal": np.zeros(3)}, "removal"),
        ({"groups": [[0, 1], [1, 2]]}, "overlap"),
        ({"groups": {"a": ["no such feature"]}}, "no such feature"),
        ({"query_budget": 0}, "query_budget"),
        ({"query_budget": -5}, "query_budget"),
        ({"random_state": "seed"}, "random_state"),
        ({"training": TrainingConfig(margin=1.0)}, "no effect"),
        ({"model": 3}, "function"),
        ({"model": MultiOutputClassifier(LogisticRegression())}, "fit"),
    ],
)
def test_settings_that_cannot_be(changes, words):
    with pytest.raises(InputError, match=words):
        tiny(**changes).fit(X)


@pytest.mark.parametrize(("targets", "words"), [([], "empty"), (["y7"], "y7"), ([9], "9"), ("y0", "list")])
def test_targets_that_cannot_be(targets, words):
    with pytest.raises(InputError, match=words):
        tiny().fit(X, targets=targets)


def test_constant_features_are_named():
    data = X.copy()
    data[:, 3] = 7.0
    with pytest.warns(ConstantFeatureWarning, match="x3"):
        explainer = tiny().fit(data)
    assert not explainer.explain(data[:20], target=0).mask[:, 3].any()


def test_constant_outputs_are_named_and_still_explained():
    with pytest.warns(ConstantOutputWarning, match="y1"):
        explainer = tiny(lambda batch: np.column_stack([batch[:, 0] > 0, np.ones(len(batch), bool)])).fit(X)
    assert explainer.explain(X[:5], target=1).selected.shape == (5, 2)


@pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
def test_labels_beside_numbers_keep_their_kinds():
    def named(batch):
        return pd.DataFrame({"label": np.where(batch[:, 0] > 0, "x", "y"), "n": batch[:, 2]})

    assert tiny(named).fit(X).outputs_.kinds == ("binary", "continuous")
    numbers = tiny(lambda batch: np.column_stack([batch[:, 0] > 0, batch[:, 2] * 5])).fit(X)
    assert numbers.outputs_.kinds == ("binary", "continuous")
    with pytest.raises(InputError, match="hold strings"):
        tiny(named, output_kind={"label": "continuous"}).fit(X)
    with pytest.raises(InputError, match="'m', which is no output"):
        tiny(named, output_kind={"m": "continuous"}).fit(X)


def test_a_typo_in_targets_costs_almost_no_query():
    box = BlackBox(two_outputs)
    with pytest.raises(InputError, match="y7"):
        SOInter(box, k=2).fit(X, targets=["y7"])
    assert box.n_queries <= 16


def test_a_batch_size_that_would_be_ignored_is_refused():
    with pytest.raises(InputError, match="batch_size"):
        tiny(BlackBox(two_outputs), batch_size=5).fit(X)
    with pytest.raises(InputError, match="structured"):
        tiny(structured="no").fit(X)


@pytest.mark.parametrize("name", ["energy", "interpreter", "training"])
def test_settings_of_the_wrong_kind(name):
    kind = f"{name.title()}Config"
    with pytest.raises(InputError, match=f"{name} must be a {kind}.*got {{'n_epochs': 1}}.*sointer.{kind}"):
        tiny(**{name: {"n_epochs": 1}}).fit(X)


def test_another_model_than_the_one_explained(small_explainer, small_data, tmp_path):
    small_explainer.save(tmp_path / "saved")
    loaded = sointer.load(tmp_path / "saved", black_box=lambda batch: np.zeros((len(batch), 7)))
    with pytest.raises(InputError, match="returned 7 outputs, but the explainer was fitted on 2"):
        loaded.explain(small_data[:3], target=0).verify()


def test_one_row_cannot_confirm_a_wrong_explanation(small_explainer, small_data):
    refuted = 0
    for row in range(20):
        explanation = small_explainer.explain(small_data[[row]], target=1)
        wrong = dataclasses.replace(explanation, selected=np.array([[4, 5, 6, 7]]))
        assert explanation.verify().fidelity == 1.0
        refuted += not wrong.verify().confirmed[0]
    assert refuted >= 15


def test_a_poor_energy_is_admitted():
    rng = np.random.default_rng(3)
    with pytest.warns(SointerWarning) as caught:
        tiny(lambda batch: rng.integers(2, size=(len(batch), 4))).fit(X)
    kinds = {warning.category for warning in caught}
    assert {UnstableBlackBoxWarning, PoorFitWarning} <= kinds


def test_one_output_that_was_not_learned_is_named_though_the_others_were():
    def model(batch):
        easy = batch[:, :4] > 0
        return np.column_stack([easy, (batch > 0).sum(axis=1) % 2])

    rows = np.random.default_rng(0).normal(size=(500, 10))
    names = ["a", "b", "c", "d", "parity"]
    explainer = SOInter(model, **TAUGHT | {"query_budget": 400, "output_names": names})
    with pytest.warns(PoorFitWarning, match=r"little of 1 of 5 outputs: 'parity'; on held-out queries"):
        explainer.fit(rows)
    assert explainer.held_out_skill_ > 0.5, "the mean hides it"
    with warnings.catch_warnings():
        warnings.simplefilter("error", PoorFitWarning)
        explainer.fit(rows, targets=["a", "b"])


# --- black boxes that misbehave ---------------------------------------------------------------------------


def test_a_black_box_that_raises_is_named_with_its_own_words():
    def broken(batch):
        raise ZeroDivisionError("my own words")

    with pytest.raises(BlackBoxError, match="ZeroDivisionError: my own words") as caught:
        tiny(broken).fit(X)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda batch: np.zeros((len(batch) + 1, 2)), "rows"),
        (lambda batch: np.full((len(batch), 2), np.nan), "NaN"),
        (lambda batch: None, "None"),
        (lambda batch: [[1, 2], [3]], "invalid result"),
        (lambda batch: np.zeros((len(batch), 2, 2)), "Flatten"),
    ],
)
def test_answers_that_are_not_answers(answer, words):
    with pytest.raises(BlackBoxError, match=words):
        tiny(answer).fit(X)


def test_a_number_of_outputs_that_changes():
    calls = []

    def fickle(batch):
        calls.append(len(batch))
        return np.zeros((len(batch), 2 if len(calls) == 1 else 3))

    with pytest.raises(BlackBoxError, match="outputs"):
        tiny(fickle).fit(X)


def test_a_black_box_that_changes_its_mind_is_reported():
    rng = np.random.default_rng(0)

    def moody(batch):
        return two_outputs(batch) ^ (rng.random((len(batch), 2)) < 0.3)

    with pytest.warns(UnstableBlackBoxWarning, match="something else for the same samples"):
        explainer = tiny(moody, query_budget=700).fit(X)
    assert any(row["stage"] == "queried twice" and row["same_outputs"] < 1 for row in explainer.history_)


def test_a_budget_that_ends_leaves_a_usable_explainer():
    box = BlackBox(two_outputs, query_budget=150)
    box(X[:30])
    with pytest.warns(BudgetWarning, match="of 5000 planned"):
        explainer = tiny(box, query_budget=None).fit(X)
    assert box.n_queries == explainer.n_queries_ + 30 <= 150
    assert explainer.explain(X, target=0, query=False).selected.shape == (100, 2)
    with pytest.raises(QueryBudgetExceeded, match="once per sample"):
        explainer.explain(X, target=0)


def test_a_budget_spent_by_others_half_way_is_said():
    box = BlackBox(two_outputs, query_budget=400)
    eaten = []

    def hungry(x, keep, rng):
        if not eaten and box.remaining is not None and box.remaining > 120:
            eaten.append(box(X[:100]))  # someone else asks, while fit is under way
        return np.where(keep, x, 0.0)

    with pytest.warns(BudgetWarning, match="budget ended"):
        explainer = tiny(box, removal=hungry, query_budget=None).fit(X)
    assert box.n_queries <= 400
    assert explainer.explain(X, target=0, query=False).selected.shape == (100, 2)


def test_ctrl_c_passes_through():
    def interrupted(batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny(interrupted).fit(X)


# --- what is given to explain -----------------------------------------------------------------------------


def test_explaining_before_fitting():
    with pytest.raises(NotFittedError):
        tiny().explain(X, target=0)
    with pytest.raises(NotFittedError):
        tiny().save("nowhere")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("y9", "y0"),
        (2, "2"),
        (-1, "-1"),
        ([0, 1], "100"),
        (1.5, "target"),
        (None, "target is missing"),
        (True, "target"),
    ],
)
def test_targets_that_cannot_be_explained(small_explainer, small_data, target, words):
    with pytest.raises(InputError, match=words):
        small_explainer.explain(small_data[:100], target=target)


@pytest.mark.parametrize("data", [np.zeros((3, 7)), np.zeros(8), np.full((2, 8), np.nan), np.zeros((0, 8))])
def test_data_that_cannot_be_explained(small_explainer, data):
    with pytest.raises(InputError):
        small_explainer.explain(data, target=0)


def test_other_columns_are_ignored_and_reordered_ones_are_put_right():
    frame = pd.DataFrame(X, columns=list("abcd"))
    explainer = tiny(lambda batch: (batch[["a", "b"]] > 0).astype(int)).fit(frame)
    assert explainer.output_names_ == ["a", "b"]
    with pytest.raises(InputError, match="explain: X lacks 1 of the 4 features seen in fit: 'b'; it has 'a', 'c', 'd'"):
        explainer.explain(frame.drop(columns="b"), target="a")
    straight = explainer.explain(frame, target="a")
    assert np.array_equal(explainer.explain(frame.assign(e=1.0)[list("edcba")], target="a").scores, straight.scores)
    with pytest.raises(InputError, match="several columns named 'a'"):
        explainer.explain(pd.concat([frame, frame[["a"]]], axis=1), target="a")
    assert np.array_equal(explainer.explain(frame[list("dcba")], target="a").scores, straight.scores)


def test_verifying_without_a_black_box(small_explainer, small_data, tmp_path):
    small_explainer.save(tmp_path / "saved")
    loaded = sointer.load(tmp_path / "saved")
    explanation = loaded.explain(small_data[:3], target=0)
    with pytest.raises(InputError, match="black_box=model"):
        explanation.verify()
    with pytest.raises(InputError, match="black_box=model"):
        loaded.explain(small_data[:3], target=0, refine=20)
    assert loaded.explain(small_data[:3], target=0, k="auto").value_source == "expected"


# --- everything that fits together ------------------------------------------------------------------------

KINDS = {
    "binary": lambda scores: scores > 0,
    "labels": lambda scores: np.where(scores > 0, "yes", "no"),
    "classes": lambda scores: np.digitize(scores, [-0.5, 0.5]),
    "probabilities": lambda scores: 1 / (1 + np.exp(-scores)),
    "numbers": lambda scores: scores * 10 + 3,
}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    n_rows=st.integers(2, 60),
    n_features=st.integers(1, 7),
    n_outputs=st.integers(1, 5),
    kind=st.sampled_from(sorted(KINDS)),
    dtype=st.sampled_from(["float32", "float64", "int64", "bool"]),
    container=st.sampled_from(["numpy", "pandas", "csr"]),
    structured=st.booleans(),
    k_share=st.floats(0, 1),
    seed=st.integers(0, 2**16),
)
def test_any_shape_type_and_kind_of_output(
    n_rows, n_features, n_outputs, kind, dtype, container, structured, k_share, seed
):
    rng = np.random.default_rng(seed)
    data = (rng.normal(size=(n_rows, n_features)) * 3).astype(dtype)
    weights = rng.normal(size=(n_features, n_outputs))

    def model(batch):
        dense = batch.toarray() if sp.issparse(batch) else np.asarray(batch)
        return KINDS[kind](dense.astype(float) @ weights)

    given_data = {"numpy": lambda: data, "pandas": lambda: pd.DataFrame(data), "csr": lambda: sp.csr_array(data)}[
        container
    ]()
    k = 1 + int(k_share * (n_features - 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        explainer = tiny(model, k=k, structured=structured, query_budget=80).fit(given_data)
        explanation = explainer.explain(given_data, target=n_outputs - 1)
        check = explanation.verify(n_draws=2)
    assert explanation.selected.shape == (n_rows, k)
    assert np.isfinite(explanation.scores).all()
    assert (explanation.n_selected <= k).all()
    assert np.array_equal(explanation.mask.sum(axis=1), explanation.n_selected)
    assert explainer.n_queries_ <= 80
    assert ((check.agreement >= 0) & (check.agreement <= 1)).all()
    every = explainer.explain(given_data, target=n_outputs - 1, k=n_features)
    if kind != "numbers":
        assert every.verify(n_draws=2).fidelity == 1.0, "with every feature kept, nothing changes"


# --- probabilities, numbers and models that are not what they seem ------------------------------------------


def chances(batch):
    return 1 / (1 + np.exp(-3 * np.asarray(batch)[:, :2]))


class Scores:
    """Its predict_proba returns scores."""

    def predict(self, batch):
        return two_outputs(batch)

    def predict_proba(self, batch):
        return np.asarray(batch)[:, :2] + 0.5


@pytest.mark.parametrize(
    ("model", "settings"),
    [(lambda batch: np.asarray(batch)[:, :2], {"output_kind": "probability"}), (Scores(), {"method": "predict_proba"})],
)
def test_numbers_outside_the_range_of_probabilities(model, settings):
    with pytest.raises(InputError, match=r"'y0' cannot be a probability.* from -\d.* to \d.*output_kind='continuous'"):
        tiny(model, **settings).fit(X)
    box = BlackBox(model) if callable(model) else sointer.blackbox.adapters.as_black_box(model, method="predict_proba")
    explainer = tiny(box, output_kind="continuous").fit(X)
    assert explainer.explain(X[:3], target=1).value.tolist() == box(X[:3])[:, 1].tolist()


def test_scores_in_the_place_of_probabilities_are_left_aside():
    with pytest.warns(MethodWarning, match=r"from -\d.* to \d.*outside \[0, 1\].*method='predict'"):
        explainer = tiny(Scores()).fit(X)
    assert explainer.outputs_.kind == "binary"


def test_probabilities_that_are_missing():
    class Lost(Scores):
        def predict_proba(self, batch):
            return np.where(np.asarray(batch)[:, :2] > 1.5, np.nan, chances(batch))

    with pytest.raises(BlackBoxError, match=r"NaN or infinite values \(first at row \d+, output \d\)"):
        tiny(Lost(), method="predict_proba").fit(X)
    with pytest.warns(MethodWarning, match="NaN"):
        assert tiny(Lost()).fit(X).method_ == "predict"


@pytest.mark.parametrize("huge", [1e300, -1e101, 1e37])
def test_numbers_whose_variance_would_be_infinite(huge):
    """Any two of them would count as equal: the tolerance is a share of their standard deviation."""
    model = lambda batch: np.column_stack([np.asarray(batch)[:, 0] * huge, np.asarray(batch)[:, 1]])  # noqa: E731
    with pytest.raises(
        BlackBoxError, match=r"numbers beyond 1e\+30 \(first at row 0, output 0\).*smaller ones.*logarithms"
    ):
        tiny(model).fit(X)


@pytest.mark.parametrize("value", [0.25, 7.0, 7.5])
def test_a_probability_or_number_that_never_changes(value):
    def model(batch):
        other = chances(batch)[:, 0] if value < 1 else np.asarray(batch)[:, 0]
        return np.column_stack([other, np.full(len(batch), value)])

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        explainer = tiny(model).fit(X)
        explanation = explainer.explain(X[:5], target=1)
    assert {ConstantOutputWarning} <= {one.category for one in warned} <= {ConstantOutputWarning, PoorFitWarning}
    assert explanation.value.tolist() == [value] * 5
    assert not explanation.needed.any()
    assert np.abs(explanation.effects).max() < 0.1  # of an energy hardly trained
    assert np.isnan(explainer.output_skill_[1])
    assert np.isfinite(explainer.held_out_skill_)


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (lambda batch: 20 * chances(batch) - 10, r"range from -\d.* to \d.*on every call"),
        (lambda batch: np.where(chances(batch) > 0.5, "yes", "no"), "expected numbers as before.*on every call"),
    ],
)
def test_outputs_that_change_their_kind(later, words):
    class Changing:
        n_rows = 0

        def __call__(self, batch):
            self.n_rows += len(batch)
            return chances(batch) if self.n_rows <= 120 else later(batch)

    with pytest.raises(BlackBoxError, match=words):
        tiny(Changing(), batch_size=10).fit(X)


@pytest.mark.parametrize("share", [0.004, 0.03])
def test_a_few_enormous_numbers_do_not_drown_the_others(share):
    rows = np.random.default_rng(1).normal(size=(1000, 4))
    rare = np.quantile(np.abs(rows[:, 3]), 1 - share)

    def model(batch):
        clean = 2 * batch[:, 0] + batch[:, 1]
        return np.column_stack([np.where(np.abs(batch[:, 3]) > rare, 1e6 * clean, clean), batch[:, 2]])

    settings = {"query_budget": 1500, "training": TrainingConfig(n_epochs=8), "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        explainer = SOInter(model, k=2, **settings).fit(rows)
    assert explainer.output_skill_[1] > 0.9
    assert explainer.output_skill_[0] > 0.1  # of enormous numbers not even the sign is easy
    assert 1.5 < explainer.outputs_.scale[0] < 6
    usual = rows[np.abs(rows[:, 3]) < 1][:50]
    explanation = explainer.explain(usual, target=0)
    np.testing.assert_array_equal(explanation.value, model(usual)[:, 0])
    assert explanation.mask[:, 0].mean() > 0.7
    assert np.abs(explanation.effects).max() < 100
    enormous = explainer.explain(rows[np.abs(rows[:, 3]) > rare][:3], target=0)
    assert np.abs(enormous.value.astype(float)).max() > 1e5


@pytest.mark.parametrize("noise", ["labels", "probabilities", "numbers"])
def test_a_model_that_draws_its_outputs_at_random(noise):
    draws = np.random.default_rng(0)

    def model(batch):
        p = chances(batch) + draws.normal(0, 0.3, (len(batch), 2))
        return p > 0.5 if noise == "labels" else np.clip(p, 0, 1) if noise == "probabilities" else 10 * p

    with pytest.warns(UnstableBlackBoxWarning, match="queried twice.*fix its seed"):
        explainer = tiny(model).fit(X)
    assert np.isfinite(explainer.explain(X[:5], target=0).scores).all()
