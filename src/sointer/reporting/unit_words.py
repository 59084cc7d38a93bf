"""The values of features and of outputs as short words, as their owner knows them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sointer._support.containers import is_sparse, is_tensor, tensor_to_numpy
from sointer.masking.groups import FixedGroups
from sointer.masking.rows import Source

LONGEST, MOST_MEMBERS = 60, 4


def in_words(value: Any) -> str:
    """A number with four digits, anything else as it is, if it is not too long."""
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


class UnitWords:
    """Looks up what a sample has in a feature, or in each feature of a group."""

    def __init__(self, source: Source) -> None:
        self._names = source.input_format.feature_names
        self._groups = source.groups
        shown = source.input_format.decode(source.data)
        if is_tensor(shown):
            shown = tensor_to_numpy(shown)
        self._shown = shown.tocsr() if is_sparse(shown) else shown
        self._is_frame = hasattr(shown, "iloc")
        self._columns: dict[int, list[Any]] = {}

    def of(self, sample: int, unit: int) -> str:
        """The value of one unit of one sample."""
        members = self._groups.members[unit].tolist() if isinstance(self._groups, FixedGroups) else [unit]
        if len(members) == 1:
            return in_words(self._value(sample, members[0]))
        shown = [f"{self._names[j]}={in_words(self._value(sample, j))}" for j in members[:MOST_MEMBERS]]
        return ", ".join(shown) + (f" and {len(members) - MOST_MEMBERS} more" if len(members) > MOST_MEMBERS else "")

    def _value(self, sample: int, feature: int) -> Any:
        if not self._is_frame:
            return self._shown[sample, feature]
        if feature not in self._columns:
            self._columns[feature] = self._shown.iloc[:, feature].tolist()
        return self._columns[feature][sample]
