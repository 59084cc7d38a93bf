"""The baselines: planted truth, slow twins, the real packages called directly, and what they ask."""

from __future__ import annotations

import sys
from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from sointer import BlackBox
from sointer.data.inputs import InputFormat
from sointer.errors import InputError, MissingExtraError, QueryBudgetExceeded
from sointer.explainers.baselines.base import Random
from sointer.explainers.baselines.l2x import L2X
from sointer.explainers.baselines.lime_and_shap import KERNEL_WIDTH, KernelShap, Lime, ShapleySampling, random_keeps
from sointer.explainers.baselines.row_by_row import FeatureTable
from sointer.metrics.ground_truth import exact_match
from sointer.zoo import paper_e1, paper_e2, shuffled

pytestmark = [
    pytest.mark.usefixtures("global_random_state_is_left_alone"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]

ROW_BY_ROW = {
    "Lime": Lime,
    "KernelShap": KernelShap,
    "ShapleySampling": ShapleySampling,
}
X = np.random.default_rng(0).normal(size=(200, 5))


def linear(X):
    """Three numbers: the third output never changes."""
    return np.column_stack([X @ [3.0, -2.0, 0.0, 0.0, 1.0], X @ [0.0, 0.0, 5.0, 1.0, 0.0], np.full(len(X), 7.0)])


def bumpy(X):
    """Two probabilities with interactions."""
    p = 1 / (1 + np.exp(-X[:, 0] * X[:, 1] - X[:, 2]))
    return np.column_stack([p, 1 / (1 + np.exp(-X.sum(axis=1)))])


def silent(kind, model, **settings):
    """Fitted on X, whatever it warns about."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(model, **{"random_state": 0, "k": 2, **settings}).fit(X)


# --- planted truth ------------------------------------------------------------------------------------------


def match(kind, problem, target, n_rows, **settings):
    k = len(problem.relevant[target])
    explainer = kind(problem, k=k, random_state=0, **settings).fit(problem.sample(500, random_state=0))
    rows = problem.sample(n_rows, random_state=1)
    return exact_match(explainer.explain(rows, target=target).mask, problem.relevant_rows(rows, target))


@pytest.mark.parametrize("target", [0, 1])
def test_kernel_shap_finds_e1(target):
    problem = shuffled(paper_e1(10), 0)
    assert match(KernelShap, problem, target, 10, protocol="package") >= 0.9
    assert match(KernelShap, problem, target, 20, n_samples=20_000) >= 0.85
    assert match(KernelShap, shuffled(paper_e1(5), 0), target, 40) >= 0.9


@pytest.mark.parametrize("target", [0, 1])
def test_shapley_sampling_finds_e1_with_a_thousand_queries(target):
    problem = shuffled(paper_e1(20), 0)
    assert match(ShapleySampling, problem, target, 60) >= 0.85
    assert match(ShapleySampling, problem, target, 60) > match(KernelShap, problem, target, 60) + 0.2


def test_lime_finds_e1_as_badly_as_has_been_measured():
    problem = shuffled(paper_e1(10), 0)
    assert match(Lime, problem, 0, 25, protocol="package") <= 0.3
    assert match(Lime, problem, 1, 25, protocol="package") >= 0.6
    for target in (0, 1):
        assert 0.25 <= match(Lime, problem, target, 60) <= 0.8
    assert match(Lime, shuffled(paper_e2(10), 0), 2, 60) >= 0.4


@pytest.mark.parametrize("kind", list(ROW_BY_ROW))
def test_words_that_decide_are_found_with_the_right_sign(kind):
    rng = np.random.default_rng(0)
    bags = (rng.random((200, 40)) < 0.3).astype(float)

    def model(X):  # words 0 and 2 speak for, word 1 against; the second output is the opposite of the first
        votes = (X[:, [0, 1, 2]] @ np.array([2.0, -2.0, 2.0]))[:, None]
        return np.column_stack([votes > 1, votes <= 1]).astype(int)

    bags[:12, [0, 1, 2]] = 1.0
    bags = sp.csr_array(bags)
    explainer = ROW_BY_ROW[kind](model, k=2, random_state=0, n_samples=400).fit(bags)
    explanation = explainer.explain(bags[:12], target=np.arange(12) % 2)
    assert (np.sort(explanation.selected, axis=1) == [0, 2]).all()
    assert (explanation.scores.argmin(axis=1) == 1).all()
    assert explanation.scores[:, 1].max() < -0.1
    sizes = ROW_BY_ROW[kind](model, k=3, random_state=0, n_samples=400, signed=False).fit(bags)
    assert (np.sort(sizes.explain(bags[:12], target=0).selected, axis=1) == [0, 1, 2]).all()


def test_l2x_finds_the_one_feature_that_decides():
    rows = np.random.default_rng(1).normal(size=(600, 6))

    def model(X):
        return np.column_stack([X[:, 4] > 0, X[:, 2] > 0.3]).astype(int)

    explainer = L2X(model, k=1, random_state=0, n_steps=400).fit(rows)
    assert explainer.n_queries_ == 600
    for target, feature in ((0, 4), (1, 2)):
        explanation = explainer.explain(rows[:200], target=target)
        assert np.mean(explanation.selected == feature) >= 0.95
        assert np.mean(explanation.value == model(rows[:200])[:, target]) >= 0.9
    losses = [row["loss"] for row in explainer.history_]
    assert losses[-1] < losses[0]


def test_random_hits_as_often_as_chance():
    explainer = silent(Random, linear, k=2)
    rows = np.random.default_rng(2).normal(size=(4000, 5))
    hits = explainer.explain(rows, target=0).mask.mean(axis=0)
    assert np.abs(hits - 2 / 5).max() < 4 * np.sqrt(0.4 * 0.6 / 4000)
    other = explainer.explain(rows, target=1).mask
    assert np.mean(np.all(other == explainer.explain(rows, target=0).mask, axis=1)) < 0.2


def test_equal_scores_are_ranked_at_random_not_by_column():
    explainer = silent(KernelShap, linear, k=1, n_samples=50)
    first = explainer.explain(np.random.default_rng(3).normal(size=(60, 5)), target=2)
    assert (first.scores == 0).all()
    assert len(np.unique(first.selected)) == 5


# --- slow twins ---------------------------------------------------------------------------------------------


def shapley_by_definition(worth, n):
    """Every feature's mean contribution over all coalitions of the others."""
    values = np.zeros(n)
    for j in range(n):
        others = [i for i in range(n) if i != j]
        for size in range(n):
            share = factorial(size) * factorial(n - size - 1) / factorial(n)
            for coalition in combinations(others, size):
                values[j] += share * (worth({*coalition, j}) - worth(set(coalition)))
    return values


@pytest.mark.parametrize("kind", [KernelShap, ShapleySampling])
def test_shapley_values_are_those_of_the_definition(kind):
    reference = np.array([0.5, 0.0, -1.0, 0.3, 2.0])
    rows = X[:4]
    exact = kind is KernelShap
    explainer = silent(kind, bumpy, removal=reference, signed=True, n_samples=100 if exact else 20_000)
    for target in (0, 1):
        scores = explainer.explain(rows, target=target).scores
        for x, found in zip(rows, scores, strict=True):
            sign = 1 if bumpy(x[None])[0, target] > 0.5 else -1

            def worth(coalition, x=x, sign=sign, target=target):
                kept = np.array([j in coalition for j in range(5)])
                return sign * bumpy(np.where(kept, x, reference)[None])[0, target]

            assert found == pytest.approx(shapley_by_definition(worth, 5), abs=1e-6 if exact else 0.01)


def test_limes_regression_on_masks_by_normal_equations():
    reference = np.zeros(5)
    explainer = silent(Lime, bumpy, removal=reference, n_samples=80)
    asked = []

    def remember(points):
        asked.append(points)
        return bumpy(points)

    explainer.black_box_.predict = remember
    (scores,) = explainer.explain(X[:1], target=1).scores
    points = np.vstack([X[0], asked[-1]])
    assert len(points) == 80
    keep = (points == X[0]).astype(float)
    p = bumpy(points)[:, 1]
    y = p if p[0] > 0.5 else 1 - p
    cosine = keep.sum(axis=1) / (np.sqrt(5) * np.maximum(np.linalg.norm(keep, axis=1), 1e-12))
    weight = np.exp(-((100 * (1 - cosine)) ** 2) / KERNEL_WIDTH**2 / 2)
    centred = keep - np.average(keep, axis=0, weights=weight)
    normal = centred.T @ (weight[:, None] * centred) + np.eye(5)
    expected = np.linalg.solve(normal, centred.T @ (weight * (y - np.average(y, weights=weight))))
    assert scores == pytest.approx(expected, abs=1e-5)


def test_random_masks_remove_every_number_of_features_equally_often():
    keep = random_keeps(8001, 4, np.random.default_rng(0))
    assert keep[0].all()
    removed = np.bincount(4 - keep[1:].sum(axis=1), minlength=5) / 8000
    assert removed[0] == 0
    assert np.abs(removed[1:] - 0.25).max() < 0.03
    assert np.abs(keep[1:].mean(axis=0) - (0.75 + 0.5 + 0.25 + 0) / 4).max() < 0.03


# --- the packages, called directly --------------------------------------------------------------------------


def test_lime_as_its_package_runs_it():
    from lime.lime_tabular import LimeTabularExplainer

    explainer = silent(Lime, bumpy, protocol="package", n_samples=4000)
    ours = explainer.explain(X[:3], target=0).scores
    package = LimeTabularExplainer(X, random_state=0)
    for x, scores in zip(X[:3], ours, strict=True):
        p = bumpy(x[None])[0, 0]
        label = int(p > 0.5)
        found = package.explain_instance(
            x, lambda Z: np.column_stack([1 - bumpy(Z)[:, 0], bumpy(Z)[:, 0]]), labels=[label], num_samples=4000
        )
        direct = np.abs([dict(found.local_exp[label])[j] for j in range(5)])
        assert scores == pytest.approx(direct, abs=0.03)  # other draws
        assert scores.max() > 0.06


def test_lime_on_sparse_rows_changes_only_what_is_there():
    bags = sp.csr_array(np.random.default_rng(0).poisson(0.4, size=(60, 10)).astype(float))
    seen = []

    def model(X):
        seen.append(X)
        return (X[:, :2].toarray() > 0.5).astype(int)

    explainer = Lime(model, k=2, protocol="package", n_samples=50, random_state=0).fit(bags)
    seen.clear()
    explainer.explain(bags[[3]], target=0)
    absent = bags[[3]].toarray()[0] == 0
    assert sum(points.shape[0] for points in seen) == 51
    assert all(np.all(points.toarray()[:, absent] == 0) for points in seen)


def test_kernel_shap_as_its_package_runs_it():
    from shap import KernelExplainer

    explainer = silent(KernelShap, linear, protocol="package")
    rows = X[:3]
    ours = explainer.explain(rows, target=0).scores
    weights = np.array([3.0, -2.0, 0.0, 0.0, 1.0])
    background = X[:100]
    direct = KernelExplainer(lambda Z: linear(Z)[:, 0], background).shap_values(rows, silent=True)
    # 5 features: all coalitions are asked and a linear model's values are known; only the background differs.
    assert direct == pytest.approx(weights * (rows - background.mean(axis=0)), abs=1e-6)
    assert np.abs(ours - np.abs(direct)).max() < 0.6
    assert (ours[:, 2:4] < 1e-6).all()


@pytest.mark.parametrize("kind", [Lime, KernelShap])
@pytest.mark.parametrize("protocol", ["tuned", "package"])
def test_many_targets_of_a_row_are_explained_from_the_same_queries(kind, protocol):
    explainer = silent(kind, bumpy, protocol=protocol, n_samples=40)
    explainer.explain(X[:3], target=0)
    for_one = explainer.n_explain_queries_
    explainer.fit(X)
    together = explainer.explain(np.repeat(X[:3], 2, axis=0), target=[0, 1] * 3)
    assert explainer.n_explain_queries_ == for_one
    assert np.array_equal(together.scores[::2], explainer.explain(X[:3], target=0).scores)
    assert np.array_equal(together.scores[1::2], explainer.explain(X[:3], target=1).scores)


# --- what is asked ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(ROW_BY_ROW))
@pytest.mark.parametrize("removal", ["marginal", "zero"])
@pytest.mark.parametrize("n_samples", [10, 11, 97, 1000])
def test_no_more_rows_are_asked_than_n_samples(kind, removal, n_samples):
    explainer = silent(ROW_BY_ROW[kind], bumpy, removal=removal, n_samples=n_samples)
    explainer.explain(X[:3], target=0)
    assert 3 <= explainer.n_explain_queries_ <= 3 * n_samples
    if removal == "marginal" and n_samples == 1000:
        assert explainer.n_explain_queries_ >= 3 * 900


def test_only_units_that_differ_are_changed():
    seen = []

    def model(X):
        seen.append(X)
        return bumpy(X)

    row = X[:1].copy()
    row[0, [1, 3]] = 0.0
    for kind in ROW_BY_ROW.values():
        explainer = silent(kind, model, removal="zero", n_samples=50)
        seen.clear()
        explainer.explain(row, target=0)
        points = np.vstack(seen)
        assert (points[:, [1, 3]] == 0).all()
        assert set(np.unique(points[:, 0])) == {0.0, row[0, 0]}


def test_a_budget_of_the_black_box_is_kept():
    box = BlackBox(bumpy)
    explainer = silent(Lime, box, n_samples=100)
    box.reset_budget(150)
    with pytest.raises(QueryBudgetExceeded):
        explainer.explain(X[:3], target=0)
    assert box.remaining >= 0
    explainer.set_params(n_jobs=2)
    with pytest.raises(InputError, match="query budget, which cannot be kept across processes"):
        explainer.explain(X[:3], target=0)


@pytest.mark.usefixtures("forked_workers")
def test_several_processes_give_the_same_answer_and_count():
    counts = []
    for n_jobs in (1, 2):
        explainer = silent(KernelShap, bumpy, n_samples=40, n_jobs=n_jobs)
        scores = explainer.explain(X[:5], target=[0, 1, 0, 1, 0]).scores
        counts.append((explainer.n_explain_queries_, explainer.black_box_.n_queries, scores.tolist()))
    assert counts[0] == counts[1]


BAD_SETTINGS = [
    (Lime, {"protocol": "best"}, "protocol must be one of 'tuned', 'package'"),
    (KernelShap, {"protocol": "package", "signed": True}, "signed=True was given with protocol='package'"),
    (Lime, {"n_samples": 3}, "n_samples must be an int of at least 10"),
    (ShapleySampling, {"signed": "yes"}, "signed must be None, True or False"),
    (KernelShap, {"n_jobs": 0}, "n_jobs must be None or an int other than 0"),
    (L2X, {"n_steps": 0}, "n_steps must be an int of at least 1"),
    (L2X, {"temperature": 0.0}, "temperature must be a number above 0"),
    (L2X, {"learning_rate": "fast"}, "learning_rate must be a number above 0"),
]


@pytest.mark.parametrize(("kind", "settings", "message"), BAD_SETTINGS)
def test_bad_settings(kind, settings, message):
    with pytest.raises(InputError, match=message):
        kind(bumpy, k=2, **settings).fit(X)


@pytest.mark.parametrize(("kind", "package"), [(Lime, "lime"), (KernelShap, "shap")])
def test_a_missing_package_is_named_when_fitting(kind, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"sointer\[baselines\]"):
        kind(bumpy, k=2).fit(X)


# --- tables with categories ---------------------------------------------------------------------------------


def test_a_feature_table_goes_there_and_back():
    frame = pd.DataFrame({"a": [1.5, 2.0, 3.0], "b": ["x", "z", "y"], "c": pd.Categorical(["u", "v", "u"])})
    form = InputFormat.infer(frame)
    columns = form.encode(frame)
    table = FeatureTable(form)
    features = table.from_columns(columns)
    assert features.shape == (3, 3)
    assert features[:, 0].tolist() == [1.5, 2.0, 3.0]
    assert len(set(features[:, 1])) == 3
    assert np.array_equal(table.to_columns(features), columns)
    weights = table.sum_by_unit(np.array([[1.0, 2.0, 4.0]]), np.array([0, 1, 0]))
    assert weights.tolist() == [[5.0, 2.0]]


@pytest.mark.parametrize("kind", [Lime, KernelShap])
@pytest.mark.parametrize("protocol", ["tuned", "package"])
def test_a_category_that_decides_is_found(kind, protocol):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=120), "b": rng.choice(list("xyz"), 120), "c": rng.normal(size=120)})

    def model(X):
        return np.column_stack([X["b"] == "y", X["a"] > 0]).astype(int)

    explainer = kind(model, k=1, protocol=protocol, n_samples=200, random_state=0).fit(frame)
    assert (explainer.explain(frame[:6], target=0).selected == 1).all()
    assert (explainer.explain(frame[:6], target=1).selected == 0).all()


def test_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(InputError, match="given to Random, whose fit keeps none"):
        Random(lambda X: X > 0).fit(np.zeros((5, 2)), checkpoint=tmp_path / "fit")
    assert not (tmp_path / "fit").exists()
