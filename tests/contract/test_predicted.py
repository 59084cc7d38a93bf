"""What the model predicts, given by the caller: it is what explanations are for."""

from __future__ import annotations

import warnings
import zlib

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

import sointer
from quick import FRAME, QUICK, frame_labels, quick_explainer, quick_fit
from sointer import EnergyConfig, SOInter, TrainingConfig
from sointer.errors import InputError
from sointer.explainers.baselines.base import Random
from sointer.explainers.baselines.l2x import L2X
from sointer.explainers.baselines.lime_and_shap import KernelShap, Lime, ShapleySampling

pytestmark = [
    pytest.mark.usefixtures("global_random_state_is_left_alone"),
    pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning"),
]


def quietly(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


# --- what the model predicts, and what is given ------------------------------------------------------------


def dense_rows(n=50, n_columns=6, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, n_columns)) < 0.6, rng.normal(size=(n, n_columns)), 0.0)


class Noise:
    """Two labels per row that nobody can learn: they depend on the row's bytes alone."""

    def __call__(self, X):
        dense = np.ascontiguousarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
        hashes = np.array([zlib.crc32(row.tobytes()) for row in dense])
        return np.column_stack([hashes % 2, hashes // 2 % 3])


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_what_was_said_during_fit_decides_nothing(container, tmp_path):
    """Without the model, samples of fit are like any other: what the energy expects is explained."""
    X = dense_rows(80)
    explainer = quick_fit(Noise(), container(X), query_budget=500)
    said = Noise()(X)
    explainer.save(tmp_path / "explainer")
    alone = sointer.load(tmp_path / "explainer")
    for target in (0, 1):
        before = explainer.black_box_.n_queries
        guessed = explainer.explain(container(X), target=target, query=False)
        assert explainer.black_box_.n_queries == before
        assert (guessed.value == said[:, target]).mean() < 0.95, "the energy cannot know these"
        without = alone.explain(container(X), target=target)
        assert guessed.value_source == without.value_source == "expected"
        assert np.array_equal(guessed.value, without.value)
        assert np.array_equal(guessed.scores, without.scores)
        asked = explainer.explain(container(X), target=target)
        assert asked.value_source == "model"
        assert np.array_equal(asked.value, said[:, target])
        assert explainer.black_box_.n_queries == before + 80


def test_what_is_given_wins_over_what_the_model_says():
    X = dense_rows(80)
    explainer = quick_fit(Noise(), X, query_budget=500)
    given = Noise()(X)
    given[:, 0] = 1 - given[:, 0]
    before = explainer.black_box_.n_queries
    explanation = explainer.explain(X, target=0, predicted=given)
    assert explanation.value_source == "given"
    assert np.array_equal(explanation.value, given[:, 0])
    assert explainer.black_box_.n_queries == before


# --- the sign follows what is told -------------------------------------------------------------------------

N_WORDS = 300


def tags(X):
    """Tag 0: word 0 or 1. Tag 1: word 2, unless there is word 3."""
    has = (X.toarray() if sp.issparse(X) else np.asarray(X)) > 0
    return np.column_stack([has[:, 0] | has[:, 1], has[:, 2] & ~has[:, 3]]).astype(int)


def documents(n, seed=0):
    share = np.full(N_WORDS, 0.03)
    share[:4] = 0.3
    return sp.csr_array((np.random.default_rng(seed).random((n, N_WORDS)) < share).astype(float))


@pytest.fixture(scope="module")
def words():
    energy = EnergyConfig(hidden=(32,), coupling_units=4, batch_size=64)
    return quietly(
        lambda: SOInter(tags, k=1, random_state=0, query_budget=1500, energy=energy, output_names=["or", "but"]).fit(
            documents(800)
        )
    )


def test_the_sign_follows_what_is_told(words):
    X = documents(300, seed=1).toarray()
    rows = sp.csr_array(X[(X[:, 0] == 1) & (X[:, 1] == 0)])
    given, contradicted = tags(rows), tags(rows)
    contradicted[:, 0] = 0
    for_it = words.explain(rows, target="or", predicted=given)
    against_it = words.explain(rows, target="or", predicted=contradicted)
    assert (for_it.value == 1).all()
    assert (against_it.value == 0).all()
    assert (for_it.selected[:, 0] == 0).mean() > 0.95
    assert (for_it.scores[:, 0] > 0).all()
    assert (for_it.effects[:, 0] > 0).all()
    assert (against_it.scores[:, 0] == 0).all(), "what speaks against a value is no reason for it"
    assert (against_it.effects[:, 0] < 0).all()
    assert (against_it.selected[:, 0] != 0).all()


def test_words_against_are_found_where_the_model_said_no(words):
    X = documents(600, seed=2).toarray()
    rows = sp.csr_array(X[(X[:, 2] == 1) & (X[:, 3] == 1)])
    explanation = words.explain(rows, target="but", predicted=tags(rows))
    assert (explanation.value == 0).all()
    assert (explanation.selected[:, 0] == 3).mean() > 0.8
    assert (explanation.effects[:, 2] < 0).mean() > 0.8


def test_telling_what_is_expected_anyway_changes_nothing(words):
    X = documents(60, seed=3)
    plain = words.explain(X, target="or", query=False)
    table = np.column_stack([plain.value, words.explain(X, target="but", query=False).value])
    given = words.explain(X, target="or", predicted=table)
    assert np.array_equal(plain.scores, given.scores)
    assert np.array_equal(plain.selected, given.selected)


def test_any_container_may_hold_it(words):
    X = documents(30, seed=4)
    said = tags(X)
    expected = words.explain(X, target="or", predicted=said)
    for given in (
        said.tolist(),
        said.astype(bool),
        said.astype(float),
        pd.DataFrame(said, columns=["or", "but"]),
        sp.csr_array(said),
        torch.from_numpy(said),
    ):
        assert np.array_equal(words.explain(X, target="or", predicted=given).scores, expected.scores)


def test_a_frame_in_another_order_is_put_in_order_or_refused(words):
    X = documents(60, seed=4)
    swapped = pd.DataFrame(tags(X), columns=["or", "but"])[["but", "or"]]
    explanation = words.explain(X, target="or", predicted=swapped)
    with pytest.raises(InputError, match="name them"):
        words.explain(X, target="or", predicted=swapped.rename(columns={"but": "and"}))
    assert np.array_equal(explanation.value, tags(X)[:, 0])


def test_automatic_k_asks_nothing_and_verify_about_masked_rows_only(words):
    X = documents(40, seed=5)
    said = tags(X)
    seen = []

    def recording(batch):
        seen.extend(row.tobytes() for row in batch.toarray())
        return tags(batch)

    original, words.black_box_.predict = words.black_box_.predict, recording
    try:
        words.explain(X, target="or", k="auto", predicted=said)
        assert not seen
        whole = {row.tobytes() for row in X.toarray()[X.toarray().sum(axis=1) > 10]}
        given = words.explain(X, target="or", k=1, predicted=said)
        assert not seen
        assert given.verify().n_queries == len(seen) == 40  # masked ones only
        assert not whole & set(seen)
    finally:
        words.black_box_.predict = original


# --- what cannot be told -----------------------------------------------------------------------------------

WRONG = {
    "too few rows": (lambda Y: Y[:-1], r"19 rows"),
    "too many rows": (lambda Y: np.vstack([Y, Y]), r"40 rows"),
    "too few outputs": (lambda Y: Y[:, :1], r"1 outputs"),
    "one output as a flat list": (lambda Y: Y[:, 0], r"shape \(20,\)"),
    "three dimensions": (lambda Y: Y[:, :, None], r"shape \(20, 2, 1\)"),
    "unknown labels": (lambda Y: Y + 5, r"new labels 5, 6, expected one of 0, 1"),
    "strings": (lambda Y: Y.astype(str), r"new labels '0', '1'"),
    "fractions": (lambda Y: Y * 0.5, r"new labels 0.5"),
    "NaN": (lambda Y: np.where(Y == 1, np.nan, Y), r"NaN"),
    "infinite": (lambda Y: np.where(Y == 1, np.inf, Y), r"infinite"),
    "None inside": (lambda Y: [[None, 1]] * 20, r"None"),
    "no table": (lambda Y: object(), r"expected an array of shape"),
    "ragged": (lambda Y: [[1, 0]] * 19 + [[1]], r"different lengths"),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_what_cannot_be_is_refused_and_nothing_is_asked(words, case):
    X = documents(20, seed=6)
    change, says = WRONG[case]
    before = words.black_box_.n_queries
    with pytest.raises(InputError, match=says) as caught:
        words.explain(X, target="or", predicted=change(tags(X)))
    assert "predicted must be what the model predicts for X, 20 rows of 2 outputs" in str(caught.value)
    assert "Your function" not in str(caught.value)
    assert words.black_box_.n_queries == before


def test_predictions_of_a_frame_must_be_in_its_order():
    """Else every sample would be explained by the prediction for another."""
    explainer, X = quick_explainer("frame"), FRAME[:20]
    predicted = frame_labels(X)
    for wrong in (predicted.iloc[::-1], predicted.sort_values("big")):
        with pytest.raises(InputError, match="another order than those of X, by their index"):
            explainer.explain(X, target="big", predicted=wrong)
    named, others = (FRAME[a:b].set_axis([f"r{i}" for i in range(a, b)]) for a, b in ((0, 20), (5, 25)))
    with pytest.raises(InputError, match=r"has the index 'r20', expected that of X, which begins with 'r0'.*set_axis"):
        explainer.explain(named, target="big", predicted=frame_labels(others).set_axis(others.index))
    explainer.explain(named, target="big", predicted=predicted)  # without labels of its own
    ordered = explainer.explain(X.iloc[::-1], target="big", predicted=predicted.iloc[::-1])
    assert ordered.value.tolist() == predicted["big"].tolist()[::-1]


@pytest.mark.parametrize("bad", [[[1.5]], [[-0.1]]])
def test_probabilities_must_be_probabilities(bad):
    X = dense_rows(60)
    explainer = quick_fit(KINDS["probability"], X)
    with pytest.raises(InputError, match=r"expected probabilities in \[0, 1\]"):
        explainer.explain(X[:1], target=0, predicted=np.array(bad) * np.ones((1, 2)))


# --- every kind of output, every explainer -----------------------------------------------------------------

KINDS = {
    "binary": lambda X: np.column_stack([X[:, 0] > 0, X[:, 1] * X[:, 2] > 0]),
    "categorical": lambda X: np.column_stack(
        [np.array(["low", "middle", "high"])[np.digitize(X[:, i], [-0.5, 0.5])] for i in (0, 1)]
    ),
    "probability": lambda X: 1 / (1 + np.exp(-4 * np.column_stack([X[:, 0], X[:, 1] + X[:, 2]]))),
    "continuous": lambda X: 3 * np.column_stack([X[:, 0] + 2 * X[:, 1], X[:, 2] - X[:, 0]]) + 1,
}
EXPLAINERS = {
    "SOInter": (SOInter, QUICK),
    "SOInter-1": (SOInter, QUICK | {"structured": False}),
    "paper": (
        SOInter,
        {
            **QUICK,
            "preset": "paper",
            "query_budget": 300,
            "training": TrainingConfig(n_rounds=1, n_pretraining_steps=5),
        },
    ),
    "Lime": (Lime, {"n_samples": 40}),
    "KernelShap": (KernelShap, {"n_samples": 40}),
    "ShapleySampling": (ShapleySampling, {"n_samples": 40}),
    "L2X": (L2X, {"n_steps": 10}),
    "Random": (Random, {}),
}
NEVER_ASKS = (SOInter, L2X, Random)


CASES = [
    pytest.param(name, kind, id=f"{name}, {kind}")
    for name in EXPLAINERS
    for kind in KINDS
    if not (name == "paper" and kind == "continuous")  # the paper's losses are for classes
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_every_explainer_and_kind(name, kind):
    make, settings = EXPLAINERS[name]
    model, seen = KINDS[kind], []

    def recording(X):
        seen.extend(row.tobytes() for row in np.ascontiguousarray(X))
        return model(X)

    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(90, 6)), rng.normal(size=(8, 6))
    explainer = quietly(
        lambda: make(
            recording, **{"k": 2, "random_state": 0, **settings}, removal="marginal" if name != "paper" else "zero"
        ).fit(X)
    )
    said, targets = model(new), np.arange(8) % 2
    given = said[::-1].copy()  # on purpose what the model says about other rows
    seen.clear()
    explanation = explainer.explain(new, target=targets, predicted=given)
    own = given[np.arange(8), targets]
    assert explanation.value.tolist() == own.tolist()
    assert explanation.value_source == "given"
    whole = {row.tobytes() for row in new}
    assert not whole & set(seen)
    if make in NEVER_ASKS:
        assert not seen
        assert explainer.n_explain_queries_ == 0
    seen.clear()
    verified = explanation.verify(n_draws=3)
    assert verified.n_queries == len(seen) == (8 if name == "paper" else 24)
    assert not whole & set(seen)  # what is judged is the value shown
    assert verified.agreement.shape == (8,)


def test_verify_judges_what_was_given(words):
    """A prediction that is not the model's own is judged as it was given: here, a word that keeps the tag away."""
    X = documents(80, seed=6)
    X = X[tags(X)[:, 0] == 1]
    explanation = words.explain(X, target="or", k=1, predicted=1 - tags(X))
    assert (explanation.value == 0).all()
    masked = tags(X.multiply(explanation.mask).tocsr())[:, 0]
    assert explanation.verify().agreement.tolist() == (masked == 0).astype(float).tolist()
    assert words.explain(X, target="or", k=1, predicted=tags(X)).verify().fidelity > 0.9
