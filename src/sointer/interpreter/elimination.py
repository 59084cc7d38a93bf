"""Ranking by elimination: look at the better half of a row alone, again and again.

Evidence that a feature gives beside all others says little about what it gives in a small selection: words that
repeat each other share the credit in a whole document, but not in five words of it. So the less important half of a
row is removed, the rest is scored anew, and so on down to two features.

Only units that differ from the reference take part. What each of them adds behind the energy's first layer, its push,
is looked up once; after that a row is a few vectors, however many columns it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sointer.energy.networks import AtProjection
from sointer.energy.sparse import Inputs
from sointer.interpreter.present import PresentUnits
from sointer.interpreter.saliency import sign_of_evidence, slopes_along

if TYPE_CHECKING:
    from sointer.interpreter.networks import SaliencyInterpreter

LEAST_ROOM, BLOCK_ROWS, BLOCK_UNITS = 16, 32, 4096
"""Rows are looked at in blocks with room for as many units in each row. The shape of its block depends on a row alone,
so its scores cannot depend on the rows around it."""


def eliminate(interpreter: SaliencyInterpreter, x: Inputs, targets: Tensor, values: Tensor) -> Tensor:
    """Evidence of every unit (rows, units), made anew by halving in rows where it matters which units are kept."""
    halved = is_decided_by_features(interpreter, targets, values)
    present = PresentUnits.of(x, interpreter.references[:1], interpreter.unit_of_column)
    n_units = interpreter.relevance.shape[1]
    result = torch.empty(len(x), n_units)
    for rows, room in blocks(present.n_of_row, halved):
        n, at_once = len(rows), rows_at_once(room)
        evidence = Evidence(interpreter, lengthened(targets[rows], at_once), lengthened(values[rows], at_once))
        there, units = present.table(rows, at_once, room)
        push = interpreter.energy.push(present.differences(there)).view(at_once, room, -1)
        ranked = by_halves if halved[rows[0]] else of_whole_rows
        scores = ranked(evidence, push, there >= 0)
        absent = scores[:n, room:].expand(-1, n_units + 1).clone()
        result[rows] = absent.scatter_(1, units[:n], scores[:n, :room])[:, :n_units]
    return result


def is_decided_by_features(interpreter: SaliencyInterpreter, targets: Tensor, values: Tensor) -> Tensor:
    """Rows whose target would have another value if everything were removed; of numbers, all rows."""
    if interpreter.energy.space.is_continuous:
        return torch.ones_like(targets, dtype=torch.bool)
    of_nothing = interpreter.likelihood.predict(interpreter.energy, interpreter.references[:1])[0]
    return of_nothing[targets] != values


def blocks(n_of_row: Tensor, halved: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Rows that are looked at together, which have about as many units, and the room that these are given."""
    # The number of halvings is what counts, not the room, so few kinds of blocks are best.
    room = 2 ** torch.log2(n_of_row.clamp(min=LEAST_ROOM)).ceil().long()
    kind = 2 * room + halved
    order = kind.argsort(stable=True)
    kinds, counts = kind[order].unique_consecutive(return_counts=True)
    for number, alike in zip(kinds.tolist(), order.split(counts.tolist()), strict=True):
        for rows in alike.split(rows_at_once(number // 2)):
            yield rows, number // 2


def rows_at_once(room: int) -> int:
    return max(1, min(BLOCK_ROWS, BLOCK_UNITS // room))


def lengthened(numbers: Tensor, length: int) -> Tensor:
    """With zeros at the end."""
    return torch.cat([numbers, numbers.new_zeros(length - len(numbers))])


class Evidence:
    """What the units of a block's rows say for the values of its targets, some of them kept and the others removed."""

    def __init__(self, interpreter: SaliencyInterpreter, targets: Tensor, values: Tensor) -> None:
        energy, likelihood, n_steps = interpreter.energy, interpreter.likelihood, interpreter.n_path_steps
        reference, behind = interpreter.references[:1], AtProjection(energy)
        many_targets, many_values = targets.repeat(n_steps), values.repeat(n_steps)
        self._of_points = lambda points: likelihood.target_evidence(behind, points, many_targets, many_values)
        self._start, self._n_steps = energy.project(reference), n_steps
        self._sign = sign_of_evidence(energy, likelihood, reference, targets, values)

    def __call__(self, push: Tensor, kept: Tensor) -> Tensor:
        """Of pushes (rows, units, width) and which of them are kept: (rows, units)."""
        end = self._start + torch.bmm(kept.float().unsqueeze(1), push).squeeze(1)
        slope = slopes_along(self._of_points, self._start, end, self._n_steps).mean(dim=0)
        return torch.bmm(push, slope.unsqueeze(2)).squeeze(2) * self._sign


def of_whole_rows(evidence: Evidence, push: Tensor, alive: Tensor) -> Tensor:
    """Scores of the units of whole rows, and a last one for all that are absent: (rows, units + 1)."""
    return torch.cat([evidence(push, alive), torch.zeros(len(push), 1)], dim=1)


def by_halves(evidence: Evidence, push: Tensor, alive: Tensor) -> Tensor:
    """The same, made anew for the better half of each row, again and again, the others ranking below."""
    final = of_whole_rows(evidence, push, alive)
    n_rows, room, width = push.shape
    scores, number = final[:, :room], torch.arange(room).expand(n_rows, -1)
    alive_of_all = torch.cat([alive, torch.zeros(n_rows, 1, dtype=torch.bool)], dim=1)
    while room > 2:
        n_kept, room = better_half(alive.sum(dim=1, keepdim=True)), room // 2
        best = scores.masked_fill(~alive, -torch.inf).topk(room, dim=1).indices
        flat = best + torch.arange(n_rows).unsqueeze(1) * push.shape[1]
        push = push.flatten(0, 1).index_select(0, flat.flatten()).view(n_rows, room, width)
        alive, number = torch.arange(room) < n_kept, number.gather(1, best)
        scores = evidence(push, alive)
        kept_of_all = torch.zeros_like(alive_of_all).scatter_(1, number, alive)
        new = torch.zeros_like(final).scatter_(1, number, scores)
        final = ranked_above(new, final, kept_of_all, alive_of_all & ~kept_of_all)
        alive_of_all = kept_of_all
    return final


def better_half(n_alive: Tensor) -> Tensor:
    """How many of so many units are kept; of two, which are ranked beside each other, both."""
    return torch.where(n_alive > 2, (n_alive + 1) // 2, n_alive)


def ranked_above(new: Tensor, old: Tensor, kept: Tensor, removed: Tensor) -> Tensor:
    """New scores for what is kept; everything else moves down by as much as it takes to rank below."""
    lowest = new.masked_fill(~kept, torch.inf).amin(dim=1, keepdim=True)
    highest = old.masked_fill(~removed, -torch.inf).amax(dim=1, keepdim=True)
    margin = 1e-3 * (highest.abs() + lowest.abs())
    down = (highest - lowest + margin).nan_to_num(0.0, 0.0, 0.0).clamp_min(0.0)
    return torch.where(kept, new, old - down)
