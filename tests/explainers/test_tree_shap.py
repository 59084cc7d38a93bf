"""TreeShap: equal to shap called directly up to the sign, planted truth, and models it refuses."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from sointer.blackbox.adapters import as_black_box
from sointer.errors import InputError, MissingExtraError
from sointer.explainers.baselines.lime_and_shap import KernelShap, Lime, ShapleySampling
from sointer.explainers.baselines.tree_shap import TreeShap

shap = pytest.importorskip("shap")
pytestmark = pytest.mark.usefixtures("global_random_state_is_left_alone")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 6))
ROWS = X[:25]
LABELS = np.column_stack([X[:, 0] + X[:, 1] > 0, X[:, 2] * X[:, 3] > 0]).astype(int)
CLASSES = np.array(["low", "middle", "high"])[np.digitize(X[:, 4], [-0.5, 0.5])]


def explained(model, rows=ROWS, target=0, data=X, **settings):
    return TreeShap(model, **{"k": 2, "random_state": 0, **settings}).fit(data).explain(rows, target)


def direct(model, rows=ROWS):
    return np.asarray(shap.TreeExplainer(model).shap_values(rows, check_additivity=False))


# --- the package, called directly ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier, DecisionTreeClassifier])
def test_a_forest_of_one_output(kind):
    settings = {} if kind is DecisionTreeClassifier else {"n_estimators": 15}
    forest = kind(max_depth=4, random_state=0, **settings).fit(X, CLASSES)
    values, said = direct(forest), forest.predict(ROWS)
    expected = [values[i, :, list(forest.classes_).index(label)] for i, label in enumerate(said)]
    explanation = explained(forest)
    assert explanation.scores == pytest.approx(np.array(expected), abs=1e-6)
    assert explanation.value.tolist() == said.tolist()


def test_each_output_of_a_forest_with_vector_values():
    """The same trees, each of their outputs on its own, adds up to its probability."""
    forest = RandomForestClassifier(20, random_state=0).fit(X, LABELS)
    explainer = TreeShap(forest, k=2, random_state=0).fit(X)
    for target in (0, 1):
        p = forest.predict_proba(ROWS)[target][:, 1]
        scores = explainer.explain(ROWS, target).scores
        toward = np.where(forest.predict(ROWS)[:, target] == 1, 1, -1)
        base = explainer.trees_[target].explainer.expected_value[1]
        assert scores.sum(axis=1) * toward + base == pytest.approx(p, abs=1e-5)
    alone = RandomForestClassifier(20, random_state=0).fit(X, LABELS[:, 0])
    assert explained(alone).scores == pytest.approx(direct(alone)[np.arange(25), :, alone.predict(ROWS)], abs=1e-6)


@pytest.mark.parametrize("kind", [GradientBoostingClassifier, HistGradientBoostingClassifier])
def test_boosting_in_a_multi_output_classifier(kind):
    settings = {"n_estimators": 20} if kind is GradientBoostingClassifier else {"max_iter": 20}
    model = MultiOutputClassifier(kind(random_state=0, **settings)).fit(X, LABELS)
    explainer = TreeShap(model, k=2, random_state=0).fit(X)
    for target in (0, 1):
        toward = np.where(model.predict(ROWS)[:, target] == 1, 1, -1)[:, None]
        scores = explainer.explain(ROWS, target).scores
        assert scores == pytest.approx(toward * direct(model.estimators_[target]), abs=1e-6)


def test_boosting_of_three_classes_and_labels_one_against_the_rest():
    boosting = HistGradientBoostingClassifier(max_iter=10, random_state=0).fit(X, CLASSES)
    values, said = direct(boosting), boosting.predict(ROWS)
    expected = [values[i, :, list(boosting.classes_).index(label)] for i, label in enumerate(said)]
    assert explained(boosting).scores == pytest.approx(np.array(expected), abs=1e-6)
    with pytest.warns(UserWarning, match="Label not"):
        rest = OneVsRestClassifier(HistGradientBoostingClassifier(max_iter=10, random_state=0)).fit(
            X, np.column_stack([LABELS, np.zeros(300, dtype=int)])
        )
    with pytest.warns(UserWarning, match="never changed"):
        explainer = TreeShap(rest, k=2, random_state=0).fit(X)
    toward = np.where(rest.predict(ROWS)[:, 1] == 1, 1, -1)[:, None]
    assert explainer.explain(ROWS, 1).scores == pytest.approx(toward * direct(rest.estimators_[1]), abs=1e-6)
    assert (explainer.explain(ROWS, 2).scores == 0).all()


def test_probabilities_are_signed_by_their_side_of_one_half():
    forest = RandomForestClassifier(15, random_state=0).fit(X, LABELS)
    by_label = TreeShap(forest, k=2, method="predict", random_state=0).fit(X)
    by_probability = TreeShap(as_black_box(forest, method="predict_proba"), k=2, random_state=0).fit(X)
    assert by_probability.outputs_.kind == "probability"
    p = forest.predict_proba(ROWS)[0][:, 1]
    clear = np.abs(p - 0.5) > 1e-9
    one, two = by_label.explain(ROWS, 0).scores, by_probability.explain(ROWS, 0).scores
    assert one[clear] == pytest.approx(two[clear], abs=1e-6)
    np.testing.assert_array_equal(TreeShap(forest, k=2, random_state=0).fit(X).explain(ROWS, 0).scores, two)
    single = RandomForestClassifier(15, random_state=0).fit(X, LABELS[:, 0])
    toward = np.where(single.predict_proba(ROWS)[:, 1] > 0.5, 1, -1)[:, None]
    assert explained(single).scores == pytest.approx(toward * direct(single)[:, :, 1], abs=1e-6)
    alone = RandomForestClassifier(15, random_state=0).fit(X, CLASSES)
    columns = TreeShap(as_black_box(alone, method="predict_proba"), k=2, random_state=0).fit(X)
    toward = np.where(alone.predict_proba(ROWS)[:, 2] > 0.5, 1, -1)[:, None]
    assert columns.explain(ROWS, 2).scores == pytest.approx(toward * direct(alone)[:, :, 2], abs=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        RandomForestRegressor(10, random_state=0),
        MultiOutputRegressor(HistGradientBoostingRegressor(max_iter=10, random_state=0)),
    ],
)
def test_numbers_have_sizes_as_scores_and_signed_effects(model):
    Y = np.column_stack([3 * X[:, 0] - X[:, 1], X[:, 2] ** 2])
    model = model.fit(X, Y)
    explainer = TreeShap(model, k=2, random_state=0).fit(X)
    source = explainer._source(ROWS, None)
    effects = explainer._effects(source, np.zeros(25, dtype=np.int64))
    assert explainer.explain(ROWS, 0).scores == pytest.approx(np.abs(effects), abs=1e-6)
    if isinstance(model, MultiOutputRegressor):
        assert effects == pytest.approx(direct(model.estimators_[0]), abs=1e-5)
    rising = ROWS[:, 0] > 0.5
    assert (effects[rising, 0] > 0).all()
    assert (effects[ROWS[:, 0] < -0.5, 0] < 0).all()


def test_signed_scores_of_row_by_row_baselines_for_numbers():
    def model(X):
        return np.column_stack([3 * X[:, 0] - 2 * X[:, 1], X[:, 2]])

    strong = np.abs(ROWS[:5, :2]) > 0.3
    for kind in (KernelShap, ShapleySampling, Lime):
        scores = kind(model, k=2, n_samples=300, signed=True, random_state=0).fit(X).explain(ROWS[:5], 0).scores
        assert (np.sign(scores[:, :2]) == np.sign(ROWS[:5, :2] * [3, -2]))[strong].all()


# --- planted truth, containers, queries ----------------------------------------------------------------------


def test_the_column_that_decides_ranks_first():
    Y = np.column_stack([X[:, 4] > 0, X[:, 1] > 0.3]).astype(int)
    forest = ExtraTreesClassifier(30, random_state=0).fit(X, Y)
    explainer = TreeShap(forest, k=1, random_state=0).fit(X)
    assert np.mean(explainer.explain(ROWS, 0).selected == 4) > 0.95
    assert np.mean(explainer.explain(ROWS, 1).selected == 1) > 0.95
    assert explainer.n_explain_queries_ == 2 * len(ROWS)
    given = TreeShap(forest, k=1, random_state=0).fit(X)
    given.explain(ROWS, 0, predicted=forest.predict(ROWS))
    assert given.n_explain_queries_ == 0


def test_frames_sparse_rows_texts_and_groups():
    frame = pd.DataFrame(X, columns=list("abcdef"))
    forest = RandomForestClassifier(10, random_state=0).fit(frame, LABELS)
    by_frame = explained(forest, frame[:25], data=frame)
    plain = RandomForestClassifier(10, random_state=0).fit(X, LABELS)
    assert by_frame.scores == pytest.approx(explained(plain).scores)
    grouped = explained(plain, groups={"pair": [0, 1]}, k=1)
    assert grouped.scores[:, 0] == pytest.approx(explained(plain).scores[:, :2].sum(axis=1), abs=1e-6)
    bags = sp.csr_matrix(RNG.poisson(0.5, size=(120, 6)).astype(float))
    words = ExtraTreesClassifier(10, random_state=0).fit(bags, (bags[:, :2].toarray() > 0).astype(int))
    assert explained(words, bags[:5], data=bags).scores.shape == (5, 6)
    texts = ["good film", "bad film", "good actors", "bad bad actors"] * 10
    vectoriser = CountVectorizer().fit(texts)
    forest = RandomForestClassifier(10, random_state=0).fit(vectoriser.transform(texts), [1, 0, 1, 0] * 10)
    counts, names = vectoriser.transform(texts).astype(float), vectoriser.get_feature_names_out().tolist()
    found = TreeShap(forest, k=1, feature_names=names, random_state=0).fit(counts).explain(counts[:4])
    assert {found.feature_names[unit] for unit in found.selected.ravel()} <= {"good", "bad"}


# --- what it refuses ----------------------------------------------------------------------------------------


def test_models_without_readable_trees_are_refused():
    chain = ClassifierChain(RandomForestClassifier(3, random_state=0)).fit(X, LABELS)
    for model, message in (
        (lambda X: X > 0, "looks inside tree models, got"),
        (chain, "ClassifierChain: each of its models takes the outputs before it"),
        (AdaBoostClassifier(n_estimators=2, random_state=0).fit(X, LABELS[:, 0]), "AdaBoostClassifier"),
        (MultiOutputClassifier(DummyClassifier()).fit(X, LABELS), "of DummyClassifier"),
        (make_pipeline(StandardScaler(), RandomForestClassifier(3, random_state=0)).fit(X, LABELS), "got a Pipeline"),
        (GradientBoostingClassifier(n_estimators=2, random_state=0).fit(X, CLASSES), "shap cannot read"),
    ):
        with pytest.raises(InputError, match=message):
            TreeShap(model, k=2, random_state=0).fit(X)
    frame = pd.DataFrame({"a": X[:, 0], "b": pd.Categorical(np.where(X[:, 1] > 0, "u", "v"))})
    boosting = HistGradientBoostingClassifier(max_iter=3, random_state=0, categorical_features="from_dtype").fit(
        frame, LABELS[:, 0]
    )
    with pytest.raises(InputError, match="'b' holds categories"):
        TreeShap(boosting, k=1).fit(frame)


def test_a_missing_package_is_named(monkeypatch):
    import sys

    forest = ExtraTreesRegressor(2, random_state=0).fit(X, LABELS)
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(MissingExtraError, match=r"sointer\[baselines\]"):
        TreeShap(forest, k=1).fit(X)
