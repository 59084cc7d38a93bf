"""Scores of the features of rows that are mostly zero, such as words, which stay sparse on their way to the network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sointer.containers import csr_array
from sointer.energy.sparse import SparseRows
from sointer.scoring.rows import RowScorer
from sointer.scoring.scorer import Targets
from sointer.source import Source
from sointer.threads import one_thread

CHUNK_NUMBERS, FEWEST_ROWS, MOST_ROWS = 2**21, 64, 4096
EXPECTED_ROWS = 256
"""So many at once, always, so that what is expected of a row cannot depend on the rows around it."""


class SparseRowScorer(RowScorer):
    """Scores by an interpreter that eliminates."""

    def scores(self, source: Source, targets: Targets) -> tuple[NDArray[np.float32], NDArray[Any]]:
        n_rows, n_units = len(targets), source.groups.n_units
        scores = np.empty((n_rows, n_units), dtype=np.float32)
        values, known = self._known_values(source, targets)
        at_once = int(np.clip(CHUNK_NUMBERS // n_units, FEWEST_ROWS, MOST_ROWS))
        with one_thread(), torch.no_grad():
            for start in range(0, n_rows, at_once):
                rows = slice(start, start + at_once)
                x = SparseRows.of(csr_array(source.data[rows]))
                new = np.flatnonzero(~known[rows])
                values[rows][new] = self._expected_of(x, torch.from_numpy(new), targets[rows][new])
                found = self.interpreter(x, torch.from_numpy(targets[rows]), torch.from_numpy(values[rows]))
                scores[rows] = found.numpy()
        return scores, values

    def _expected_of(self, x: SparseRows, rows: torch.Tensor, targets: Targets) -> NDArray[Any]:
        """What the energy expects the black box to say about the targets of some rows."""
        found = np.empty(len(rows), dtype=np.float32 if self.energy.space.is_continuous else np.int64)
        for start in range(0, len(rows), EXPECTED_ROWS):
            some = slice(start, start + EXPECTED_ROWS)
            few = torch.nn.functional.pad(rows[some], (0, EXPECTED_ROWS - len(rows[some])), value=-1)
            told = self.likelihood.predict(self.energy, x.take(few)).numpy()
            found[some] = told[np.arange(len(targets[some])), targets[some]]
        return found
