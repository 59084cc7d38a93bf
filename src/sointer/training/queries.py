"""Queries of tables and texts: whole samples and masked ones, which of them are held out, and what they returned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.masking.selection import allowed_units
from sointer.training.context import FitContext, PendingQuery, QueryBatch, concatenate, n_repeated

N_FIRST = 16
SHARE_LATER = 0.2
MAX_HELD_OUT = 400
"""Queries held out, at most: that many judge an energy well enough, and all others teach it."""
FEW_QUERIES = 1500
"""With fewer, nothing is queried ahead: it matters more what is queried than that the model is always busy."""


@dataclass(frozen=True)
class HeldOut:
    """Samples that the energy learns nothing from, neither whole nor masked; its predictions for them are judged."""

    whole: NDArray[np.bool_]
    """Which of the samples that are queried whole."""
    masked: NDArray[np.bool_]
    """Which of the first masked queries are made of these samples; later ones are made of others."""

    @classmethod
    def of(cls, context: FitContext, n_whole: int, n_masked: int, n_later: int) -> HeldOut:
        """A share of all queries, half of them whole samples where there are as many, the others made of the same."""
        share = context.configs.training.validation_share
        n_wanted = min(share * (n_whole + n_masked + n_later), MAX_HELD_OUT)
        n_samples = min(max(1, round(min(n_wanted / 2, share * n_whole))), n_whole - 1)
        n_made = min(max(0, round(n_wanted) - n_samples), n_masked - 1) if n_samples else 0
        return cls(_spread(n_whole, n_samples), _spread(n_masked, n_made))

    def masked_samples(self, samples: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
        """What the first masked queries are made of: the held-out ones of the whole `samples`, or in turn `others`."""
        found = np.zeros(len(self.masked), dtype=np.int64)
        for chosen, made_of in ((self.masked, samples[self.whole]), (~self.masked, others)):
            found[chosen] = np.resize(made_of, int(chosen.sum()))
        return found

    def among(self, n_whole: int, n_masked: int) -> Tensor:
        """Of so many queries, of whole and of masked samples, those held out: some, but not all."""
        held_out = np.concatenate([self.whole[:n_whole], self.masked[:n_masked]])
        if not held_out.any():
            held_out[:1] = True
        if held_out.all():
            held_out[1:] = False
        return torch.as_tensor(held_out)


def _spread(n: int, n_chosen: int) -> NDArray[np.bool_]:
    """So many of n at equal distances, so that any beginning has its share."""
    chosen = np.zeros(max(n, 0), dtype=bool)
    chosen[np.arange(max(n_chosen, 0)) * n // max(n_chosen, 1)] = True
    return chosen


@dataclass
class QueriedSamples:
    """What was queried of the same samples: whole, mixed, with one unit redrawn."""

    rows: NDArray[np.int64]
    """The training rows that were sent whole."""
    codes: NDArray[Any]
    mixed: NDArray[np.int64]
    """For each mixture, which of the whole rows it was made from."""
    kept: NDArray[np.bool_]
    mixture_codes: NDArray[Any]
    redrawn: NDArray[np.int64]
    unit: NDArray[np.int64]
    redraw_codes: NDArray[Any]

    def with_mixtures(self, mixed: NDArray[np.int64], kept: NDArray[np.bool_], codes: NDArray[Any]) -> QueriedSamples:
        return replace(
            self,
            mixed=np.concatenate([self.mixed, mixed]),
            kept=np.concatenate([self.kept, kept]),
            mixture_codes=np.concatenate([self.mixture_codes, codes]),
        )

    def with_redraws(self, redrawn: NDArray[np.int64], unit: NDArray[np.int64], codes: NDArray[Any]) -> QueriedSamples:
        return replace(
            self,
            redrawn=np.concatenate([self.redrawn, redrawn]),
            unit=np.concatenate([self.unit, unit]),
            redraw_codes=np.concatenate([self.redraw_codes, codes]),
        )


@dataclass
class DenseRows:
    """Some rows with their outputs, dense."""

    index: Tensor  # which rows of the training data they are
    points: Tensor  # as networks want them
    codes: Tensor
    allowed: Tensor  # units that differ from their reference


@dataclass
class UnmaskedRows:
    """Training rows whose outputs are known without removal; made dense a few at a time."""

    context: FitContext
    index: Tensor
    codes: Tensor

    def pick(self, which: Tensor) -> DenseRows:
        index = self.index[which]
        raw = self.context.rows.samples(index.numpy())
        return DenseRows(index, self.context.as_tensor(raw), self.codes[which], can_be_chosen(self.context, raw))

    def learned(self, held_out: Tensor) -> UnmaskedRows:
        """Those that are not held out, of queries that begin with these rows; all, if none would be left."""
        chosen = ~held_out[: len(self)]
        return UnmaskedRows(self.context, self.index[chosen], self.codes[chosen]) if chosen.any() else self

    def __len__(self) -> int:
        return len(self.index)


def query_first(context: FitContext) -> tuple[QueryBatch, Tensor, Tensor, Callable[[], PendingQuery]]:
    """Whole rows, then rows with random subsets removed; which rows were whole; who is held out; and a way to go on.

    The rest, a fifth of the first queries unless they are few, is sent while training on the others has begun.
    """
    n_first = max(
        2,
        int(context.n_queries * (1.0 - context.configs.training.on_policy_share))
        - n_repeated(context)
        - context.n_extra,
    )
    n_whole = min(context.rows.n_samples, max(1, (2 * n_first) // 5))
    context.history.stage("querying the model", n_first, unit="rows")
    order = context.rng.permutation(context.rows.n_samples)[:n_whole]
    # Wrong names or targets must come to light before the budget is spent.
    first = context.query(order[:N_FIRST])
    if first is not None:
        context.check(first.raw)
    n_masked = n_first - n_whole
    n_later = 0 if are_few(context) else min(int(n_first * SHARE_LATER), n_masked // 2)
    held_out = HeldOut.of(context, n_whole, n_masked - n_later, n_later)
    others = np.setdiff1d(np.arange(context.rows.n_samples), order[held_out.whole])
    index = others[context.rng.integers(len(others), size=n_masked)]
    now, later = held_out.masked_samples(order, index[n_later:]), index[:n_later]
    pending = [context.submit(order[N_FIRST:]), context.submit(now, partial(draw_keeps, context))]
    parts = [first, *(query.wait() for query in pending)]
    n_answered = sum(len(part) for part in parts[:2] if part is not None)
    replies = concatenate([part for part in parts if part is not None])
    submit_rest = partial(context.submit, later, partial(draw_keeps, context))
    return (
        replies,
        torch.as_tensor(order[:n_answered]),
        held_out.among(n_answered, len(replies) - n_answered),
        submit_rest,
    )


def are_few(context: FitContext) -> bool:
    """Whether queries are so few that each must be a good one."""
    return context.n_queries < FEW_QUERIES


def draw_keeps(context: FitContext, index: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Random units to keep, for each of these rows."""
    return context.random_keeps(len(index), rng)


