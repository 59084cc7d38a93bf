"""explanation.paths() for every kind of output and input: shapes, honesty about queries, bad requests."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from scipy import sparse

import sointer
from quick import QUICK, quick_fit
from sointer import SOInter
from sointer.config import EnergyConfig, TrainingConfig
from sointer.errors import InputError
from sointer.explainers import tracing
from sointer.explainers.baselines.base import Random
from sointer.explainers.tracing import one_to_one
from sointer.training import energy
from sointer.zoo.structural import STRUCTURAL_PROBLEMS, structural

pytestmark = pytest.mark.usefixtures("quick_paths")
N_ROWS = 400


def rows(n_features, n=N_ROWS, seed=0):
    return np.random.default_rng(seed).normal(size=(n, n_features))


def labels(X):
    return np.column_stack([X[:, 0] > 0, X[:, 1] > 0, (X[:, 0] > 0) ^ (X[:, 1] > 0)]).astype(int)


def classes(X):
    first, second = np.digitize(X[:, 0], [-0.5, 0.5]), (X[:, 1] > 0).astype(int)
    return np.column_stack([np.array(list("abc"))[first], np.array(list("uv"))[second], np.array(list("xyz"))[first]])


def chances(X):
    first, second = 1 / (1 + np.exp(-3 * X[:, 0])), 1 / (1 + np.exp(-3 * X[:, 1]))
    return np.column_stack([first, second, first * (1 - second) + second * (1 - first)])


def numbers(X):
    return np.column_stack([X[:, 0] + X[:, 1], X[:, 2], X[:, 0] + X[:, 1] + X[:, 3]])


def mixed(X):
    return pd.DataFrame({"label": X[:, 0] > 0, "number": X[:, 1] + X[:, 0], "other": X[:, 2] > X[:, 3]})


def many(X):
    return (X[:, :14] > 0).astype(int)


@pytest.fixture(scope="module")
def plain():
    X = rows(5)
    return X, quick_fit(labels, X, k=3, output_names=["a", "b", "t"], query_budget=400)


@pytest.mark.parametrize(
    ("model", "n_features", "unit"),
    [
        (labels, 5, "probability"),
        (classes, 5, "probability"),
        (chances, 5, "probability"),
        (numbers, 5, "shares of the range"),
        (mixed, 5, "probability, of numbers in shares of the range"),
        (many, 15, "probability"),  # too many to list all combinations
    ],
)
def test_every_kind_of_output(model, n_features, unit):
    X = rows(n_features)
    explainer = quick_fit(model, X, k=3, query_budget=400)
    target = np.arange(12) % 3
    explanation = explainer.explain(X[:12], target=target)
    paths = explanation.paths(n_draws=4)
    m = min(8, explainer.n_outputs_ - 1)
    assert paths.unit == unit
    assert paths.total.shape == paths.direct.shape == (12, 3)
    assert paths.through.shape == (12, 3, m)
    assert paths.outputs.shape == (12, m)
    assert (paths.outputs != target[:, None]).all()
    assert np.isfinite(paths.total).all()
    assert np.isfinite(paths.direct).all()
    np.testing.assert_array_equal(np.isnan(paths.through), np.broadcast_to((paths.outputs < 0)[:, None], (12, 3, m)))
    assert np.abs(paths.total).max() <= 1
    np.testing.assert_array_equal(paths.selected, explanation.selected)
    assert len(paths.to_frame()) == int(np.isfinite(paths.through).sum()) + 36
    assert set(paths.summary()) == {explainer.output_names_[t] for t in np.unique(target)}


def test_classes_that_are_one_to_one_are_noticed():
    explainer = quick_fit(classes, rows(5), query_budget=400)
    assert explainer.explain(rows(5)[:2], target=1).paths(n_draws=2).indistinguishable == [["y0", "y2"]]


def test_one_to_one():
    rng = np.random.default_rng(0)
    a, b = rng.integers(3, size=50), rng.integers(2, size=50)
    codes = np.column_stack([a, b, (a + 1) % 3, 1 - b, np.zeros(50, int), np.minimum(a, 1)])
    assert one_to_one(codes) == [[0, 2], [1, 3]]
    x, y = rng.normal(size=(2, 50))
    table = np.column_stack([x, y, -2 * x + 1, x + 0.2 * y, np.ones(50)]).astype(np.float32)
    assert one_to_one(table) == [[0, 2]]
    assert one_to_one(codes[:0]) == []
    assert one_to_one(codes[:, :1]) == []
    assert one_to_one(np.zeros((5, 3), dtype=int)) == []


def test_rare_labels_are_not_called_copies():
    rare, less_rare = np.zeros((100, 4), dtype=int), np.zeros((100, 4), dtype=int)
    rare[:4, :2] = 1  # the same four rows
    rare[4:, 2:] = 1  # and nearly all of them
    less_rare[:5, :2] = 1
    less_rare[5:, 2:] = 1
    assert one_to_one(rare) == []
    assert one_to_one(less_rare) == [[0, 1, 2, 3]]
    assert one_to_one(rare.astype(np.float32)) == []
    assert one_to_one(less_rare.astype(np.float32)) == [[0, 1, 2, 3]]
    three = np.repeat([0, 1, 2], [90, 3, 2])  # five answers in all differ from the usual one
    assert one_to_one(np.column_stack([three, 2 - three])) == [[0, 1]]
    assert one_to_one(np.column_stack([three, 2 - three])[:-1]) == []


def test_what_only_paths_need_is_left_to_them(plain, monkeypatch):
    X, explainer = plain
    explainer._tracer, computed = None, []
    monkeypatch.setattr(tracing, "output_interactions", lambda energy: computed.append(1) or np.ones((3, 3)))
    explanation = explainer.explain(X[:10], target="a")
    assert not computed
    explanation.paths(n_draws=2)
    explanation.paths(n_draws=2)
    assert len(computed) == 1
    explainer._tracer = None


def test_calls_at_the_same_time(plain, monkeypatch, global_random_state_is_left_alone):
    """Two threads learn the same target: one begins while the other is at it, and ends after it."""
    X, explainer = plain
    explainer._tracer = None
    alone = explainer.explain(X[:10], target="a").paths(n_draws=2)
    explainer._tracer = None
    explanation = explainer.explain(X[:10], target="a")
    begun, first_is_done, learn = [threading.Event(), threading.Event()], threading.Event(), energy.learn_target
    number, learned = count(), []

    def in_turn(*args, **kwargs):
        mine = next(number)
        begun[mine].set()
        assert (first_is_done if mine else begun[1]).wait(60)
        learned.append(learn(*args, **kwargs))
        return learned[-1]

    monkeypatch.setattr(energy, "learn_target", in_turn)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(explanation.paths, n_draws=2)
        assert begun[0].wait(60)
        second = pool.submit(explanation.paths, n_draws=2)
        answers = [first.result()]
        first_is_done.set()
        answers.append(second.result())
    assert len(learned) == 2
    assert explainer._tracer.learned[0] is learned[0]
    for name in ("total", "direct", "through"):
        for answer in answers:
            np.testing.assert_array_equal(getattr(answer, name), getattr(alone, name))


def test_rows_do_not_depend_on_each_other_and_answers_repeat(plain, global_random_state_is_left_alone):
    X, explainer = plain
    together = explainer.explain(X[:300], target="t").paths(n_draws=3)
    again = explainer.explain(X[:300], target="t").paths(n_draws=3)
    alone = explainer.explain(X[123:124], target="t").paths(n_draws=3)
    for name in ("total", "direct", "through"):
        np.testing.assert_array_equal(getattr(together, name), getattr(again, name))
        np.testing.assert_array_equal(getattr(together, name)[123:124], getattr(alone, name))
    other = explainer.explain(X[:300], target="t").paths(n_draws=3, random_state=1)
    assert not np.array_equal(together.total, other.total)
    # Learned again from nothing, the same.
    explainer._tracer = None
    np.testing.assert_array_equal(explainer.explain(X[:300], target="t").paths(n_draws=3).through, together.through)


def test_other_targets_do_not_matter(plain):
    X, explainer = plain
    mixed = explainer.explain(X[:10], target=["a", "t"] * 5).paths(n_draws=3)
    alone = explainer.explain(X[:10], target="t").paths(n_draws=3)
    np.testing.assert_array_equal(mixed.through[1::2], alone.through[1::2])


def test_groups_and_auto_k(plain):
    X = rows(6)
    groups = {"pair": [0, 5], "rest": [2, 3]}
    explainer = quick_fit(labels, X, groups=groups)
    paths = explainer.explain(X[:20], target=[0, 2] * 10, k="auto").paths(n_draws=2)
    assert (paths.selected < 0).any()
    np.testing.assert_array_equal(np.isnan(paths.total), paths.selected < 0)
    np.testing.assert_array_equal(np.isnan(paths.through).all(axis=2), paths.selected < 0)
    assert "pair" in repr(paths)
    assert set(paths.to_frame()["feature"]) <= {"pair", "x1", "rest", "x4"}
    pyplot.close(paths.plot(row=0).figure)


def test_wide_sparse_rows(monkeypatch):
    rng = np.random.default_rng(0)
    X = sparse.csr_array((rng.random((150, 300)) < 0.02).astype(float))

    def tags(X):
        dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
        a, b = dense[:, :60].sum(axis=1) > 0, dense[:, 60:120].sum(axis=1) > 0
        return np.column_stack([a, b, a & b]).astype(int)

    explainer = quick_fit(tags, X, k=3, energy=EnergyConfig(hidden=(8,), batch_size=32), training=QUICK["training"])
    explanation = explainer.explain(X[:40], target=2)
    assert explainer.removal_.keeps_zeros
    together, alone = explanation.paths(), explainer.explain(X[7:8], target=2).paths()
    np.testing.assert_array_equal(together.through[7:8], alone.through)
    explainer.removal_.keeps_zeros = False  # the same by way of dense rows
    np.testing.assert_allclose(explanation.paths().through, together.through, atol=1e-6)
    explainer.removal_.keeps_zeros = True
    # Nothing is random, so no number of draws costs memory or changes a thing.
    np.testing.assert_array_equal(explanation.paths(n_draws=10**9).through, together.through)
    monkeypatch.setattr(tracing, "MAX_DENSE_BYTES", 0)  # learned from sparse points, almost the same
    explainer._tracer = None
    from_sparse = explainer.explain(X[:40], target=2).paths()
    differences = np.abs(from_sparse.through - together.through)  # sums are rounded otherwise, at every step
    assert np.nanmean(differences) < 5e-3
    assert np.nanmax(differences) < 0.1 < np.nanmax(np.abs(together.through))


def test_only_the_most_telling_outputs_are_listed(plain):
    X, explainer = plain
    explanation = explainer.explain(X[:3], target="t")
    both, one = explanation.paths(n_draws=2), explanation.paths(n_draws=2, n_outputs=1)
    assert both.outputs.shape == (3, 2)
    np.testing.assert_array_equal(one.outputs, both.outputs[:, :1])
    np.testing.assert_array_equal(one.through, both.through[:, :, :1])


# --- what the black box said -----------------------------------------------------------------------------------


def test_the_model_is_queried_to_explain_only(plain):
    _, explainer = plain
    box, new = explainer.black_box_, rows(5, n=7, seed=9)
    before = box.n_queries
    given = explainer.explain(new, target="t", predicted=labels(new)).paths(n_draws=2)
    explainer.explain(new, target="t", query=False).paths(n_draws=2)
    assert box.n_queries == before
    explanation = explainer.explain(new, target="t")
    asked = explanation.paths(n_draws=2)
    explanation.paths(n_draws=2)
    assert box.n_queries == before + 7
    assert explanation.value.tolist() == labels(new)[:, 2].tolist()
    np.testing.assert_array_equal(asked.direct, given.direct)


def test_what_is_held_follows_from_the_selected_features_alone(plain):
    """Other predictions of the other outputs, which features that are removed may have decided, change nothing."""
    X, explainer = plain
    predicted = labels(X[:50])
    others = predicted.copy()
    others[:, :2] = 1 - others[:, :2]
    given, changed = (explainer.explain(X[:50], target="t", predicted=y).paths(n_draws=2) for y in (predicted, others))
    for name in ("total", "direct", "through"):
        np.testing.assert_array_equal(getattr(given, name), getattr(changed, name))


def test_saved_explainers(plain, tmp_path):
    X, explainer = plain
    explainer.save(tmp_path / "why")
    here = explainer.explain(X[:20], target="t", predicted=labels(X[:20])).paths(n_draws=3)
    alone = sointer.load(tmp_path / "why")
    there = alone.explain(X[:20], target="t", predicted=labels(X[:20])).paths(n_draws=3)
    for name in ("total", "direct", "through", "outputs"):
        np.testing.assert_array_equal(getattr(here, name), getattr(there, name))
    # Without a model, too, what the energy expects is held.
    assert np.isfinite(alone.explain(rows(5, n=3, seed=8), target="t").paths(n_draws=3).direct).all()


def test_labels_never_seen_in_fit_are_expected_instead():
    def model(X):
        return np.column_stack([np.where(X[:, 0] > 5, "new", np.where(X[:, 0] > 0, "up", "down")), X[:, 1] > 0])

    X = rows(3)
    explainer = quick_fit(model, X)
    far = np.array([[6.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    paths = explainer.explain(far, target=1).paths(n_draws=2)
    assert model(far)[0, 0] == "new"
    assert np.isfinite(paths.direct).all()


def test_a_single_output_has_direct_effects_only():
    X = rows(4)
    explainer = quick_fit(lambda X: (X[:, :1] > 0).astype(int), X)
    paths = explainer.explain(X[:5]).paths(n_draws=2)
    assert paths.through.shape == (5, 2, 0)
    np.testing.assert_allclose(paths.direct, paths.total, atol=1e-6)
    assert set(paths.to_frame()["path"]) == {"direct"}
    assert paths.summary()["y0"][0].output is None
    pyplot.close(paths.plot().figure)


def test_the_paper_preset_is_served():
    X = rows(4, n=120)
    training = TrainingConfig(n_rounds=1, n_pretraining_steps=5)
    explainer = SOInter(labels, k=2, preset="paper", query_budget=200, random_state=0, training=training).fit(X)
    assert np.isfinite(explainer.explain(X[:3], target=2).paths().total).all()


# --- what a person sees ------------------------------------------------------------------------------------------


def test_frame_summary_and_picture(plain):
    X, explainer = plain
    paths = explainer.explain(X[:30], target="t").paths(n_draws=2)
    frame = paths.to_frame()
    assert list(frame.columns) == ["sample", "target", "value", "value_source", "feature", "total", "path", "effect"]
    assert set(frame["path"]) == {"direct", "a", "b"}
    line = frame[(frame["sample"] == 3) & (frame["path"] == "direct")]
    np.testing.assert_array_equal(line["effect"], paths.direct[3])
    [routes] = paths.summary().values()
    for route in routes:
        here = paths.selected == explainer.groups_.unit_names.index(route.feature)
        assert route.total == pytest.approx(paths.total[here].mean())
        assert route.direct == pytest.approx(paths.direct[here].mean())
        means = paths.through[here].mean(axis=0)
        assert route.output == explainer.output_names_[paths.outputs[0, means.argmax()]]
        assert route.through == pytest.approx(means.max())
        assert route.n_rows == here.sum()
    assert all(route.feature in repr(paths) for route in routes)
    for row in (None, 3, -1):
        ax = paths.plot(row=row)
        texts = [text.get_text() for text in ax.texts]
        assert "t" in texts
        assert any(text.startswith("x") for text in texts)
        pyplot.close(ax.figure)
    one = paths.pick(3)
    np.testing.assert_array_equal(one.through, paths.through[3:4])


# --- bad requests ------------------------------------------------------------------------------------------------


def test_explainers_without_coupling_say_so(plain):
    X, _ = plain
    for explainer, name in (
        (Random(labels, k=2, random_state=0), "Random"),
        (SOInter(labels, structured=False, **QUICK), "structured=False"),
    ):
        explanation = explainer.fit(X).explain(X[:2], target=2)
        with pytest.raises(InputError, match=name):
            explanation.paths()


@pytest.mark.parametrize("wrong", [{"n_draws": 0}, {"n_draws": 2.5}, {"n_outputs": 0}, {"random_state": -1}])
def test_wrong_settings(plain, wrong):
    X, explainer = plain
    with pytest.raises(InputError, match=next(iter(wrong))):
        explainer.explain(X[:2], target="t").paths(**wrong)


def test_pictures_that_cannot_be(plain):
    X, explainer = plain
    paths = explainer.explain(X[:4], target=["a", "t"] * 2).paths(n_draws=2)
    with pytest.raises(InputError, match="2 targets"):
        paths.plot()
    with pytest.raises(InputError, match="row is 4"):
        paths.plot(row=4)


# --- the planted problems ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STRUCTURAL_PROBLEMS)
def test_equations_are_those_of_the_black_box(name):
    known = STRUCTURAL_PROBLEMS[name](12).shuffled(4)
    X = known.problem.sample(200, random_state=0)
    np.testing.assert_array_equal(known.solve(X), known.problem(X))
    assert known.problem.targets == (known.target,)


def test_true_paths_by_hand():
    known = structural("mixed_xor", 4)  # y0 = [x0 + x1 > 0], the target y0 xor [x2 > 0]
    X = np.array([[2.0, -1.0, 1.0, 0.0]])  # y0 = 1, target = 0
    references = np.array([[0.0, 0.0, -1.0, 0.0], [3.0, 0.0, 1.0, 0.0]])
    paths = known.true_paths(X, np.array([[0, 2]]), references)
    # With x0 and x2 kept, y0 = [2 + 0 > 0] = 1 for both references: the target stays. Without x0 it is [0 > 0] = 0
    # for the first reference only; without x2 the target changes for the first reference only.
    np.testing.assert_allclose(paths.total, [[0.5, 0.5]])
    np.testing.assert_allclose(paths.direct, [[0.0, 0.5]])
    np.testing.assert_allclose(paths.through, [[[0.5, 0.0], [0.0, 0.0]]])


def test_true_paths_of_numbers_by_hand():
    known = structural("mixed_continuous", 5)  # y0 = x0 * x1, the target y0 + x2 + x3
    X = np.array([[2.0, 1.0, 1.0, 0.0, 0.0]])  # y0 = 2, target = 3
    references = np.array([[0.0, 1.0, -1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 10.0, 0.0]])
    selected = np.array([[0, 2]])
    # Without x0 the target falls by 2 and by 1, without x2 by 2 and by 1.
    above = known.true_paths(X, selected, references, center=2.5)
    np.testing.assert_allclose(above.total, [[1.5, 1.5]])
    np.testing.assert_allclose(above.direct, [[0.0, 1.5]])
    np.testing.assert_allclose(above.through, [[[1.5, 0.0], [0.0, 0.0]]])
    # A value below the center is supported by what is low, whatever the targets of the references (0 and 11) are.
    for part, turned in zip(above, known.true_paths(X, selected, references, center=3.5), strict=True):
        np.testing.assert_allclose(turned, -part)
