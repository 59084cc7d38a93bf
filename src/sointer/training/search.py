"""Better selections by swaps: exchange the least useful selected unit for the most useful other one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sointer.interpreter.relaxation import hard_top_k

Value = Callable[[Tensor, Tensor], Tensor]
"""(row numbers, keep mask (rows, units)) -> how well the target is determined, one number per row."""


def improve_by_swaps(
    value: Value,
    scores: Tensor,
    allowed: Tensor,
    k: int,
    *,
    n_candidates: int,
    n_sweeps: int,
    margin: float,
) -> Tensor:
    """Start from the top k of `scores`; a swap is made only if it gains more than `margin`: (rows, units) bool."""
    n_rows, n_units = scores.shape
    keep = hard_top_k(scores, k, allowed)
    candidates = scores.masked_fill(~allowed, -torch.inf).topk(min(n_candidates, n_units), dim=1).indices
    rows = torch.arange(n_rows)
    best = value(rows, keep)
    for _ in range(n_sweeps):
        if len(rows) == 0 or not keep[rows].any():
            break
        without = drop_least_useful(value, rows, keep[rows], scores[rows])
        swapped, gained = add_most_useful(value, rows, without, candidates[rows], allowed[rows])
        better = gained > best[rows] + margin
        rows, swapped, gained = rows[better], swapped[better], gained[better]
        keep[rows], best[rows] = swapped, gained
    return keep


def drop_least_useful(value: Value, rows: Tensor, keep: Tensor, scores: Tensor) -> Tensor:
    """The selection without the unit that is missed least; of equals, the one with the lowest score."""
    k = int(keep.sum(dim=1).max())
    selected = scores.masked_fill(~keep, -torch.inf).topk(k, dim=1).indices.flip(1)
    tried = keep.unsqueeze(1).repeat(1, k, 1)
    tried.scatter_(2, selected.unsqueeze(2), False)
    values = value(rows.repeat_interleave(k), tried.flatten(0, 1)).view(-1, k)
    real = keep.gather(1, selected)
    choice = values.masked_fill(~real, -torch.inf).argmax(dim=1)
    return tried[torch.arange(len(rows)), choice]


def add_most_useful(
    value: Value, rows: Tensor, keep: Tensor, candidates: Tensor, allowed: Tensor
) -> tuple[Tensor, Tensor]:
    """The selection with the candidate that helps most, and its value."""
    m = candidates.shape[1]
    tried = keep.unsqueeze(1).repeat(1, m, 1)
    tried.scatter_(2, candidates.unsqueeze(2), True)
    values = value(rows.repeat_interleave(m), tried.flatten(0, 1)).view(-1, m)
    free = allowed.gather(1, candidates) & ~keep.gather(1, candidates)
    gained, choice = values.masked_fill(~free, -torch.inf).max(dim=1)
    return tried[torch.arange(len(rows)), choice], gained
