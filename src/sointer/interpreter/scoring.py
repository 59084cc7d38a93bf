"""What an explainer needs of its networks, and what all ways to score share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer._support.containers import csr_array
from sointer._support.torch_state import device_of, one_thread
from sointer.data.outputs import Outputs
from sointer.energy.likelihood import Likelihood
from sointer.energy.sparse import SparseRows
from sointer.interpreter.elimination import eliminate, whole_rows
from sointer.interpreter.tables import Shown, TableInterpreter, conditions_of
from sointer.masking.rows import CHUNK_ROWS, ExplainedRows
from sointer.masking.selection import Likely, Scored

Targets = NDArray[np.int64]


class Scorer(Protocol):
    """What an explainer needs of its networks."""

    def scores(self, source: ExplainedRows, targets: Targets) -> Scored:
        """What is known of the units of rows."""

    def likely(self, source: ExplainedRows, targets: Targets, values: NDArray[Any]) -> Likely:
        """How likely the energy holds it that reduced rows keep their target's value."""


def by_sample(source: ExplainedRows, at_once: int) -> Iterator[tuple[slice, Targets, Targets]]:
    """So many samples at a time, all rows that are about one of them, and about which of them each is.

    What the targets of a sample share is then computed once.
    """
    if source.sample is None:
        order = ends = np.arange(source.n_samples)
    else:
        order = np.argsort(source.sample, kind="stable")
        ends = source.sample[order]
    for start in range(0, source.n_samples, at_once):
        samples = slice(start, min(start + at_once, source.n_samples))
        rows = order[slice(*np.searchsorted(ends, (samples.start, samples.stop)))]
        if len(rows):
            yield samples, rows, source.of_samples(rows) - start


