"""Scores of the features of rows, so many at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer.base import CHUNK_ROWS
from sointer.energy.likelihood import Likelihood
from sointer.refinement import Likely
from sointer.remembered import Remembered
from sointer.scoring.scorer import Targets, reduced
from sointer.source import Source
from sointer.threads import one_thread

CHUNK_NUMBERS, FEWEST_ROWS, MOST_ROWS = 2**19, 64, 512
"""As many as stay in a processor's cache. More rows at once make single rows slow, fewer make many rows slow."""


@dataclass(frozen=True)
class RowScorer:
    """Scores of the features of rows."""

    energy: Any
    interpreter: Any
    likelihood: Likelihood
    shift: NDArray[np.float64]
    remembered: Remembered
    takes_values: bool

    def scores(self, source: Source, targets: Targets) -> tuple[NDArray[np.float32], NDArray[Any]]:
        n_rows = len(targets)
        scores = np.empty((n_rows, source.groups.n_units), dtype=np.float32)
        values, known = self._known_values(source, targets)
        with one_thread(), torch.no_grad():
            at_once = self._rows_at_once
            chunks = [slice(start, start + at_once) for start in range(0, n_rows, at_once)]
            for rows, x, t in self._padded(source, targets, chunks):
                values[rows] = self._expected(x, t, values[rows], known[rows])
                v = torch.zeros(at_once, dtype=torch.float32 if values.dtype.kind == "f" else torch.long)
                n = len(values[rows])
                v[:n] = torch.from_numpy(values[rows])
                scores[rows] = self.interpreter(x, t, *([v] if self.takes_values else []))[:n].numpy()
        return scores, values

    @property
    def _rows_at_once(self) -> int:
        """The same for all calls, so that no explanation depends on the rows around it."""
        if not self.takes_values:
            return CHUNK_ROWS
        enough = CHUNK_NUMBERS / self.interpreter.numbers_per_row
        return int(np.clip(2 ** round(math.log2(enough)), FEWEST_ROWS, MOST_ROWS))

    def _padded(self, source: Source, targets: Targets, chunks: list[slice]) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Rows and targets as tensors, all of the same shape."""
        at_once = self._rows_at_once
        x, t = torch.zeros(at_once, source.data.shape[1]), torch.zeros(at_once, dtype=torch.long)
        for rows in chunks:
            n = len(targets[rows])
            np.subtract(source.rows(rows), self.shift, out=x[:n].numpy(), casting="same_kind")
            t[:n] = torch.from_numpy(targets[rows])
            x[n:], t[n:] = 0.0, 0
            yield rows, x, t

    def _expected(self, x: Tensor, targets: Tensor, values: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[Any]:
        """The values of rows: where they are not known, what the energy expects."""
        if known.all():
            return values
        expected = self.likelihood.predict(self.energy, x).gather(1, targets.unsqueeze(1)).squeeze(1)
        return np.where(known, values, expected[: len(values)].numpy())

    def likely(self, source: Source, targets: Targets, values: NDArray[Any]) -> Likely:
        t, v = torch.from_numpy(targets), torch.from_numpy(values)

        def likely(rows: Targets, keep_units: NDArray[np.bool_]) -> NDArray[np.float64]:
            x = self._as_tensor(reduced(source, rows, keep_units))
            with one_thread(), torch.no_grad():
                return self.likelihood.target_log_likelihood(self.energy, x, t[rows], v[rows]).double().numpy()

        return likely

    def _as_tensor(self, rows: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy((rows - self.shift).astype(np.float32))

    def _known_values(self, source: Source, targets: Targets) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """What the black box is known to have said about each row's target, encoded; and for which rows it is."""
        if source.known_answers is not None:
            return source.outputs.encode_targets(source.known_answers, targets, source.regions)
        values = np.zeros(len(targets), dtype=np.float32 if source.outputs.kind == "continuous" else np.int64)
        known, codes = self.remembered.find(source.data)
        values[known] = codes[np.arange(len(codes)), targets[known]]
        return values, known
