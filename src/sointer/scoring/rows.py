"""Scores of the features of rows, so many at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer._support.torch_state import one_thread
from sointer.base import CHUNK_ROWS
from sointer.energy.likelihood import Likelihood
from sointer.masking.rows import Source
from sointer.masking.selection import Likely, Scored
from sointer.scoring.scorer import Targets, reduced


@dataclass(frozen=True)
class RowScorer:
    """Scores of the features of rows by the paper's interpreter, which is told nothing but the row and its target."""

    energy: Any
    interpreter: Any
    likelihood: Likelihood
    shift: NDArray[np.float64]

    def scores(self, source: Source, targets: Targets) -> Scored:
        scores = np.empty((len(targets), source.groups.n_units), dtype=np.float32)
        values, known = self._known_values(source, targets)
        with one_thread(), torch.no_grad():
            for rows, x, t in self._padded(source, targets):
                n = rows.stop - rows.start
                if not known[rows].all():
                    expected = self.likelihood.predict(self.energy, x).gather(1, t.unsqueeze(1)).squeeze(1)
                    values[rows] = np.where(known[rows], values[rows], expected[:n].numpy())
                scores[rows] = self.interpreter(x, t)[:n].numpy()
        return Scored(scores, values)

    def _padded(self, source: Source, targets: Targets) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Rows and targets as tensors, all of the same shape, so that no explanation depends on the rows around it."""
        x, t = torch.zeros(CHUNK_ROWS, source.data.shape[1]), torch.zeros(CHUNK_ROWS, dtype=torch.long)
        for start in range(0, len(targets), CHUNK_ROWS):
            rows = slice(start, min(start + CHUNK_ROWS, len(targets)))
            n = rows.stop - rows.start
            np.subtract(source.rows(rows), self.shift, out=x[:n].numpy(), casting="same_kind")
            t[:n] = torch.from_numpy(targets[rows])
            x[n:], t[n:] = 0.0, 0
            yield rows, x, t

    def likely(self, source: Source, targets: Targets, values: NDArray[Any]) -> Likely:
        t, v = torch.from_numpy(targets), torch.from_numpy(as_labels(source, targets, values))

        def likely(rows: Targets, keep_units: NDArray[np.bool_]) -> NDArray[np.float64]:
            x = torch.from_numpy((reduced(source, rows, keep_units) - self.shift).astype(np.float32))
            with one_thread(), torch.no_grad():
                return self.likelihood.target_log_likelihood(self.energy, x, t[rows], v[rows]).double().numpy()

        return likely

    def _known_values(self, source: Source, targets: Targets) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """What the model predicts for each row's target, encoded, and for which rows that is known."""
        if source.predicted is not None:
            return source.outputs.encode_targets(source.predicted, targets, source.regions)
        values = np.zeros(len(targets), dtype=np.float32 if source.outputs.graded.any() else np.int64)
        return values, np.zeros(len(targets), dtype=bool)


def as_labels(source: Source, targets: Targets, values: NDArray[Any]) -> NDArray[np.int64]:
    """Encoded values as class codes: graded ones are 1 above one half."""
    graded = source.outputs.graded[np.minimum(targets, source.outputs.n_outputs - 1)]
    return np.where(graded, values > 0.5, values).astype(np.int64)