def one_removed(unit: NDArray[np.int64], n_units: int) -> NDArray[np.bool_]:
    """What to keep so that one unit of each row is removed."""
    keep = np.ones((len(unit), n_units), dtype=bool)
    keep[np.arange(len(unit)), unit] = False
    return keep


def can_be_chosen(context: FitContext, raw: NDArray[np.float64]) -> Tensor:
    """The units of raw rows that differ from what they become when removed."""
    return torch.as_tensor(allowed_units(context.rows.removal, context.rows.groups, raw))


def draw_pairs(whole: UnmaskedRows, targets: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """n (row, target) pairs; half of them where the target has another value than usual."""
    rows = torch.randint(len(whole), (n,), generator=generator)
    chosen = targets[torch.randint(len(targets), (n,), generator=generator)]
    codes = whole.codes[:, targets]
    labels = codes > 0.5 if codes.dtype.is_floating_point else codes
    usual = labels.mode(dim=0).values
    place, unusual_row = torch.nonzero((labels != usual).T, as_tuple=True)
    n_unusual = n // 2 if len(unusual_row) else 0
    if n_unusual:
        # Every target with unusual rows gets the same share, however rare they are.
        count = torch.bincount(place, minlength=len(targets))
        varied = torch.nonzero(count).squeeze(1)
        picked = varied[torch.randint(len(varied), (n_unusual,), generator=generator)]
        share = torch.rand(n_unusual, generator=generator, dtype=torch.float64)
        within = (share * count[picked].double()).long().to(count.device)
        rows[:n_unusual] = unusual_row[(count.cumsum(0) - count)[picked] + within]
        chosen[:n_unusual] = targets[picked]
    return rows, chosen
