"""Scores of the features of rows that are mostly zero, such as words, which stay sparse on their way to the network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sointer._support.containers import csr_array
from sointer._support.torch_state import one_thread
from sointer.energy.sparse import SparseRows
from sointer.interpreter.elimination import eliminate, whole_rows
from sointer.masking.rows import Source
from sointer.masking.selection import Scored
from sointer.scoring.rows import RowScorer, as_labels
from sointer.scoring.scorer import Targets

CHUNK_NUMBERS, FEWEST_ROWS, MOST_ROWS = 2**21, 64, 4096
EXPECTED_ROWS = 256
"""So many at once, always, so that what is expected of a row cannot depend on the rows around it."""


class SparseRowScorer(RowScorer):
    """Scores by an interpreter that eliminates."""

    def scores(self, source: Source, targets: Targets) -> Scored:
        n_rows, n_units = len(targets), source.groups.n_units
        key, effects = np.empty((n_rows, n_units), dtype=np.float32), np.empty((n_rows, n_units), dtype=np.float32)
        base = np.empty(n_rows, dtype=np.float32)
        values, known = self._known_values(source, targets)
        at_once = int(np.clip(CHUNK_NUMBERS // n_units, FEWEST_ROWS, MOST_ROWS))
        with one_thread(), torch.no_grad():
            for start in range(0, n_rows, at_once):
                rows = slice(start, start + at_once)
                x = SparseRows.of(csr_array(source.data[rows]))
                new = np.flatnonzero(~known[rows])
                values[rows][new] = self._expected_of(source, x, torch.from_numpy(new), targets[rows][new])
                labels = torch.from_numpy(as_labels(source, targets[rows], values[rows]))
                t = torch.from_numpy(targets[rows])
                whole = whole_rows(self.interpreter, x, t, labels)
                key[rows] = eliminate(self.interpreter, x, t, labels, whole.evidence).numpy()
                effects[rows], base[rows] = whole.effects.numpy(), whole.base.numpy()
        # Evidence of what was eliminated is moved down, so below zero it ranks units but says nothing of their sign.
        scores = np.maximum(key, np.float32(0.0))
        if "continuous" in source.outputs.kinds:
            return Scored(scores, values, key=key)
        graded = source.outputs.graded[targets] & (values <= 0.5)  # effects are on the probability, not on its absence
        effects[graded], base[graded] = -effects[graded], 1 - base[graded]
        return Scored(scores, values, key=key, effects=effects, base=base)

    def _expected_of(self, source: Source, x: SparseRows, rows: torch.Tensor, targets: Targets) -> NDArray[Any]:
        """What the energy expects the black box to say about the targets of some rows, encoded."""
        graded = source.outputs.graded
        found = np.empty(len(rows), dtype=np.float32 if graded.any() else np.int64)
        for start in range(0, len(rows), EXPECTED_ROWS):
            some = slice(start, start + EXPECTED_ROWS)
            few = torch.nn.functional.pad(rows[some], (0, EXPECTED_ROWS - len(rows[some])), value=-1)
            log_p = self.likelihood.log_marginals(self.energy, x.take(few))
            codes = self.energy.space.codes(log_p, graded).numpy()
            found[some] = codes[np.arange(len(targets[some])), targets[some]]
        return found
