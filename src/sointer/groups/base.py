"""Features that stand or fall together: what every way of grouping them can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer.errors import InputError, LoadError
from sointer.inputs import InputFormat

BoolArray = npt.NDArray[np.bool_]
FloatTable = npt.NDArray[np.floating[Any]]


class Groups(ABC):
    """The units that are chosen or removed whole.

    They are the same for all rows, unless they are superpixels, which every image has of its own: `bind` computes them
    for given rows, and `take` gives those of some of these rows.

    Examples
    --------
    >>> groups = Groups.build({"colour": ["red", "green"]}, ["red", "size", "green"])
    >>> groups.unit_names, groups.unit_of_feature
    (['colour', 'size'], array([0, 1, 0]))
    """

    unit_names: list[str]
    unit_of_feature: npt.NDArray[np.int64]
    """The unit of every feature, where it is the same in all rows."""
    unit_of_column: npt.NDArray[np.int64]
    members: list[npt.NDArray[np.int64]]

    @staticmethod
    def build(
        groups: Any,
        feature_names: Sequence[str],
        column_feature: npt.ArrayLike | None = None,
        input_format: InputFormat | None = None,
    ) -> Groups:
        """Make units from None (each feature alone), a dict, a list of lists, or one group id per feature.

        Members are feature indices or names; `column_feature` is the feature that owns each numeric column. Images,
        known by their `input_format`, may also be cut into `Patches` or `Superpixels`.
        """
        from sointer.groups.make import make_groups

        return make_groups(groups, feature_names, column_feature, input_format)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Groups:
        """The inverse of `to_json`."""
        from sointer.groups.make import restore_groups

        try:
            return restore_groups(data)
        except (KeyError, TypeError, ValueError, IndexError) as exc:
            raise LoadError(
                f"The saved groups are incomplete or of another version: {exc!r}; expected what "
                "Groups.to_json writes. Save them again with this version."
            ) from exc

    @property
    def n_units(self) -> int:
        """How many units there are; a superpixel that an image does not have counts too, and is never chosen."""
        return len(self.unit_names)

    @property
    @abstractmethod
    def spec(self) -> Any:
        """What `build` makes these units from."""

    def bind(self, rows: Any) -> Groups:
        """The units of encoded rows."""
        return self

    def take(self, index: npt.NDArray[np.int64]) -> Groups:
        """The units of some of the rows that these are bound to."""
        return self

    @abstractmethod
    def to_columns(self, unit_mask: npt.ArrayLike) -> BoolArray:
        """A mask over units (n, n_units) as one over numeric columns (n, n_columns)."""

    @abstractmethod
    def to_features(self, unit_mask: npt.ArrayLike) -> BoolArray:
        """A mask over units (n, n_units) as one over features (n, n_features)."""

    @abstractmethod
    def unit_of_features(self, n_rows: int) -> npt.NDArray[np.integer[Any]]:
        """The unit of every feature of every row: (n_rows, n_features)."""

    @abstractmethod
    def sum_columns(self, values: npt.ArrayLike) -> FloatTable:
        """Add up values of columns (n, n_columns) within each unit: (n, n_units), in the same float dtype."""

    def any_column(self, column_mask: BoolArray) -> BoolArray:
        """A mask over columns (n, n_columns) as one over units with a column in it: (n, n_units)."""
        return np.asarray(self.sum_columns(column_mask.astype(np.float32)) > 0)

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Everything, as plain JSON; superpixels without the rows that they are bound to."""

    def _check_mask(self, unit_mask: npt.ArrayLike) -> BoolArray:
        mask = np.asarray(unit_mask)
        if mask.ndim != 2 or mask.shape[1] != self.n_units or mask.dtype != np.bool_:
            raise InputError(
                f"A unit mask must be boolean of shape (n, {self.n_units}), got {mask.dtype} of shape "
                f"{mask.shape}. Give one True or False per unit."
            )
        return mask


def check_columns(values: npt.ArrayLike, n_columns: int) -> FloatTable:
    """A table with one number per numeric column, as floats."""
    table = np.asarray(values)
    if table.ndim != 2 or table.shape[1] != n_columns:
        raise InputError(
            f"sum_columns got shape {table.shape}, expected (n, {n_columns}). Give one value per numeric column."
        )
    return table if table.dtype.kind == "f" else table.astype(np.float64)
