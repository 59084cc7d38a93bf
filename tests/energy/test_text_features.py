"""What the energy sees of texts, against the definition, text by text."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from sointer.data.texts import TextFormat
from sointer.energy.texts import TextFeatures, ranks


@pytest.mark.parametrize("token", [None, "[MASK]"])
def test_words_neighbours_and_order(token) -> None:
    rng = np.random.default_rng(0)
    vocabulary = [f"w{i}" for i in range(8)]
    texts = [" ".join(rng.choice(vocabulary, rng.integers(0, 12))) for _ in range(50)]
    form = TextFormat.of(texts)
    rank = ranks(torch.arange(float(form.n_words)))
    rank[:3] = -1
    features = TextFeatures(form.n_words, rank)
    whole = form.encode(texts)
    keep = rng.random(whole.shape) < 0.7
    inputs = features(whole.masked(keep, token))
    dense = inputs.rows.dense().numpy()
    for row, text in enumerate(texts):
        numbers = [form.feature_names.index(word) for word in text.split()]
        left = [(place, n) for place, n in enumerate(numbers) if keep[row, n]]
        wanted = Counter(n for _, n in left)
        for (p, a), (q, b) in pairwise(left):
            if rank[a] >= 0 and rank[b] >= 0 and (token is None or q == p + 1):
                wanted[form.n_words + int(rank[a]) * features.n_ordered + int(rank[b])] += 1
        for i, (_, a) in enumerate(left):
            for _, b in left[i + 1 :]:
                if a != b and rank[a] >= 0 and rank[b] >= 0:
                    wanted[form.n_words + features.n_ordered**2 + int(rank[a]) * features.n_ordered + int(rank[b])] = 1
        found = {int(column): dense[row, column] for column in np.flatnonzero(dense[row])}
        assert found == pytest.approx({column: min(1 + np.log(n), 2) for column, n in wanted.items()})


def test_without_order_only_words() -> None:
    form = TextFormat.of(["b a b"])
    inputs = TextFeatures(form.n_words)(form.encode(["a a b b b", ""]))
    assert inputs.rows.dense().numpy() == pytest.approx(np.array([[2, 1 + np.log(2), 0], [0, 0, 0]]))


def test_of_very_many_words_rare_ones_share_columns() -> None:
    features = TextFeatures(100_000)
    columns = features.of_words(np.arange(100_000))
    assert columns.max() < features.n_columns == 2**15
    assert len(np.unique(columns[:20_000])) == 20_000
