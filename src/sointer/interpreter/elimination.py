"""Ranking by elimination: look at the better half of a row alone, again and again.

Evidence that a feature gives beside all others says little about what it gives in a small selection: words that
repeat each other share the credit in a whole document, but not in five words of it. So the less important half of a
row is removed, the rest is scored anew, and so on down to one feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sointer.interpreter.relaxation import hard_top_k

if TYPE_CHECKING:
    from sointer.interpreter.networks import SaliencyInterpreter

# All blocks have the same shape, so a row's scores cannot depend on the rows around it.
BLOCK_ROWS = 32


def eliminate(interpreter: SaliencyInterpreter, x: Tensor, targets: Tensor, values: Tensor, scores: Tensor) -> Tensor:
    """Scores (rows, units) made anew for the rows where it matters which units are kept."""
    decided = torch.nonzero(is_decided_by_features(interpreter, targets, values)).squeeze(1)
    result = scores.clone()
    for rows in decided.split(BLOCK_ROWS) if len(decided) else ():
        block = torch.cat([rows, rows[:1].expand(BLOCK_ROWS - len(rows))])
        result[rows] = _of_block(interpreter, x[block], targets[block], values[block], scores[block])[: len(rows)]
    return result


def is_decided_by_features(interpreter: SaliencyInterpreter, targets: Tensor, values: Tensor) -> Tensor:
    """Rows whose target would have another value if everything were removed; of numbers, all rows."""
    if interpreter.energy.space.is_continuous:
        return torch.ones_like(targets, dtype=torch.bool)
    of_nothing = interpreter.likelihood.predict(interpreter.energy, interpreter.references[:1])[0]
    return of_nothing[targets] != values


def _of_block(interpreter: SaliencyInterpreter, x: Tensor, targets: Tensor, values: Tensor, scores: Tensor) -> Tensor:
    reference = interpreter.references[:1]
    differs = (x != reference).float()
    alive = torch.zeros_like(scores).index_add_(1, interpreter.unit_of_column, differs) > 0
    final = scores.clone()
    while int(alive.sum(dim=1).max()) > 1:
        sizes = (alive.sum(dim=1) + 1) // 2
        kept = hard_top_k(scores, int(sizes.max()), alive, sizes)
        reduced = torch.where(kept[:, interpreter.unit_of_column], x, reference)
        scores = interpreter.prior(reduced, targets, values)
        final = ranked_above(scores, final, kept, alive & ~kept)
        alive = kept
    return final


def ranked_above(new: Tensor, old: Tensor, kept: Tensor, removed: Tensor) -> Tensor:
    """New scores for what is kept; everything else moves down by as much as it takes to rank below."""
    lowest = new.masked_fill(~kept, torch.inf).amin(dim=1, keepdim=True)
    highest = old.masked_fill(~removed, -torch.inf).amax(dim=1, keepdim=True)
    margin = 1e-3 * (highest.abs() + lowest.abs())
    down = (highest - lowest + margin).nan_to_num(0.0, 0.0, 0.0).clamp_min(0.0)
    return torch.where(kept, new, old - down)
