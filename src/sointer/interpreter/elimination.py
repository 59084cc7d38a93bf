"""Ranking by elimination: look at the better half of a row alone, again and again.

Evidence that a feature gives beside all others says little about what it gives in a small selection: words that
repeat each other share the credit in a whole document, but not in five words of it. So the less important half of a
row is removed, the rest is scored anew, and so on down to two features.

Only units that differ from the reference take part. What each unit of the better half adds behind the energy's first
layer, its push, is looked up once; after that a row is a few vectors, however many columns it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import AtProjection, TrainableEnergy
from sointer.energy.space import InputScaling
from sointer.energy.sparse import Inputs, SparseRows, starts_of


class EliminationInterpreter(nn.Module):
    """Of rows that are mostly zero: the energy's evidence, made anew on ever smaller parts of a row."""

    references: Tensor
    unit_of_column: Tensor

    def __init__(
        self,
        energy: TrainableEnergy,
        likelihood: Likelihood,
        references: Tensor,
        unit_of_column: Tensor,
        n_units: int,
        *,
        n_path_steps: int = 4,
    ) -> None:
        super().__init__()
        self.energy, self.likelihood = energy, likelihood
        self.n_units, self.n_path_steps = n_units, n_path_steps
        self.register_buffer("references", references)
        self.register_buffer("unit_of_column", unit_of_column)

    @property
    def scaling(self) -> InputScaling:
        """How inputs enter the energy."""
        encoding = self.energy.encoding
        assert isinstance(encoding, InputScaling)
        return encoding

    def forward(self, x: Inputs, targets: Tensor, labels: Tensor) -> Tensor:
        """Evidence of the units of rows for the labels of their targets: (rows, units)."""
        return eliminate(self, x, targets, labels)


@dataclass(frozen=True)
class PresentUnits:
    """All units that differ from the reference, row by row."""

    of_unit: SparseRows
    """For each of them, by how much its columns differ."""
    unit: Tensor
    first: Tensor
    """Where each row's units begin: (rows + 1,)."""
    n_units: int

    @classmethod
    def of(cls, differences: SparseRows, unit_of_column: Tensor) -> PresentUnits:
        """Of rows, given by how they differ from the reference."""
        row, column, value = differences.entries()
        n_units = int(unit_of_column.max()) + 1
        key = row * n_units + unit_of_column[column]
        if bool((key[1:] < key[:-1]).any()):
            order = key.argsort(stable=True)
            key, column, value = key[order], column[order], value[order]
        units, counts = key.unique_consecutive(return_counts=True)
        first = torch.searchsorted(units, torch.arange(len(differences) + 1) * n_units)
        of_unit = SparseRows(starts_of(counts), column, value, differences.n_columns)
        return cls(of_unit, units % n_units, first, n_units)

    @property
    def n_of_row(self) -> Tensor:
        return self.first.diff()

    def table(self, rows: Tensor, n_rows: int, room: int) -> tuple[Tensor, Tensor]:
        """The units of some rows, as numbers of all that are present and as units: (n_rows, room).

        Where there is none, -1 and n_units stand instead.
        """
        place, n_here = torch.arange(room), torch.zeros(n_rows, 1, dtype=torch.long)
        n_here[: len(rows), 0] = self.n_of_row[rows]
        begin = torch.zeros_like(n_here)
        begin[: len(rows), 0] = self.first[rows]
        there = torch.where(place < n_here, begin + place, -1)
        return there, torch.cat([self.unit, torch.tensor([self.n_units])])[there]

    def differences(self, there: Tensor) -> SparseRows:
        """A row for every place of such a table, by how much the columns of its unit differ; none where it is -1."""
        return self.of_unit.take(there.flatten())


GOLDEN = 0.6180339887498949


def path_positions(n_steps: int) -> Tensor:
    """Evenly spread positions in (0, 1), in an order that mixes early and late ones."""
    positions = (np.arange(n_steps) * GOLDEN + 0.5) % 1.0
    return torch.as_tensor(((positions.argsort().argsort() + 0.5) / n_steps).astype(np.float32))


def slopes_along(evidence: Callable[[Tensor], Tensor], start: Tensor, end: Tensor, n_steps: int) -> Tensor:
    """Gradients of evidence at points on straight paths: (steps, rows, width).

    Paths lead from `start`, (1, width) or (steps, 1, width), to each row of `end`, (rows, width).
    """
    with torch.enable_grad():
        path = start + path_positions(n_steps).view(n_steps, 1, 1) * (end - start)
        points = path.reshape(-1, path.shape[2]).detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(evidence(points).sum(), points)
    return gradient.view_as(path)


MIN_ROOM, BLOCK_ROWS, BLOCK_UNITS = 16, 32, 4096
"""Rows are looked at in blocks with room for as many units in each row. The shape of its block depends on a row alone,
so its scores cannot depend on the rows around it."""


