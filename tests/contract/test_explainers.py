"""One contract that every explainer passes: SOInter, SOInter-1, and every baseline in every setting."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.exceptions import NotFittedError

from quick import QUICK
from sointer import BlackBox, Explanation, SOInter
from sointer.blackbox.adapters import as_black_box
from sointer.errors import InputError
from sointer.explainers.baselines.base import Random
from sointer.explainers.baselines.invase import Invase
from sointer.explainers.baselines.l2x import L2X
from sointer.explainers.baselines.lime_and_shap import KernelShap, Lime, ShapleySampling
from sointer.explainers.baselines.trained import HideAndSeek
from sointer.explainers.baselines.tree_shap import TreeShap

pytestmark = [
    pytest.mark.usefixtures("global_random_state_is_left_alone"),
    pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning"),
]

EXPLAINERS = {
    "SOInter": (SOInter, QUICK),
    "SOInter-1": (SOInter, {**QUICK, "structured": False}),
    "Lime, well": (Lime, {"n_samples": 60}),
    "Lime, package": (Lime, {"n_samples": 30, "protocol": "package"}),
    "KernelShap, well": (KernelShap, {"n_samples": 60}),
    "KernelShap, package": (KernelShap, {"n_samples": 20, "protocol": "package"}),
    "ShapleySampling": (ShapleySampling, {"n_samples": 60}),
    "L2X": (L2X, {"n_steps": 8}),
    "Random": (Random, {}),
    "TreeShap": (TreeShap, {"method": "predict"}),  # nothing is sent to compare with probabilities
    "HideAndSeek": (HideAndSeek, {"n_epochs": 8}),
    "Invase, paper": (Invase, {"n_steps": 8, "protocol": "paper"}),
    "Invase, package": (Invase, {"n_steps": 2}),
}
ASKS_ABOUT_MASKED = (Lime, KernelShap, ShapleySampling)
ASKS_TO_EXPLAIN = (*ASKS_ABOUT_MASKED, TreeShap)
OWN_SIZE = (SOInter, HideAndSeek, Invase)


class Counting:
    """A model of two outputs that counts the rows it is asked about."""

    def __init__(self) -> None:
        self.n_rows = 0

    def __call__(self, X):
        self.n_rows += len(X)
        return np.column_stack([X[:, 0] + X[:, 1] > 0, X[:, 2] * X[:, 0] > 0]).astype(int)


X_NORMAL = np.random.default_rng(0).normal(size=(80, 6))


class CountingTrees(ExtraTreesClassifier):
    """Trees that count in `counter.n_rows` the rows that they are asked about."""

    def predict(self, X):
        self.counter.n_rows += len(X)
        return super().predict(X)


def grown(model):
    """Trees that say what the model says of X_NORMAL, for the explainer that looks inside; a BlackBox gets them too."""
    if isinstance(model, BlackBox):
        model.predict = as_black_box(grown(model.predict)).predict
        return model
    try:
        Y = np.asarray((Counting() if isinstance(model, Counting) else model)(X_NORMAL))
    except Exception:  # it wants another container
        pytest.skip("trees of scikit-learn take numbers only; see tests/explainers/test_tree_shap.py for the rest")
    if isinstance(model, Counting):
        trees = CountingTrees(5, random_state=0).fit(X_NORMAL, Y)
        trees.counter = model
        return trees
    kind = ExtraTreesRegressor if Y.dtype.kind == "f" else ExtraTreesClassifier
    return kind(5, random_state=0).fit(X_NORMAL, Y)


@pytest.fixture(scope="module")
def estimators_learn_little():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sointer.explainers.baselines.invase.ESTIMATOR_STEPS", 8)
        yield


@pytest.fixture(scope="module", params=list(EXPLAINERS))
def make(request):
    kind, settings = EXPLAINERS[request.param]
    if request.param == "Invase, package":
        pytest.importorskip("invase")
        request.getfixturevalue("estimators_learn_little")

    def build(model, **more):
        own = settings
        if kind is TreeShap:
            model, own = grown(model), {} if isinstance(model, BlackBox) else settings
        return kind(model, **{"random_state": 3, **own, **more})

    return build


@pytest.fixture(scope="module")
def fitted(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(Counting(), k=3, output_names=["sum", "product"]).fit(X_NORMAL)


# --- what an explanation is ---------------------------------------------------------------------------------


def test_shapes_and_meaning(fitted):
    explanation = fitted.explain(X_NORMAL[:9], target=1)
    assert type(explanation) is Explanation
    assert explanation.selected.shape == (9, 3)
    assert explanation.scores.shape == explanation.mask.shape == (9, 6)
    assert np.isfinite(explanation.scores).all()
    for row in range(9):
        chosen = explanation.selected[row]
        assert set(np.flatnonzero(explanation.mask[row])) == set(chosen)
        assert len(set(chosen)) == 3
        assert (np.diff(explanation.scores[row, chosen]) <= 0).all()
        assert explanation.scores[row, chosen].min() >= np.delete(explanation.scores[row], chosen).max()
    assert set(explanation.value) <= {0, 1}
    assert 0 <= explanation.verify(n_draws=2).fidelity <= 1


def test_k_can_be_overridden_and_prefixes_agree(fitted):
    few, many = fitted.explain(X_NORMAL[:5], target=0, k=2), fitted.explain(X_NORMAL[:5], target=0, k=5)
    assert np.array_equal(few.selected, many.selected[:, :2])
    automatic = fitted.explain(X_NORMAL[:5], target=0, k="auto")
    assert (automatic.n_selected >= 1).all()


def test_a_target_by_number_by_name_and_per_row(fitted):
    rows = X_NORMAL[:6]
    by_number, by_name = fitted.explain(rows, target=1), fitted.explain(rows, target="product")
    assert np.array_equal(by_number.scores, by_name.scores)
    mixed = fitted.explain(rows, target=["sum", "product"] * 3)
    assert np.array_equal(mixed.scores[1::2], by_number.scores[1::2])
    assert np.array_equal(mixed.scores[::2], fitted.explain(rows, target=0).scores[::2])
    assert mixed.target.tolist() == [0, 1] * 3


def test_a_row_is_explained_the_same_alone_shuffled_and_in_any_company(fitted):
    rows = X_NORMAL[:8]
    whole = fitted.explain(rows, target=1)
    order = np.array([5, 2, 7, 0, 1, 3, 6, 4])
    shuffled = fitted.explain(rows[order], target=1)
    assert np.array_equal(shuffled.scores, whole.scores[order])
    assert np.array_equal(shuffled.selected, whole.selected[order])
    assert np.array_equal(fitted.explain(rows[[3]], target=1).scores[0], whole.scores[3])
    twice = fitted.explain(rows[[3, 3, 3]], target=[1, 0, 1])
    assert np.array_equal(twice.scores[[0, 2]], whole.scores[[3, 3]])


def test_the_same_seed_gives_the_same_explanations(fitted):
    again = clone(fitted).fit(X_NORMAL)
    one, two = fitted.explain(X_NORMAL[:5], target=0), again.explain(X_NORMAL[:5], target=0)
    assert np.array_equal(one.scores, two.scores)
    assert np.array_equal(one.selected, two.selected)
    assert list(one.value) == list(two.value)
    assert again.model is fitted.model


def test_fitted_attributes_and_parameters(fitted):
    assert fitted.n_features_in_ == 6
    assert list(fitted.feature_names_in_) == [f"x{i}" for i in range(6)]
    assert fitted.output_names_ == ["sum", "product"]
    assert fitted.targets_ == [0, 1]
    assert clone(fitted).get_params(deep=False).keys() == fitted.get_params(deep=False).keys()
    assert fitted.get_params()["k"] == 3


# --- what the black box is asked ----------------------------------------------------------------------------


def test_every_query_is_counted(make):
    model = Counting()
    explainer = make(model, k=2).fit(X_NORMAL)
    assert explainer.n_queries_ == model.n_rows > 0
    in_fit = model.n_rows
    for _ in range(2):
        explainer.explain(X_NORMAL[:3], target=0)
    assert explainer.n_explain_queries_ == model.n_rows - in_fit
    assert explainer.n_explain_queries_ >= 6
    # The others query only for values.
    assert (explainer.n_explain_queries_ > 6) == isinstance(explainer, ASKS_ABOUT_MASKED)
    explainer.fit(X_NORMAL)
    assert explainer.n_explain_queries_ == 0


def test_automatic_k_asks_only_without_an_own_size_and_is_counted(make):
    model = Counting()
    explainer = make(model, k="auto").fit(X_NORMAL)
    before = model.n_rows
    explainer.explain(X_NORMAL[:3], target=0)
    assert explainer.n_explain_queries_ == model.n_rows - before
    assert (explainer.n_explain_queries_ == 3) == isinstance(explainer, OWN_SIZE)  # then for values only
    assert explainer.queries_for_sizes != isinstance(explainer, OWN_SIZE)


def test_a_black_box_of_the_users_own(make):
    box = BlackBox(Counting(), batch_size=50)
    explainer = make(box, k=2).fit(X_NORMAL)
    assert explainer.black_box_ is box
    assert explainer.n_queries_ == box.n_queries
    with pytest.raises(InputError, match="batch_size=7 was given together with a BlackBox"):
        make(box, k=2, batch_size=7).fit(X_NORMAL)


# --- data as they are ---------------------------------------------------------------------------------------


def words(X):
    assert sp.issparse(X)
    return (X[:, [0, 1, 2]].toarray() > 0).astype(int)


def bag_of_words() -> sp.csr_matrix:
    counts = np.random.default_rng(1).poisson(0.25, size=(150, 12)).astype(float)
    counts[0] = 0.0
    counts[1] = 0.0
    counts[1, [4, 7]] = 1.0
    return sp.csr_matrix(counts)


def test_only_words_that_occur_are_selected(make):
    X = bag_of_words()
    explanation = make(words, k=5).fit(X).explain(X[:20], target=2)
    assert not (explanation.mask & (X[:20].toarray() == 0)).any()
    assert explanation.selected[0].tolist() == [-1] * 5
    assert set(explanation.selected[1]) == {4, 7, -1}
    assert explanation.n_selected.tolist() == np.minimum((X[:20].toarray() != 0).sum(axis=1), 5).tolist()


def test_features_equal_to_their_reference_are_never_selected(make):
    reference = np.arange(6.0)
    rows = X_NORMAL[:10].copy()
    rows[:, 2] = 2.0
    explanation = make(Counting(), k=6, removal=reference).fit(X_NORMAL).explain(rows, target=1)
    assert not explanation.mask[:, 2].any()
    assert (explanation.n_selected == 5).all()


def test_a_data_frame_with_categories(make):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=150), "colour": rng.choice(["red", "green", "blue"], 150)})
    frame["weight"] = rng.integers(0, 50, 150)

    def model(X):
        assert list(X.columns) == ["size", "colour", "weight"]
        assert set(X["colour"]) <= {"red", "green", "blue"}
        return np.column_stack([X["colour"] == "red", X["size"] > 0]).astype(int)

    explanation = make(model, k=2, removal="marginal").fit(frame).explain(frame[:6], target=0)
    assert explanation.scores.shape == (6, 3)
    assert explanation.feature_names == ["size", "colour", "weight"]
    assert (explanation.mask.sum(axis=1) == 2).all()


def test_torch_tensors(make):
    def model(X):
        assert isinstance(X, torch.Tensor)
        return (X[:, :2] > 0).long()

    X = torch.from_numpy(X_NORMAL).float()
    assert make(model, k=2).fit(X).explain(X[:4], target=0).selected.shape == (4, 2)


def test_groups_are_chosen_whole(make):
    groups = {"pair": [0, 1], "rest": [3, 4, 5]}
    explanation = make(Counting(), k=1, groups=groups).fit(X_NORMAL).explain(X_NORMAL[:7], target=0)
    assert explanation.feature_names == ["pair", "x2", "rest"]
    assert explanation.scores.shape == (7, 3)
    assert explanation.selected.shape == (7, 1)
    for mask, unit in zip(explanation.mask, explanation.selected[:, 0], strict=True):
        assert np.flatnonzero(mask).tolist() == [[0, 1], [2], [3, 4, 5]][unit]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


KINDS = {
    "binary": lambda X: np.where(X[:, :2] > 0, "yes", "no"),
    "categorical": lambda X: np.array(["low", "middle", "high"])[np.digitize(X[:, :2], [-0.5, 0.5])],
    "probability": lambda X: sigmoid(2 * X[:, :2] + X[:, 2:4]),
    "continuous": lambda X: 100 + 10 * X[:, :2] + X[:, 2:4],
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_of_output(make, kind):
    explainer = make(KINDS[kind], k=2).fit(X_NORMAL)
    assert explainer.outputs_.kind == kind
    explanation = explainer.explain(X_NORMAL[:6], target=[0, 1] * 3)
    assert (explanation.n_selected == 2).all()
    said = KINDS[kind](X_NORMAL[:6])[np.arange(6), explanation.target]
    if isinstance(explainer, TreeShap) and kind == "continuous":  # trees average, and so round
        assert explanation.value.tolist() == pytest.approx(said.tolist(), rel=1e-12)
    else:
        assert explanation.value.tolist() == said.tolist()
    assert explanation.value_source == "model"
    if isinstance(explainer, ASKS_TO_EXPLAIN):
        return
    expected = explainer.explain(X_NORMAL[:6], target=[0, 1] * 3, query=False)  # the others can guess
    assert expected.value_source == "expected"
    if kind == "continuous":
        assert np.isfinite(expected.value.astype(float)).all()
    elif kind == "probability":
        assert all(0 <= value <= 1 for value in expected.value)
    else:
        assert set(expected.value) <= set(np.unique(KINDS[kind](X_NORMAL)))


# --- bad input ----------------------------------------------------------------------------------------------


def test_an_unfitted_explainer_says_so(make):
    with pytest.raises(NotFittedError):
        make(Counting()).explain(X_NORMAL, target=0)


BAD_EXPLAIN = {
    "unknown name": (X_NORMAL[:2], {"target": "produkt"}, "Did you mean 'product'"),
    "number too large": (X_NORMAL[:2], {"target": 2}, "target must be from 0 to 1"),
    "target missing": (X_NORMAL[:2], {}, "target is missing"),
    "wrong number of targets": (X_NORMAL[:2], {"target": [0, 1, 0]}, "one output per row"),
    "k too large": (X_NORMAL[:2], {"target": 0, "k": 7}, "k must be from 1 to 6"),
    "k too small": (X_NORMAL[:2], {"target": 0, "k": 0}, "k must be from 1 to 6"),
    "too few features": (X_NORMAL[:2, :5], {"target": 0}, "X has 5 features"),
    "not finite": (np.full((1, 6), np.nan), {"target": 0}, "NaN"),
}


@pytest.mark.parametrize("case", list(BAD_EXPLAIN))
def test_bad_questions(fitted, case):
    rows, question, message = BAD_EXPLAIN[case]
    before = fitted.black_box_.n_queries
    with pytest.raises(InputError, match=message):
        fitted.explain(rows, **question)
    assert fitted.black_box_.n_queries == before


BAD_SETTINGS = {
    "k": ({"k": 0}, "k must be"),
    "removal": ({"removal": "gone", "k": 2}, "removal must be"),
    "random_state": ({"random_state": -1, "k": 2}, "random_state must be"),
    "feature_names": ({"feature_names": ["a"], "k": 2}, "feature_names must hold 6"),
    "groups": ({"groups": {"a": [9]}, "k": 2}, "group a holds 9"),
}


@pytest.mark.parametrize("case", list(BAD_SETTINGS))
def test_bad_settings_are_refused_before_the_model_is_asked(make, case):
    settings, message = BAD_SETTINGS[case]
    model = Counting()
    with pytest.raises(InputError, match=message):
        make(model, **settings).fit(X_NORMAL)
    assert model.n_rows == 0


def test_bad_names_and_targets_are_refused_before_the_model_is_asked_much(make):
    model = Counting()
    with pytest.raises(InputError, match="output_names must hold 2"):
        make(model, output_names=["one"], k=2).fit(X_NORMAL)
    with pytest.raises(InputError, match="unknown output"):
        make(model, k=2).fit(X_NORMAL, targets=["nothing"])
    with pytest.raises(InputError, match="must be a list of outputs"):
        make(model, k=2).fit(X_NORMAL, targets="y0")
    assert model.n_rows <= 3 * 16


def test_targets_left_out_of_fit_are_refused(make):
    explainer = make(Counting(), k=2).fit(X_NORMAL, targets=[1])
    assert explainer.targets_ == [1]
    assert (explainer.explain(X_NORMAL[:2]).target == 1).all()
    with pytest.raises(InputError, match="was not among the targets given to fit"):
        explainer.explain(X_NORMAL[:2], target=0)


def test_what_the_model_said_can_be_told(make):
    model = Counting()
    explainer = make(model, k=2).fit(X_NORMAL)
    plain = explainer.explain(X_NORMAL[:6], target=[0, 1] * 3)
    for_plain = explainer.n_explain_queries_
    said = Counting()(X_NORMAL[:6])
    given = explainer.explain(X_NORMAL[:6], target=[0, 1] * 3, predicted=said)
    assert explainer.n_explain_queries_ - for_plain == max(0, for_plain - 6)
    assert np.array_equal(given.scores, plain.scores)
    assert given.value.tolist() == plain.value.tolist() == said[np.arange(6), given.target].tolist()
    assert (plain.value_source, given.value_source) == ("model", "given")
