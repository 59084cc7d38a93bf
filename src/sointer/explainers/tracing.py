"""Following what a feature does to a target, directly and through other outputs; see docs/concepts/paths.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from sointer._support import cached_property
from sointer._support.containers import csr_array, is_sparse
from sointer._support.torch_state import device_of, one_thread, seeded
from sointer.data.outputs import Outputs
from sointer.data.texts import stacked
from sointer.energy.inference import output_interactions
from sointer.energy.likelihood import Likelihood, outputs_given
from sointer.energy.networks import TargetGivenOthers, VectorEnergy
from sointer.energy.space import N_BINS
from sointer.energy.sparse import Inputs
from sointer.interpreter.scoring import as_labels
from sointer.masking.rows import ExplainedRows
from sointer.masking.selection import first_units
from sointer.paths import Paths

N_POINTS = 4096
SHARE_WHOLE = 0.25
CHUNK_POINTS = 256
MAX_NUMBERS = 2**23  # held in memory at a time, as points to look at
MIN_UNUSUAL = 5  # outputs other than the usual one, to say of an output that it copies another
LEAST_CORRELATION = 0.999  # of outputs that are one under two names
MAX_DENSE_BYTES = 2**28  # of points to learn from; batches of dense rows are taken much faster


@dataclass(eq=False)
class Tracer:
    """Answers "what if this output did not follow?" with an energy and, per target, a network of its own.

    The energy says what all outputs would be for a point, also while some are held. `TargetGivenOthers` then says
    what that means for the target. It is learned on first use, from rows of the training data with random parts
    removed and the outputs that the energy expects for them: the model is not queried.
    """

    energy: VectorEnergy
    likelihood: Likelihood
    shift: NDArray[np.float64]
    training_codes: NDArray[Any]
    """(samples, outputs) what the model predicted for unmasked samples in fit, encoded: which outputs are twins."""
    learned: dict[int, TargetGivenOthers] = field(default_factory=dict)

    @cached_property
    def interactions(self) -> NDArray[np.float32]:
        """How strongly the energy couples each pair of outputs: only paths need it, and it takes a while."""
        return output_interactions(self.energy)

    def trace(
        self,
        source: ExplainedRows,
        values: NDArray[Any],
        selected: NDArray[np.int64],
        targets: NDArray[np.int64],
        shown: NDArray[Any],
        *,
        n_draws: int,
        n_outputs: int,
        seed: int,
    ) -> Paths:
        """The paths of selected units of every row; `values` are the values explained, encoded, `shown` as they are."""
        n_rows, k = selected.shape
        values = as_labels(source, targets, values)
        m = min(n_outputs, source.outputs.n_outputs - 1)
        listed = np.full((n_rows, m), -1, dtype=np.int64)
        total, direct, through = (np.full(shape, np.nan) for shape in ((n_rows, k), (n_rows, k), (n_rows, k, m)))
        twins = one_to_one(self.training_codes)
        with one_thread(device_of(self.energy)), torch.no_grad():
            self._learn(source, [t for t in np.unique(targets).tolist() if t not in self.learned], twins)
            n_drawn = n_draws if source.removal.is_random else 1
            for target in np.unique(targets).tolist():
                net = self.learned[target]
                outputs = self._most_telling(net, target, self._others(source, target, twins))[:m]
                held = _held_together(outputs, twins, source.outputs.n_outputs)
                rows = np.flatnonzero(targets == target)
                listed[rows, : len(outputs)] = outputs
                size = max(1, MAX_NUMBERS // (source.data.shape[1] * (k + 1) * n_drawn))
                for chunk in np.split(rows, range(size, len(rows), size)):
                    support = self._support(source, chunk, selected[chunk], net, values, held, n_drawn, seed)
                    effect = support[:, :1] - support[:, 1:]  # (rows, k, 2 + outputs)
                    effect[selected[chunk] < 0] = np.nan
                    total[chunk], direct[chunk] = effect[:, :, 0], effect[:, :, 1]
                    through[chunk, :, : len(outputs)] = effect[:, :, :1] - effect[:, :, 2:]
        names = list(source.outputs.names)
        return Paths(
            selected,
            total,
            direct,
            through,
            listed,
            targets,
            shown,
            source.groups.unit_names,
            names,
            [[names[i] for i in group] for group in twins],
            len(self.training_codes),
            unit_of(source.outputs, set(targets.tolist())),
            source.value_source,
        )

    # --- what the energy expects ---------------------------------------------------------------------------

    def _expected(self, source: ExplainedRows, rows: Any) -> Tensor:
        """The outputs that the energy expects for encoded rows: (rows, outputs)."""
        space = self.energy.space
        graded, nothing = source.outputs.graded, torch.zeros(space.n_outputs, dtype=torch.bool)
        codes = torch.zeros(CHUNK_POINTS, space.n_outputs, dtype=torch.float32 if graded.any() else torch.int64)
        result = torch.empty(rows.shape[0], space.n_outputs, dtype=codes.dtype)
        for where, x in _chunks(rows, self.shift):
            expected = outputs_given(self.energy, self.likelihood, self.energy.unary(x), codes, nothing, graded)
            result[where] = expected[: where.stop - where.start]
        return result

    # --- what the target follows ---------------------------------------------------------------------------

    def _others(self, source: ExplainedRows, target: int, twins: list[list[int]]) -> list[int]:
        """Outputs that vary and are not the target under another name."""
        same = next((group for group in twins if target in group), [target])
        return [i for i in range(source.outputs.n_outputs) if i not in same and not source.outputs.constant[i]]

    def _learn(self, source: ExplainedRows, targets: list[int], twins: list[list[int]]) -> None:
        """Networks for targets that have none yet; where two threads learn the same one, both keep the first."""
        if not targets:
            return
        from sointer.training.context import InputBuffer
        from sointer.training.energy import learn_target

        rows = _mixed_rows(source, np.random.default_rng(0))
        codes = self._expected(source, rows)
        points = InputBuffer.of(rows.toarray() if is_sparse(rows) and self.shift.any() else rows, self.shift)
        if is_sparse(rows) and np.prod(rows.shape) * np.dtype(np.float32).itemsize <= MAX_DENSE_BYTES:
            points = InputBuffer(points.dense().numpy())
        y = self.energy.space.encode(codes)
        edges = _edges(y, source.outputs.graded[self.energy.space.column_output.numpy()])
        for target in targets:
            with torch.enable_grad():
                net = self._new_net(target, self._others(source, target, twins), edges)
                net = learn_target(net, points, y, codes[:, target], seed=target)
            self.learned.setdefault(target, net)

    def _new_net(self, target: int, others: list[int], edges: Tensor) -> TargetGivenOthers:
        """Weights as the target's number draws them."""
        with seeded(target):
            return TargetGivenOthers(self.energy.encoding, self.energy.space, target, others, edges)

    def _most_telling(self, net: TargetGivenOthers, target: int, others: list[int]) -> list[int]:
        """The others, those first that the target follows most or that are coupled to it most."""
        reliance = net.reliance(self.energy.space).numpy()
        strength = [part / max(part.max(), 1e-12) for part in (reliance, self.interactions[target])]
        return sorted(others, key=lambda i: -max(float(part[i]) for part in strength))

    # --- effects ---------------------------------------------------------------------------------------------

    def _support(
        self,
        source: ExplainedRows,
        rows: NDArray[np.int64],
        selected: NDArray[np.int64],
        net: TargetGivenOthers,
        values: NDArray[Any],
        held: Tensor,
        n_drawn: int,
        seed: int,
    ) -> NDArray[np.float64]:
        """How far rows support their value: (rows, 1 + k, 2 + outputs).

        With the selected units, then without each of them; all other outputs free, all held, each listed one held.
        They are held at what the energy expects with the selected units, for the same draw of the others: the outputs
        of the whole sample, beside drawn units, would tell what the removed unit was.
        """
        points = _reduced_rows(source, rows, selected, n_drawn, seed)
        n_variants, n_points = selected.shape[1] + 1, n_drawn * len(rows)
        value = torch.as_tensor(values)[torch.as_tensor(np.tile(rows, n_variants * n_drawn))]
        codes = self._expected(source, points[:n_points]).repeat(n_variants, 1)
        parts = []
        for where, x in _chunks(points, self.shift):
            part = self._support_of_points(
                x, net, _padded(value[where]), _padded(codes[where]), held, source.outputs.graded
            )
            parts.append(part[: where.stop - where.start])
        support = torch.cat(parts).double().numpy().reshape(n_variants, n_drawn, len(rows), 2 + len(held))
        return np.asarray(support.mean(axis=1).transpose(1, 0, 2))

    def _support_of_points(
        self,
        x: Inputs,
        net: TargetGivenOthers,
        values: Tensor,
        codes: Tensor,
        held: Tensor,
        graded: NDArray[np.bool_],
    ) -> Tensor:
        space, unary, projected = self.energy.space, self.energy.unary(x), net.project(x)

        def support(outputs: Tensor) -> Tensor:
            return net.support(projected, space.encode(outputs), values)

        def following(clamped: Tensor) -> Tensor:
            return outputs_given(self.energy, self.likelihood, unary, codes, clamped, graded)

        cases = [following(torch.zeros(space.n_outputs, dtype=torch.bool)), codes, *map(following, held)]
        return torch.stack([support(outputs) for outputs in cases], dim=1)


