"""What is explained is what the model predicts: `value`, `value_source`, `query=`, and how many queries that takes."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import sointer
from quick import QUICK, TAUGHT, quick_fit
from sointer import BlackBox, SOInter
from sointer.data.outputs import Outputs
from sointer.data.targets import target_values
from sointer.errors import InputError, QueryBudgetExceeded, SointerWarning
from sointer.explainers.baselines.base import NearestPixels, Random
from sointer.explainers.baselines.l2x import L2X
from sointer.explainers.baselines.lime_and_shap import KernelShap, Lime

pytestmark = [
    pytest.mark.usefixtures("global_random_state_is_left_alone"),
    pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning"),
]

N_FEATURES = 6


def parity(X):
    """Two labels that little training cannot learn."""
    signs = np.asarray(X)[:, :4] > 0
    return np.column_stack([signs.sum(axis=1) % 2, (signs[:, :2].sum(axis=1) + signs[:, 3]) % 3])


def graded(X):
    return 1 / (1 + np.exp(-3 * np.column_stack([X[:, 0], X[:, 1] * X[:, 2]])))


def numbers(X):
    return 10 * np.column_stack([X[:, 0] * X[:, 1], np.sin(3 * X[:, 2])])


def words(X):
    return np.array(["no", "perhaps", "yes"])[parity(X)]


MODELS = {"labels": parity, "words": words, "probability": graded, "continuous": numbers}


def rows(n, seed=1):
    return np.random.default_rng(seed).normal(size=(n, N_FEATURES))


def fitted(model, make=SOInter, **settings):
    settings = (QUICK if make is SOInter else {"k": 2, "random_state": 0}) | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(model, **settings).fit(rows(300, seed=0))


@pytest.fixture(scope="module")
def explainers():
    return {name: fitted(model) for name, model in MODELS.items()}


# --- the value is what the model predicts ------------------------------------------------------------------


@pytest.mark.parametrize("name", list(MODELS))
def test_ten_thousand_held_out_samples(explainers, name):
    """However badly the explainer was trained: all values are exactly what the model returns."""
    explainer, X = explainers[name], rows(10_000)
    said = MODELS[name](X)
    before = explainer.n_explain_queries_, explainer.black_box_.n_queries
    for target in (0, 1):
        explanation = explainer.explain(X, target)
        assert explanation.value.dtype == object
        assert explanation.value.tolist() == said[:, target].tolist()
        assert explanation.value_source == "model"
    assert explainer.n_explain_queries_ - before[0] == explainer.black_box_.n_queries - before[1] == 20_000
    expected = explainer.explain(X, 0, query=False).value
    assert expected.tolist() != said[:, 0].tolist(), "the explainer was trained too well for this test"


@pytest.mark.parametrize("name", list(MODELS))
def test_each_source_of_values(explainers, name, tmp_path):
    explainer, X = explainers[name], rows(20)
    said, other = MODELS[name](X), MODELS[name](rows(20, seed=5))
    before = explainer.black_box_.n_queries
    given = explainer.explain(X, 1, predicted=other)
    same = explainer.explain(X, 1, predicted=other, query=False)
    expected = explainer.explain(X, 1, query=False)
    assert explainer.black_box_.n_queries == before
    explainer.save(tmp_path / "why")
    alone = sointer.load(tmp_path / "why")
    loaded = sointer.load(tmp_path / "why", black_box=MODELS[name])
    assert [one.value_source for one in (given, same, expected)] == ["given", "given", "expected"]
    assert given.value.tolist() == same.value.tolist() == other[:, 1].tolist()
    assert alone.explain(X, 1).value_source == "expected"
    assert alone.explain(X, 1).value.tolist() == expected.value.tolist()
    assert alone.explain(X, 1, predicted=said).value.tolist() == said[:, 1].tolist()
    assert loaded.explain(X, 1).value_source == "model"
    assert loaded.explain(X, 1).value.tolist() == said[:, 1].tolist()
    assert loaded.n_explain_queries_ == 40


@pytest.mark.parametrize("make", [Lime, KernelShap, L2X, Random])
def test_baselines_alike(make):
    settings = {"n_steps": 5} if make is L2X else {} if make is Random else {"n_samples": 30}
    explainer, X = fitted(parity, make, **settings), rows(5)
    explanation = explainer.explain(X, 0)
    assert explanation.value.tolist() == parity(X)[:, 0].tolist()
    assert explanation.value_source == "model"
    assert explainer.explain(X, 0, predicted=parity(X)[::-1]).value_source == "given"
    if make.queries_to_explain:
        with pytest.raises(InputError, match=r"query=False was given; leave .* predicted="):
            explainer.explain(X, 0, query=False)
    else:
        before = explainer.black_box_.n_queries
        assert explainer.explain(X, 0, query=False).value_source == "expected"
        assert explainer.black_box_.n_queries == before
    with pytest.raises(InputError, match="refine=3 is for SOInter"):
        explainer.explain(X, 0, refine=3)


@pytest.mark.parametrize("bad", [0, 1, None, "no", [True]])
def test_query_is_true_or_false(explainers, bad):
    before = explainers["labels"].black_box_.n_queries
    with pytest.raises(InputError, match=r"query must be True .* got"):
        explainers["labels"].explain(rows(2), 0, query=bad)
    assert explainers["labels"].black_box_.n_queries == before


def test_nothing_is_queried_for_what_is_refused(explainers):
    explainer = explainers["labels"]
    before = explainer.black_box_.n_queries
    for wrong in ({"target": "nowhere"}, {"target": 0, "k": 99}, {"target": [0, 1]}):
        with pytest.raises(InputError):
            explainer.explain(rows(4), **wrong)
    assert explainer.black_box_.n_queries == before


# --- how many queries --------------------------------------------------------------------------------------


def test_identical_samples_are_sent_once(explainers):
    explainer = explainers["labels"]
    X = np.repeat(rows(3), [1, 5, 2], axis=0)
    before = explainer.n_explain_queries_
    explanation = explainer.explain(X, np.arange(8) % 2)
    assert explainer.n_explain_queries_ - before == 3
    assert explanation.value.tolist() == parity(X)[np.arange(8), np.arange(8) % 2].tolist()


def test_many_samples_are_sent_in_batches():
    sizes = []

    def recording(X):
        sizes.append(len(X))
        return parity(X)

    explainer = fitted(BlackBox(recording, batch_size=64))
    sizes.clear()
    explainer.explain(rows(200), 0)
    assert sum(sizes) == 200
    assert max(sizes) <= 64


@pytest.mark.parametrize("container", ["sparse", "frame"])
def test_containers(container):
    X = rows(300, seed=0) * (rows(300, seed=2) > 0)
    new = rows(30, seed=3) * (rows(30, seed=4) > 0)
    wrap = sp.csr_array if container == "sparse" else lambda x: pd.DataFrame(x, columns=list("abcdef"))

    def model(rows):
        return parity(rows.toarray() if container == "sparse" else rows.to_numpy())

    explainer = quick_fit(model, wrap(X))
    assert explainer.explain(wrap(new), 0).value.tolist() == parity(new)[:, 0].tolist()


# --- the budget ends ---------------------------------------------------------------------------------------


def test_a_budget_that_ends_loses_nothing():
    box = BlackBox(parity, query_budget=10_000)
    explainer = fitted(box)
    box.reset_budget(4500)
    with pytest.raises(QueryBudgetExceeded, match=r"4501 different samples.*nothing was lost") as caught:
        explainer.explain(rows(4501), 0)
    for way_out in ("Raise query_budget", "predicted=", "query=False", "4500 left"):
        assert way_out in str(caught.value)
    assert box.remaining == 4500, "all or nothing, also where samples go out in several parts"
    assert explainer.n_explain_queries_ == 0
    assert explainer.explain(rows(4501), 0, query=False).value_source == "expected"
    assert explainer.explain(rows(4501), 0, predicted=parity(rows(4501))).value_source == "given"
    assert explainer.explain(rows(4500), 0).value_source == "model"
    assert box.remaining == 0
    assert explainer.n_explain_queries_ == 4500


def test_what_was_sent_counts_also_if_the_rest_fails():
    box = BlackBox(parity)
    explainer = fitted(box)
    box.reset_budget(25)
    with pytest.raises(QueryBudgetExceeded):
        explainer.explain(rows(20), 0, refine=10)
    assert explainer.n_explain_queries_ == 20


# --- labels that fit never saw -----------------------------------------------------------------------------


def test_a_label_never_seen_is_still_what_the_model_said():
    def model(X):
        labels = parity(X).astype(object)
        labels[np.asarray(X)[:, 5] > 50, 0] = "new"
        return labels

    explainer, X = fitted(model), rows(6)
    X[[1, 4], 5] = 99.0
    with pytest.warns(SointerWarning, match=r"2 of 6 samples the model predicts labels .* 'new'\. `value` is what"):
        explanation = explainer.explain(X, 0)
    assert explanation.value.tolist() == model(X)[:, 0].tolist()
    assert explanation.value[1] == explanation.value[4] == "new"
    assert explanation.value_source == "model"
    assert set(explanation.to_frame()["value"]) == set(model(X)[:, 0])
    check = explanation.verify(removal="mean")
    kept = np.where(explanation.mask, X, explainer.background_.rows.mean(axis=0))
    assert check.agreement.tolist() == (model(kept)[:, 0] == explanation.value).tolist()


def test_pages_and_scores_take_labels_never_seen(tmp_path):
    pytest.importorskip("jinja2")

    def model(X):
        return np.where(np.asarray(X)[:, 5:] > 50, 7, parity(X))

    explainer, X = fitted(model), rows(8)
    X[[1, 4], 5] = 99.0
    page = explainer.report(X, tmp_path / "why.html", paths=False, verify=False).read_text(encoding="utf-8")
    assert '"7"' in page
    assert 0 <= explainer.score(X) <= 1


@pytest.mark.parametrize("attached", [True, False])
def test_the_page_says_what_is_only_expected(attached, tmp_path, explainers):
    pytest.importorskip("jinja2")
    explainers["labels"].save(tmp_path / "why")
    explainer = sointer.load(tmp_path / "why", black_box=parity if attached else None)
    page = explainer.report(rows(8), tmp_path / "why.html", paths=False).read_text(encoding="utf-8")
    assert ('"valueSource":"expected"' in page) == (not attached)
    assert ("The model was not queried: the values explained are those that the explainer expects" in page) != attached
    assert ("The values explained are what the model predicts." in page) == attached


# --- verify judges the value shown -------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("source", ["model", "given", "expected"])
def test_verify_judges_the_value_shown(explainers, name, source):
    explainer, X, model = explainers[name], rows(40), MODELS[name]
    how = {"model": {}, "given": {"predicted": model(rows(40, seed=8))}, "expected": {"query": False}}[source]
    explanation = explainer.explain(X, 0, **how)
    before = explainer.black_box_.n_queries
    check = explanation.verify(removal="mean")
    assert check.n_queries == explainer.black_box_.n_queries - before == 40, "only masked samples are sent"
    masked = model(np.where(explanation.mask, X, explainer.background_.rows.mean(axis=0)))[:, 0]
    if name == "probability":
        agrees = (masked > 0.5) == (explanation.value.astype(float) > 0.5)
        np.testing.assert_allclose(check.difference, np.abs(masked - explanation.value.astype(float)))
    elif name == "continuous":
        moved = np.abs(masked - explanation.value.astype(float)) / explainer.outputs_.scale[0]
        agrees = moved <= explainer.outputs_.tolerance
        np.testing.assert_allclose(check.difference, moved, rtol=1e-6)
    else:
        agrees = masked == explanation.value
    assert check.agreement.tolist() == agrees.astype(float).tolist()
    assert check.value_source == source
    assert ("of expected values" in repr(check)) == (source == "expected")
    assert ("expected values" in check._repr_html_()) == (source == "expected")


def test_automatic_k_queries_nothing_more_and_refine_judges_the_value_explained():
    explainer, X = fitted(graded, **TAUGHT), rows(30)
    index = np.arange(30)
    for how in ({}, {"query": False}, {"predicted": graded(X)[::-1]}):
        before = explainer.n_explain_queries_
        explanation = explainer.explain(X, 0, k="auto", **how)
        n_for_values = 30 if explanation.value_source == "model" else 0
        assert explainer.n_explain_queries_ - before == n_for_values, "nothing is queried for the size"
        assert (explanation.n_selected < N_FEATURES).any()
        plain = explainer.explain(X, 0, k=2, **how)
        before = explainer.n_explain_queries_
        refined = explainer.explain(X, 0, k=2, refine=10, **how)
        assert explainer.n_explain_queries_ - before <= n_for_values + 300
        kept = [
            one.source.agreement(one.unit_mask, one.target, rows=index, n_draws=5, seed=0).mean()
            for one in (plain, refined)
        ]
        assert kept[1] >= kept[0]


@pytest.mark.usefixtures("quick_paths")
def test_paths_query_nothing(explainers):
    explainer, X = explainers["labels"], rows(6)
    for how in ({}, {"query": False}):
        explanation = explainer.explain(X, 0, **how)
        before = explainer.black_box_.n_queries
        paths = explanation.paths(n_draws=2)
        assert explainer.black_box_.n_queries == before
        assert paths.value_source == explanation.value_source
        assert paths.value.tolist() == explanation.value.tolist()
        assert set(paths.to_frame()["value_source"]) == {explanation.value_source}


# --- what it says ------------------------------------------------------------------------------------------


def test_only_what_the_model_predicted_is_said_to_be_so(explainers):
    pytest.importorskip("matplotlib").use("Agg")
    explainer, X = explainers["labels"], rows(6)
    explained = explainer.explain(X, 0)
    given = explainer.explain(X, 0, predicted=parity(X))
    guessed = explainer.explain(X, 0, query=False)
    for one in (explained, given):
        assert "the model predicts" in one.plot(0).figure.get_suptitle()
        assert "the model predicts" in one._repr_html_()
        assert "not queried" not in one._repr_html_()
        assert "expected" not in repr(one)
    assert "expected: " in guessed.plot(0).figure.get_suptitle()
    assert "model predicts" not in guessed.plot(0).figure.get_suptitle()
    assert "the model was not queried" in guessed._repr_html_()
    assert "<th>expected</th>" in guessed._repr_html_()
    assert "of expected values" in repr(guessed)
    assert guessed.plot(kind="summary").get_legend().get_title().get_text() == "expected value of y0"
    assert explained.plot(kind="summary").get_legend().get_title().get_text() == "value of y0"
    assert explained.to_frame().columns.tolist()[:4] == ["sample", "target", "value", "value_source"]
    assert set(guessed.to_frame()["value_source"]) == {"expected"}
    assert not hasattr(explained, "expected")


def test_summary_counts_by_value(explainers):
    X = rows(200)
    labels, shares = explainers["labels"].explain(X, 0), explainers["probability"].explain(X, 0)
    assert labels.summary(value=1) == replaced(labels, parity(X)[:, 0] == 1).summary()
    assert shares.summary(value=1) == replaced(shares, graded(X)[:, 0] > 0.5).summary()
    assert shares.summary(value=0) == replaced(shares, graded(X)[:, 0] <= 0.5).summary()
    assert labels.summary(value="no such label") == shares.summary(value="no such label") == {}


def replaced(explanation, chosen):
    from dataclasses import replace

    index = np.flatnonzero(chosen)
    names = ("selected", "scores", "target", "value", "needed")
    return replace(
        explanation,
        source=explanation.source.take(index),
        **{name: getattr(explanation, name)[index] for name in names},
    )


# --- masks -------------------------------------------------------------------------------------------------


def test_regions_have_the_label_of_most_pixels_or_the_mean():
    masks = np.array([["a", "b", "b", "c"], ["z", "z", "c", "c"]], dtype=object)
    outputs = Outputs.infer(np.array([["a", "b", "c", "a"], ["b", "a", "a", "c"]]), shape=(2, 2))
    regions = np.array([[True, True, True, False], [False, True, True, True]])
    targets = np.array([4, 4])
    assert target_values(outputs, masks, targets, regions).tolist() == ["b", "z"]
    assert target_values(outputs, masks, np.array([3, 5]), regions).tolist() == ["c", "c"]
    share = np.array([[0.1, 0.2, 0.6, 0.9]])
    graded_outputs = Outputs.infer(np.array([[0.1, 0.2, 0.3, 0.4]]), shape=(2, 2))
    found = target_values(graded_outputs, share, np.array([4]), regions)
    assert found.tolist() == pytest.approx([0.3])
    assert isinstance(found[0], float)


def test_one_image_is_sent_once_for_many_pixels():
    images = np.random.default_rng(0).random((40, 1, 5, 5))
    explainer = NearestPixels(lambda images: images[:, 0] > 0.5, k=2, random_state=0).fit(images)
    many = np.repeat(images[:2], 25, axis=0)
    targets = np.array([(row, column) for row in range(5) for column in range(5)] * 2)
    explanation = explainer.explain(many, targets)
    assert explainer.n_explain_queries_ == 2
    assert explanation.value.tolist() == (images[:2, 0] > 0.5).ravel().tolist()
    region = explainer.explain(images[:3], np.s_[1:4, 0:3])
    assert region.value.tolist() == ((images[:3, 0, 1:4, 0:3] > 0.5).mean(axis=(1, 2)) > 0.5).tolist()
    guessed = explainer.explain(images[:3], np.s_[1:4, 0:3], query=False)
    assert guessed.value_source == "expected"
    assert guessed.verify().agreement.shape == (3,)