class UnmaskedEvidence(NamedTuple):
    """What the units of rows say for the values of their targets, nothing removed."""

    evidence: Tensor
    """(rows, units) log-odds."""
    slope: Tensor
    """(rows,) change of the value's probability per unit of log-odds, from the reference to the row."""
    base: Tensor
    """(rows,) probability of the value at the reference."""
    end: Tensor
    """(rows,) and at the row."""

    @property
    def effects(self) -> Tensor:
        """(rows, units) signed, in probability of the value; they lead from `base` to about `end`."""
        return self.evidence * self.slope.unsqueeze(1)


def eliminate(
    interpreter: EliminationInterpreter, x: Inputs, targets: Tensor, values: Tensor, whole: Tensor | None = None
) -> Tensor:
    """Evidence of every unit (rows, units), made anew by halving in rows where it matters which units are kept.

    `whole` is the evidence with nothing removed, if it is known.
    """
    scores = whole_rows(interpreter, x, targets, values).evidence if whole is None else whole.clone()
    start = interpreter.energy.project(interpreter.references[:1])
    decided = torch.nonzero(is_decided_by_features(interpreter, targets, values)).squeeze(1)
    present = PresentUnits.of(differences_of(interpreter, x).take(decided), interpreter.unit_of_column)
    for block, room in blocks(present.n_of_row):
        rows, n_rows = decided[block], rows_at_once(room)
        evidence = PathEvidence(interpreter, start, *lengthened(n_rows, targets[rows], values[rows]))
        scores[rows] = by_halves(evidence, scores[rows], present, block, n_rows, room)
    return scores


def whole_rows(interpreter: EliminationInterpreter, x: Inputs, targets: Tensor, values: Tensor) -> UnmaskedEvidence:
    """Evidence of every unit for the values of the targets, nothing removed, and what it is in probability."""
    differences = differences_of(interpreter, x)
    found = UnmaskedEvidence(torch.empty(len(x), interpreter.n_units), *(torch.empty(len(x)) for _ in range(3)))
    start = interpreter.energy.project(interpreter.references[:1])
    for rows in torch.arange(len(x)).split(BLOCK_ROWS):
        evidence = PathEvidence(interpreter, start, *lengthened(BLOCK_ROWS, targets[rows], values[rows]))
        found_here = evidence.of_whole_rows(differences.take(lengthened(BLOCK_ROWS, rows, by=-1)[0]))
        for whole, part in zip(found, found_here, strict=True):
            whole[rows] = part[: len(rows)]
    return found


def differences_of(interpreter: EliminationInterpreter, x: Inputs) -> SparseRows:
    """How rows differ from the reference, which is zero for sparse ones."""
    return x if isinstance(x, SparseRows) else SparseRows.of_dense(x - interpreter.references[:1])


def is_decided_by_features(interpreter: EliminationInterpreter, targets: Tensor, values: Tensor) -> Tensor:
    """Rows whose target would have another value if everything were removed."""
    of_nothing = interpreter.likelihood.predict(interpreter.energy, interpreter.references[:1])[0]
    return of_nothing[targets] != values


