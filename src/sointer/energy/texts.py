"""What the energy sees of a reduced text: its words and, of the words that matter, which precede which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.data.texts import Documents
from sointer.energy.sparse import SparseRows

MAX_WORD_COLUMNS, MIN_SHARED_COLUMNS = 2**15, 2**12
"""Of more words, the first ones have a column each, and the others share some."""
MAX_WEIGHT = 2.0
"""What repeats count together, at most; one has a weight of 1."""
MAX_ORDERED = 96
"""Words whose order the energy sees: a column for each pair of neighbours, and for each pair in this order."""


@dataclass(frozen=True)
class TextInputs:
    """Texts as an energy takes them, and which columns of the data each entry belongs to."""

    rows: SparseRows
    owners: NDArray[np.int64]
    """(entries, 2) the columns of the data, twice the same for a word."""
    row: NDArray[np.int64]
    """(entries,)"""


@dataclass(frozen=True)
class TextFeatures:
    """From texts, whole or reduced, to the columns of an energy."""

    n_words: int
    rank: NDArray[np.int64] | None = None
    """(words,) the place of each word among those whose order is seen, or -1; None where order does not count."""

    @property
    def n_word_columns(self) -> int:
        return min(self.n_words, MAX_WORD_COLUMNS)

    @property
    def n_ordered(self) -> int:
        """How many words are ordered, at most."""
        return min(self.n_words, MAX_ORDERED)

    @property
    def n_columns(self) -> int:
        return self.n_word_columns + (0 if self.rank is None else 2 * self.n_ordered**2)

    def of_words(self, words: NDArray[np.int64]) -> NDArray[np.int64]:
        """The column of each word."""
        if self.n_words <= MAX_WORD_COLUMNS:
            return words
        n_own = MAX_WORD_COLUMNS - MIN_SHARED_COLUMNS
        return np.where(words < n_own, words, n_own + words % MIN_SHARED_COLUMNS)

    def __call__(self, documents: Documents) -> TextInputs:
        row, place, word, column = documents.tokens()
        parts: list[tuple[NDArray[np.int64], ...]] = [(row, self.of_words(word), column, column)]
        if self.rank is not None:
            rank = self.rank[word]
            parts += [self._neighbours(row, place, rank, column, documents.token), self._ordered(row, rank, column)]
        joined: list[Any] = [np.concatenate(part) for part in zip(*parts, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        row, columns, first, second = (part[order] for part in joined)
        starts = np.searchsorted(row, np.arange(documents.shape[0] + 1))
        _, which, n_times = np.unique(row * self.n_columns + columns, return_inverse=True, return_counts=True)
        # Words that come a hundred times must not weigh more than any that were learned from.
        each = np.minimum(1 + np.log(n_times), MAX_WEIGHT) / n_times
        values = torch.as_tensor(each[which.reshape(-1)].astype(np.float32))
        rows = SparseRows(torch.as_tensor(starts), torch.as_tensor(columns), values, self.n_columns)
        return TextInputs(rows, np.stack([first, second], axis=1), row)

    def _neighbours(
        self,
        row: NDArray[np.int64],
        place: NDArray[np.int64],
        rank: NDArray[np.int64],
        column: NDArray[np.int64],
        token: str | None,
    ) -> tuple[NDArray[np.int64], ...]:
        """Words that follow each other in what is left; where a token stands for deleted words, none are between."""
        beside = (row[1:] == row[:-1]) & (rank[1:] >= 0) & (rank[:-1] >= 0)
        if token is not None:
            beside &= place[1:] == place[:-1] + 1
        at = np.flatnonzero(beside)
        pair = self.n_word_columns + rank[at] * self.n_ordered + rank[at + 1]
        return row[at], pair, column[at], column[at + 1]

    def _ordered(
        self, row: NDArray[np.int64], rank: NDArray[np.int64], column: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], ...]:
        """Different words of which one stands somewhere before the other."""
        seen = np.flatnonzero(rank >= 0)
        key = row[seen] * self.n_ordered + rank[seen]
        keys, first = np.unique(key, return_index=True)
        last = len(key) - 1 - np.unique(key[::-1], return_index=True)[1]
        own_row, own_rank = keys // self.n_ordered, keys % self.n_ordered
        n_of_row = np.bincount(own_row, minlength=1) if len(keys) else np.zeros(1, dtype=np.int64)
        begin = np.concatenate([[0], np.cumsum(n_of_row)])
        a = np.repeat(np.arange(len(keys)), n_of_row[own_row])
        within = np.arange(len(a)) - np.repeat(np.cumsum(n_of_row[own_row]) - n_of_row[own_row], n_of_row[own_row])
        b = begin[own_row[a]] + within
        kept = (a != b) & (first[a] < last[b])
        a, b = a[kept], b[kept]
        pair = self.n_word_columns + self.n_ordered**2 + own_rank[a] * self.n_ordered + own_rank[b]
        return own_row[a], pair, column[seen][first[a]], column[seen][last[b]]


def ranks(strength: Tensor) -> NDArray[np.int64]:
    """The places of the strongest words, by their strength (words,); -1 for all others."""
    found = np.full(len(strength), -1, dtype=np.int64)
    best = torch.argsort(-strength, stable=True)[:MAX_ORDERED].numpy()
    found[best] = np.arange(len(best))
    return found
