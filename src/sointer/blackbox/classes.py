"""How probable a model's classes are: another way to ask for its labels, which says more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class ClassProbabilities:
    """Probabilities of the classes of all outputs side by side: (rows, classes of all outputs)."""

    predict: Callable[[Any], Any]
    """Rows -> such a table."""
    classes: tuple[npt.NDArray[Any], ...]
    """The labels of each output, in the order of their probabilities."""

    @property
    def n_columns(self) -> int:
        return sum(map(len, self.classes))

    def most_probable(self, table: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The labels that such a table speaks for: (rows, outputs)."""
        blocks = np.split(table, np.cumsum([len(labels) for labels in self.classes])[:-1], axis=1)
        parts = zip(self.classes, blocks, strict=True)
        return np.column_stack([labels[part.argmax(axis=1)] for labels, part in parts])


@dataclass(frozen=True, eq=False)
class Soft:
    """Answers as probabilities: (rows, classes of all outputs)."""

    classes: tuple[npt.NDArray[Any], ...]
    table: npt.NDArray[np.float32]

    @staticmethod
    def join(parts: Sequence[Soft | None]) -> Soft | None:
        """Several tables, one below the other; None unless all are there."""
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return None
        return Soft(known[0].classes, np.concatenate([part.table for part in known]))