def blocks(n_of_row: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Rows that are looked at together, which have about as many units, and the room that these are given."""
    # The number of halvings is what counts, not the room, so few kinds of blocks are best.
    room = 2 ** torch.log2(n_of_row.clamp(min=MIN_ROOM)).ceil().long()
    order = room.argsort(stable=True)
    rooms, counts = room[order].unique_consecutive(return_counts=True)
    for size, alike in zip(rooms.tolist(), order.split(counts.tolist()), strict=True):
        for rows in alike.split(rows_at_once(size)):
            yield rows, size


def rows_at_once(room: int) -> int:
    """How many rows of so many entries are computed at a time."""
    return max(1, min(BLOCK_ROWS, BLOCK_UNITS // room))


def lengthened(length: int, *lists: Tensor, by: int = 0) -> list[Tensor]:
    """With so many more at the end of each list that it is as long."""
    return [torch.cat([numbers, numbers.new_full((length - len(numbers),), by)]) for numbers in lists]


class PathEvidence:
    """What the units of a block's rows say for the values of its targets."""

    def __init__(self, interpreter: EliminationInterpreter, start: Tensor, targets: Tensor, values: Tensor) -> None:
        self._interpreter, self._start, self._targets, self._values = interpreter, start, targets, values
        self._behind = AtProjection(interpreter.energy)

    def of_whole_rows(self, differences: SparseRows) -> UnmaskedEvidence:
        """Of all units, nothing removed, from how rows differ from the reference."""
        energy, unit_of_column = self._interpreter.energy, self._interpreter.unit_of_column
        behind, *ends = self.along(differences)
        slope = energy.pull_back(behind, self._targets)
        row, column, value = self._scaled(differences).entries()
        scores = torch.zeros(len(differences), self._interpreter.n_units)
        scores.index_put_((row, unit_of_column[column]), slope[row, column] * value, accumulate=True)
        return UnmaskedEvidence(scores, *ends)

    def along(self, differences: SparseRows) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """On the way from the reference to rows: slopes behind the first layer (rows, width), slope, base and end.

        The last three are those of `UnmaskedEvidence`.
        """
        push = self.push(differences)
        before, after = self._log_odds(self._start.expand_as(push)), self._log_odds(self._start + push)
        low, high = before.sigmoid(), after.sigmoid()
        moved = after - before
        # Where the log-odds hardly move, the secant's slope is the curve's own.
        secant = torch.where(moved.abs() > 1e-3, (high - low) / moved, low * (1 - low))
        return self._slope(push), secant, low, high

    def _log_odds(self, points: Tensor) -> Tensor:
        """Of the values, at points behind the first layer: (rows,)."""
        return self._interpreter.likelihood.target_evidence(self._behind, points, self._targets, self._values)

    def of_kept(self, push: Tensor, kept: Tensor) -> Tensor:
        """Of pushes (rows, units, width), all others and those that are not kept being removed: (rows, units)."""
        slope = self._slope(torch.bmm(kept.float().unsqueeze(1), push).squeeze(1))
        return torch.bmm(push, slope.unsqueeze(2)).squeeze(2)

    def _slope(self, push: Tensor) -> Tensor:
        """Of the evidence, on the way to where rows are pushed: (rows, width)."""
        likelihood, n_steps = self._interpreter.likelihood, self._interpreter.n_path_steps
        targets, values = self._targets.repeat(n_steps), self._values.repeat(n_steps)

        def of_points(points: Tensor) -> Tensor:
            return likelihood.target_evidence(self._behind, points, targets, values)

        return slopes_along(of_points, self._start, self._start + push, n_steps).mean(dim=0)

    def push(self, differences: SparseRows) -> Tensor:
        return self._interpreter.energy.push(self._scaled(differences))

    def _scaled(self, differences: SparseRows) -> SparseRows:
        return differences.scaled(self._interpreter.scaling.scale)


def by_halves(
    evidence: PathEvidence, scores: Tensor, present: PresentUnits, rows: Tensor, n_rows: int, room: int
) -> Tensor:
    """Scores (rows, units) made anew for the better half of each row, again and again, the others ranking below."""
    n, n_units = scores.shape
    there, units = present.table(rows, n_rows, room)
    nothing = torch.zeros(n_rows, 1)
    of_place = torch.zeros(n_rows, room)
    of_place[:n] = torch.cat([scores, nothing[:n]], dim=1).gather(1, units[:n])
    final = torch.cat([of_place, nothing], dim=1)  # the last one stands for all units that are absent
    alive, place = there >= 0, torch.arange(room).expand(n_rows, -1)
    alive_of_all = torch.cat([alive, nothing.bool()], dim=1)
    push = None
    while room > 2:
        n_kept, room = better_half(alive.sum(dim=1, keepdim=True)), room // 2
        best = of_place.masked_fill(~alive, -torch.inf).topk(room, dim=1).indices
        alive, place = torch.arange(room) < n_kept, place.gather(1, best)
        if push is None:
            push = evidence.push(present.differences(there.gather(1, best))).view(n_rows, room, -1)
        else:
            flat = best + torch.arange(n_rows).unsqueeze(1) * push.shape[1]
            push = push.flatten(0, 1).index_select(0, flat.flatten()).view(n_rows, room, -1)
        of_place = evidence.of_kept(push, alive)
        kept_of_all = torch.zeros_like(alive_of_all).scatter_(1, place, alive)
        new = torch.zeros_like(final).scatter_(1, place, of_place)
        final = ranked_above(new, final, kept_of_all, alive_of_all & ~kept_of_all)
        alive_of_all = kept_of_all
    result = final[:n, -1:].expand(-1, n_units + 1).clone()
    return result.scatter_(1, units[:n], final[:n, :-1])[:, :n_units]


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


def hard_top_k(scores: Tensor, k: int, allowed: Tensor | None = None, sizes: Tensor | None = None) -> Tensor:
    """Boolean mask of the k largest scores of each row, among the allowed features only; `sizes` keeps fewer."""
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    best = scores.topk(min(k, scores.shape[1]), dim=1).indices
    kept = torch.ones_like(best, dtype=torch.bool)
    if sizes is not None:
        kept = torch.arange(best.shape[1]) < sizes.unsqueeze(1)
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, best, kept)
    return chosen if allowed is None else chosen & allowed
