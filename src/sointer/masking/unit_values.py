"""The values of a sample's features, for people and for tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from sointer._support.containers import is_sparse, is_tensor, tensor_to_numpy
from sointer._support.frames import as_pandas
from sointer.masking.groups import FixedGroups
from sointer.masking.rows import MaskableRows

MAX_LENGTH, MAX_MEMBERS = 60, 4


def format_value(value: Any) -> str:
    """A number with four significant digits, anything else as text, shortened if too long."""
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 1]}…"


class UnitValues:
    """The values of a sample's units as text: of a feature, or of each feature of a group."""

    def __init__(self, source: MaskableRows) -> None:
        self._names = source.input_format.feature_names
        self._groups = source.groups
        shown = as_pandas(source.input_format.decode(source.data))
        if is_tensor(shown):
            shown = tensor_to_numpy(shown)
        self._shown = shown.tocsr() if is_sparse(shown) else shown
        self._is_frame = hasattr(shown, "iloc")
        self._columns: dict[int, list[Any]] = {}

    def of(self, sample: int, unit: int) -> str:
        """The value of one unit of one sample."""
        members = self._groups.members[unit].tolist() if isinstance(self._groups, FixedGroups) else [unit]
        if len(members) == 1:
            return format_value(self._value(sample, members[0]))
        shown = [f"{self._names[j]}={format_value(self._value(sample, j))}" for j in members[:MAX_MEMBERS]]
        return ", ".join(shown) + (f" and {len(members) - MAX_MEMBERS} more" if len(members) > MAX_MEMBERS else "")

    def _value(self, sample: int, feature: int) -> Any:
        if not self._is_frame:
            return self._shown[sample, feature]
        if feature not in self._columns:
            self._columns[feature] = self._shown.iloc[:, feature].tolist()
        return self._columns[feature][sample]
