"""Queries about sequences, as an energy learns from them: some tokens are kept, the others replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer.data.sequences import ABSENT, TokenIndex, TokenOutputs, Tokens, Vocabulary
from sointer.masking.conditional import Replacement

WHOLE, RUNS = 0.1, 0.35
"""Shares of queries about sequences as they are, and about runs of tokens: what decides mostly stands together."""
MIN_BUCKET = 512
MAX_HELD_OUT, MAX_APART = 1000, 50
"""Queries held out, and sequences that these are about, at most: fewer sequences are a poor judge, more are missed."""


def plan_queries(
    sequences: Sequence[Tokens], replacement: Replacement, n: int, share_held_out: float, rng: np.random.Generator
) -> tuple[list[Tokens], list[NDArray[np.bool_]], NDArray[np.bool_]]:
    """Sequences of the data with a random share of their tokens replaced, which were kept, and what is held out.

    Held-out queries are about sequences that no other query is about.
    """
    same: dict[tuple[str, ...], int] = {}
    number = np.array([same.setdefault(tuple(tokens), i) for i, tokens in enumerate(sequences)])
    distinct = rng.permutation(np.unique(number))
    n_held_out = min(MAX_HELD_OUT, max(1, int(share_held_out * n)))
    n_apart = min(max(1, round(share_held_out * len(distinct))), MAX_APART, n_held_out, len(distinct) - 1)
    others = rng.permutation(np.flatnonzero(~np.isin(number, distinct[:n_apart])))
    chosen = np.resize(distinct[:n_apart] if n_apart else others, n_held_out), np.resize(others, n - n_held_out)
    sent, keep = replaced([sequences[i] for i in np.concatenate(chosen).tolist()], replacement, rng)
    return sent, keep, np.arange(n) < n_held_out


def replaced(
    sequences: Sequence[Tokens], replacement: Replacement, rng: np.random.Generator
) -> tuple[list[Tokens], list[NDArray[np.bool_]]]:
    """These sequences with a random share of their tokens replaced, and which were kept."""
    keep = []
    for tokens in sequences:
        n, kind = len(tokens), rng.random()
        if kind < WHOLE:
            keep.append(np.ones(n, dtype=bool))
        elif kind < WHOLE + RUNS:
            start, stop = np.sort(rng.integers(0, n + 1, 2))
            keep.append((start <= np.arange(n)) & (np.arange(n) < stop))
        else:
            keep.append(rng.random(n) < rng.random())
    return replacement.draw(sequences, keep, rng), keep


@dataclass(eq=False)
class Queries:
    """Queries and their outputs, padded: token numbers, which were kept, and the class probabilities of every token."""

    ids: Tensor
    keep: Tensor
    lengths: Tensor
    codes: Tensor
    """Codes (queries, n) or probabilities (queries, n, classes)."""
    n_labels: int

    @classmethod
    def of(
        cls,
        index: TokenIndex,
        sent: Sequence[Tokens],
        keep: Sequence[NDArray[np.bool_]],
        outputs: TokenOutputs,
        returned: Sequence[Sequence[Any]] | None,
    ) -> Queries:
        """Without outputs all codes are 0."""
        lengths = np.array([len(tokens) for tokens in sent])
        n = int(lengths.max())
        ids, kept = (
            np.zeros((len(sent), n), dtype=np.int64),
            np.ones((len(sent), n), dtype=bool),
        )
        soft = outputs.kind == "probability" and returned is not None
        codes: NDArray[Any] = (
            np.zeros((len(sent), n, outputs.n_labels), np.float32) if soft else np.zeros((len(sent), n), np.int64)
        )
        for i, tokens in enumerate(sent):
            ids[i, : len(tokens)], kept[i, : len(tokens)] = index.ids(tokens), keep[i]
            if returned is not None:
                codes[i, : len(tokens)] = outputs.probabilities(returned[i]) if soft else outputs.codes(returned[i])
        as_tensor = torch.as_tensor
        return cls(as_tensor(ids), as_tensor(kept), as_tensor(lengths), as_tensor(codes), outputs.n_labels)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Tensor) -> Queries:
        """Some queries, no longer than the longest of them."""
        lengths = self.lengths[rows]
        n = int(lengths.max())
        return Queries(self.ids[rows, :n], self.keep[rows, :n], lengths, self.codes[rows, :n], self.n_labels)

    def wanted(self) -> Tensor:
        """Probabilities of the classes, 0 beyond the end of a sequence."""
        table = self.codes if self.codes.ndim == 3 else nn.functional.one_hot(self.codes, self.n_labels).float()
        return table * (torch.arange(table.shape[1]) < self.lengths[:, None])[:, :, None]

    def masked(self) -> Tensor:
        """The tokens that were kept, and ABSENT in place of the others."""
        return torch.where(self.keep, self.ids, ABSENT)

    def buckets(self) -> list[Tensor]:
        """Queries of similar length together."""
        order = torch.argsort(self.lengths, stable=True)
        found: list[Tensor] = []
        start, ordered = 0, self.lengths[order]
        while start < len(order):
            stop = min(start + MIN_BUCKET, len(order))
            while stop < len(order) and ordered[stop] == ordered[stop - 1]:
                stop += 1
            found.append(order[start:stop])
            start = stop
        return found


@dataclass(frozen=True, eq=False)
class PseudoQueries:
    """Makes queries that are not sent to the model: an energy labels them."""

    sequences: Sequence[Tokens]
    replacement: Replacement
    index: TokenIndex
    vocabulary: Vocabulary
    outputs: TokenOutputs
    rng: np.random.Generator

    def queries(self, n: int) -> tuple[Queries, Tensor]:
        """So many, without outputs, and the features of all tokens that any of them hold."""
        chosen = np.resize(self.rng.permutation(len(self.sequences)), n)
        sent, keep = replaced([self.sequences[i] for i in chosen.tolist()], self.replacement, self.rng)
        made = Queries.of(self.index, sent, keep, self.outputs, None)
        return made, torch.as_tensor(self.vocabulary.rows(self.index.tokens))


@dataclass(frozen=True, eq=False)
class Buckets:
    """Queries to draw batches from, those of similar length together."""

    queries: Queries
    buckets: list[Tensor]
    weights: Tensor

    @classmethod
    def of(cls, queries: Queries) -> Buckets:
        buckets = queries.buckets()
        return cls(queries, buckets, torch.tensor([float(len(bucket)) for bucket in buckets]))

    def batch(self, n: int, generator: torch.Generator) -> Queries:
        """So many queries of one bucket."""
        bucket = self.buckets[int(torch.multinomial(self.weights, 1, generator=generator))]
        return self.queries.take(bucket[torch.randint(len(bucket), (n,), generator=generator)])
