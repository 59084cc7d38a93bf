"""Source: rows that are explained, and all it takes to ask the black box about them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.blackbox import BlackBox
from sointer.blackbox.replies import stack
from sointer.containers import is_sparse
from sointer.errors import InputError
from sointer.groups import Groups
from sointer.inputs import InputFormat
from sointer.outputs import Outputs
from sointer.outputs.regions import NO_REGIONS, Regions, at_targets
from sointer.removal import Background, Removal

ASK_ROWS = 4096
MOST_NUMBERS = 2**24  # of images asked about at a time


class SentRows:
    """How many rows were sent to the black box for one explanation, whoever else is asking it at the same time."""

    def __init__(self) -> None:
        self.n = 0

    def add(self, rows: NDArray[np.int64], answers: NDArray[Any]) -> None:
        self.n += len(rows)


@dataclass(frozen=True)
class Source:
    """Where explained rows come from: what is needed to ask the black box about them again."""

    black_box: BlackBox | None
    input_format: InputFormat
    removal: Removal
    outputs: Outputs
    groups: Groups
    background: Background
    data: Any
    predicted: NDArray[Any] | None = None
    """What the black box said about the whole rows, if the caller knew it."""
    regions: Regions = field(default_factory=lambda: NO_REGIONS)
    """Which outputs belong to each region that is a target; target n_outputs + r is region r."""
    region_names: list[str] = field(default_factory=list)
    index: Any = None
    """The rows' own labels: the index of a DataFrame, if it is not just 0, 1, 2 ..."""
    texts: Sequence[str] | None = field(default=None, repr=False)
    """The documents, where texts were explained."""
    sent: SentRows = field(default_factory=SentRows, repr=False, compare=False)

    @cached_property
    def answers(self) -> NDArray[Any]:
        """What the black box said about the whole rows, according to the caller or, asked once, to itself."""
        return self.asked if self.predicted is None else self.predicted

    @cached_property
    def asked(self) -> NDArray[Any]:
        """What the black box itself says about the whole rows; asked once."""
        return stack([self.ask(self.data[rows]) for rows in self._chunks(self.data.shape[0])])

    @property
    def known_answers(self) -> NDArray[Any] | None:
        """`answers`, if they were given or asked for already."""
        return self.__dict__.get("asked") if self.predicted is None else self.predicted

    def rows(self, index: NDArray[np.int64] | slice) -> NDArray[np.float64]:
        """Encoded rows, dense."""
        chosen = self.data[index]
        return np.asarray(chosen.toarray() if is_sparse(chosen) else chosen, dtype=np.float64)

    def take(self, index: NDArray[np.int64]) -> Source:
        """The same with some of the rows only, and what is known about them."""
        known = self.known_answers
        predicted = None if known is None else known[index]
        return replace(
            self,
            data=self.data[index],
            groups=self.groups.take(index),
            predicted=predicted,
            index=None if self.index is None else self.index[index],
            texts=None if self.texts is None else [self.texts[row] for row in index],
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
        replies = self.black_box(self.input_format.decode(points), on_answer=self.sent.add)
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
        original, outputs = self.answers[rows], self.outputs
        rng = np.random.default_rng(seed)  # the same for every part, so that all rows see the same draws
        if not self.removal.is_random:
            reduced = self.ask_reduced(self.removal, keep_units, rows, rng)
            return self.at_targets(outputs.agree(original, reduced), targets).astype(np.float64)
        columns = self.groups.take(rows).to_columns(keep_units)
        draws = self.removal.draws(self.rows(rows), columns, n_draws, rng)
        agree = [self.at_targets(outputs.agree(original, self.ask(points)), targets) for points in draws]
        return np.asarray(np.mean(agree, axis=0))

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
            step = max(1, min(step, MOST_NUMBERS // self.input_format.n_columns))
        return [slice(start, min(start + step, n)) for start in range(0, n, step)]
