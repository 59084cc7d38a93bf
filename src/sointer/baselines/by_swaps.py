"""What baselines by swaps share: removed pixels come from training images, whose predictions are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.base import Subject
from sointer.baselines.baseline import Answers
from sointer.baselines.row_by_row import Row, RowByRow
from sointer.data.targets import target_columns
from sointer.errors import InputError

MAX_NUMBERS = 2**24
"""Of the training images that are kept, and of the images in one call of the model."""


class BySwaps(RowByRow):
    """Explains images by mixing them with training images; where predictions differ, it shows which pixels decide.

    Fit queries up to 1,000 training images, whole. removal="auto" is "marginal"; `removal` decides which pixels can be
    selected and how `verify()` masks, but not how this method does.
    """

    def _wanted_removal(self) -> Any:
        return "marginal" if isinstance(self.removal, str) and self.removal == "auto" else self.removal

    def _learn(self, subject: Subject, answers: Answers) -> None:
        form = subject.input_format
        if form.image is None:
            raise InputError(
                f"{type(self).__name__} is for images (n, channels, height, width), got a table; use ShapleySampling "
                "instead."
            )
        kept = slice(max(1, MAX_NUMBERS // form.n_columns))
        self.reference_rows_: NDArray[np.float64] = subject.rows(answers.index[kept])
        self.reference_outputs_: NDArray[Any] = answers.raw[kept]

    @property
    def _is_signed(self) -> bool:
        return "continuous" not in self.outputs_.kinds if self.signed is None else self.signed

    def _differs(self, row: Row) -> NDArray[np.float64]:
        """Whether each reference has another value than the row: (references, targets); of regions, the share."""
        source = row.source
        same = source.outputs.agree(np.repeat(row.answer, len(self.reference_rows_), axis=0), self.reference_outputs_)
        return 1.0 - target_columns(same.astype(np.float64), row.targets, source.regions)

    def _mixed(
        self, row: Row, keep_units: NDArray[np.bool_], references: NDArray[np.int64]
    ) -> Iterator[NDArray[np.float64]]:
        """Mixtures, which keep some units of the row and have the others from references, in parts."""
        step = max(1, MAX_NUMBERS // row.columns.shape[1])
        for start in range(0, len(keep_units), step):
            keep = keep_units[start : start + step]
            columns = row.groups.take(np.zeros(len(keep), dtype=np.int64)).to_columns(keep)
            yield np.where(columns, row.columns, self.reference_rows_[references[start : start + step]])
