"""The energy is judged by samples that it has learned nothing of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from quick import QUICK
from sointer import SOInter
from sointer._support.containers import is_sparse
from sointer.data.texts import Documents
from sointer.errors import PoorFitWarning
from sointer.masking.conditional import Replacement
from sointer.training.energy import EnergyTrainer
from sointer.training.queries import MAX_HELD_OUT
from sointer.training.sequence_queries import plan_queries

N_SAMPLES, N_FEATURES = 120, 12
# What is not zero, and every word, tells which sample it is from.
TABLE = np.repeat(np.arange(1, N_SAMPLES + 1), N_FEATURES).reshape(N_SAMPLES, -1) + np.linspace(0, 0.4, N_FEATURES)
SPARSE = np.zeros((N_SAMPLES, 400))
for sample, row in enumerate(SPARSE, 1):
    row[np.random.default_rng(sample).permutation(400)[:N_FEATURES]] = sample
TEXTS = [" ".join(f"n{sample}{letter}" for letter in "abcdefgh") for sample in range(1, N_SAMPLES + 1)]


def of_rows(X: Any) -> np.ndarray:
    X = X.toarray() if is_sparse(X) else np.asarray(X)
    return np.column_stack([X.sum(axis=1) % 2 < 1, np.count_nonzero(X, axis=1) % 3 > 0]).astype(int)


def of_texts(texts: list[str]) -> np.ndarray:
    return np.array([[len(text) % 2, "a" in text] for text in texts], dtype=int)


def sample_of(point: Any) -> int:
    """The number of the sample that a masked point is made from, 0 if nothing of it is left."""
    if isinstance(point, Documents):
        return int(point.documents[0].text.split()[0][1:-1]) if point.nnz else 0
    return round(float(point.max() if is_sparse(point) else (point + np.median(TABLE, axis=0)).max()) - 0.2)


@pytest.mark.parametrize("budget", [200, 2000])
@pytest.mark.parametrize(
    ("model", "X", "options"),
    [(of_rows, TABLE, {"removal": "zero"}), (of_rows, csr_array(SPARSE), {"removal": "zero"}), (of_texts, TEXTS, {})],
    ids=["table", "sparse rows", "texts"],
)
def test_nothing_is_learned_of_samples_held_out(monkeypatch, model, X, options, budget):
    pools = []
    finish = EnergyTrainer.finish
    monkeypatch.setattr(EnergyTrainer, "finish", lambda self: (pools.append(self.pairs), finish(self))[1])
    with pytest.warns(PoorFitWarning):
        SOInter(model, **QUICK | {"query_budget": budget} | options).fit(X)
    (pool,) = pools
    held_out = pool.held_out.numpy()
    samples = np.array([sample_of(pool.points._rows[[place]]) for place in range(len(pool))])
    judged, learned = set(samples[held_out]) - {0}, set(samples[~held_out]) - {0}
    assert judged, "some are held out"
    assert not judged & learned
    assert 0.02 * budget < held_out.sum() <= min(0.1 * budget, MAX_HELD_OUT)


@pytest.mark.parametrize(("n_queries", "n_sequences"), [(300, 500), (300, 40), (3000, 12), (20_000, 900), (60, 2)])
def test_sequences_held_out_are_many_and_no_other_query_is_about_them(n_queries, n_sequences):
    # Every token says which sequence it is from; every fourth sequence is the same as the one before.
    sequences = [[f"{sample - (sample % 4 == 3)}"] * 5 for sample in range(n_sequences)]
    replacement = Replacement.of(sequences, lambda tokens, position, rng: "")
    sent, _, is_held_out = plan_queries(sequences, replacement, n_queries, 0.1, np.random.default_rng(2))
    about = [set(tokens) - {""} for tokens in sent]
    judged, learned = (
        set().union(*(one for one, is_part in zip(about, part, strict=True) if is_part))
        for part in (is_held_out, ~is_held_out)
    )
    assert len(sent) == n_queries
    assert not judged & learned
    assert is_held_out.sum() == min(0.1 * n_queries, 1000)
    n_distinct = len({tokens[0] for tokens in sequences})
    assert len(judged) >= 0.7 * min(0.1 * n_distinct, 50, is_held_out.sum()), "of some queries no token is left"


def test_queries_about_a_single_sequence_can_be_held_out_too():
    sequences = [["a", "b", "c"]] * 3
    sent, keep, is_held_out = plan_queries(sequences, Replacement.of(sequences), 50, 0.1, np.random.default_rng(2))
    assert len(sent) == len(keep) == 50
    assert is_held_out.sum() == 5
