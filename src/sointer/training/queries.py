"""Questions for the black box: whole rows, rows with random parts removed, rows reduced to a selection."""

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
from sointer.training.context import FitContext, PendingQuery, QueryBatch, concatenate, n_asked_twice

N_FIRST = 16
SHARE_ASKED_LATER = 0.2
FEW_QUESTIONS = 1500
"""With fewer, nothing is asked ahead: it matters more what is asked than that the black box is always busy."""


@dataclass
class QueriedSamples:
    """What the black box was asked about the same samples: whole, mixed, with one unit redrawn."""

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
class Rows:
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

    def pick(self, which: Tensor) -> Rows:
        index = self.index[which]
        raw = self.context.rows.samples(index.numpy())
        return Rows(index, self.context.as_tensor(raw), self.codes[which], can_be_chosen(self.context, raw))

    def __len__(self) -> int:
        return len(self.index)


def ask_first(context: FitContext) -> tuple[QueryBatch, Tensor, Callable[[], PendingQuery]]:
    """Whole rows, then rows with random subsets removed; which rows were whole; and a way to ask for the rest.

    The rest, a fifth of the first questions unless they are few, is asked while training on the others has begun.
    """
    n_first = max(
        2,
        int(context.n_queries * (1.0 - context.configs.training.on_policy_share))
        - n_asked_twice(context)
        - context.n_extra,
    )
    n_whole = min(context.rows.n_samples, max(1, (2 * n_first) // 5))
    context.history.stage("asking the model", n_first, unit="rows")
    order = context.rng.permutation(context.rows.n_samples)[:n_whole]
    # Wrong names or targets must come to light before the budget is spent.
    first = context.query(order[:N_FIRST])
    if first is not None:
        context.check(first.raw)
    index = context.rng.integers(context.rows.n_samples, size=n_first - n_whole)
    n_later = 0 if are_few(context) else min(int(n_first * SHARE_ASKED_LATER), len(index) // 2)
    now, later = index[n_later:], index[:n_later]
    questions = [context.ask(order[N_FIRST:]), context.ask(now, partial(draw_keeps, context))]
    parts = [first, *(question.answers() for question in questions)]
    n_answered = sum(len(part) for part in parts[:2] if part is not None)
    replies = concatenate([part for part in parts if part is not None])
    return replies, torch.as_tensor(order[:n_answered]), partial(context.ask, later, partial(draw_keeps, context))


def are_few(context: FitContext) -> bool:
    """Whether queries are so few that each must be a good one."""
    return context.n_queries < FEW_QUESTIONS


def draw_keeps(context: FitContext, index: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Random units to keep, for each of these rows."""
    return context.random_keeps(len(index), rng)


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
