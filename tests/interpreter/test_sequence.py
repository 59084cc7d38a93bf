"""The quick table of all subsets says what masking the tokens one subset at a time says."""

import numpy as np
import pytest
import torch

from sointer.data.sequences import ABSENT
from sointer.energy.chain import ChainEnergy
from sointer.interpreter import sequence
from sointer.interpreter.sequence import ChainReader, Selected, SelectionSize, best_path


def reader(n_labels: int, window: int) -> ChainReader:
    torch.manual_seed(1)
    energy = ChainEnergy(40, n_labels, window=window)
    for parameter in energy.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    rows = np.random.default_rng(0).integers(13, 40, (12, 11))
    rows[0], rows[1] = 0, [1, *[0] * 10]
    return ChainReader(energy.requires_grad_(False), rows)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize(("n_labels", "window"), [(3, 1), (9, 2), (3, 0)])
def test_table_equals_masking_one_by_one(n: int, n_labels: int, window: int) -> None:
    read, rng = reader(n_labels, window), np.random.default_rng(n)
    ids, codes = rng.integers(2, 12, (4, n)), rng.integers(0, n_labels, (4, n))
    table = read.keep_table(ids, codes)
    for code in range(2**n):
        keep = ((code >> np.arange(n - 1, -1, -1)) & 1).astype(bool)
        p = read.log_marginals(torch.from_numpy(np.where(keep, ids, ABSENT))).exp().numpy()
        np.testing.assert_allclose(table[:, :, code], np.take_along_axis(p, codes[:, :, None], 2)[:, :, 0], atol=2e-5)


@pytest.mark.parametrize("near_share", [0.0, 2.0], ids=["segments", "best tokens"])
def test_long_sequences_are_taken_apart_like_short_ones(monkeypatch: pytest.MonkeyPatch, near_share: float) -> None:
    read, rng = reader(3, 1), np.random.default_rng(0)
    ids, codes = rng.integers(2, 12, (3, 7)), rng.integers(0, 3, (3, 7))
    short = read.select(ids, codes, SelectionSize(k=7))
    for name, value in {"MAX_TABLE": 5, "SEGMENT": 7, "MAX_CANDIDATES": 7, "NEAR_SHARE": near_share}.items():
        monkeypatch.setattr(sequence, name, value)
    long = read.select(ids, codes, SelectionSize(k=7))
    np.testing.assert_array_equal(long.ranking, short.ranking)
    np.testing.assert_allclose(long.probability, short.probability, atol=2e-5)


def test_a_segment_is_a_table_with_all_others_absent() -> None:
    read, rng = reader(9, 2), np.random.default_rng(0)
    ids, codes = rng.integers(2, 12, (2, 8)), rng.integers(0, 9, (2, 8))
    table = read.keep_table(ids, codes, (3, 6))
    for code in range(8):
        keep = np.zeros(8, dtype=bool)
        keep[3:6] = ((code >> np.arange(2, -1, -1)) & 1).astype(bool)
        p = read.log_marginals(torch.from_numpy(np.where(keep, ids, ABSENT))).exp().numpy()
        np.testing.assert_allclose(table[:, :, code], np.take_along_axis(p, codes[:, :, None], 2)[:, :, 0], atol=2e-5)


@pytest.mark.parametrize("size", [SelectionSize(k=2), SelectionSize(0.6), SelectionSize(0.9)], ids=str)
def test_the_best_set_of_a_size_comes_first_and_the_path_goes_through_it(size: SelectionSize) -> None:
    table = np.random.default_rng(3).random((2, 4, 16)).astype(np.float32)
    ranking, sizes, probability = best_path(table, size)
    for t, kept in enumerate(table.reshape(8, 16)):
        of = {frozenset(p for p in range(4) if code >> (3 - p) & 1): kept[code] for code in range(16)}
        best = [max(p for tokens, p in of.items() if len(tokens) == count) for count in range(5)]
        assert sizes[t] == size.of(np.array([best], dtype=np.float32))[0]
        assert probability[t, sizes[t]] == best[sizes[t]]
        assert sorted(ranking[t]) == [0, 1, 2, 3]
        for count in range(5):
            assert probability[t, count] == of[frozenset(ranking[t, :count].tolist())]
        for count in range(sizes[t], 0, -1):  # what costs least goes first
            now = frozenset(ranking[t, :count].tolist())
            assert probability[t, count - 1] == max(of[now - {token}] for token in now)


def test_scores_follow_the_ranking_and_sizes_the_level() -> None:
    probability = np.array([[0.2, 0.9, 0.7, 0.999]], dtype=np.float32)
    found = Selected.of_path(np.array([[2, 0, 1]]), np.array([1]), probability)
    assert (np.diff(found.scores[0][[2, 0, 1]]) <= 0).all()
    assert SelectionSize(0.8).of(probability).tolist() == [1]
    assert SelectionSize(0.95).of(probability).tolist() == [3]
    assert SelectionSize(k=9).of(probability).tolist() == [3]
    unsure = np.array([[0.2, 0.59, 0.6]], dtype=np.float32)
    assert SelectionSize(0.95).of(unsure).tolist() == [1]  # not even all tokens keep 95 %


def test_where_the_energy_expects_another_label_tokens_are_selected_all_the_same() -> None:
    probability = np.array([[0.2, 0.6, 0.9, 0.05]], dtype=np.float32)  # of the model's label, with 0, 1, ... tokens
    assert SelectionSize(0.95).of(probability).tolist() == [2]
    surely = np.array([[0.2, 0.6, 0.99, 0.05]], dtype=np.float32)
    assert SelectionSize(0.95).of(surely).tolist() == [2]
