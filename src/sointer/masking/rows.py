"""Samples, and all it takes to query the model about them, unmasked or with units removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support import cached_property
from sointer._support.containers import distinct_rows, is_sparse, slices
from sointer.blackbox.box import BlackBox
from sointer.blackbox.replies import stack
from sointer.data.inputs import InputFormat
from sointer.data.outputs import Outputs
from sointer.data.targets import NO_REGIONS, Regions, ValueSource, at_targets, outputs_of, with_values
from sointer.data.texts import Document, Documents, distinct_texts, stacked
from sointer.errors import InputError, QueryBudgetExceeded
from sointer.masking.groups import Groups
from sointer.masking.removal import Background, Removal

QUERY_ROWS = 4096
MAX_NUMBERS = 2**24  # of images queried at a time


class SentRows:
    """How many rows were sent to the black box for one explanation, whoever else queries it at the same time."""

    def __init__(self) -> None:
        self._parts: list[int] = []  # threads may append at the same time

    @property
    def n(self) -> int:
        """How many so far."""
        return sum(self._parts)

    def add(self, rows: Sized, outputs: Any = None) -> None:
        """Count these rows."""
        self._parts.append(len(rows))


@dataclass(frozen=True)
class MaskableRows:
    """Encoded samples, the model, and what it means that units are absent."""

    data: Any
    """(samples, columns) encoded: dense, or a csr_array."""
    black_box: BlackBox | None
    input_format: InputFormat
    groups: Groups
    """The units of these samples."""
    removal: Removal

    @property
    def model(self) -> BlackBox:
        """The black box; an error where there is none."""
        if self.black_box is None:
            raise InputError(
                "this explanation has no model to query; load the explainer with "
                "sointer.load(path, black_box=model), then explain again."
            )
        return self.black_box

    @property
    def n_samples(self) -> int:
        """How many samples there are."""
        return int(self.data.shape[0])

    def samples(self, index: NDArray[np.int64] | slice) -> NDArray[np.float64]:
        """Encoded samples, dense."""
        chosen = self.data[index]
        return np.asarray(chosen.toarray() if is_sparse(chosen) else chosen, dtype=np.float64)

    def query_points(self, points: Any, on_answer: Any = None) -> NDArray[Any]:
        """The model's outputs for encoded points, dense or CSR; equal texts are sent once."""
        X, which = distinct_texts(self.input_format.decode(points))
        replies = self.model(X, on_answer=on_answer)
        return replies if which is None else replies[which]


