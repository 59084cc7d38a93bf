"""What a training recipe works on: the data, the model, and what "removed" means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sointer._support import cached_property
from sointer._support.containers import csr_array, is_sparse, slices
from sointer._support.progress import History
from sointer.blackbox.parallel import QueryWorker
from sointer.blackbox.replies import Soft, stack
from sointer.config import Configs
from sointer.data.outputs import Outputs
from sointer.data.reading import ranks
from sointer.data.texts import Documents, distinct_texts, stacked
from sointer.energy.networks import AnyEnergy
from sointer.energy.sparse import Inputs, SparseRows
from sointer.errors import InputError, UnstableBlackBoxWarning, warn_caller
from sointer.masking.removal import Removal
from sointer.masking.rows import MaskableRows
from sointer.training.snapshots import Snapshots

if TYPE_CHECKING:
    from sointer.training.energy import Quality


class InputBuffer:
    """Rows as the networks see them, in single precision."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows  # float32: an array or a csr_array; or texts
        self._room = rows  # an array whose beginning the rows are
        self.features: Callable[[Documents], SparseRows] | None = None
        """What an energy sees of texts."""

    @classmethod
    def of(cls, rows: Any, shift: NDArray[np.float64]) -> InputBuffer:
        """Encoded rows, less the shift (sparse rows have none)."""
        if isinstance(rows, Documents):
            return cls(rows)
        if is_sparse(rows):
            return cls(rows.astype(np.float32))
        made = np.empty(rows.shape, dtype=np.float32)
        np.subtract(rows, shift, out=made, casting="same_kind")  # in double precision, without a copy in it
        return cls(made)

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def take(self, index: Tensor | slice) -> Inputs:
        """Some rows, as an energy takes them."""
        batch = self._rows[index.numpy() if isinstance(index, Tensor) else index]
        if self.features is not None:
            return self.features(batch)
        return SparseRows.of(batch) if is_sparse(batch) else torch.as_tensor(batch)

    def where(self, chosen: NDArray[np.bool_]) -> InputBuffer:
        return InputBuffer(self._rows[chosen])

    def changed(self, change: Callable[[Any], Any]) -> InputBuffer:
        """With other rows in place of these."""
        return InputBuffer(change(self._rows))

    def dense(self) -> Tensor:
        """All rows as one tensor."""
        return torch.as_tensor(self._rows.toarray() if is_sparse(self._rows) else self._rows)

    def add(self, more: InputBuffer) -> None:
        """More rows below these. Dense ones are given room for twice as many, so that few of them are ever copied."""
        if is_sparse(self._rows):
            self._rows = stacked([self._rows, more._rows])
            return
        n_before, n_rows = len(self), len(self) + len(more)
        if n_rows > len(self._room):
            self._room = np.empty((max(n_rows, 2 * n_before), self._rows.shape[1]), dtype=self._rows.dtype)
            self._room[:n_before] = self._rows
        self._room[n_before:n_rows] = more._rows
        self._rows = self._room[:n_rows]

    @staticmethod
    def join(parts: Sequence[InputBuffer]) -> InputBuffer:
        """Several tables, one below the other."""
        if len(parts) == 1:
            return parts[0]
        rows = [part._rows for part in parts]
        return InputBuffer(stacked(rows) if is_sparse(rows[0]) else np.concatenate(rows))


N_REPEATED = 32
N_PROBES = 16
QUERY_ROWS = 4096
MAX_QUERY_NUMBERS = 2**25
MIN_SPARSE_COLUMNS = 256
MAX_SPARSE_SHARE = 0.25

Keeps: TypeAlias = NDArray[np.bool_] | Callable[[NDArray[np.int64], np.random.Generator], NDArray[np.bool_]]
"""Units to keep, (rows, units); or a function that draws them for given rows of the data."""