def unit_of(outputs: Outputs, targets: set[int]) -> str:
    """What effects on these targets are measured in: of numbers, in what their codes are nearly proportional to."""
    curves = [outputs.quantiles[target] for target in targets]
    numbers = [curve for curve in curves if curve is not None]
    if not numbers:
        return "probability"
    unit = "quantiles" if all(np.array_equal(one.levels, one.shares) for one in numbers) else "shares of the range"
    return unit if len(numbers) == len(curves) else f"probability, of numbers in {unit}"


def _edges(y: Tensor, graded: NDArray[np.bool_]) -> Tensor:
    """Quantiles of the columns of encoded outputs that are graded, NaN for the others: (columns, edges)."""
    if not graded.any():
        return torch.full((y.shape[1], 2), torch.nan)
    edges = torch.quantile(y, torch.linspace(0.0, 1.0, N_BINS + 1), dim=0).T.contiguous()
    edges[~torch.as_tensor(graded)] = torch.nan
    return edges


def _held_together(outputs: list[int], twins: list[list[int]], n_outputs: int) -> Tensor:
    """For each listed output, what is held with it: itself and those that cannot be distinguished from it."""
    held = torch.zeros(len(outputs), n_outputs, dtype=torch.bool)
    for place, output in enumerate(outputs):
        held[place, next((group for group in twins if output in group), [output])] = True
    return held


