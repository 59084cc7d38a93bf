"""Which words of a text speak for a value: the energy's evidence, made anew on ever smaller parts of the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer._support.torch_state import device_of, one_thread
from sointer.data.texts import Documents, TextFormat
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import TrainableEnergy
from sointer.energy.sparse import SparseRows
from sointer.energy.texts import TextFeatures, TextInputs
from sointer.interpreter.elimination import (
    BLOCK_ROWS,
    EliminationInterpreter,
    PathEvidence,
    UnmaskedEvidence,
    better_half,
    is_decided_by_features,
    lengthened,
    ranked_above,
)
from sointer.interpreter.scoring import (
    CHUNK_NUMBERS,
    MAX_ROWS,
    MIN_ROWS,
    RowScorer,
    SparseRowScorer,
    TableScorer,
    Targets,
    as_labels,
    effects_on_probability,
)
from sointer.interpreter.tables import TableInterpreter
from sointer.masking.rows import ExplainedRows
from sointer.masking.selection import IN_MOST_DRAWS, SUFFICES, Likely, Scored, rank_units, smallest_sufficient

LIKELY_ROWS = 256
"""So many at once, always, so that what is said of a text cannot depend on the texts around it."""
ENTRIES = 2**12  # of texts, that are weighed at a time


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

    def whole(self, documents: Documents, targets: Tensor, values: Tensor) -> UnmaskedEvidence:
        """Evidence of every unit that is left in texts for the values of the targets, and what it is in probability."""
        n = documents.shape[0]
        found = UnmaskedEvidence(torch.zeros(n, self.n_units), *(torch.zeros(n) for _ in range(3)))
        for rows, inputs, of_entry, *ends in self.evidence(documents, targets, values):
            row, unit = torch.as_tensor(inputs.row), self.unit_of_column[torch.as_tensor(inputs.owners)]
            for side in (0, 1):  # two words share what their order says
                found.evidence[rows].index_put_((row, unit[:, side]), of_entry / 2, accumulate=True)
            found.slope[rows], found.base[rows], found.end[rows] = ends
        return found

    def evidence(
        self, documents: Documents, targets: Tensor, values: Tensor
    ) -> Iterator[tuple[slice, TextInputs, Tensor, Tensor, Tensor, Tensor]]:
        """Some texts at a time: their places, what the energy sees of them, and what each entry says for the value.

        Last come slope, base and end, as in `UnmaskedEvidence`.
        """
        n, features, weight = documents.shape[0], self.features, self.energy.projection_weight.T
        start = self.energy.project(self.references)
        for begin in range(0, n, BLOCK_ROWS):
            rows = slice(begin, min(begin + BLOCK_ROWS, n))
            inputs = features(documents[rows])
            block = PathEvidence(self, start, *lengthened(BLOCK_ROWS, targets[rows], values[rows]))
            slope, *ends = block.along(padded(inputs.rows, BLOCK_ROWS))
            columns, of_row = inputs.rows.columns, torch.as_tensor(inputs.row)
            some = [(slope[of_row[part]] * weight[columns[part]]).sum(dim=1) for part in parts_of(len(columns))]
            of_entry = torch.cat(some) * self.scaling.scale[columns] * inputs.rows.values
            n_here = rows.stop - rows.start
            secant, base, end = (part[:n_here] for part in ends)
            yield rows, inputs, of_entry, secant, base, end

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


def parts_of(n: int) -> Iterator[slice]:
    """All of n entries, some at a time, as a long text has many; never a few alone, which may be rounded otherwise."""
    starts = range(0, max(n - ENTRIES + 1, 1), ENTRIES)
    return (slice(start, n if start == starts[-1] else start + ENTRIES) for start in starts)


def padded(rows: SparseRows, n: int) -> SparseRows:
    """With so many empty rows below that there are n."""
    starts = torch.cat([rows.starts, rows.starts[-1:].expand(n - len(rows))])
    return SparseRows(starts, rows.columns, rows.values, rows.n_columns)


class TextScorer(SparseRowScorer):
    """Scores by an interpreter of texts."""

    interpreter: TextInterpreter

    def scores(self, source: ExplainedRows, targets: Targets) -> Scored:
        n_rows, n_units, has_effects = len(targets), source.groups.n_units, "continuous" not in source.outputs.kinds
        key, needed = np.empty((n_rows, n_units), dtype=np.float32), np.empty((n_rows, n_units), dtype=bool)
        effects, base = (
            np.empty_like(key, shape=(n_rows if has_effects else 0, n_units)),
            np.empty_like(key, shape=n_rows),
        )
        values, known = self._known_values(source, targets)
        likely = self.likely(source, targets, values)
        suffices = IN_MOST_DRAWS if source.removal.is_random else SUFFICES
        at_once = int(np.clip(CHUNK_NUMBERS // n_units, MIN_ROWS, MAX_ROWS))
        with one_thread(device_of(self.energy)), torch.no_grad():
            for start in range(0, n_rows, at_once):
                rows = np.arange(start, min(start + at_once, n_rows))
                documents = source.data[source.of_samples(rows)]
                new = np.flatnonzero(~known[rows])
                if len(new):
                    x = self.interpreter.features(documents).rows
                    values[rows[new]] = self._expected_of(source, x, torch.as_tensor(new), targets[rows[new]])
                labels = torch.as_tensor(as_labels(source, targets[rows], values[rows]))
                t = torch.as_tensor(targets[rows])
                whole = self.interpreter.whole(documents, t, labels)
                key[rows] = self.interpreter.eliminate(documents, t, labels, whole.evidence).numpy()
                if has_effects:
                    effects[rows], base[rows] = whole.effects.numpy(), whole.base.numpy()
                    own, ends = effects[rows], (base[rows], whole.end.numpy())
                    effects[rows], base[rows] = effects_on_probability(source, targets[rows], values[rows], own, ends)
                there = units_there(documents, self.interpreter.unit_of_column, n_units).numpy()
                ranking = rank_units(key[rows], there)
                needed[rows] = smallest_sufficient(likely, rows, ranking, n_units, suffices)
        scores = np.maximum(key, np.float32(0.0))
        if not has_effects:
            return Scored(scores, values, key=key, needed=needed)
        return Scored(scores, values, key=key, effects=effects, base=base, needed=needed)

    def likely(self, source: ExplainedRows, targets: Targets, values: NDArray[Any]) -> Likely:
        def likely(rows: Targets, keep_units: NDArray[np.bool_]) -> NDArray[np.float64]:
            labels = as_labels(source, targets[rows], values[rows])
            columns = source.units(rows).to_columns(keep_units)
            documents = source.data[source.of_samples(rows)]
            documents = documents.masked(columns, documents.token)  # what stands in place of the rest, nobody sees
            with one_thread(device_of(self.energy)), torch.no_grad():
                t, v = torch.as_tensor(targets[rows]), torch.as_tensor(labels)
                return self.interpreter.log_likelihood(documents, t, v).double().numpy()

        return likely


SCORERS: dict[type, type[RowScorer]] = {
    TableInterpreter: TableScorer,
    EliminationInterpreter: SparseRowScorer,
    TextInterpreter: TextScorer,
}
"""Which scorer goes with an interpreter; others are the paper's."""
