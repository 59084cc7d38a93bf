"""Scores of the features of tables: a look-up by locality, and one pass through networks for signed effects."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer._support.torch_state import one_thread
from sointer.interpreter.tables import TableInterpreter, conditions_of
from sointer.masking.rows import Source
from sointer.masking.selection import Scored
from sointer.scoring.rows import RowScorer
from sointer.scoring.scorer import Targets


class TableScorer(RowScorer):
    """Scores by a `TableInterpreter`."""

    interpreter: TableInterpreter

    def scores(self, source: Source, targets: Targets) -> Scored:
        n_rows, n_units = len(targets), source.groups.n_units
        parts = {name: np.empty((n_rows, n_units), dtype=np.float32) for name in ("key", "relevance", "effects")}
        needed, locality = np.empty((n_rows, n_units), dtype=bool), np.empty(n_rows, dtype=np.int64)
        base = np.empty(n_rows, dtype=np.float32)
        values, known = self._known_values(source, targets)
        looks_at_outputs = bool((self.interpreter.localities.looks_at(targets) >= source.data.shape[1]).any())
        with one_thread(), torch.no_grad():
            for rows, x, t in self._padded(source, targets):
                n = rows.stop - rows.start
                own, encoded = self._outputs(source, rows, x, known, looks_at_outputs)
                if not known[rows].all():
                    values[rows] = np.where(known[rows], values[rows], own[np.arange(n), targets[rows]])
                conditions = conditions_of(source.rows(rows), encoded)
                locality[rows] = self.interpreter.localities.find(targets[rows], conditions)
                padded = [_padded(part[rows], len(x)) for part in (targets, values, locality)]
                shown = self.interpreter.shown(padded[0], padded[1], source.outputs)
                found = self.interpreter(x, t, shown, torch.from_numpy(padded[2]))
                for name, array in parts.items():
                    array[rows] = getattr(found, name)[:n].numpy()
                needed[rows], base[rows] = found.needed[:n].numpy(), shown.base[:n].numpy()
        return Scored(
            parts["relevance"],
            values,
            key=parts["key"],
            effects=parts["effects"],
            base=base,
            needed=needed,
            locality=locality,
        )

    def _outputs(
        self, source: Source, rows: slice, x: Tensor, known: NDArray[np.bool_], looks_at_outputs: bool
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """What the energy expects of all outputs, where it is needed, and all outputs as trees look at them."""
        n, space = rows.stop - rows.start, self.energy.space
        nothing = np.zeros((n, 0))
        if known[rows].all() and not looks_at_outputs:
            return nothing, nothing
        answers = None if source.predicted is None else source.predicted[rows]
        told = np.zeros(n, dtype=bool) if answers is None else source.outputs.knows(answers)
        codes = np.zeros((n, space.n_outputs), dtype=np.float32)
        encoded = np.zeros((n, space.n_columns))
        if not told.all():
            log_p = self.likelihood.log_marginals(self.energy, x)[:n]
            codes[:] = space.codes(log_p, source.outputs.graded).numpy()
            encoded[:] = (log_p.exp() @ space.label_columns).numpy()
        if answers is not None and told.any():
            encoded[told] = space.encode(torch.from_numpy(source.outputs.encode(answers[told]))).numpy()
        return codes, encoded


def _padded(part: NDArray[Any], n_rows: int) -> NDArray[Any]:
    return np.concatenate([part, np.zeros(n_rows - len(part), dtype=part.dtype)])
