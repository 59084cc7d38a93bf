"""Explainers among scikit-learn's tools: its own checks, clone, Pipeline, GridSearchCV, set_output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from sointer import BlackBox, EnergyConfig, InterpreterConfig, SOInter, TrainingConfig
from sointer.baselines import Random
from sointer.errors import InputError
from sointer.estimator import MOST_SCORED_TARGETS

pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")

QUICK: dict[str, Any] = {
    "random_state": 0,
    "query_budget": 300,
    "energy": EnergyConfig(hidden=(24,)),
    "interpreter": InterpreterConfig(n_residual_steps=0, n_path_steps=8),
    "training": TrainingConfig(n_epochs=10, n_rounds=0),
}
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
    quick = QUICK | {
        "query_budget": 40,
        "energy": EnergyConfig(hidden=(8,)),
        "interpreter": InterpreterConfig(n_residual_steps=0, n_path_steps=4),
        "training": TrainingConfig(n_epochs=1, n_rounds=0),
    }
    results = check_estimator(
        SOInter(first_feature, k=1, **quick), expected_failed_checks=EXPECTED_FAILURES, on_fail=None, on_skip=None
    )
    failed = {result["check_name"]: str(result["exception"]) for result in results if result["status"] == "failed"}
    assert failed == {}
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(EXPECTED_FAILURES)
    assert sum(result["status"] == "passed" for result in results) >= 30


@pytest.fixture(scope="module")
def fitted() -> SOInter:
    return SOInter(model, k=2, output_names=["one", "two"], **QUICK).fit(X)


def test_the_score_is_the_share_that_the_model_repeats(fitted: SOInter) -> None:
    """A slow twin: every row and target, verified one target at a time."""
    rows, said = X[:40], model(X[:40])
    shares = [
        fitted.explain(rows, target, predicted=said).verify(n_draws=3, random_state=0).fidelity for target in (0, 1)
    ]
    assert fitted.score(rows) == pytest.approx(np.mean(shares), abs=0.05)
    assert clone(fitted).set_params(removal="zero").fit(X).score(rows) > 0.9


def test_a_score_that_must_be_low_is_low() -> None:
    noise = Random(model, k=1, removal="zero", random_state=0).fit(X)
    right = SOInter(model, k=2, removal="zero", **QUICK).fit(X)
    assert noise.score(X) < right.score(X) - 0.1


def test_a_score_asks_about_whole_rows_once_and_of_many_outputs_about_some() -> None:
    def many(rows: np.ndarray) -> np.ndarray:
        return (rows[:, np.arange(40) % 5] > np.linspace(-1, 1, 40)).astype(int)

    box = BlackBox(many)
    explainer = Random(box, k=1, removal="zero", random_state=0).fit(X)
    before = box.n_queries
    explainer.score(X[:10])
    assert box.n_queries - before == 10 + 10 * MOST_SCORED_TARGETS


def test_a_search_over_k_scores_by_fidelity() -> None:
    search = GridSearchCV(SOInter(model, removal="zero", **QUICK), {"k": [1, 2, 5]}, cv=2)
    search.fit(X)
    by_k = dict(zip([1, 2, 5], search.cv_results_["mean_test_score"], strict=True))
    assert by_k[5] == 1.0, "all features are the whole row"
    assert by_k[1] < by_k[2] <= by_k[5]
    assert search.best_params_["k"] in (2, 5)
    assert search.best_estimator_.explain(X[:3], 0).selected.shape == (3, search.best_params_["k"])


def test_the_last_step_of_a_pipeline() -> None:
    scaler = StandardScaler().fit(10 + 3 * X)
    said = model(X)
    behind = MultiOutputClassifier(LogisticRegression()).fit(scaler.transform(10 + 3 * X), said)
    pipeline = Pipeline([("scale", StandardScaler()), ("why", SOInter(behind, k=1, **QUICK))])
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

    grouped = SOInter(named, k=1, groups={"both": ["b", "c"]}, **QUICK).fit(frame, targets=[1])
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
