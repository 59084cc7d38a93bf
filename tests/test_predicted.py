"""What the model said: told by the caller, or remembered from fit; it is what explanations are for."""

from __future__ import annotations

import warnings
import zlib

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

import sointer
from sointer import EnergyConfig, InterpreterConfig, SOInter, TrainingConfig
from sointer.baselines import L2X, KernelShap, Lime, Random, ShapleySampling
from sointer.errors import InputError
from sointer.remembered import Remembered

pytestmark = [
    pytest.mark.usefixtures("global_random_state_is_left_alone"),
    pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning"),
]

QUICK = {
    "query_budget": 300,
    "energy": EnergyConfig(hidden=(8,), coupling_units=4),
    "training": TrainingConfig(n_epochs=1, n_rounds=1),
    "interpreter": InterpreterConfig(n_path_steps=1, n_residual_steps=2),
}


def quietly(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


# --- answers remembered ------------------------------------------------------------------------------------


def dense_rows(n=50, n_columns=6, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, n_columns)) < 0.6, rng.normal(size=(n, n_columns)), 0.0)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("codes", [np.int64, np.float32])
def test_rows_are_found_by_their_content(container, codes):
    rows = dense_rows()
    answers = np.arange(100).reshape(50, 2).astype(codes) - 50
    remembered = Remembered.of(container(rows), answers)
    order = np.random.default_rng(1).permutation(50)[:20]
    asked = np.concatenate([rows[order], dense_rows(10, seed=5), rows[:3] + 1e-12])
    found, values = remembered.find(container(asked))
    assert found.tolist() == [True] * 20 + [False] * 13
    assert np.array_equal(values, answers[order])
    nothing, none = remembered.find(container(dense_rows(4, seed=6)))
    assert not nothing.any()
    assert none.shape == (0, 2)


def test_of_equal_rows_the_first_answer_is_kept():
    rows = dense_rows(4)[[0, 1, 0, 2, 1]]
    remembered = Remembered.of(rows, np.arange(5).reshape(5, 1))
    assert len(remembered.keys) == len(remembered.codes) == 3
    found, values = remembered.find(rows)
    assert found.all()
    assert values.ravel().tolist() == [0, 1, 0, 3, 1]


def test_entries_in_another_order_are_the_same_row():
    one = sp.csr_array((np.array([2.0, 3.0]), np.array([1, 4]), np.array([0, 2])), shape=(1, 5))
    other = sp.csr_array((np.array([3.0, 2.0]), np.array([4, 1]), np.array([0, 2])), shape=(1, 5))
    found, values = Remembered.of(one, np.array([[7]])).find(other)
    assert found.tolist() == [True]
    assert values.tolist() == [[7]]