def _chunks(rows: Any, shift: NDArray[np.float64]) -> Iterator[tuple[slice, Inputs]]:
    """Encoded rows as networks see them, so many at a time, the last ones padded with zeros.

    Every chunk has the same shape, so what comes out for a row cannot depend on how many others there are.
    """
    from sointer.training.context import InputBuffer

    for start in range(0, rows.shape[0], CHUNK_POINTS):
        part = rows[start : start + CHUNK_POINTS]
        n_missing = CHUNK_POINTS - part.shape[0]
        if is_sparse(part) and not shift.any():
            whole = sparse.vstack([part, csr_array((n_missing, part.shape[1]))], format="csr") if n_missing else part
        else:
            whole = np.pad(part.toarray() if is_sparse(part) else part, ((0, n_missing), (0, 0)))
        yield slice(start, start + part.shape[0]), InputBuffer.of(whole, shift).take(slice(None))


def _padded(part: Tensor) -> Tensor:
    missing = torch.zeros(CHUNK_POINTS - len(part), *part.shape[1:], dtype=part.dtype)
    return torch.cat([part, missing])


def _mixed_rows(source: ExplainedRows, rng: np.random.Generator) -> Any:
    """Rows of the training data, most of them with random parts removed."""
    rows = source.background.known_rows()
    parts = []
    for _ in range(0, N_POINTS, CHUNK_POINTS):
        drawn = rows[rng.integers(rows.shape[0], size=CHUNK_POINTS)]
        keep = rng.random((CHUNK_POINTS, source.groups.n_units)) < rng.random((CHUNK_POINTS, 1))
        keep[: int(SHARE_WHOLE * CHUNK_POINTS)] = True
        parts.append(source.removal.reduce(drawn, source.groups.to_columns(keep), rng))
    return stacked(parts)


def _reduced_rows(
    source: ExplainedRows, rows: NDArray[np.int64], selected: NDArray[np.int64], n_drawn: int, seed: int
) -> Any:
    """Rows reduced to their selection, then to all of it but one unit, by the same draws: (variants, draws, rows)."""
    removal, groups = source.removal, source.groups
    keep = first_units(selected, np.full(len(rows), selected.shape[1]), groups.n_units)
    stays_sparse = is_sparse(source.data) and removal.keeps_zeros
    parts = []
    for place in range(-1, selected.shape[1]):
        kept = keep.copy()
        if place >= 0:
            chosen = np.flatnonzero(selected[:, place] >= 0)
            kept[chosen, selected[chosen, place]] = False
        columns = groups.to_columns(kept)
        rng = np.random.default_rng(seed)
        if stays_sparse:
            parts.append(removal.reduce(source.data[source.of_samples(rows)], columns, rng))
        else:
            parts += list(removal.draws(source.rows(rows), columns, n_drawn, rng))
    return stacked(parts)


def one_to_one(codes: NDArray[Any]) -> list[list[int]]:
    """Groups of outputs that determine each other in all predictions (rows, outputs).

    Class codes: a one-to-one relation of the classes that occur. Numbers: a correlation beyond LEAST_CORRELATION,
    of either sign. Left out are outputs of which fewer than MIN_UNUSUAL predictions differ from the usual one: what
    is rare agrees by chance.
    """
    varied = np.flatnonzero([_n_unusual(column) >= MIN_UNUSUAL for column in codes.T])
    if len(varied) < 2:
        return []
    if codes.dtype.kind == "f":
        alike = np.abs(np.corrcoef(codes[:, varied].astype(np.float64), rowvar=False)) > LEAST_CORRELATION
        first = np.argmax(alike, axis=1)  # the first output that each is alike to
    else:
        first = np.unique(_by_appearance(codes[:, varied]), axis=1, return_inverse=True)[1].ravel()
    groups = [varied[first == label].tolist() for label in dict.fromkeys(first.tolist())]
    return [group for group in groups if len(group) > 1]


def _n_unusual(column: NDArray[Any]) -> int:
    """How many predictions differ from the most common one."""
    return len(column) - int(np.unique(column, return_counts=True)[1].max(initial=0))


def _by_appearance(codes: NDArray[Any]) -> NDArray[np.int64]:
    """Classes numbered in the order in which each column first shows them: equal for columns that are one-to-one."""
    result = np.empty(codes.shape, dtype=np.int64)
    for column in range(codes.shape[1]):
        _, first, inverse = np.unique(codes[:, column], return_index=True, return_inverse=True)
        result[:, column] = np.argsort(np.argsort(first))[inverse.ravel()]
    return result
