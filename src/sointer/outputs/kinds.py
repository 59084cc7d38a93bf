"""What an output is: labels, probabilities or numbers; how to encode them and when two agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer.errors import BlackBoxError, InputError, LoadError
from sointer.inputs.image import pixel_names
from sointer.outputs.labels import Classes, Label, column_labels, pack, table_labels, unpack
from sointer.outputs.reading import (
    Kind,
    Table,
    as_numbers,
    as_probabilities,
    check_codes,
    check_kind,
    check_table,
    infer_kind,
    make_classes,
    only_values,
    values_seen,
)
from sointer.outputs.regions import NO_REGIONS, Regions, at_targets, majority
from sointer.validation import _some, check_unique_names

DEFAULT_TOLERANCE = 0.1  # continuous replies within this share of a standard deviation count as the same answer


@dataclass(frozen=True, eq=False)
class Outputs:
    """The kind, names and classes of a black box's outputs.

    - "binary": at most two labels per output.
    - "categorical": each output has its own classes, with labels of any type.
    - "probability": floats in [0, 1]; the label is 1 above 0.5, as scikit-learn decides.
    - "continuous": numbers, standardised by `center` and `scale`; two agree when they differ by at most
      `tolerance` (by default 0.1) of the output's standard deviation.

    `seen` holds, for each output, the only value seen so far, or None once it has varied. Where the outputs are
    masks, `shape` is their height and width; every pixel is an output, and all pixels share one set of labels.

    Examples
    --------
    >>> outputs = Outputs.infer(np.array([["cat", "x"], ["dog", "y"], ["dog", "x"]]))
    >>> outputs.kind, outputs.encode(np.array([["dog", "x"]]))
    ('binary', array([[1, 0]]))
    """

    kind: Kind
    names: list[str]
    label_sets: list[Classes] | None
    seen: tuple[Label | None, ...]
    center: npt.NDArray[np.float64] | None = None
    scale: npt.NDArray[np.float64] | None = None
    tolerance: float | None = None
    shape: tuple[int, int] | None = None

    @classmethod
    def infer(
        cls,
        Y: npt.ArrayLike,
        names: Sequence[str] | None = None,
        kind: str | None = None,
        tolerance: float | None = None,
        shape: tuple[int, int] | None = None,
    ) -> Outputs:
        """Decide what the outputs are from observed replies (n samples, n outputs), unless `kind` says.

        `shape` is the height and width of masks.
        """
        table = check_table(Y)
        n_outputs = table.shape[1]
        default = [f"y{j}" for j in range(n_outputs)] if shape is None else pixel_names(shape)
        checked = check_unique_names(default if names is None else names, n_outputs, "output_names")
        values = values_seen(table, shared=shape is not None)
        decided = infer_kind(table, values) if kind is None else check_kind(kind, table, values)
        seen = only_values(table, values)
        if decided != "continuous":
            if tolerance is not None:
                raise InputError(
                    f"tolerance is for continuous outputs, got {tolerance!r} with {decided} ones. "
                    "Leave it out, or set output_kind='continuous'."
                )
            classes = make_classes(decided, values)
            return cls(decided, checked, classes if shape is None else classes * n_outputs, seen, shape=shape)
        share = DEFAULT_TOLERANCE if tolerance is None else tolerance
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < np.inf:
            raise InputError(
                f"tolerance must be a number of at least 0, got {tolerance!r}. "
                "Give the share of each output's standard deviation that counts as no change."
            )
        numbers = table.astype(np.float64)
        scale = numbers.std(axis=0)
        scale[(scale == 0) | [one is not None for one in seen]] = 1.0
        return cls(decided, checked, None, seen, numbers.mean(axis=0), scale, float(share), shape)

    @property
    def n_outputs(self) -> int:
        """How many outputs there are."""
        return len(self.names)

    @property
    def classes(self) -> list[npt.NDArray[Any]] | None:
        """The labels of each output in the order of their codes; None for continuous outputs."""
        if self.shared is not None:
            return [self.shared.values()] * self.n_outputs
        return None if self.label_sets is None else [one.values() for one in self.label_sets]

    @cached_property
    def shared(self) -> Classes | None:
        """The labels of all outputs, if all have the same: then a whole table is encoded at once."""
        if self.label_sets is None:
            return None
        first = self.label_sets[0]
        return first if all(one is first or one == first for one in self.label_sets) else None

    @property
    def n_classes(self) -> list[int]:
        """How many classes each output has; 1 for continuous outputs, which take one number."""
        return [1] * self.n_outputs if self.label_sets is None else [len(one) for one in self.label_sets]

    @cached_property
    def constant(self) -> npt.NDArray[np.bool_]:
        """For each output, whether only one value of it was ever seen: (n_outputs,)."""
        return np.array([one is not None for one in self.seen], dtype=bool)

    def encode(self, Y: npt.ArrayLike) -> npt.NDArray[Any]:
        """Replies (n, n_outputs) as class indices (int64), or as standardised float32 if continuous."""
        table = self._check(Y)
        if self.kind == "continuous":
            center, scale = self._moments()
            return ((as_numbers(table) - center) / scale).astype(np.float32)
        if self.kind == "probability":
            return (as_probabilities(table) > 0.5).astype(np.int64)
        assert self.label_sets is not None
        if table.dtype.kind in "biuf" and self.shared is not None and self.shared.is_zero_one:
            plain = table.astype(np.int64)
            if np.array_equal(plain, table) and plain.min(initial=0) >= 0 and plain.max(initial=0) <= 1:
                return plain
        codes = self._codes(table)
        unknown = np.flatnonzero((codes < 0).any(axis=0))
        if len(unknown):
            j = int(unknown[0])
            new = column_labels(table[codes[:, j] < 0, j])
            raise BlackBoxError(
                f"Output {self.names[j]!r} has new labels {_some(new)}, expected one of "
                f"{_some(self.label_sets[j].labels)}. Fit on data where every class occurs, or extend the classes "
                "with with_new_labels(Y)."
            )
        return codes

    def _codes(self, table: Table) -> npt.NDArray[np.int64]:
        """Class indices, -1 for labels never seen before."""
        assert self.label_sets is not None
        if self.shared is not None:
            return self.shared.encode(table.ravel()).reshape(table.shape)
        return np.stack([known.encode(table[:, j]) for j, known in enumerate(self.label_sets)], axis=1)

    def encode_targets(
        self, Y: npt.ArrayLike, targets: npt.NDArray[np.int64], regions: Regions = NO_REGIONS
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Each row's target as `encode` has it, and where that can be: labels never seen before cannot be encoded.

        A target that is a region has the label of most of its pixels, or their mean.
        """
        table = self._check(Y)
        if (targets >= self.n_outputs).any():
            return self._encode_regions(table, targets, regions)
        at = (np.arange(len(table)), targets)
        if self.label_sets is None or self.kind == "probability":
            return self.encode(table)[at], np.ones(len(table), dtype=bool)
        if self.shared is not None:
            codes = self.shared.encode(table[at])
            return np.maximum(codes, 0), codes >= 0
        codes = np.full(len(table), -1, dtype=np.int64)
        for target in np.unique(targets):
            rows = targets == target
            codes[rows] = self.label_sets[target].encode(table[rows, target])
        return np.maximum(codes, 0), codes >= 0

    def _encode_regions(
        self, table: Table, targets: npt.NDArray[np.int64], regions: Regions
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        if self.kind == "continuous":
            center, scale = self.target_moments(targets, regions)
            values = (at_targets(as_numbers(table), targets, regions) - center) / scale
            return values.astype(np.float32), np.ones(len(table), dtype=bool)
        codes = self.encode(table) if self.kind == "probability" else self._codes(table)
        chosen = majority(codes, targets, regions)
        return np.maximum(chosen, 0), chosen >= 0

    def target_moments(
        self, targets: npt.NDArray[np.int64], regions: Regions = NO_REGIONS
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Center and scale of continuous targets; of a region, the means of those of its pixels: two of (targets,)."""
        shape = (len(targets), self.n_outputs)
        center, scale = (at_targets(np.broadcast_to(part, shape), targets, regions) for part in self._moments())
        return center, scale

    def label_targets(
        self, codes: npt.NDArray[Any], targets: npt.NDArray[np.int64], regions: Regions = NO_REGIONS
    ) -> npt.NDArray[Any]:
        """What `encode_targets` gave, in the black box's own terms: (targets,), as objects."""
        labels = np.empty(len(targets), dtype=object)
        if self.kind == "continuous":
            center, scale = self.target_moments(targets, regions)
            labels[:] = center + scale * codes.astype(np.float64)
        elif self.shared is not None:
            labels[:] = np.asarray(self.shared.values(), dtype=object)[codes]
        elif self.label_sets is not None:
            for target in np.unique(targets):
                rows = targets == target
                labels[rows] = np.asarray(self.label_sets[target].values(), dtype=object)[codes[rows]]
        return labels

    def decode(self, codes: npt.ArrayLike) -> Table:
        """The inverse of `encode`; probabilities come back as the labels 0.0 and 1.0."""
        table = self._check(codes)
        if self.kind == "continuous":
            center, scale = self._moments()
            return np.asarray(table.astype(np.float64) * scale + center)
        if self.kind == "probability":
            return table.astype(np.float64)
        assert self.label_sets is not None
        if self.shared is not None:
            check_codes(table, self.shared, self.names[0])
            return np.asarray(self.shared.values()[table])
        columns = []
        for j, known in enumerate(self.label_sets):
            check_codes(table[:, j], known, self.names[j])
            columns.append(known.values()[table[:, j]])
        if len({column.dtype.kind for column in columns}) > 1:
            columns = [column.astype(object) for column in columns]
        return np.column_stack(columns)

    def with_new_labels(self, Y: npt.ArrayLike) -> Outputs:
        """The same outputs knowing also what Y (n, n_outputs) shows; the codes so far keep their meaning."""
        table = self._check(Y)
        if self.shape is not None:
            return self._masks_with_new_labels(table)
        values = [column_labels(table[:, j]) for j in range(self.n_outputs)]
        seen = tuple(
            old if not found or (len(found) == 1 and found[0] == old) else None
            for old, found in zip(self.seen, values, strict=True)
        )
        if self.kind in ("continuous", "probability") or self.label_sets is None:
            return replace(self, seen=seen)
        classes = [known.extend(found) for known, found in zip(self.label_sets, values, strict=True)]
        wider = self.kind == "binary" and any(len(one) > 2 for one in classes)
        return replace(self, kind="categorical" if wider else self.kind, label_sets=classes, seen=seen)

    def _masks_with_new_labels(self, table: Table) -> Outputs:
        if len(table) == 0:
            return self
        now = only_values(table, values_seen(table, shared=True))
        seen = tuple(old if old == new else None for old, new in zip(self.seen, now, strict=True))
        if self.kind in ("continuous", "probability") or self.shared is None:
            return replace(self, seen=seen)
        classes = self.shared.extend(table_labels(table))
        wider = self.kind == "binary" and len(classes) > 2
        kind: Kind = "categorical" if wider else self.kind
        return replace(self, kind=kind, label_sets=[classes] * self.n_outputs, seen=seen)

    def agree(self, Y_a: npt.ArrayLike, Y_b: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether two tables of replies give the same answer, output by output: (n, n_outputs)."""
        a, b = self._check_pair(Y_a, Y_b)
        if self.kind == "continuous":
            assert self.tolerance is not None
            # The slack lets a difference of exactly the tolerance pass in spite of rounding.
            return np.asarray(self.difference(a, b) <= self.tolerance * (1 + 1e-9))
        if self.kind == "probability":
            return np.asarray((as_probabilities(a) > 0.5) == (as_probabilities(b) > 0.5))
        if (a.dtype.kind in "biuf") != (b.dtype.kind in "biuf") or "O" in (a.dtype.kind, b.dtype.kind):
            a, b = a.astype(object), b.astype(object)  # numpy refuses to compare strings with numbers
        return np.asarray(a == b, dtype=bool)

    def difference(self, Y_a: npt.ArrayLike, Y_b: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """How far two tables of replies are apart: 0 or 1 for labels, |p - q|, or |a - b| in deviations."""
        a, b = self._check_pair(Y_a, Y_b)
        if self.kind == "continuous":
            _, scale = self._moments()
            return np.asarray(np.abs(as_numbers(a) - as_numbers(b)) / scale)
        if self.kind == "probability":
            return np.asarray(np.abs(as_probabilities(a) - as_probabilities(b)))
        return (~self.agree(a, b)).astype(np.float64)

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {
            "kind": self.kind,
            "names": list(self.names),
            "classes": self._classes_to_json(),
            "seen": [pack(one) for one in self.seen],
            "center": None if self.center is None else self.center.tolist(),
            "scale": None if self.scale is None else self.scale.tolist(),
            "tolerance": self.tolerance,
            "shape": None if self.shape is None else list(self.shape),
        }

    def _classes_to_json(self) -> list[Any] | None:
        """One list of labels per output; of masks, one for all."""
        if self.label_sets is None:
            return None
        return [one.to_json() for one in (self.label_sets if self.shape is None else self.label_sets[:1])]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outputs:
        """The inverse of `to_json`."""
        try:
            names, classes = list(data["names"]), data["classes"]
            shape = None if data.get("shape") is None else (int(data["shape"][0]), int(data["shape"][1]))
            label_sets = None if classes is None else [Classes.from_json(one) for one in classes]
            return cls(
                data["kind"],
                names,
                label_sets if shape is None or label_sets is None else label_sets * len(names),
                tuple(unpack(one) for one in data["seen"]),
                None if data["center"] is None else np.asarray(data["center"], dtype=np.float64),
                None if data["scale"] is None else np.asarray(data["scale"], dtype=np.float64),
                data["tolerance"],
                shape,
            )
        except (KeyError, TypeError, ValueError, IndexError) as exc:
            raise LoadError(
                f"The saved outputs are incomplete or of another version: {exc!r}; expected what "
                "Outputs.to_json writes. Save them again with this version."
            ) from exc

    def _moments(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        assert self.center is not None
        assert self.scale is not None
        return self.center, self.scale

    def _check(self, Y: npt.ArrayLike) -> Table:
        table = np.asarray(Y)
        if table.ndim != 2 or table.shape[1] != self.n_outputs:
            raise InputError(f"Y has shape {table.shape}, expected (n, {self.n_outputs}). Give one column per output.")
        return table

    def _check_pair(self, Y_a: npt.ArrayLike, Y_b: npt.ArrayLike) -> tuple[Table, Table]:
        a, b = self._check(Y_a), self._check(Y_b)
        if a.shape != b.shape:
            raise InputError(
                f"Two tables of replies have shapes {a.shape} and {b.shape}, expected the same. Compare equal rows."
            )
        return a, b
