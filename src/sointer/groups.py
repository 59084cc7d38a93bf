"""Features that stand or fall together: one unit for each group, one for each feature left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer import containers
from sointer.errors import InputError, LoadError
from sointer.validation import _some, check_unique_names, is_integer

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Groups:
    """The units that are chosen or removed whole, in the order of their first feature.

    Examples
    --------
    >>> groups = Groups.build({"colour": ["red", "green"]}, ["red", "size", "green"])
    >>> groups.unit_names, groups.unit_of_feature
    (['colour', 'size'], array([0, 1, 0]))
    """

    unit_names: list[str]
    unit_of_feature: npt.NDArray[np.int64]
    column_feature: npt.NDArray[np.int64]
    unit_of_column: npt.NDArray[np.int64] = field(init=False)
    members: list[npt.NDArray[np.int64]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit_of_column", self.unit_of_feature[self.column_feature])
        order = np.argsort(self.unit_of_feature, kind="stable")
        cuts = np.cumsum(np.bincount(self.unit_of_feature, minlength=self.n_units))[:-1]
        object.__setattr__(self, "members", np.split(order, cuts))

    @classmethod
    def build(cls, groups: Any, feature_names: Sequence[str], column_feature: npt.ArrayLike | None = None) -> Groups:
        """Make units from None (each feature alone), a dict, a list of lists, or one group id per feature.

        Members are feature indices or names; `column_feature` is the feature that owns each numeric column.
        """
        n_features = len(feature_names)
        owner = np.asarray(np.arange(n_features) if column_feature is None else column_feature, dtype=np.int64)
        named = _named_groups(groups, feature_names)
        group_of = np.full(n_features, -1, dtype=np.int64)
        for number, (name, members) in enumerate(named):
            for feature in members:
                if group_of[feature] >= 0:
                    raise InputError(
                        f"groups must not overlap, got feature {feature_names[feature]!r} in both "
                        f"{named[group_of[feature]][0]!r} and {name!r}. Leave each feature in one group only."
                    )
                group_of[feature] = number
        names: list[str] = []
        unit_of_group: dict[int, int] = {}
        unit_of_feature = np.empty(n_features, dtype=np.int64)
        for feature, number in enumerate(group_of.tolist()):
            if number >= 0 and number in unit_of_group:
                unit_of_feature[feature] = unit_of_group[number]
                continue
            if number >= 0:
                unit_of_group[number] = len(names)
            unit_of_feature[feature] = len(names)
            names.append(named[number][0] if number >= 0 else str(feature_names[feature]))
        check_unique_names(names, len(names), "The names of groups and of features outside groups")
        return cls(names, unit_of_feature, owner)

    @property
    def n_units(self) -> int:
        """How many units there are."""
        return len(self.unit_names)

    def to_columns(self, unit_mask: npt.ArrayLike) -> BoolArray:
        """A mask over units (n, n_units) as one over numeric columns (n, n_columns)."""
        return self._spread(unit_mask, self.unit_of_column)

    def to_features(self, unit_mask: npt.ArrayLike) -> BoolArray:
        """A mask over units (n, n_units) as one over features (n, n_features)."""
        return self._spread(unit_mask, self.unit_of_feature)

    def sum_columns(self, values: npt.ArrayLike) -> npt.NDArray[np.floating[Any]]:
        """Add up values of columns (n, n_columns) within each unit: (n, n_units), in the same float dtype."""
        table = np.asarray(values)
        n_columns = len(self.unit_of_column)
        if table.ndim != 2 or table.shape[1] != n_columns:
            raise InputError(
                f"sum_columns got shape {table.shape}, expected (n, {n_columns}). Give one value per numeric column."
            )
        if table.dtype.kind != "f":
            table = table.astype(np.float64)
        if np.array_equal(self.unit_of_column, np.arange(n_columns)):
            return np.array(table)
        shape = (self.n_units, n_columns)
        member = containers.csr_array(
            (np.ones(n_columns, table.dtype), (self.unit_of_column, np.arange(n_columns))), shape
        )
        total: npt.NDArray[np.floating[Any]] = (member @ table.T).T
        return total

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {
            "unit_names": list(self.unit_names),
            "unit_of_feature": self.unit_of_feature.tolist(),
            "column_feature": self.column_feature.tolist(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Groups:
        """The inverse of `to_json`."""
        try:
            unit_of_feature = np.asarray(data["unit_of_feature"], dtype=np.int64)
            owner = np.asarray(data["column_feature"], dtype=np.int64)
            return cls(list(data["unit_names"]), unit_of_feature, owner)
        except (KeyError, TypeError, ValueError, IndexError) as exc:
            raise LoadError(
                f"The saved groups are incomplete or of another version: {exc!r}; expected what "
                "Groups.to_json writes. Save them again with this version."
            ) from exc

    def _spread(self, unit_mask: npt.ArrayLike, unit_of: npt.NDArray[np.int64]) -> BoolArray:
        mask = np.asarray(unit_mask)
        if mask.ndim != 2 or mask.shape[1] != self.n_units or mask.dtype != np.bool_:
            raise InputError(
                f"A unit mask must be boolean of shape (n, {self.n_units}), got {mask.dtype} of shape "
                f"{mask.shape}. Give one True or False per unit."
            )
        return mask[:, unit_of]


def _named_groups(groups: Any, feature_names: Sequence[str]) -> list[tuple[str, list[int]]]:
    """All accepted forms as (name, feature indices) pairs."""
    if groups is None:
        return []
    positions = {feature: j for j, feature in enumerate(feature_names)}
    if isinstance(groups, Mapping):
        return [(str(name), _members(listed, str(name), positions)) for name, listed in groups.items()]
    if isinstance(groups, (str, bytes)) or not hasattr(groups, "__len__"):
        raise InputError(
            f"groups must be a dict of lists, a list of lists, or one group id per feature, got {groups!r}. "
            "For example {'colour': ['red', 'green']}."
        )
    if len(groups) and all(is_integer(group) for group in groups):
        ids = np.asarray(groups, dtype=np.int64)
        if len(ids) != len(feature_names) or ids.min() < 0:
            raise InputError(
                f"groups as an array must give each of {len(feature_names)} features an id of at least 0, "
                f"got {len(ids)} ids from {ids.min()} to {ids.max()}. To name features instead, use a list "
                "of lists."
            )
        _, code, size = np.unique(ids, return_inverse=True, return_counts=True)
        lists: list[Any] = np.split(np.argsort(code, kind="stable"), np.cumsum(size)[:-1])
    else:
        lists = list(groups)
    made = [_members(members, f"number {i}", positions) for i, members in enumerate(lists)]
    return [(_joined([feature_names[j] for j in members]), members) for members in made]


def _joined(names: list[str]) -> str:
    if len(names) <= 3:
        return "+".join(names)
    return f"{names[0]}+{names[1]}+{len(names) - 2} more"


def _members(members: Any, name: str, positions: dict[str, int]) -> list[int]:
    if isinstance(members, (str, bytes)) or not hasattr(members, "__len__") or len(members) == 0:
        raise InputError(
            f"group {name} must be a list of at least one feature index or name, got {members!r}. List its features."
        )
    found = []
    for member in members:
        index = positions.get(member, -1) if isinstance(member, str) else member
        if not is_integer(index) or not 0 <= int(index) < len(positions):
            raise InputError(
                f"group {name} holds {member!r}, expected an index from 0 to {len(positions) - 1} or one of "
                f"{_some(list(positions))}. Correct or leave out that member."
            )
        found.append(int(index))
    return found
