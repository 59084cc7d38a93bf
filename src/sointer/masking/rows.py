"""MaskableRows: rows that are explained, and all it takes to ask the black box about them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import is_sparse
from sointer._support.hashing import distinct_rows
from sointer.blackbox.box import BlackBox
from sointer.blackbox.replies import stack
from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.data.targets import NO_REGIONS, Regions, at_targets
from sointer.data.texts import Document, Documents, distinct_texts
from sointer.data.values import ValueSource, with_values
from sointer.errors import InputError, QueryBudgetExceeded
from sointer.masking.groups import Groups
from sointer.masking.removal import Background, Removal

ASK_ROWS = 4096
MAX_NUMBERS = 2**24  # of images asked about at a time


@dataclass(frozen=True, eq=False)
class Queried:
    """The model's own outputs for some samples, to explain them for several targets without querying it again.

    Given as `predicted`, they count as what the model predicts, also where they hold labels that fit never saw.
    """

    outputs: NDArray[Any]

    def __getitem__(self, index: Any) -> Queried:
        return Queried(self.outputs[index])


class SentRows:
    """How many rows were sent to the black box for one explanation, whoever else is asking it at the same time."""

    def __init__(self) -> None:
        self.n = 0

    def add(self, rows: NDArray[np.int64], answers: NDArray[Any]) -> None:
        self.n += len(rows)


@dataclass(frozen=True)
class MaskableRows:
    """Where explained rows come from: what is needed to ask the black box about them again."""

    black_box: BlackBox | None
    input_format: InputFormat
    removal: Removal
    outputs: Outputs
    groups: Groups
    background: Background
    data: Any
    predicted: NDArray[Any] | None = None
    """The model's outputs for the unmasked samples: queried, or given by the caller; None where neither was done."""
    regions: Regions = field(default_factory=lambda: NO_REGIONS)
    """Which outputs belong to each region that is a target; target n_outputs + r is region r."""
    region_names: list[str] = field(default_factory=list)
    index: Any = None
    """The rows' own labels: the index of a DataFrame, if it is not just 0, 1, 2 ..."""
    sent: SentRows = field(default_factory=SentRows, repr=False, compare=False)
    from_model: bool = False
    """Whether `predicted` comes from the model itself, not from the caller."""
    expected: NDArray[Any] | None = field(default=None, repr=False)
    """(samples,) the values that are explained, where they are only expected."""

    @cached_property
    def answers(self) -> NDArray[Any]:
        """The model's outputs for the unmasked samples: those known already, else queried now, once."""
        return self.query() if self.predicted is None else self.predicted

    def query(self) -> NDArray[Any]:
        """The model's outputs for the unmasked samples, from the model itself; identical samples are sent once."""
        first, which = distinct_rows(self.data if self.texts is None else self.texts)
        has_budget = self.black_box is not None and self.black_box.remaining is not None
        # Within a budget all are sent by one call, which is refused as a whole if the budget is too small.
        chunks = [slice(None)] if has_budget else self._chunks(len(first))
        try:
            return stack([self.ask(self.data[first[rows]]) for rows in chunks])[which]
        except QueryBudgetExceeded as error:
            raise QueryBudgetExceeded(
                f"explain queries the model once per sample, to explain what it predicts; for {len(first)} different "
                f"samples its budget is too small, and nothing was lost. {error} Or pass what the model predicts as "
                "predicted=, or explain what is expected of it, without queries, with query=False."
            ) from error

    @property
    def texts(self) -> list[str] | None:
        """The texts, where texts are explained."""
        return None if self.documents is None else [document.text for document in self.documents]

    @property
    def documents(self) -> Sequence[Document] | None:
        """The texts with their words and where these stand."""
        found = self.data.documents if isinstance(self.data, Documents) else None
        return None if found is None else found.tolist()

    def spans(self, row: int) -> list[tuple[int, int, int]]:
        """Where the units of a text stand: (start, end, unit), in characters, in their order."""
        if self.documents is None:
            return []
        document = self.documents[row]
        units = self.groups.unit_of_column[document.columns].tolist()
        return [(start, end, unit) for (start, end), unit in zip(document.spans, units, strict=True)]

    def queried(self) -> MaskableRows:
        """The same with what the model predicts, queried now, as the values to explain."""
        return replace(self, predicted=self.query(), from_model=True)

    @property
    def value_source(self) -> ValueSource:
        """Where the values that are explained come from."""
        if self.predicted is None:
            return "expected"
        return "model" if self.from_model else "given"

    def rows(self, index: NDArray[np.int64] | slice) -> NDArray[np.float64]:
        """Encoded rows, dense."""
        chosen = self.data[index]
        return np.asarray(chosen.toarray() if is_sparse(chosen) else chosen, dtype=np.float64)

    def take(self, index: NDArray[np.int64]) -> MaskableRows:
        """The same with some of the rows only, and what is known about them."""
        return replace(
            self,
            data=self.data[index],
            groups=self.groups.take(index),
            predicted=None if self.predicted is None else self.predicted[index],
            expected=None if self.expected is None else self.expected[index],
            index=None if self.index is None else self.index[index],
        )

    def at_targets(self, table: NDArray[Any], targets: NDArray[np.int64]) -> NDArray[Any]:
        """A table (rows, outputs) at each row's target: an entry, or the mean over the outputs of a region: (rows,)."""
        return at_targets(table, targets, self.regions)

    def ask(self, points: Any) -> NDArray[Any]:
        """What the black box says about encoded points, dense or CSR."""
        if self.black_box is None:
            raise InputError(
                "this explanation has no black box to ask; load the explainer with "
                "sointer.load(path, black_box=model), then explain again."
            )
        X, which = distinct_texts(self.input_format.decode(points))
        replies = self.black_box(X, on_answer=self.sent.add)
        replies = replies if which is None else replies[which]
        if replies.shape[1] != self.outputs.n_outputs:
            raise InputError(
                f"the black box returned {replies.shape[1]} outputs, but the explainer was fitted on "
                f"{self.outputs.n_outputs}; give the model that was explained."
            )
        return replies

    def agreement(
        self,
        keep_units: NDArray[np.bool_],
        targets: NDArray[np.int64],
        *,
        rows: NDArray[np.int64],
        n_draws: int,
        seed: int,
    ) -> NDArray[np.float64]:
        """Share of draws in which each row, reduced to `keep_units`, kept its target's value.

        A region counts by the share of its outputs that kept theirs.
        """
        parts = [
            self._agreement(keep_units[some], targets[some], rows[some], n_draws, seed)
            for some in self._chunks(len(rows))
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _agreement(
        self,
        keep_units: NDArray[np.bool_],
        targets: NDArray[np.int64],
        rows: NDArray[np.int64],
        n_draws: int,
        seed: int,
    ) -> NDArray[np.float64]:
        rng = np.random.default_rng(seed)  # the same for every part, so that all rows see the same draws
        if not self.removal.is_random:
            return self.agrees(self.ask_reduced(self.removal, keep_units, rows, rng), rows, targets)
        columns = self.groups.take(rows).to_columns(keep_units)
        draws = self.removal.draws(self.rows(rows), columns, n_draws, rng)
        return np.asarray(np.mean([self.agrees(self.ask(points), rows, targets) for points in draws], axis=0))

    def agrees(self, masked: NDArray[Any], rows: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        """Whether predictions for masked samples have the value that is explained; of a region, the share that has."""
        explained = self._explained(masked, rows, targets)
        return self.at_targets(self.outputs.agree(explained, masked), targets).astype(np.float64)

    def moved(self, masked: NDArray[Any], rows: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        """How far predictions for masked samples are from the value that is explained."""
        explained = self._explained(masked, rows, targets)
        return self.at_targets(self.outputs.difference(explained, masked), targets).astype(np.float64)

    def _explained(self, masked: NDArray[Any], rows: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[Any]:
        """Predictions that have the value explained at every target: the model's own, else those of masked samples."""
        if self.predicted is None and self.expected is not None:
            return with_values(self.outputs, masked, self.expected[rows], targets, self.regions)
        return self.answers[rows]

    def ask_reduced(
        self, removal: Removal, keep_units: NDArray[np.bool_], rows: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[Any]:
        """What the black box says about rows reduced to `keep_units`; a few rows are made dense at a time."""
        return stack([replies for _, replies in self.ask_in_parts(removal, keep_units, rows, rng)])

    def ask_in_parts(
        self, removal: Removal, keep_units: NDArray[np.bool_], rows: NDArray[np.int64], rng: np.random.Generator
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        """The same, some rows at a time, with their places: all masks of many images may be too much to hold."""
        for some in self._chunks(len(rows)):
            columns = self.groups.take(rows[some]).to_columns(keep_units[some])
            yield some, self.ask(removal.reduce(self.data[rows[some]], columns, rng))

    def _chunks(self, n: int) -> list[slice]:
        step = ASK_ROWS
        if self.input_format.image is not None:
            step = max(1, min(step, MAX_NUMBERS // self.input_format.n_columns))
        return [slice(start, min(start + step, n)) for start in range(0, n, step)]


CHUNK_ROWS = 256


@dataclass(frozen=True)
class Subject:
    """What is explained, as read by fit: the data, the door to the model, and what "absent" means."""

    data: Any  # encoded: dense, or a csr_array
    black_box: BlackBox
    input_format: InputFormat
    groups: Groups
    removal: Removal
    k: int
    """How many units to train for; explaining may choose otherwise."""
    rng: np.random.Generator

    def rows(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Encoded rows, dense."""
        chosen = self.data[index]
        return np.asarray(chosen.toarray() if is_sparse(chosen) else chosen, dtype=np.float64)

    def ask(self, index: NDArray[np.int64]) -> NDArray[Any]:
        """What the black box says about rows of the data."""
        return self.black_box(self.input_format.decode(self.data[index]))
