"""Explainers among scikit-learn's tools: its own checks, clone, Pipeline, GridSearchCV, set_output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from quick import QUICK, TAUGHT, quick_fit
from sointer import BlackBox, SOInter, load
from sointer.blackbox.adapters import as_black_box
from sointer.errors import CheckpointError, InputError, MethodWarning
from sointer.explainers.baselines.base import Random
from sointer.explainers.baselines.invase import Invase
from sointer.explainers.baselines.l2x import L2X
from sointer.explainers.baselines.lime_and_shap import KernelShap, Lime, ShapleySampling
from sointer.explainers.baselines.trained import HideAndSeek
from sointer.explainers.estimator import MAX_SCORED_TARGETS

pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")

X = np.random.default_rng(0).normal(size=(150, 5))


def model(rows: np.ndarray) -> np.ndarray:
    """Two outputs: one feature decides the first, two the second."""
    return np.column_stack([rows[:, 0] > 0, rows[:, 1] + rows[:, 2] > 0])


def first_feature(rows: Any) -> np.ndarray:
    dense = np.asarray(rows.toarray() if sparse.issparse(rows) else rows)
    return (dense[:, :1] > 0).astype(int)


OWN_WORDS = "the mistake is refused, in words of our own that also say what to do next"
EXPECTED_FAILURES = {
    "check_n_features_in_after_fitting": OWN_WORDS,
    "check_complex_data": OWN_WORDS,
    "check_estimators_empty_data_messages": OWN_WORDS,
    "check_fit2d_predict1d": OWN_WORDS,
    "check_dtype_object": "arrays of objects are refused: strings and categories belong into a DataFrame",
    "check_transformer_data_not_an_array": "only numpy, pandas, scipy and torch are read, and the model gets the same",
    "check_dict_unchanged": "what paths() needs is kept by the first call of explain",
}


def test_scikit_learn_checks_it() -> None:
    results = check_estimator(
        SOInter(first_feature, **QUICK | {"k": 1, "query_budget": 40}),
        expected_failed_checks=EXPECTED_FAILURES,
        on_fail=None,
        on_skip=None,
    )
    failed = {result["check_name"]: str(result["exception"]) for result in results if result["status"] == "failed"}
    assert failed == {}
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(EXPECTED_FAILURES)
    assert sum(result["status"] == "passed" for result in results) >= 30


@pytest.fixture(scope="module")
def fitted() -> SOInter:
    return SOInter(model, output_names=["one", "two"], **TAUGHT).fit(X)


@pytest.fixture(scope="module")
def by_zero(fitted: SOInter) -> SOInter:
    return clone(fitted).set_params(removal="zero").fit(X)


def test_the_score_is_the_share_that_the_model_repeats(fitted: SOInter, by_zero: SOInter) -> None:
    """A slow twin: every row and target, verified one target at a time."""
    rows, said = X[:40], model(X[:40])
    shares = [
        fitted.explain(rows, target, predicted=said).verify(n_draws=3, random_state=0).fidelity for target in (0, 1)
    ]
    assert fitted.score(rows) == pytest.approx(np.mean(shares), abs=0.05)
    assert by_zero.score(rows) > 0.9


def test_a_score_that_must_be_low_is_low(by_zero: SOInter) -> None:
    noise = Random(model, k=1, removal="zero", random_state=0).fit(X)
    assert noise.score(X) < by_zero.score(X) - 0.1


def test_a_score_asks_about_whole_rows_once_and_of_many_outputs_about_some() -> None:
    def many(rows: np.ndarray) -> np.ndarray:
        return (rows[:, np.arange(40) % 5] > np.linspace(-1, 1, 40)).astype(int)

    box = BlackBox(many)
    explainer = Random(box, k=1, removal="zero", random_state=0).fit(X)
    before = box.n_queries
    explainer.score(X[:10])
    assert box.n_queries - before == 10 + 10 * MAX_SCORED_TARGETS


def test_a_search_over_k_scores_by_fidelity() -> None:
    search = GridSearchCV(SOInter(model, removal="zero", **TAUGHT | {"query_budget": 500}), {"k": [1, 5]}, cv=2)
    search.fit(X)
    by_k = dict(zip([1, 5], search.cv_results_["mean_test_score"], strict=True))
    assert by_k[5] == 1.0, "all features are the whole row"
    assert 0.9 < by_k[1] <= by_k[5], "what speaks most for the prediction comes first"
    assert search.best_score_ == 1.0
    assert search.best_estimator_.explain(X[:3], 0).selected.shape == (3, search.best_params_["k"])


def test_the_last_step_of_a_pipeline() -> None:
    scaler = StandardScaler().fit(10 + 3 * X)
    said = model(X)
    behind = MultiOutputClassifier(LogisticRegression()).fit(scaler.transform(10 + 3 * X), said)
    pipeline = Pipeline([("scale", StandardScaler()), ("why", SOInter(behind, **TAUGHT | {"k": 1}))])
    pipeline.fit(10 + 3 * X, why__targets=[0])
    assert 0.5 < pipeline.score(10 + 3 * X) <= 1.0
    table = pipeline.transform(10 + 3 * X)
    assert table.shape == X.shape
    assert ((table != 0).sum(axis=1) == 1).all()
    assert (table[:, 0] != 0).mean() > 0.9, "feature 0 alone decides the first output"
    assert (behind.predict(scaler.transform(10 + 3 * X)) == said).mean() > 0.9, "the model stays fitted"


def test_transform_is_the_selected_scores_and_can_be_pandas() -> None:
    frame = pd.DataFrame(X, columns=list("abcde"), index=range(100, 250))

    def named(rows: pd.DataFrame) -> np.ndarray:
        return model(rows.to_numpy())

    grouped = SOInter(named, groups={"both": ["b", "c"]}, **QUICK | {"k": 1}).fit(frame, targets=[1])
    explanation = grouped.explain(frame)
    plain = grouped.transform(frame)
    np.testing.assert_array_equal(plain, np.where(explanation.unit_mask, explanation.scores, 0))
    assert grouped.get_feature_names_out().tolist() == explanation.feature_names
    table = clone(grouped).set_output(transform="pandas").fit(frame, targets=[1]).transform(frame)
    assert isinstance(table, pd.DataFrame)
    assert table.columns.tolist() == explanation.feature_names
    assert table.index.tolist() == frame.index.tolist()
    np.testing.assert_array_equal(table.to_numpy(), plain)
    assert grouped.feature_names_in_.tolist() == list("abcde")
    alike = make_pipeline(grouped, KMeans(2, n_init=1, random_state=0)).fit(frame, sointer__targets=[1])
    assert set(alike.predict(frame)) <= {0, 1}


def test_transform_wants_one_target(fitted: SOInter) -> None:
    with pytest.raises(InputError, match=r"2 outputs were fitted \('one', 'two'\).*targets=\['one'\]"):
        fitted.transform(X)


def test_clones_keep_the_model_and_forget_the_rest(fitted: SOInter) -> None:
    copy = clone(fitted)
    assert copy.model is fitted.model
    assert not hasattr(copy, "interpreter_")
    assert copy.get_params(deep=False)["k"] == 2


# --- probabilities or labels -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def forest() -> RandomForestClassifier:
    return RandomForestClassifier(8, random_state=0).fit(X, model(X))


def positive(forest: RandomForestClassifier, rows: np.ndarray) -> np.ndarray:
    return np.column_stack([p[:, 1] for p in forest.predict_proba(rows)])


def test_probabilities_of_a_classifier_are_explained_by_default(forest: RandomForestClassifier) -> None:
    explainer = SOInter(forest, **QUICK).fit(X)
    assert explainer.method_ == "predict_proba"
    assert explainer.outputs_.kinds == ("probability", "probability")
    p = positive(forest, X[:6])
    assert len(np.unique(p)) > 2
    assert explainer.explain(X[:6], target=1).value.tolist() == p[:, 1].tolist()
    for given in (p, forest.predict_proba(X[:6])):
        explanation = explainer.explain(X[:6], target=1, predicted=given)
        assert (explanation.value.tolist(), explanation.value_source) == (p[:, 1].tolist(), "given")
    with pytest.raises(InputError, match=r"Pass model\.predict_proba\(X\)"):
        explainer.explain(X[:6], target=1, predicted=forest.predict_proba(X[:5]))


@pytest.mark.parametrize("settings", [{"method": "predict"}, {"output_kind": "binary"}])
def test_labels_are_explained_where_that_is_asked_for(forest: RandomForestClassifier, settings: dict) -> None:
    explainer = SOInter(forest, **QUICK, **settings).fit(X)
    assert (explainer.method_, explainer.outputs_.kind) == ("predict", "binary")
    assert explainer.explain(X[:6], target=1).value.tolist() == forest.predict(X[:6])[:, 1].tolist()


@pytest.mark.parametrize("method", [None, "predict", "function"])
def test_a_loaded_explainer_asks_for_what_fit_asked_for(
    forest: RandomForestClassifier, method: str | None, tmp_path: Path
) -> None:
    given = {"model": forest.predict} if method == "function" else {"model": forest, "method": method}
    fitted = SOInter(**given, **QUICK).fit(X)
    fitted.save(tmp_path / "first")
    load(tmp_path / "first").save(tmp_path / "second")
    expected = fitted.explain(X[:6], target=1).value.tolist()
    for path in ("first", "second"):
        for black_box in (forest, as_black_box(forest)):
            loaded = load(tmp_path / path, black_box)
            assert loaded.explain(X[:6], target=1).value.tolist() == expected
            assert loaded.black_box_.method == ("predict_proba" if method is None else "predict")
    assert load(tmp_path / "first", forest).method == loaded.black_box_.method
    assert load(tmp_path / "first", lambda rows: positive(forest, rows)).method is None


def test_a_fit_that_goes_on_from_a_checkpoint_has_the_method_it_began_with(
    forest: RandomForestClassifier, tmp_path: Path
) -> None:
    class Stops(RandomForestClassifier):
        """A copy of the forest that is interrupted after some calls."""

        n_calls, most_calls = 0, 3

        def predict_proba(self, rows: Any) -> Any:
            self.n_calls += 1
            if self.n_calls > self.most_calls:
                raise KeyboardInterrupt
            return forest.predict_proba(rows)

        def predict(self, rows: Any) -> Any:
            return forest.predict(rows)

    stops = Stops(1).fit(X, model(X))
    with pytest.raises(KeyboardInterrupt):
        SOInter(stops, batch_size=30, **QUICK).fit(X, checkpoint=tmp_path / "kept")
    resumed = SOInter(forest, batch_size=30, **QUICK).fit(X, checkpoint=tmp_path / "kept")
    assert resumed.n_queries_replayed_ > 0
    assert resumed.outputs_.kind == "probability"
    again = SOInter(forest, batch_size=30, **QUICK).fit(X)
    np.testing.assert_array_equal(resumed.explain(X[:6], target=1).scores, again.explain(X[:6], target=1).scores)
    with pytest.raises(CheckpointError, match="method was 'predict_proba', is 'predict'"):
        SOInter(forest, batch_size=30, method="predict", **QUICK).fit(X, checkpoint=tmp_path / "kept")


def test_every_baseline_takes_the_method(forest: RandomForestClassifier) -> None:
    for kind in (Random, Lime, KernelShap, ShapleySampling, L2X, Invase, HideAndSeek):
        assert clone(kind(forest, method="predict")).method == "predict"
        assert kind(forest).method is None
    for method, expected in [(None, "probability"), ("predict", "binary")]:
        assert Random(forest, k=1, method=method, random_state=0).fit(X).outputs_.kind == expected


def test_a_method_that_would_be_ignored_is_refused(forest: RandomForestClassifier) -> None:
    for given in (as_black_box(forest), model):
        with pytest.raises(InputError, match="method"):
            SOInter(given, method="predict", **QUICK).fit(X)


def test_pipelines_of_texts_explain_probabilities_too() -> None:
    texts = [f"{'good' if i % 2 else 'bad'} film number {i % 7}" for i in range(120)]
    labels = np.array([["yes" if "good" in text else "no"] for text in texts]).ravel()
    pipeline = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, labels)
    explainer = quick_fit(pipeline, texts)
    assert (explainer.method_, explainer.output_names_) == ("predict_proba", ["yes"])
    explanation = explainer.explain(texts[:4], target="yes")
    np.testing.assert_allclose(explanation.value.astype(float), pipeline.predict_proba(texts[:4])[:, 1])
    explainer = quick_fit(pipeline, texts, method="predict")
    assert explainer.explain(texts[:4]).value.tolist() == labels[:4].tolist()


@pytest.mark.filterwarnings("default::sointer.errors.MethodWarning")
def test_fit_says_that_predict_and_probabilities_disagree() -> None:
    strict = FixedThresholdClassifier(LogisticRegression(), threshold=0.9).fit(X, X[:, 0] + X[:, 1] > 0)
    with pytest.warns(MethodWarning, match=r"disagree: for \d+ of 64 samples") as warned:
        explainer = SOInter(strict, **QUICK).fit(X)
    assert [one.filename for one in warned if one.category is MethodWarning] == [__file__]
    assert explainer.outputs_.kind == "binary"
