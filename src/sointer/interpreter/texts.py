"""Which words of a text speak for a value: the energy's evidence, made anew on ever smaller parts of the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from sointer.data.texts import Documents, TextFormat
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import TrainableEnergy
from sointer.energy.sparse import SparseRows
from sointer.energy.texts import TextFeatures, TextInputs
from sointer.interpreter.elimination import (
    BLOCK_ROWS,
    Evidence,
    UnmaskedRows,
    better_half,
    is_decided_by_features,
    lengthened,
    ranked_above,
)
from sointer.interpreter.networks import EliminationInterpreter

LIKELY_ROWS = 256
"""So many at once, always, so that what is said of a text cannot depend on the texts around it."""


class TextInterpreter(EliminationInterpreter):
    """Elimination on texts: what is left after each halving is read anew, in its order."""

    rank: Tensor

    def __init__(
        self,
        energy: TrainableEnergy,
        likelihood: Likelihood,
        unit_of_column: Tensor,
        n_units: int,
        form: TextFormat,
        rank: Tensor,
        *,
        n_path_steps: int = 4,
    ) -> None:
        references = torch.zeros(1, energy.encoding.n_encoded)
        super().__init__(energy, likelihood, references, unit_of_column, n_units, n_path_steps=n_path_steps)
        self._features = TextFeatures.of(form, rank)
        self.register_buffer("rank", rank)

    @property
    def features(self) -> TextFeatures:
        """What the energy sees of texts."""
        return replace(self._features, rank=self.rank.numpy() if len(self.rank) else None)

    def whole(self, documents: Documents, targets: Tensor, values: Tensor) -> UnmaskedRows:
        """Evidence of every unit that is left in texts for the values of the targets, and what it is in probability."""
        n = documents.shape[0]
        found = UnmaskedRows(torch.zeros(n, self.n_units), torch.zeros(n), torch.zeros(n))
        for rows, inputs, of_entry, secant, base in self.evidence(documents, targets, values):
            row, unit = torch.as_tensor(inputs.row), self.unit_of_column[torch.as_tensor(inputs.owners)]
            for side in (0, 1):  # two words share what their order says
                found.evidence[rows].index_put_((row, unit[:, side]), of_entry / 2, accumulate=True)
            found.slope[rows], found.base[rows] = secant, base
        return found

    def evidence(
        self, documents: Documents, targets: Tensor, values: Tensor
    ) -> Iterator[tuple[slice, TextInputs, Tensor, Tensor, Tensor]]:
        """Some texts at a time: their places, what the energy sees of them, and what each entry says for the value.

        Last come slope and base, as in `UnmaskedRows`.
        """
        n, features, weight = documents.shape[0], self.features, self.energy.projection_weight.T
        start = self.energy.project(self.references)
        for begin in range(0, n, BLOCK_ROWS):
            rows = slice(begin, min(begin + BLOCK_ROWS, n))
            inputs = features(documents[rows])
            block = Evidence(self, start, *lengthened(BLOCK_ROWS, targets[rows], values[rows]))
            slope, secant, base = block.along(padded(inputs.rows, BLOCK_ROWS))
            columns = inputs.rows.columns
            of_entry = (slope[torch.as_tensor(inputs.row)] * weight[columns]).sum(dim=1)
            of_entry = of_entry * self.scaling.scale[columns] * inputs.rows.values
            n_here = rows.stop - rows.start
            yield rows, inputs, of_entry, secant[:n_here], base[:n_here]

    def eliminate(self, documents: Documents, targets: Tensor, values: Tensor, whole: Tensor) -> Tensor:
        """Evidence of every unit (texts, units), made anew by halving where it matters which units are kept."""
        final = whole.clone()
        rows = torch.nonzero(is_decided_by_features(self, targets, values)).squeeze(1)
        alive = units_there(documents, self.unit_of_column, self.n_units)
        while True:
            rows = rows[alive[rows].sum(dim=1) > 2]
            if len(rows) == 0:
                return final
            n_kept = better_half(alive[rows].sum(dim=1, keepdim=True))
            scores = final[rows].masked_fill(~alive[rows], -torch.inf)
            best = scores.topk(int(n_kept.max()), dim=1).indices
            kept = torch.zeros_like(alive[rows]).scatter_(1, best, torch.arange(best.shape[1]) < n_kept)
            columns = kept[:, self.unit_of_column].numpy()
            reduced = documents[rows.numpy()].masked(columns, documents.token)
            new = self.whole(reduced, targets[rows], values[rows]).evidence
            final[rows] = ranked_above(new, final[rows], kept, alive[rows] & ~kept)
            alive[rows] = kept

    def log_likelihood(self, documents: Documents, targets: Tensor, values: Tensor) -> Tensor:
        """How likely it is that texts have these values of their targets: (texts,)."""
        found, features = torch.zeros(documents.shape[0]), self.features
        for begin in range(0, documents.shape[0], LIKELY_ROWS):
            rows = slice(begin, begin + LIKELY_ROWS)
            x = padded(features(documents[rows]).rows, LIKELY_ROWS)
            t, v = lengthened(LIKELY_ROWS, targets[rows], values[rows])
            likely = self.likelihood.target_log_likelihood(self.energy, x, t, v)
            found[rows] = likely[: len(found[rows])]
        return found


def units_there(documents: Documents, unit_of_column: Tensor, n_units: int) -> Tensor:
    """Which units texts have: (texts, units)."""
    there = torch.zeros(documents.shape[0], n_units, dtype=torch.bool)
    row, column = documents.nonzero()
    there[torch.as_tensor(row).long(), unit_of_column[torch.as_tensor(column).long()]] = True
    return there


def padded(rows: SparseRows, n: int) -> SparseRows:
    """With so many empty rows below that there are n."""
    starts = torch.cat([rows.starts, rows.starts[-1:].expand(n - len(rows))])
    return SparseRows(starts, rows.columns, rows.values, rows.n_columns)
