"""What the energy sees of a reduced text: its words and, of the words that matter, which precede which."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.data.text_tables import Records, TextTableFormat
from sointer.data.texts import Documents, TextFormat
from sointer.energy.sparse import SparseRows

MAX_WORD_COLUMNS, MIN_SHARED_COLUMNS = 2**15, 2**12
"""Of more words, the first ones have a column each, and the others share some."""
MAX_WEIGHT = 2.0
"""What repeats count together, at most; one has a weight of 1."""
MAX_ORDERED = 96
"""Words whose order the energy sees: a column for each pair of neighbours, and for each pair in this order."""
MAX_DEVIATIONS = 3.0
"""Of numbers beside texts: what is further away counts as if it were there."""


@dataclass(frozen=True)
class TableFeatures:
    """What an energy sees of the columns beside texts: nothing of those that are removed.

    A number enters scaled, and once for each of its bins as the share that lies below it, centred; a category, or that
    a number is missing, as a 1. So zero says nothing, and an energy learns what is predicted on average where it
    is not known.
    """

    column: NDArray[np.int64]
    """(encoded,) which of the numbers that the columns are encoded as."""
    owner: NDArray[np.int64]
    """(encoded,) the column of the data."""
    absence: NDArray[np.int64]
    """(encoded,) the number that is 1 where this one is missing; itself if it never is."""
    low: NDArray[np.float64]
    slope: NDArray[np.float64]
    least: NDArray[np.float64]
    most: NDArray[np.float64]
    middle: NDArray[np.float64]
    """What is taken from it, so that nothing is in the middle."""

    @classmethod
    def of(cls, form: TextFormat) -> TableFeatures | None:
        """For the columns beside the texts of a format, if there are any."""
        if not isinstance(form, TextTableFormat) or form.table is None:
            return None
        encoded: list[tuple[float, ...]] = []
        absences = set(form.table.absence.tolist())
        for column, (owner, edges) in enumerate(zip(form.owners.tolist(), form.edges, strict=True)):
            if not edges:
                encoded.append((column, owner, column, 0.0, 1.0, 0.0, 1.0, 0.0))
                continue
            absence = column + 1 if column + 1 in absences else column
            spread = float(np.std(edges)) or 1.0
            own, mean, far = (column, owner, absence), float(np.mean(edges)), MAX_DEVIATIONS
            encoded.append((*own, mean, 1 / spread, -far, far, 0.0))
            encoded += [(*own, a, 1 / (b - a), 0.0, 1.0, 0.5) for a, b in pairwise(edges)]
        table = np.array(encoded, dtype=np.float64).T
        return cls(*(part.astype(np.int64) for part in table[:3]), *table[3:])

    @property
    def n_columns(self) -> int:
        return len(self.column)

    def __call__(self, records: Records) -> tuple[NDArray[Any], ...]:
        """Row, encoded column, column of the data and value of all entries, row by row."""
        assert records.values is not None
        values, first, n = records.values, int(self.owner[0]), records.shape[0]
        row, column = np.repeat(np.arange(n), np.diff(records.indptr)), records.indices
        there = np.zeros((n, records.shape[1] - first), dtype=bool)
        there[row[column >= first], column[column >= first] - first] = True
        seen = np.clip((values[:, self.column] - self.low) * self.slope, self.least, self.most) - self.middle
        is_missing = (self.absence != self.column) & (values[:, self.absence] > 0)
        seen[~there[:, self.owner - first] | is_missing] = 0.0
        row, encoded = np.nonzero(seen)
        return row, encoded, self.owner[encoded], seen[row, encoded].astype(np.float32)


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
    word_starts: NDArray[np.int64] | None = None
    """The first word of each column of texts, where there are several."""
    table: TableFeatures | None = None
    """Of the columns beside texts."""

    @classmethod
    def of(cls, form: TextFormat, rank: Tensor) -> TextFeatures:
        """Of texts, or of tables with texts; `rank` is empty where order does not count."""
        starts = form.word_starts if isinstance(form, TextTableFormat) and len(form.parts) > 1 else None
        return cls(form.n_words, rank.numpy() if len(rank) else None, starts, TableFeatures.of(form))

    @property
    def n_word_columns(self) -> int:
        return min(self.n_words, MAX_WORD_COLUMNS)

    @property
    def n_ordered(self) -> int:
        """How many words are ordered, at most."""
        return min(self.n_words, MAX_ORDERED)

    @property
    def n_text_columns(self) -> int:
        """The columns of words and of their order."""
        return self.n_word_columns + (0 if self.rank is None else 2 * self.n_ordered**2)

    @property
    def n_columns(self) -> int:
        return self.n_text_columns + (0 if self.table is None else self.table.n_columns)

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
            of_text = row
            if self.word_starts is not None:  # no word is a neighbour of one in another text
                of_text = row * len(self.word_starts) + np.searchsorted(self.word_starts, word, side="right")
            beside = of_text[1:] == of_text[:-1]
            parts += [
                self._neighbours(row, beside, place, rank, column, documents.token),
                self._ordered(row, rank, column),
            ]
        joined: list[Any] = [np.concatenate(part) for part in zip(*parts, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        row, columns, first, second = (part[order] for part in joined)
        starts = np.searchsorted(row, np.arange(documents.shape[0] + 1))
        _, which, n_times = np.unique(row * self.n_columns + columns, return_inverse=True, return_counts=True)
        # Words that come a hundred times must not weigh more than any that were learned from.
        each = np.minimum(1 + np.log(n_times), MAX_WEIGHT) / n_times
        weights = each[which.reshape(-1)].astype(np.float32)
        if self.table is not None:
            assert isinstance(documents, Records)
            more = self.table(documents)
            row, first, second = (np.concatenate(two) for two in ((row, more[0]), (first, more[2]), (second, more[2])))
            columns = np.concatenate([columns, more[1] + self.n_text_columns])
            order = np.argsort(row, kind="stable")
            row, columns, first, second = row[order], columns[order], first[order], second[order]
            weights = np.concatenate([weights, more[3]])[order]
            starts = np.searchsorted(row, np.arange(documents.shape[0] + 1))
        values = torch.as_tensor(weights)
        rows = SparseRows(torch.as_tensor(starts), torch.as_tensor(columns), values, self.n_columns)
        return TextInputs(rows, np.stack([first, second], axis=1), row)

    def _neighbours(
        self,
        row: NDArray[np.int64],
        beside: NDArray[np.bool_],
        place: NDArray[np.int64],
        rank: NDArray[np.int64],
        column: NDArray[np.int64],
        token: str | None,
    ) -> tuple[NDArray[np.int64], ...]:
        """Words that follow each other in what is left; where a token stands for deleted words, none are between."""
        beside = beside & (rank[1:] >= 0) & (rank[:-1] >= 0)
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
