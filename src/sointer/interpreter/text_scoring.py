"""Scores of the words of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sointer._support.devices import device_of
from sointer._support.torch_state import one_thread
from sointer.interpreter.networks import EliminationInterpreter
from sointer.interpreter.scoring import (
    CHUNK_NUMBERS,
    MAX_ROWS,
    MIN_ROWS,
    RowScorer,
    SparseRowScorer,
    TableScorer,
    Targets,
    as_labels,
)
from sointer.interpreter.tables import TableInterpreter
from sointer.interpreter.texts import TextInterpreter, units_there
from sointer.masking.rows import ExplainedRows
from sointer.masking.selection import Likely, Scored, rank_units
from sointer.masking.sufficient import IN_MOST_DRAWS, SUFFICES, smallest_sufficient


class TextScorer(SparseRowScorer):
    """Scores by an interpreter of texts."""

    interpreter: TextInterpreter

    def scores(self, source: ExplainedRows, targets: Targets) -> Scored:
        n_rows, n_units = len(targets), source.groups.n_units
        key, effects = np.empty((n_rows, n_units), dtype=np.float32), np.empty((n_rows, n_units), dtype=np.float32)
        needed, base = np.empty((n_rows, n_units), dtype=bool), np.empty(n_rows, dtype=np.float32)
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
                effects[rows], base[rows] = whole.effects.numpy(), whole.base.numpy()
                there = units_there(documents, self.interpreter.unit_of_column, n_units).numpy()
                ranking = rank_units(key[rows], there)
                needed[rows] = smallest_sufficient(likely, rows, ranking, n_units, suffices)
        scores = np.maximum(key, np.float32(0.0))
        if "continuous" in source.outputs.kinds:
            return Scored(scores, values, key=key, needed=needed)
        graded = source.outputs.graded[targets] & (values <= 0.5)  # effects are on the probability, not on its absence
        effects[graded], base[graded] = -effects[graded], 1 - base[graded]
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