def reduced(source: ExplainedRows, rows: Targets, keep_units: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Encoded rows reduced to some of their units; where removal is random, by one draw that is always the same."""
    keep = source.units(rows).to_columns(keep_units)
    return next(source.removal.draws(source.rows(rows), keep, 1, np.random.default_rng(0)))


@dataclass(frozen=True)
class RowScorer:
    """Scores of the features of rows by the paper's interpreter, which sees nothing but the row and its target."""

    energy: Any
    interpreter: Any
    likelihood: Likelihood
    shift: NDArray[np.float64]

    def scores(self, source: ExplainedRows, targets: Targets) -> Scored:
        scores = np.empty((len(targets), source.groups.n_units), dtype=np.float32)
        values, known = self._known_values(source, targets)
        with one_thread(device_of(self.energy)), torch.no_grad():
            for rows, x, t in self._padded(source, targets):
                n = rows.stop - rows.start
                if not known[rows].all():
                    expected = self.likelihood.predict(self.energy, x).gather(1, t.unsqueeze(1)).squeeze(1)
                    values[rows] = np.where(known[rows], values[rows], expected[:n].numpy())
                scores[rows] = self.interpreter(x, t)[:n].numpy()
        return Scored(scores, values)

    def _padded(self, source: ExplainedRows, targets: Targets) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Rows and targets as tensors, all of the same shape, so that no explanation depends on the rows around it."""
        x, t = torch.zeros(CHUNK_ROWS, source.data.shape[1]), torch.zeros(CHUNK_ROWS, dtype=torch.long)
        for start in range(0, len(targets), CHUNK_ROWS):
            rows = slice(start, min(start + CHUNK_ROWS, len(targets)))
            n = rows.stop - rows.start
            x[:n] = torch.as_tensor((source.rows(rows) - self.shift).astype(np.float32))
            t[:n] = torch.as_tensor(targets[rows])
            x[n:], t[n:] = 0.0, 0
            yield rows, x, t

    def likely(self, source: ExplainedRows, targets: Targets, values: NDArray[Any]) -> Likely:
        labels = as_labels(source, targets, values)

        def likely(rows: Targets, keep_units: NDArray[np.bool_]) -> NDArray[np.float64]:
            columns = (reduced(source, rows, keep_units) - self.shift).astype(np.float32)
            with one_thread(device_of(self.energy)), torch.no_grad():
                x, t, v = (torch.as_tensor(part) for part in (columns, targets[rows], labels[rows]))
                return self.likelihood.target_log_likelihood(self.energy, x, t, v).double().numpy()

        return likely

    def _known_values(self, source: ExplainedRows, targets: Targets) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """What the model predicts for each row's target, encoded, and for which rows that is known."""
        if source.predicted is not None:
            return source.encoded_values(targets)
        values = np.zeros(len(targets), dtype=np.float32 if source.outputs.graded.any() else np.int64)
        return values, np.zeros(len(targets), dtype=bool)


def as_labels(source: ExplainedRows, targets: Targets, values: NDArray[Any]) -> NDArray[np.int64]:
    """Encoded values as class codes: graded ones are 1 above one half, numbers above their median."""
    outputs, first = source.outputs, np.minimum(targets, source.outputs.n_outputs - 1)
    return np.where(outputs.graded[first], values > outputs.middle[first], values).astype(np.int64)


class TableScorer(RowScorer):
    """Scores by a `TableInterpreter`."""

    interpreter: TableInterpreter

    def scores(self, source: ExplainedRows, targets: Targets) -> Scored:
        n_rows, n_units = len(targets), source.groups.n_units
        parts = {name: np.empty((n_rows, n_units), dtype=np.float32) for name in ("key", "relevance", "effects")}
        needed, locality = np.empty((n_rows, n_units), dtype=bool), np.empty(n_rows, dtype=np.int64)
        base, unit = np.empty(n_rows, dtype=np.float32), np.empty(n_rows)
        values, known = self._known_values(source, targets)
        looks_at_outputs = bool((self.interpreter.localities.looks_at(targets) >= source.data.shape[1]).any())
        with one_thread(device_of(self.energy)), torch.no_grad():
            by_evidence = ~self.interpreter.localities.is_sparse.numpy()[targets]
            for samples, rows, place in by_sample(source, block_rows(source.data.shape[1])):
                columns = source.samples(samples)
                # Networks see as many rows at a time, always, so that none of them depends on the others.
                x = torch.zeros(-(-len(columns) // CHUNK_ROWS) * CHUNK_ROWS, columns.shape[1])
                x[: len(columns)] = torch.as_tensor((columns - self.shift).astype(np.float32))
                encoded = np.zeros((len(columns), 0))
                if looks_at_outputs or not known[rows].all():
                    own, encoded = self._outputs(source, samples, x)
                    values[rows] = np.where(known[rows], values[rows], own[place, targets[rows]])
                locality[rows] = self.interpreter.localities.find(targets[rows], conditions_of(columns, encoded), place)
                shown = self.interpreter.shown(targets[rows], values[rows], source.outputs)
                in_order = source.sample is None and len(shown.columns.unique()) == 1
                for start in range(0, len(x), CHUNK_ROWS):
                    first = self.interpreter.effects.first_layer(x[start : start + CHUNK_ROWS])
                    for chunk in by_column(shown.columns, *np.searchsorted(place, (start, start + CHUNK_ROWS))):
                        at, of_chunk = rows[chunk], Shown(*(part[chunk] for part in shown))
                        sample = None if in_order else torch.as_tensor(place[chunk] - start)
                        t, nodes = torch.as_tensor(targets[at]), torch.as_tensor(locality[at])
                        found = self.interpreter(first, sample, t, of_chunk, nodes)
                        for name, array in parts.items():
                            array[at] = getattr(found, name).numpy()
                        needed[at], base[at] = found.needed.numpy(), of_chunk.base.numpy()
                        unit[at] = of_chunk.unit.numpy()
        goal = goals(source.outputs, targets, values, parts["effects"], base) / unit
        effects = completed(parts["effects"], base, goal)
        on_probability = np.array([curve is None for curve in source.outputs.quantiles])[targets]
        too_large = np.flatnonzero(on_probability & (np.abs(effects).max(axis=1) > 1))
        effects[too_large] = none_above_one(effects[too_large])
        return Scored(
            times(parts["relevance"], np.where(by_evidence, unit, 1.0)),
            values,
            key=parts["key"],
            effects=times(effects, unit),
            base=times(base, unit),
            needed=needed,
            locality=locality,
        )

    def _outputs(self, source: ExplainedRows, samples: slice, x: Tensor) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """What the energy expects of all outputs, where it is needed, and all outputs as trees look at them."""
        n, space = samples.stop - samples.start, self.energy.space
        predicted = None if source.predicted is None else source.predicted[samples]
        known = np.zeros(n, dtype=bool) if predicted is None else source.outputs.knows(predicted)
        codes = np.zeros((n, space.n_outputs), dtype=np.float32)
        encoded = np.zeros((n, space.n_columns))
        if not known.all():
            log_p = torch.cat([self.likelihood.log_marginals(self.energy, part) for part in x.split(CHUNK_ROWS)])[:n]
            codes[:] = space.codes(log_p, source.outputs.graded).numpy()
            encoded[:] = (log_p.exp() @ space.label_columns).numpy()
        if predicted is not None and known.any():
            encoded[known] = space.encode(torch.as_tensor(source.outputs.encode(predicted[known]))).numpy()
        return codes, encoded


MAX_BLOCK, BLOCK_NUMBERS = 16 * CHUNK_ROWS, 2**20


def block_rows(n_columns: int) -> int:
    """How many samples are looked up at a time: some chunks, as far as memory for their columns goes."""
    return max(CHUNK_ROWS, min(MAX_BLOCK, BLOCK_NUMBERS // n_columns // CHUNK_ROWS * CHUNK_ROWS))


def by_column(columns: Tensor, start: int, stop: int) -> Iterator[slice | Targets]:
    """Which of the rows from start to stop to take at a time: those about the same output column together."""
    own = columns.numpy()[start:stop]
    in_order = bool((own[1:] == own[:-1]).all())
    order = None if in_order else start + own.argsort(kind="stable")
    for first in range(start, stop, CHUNK_ROWS):
        last = min(first + CHUNK_ROWS, stop)
        yield slice(first, last) if order is None else order[first - start : last - start]


MAX_CORRECTION = 0.9
"""By how much of its size an effect may be corrected: none changes its sign."""


def completed(
    effects: NDArray[np.float32], base: NDArray[np.float32], goal: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Effects (rows, units) that lead from the base to the goal, as far as none has to change its sign.

    What is missing is shared out by the size of effects; where the goal is NaN they stay as they are. Those that push
    the same way keep their order.
    """
    size = np.abs(effects).sum(axis=1)
    missing = np.nan_to_num(goal - base - effects.sum(axis=1))
    share = np.clip(missing / np.maximum(size, 1e-12), -MAX_CORRECTION, MAX_CORRECTION)
    return np.asarray(effects + share[:, None] * np.abs(effects), dtype=np.float32)


def goals(
    outputs: Outputs, targets: Targets, values: NDArray[Any], effects: NDArray[np.float32], base: NDArray[np.float32]
) -> NDArray[np.float64]:
    """What effects are to lead to: graded values, and those on the probability of a label no further than 0 or 1.

    NaN where they stay as they are.
    """
    end = base + effects.sum(axis=1)
    label = np.where((end < 0) | (end > 1), np.clip(end, 0.0, 1.0), np.nan)
    return np.where(outputs.graded[targets], in_units(outputs, targets, values), label)


def times(numbers: NDArray[np.float32], unit: NDArray[np.float64]) -> NDArray[np.float32]:
    """Numbers (rows, ...) that were multiples of the unit of each row."""
    if (unit == 1).all():
        return numbers
    return np.asarray(numbers * unit.reshape(-1, *[1] * (numbers.ndim - 1)), dtype=np.float32)


def in_units(outputs: Outputs, targets: Targets, values: NDArray[Any]) -> NDArray[np.float64]:
    """Encoded values of graded targets, each in the unit of its output; NaN for labels."""
    found = np.where(outputs.graded[targets], values, np.nan).astype(np.float64)
    for target in np.unique(targets):
        curve = outputs.quantiles[target]
        if curve is not None:
            found[targets == target] = curve.decode(values[targets == target])
    return found


def effects_on_probability(
    source: ExplainedRows,
    targets: Targets,
    values: NDArray[Any],
    effects: NDArray[np.float32],
    ends: tuple[NDArray[np.float32], NDArray[np.float32]],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Effects and base of labels and probabilities, from those on the probability of what is explained.

    `ends` are what it is at the reference and at the row, as the energy expects. Effects on a probability are turned
    to it where its absence is explained, and lead to it; those on a label lead to what is expected of it.
    """
    graded, (base, end) = source.outputs.graded[targets], ends
    absent = graded & (values <= 0.5)
    effects[absent], base[absent] = -effects[absent], 1 - base[absent]
    effects = completed(effects, base, np.where(graded, in_units(source.outputs, targets, values), end))
    return without_excess(effects, base), base


def without_excess(effects: NDArray[np.float32], base: NDArray[np.float32]) -> NDArray[np.float32]:
    """Effects (rows, units) on a probability, of which neither those up nor those down lead beyond 0 or 1.

    Evidence is measured in log-odds, where what is almost certain has much room.
    """
    above, below = np.maximum(effects, 0.0).sum(axis=1), np.maximum(-effects, 0.0).sum(axis=1)
    return _reduced(effects, np.maximum(base + above - 1.0, below - base))


def none_above_one(effects: NDArray[np.float32]) -> NDArray[np.float32]:
    """Effects (rows, units) on a probability, none of which is larger than any change of a probability can be."""
    sides = np.stack([np.maximum(effects, 0.0), np.maximum(-effects, 0.0)])
    return _reduced(effects, (sides.sum(axis=2) * (1.0 - 1.0 / np.maximum(sides.max(axis=2), 1.0))).max(axis=0))


def _reduced(effects: NDArray[np.float32], excess: NDArray[np.float32]) -> NDArray[np.float32]:
    """With so much taken off those up and those down alike, as far as they cancel out, so that the sum stays."""
    up, down = np.maximum(effects, 0.0), np.maximum(-effects, 0.0)
    above, below = up.sum(axis=1), down.sum(axis=1)
    excess = np.minimum(np.maximum(excess, 0.0), np.minimum(above, below))[:, None]
    up -= up * excess / np.maximum(above, 1e-12)[:, None]
    down -= down * excess / np.maximum(below, 1e-12)[:, None]
    return np.asarray(up - down, dtype=np.float32)


CHUNK_NUMBERS, MIN_ROWS, MAX_ROWS = 2**21, 64, 4096
EXPECTED_ROWS = 256
"""So many at once, always, so that what is expected of a row cannot depend on the rows around it."""


class SparseRowScorer(RowScorer):
    """Scores by an interpreter that eliminates."""

    def scores(self, source: ExplainedRows, targets: Targets) -> Scored:
        n_rows, n_units, has_effects = len(targets), source.groups.n_units, "continuous" not in source.outputs.kinds
        key = np.empty((n_rows, n_units), dtype=np.float32)
        effects, base = (
            np.empty_like(key, shape=(n_rows if has_effects else 0, n_units)),
            np.empty_like(key, shape=n_rows),
        )
        values, known = self._known_values(source, targets)
        at_once = int(np.clip(CHUNK_NUMBERS // n_units, MIN_ROWS, MAX_ROWS))
        with one_thread(device_of(self.energy)), torch.no_grad():
            for start in range(0, n_rows, at_once):
                rows = slice(start, start + at_once)
                x = SparseRows.of(csr_array(source.data[source.of_samples(rows)]))
                new = np.flatnonzero(~known[rows])
                values[rows][new] = self._expected_of(source, x, torch.as_tensor(new), targets[rows][new])
                labels = torch.as_tensor(as_labels(source, targets[rows], values[rows]))
                t = torch.as_tensor(targets[rows])
                whole = whole_rows(self.interpreter, x, t, labels)
                key[rows] = eliminate(self.interpreter, x, t, labels, whole.evidence).numpy()
                if has_effects:
                    effects[rows], base[rows] = whole.effects.numpy(), whole.base.numpy()
                    own, ends = effects[rows], (base[rows], whole.end.numpy())
                    effects[rows], base[rows] = effects_on_probability(source, targets[rows], values[rows], own, ends)
        # Evidence of what was eliminated is moved down, so below zero it ranks units but says nothing of their sign.
        scores = np.maximum(key, np.float32(0.0))
        if not has_effects:
            return Scored(scores, values, key=key)
        return Scored(scores, values, key=key, effects=effects, base=base)

    def _expected_of(self, source: ExplainedRows, x: SparseRows, rows: torch.Tensor, targets: Targets) -> NDArray[Any]:
        """What the energy expects the black box to say about the targets of some rows, encoded."""
        graded = source.outputs.graded
        found = np.empty(len(rows), dtype=np.float32 if graded.any() else np.int64)
        for start in range(0, len(rows), EXPECTED_ROWS):
            chunk = slice(start, start + EXPECTED_ROWS)
            padded = torch.nn.functional.pad(rows[chunk], (0, EXPECTED_ROWS - len(rows[chunk])), value=-1)
            log_p = self.likelihood.log_marginals(self.energy, x.take(padded))
            codes = self.energy.space.codes(log_p, graded).numpy()
            found[chunk] = codes[np.arange(len(targets[chunk])), targets[chunk]]
        return found
