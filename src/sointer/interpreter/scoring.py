"""What an explainer asks of its networks, and what all ways to score share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sointer._support.containers import csr_array
from sointer._support.torch_state import one_thread
from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.energy.likelihood import Likelihood
from sointer.energy.sparse import SparseRows
from sointer.interpreter.elimination import eliminate, whole_rows
from sointer.interpreter.networks import EliminationInterpreter
from sointer.interpreter.tables import LocalityTable, TableInterpreter, conditions_of
from sointer.interpreter.texts import TextInterpreter, units_there
from sointer.masking.groups import Groups
from sointer.masking.rows import CHUNK_ROWS, MaskableRows
from sointer.masking.selection import Likely, Scored, rank_units
from sointer.masking.sufficient import smallest_sufficient
from sointer.paths import Localities, Locality

Targets = NDArray[np.int64]


class Scorer(Protocol):
    """What an explainer asks its networks."""

    def scores(self, source: MaskableRows, targets: Targets) -> Scored:
        """What is known of the units of rows."""

    def likely(self, source: MaskableRows, targets: Targets, values: NDArray[Any]) -> Likely:
        """How likely the energy holds it that reduced rows keep their target's value."""


def reduced(source: MaskableRows, rows: Targets, keep_units: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Encoded rows reduced to some of their units; where removal is random, by one draw that is always the same."""
    keep = source.groups.take(rows).to_columns(keep_units)
    return next(source.removal.draws(source.rows(rows), keep, 1, np.random.default_rng(0)))


@dataclass(frozen=True)
class RowScorer:
    """Scores of the features of rows by the paper's interpreter, which sees nothing but the row and its target."""

    energy: Any
    interpreter: Any
    likelihood: Likelihood
    shift: NDArray[np.float64]

    def scores(self, source: MaskableRows, targets: Targets) -> Scored:
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

    def _padded(self, source: MaskableRows, targets: Targets) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Rows and targets as tensors, all of the same shape, so that no explanation depends on the rows around it."""
        x, t = torch.zeros(CHUNK_ROWS, source.data.shape[1]), torch.zeros(CHUNK_ROWS, dtype=torch.long)
        for start in range(0, len(targets), CHUNK_ROWS):
            rows = slice(start, min(start + CHUNK_ROWS, len(targets)))
            n = rows.stop - rows.start
            np.subtract(source.rows(rows), self.shift, out=x[:n].numpy(), casting="same_kind")
            t[:n] = torch.from_numpy(targets[rows])
            x[n:], t[n:] = 0.0, 0
            yield rows, x, t

    def likely(self, source: MaskableRows, targets: Targets, values: NDArray[Any]) -> Likely:
        t, v = torch.from_numpy(targets), torch.from_numpy(as_labels(source, targets, values))

        def likely(rows: Targets, keep_units: NDArray[np.bool_]) -> NDArray[np.float64]:
            x = torch.from_numpy((reduced(source, rows, keep_units) - self.shift).astype(np.float32))
            with one_thread(), torch.no_grad():
                return self.likelihood.target_log_likelihood(self.energy, x, t[rows], v[rows]).double().numpy()

        return likely

    def _known_values(self, source: MaskableRows, targets: Targets) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """What the model predicts for each row's target, encoded, and for which rows that is known."""
        if source.predicted is not None:
            return source.outputs.encode_targets(source.predicted, targets, source.regions)
        values = np.zeros(len(targets), dtype=np.float32 if source.outputs.graded.any() else np.int64)
        return values, np.zeros(len(targets), dtype=bool)


def as_labels(source: MaskableRows, targets: Targets, values: NDArray[Any]) -> NDArray[np.int64]:
    """Encoded values as class codes: graded ones are 1 above one half."""
    graded = source.outputs.graded[np.minimum(targets, source.outputs.n_outputs - 1)]
    return np.where(graded, values > 0.5, values).astype(np.int64)


class TableScorer(RowScorer):
    """Scores by a `TableInterpreter`."""

    interpreter: TableInterpreter

    def scores(self, source: MaskableRows, targets: Targets) -> Scored:
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
        self, source: MaskableRows, rows: slice, x: Tensor, known: NDArray[np.bool_], looks_at_outputs: bool
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """What the energy expects of all outputs, where it is needed, and all outputs as trees look at them."""
        n, space = rows.stop - rows.start, self.energy.space
        nothing = np.zeros((n, 0))
        if known[rows].all() and not looks_at_outputs:
            return nothing, nothing
        answers = None if source.predicted is None else source.predicted[rows]
        known = np.zeros(n, dtype=bool) if answers is None else source.outputs.knows(answers)
        codes = np.zeros((n, space.n_outputs), dtype=np.float32)
        encoded = np.zeros((n, space.n_columns))
        if not known.all():
            log_p = self.likelihood.log_marginals(self.energy, x)[:n]
            codes[:] = space.codes(log_p, source.outputs.graded).numpy()
            encoded[:] = (log_p.exp() @ space.label_columns).numpy()
        if answers is not None and known.any():
            encoded[known] = space.encode(torch.from_numpy(source.outputs.encode(answers[known]))).numpy()
        return codes, encoded


def _padded(part: NDArray[Any], n_rows: int) -> NDArray[Any]:
    return np.concatenate([part, np.zeros(n_rows - len(part), dtype=part.dtype)])


CHUNK_NUMBERS, MIN_ROWS, MAX_ROWS = 2**21, 64, 4096
EXPECTED_ROWS = 256
"""So many at once, always, so that what is expected of a row cannot depend on the rows around it."""


class SparseRowScorer(RowScorer):
    """Scores by an interpreter that eliminates."""

    def scores(self, source: MaskableRows, targets: Targets) -> Scored:
        n_rows, n_units = len(targets), source.groups.n_units
        key, effects = np.empty((n_rows, n_units), dtype=np.float32), np.empty((n_rows, n_units), dtype=np.float32)
        base = np.empty(n_rows, dtype=np.float32)
        values, known = self._known_values(source, targets)
        at_once = int(np.clip(CHUNK_NUMBERS // n_units, MIN_ROWS, MAX_ROWS))
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

    def _expected_of(self, source: MaskableRows, x: SparseRows, rows: torch.Tensor, targets: Targets) -> NDArray[Any]:
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


class TextScorer(SparseRowScorer):
    """Scores by an interpreter of texts."""

    interpreter: TextInterpreter

    def scores(self, source: MaskableRows, targets: Targets) -> Scored:
        n_rows, n_units = len(targets), source.groups.n_units
        key, effects = np.empty((n_rows, n_units), dtype=np.float32), np.empty((n_rows, n_units), dtype=np.float32)
        needed, base = np.empty((n_rows, n_units), dtype=bool), np.empty(n_rows, dtype=np.float32)
        values, known = self._known_values(source, targets)
        likely = self.likely(source, targets, values)
        at_once = int(np.clip(CHUNK_NUMBERS // n_units, MIN_ROWS, MAX_ROWS))
        with one_thread(), torch.no_grad():
            for start in range(0, n_rows, at_once):
                rows = np.arange(start, min(start + at_once, n_rows))
                documents = source.data[rows]
                new = np.flatnonzero(~known[rows])
                if len(new):
                    x = self.interpreter.features(documents).rows
                    values[rows[new]] = self._expected_of(source, x, torch.from_numpy(new), targets[rows[new]])
                labels = torch.from_numpy(as_labels(source, targets[rows], values[rows]))
                t = torch.from_numpy(targets[rows])
                whole = self.interpreter.whole(documents, t, labels)
                key[rows] = self.interpreter.eliminate(documents, t, labels, whole.evidence).numpy()
                effects[rows], base[rows] = whole.effects.numpy(), whole.base.numpy()
                there = units_there(documents, self.interpreter.unit_of_column, n_units).numpy()
                ranking = rank_units(key[rows], there)
                needed[rows] = smallest_sufficient(likely, rows, ranking, n_units)
        scores = np.maximum(key, np.float32(0.0))
        if "continuous" in source.outputs.kinds:
            return Scored(scores, values, key=key, needed=needed)
        graded = source.outputs.graded[targets] & (values <= 0.5)  # effects are on the probability, not on its absence
        effects[graded], base[graded] = -effects[graded], 1 - base[graded]
        return Scored(scores, values, key=key, effects=effects, base=base, needed=needed)

    def likely(self, source: MaskableRows, targets: Targets, values: NDArray[Any]) -> Likely:
        rng = np.random.default_rng(0)

        def likely(rows: Targets, keep_units: NDArray[np.bool_]) -> NDArray[np.float64]:
            t = torch.from_numpy(targets[rows])
            v = torch.from_numpy(as_labels(source, targets[rows], values[rows]))
            documents = source.removal.reduce(source.data[rows], source.groups.to_columns(keep_units), rng)
            with one_thread(), torch.no_grad():
                return self.interpreter.log_likelihood(documents, t, v).double().numpy()

        return likely


SCORERS: dict[type, type[RowScorer]] = {
    TableInterpreter: TableScorer,
    EliminationInterpreter: SparseRowScorer,
    TextInterpreter: TextScorer,
}
"""Which scorer goes with an interpreter; others are the paper's."""


def describe_localities(
    table: LocalityTable, target: int, input_format: InputFormat, groups: Groups, outputs: Outputs
) -> Localities:
    """The leaves of a target's tree, the largest first."""
    words = Words(input_format, outputs)
    found: list[Locality] = []

    def walk(node: int, conditions: tuple[str, ...]) -> None:
        condition = int(table.condition[node])
        if condition >= 0:
            low, high = words.of(condition, float(table.threshold[node]))
            walk(int(table.left[node]), (*conditions, low))
            # A column of a category says more than those that it is not.
            name, _, _ = high.rpartition(" = ")
            walk(int(table.right[node]), (*(c for c in conditions if not name or f"{name} is not " not in c), high))
            return
        score, needed = table.score[node].numpy(), table.needed[node].numpy()
        units = [unit for unit in np.argsort(-score, kind="stable").tolist() if needed[unit]]
        names = tuple(groups.unit_names[unit] for unit in units)
        relevance = tuple(float(score[unit]) for unit in units)
        found.append(Locality(node, conditions, float(table.share[node]), names, relevance))

    walk(int(table.root[target]), ())
    leaves = sorted(found, key=lambda leaf: -leaf.share)
    decided = bool(table.is_sparse[target])
    return Localities(outputs.names[target], decided, tuple(leaves), tuple(groups.unit_names))


class Words:
    """Conditions of trees, as their readers know columns and outputs."""

    def __init__(self, input_format: InputFormat, outputs: Outputs) -> None:
        self._input_format, self._outputs = input_format, outputs
        widths = [1 if n == 2 else n for n in outputs.n_classes]
        self._output_of_column = np.repeat(np.arange(outputs.n_outputs), widths)

    def of(self, condition: int, threshold: float) -> tuple[str, str]:
        """What holds at or below the threshold, and what holds above it."""
        n_columns = self._input_format.n_columns
        if condition < n_columns:
            return self._of_column(condition, threshold)
        return self._of_output(condition - n_columns, threshold)

    def _of_column(self, column: int, threshold: float) -> tuple[str, str]:
        form = self._input_format
        feature = int(form.column_feature[column])
        name = form.feature_names[feature]
        if form.columns and (categories := form.columns[feature].categories) is not None:
            category = categories[column - int(np.searchsorted(form.column_feature, feature))]
            return f"{name} is not {category}", f"{name} = {category}"
        return f"{name} <= {threshold:.4g}", f"{name} > {threshold:.4g}"

    def _of_output(self, column: int, threshold: float) -> tuple[str, str]:
        outputs, output = self._outputs, int(self._output_of_column[column])
        name, known, curve = f"output {outputs.names[output]}", outputs.label_sets[output], outputs.quantiles[output]
        if curve is not None:
            number = float(curve.decode(np.array(threshold)))
            return f"{name} <= {number:.4g}", f"{name} > {number:.4g}"
        if outputs.graded[output] or known is None:
            return f"{name} <= {threshold:.4g}", f"{name} > {threshold:.4g}"
        if len(known) == 2:
            return f"{name} = {known.labels[0]}", f"{name} = {known.labels[1]}"
        label = known.labels[column - int(np.searchsorted(self._output_of_column, output))]
        return f"{name} is not {label}", f"{name} = {label}"
