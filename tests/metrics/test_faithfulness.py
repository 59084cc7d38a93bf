"""Keep and delete: a slow twin, planted truth, paired draws, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from sointer import BlackBox
from sointer.errors import InputError
from sointer.explainers.baselines.base import Random
from sointer.explainers.baselines.lime_and_shap import ShapleySampling
from sointer.metrics.faithfulness import keep_and_delete

pytestmark = pytest.mark.usefixtures("global_random_state_is_left_alone")

X = np.random.default_rng(0).normal(size=(300, 6))
ROWS = X[:40]
MODELS = {
    "labels": lambda X: np.column_stack([X[:, 0] + X[:, 1] > 0, X[:, 2] * X[:, 3] > 0]).astype(int),
    "probabilities": lambda X: 1 / (1 + np.exp(-np.column_stack([X[:, 0] * X[:, 1], X[:, 2] - X[:, 3]]))),
    "numbers": lambda X: np.column_stack([10 * X[:, 0] + X[:, 1], X[:, 2] * X[:, 3]]),
}


def explanation_of(model, rows=ROWS, target=1, kind=Random, **settings):
    return kind(model, **{"k": 2, "random_state": 0, **settings}).fit(X).explain(rows, target)


def slow_twin(model, ranking, removal, same, target, ks, n_draws, seed):
    """One sample, size and draw at a time, straight from the definition."""
    keep, delete = np.zeros((len(ROWS), len(ks))), np.zeros((len(ROWS), len(ks)))
    original = model(ROWS)[:, target]
    for draw in range(n_draws):
        drawn = removal.background.rows[
            np.random.default_rng([seed, draw]).integers(len(removal.background.rows), size=len(ROWS))
        ]
        for i, row in enumerate(ROWS):
            for j, k in enumerate(ks):
                best = set(ranking[i][:k])
                only = np.array([row[f] if f in best else drawn[i, f] for f in range(6)])
                without = np.array([drawn[i, f] if f in best else row[f] for f in range(6)])
                keep[i, j] += same(original[i], model(only[None])[0, target]) / n_draws
                delete[i, j] += (not same(original[i], model(without[None])[0, target])) / n_draws
    return keep, delete


@pytest.mark.parametrize("kind", list(MODELS))
def test_equal_to_a_slow_twin(kind):
    explanation = explanation_of(MODELS[kind])
    scale = explanation.source.outputs.scale[1]
    same = {
        "labels": lambda a, b: a == b,
        "probabilities": lambda a, b: (a > 0.5) == (b > 0.5),
        "numbers": lambda a, b: abs(a - b) <= 0.1 * scale,
    }[kind]
    found = keep_and_delete(explanation, ks=[1, 2, 5], n_draws=4, random_state=7)
    ranking = []
    for row in range(len(ROWS)):
        chosen = explanation.selected[row].tolist()
        others = sorted(set(range(6)) - set(chosen), key=lambda unit: -explanation.scores[row, unit])
        ranking.append(chosen + others)
    keep, delete = slow_twin(MODELS[kind], ranking, explanation.source.removal, same, 1, [1, 2, 5], 4, 7)
    assert found.keep_rows == pytest.approx(keep)
    assert found.delete_rows == pytest.approx(delete)
    assert found.keep == pytest.approx(keep.mean(axis=0))
    assert found.delete == pytest.approx(delete.mean(axis=0))


def test_planted_truth_keeps_and_deletes_more_than_chance():
    model = MODELS["labels"]
    truth = keep_and_delete(explanation_of(model), ranking=np.tile([2, 3, 0, 1, 4, 5], (40, 1)), ks=[2])
    chance = keep_and_delete(explanation_of(model), ks=[2])
    assert truth.keep[0] == 1.0
    assert 0.4 < truth.delete[0] < 0.6
    assert chance.keep[0] < 0.75
    assert chance.delete[0] < truth.delete[0] - 0.1
    found = keep_and_delete(explanation_of(model, kind=ShapleySampling), ks=[2])
    assert found.keep[0] > 0.95


def test_draws_are_paired_and_queries_counted():
    box = BlackBox(MODELS["labels"])
    explanation = explanation_of(box)
    before = box.n_queries
    first = keep_and_delete(explanation, ks=[1, 3], n_draws=5)
    assert first.n_queries == box.n_queries - before == 40 * 2 * 2 * 5
    again = keep_and_delete(explanation, ks=[3], n_draws=5)
    assert again.n_queries == 40 * 2 * 5
    assert np.array_equal(again.keep_rows[:, 0], first.keep_rows[:, 1])
    other = explanation_of(box, random_state=0, k=6)
    assert np.array_equal(keep_and_delete(other, ks=[3], n_draws=5).delete_rows, again.delete_rows)
    everything = keep_and_delete(explanation, ks=[6], n_draws=3)
    assert everything.keep[0] == 1.0
    assert not np.array_equal(keep_and_delete(explanation, ks=[3], random_state=1).keep_rows, again.keep_rows)


def test_removal_that_is_not_random_is_queried_once():
    explanation = explanation_of(MODELS["labels"], removal="mean")
    found = keep_and_delete(explanation, ks=[2])
    assert found.n_draws is None
    assert found.n_queries == 40 * 2
    assert keep_and_delete(explanation, ks=[2], removal="marginal", n_draws=3).n_queries == 40 * 2 * 3


def test_sparse_rows_and_default_sizes():
    bags = sp.csr_matrix(np.random.default_rng(0).poisson(0.3, size=(100, 20)).astype(float))

    def model(X):
        assert sp.issparse(X)
        return (X[:, :2].toarray() > 0).astype(int)

    found = keep_and_delete(Random(model, k=3, random_state=0).fit(bags).explain(bags[:10], 0))
    assert found.ks == (1, 3, 8, 15)
    assert found.keep_rows.shape == found.delete_rows.shape == (10, 4)


def test_what_it_shows():
    found = keep_and_delete(explanation_of(MODELS["labels"]), ks=[3, 1, 3])
    frame = found.to_frame()
    assert frame.columns.tolist() == ["k", "keep", "delete"]
    assert frame["k"].tolist() == [1, 3]
    assert repr(found).startswith("KeepAndDelete(keep/delete at k=1: 0.")


def test_wrong_arguments():
    explanation = explanation_of(MODELS["labels"])
    images = np.random.default_rng(0).random((20, 1, 3, 3))
    pixels = Random(lambda X: X[:, 0] > 0.5, k=1, random_state=0).fit(images).explain(images[:2], (0, 0))
    for settings, message in (
        ({"ks": [7]}, "ks must be from 1 to 6"),
        ({"ks": []}, "list of sizes"),
        ({"ks": 3}, "list of sizes"),
        ({"ks": [0]}, "each of ks must be"),
        ({"n_draws": 0}, "n_draws must be"),
        ({"ranking": [[0, 1]], "ks": [1]}, "ranking must be whole numbers"),
        ({"ranking": np.zeros((40, 2), dtype=int), "ks": [3]}, "ranking must be whole numbers"),
        ({"ranking": np.full((40, 3), 6), "ks": [3]}, "from 0 to 5"),
    ):
        with pytest.raises(InputError, match=message):
            keep_and_delete(explanation, **settings)
    with pytest.raises(InputError, match="tables and texts"):
        keep_and_delete(pixels)