def test_zeros_written_otherwise_are_the_same_row():
    plain = sp.csr_array(np.array([[0.0, 2.0, 0.0]]))
    written = sp.csr_array((np.array([0.0, 2.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))
    found = [Remembered.of(plain, np.array([[1]])).find(written)[0].all()]
    found.append(Remembered.of(np.zeros((1, 2)), np.array([[1]])).find(np.array([[0.0, -0.0]]))[0].all())
    assert all(found)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_what_is_quick_to_compute_misses_no_row(container):
    """Sums are rounded in another order with other rows around; numbers are large beside small ones."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 700)) * 10.0 ** rng.integers(-8, 9, size=700)
    rows[:50] = rng.integers(2, size=(50, 700))
    rows[50:53, 0] = [1e308, -1e308, 1e200]
    remembered = Remembered.of(container(rows), np.arange(300).reshape(-1, 1))
    old = Remembered(remembered.keys, remembered.codes)  # as in files of older versions
    for n in (1, 2, 7, 300):
        parts = [remembered.find(container(rows[i : i + n])) for i in range(0, 300, n)]
        assert np.concatenate([found for found, _ in parts]).all()
        assert np.concatenate([values for _, values in parts]).ravel().tolist() == list(range(300))
    near = np.nextafter(rows, 0)
    assert not remembered.find(container(near))[0][50:].any()
    assert np.array_equal(remembered.find(container(near))[0], old.find(container(near))[0])


def test_nothing_remembered():
    empty = Remembered.of(np.zeros((0, 3)), np.zeros((0, 2), dtype=np.int64))
    found, values = empty.find(np.ones((2, 3)))
    assert found.tolist() == [False, False]
    assert values.shape == (0, 2)


class Noise:
    """Two labels per row that nobody can learn: they depend on the row's bytes alone."""

    def __call__(self, X):
        dense = np.ascontiguousarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
        hashes = np.array([zlib.crc32(row.tobytes()) for row in dense])
        return np.column_stack([hashes % 2, hashes // 2 % 3])


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_what_was_said_during_fit_is_explained(container, tmp_path):
    X = dense_rows(80)
    settings = QUICK | {"query_budget": 500}
    explainer = quietly(lambda: SOInter(Noise(), k=2, random_state=0, **settings).fit(container(X)))
    said = Noise()(X)
    fresh = dense_rows(80, seed=9)
    explainer.save(tmp_path / "explainer")
    for one in (explainer, sointer.load(tmp_path / "explainer")):
        for target in (0, 1):
            before = explainer.black_box_.n_queries
            assert np.array_equal(one.explain(container(X), target=target).expected, said[:, target])
            guessed = one.explain(container(fresh), target=target).expected
            assert (guessed == Noise()(fresh)[:, target]).mean() < 0.85, "the energy cannot know these"
            assert explainer.black_box_.n_queries == before
        mixed = np.arange(80) % 2
        assert np.array_equal(one.explain(container(X), target=mixed).expected, said[np.arange(80), mixed])
    both = explainer.explain(container(np.concatenate([fresh[:5], X[:5]])), target=1).expected
    assert np.array_equal(both[5:], said[:5, 1])


def test_what_is_told_wins_over_what_is_remembered():
    X = dense_rows(80)
    explainer = quietly(lambda: SOInter(Noise(), k=2, random_state=0, **QUICK | {"query_budget": 500}).fit(X))
    said = Noise()(X)
    said[:, 0] = 1 - said[:, 0]
    assert np.array_equal(explainer.explain(X, target=0, predicted=said).expected, said[:, 0])


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
    told, contradicted = tags(rows), tags(rows)
    contradicted[:, 0] = 0
    for_it = words.explain(rows, target="or", predicted=told)
    against_it = words.explain(rows, target="or", predicted=contradicted)
    assert (for_it.expected == 1).all()
    assert (against_it.expected == 0).all()
    assert (for_it.selected[:, 0] == 0).mean() > 0.95
    assert (for_it.scores[:, 0] > 0).all()
    assert (against_it.scores[:, 0] < 0).all()
    assert (against_it.selected[:, 0] != 0).all()


def test_words_against_are_found_where_the_model_said_no(words):
    X = documents(600, seed=2).toarray()
    rows = sp.csr_array(X[(X[:, 2] == 1) & (X[:, 3] == 1)])
    explanation = words.explain(rows, target="but", predicted=tags(rows))
    assert (explanation.expected == 0).all()
    assert (explanation.selected[:, 0] == 3).mean() > 0.8
    assert (explanation.scores[:, 2] < 0).mean() > 0.8


def test_telling_what_is_expected_anyway_changes_nothing(words):
    X = documents(60, seed=3)
    plain = words.explain(X, target="or")
    table = np.column_stack([plain.expected, words.explain(X, target="but").expected])
    told = words.explain(X, target="or", predicted=table)
    assert np.array_equal(plain.scores, told.scores)
    assert np.array_equal(plain.selected, told.selected)


def test_any_container_may_hold_it(words):
    X = documents(30, seed=4)
    said = tags(X)
    expected = words.explain(X, target="or", predicted=said)
    for told in (
        said.tolist(),
        said.astype(bool),
        said.astype(float),
        pd.DataFrame(said, columns=["or", "but"]),
        sp.csr_array(said),
        torch.from_numpy(said),
    ):
        assert np.array_equal(words.explain(X, target="or", predicted=told).scores, expected.scores)


def test_a_frame_in_another_order_is_put_in_order_or_refused(words):
    X = documents(60, seed=4)
    swapped = pd.DataFrame(tags(X), columns=["or", "but"])[["but", "or"]]
    explanation = words.explain(X, target="or", predicted=swapped)
    with pytest.raises(InputError, match="name them"):
        words.explain(X, target="or", predicted=swapped.rename(columns={"but": "and"}))
    assert np.array_equal(explanation.expected, tags(X)[:, 0])


def test_automatic_k_asks_about_no_whole_row(words):
    X = documents(40, seed=5)
    said = tags(X)
    seen = []

    def recording(batch):
        seen.extend(row.tobytes() for row in batch.toarray())
        return tags(batch)

    original, words.black_box_.predict = words.black_box_.predict, recording
    try:
        words.explain(X, target="or", k="auto", predicted=said)
        whole = {row.tobytes() for row in X.toarray()[X.toarray().sum(axis=1) > 10]}
        assert seen
        assert not whole & set(seen)
        seen.clear()
        told = words.explain(X, target="or", k=1, predicted=said)
        assert not seen
        assert told.verify().n_queries == len(seen) == 80  # whole rows once, to check what was told
        assert whole <= set(seen)
        told.verify()
        assert len(seen) == 120
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
    assert "predicted must be what the model says about X, 20 rows of 2 outputs" in str(caught.value)
    assert "Your function" not in str(caught.value)
    assert words.black_box_.n_queries == before


@pytest.mark.parametrize("bad", [[[1.5]], [[-0.1]]])
def test_probabilities_must_be_probabilities(bad):
    X = dense_rows(60)
    explainer = quietly(lambda: SOInter(KINDS["probability"], k=2, random_state=0, **QUICK).fit(X))
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
            "preset": "paper",
            "query_budget": 300,
            "energy": EnergyConfig(hidden=(8,), coupling_units=4),
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
        lambda: make(recording, k=2, random_state=0, removal="marginal" if name != "paper" else "zero", **settings).fit(
            X
        )
    )
    said, targets = model(new), np.arange(8) % 2
    told = said[::-1].copy()  # on purpose what the model says about other rows
    seen.clear()
    explanation = explainer.explain(new, target=targets, predicted=told)
    own = told[np.arange(8), targets]
    if kind == "probability":
        assert np.array_equal(explanation.expected.astype(float), (own > 0.5).astype(float))
    elif kind == "continuous":
        np.testing.assert_allclose(explanation.expected.astype(float), own, rtol=1e-5, atol=1e-5)
    else:
        assert explanation.expected.tolist() == own.tolist()
    whole = {row.tobytes() for row in new}
    assert not whole & set(seen)
    if make in NEVER_ASKS:
        assert not seen
        assert explainer.n_explain_queries_ == 0
    seen.clear()
    verified = explanation.verify(n_draws=3)
    assert verified.n_queries == len(seen) == 8 + (8 if name == "paper" else 24)
    assert whole <= set(seen)  # verifying trusts the model, not what it was told
    assert verified.agreement.shape == (8,)


def test_a_false_prediction_is_found_out_by_verify(words):
    X = documents(80, seed=6)
    X = X[tags(X)[:, 0] == 1]
    explanation = words.explain(X, target="or", k=1, predicted=1 - tags(X))
    assert (explanation.expected == 0).all()
    assert explanation.verify().fidelity < 0.5
    assert words.explain(X, target="or", k=1, predicted=tags(X)).verify().fidelity > 0.9