@dataclass(frozen=True)
class ExplainedRows(MaskableRows):
    """Samples with what the model predicts for them; every row that is explained is about one output of one sample."""

    outputs: Outputs
    background: Background
    predicted: NDArray[Any] | None = None
    """The model's outputs for the unmasked samples: queried, or given by the caller; None where neither was done."""
    sample: NDArray[np.int64] | None = None
    """(rows,) the sample that each row is about; None: the samples one after the other, each once."""
    regions: Regions = field(default_factory=lambda: NO_REGIONS)
    """Which outputs belong to each region that is a target; target n_outputs + r is region r."""
    region_names: list[str] = field(default_factory=list)
    index: Any = None
    """The samples' own labels: the index of a DataFrame, if it is not just 0, 1, 2 ..."""
    sent: SentRows = field(default_factory=SentRows, repr=False, compare=False)
    from_model: bool = False
    """Whether `predicted` comes from the model itself, not from the caller."""
    expected: NDArray[Any] | None = field(default=None, repr=False)
    """(rows,) the values that are explained, where they are only expected."""

    @property
    def n_rows(self) -> int:
        """How many rows of the explanation; several may be about one sample."""
        return self.n_samples if self.sample is None else len(self.sample)

    @cached_property
    def sample_of_row(self) -> NDArray[np.int64]:
        """(rows,) the sample that each row is about."""
        return np.arange(self.n_samples) if self.sample is None else self.sample

    def of_samples(self, rows: NDArray[np.int64] | slice) -> Any:
        """Where the samples of these rows are."""
        return rows if self.sample is None else self.sample[rows]

    @cached_property
    def predictions(self) -> NDArray[Any]:
        """The model's outputs for the unmasked samples: those known already, else queried now, once."""
        return self.query() if self.predicted is None else self.predicted

    def query(self) -> NDArray[Any]:
        """The model's outputs for the unmasked samples, from the model itself; identical samples are sent once."""
        first, which = distinct_rows(self.data.keys() if isinstance(self.data, Documents) else self.data)
        has_budget = self.black_box is not None and self.black_box.remaining is not None
        # Within a budget all are sent by one call, which is refused as a whole if the budget is too small.
        chunks = [slice(None)] if has_budget else self._chunks(len(first))
        try:
            return stack([self.query_points(self.data[first[rows]]) for rows in chunks])[which]
        except QueryBudgetExceeded as error:
            raise QueryBudgetExceeded(
                f"explain queries the model once per sample, to explain what it predicts; for {len(first)} different "
                f"samples its budget is too small, and nothing was lost. {error} Or pass what the model predicts as "
                "predicted=, or explain what is expected of it, without queries, with query=False."
            ) from error

    @property
    def texts(self) -> list[str] | None:
        """The texts, where texts are explained; where a sample has several, joined as one."""
        return None if self.documents is None else [document.text for document in self.documents]

    @property
    def documents(self) -> Sequence[Document] | None:
        """The texts with their words and where these stand."""
        found = self.data.documents if isinstance(self.data, Documents) else None
        return None if found is None else found.tolist()

    def spans(self, row: int) -> list[tuple[int, int, int]]:
        """Where the units of a row's text stand: (start, end, unit), in characters, in their order."""
        if self.documents is None:
            return []
        document = self.documents[self.sample_of_row[row]]
        units = self.groups.unit_of_column[document.columns].tolist()
        return [(start, end, unit) for (start, end), unit in zip(document.spans, units, strict=True)]

    def queried(self) -> ExplainedRows:
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
        return self.samples(self.of_samples(index))

    def units(self, index: NDArray[np.int64] | slice = slice(None)) -> Groups:
        """The units of rows."""
        return self.groups.take(self.of_samples(index))

    def take(self, index: NDArray[np.int64]) -> ExplainedRows:
        """Some of the rows only, each with a sample of its own, and what is known about them."""
        sample = self.of_samples(index)
        return replace(
            self,
            data=self.data[sample],
            groups=self.groups.take(sample),
            predicted=None if self.predicted is None else self.predicted[sample],
            sample=None,
            expected=None if self.expected is None else self.expected[index],
            index=None if self.index is None else self.index[sample],
        )

    @classmethod
    def join(cls, parts: Sequence[ExplainedRows]) -> ExplainedRows:
        """The samples of several, one after the other, without what is known about them; groups must be the same."""
        if len(parts) == 1:
            return parts[0]
        return replace(parts[0], data=stacked([part.data for part in parts]), index=None, sent=SentRows())

    def for_each(self, targets: Sequence[int] | NDArray[np.int64]) -> tuple[ExplainedRows, NDArray[np.int64]]:
        """Rows about all of these targets of every sample, sample by sample, and the target of each."""
        sample = np.repeat(np.arange(self.n_samples), len(targets))
        return replace(self, sample=sample), np.tile(np.asarray(targets, dtype=np.int64), self.n_samples)

    def encoded_values(self, targets: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """What the model predicts for each row's target, encoded, and where that can be: see `Outputs`."""
        return self.outputs.encode_targets(self.predictions, targets, self.regions, self.sample)

    def outputs_of(self, target: int) -> NDArray[np.int64]:
        """The output that a target is, or those of its region."""
        return outputs_of(np.array([target]), self.outputs.n_outputs, self.regions)

    def at_targets(self, table: NDArray[Any], targets: NDArray[np.int64]) -> NDArray[Any]:
        """A table (rows, outputs) at each row's target: an entry, or the mean over the outputs of a region: (rows,)."""
        return at_targets(table, targets, self.regions)

    def query_points(self, points: Any, on_answer: Any = None) -> NDArray[Any]:
        """The model's outputs for encoded points; rows sent are counted, and other outputs than in fit refused."""
        replies = super().query_points(points, on_answer or self.sent.add)
        if replies.shape[1] != self.outputs.n_outputs:
            raise InputError(
                f"the model returned {replies.shape[1]} outputs, but the explainer was fitted on "
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
        found = np.empty(len(rows))
        for chunk in self._chunks(len(rows)):
            own, rng = rows[chunk], np.random.default_rng(seed)  # so that the rows of all parts see the same draws
            columns = self.units(own).to_columns(keep_units[chunk])
            if self.removal.is_random and not isinstance(self.data, Documents):
                draws = self.removal.draws(self.rows(own), columns, n_draws, rng)
            elif self.removal.is_random:
                draws = self.removal.draws(self.data[self.of_samples(own)], columns, n_draws, rng)
            else:
                draws = iter([self.removal.reduce(self.data[self.of_samples(own)], columns, rng)])
            agree = [self.agrees(self.query_points(points), own, targets[chunk]) for points in draws]
            found[chunk] = np.mean(agree, axis=0)
        return found

    def compare(
        self,
        removal: Removal,
        keep_units: NDArray[np.bool_],
        targets: NDArray[np.int64],
        *,
        rows: NDArray[np.int64],
        n_draws: int,
        rng: np.random.Generator,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of rows reduced to `keep_units`, `agrees` and `moved`, each as its mean over the draws."""
        agree, moved = np.empty((2, n_draws, len(rows)))
        for draw in range(n_draws):
            for chunk, masked in self.query_in_parts(removal, keep_units, rows, rng):
                agree[draw, chunk] = self.agrees(masked, rows[chunk], targets[chunk])
                moved[draw, chunk] = self.moved(masked, rows[chunk], targets[chunk])
        return agree.mean(axis=0), moved.mean(axis=0)

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
        return np.asarray(self.predictions[self.of_samples(rows)])

    def query_reduced(
        self, removal: Removal, keep_units: NDArray[np.bool_], rows: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[Any]:
        """The model's outputs for rows reduced to `keep_units`; a few rows are made dense at a time."""
        return stack([replies for _, replies in self.query_in_parts(removal, keep_units, rows, rng)])

    def query_in_parts(
        self, removal: Removal, keep_units: NDArray[np.bool_], rows: NDArray[np.int64], rng: np.random.Generator
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        """The same, a chunk of rows at a time, with their places: all masks of many images may be too much to hold."""
        for chunk in self._chunks(len(rows)):
            columns = self.units(rows[chunk]).to_columns(keep_units[chunk])
            yield chunk, self.query_points(removal.reduce(self.data[self.of_samples(rows[chunk])], columns, rng))

    def _chunks(self, n: int) -> list[slice]:
        step = QUERY_ROWS
        if self.input_format.image is not None:
            step = max(1, min(step, MAX_NUMBERS // self.input_format.n_columns))
        return slices(n, step)


CHUNK_ROWS = 256


@dataclass(frozen=True)
class Subject:
    """What fit has read: samples to learn from, how many units to train for, and the generator of all that is drawn."""

    rows: MaskableRows
    k: int
    """Explaining may choose otherwise."""
    rng: np.random.Generator
