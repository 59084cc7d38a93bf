"""Features that are selected together: what every way of grouping them can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer._support import containers
from sointer._support.validation import check_positive_int, check_unique_names, is_integer, some
from sointer.data.images import ImageShape
from sointer.errors import InputError

BoolArray = npt.NDArray[np.bool_]
FloatTable = npt.NDArray[np.floating[Any]]


class Groups(ABC):
    """The units that are chosen or removed whole.

    They are the same for all rows, unless they are superpixels, which every image has of its own: `bind` computes them
    for given rows, and `take` gives those of some of these rows.
    """

    unit_names: list[str]
    unit_of_feature: npt.NDArray[np.int64]
    """The unit of every feature, where it is the same in all rows."""
    unit_of_column: npt.NDArray[np.int64]
    members: list[npt.NDArray[np.int64]]

    @property
    def n_units(self) -> int:
        """How many units there are; a superpixel that an image does not have counts too, and is never chosen."""
        return len(self.unit_names)

    @property
    @abstractmethod
    def spec(self) -> Any:
        """What `make_groups` makes these units from."""

    def bind(self, rows: Any) -> Groups:
        """The units of encoded rows."""
        return self

    def take(self, index: npt.NDArray[np.int64] | slice) -> Groups:
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


@dataclass(frozen=True, eq=False)
class FixedGroups(Groups):
    """Units of features, in the order of their first feature."""

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
    def of(cls, groups: Any, feature_names: Sequence[str], owner: npt.NDArray[np.int64]) -> FixedGroups:
        """From any form that `Groups.build` takes; `owner` is the feature of each numeric column."""
        n_features = len(feature_names)
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
    def spec(self) -> Any:
        """The groups of more than one feature, by name; None if there are none."""
        together = zip(self.unit_names, self.members, strict=True)
        return {name: members.tolist() for name, members in together if len(members) > 1} or None

    def to_columns(self, unit_mask: npt.ArrayLike) -> BoolArray:
        return self._check_mask(unit_mask)[:, self.unit_of_column]

    def to_features(self, unit_mask: npt.ArrayLike) -> BoolArray:
        return self._check_mask(unit_mask)[:, self.unit_of_feature]

    def unit_of_features(self, n_rows: int) -> npt.NDArray[np.integer[Any]]:
        return np.broadcast_to(self.unit_of_feature, (n_rows, len(self.unit_of_feature)))

    @property
    def _are_columns(self) -> bool:
        """Whether every unit is one column, in their order."""
        return np.array_equal(self.unit_of_column, np.arange(len(self.unit_of_column)))

    def any_column(self, column_mask: BoolArray) -> BoolArray:
        """Units with at least one column in the mask: (rows, units)."""
        return column_mask if self._are_columns else super().any_column(column_mask)

    def sum_columns(self, values: npt.ArrayLike) -> FloatTable:
        """Sums over the columns of each unit: (rows, units)."""
        n_columns = len(self.unit_of_column)
        table = check_columns(values, n_columns)
        if self._are_columns:
            return np.array(table)
        shape = (self.n_units, n_columns)
        member = containers.csr_array(
            (np.ones(n_columns, table.dtype), (self.unit_of_column, np.arange(n_columns))), shape
        )
        total: FloatTable = (member @ table.T).T
        return total

    def to_json(self) -> dict[str, Any]:
        return {
            "unit_names": list(self.unit_names),
            "unit_of_feature": self.unit_of_feature.tolist(),
            "column_feature": self.column_feature.tolist(),
        }

    @classmethod
    def restore(cls, data: dict[str, Any]) -> FixedGroups:
        """The inverse of `to_json`."""
        unit_of_feature = np.asarray(data["unit_of_feature"], dtype=np.int64)
        return cls(list(data["unit_names"]), unit_of_feature, np.asarray(data["column_feature"], dtype=np.int64))


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
        parts = np.split(np.argsort(code, kind="stable"), np.cumsum(size)[:-1])
        made = [part.tolist() for part in parts]
    else:
        made = [_members(members, f"number {i}", positions) for i, members in enumerate(groups)]
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
        named = positions.get(str(member))  # labels of a DataFrame may be numbers or tuples
        place = int(member) if is_integer(member) and 0 <= int(member) < len(positions) else named
        if place is None:
            raise InputError(
                f"group {name} holds {member!r}, expected an index from 0 to {len(positions) - 1} or one of "
                f"{some(list(positions))}. Correct or leave out that member."
            )
        if named is not None and named != place:
            raise InputError(
                f"group {name} holds {member!r}, which is the name of one feature and the index of another, "
                f"{list(positions)[place]!r}. Write the name of the feature that you mean, as a string: "
                f"{str(member)!r} or {list(positions)[place]!r}."
            )
        found.append(place)
    return found


@dataclass(frozen=True)
class Patches:
    """Square patches of pixels that are selected together; those at the lower and right edge may be smaller.

    Examples
    --------
    >>> from sointer import Patches
    >>> Patches(4)
    Patches(size=4)
    """

    size: int
    """Height and width of a patch, in pixels."""

    def __post_init__(self) -> None:
        check_positive_int(self.size, "size of Patches")

    def cut(self, image: ImageShape) -> PatchGroups:
        """Divide images of a shape.

        Parameters
        ----------
        image : ImageShape

        Returns
        -------
        PatchGroups
            The patches, as groups of pixels.
        """
        n_across = -(-image.width // self.size)
        n_down = -(-image.height // self.size)
        row, column = np.divmod(np.arange(image.n_pixels), image.width)
        names = [f"patch ({i}, {j})" for i in range(n_down) for j in range(n_across)]
        unit_of_pixel = (row // self.size) * n_across + column // self.size
        return PatchGroups(names, unit_of_pixel, image.column_pixel, patches=self, image=image)


@dataclass(frozen=True, eq=False)
class PatchGroups(FixedGroups):
    """The patches of images of one shape."""

    patches: Patches = field(kw_only=True)
    image: ImageShape = field(kw_only=True)

    @property
    def spec(self) -> Patches:
        return self.patches

    def to_json(self) -> dict[str, Any]:
        return {"patches": asdict(self.patches), "image": asdict(self.image)}
