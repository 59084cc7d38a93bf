"""What is there in rows of which most is not: their units that differ from the reference."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sointer.energy.sparse import SparseRows, starts_of


@dataclass(frozen=True)
class PresentUnits:
    """All units that differ from the reference, row by row."""

    of_unit: SparseRows
    """For each of them, by how much its columns differ."""
    unit: Tensor
    first: Tensor
    """Where each row's units begin: (rows + 1,)."""
    n_units: int

    @classmethod
    def of(cls, differences: SparseRows, unit_of_column: Tensor) -> PresentUnits:
        """Of rows, given by how they differ from the reference."""
        row, column, value = differences.entries()
        n_units = int(unit_of_column.max()) + 1
        key = row * n_units + unit_of_column[column]
        if bool((key[1:] < key[:-1]).any()):
            order = key.argsort(stable=True)
            key, column, value = key[order], column[order], value[order]
        units, counts = key.unique_consecutive(return_counts=True)
        first = torch.searchsorted(units, torch.arange(len(differences) + 1) * n_units)
        of_unit = SparseRows(starts_of(counts), column, value, differences.n_columns)
        return cls(of_unit, units % n_units, first, n_units)

    @property
    def n_of_row(self) -> Tensor:
        return self.first.diff()

    def table(self, rows: Tensor, n_rows: int, room: int) -> tuple[Tensor, Tensor]:
        """The units of some rows, as numbers of all that are present and as units: (n_rows, room).

        Where there is none, -1 and n_units stand instead.
        """
        place, n_here = torch.arange(room), torch.zeros(n_rows, 1, dtype=torch.long)
        n_here[: len(rows), 0] = self.n_of_row[rows]
        begin = torch.zeros_like(n_here)
        begin[: len(rows), 0] = self.first[rows]
        there = torch.where(place < n_here, begin + place, -1)
        return there, torch.cat([self.unit, torch.tensor([self.n_units])])[there]

    def differences(self, there: Tensor) -> SparseRows:
        """A row for every place of such a table, by how much the columns of its unit differ; none where it is -1."""
        return self.of_unit.take(there.flatten())