@dataclass
class QueryBatch:
    """Queries and their outputs: the points sent (as the networks see them) and the raw replies, row by row."""

    points: InputBuffer
    raw: NDArray[Any]
    soft: Soft | None = None
    """How probable the classes are, where the model returns it."""

    def __len__(self) -> int:
        return len(self.raw)

    def soft_codes(self, outputs: Outputs, known: Any = slice(None)) -> Tensor | None:
        """Probabilities of the labels of all outputs: (rows, labels)."""
        if self.soft is None or not self.soft.classes:
            return None
        soft = outputs.label_probabilities(self.soft.classes, self.soft.table[known])
        return None if soft is None else torch.as_tensor(soft)

    def subset(self, index: NDArray[np.int64]) -> tuple[NDArray[Any], Soft | None]:
        """Raw replies, and how probable the classes are, of some queries."""
        return self.raw[index], None if self.soft is None else Soft(self.soft.classes, self.soft.table[index])


@dataclass
class FitContext:
    """Everything a recipe needs; it queries the black box through `submit` and `query` and nowhere else."""

    rows: MaskableRows
    k: int
    n_queries: int
    configs: Configs
    structured: bool
    shift_inputs: bool
    check: Callable[[NDArray[Any]], None]
    """Raises if what the user stated of the outputs cannot be, given some outputs."""
    describe: Callable[[NDArray[Any]], tuple[Outputs, list[int]]]
    """From the first outputs returned to what they are, and to those that are to be explained."""
    rng: np.random.Generator
    generator: torch.Generator
    history: History = field(default_factory=History)
    query_worker: QueryWorker = field(default_factory=QueryWorker)
    snapshots: Snapshots = field(default_factory=Snapshots)
    budget_ran_out: bool = False
    probe: tuple[Any, NDArray[Any]] | None = None
    """The first samples that were queried unmasked, encoded, and their outputs."""
    n_extra: int = 0
    """Queries that a recipe makes besides those to learn from."""

    @cached_property
    def shift(self) -> NDArray[np.float64]:
        """What is taken from every column before it becomes single precision: its median, zero for mostly-zero data.

        A column of timestamps has no digits left in single precision until its median is taken off; nor would others
        have any without their mean, which one huge outlier carries away.
        """
        if self.shift_inputs and not is_mostly_zero(self.rows.data):
            return np.asarray(np.median(self.rows.data, axis=0), dtype=np.float64)
        return np.zeros(self.rows.input_format.n_columns)

    def as_tensor(self, rows: NDArray[np.float64]) -> Tensor:
        """Encoded rows as the networks see them."""
        return torch.as_tensor((rows - self.shift).astype(np.float32))

    @cached_property
    def is_sparse(self) -> bool:
        """Whether points are kept sparse: see `compact`."""
        return is_sparse(self.rows.data) and self.rows.removal.keeps_zeros

    def submit(
        self, index: NDArray[np.int64], keep_units: Keeps | None = None, other: NDArray[np.int64] | None = None
    ) -> PendingQuery:
        """Query rows, whole or with units removed, while the caller does something else.

        With `other`, units that are not kept are those of these rows.
        """
        # Draws of its own: what is removed must not depend on what the caller draws in the meantime.
        rng = np.random.default_rng(int(self.rng.integers(2**62)))
        return PendingQuery(
            len(index), self.query_worker.submit(partial(self._query_all, index, keep_units, other, rng))
        )

    def query(
        self, index: NDArray[np.int64], keep_units: Keeps | None = None, other: NDArray[np.int64] | None = None
    ) -> QueryBatch | None:
        """Query, and wait for the outputs: fewer where the budget ends, None at its end."""
        return self.submit(index, keep_units, other).wait()

    def _query_all(
        self,
        index: NDArray[np.int64],
        keep_units: Keeps | None,
        other: NDArray[np.int64] | None,
        rng: np.random.Generator,
    ) -> QueryBatch | None:
        remaining = self.rows.model.remaining
        if remaining is not None and remaining < len(index):
            self.budget_ran_out = True
            index = index[:remaining]
        if len(index) == 0:
            return None
        at_once = max(1, min(QUERY_ROWS, MAX_QUERY_NUMBERS // self.rows.input_format.n_columns))
        return concatenate(
            [self._query_chunk(index[s], keep_units, other, s, rng) for s in slices(len(index), at_once)]
        )

    def _query_chunk(
        self,
        index: NDArray[np.int64],
        keep_units: Keeps | None,
        other: NDArray[np.int64] | None,
        where: slice,
        rng: np.random.Generator,
    ) -> QueryBatch:
        points = self.rows.data[index] if self.is_sparse else self.rows.samples(index)
        if keep_units is not None:
            keep = keep_units(index, rng) if callable(keep_units) else keep_units[where]
            columns = self.rows.groups.take(index).to_columns(keep)
            if other is None:
                points = self.rows.removal.reduce(points, columns, rng)
            else:
                points = np.where(columns, points, self.rows.samples(other[where]))
        X, which = distinct_texts(self.rows.input_format.decode(points))
        raw, soft = self.rows.model.query(X, on_answer=self.query_worker.between_batches)
        if which is not None:
            raw, soft = raw[which], None if soft is None else Soft(soft.classes, soft.table[which])
        if self.probe is None and keep_units is None:
            first = np.arange(min(N_PROBES, len(raw)))
            self.probe = points[first], raw[first]
        return QueryBatch(InputBuffer.of(points, self.shift), raw, soft)

    def random_keeps(self, n_rows: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Random subsets to keep, the share kept uniform in [0, 1]: (rows, units)."""
        share = rng.random((n_rows, 1))
        return rng.random((n_rows, self.rows.groups.n_units)) < share


@dataclass(frozen=True)
class PendingQuery:
    """Rows that are being queried."""

    n_rows: int
    future: Future[QueryBatch | None]

    def __len__(self) -> int:
        return self.n_rows

    def wait(self) -> QueryBatch | None:
        """Wait for their outputs; fewer than were queried where the budget ended, None at its end."""
        return self.future.result()


@dataclass
class Trained:
    """What a recipe hands back to the explainer."""

    outputs: Outputs
    targets: list[int]
    energy: AnyEnergy
    interpreter: nn.Module
    quality: Quality
    """How well the energy predicts each output (held out, in the default preset)."""
    whole: tuple[NDArray[np.int64], NDArray[Any]]
    """Training rows that were queried whole, and their encoded outputs."""
    interrupted: bool = False
    """Whether training was stopped from outside before its end."""


@dataclass
class QueryPool:
    """The pool of queries that the energy learns from: points, class codes, and who is held out."""

    outputs: Outputs
    points: InputBuffer
    kept_codes: Tensor
    """As small numbers: there may be thousands of outputs of each of many queries."""
    held_out: Tensor
    soft: Tensor | None = None
    """Probabilities of labels (queries, labels), where the model gives them."""

    @classmethod
    def of(cls, outputs: Outputs, replies: QueryBatch, held_out: Tensor) -> QueryPool:
        """A pool that begins with these queries; their points become its own."""
        codes = as_small(as_codes(outputs, replies.raw))
        return cls(outputs, replies.points, codes, held_out, replies.soft_codes(outputs))

    def codes_of(self, index: Tensor | slice) -> Tensor:
        """Codes of a batch: (queries, outputs)."""
        batch = self.kept_codes[index]
        return batch if batch.dtype.is_floating_point else batch.long()

    def soft_of(self, index: Tensor) -> Tensor | None:
        """Probabilities of labels of a batch: (queries, labels)."""
        return None if self.soft is None else self.soft[index]

    def add(self, replies: QueryBatch) -> None:
        """More queries; rows with a label never seen before cannot be learned from and are left out."""
        known = self.outputs.knows(replies.raw)
        if not known.any():
            return
        self.points.add(replies.points.where(known))
        self.kept_codes = torch.cat([self.kept_codes, as_small(as_codes(self.outputs, replies.raw[known]))])
        self.held_out = torch.cat([self.held_out, torch.zeros(int(known.sum()), dtype=torch.bool)])
        more = replies.soft_codes(self.outputs, known)
        self.soft = None if self.soft is None or more is None else torch.cat([self.soft, more])

    def __len__(self) -> int:
        return len(self.points)


def compact(data: Any, removal: Removal) -> Any:
    """The data as CSR if rows, also reduced ones, are worth keeping so: many columns, most of them zero."""
    n_rows, n_columns = data.shape
    n_entries = data.nnz if is_sparse(data) else np.count_nonzero(data)
    worthwhile = n_columns >= MIN_SPARSE_COLUMNS and n_entries <= MAX_SPARSE_SHARE * n_rows * n_columns
    if worthwhile and removal.keeps_zeros:
        return data if is_sparse(data) else csr_array(data)
    return data.toarray() if is_sparse(data) and n_columns < MIN_SPARSE_COLUMNS else data


def is_mostly_zero(data: Any) -> bool:
    """Whether zero means "nothing" here: sparse matrices, and others with over 60 % zeros."""
    return is_sparse(data) or np.count_nonzero(data) < 0.4 * data.size


def as_codes(outputs: Outputs, raw: NDArray[Any]) -> Tensor:
    """Raw replies as codes: (rows, outputs)."""
    return torch.as_tensor(np.ascontiguousarray(outputs.encode(raw)))


def as_labels(outputs: Outputs, raw: NDArray[Any]) -> Tensor:
    """Raw replies as class codes: (rows, outputs)."""
    return torch.as_tensor(np.ascontiguousarray(outputs.labels(raw)))


def as_small(codes: Tensor) -> Tensor:
    """Class codes in two bytes each, where that is enough."""
    if codes.dtype.is_floating_point or (len(codes) and int(codes.max()) >= 2**15):
        return codes
    return codes.to(torch.int16)


def concatenate(parts: list[QueryBatch]) -> QueryBatch:
    """Several batches as one."""
    if not parts:
        raise InputError("the query budget allows no row to be sent to the black box; raise query_budget.")
    points, raw = InputBuffer.join([p.points for p in parts]), stack([p.raw for p in parts])
    return QueryBatch(points, raw, Soft.join([p.soft for p in parts]))


def n_repeated(context: FitContext) -> int:
    """Rows set aside to find out whether the black box changes its mind."""
    return min(N_REPEATED, context.n_queries // 20)


def repeatability(
    context: FitContext, outputs: Outputs, index: NDArray[np.int64], first: QueryBatch
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Query a few samples again: for each output, mean squared change of its code, and how often it changed.

    A black box that changes its mind cannot be explained better than that, and a warning says so.
    """
    nothing = np.zeros(outputs.n_outputs)
    n_again = min(len(index), len(first), n_repeated(context))
    again = context.query(index[:n_again]) if n_again else None
    if again is None:
        return nothing, nothing
    before, after = first.raw[: len(again)], again.raw
    same = outputs.agree(before, after)
    context.history.record(stage="queried twice", n_rows=len(again), same_outputs=float(same.mean()))
    if not same.all():
        warn_caller(
            f"the model predicted something else for the same samples: {1 - same.mean():.1%} of outputs changed "
            f"when {len(again)} samples were queried twice. Explanations cannot be more faithful than that; "
            "if it is random (dropout, sampling), fix its seed or put it in evaluation mode.",
            UnstableBlackBoxWarning,
        )
    known = outputs.knows(before) & outputs.knows(after)
    if not known.any():
        return nothing, nothing
    a, b = (ranks(outputs.quantiles, outputs.encode(part[known])) for part in (before, after))
    two = np.array(outputs.n_classes) == 2
    change = np.where(two, np.abs(a - b), a != b)
    return (change**2).mean(axis=0), (change > 0).mean(axis=0)
