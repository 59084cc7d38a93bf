"""What an output is: labels, probabilities or numbers; how to encode them and when two agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer._support import cached_property
from sointer._support.validation import some
from sointer.data.labels import Classes, Label, Quantiles, column_labels, pack, table_labels, unpack
from sointer.data.reading import (
    GRADED,
    Kind,
    Table,
    as_numbers,
    as_probabilities,
    check_codes,
    equal_values,
    infer_fields,
    only_values,
    values_seen,
)
from sointer.data.targets import NO_REGIONS, Regions, at_targets, majority
from sointer.errors import BlackBoxError, InputError, LoadError


@dataclass(frozen=True, eq=False)
class Outputs:
    """The kind, names and classes of each of a black box's outputs.

    - "binary": at most two labels.
    - "categorical": classes of its own, with labels of any type.
    - "probability": a float in [0, 1]; its label is 1 above 0.5, as scikit-learn decides.
    - "continuous": a number, which counts by its quantile among those seen; two agree when they differ by at most
      `tolerance` (by default 0.1) of the output's standard deviation.

    The last two are *graded*. `seen` holds, for each output, the only value seen so far, or None once it has varied.
    Where the outputs are masks, `shape` is their height and width; every pixel is an output, and all pixels share one
    kind and one set of labels.

    Examples
    --------
    >>> outputs = Outputs.infer(np.array([["cat", "x"], ["dog", "y"], ["dog", "x"]]))
    >>> outputs.kind, outputs.encode(np.array([["dog", "x"]]))
    ('binary', array([[1, 0]]))
    """

    kinds: tuple[Kind, ...]
    names: list[str]
    label_sets: list[Classes | None]
    """The labels of each output; None for numbers."""
    seen: tuple[Label | None, ...]
    quantiles: list[Quantiles | None]
    """Of outputs that are numbers: how they are distributed."""
    tolerance: float | None = None
    shape: tuple[int, int] | None = None

    @classmethod
    def infer(
        cls,
        Y: npt.ArrayLike,
        names: Sequence[str] | None = None,
        kind: Any = None,
        tolerance: float | None = None,
        shape: tuple[int, int] | None = None,
    ) -> Outputs:
        """Decide what the outputs are from observed replies (n samples, n outputs), unless `kind` says.

        `kind` is one for all outputs, a list with one for each (None where it is to be inferred), or a dictionary by
        name. `shape` is the height and width of masks.
        """
        return cls(**infer_fields(Y, names, kind, tolerance, shape))

    @property
    def kind(self) -> str:
        """The kind of all outputs; "mixed" if they differ."""
        return self.kinds[0] if len(set(self.kinds)) == 1 else "mixed"

    @cached_property
    def graded(self) -> npt.NDArray[np.bool_]:
        """Which outputs are probabilities or numbers: (n_outputs,)."""
        return np.array([kind in GRADED for kind in self.kinds])

    @property
    def n_outputs(self) -> int:
        """How many outputs there are."""
        return len(self.names)

    @cached_property
    def shared(self) -> Classes | None:
        """The labels of all outputs, if none is graded and all have the same: then a table is encoded at once."""
        first = self.label_sets[0]
        if self.graded.any() or first is None:
            return None
        return first if all(one is first or one == first for one in self.label_sets) else None

    @property
    def all_labels(self) -> set[Label]:
        """The labels of all outputs that are not graded."""
        sets = zip(self.label_sets, self.graded, strict=True)
        return {label for known, graded in sets if known is not None and not graded for label in known.labels}

    @property
    def n_classes(self) -> list[int]:
        """How many classes each output has; numbers have two, low and high."""
        return [2 if one is None else len(one) for one in self.label_sets]

    @cached_property
    def constant(self) -> npt.NDArray[np.bool_]:
        """For each output, whether only one value of it was ever seen: (n_outputs,)."""
        return np.array([one is not None for one in self.seen], dtype=bool)

    @cached_property
    def scale(self) -> npt.NDArray[np.float64]:
        """The standard deviation of each output that is a number, outliers left out; 1 for the others."""
        return np.array([1.0 if one is None else one.deviation for one in self.quantiles])

    @cached_property
    def middle(self) -> npt.NDArray[np.float64]:
        """The code above which an output counts as high: of numbers, that of their median; 0.5 for the others."""
        return np.array([0.5 if one is None else one.middle for one in self.quantiles])

    @property
    def center(self) -> npt.NDArray[np.float64]:
        """The median of each output that is a number; 0.5 for the others."""
        return np.array([0.5 if one is None else float(one.decode(np.array(one.middle))) for one in self.quantiles])

    def encode(self, Y: npt.ArrayLike) -> npt.NDArray[Any]:
        """Outputs (n, n_outputs) as codes: class indices (int64) where all outputs are labels.

        Where some are graded, as float32: probabilities as they are, numbers as quantiles, labels as class indices.
        """
        table = self._check(Y)
        if not self.graded.any():
            return self._label_codes(table)
        codes = np.empty(table.shape, dtype=np.float32)
        for columns, part in self._by_kind(table):
            is_label = isinstance(part, str)
            codes[:, columns] = self._label_codes(table[:, columns], columns) if is_label else part
        return codes

    def label_probabilities(self, classes: Sequence[Table], table: Table) -> npt.NDArray[np.float32] | None:
        """Probabilities of all classes of a model as those of the labels known here; None if outputs are graded."""
        if self.graded.any():
            return None
        parts, start = [], 0
        for known, own in zip(self.label_sets, classes, strict=True):
            assert known is not None
            codes, columns = known.encode(own), table[:, start : start + len(own)]
            part = np.zeros((len(table), len(known)), dtype=np.float32)
            part[:, codes[codes >= 0]] = columns[:, codes >= 0]
            parts.append(part / np.maximum(part.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny))
            start += len(own)
        return np.concatenate(parts, axis=1)

    def labels(self, Y: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Outputs (n, n_outputs) as class indices; graded outputs are 1 above one half, numbers above their median."""
        codes = self.encode(Y)
        return codes if codes.dtype.kind == "i" else np.where(self.graded, codes > self.middle, codes).astype(np.int64)

    def _by_kind(self, table: Table) -> Iterator[tuple[npt.NDArray[np.int64], Any]]:
        """Columns of labels, of probabilities and of numbers; the graded ones with their codes."""
        kinds = np.array(self.kinds)
        if not self.graded.all():
            yield np.flatnonzero(~self.graded), "labels"
        columns = np.flatnonzero(kinds == "probability")
        if len(columns):
            yield columns, as_probabilities(table[:, columns])
        for j in np.flatnonzero(kinds == "continuous").tolist():
            known = self.quantiles[j]
            assert known is not None
            yield np.array([j]), known.encode(as_numbers(table[:, [j]]))

    def _label_codes(self, table: Table, columns: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
        """Class indices of a table of labels; labels never seen before are refused."""
        if columns is None and table.dtype.kind in "biuf" and self.shared is not None and self.shared.is_zero_one:
            plain = table.astype(np.int64)
            if np.array_equal(plain, table) and plain.min(initial=0) >= 0 and plain.max(initial=0) <= 1:
                return plain
        index = range(self.n_outputs) if columns is None else columns.tolist()
        codes = self._codes(table, index)
        unknown = np.flatnonzero((codes < 0).any(axis=0))
        if len(unknown):
            place = int(unknown[0])
            j = list(index)[place]
            new, known = column_labels(table[codes[:, place] < 0, place]), self.label_sets[j]
            assert known is not None
            raise BlackBoxError(
                f"Output {self.names[j]!r} has new labels {some(new)}, expected one of "
                f"{some(known.labels)}. Fit on data where every class occurs, or extend the classes "
                "with with_new_labels(Y)."
            )
        return codes

    def _codes(self, table: Table, index: Iterable[int]) -> npt.NDArray[np.int64]:
        """Class indices of the outputs in `index`, -1 for labels never seen before."""
        if self.shared is not None:
            return self.shared.encode(table.ravel()).reshape(table.shape)
        columns = []
        for place, j in enumerate(index):
            known = self.label_sets[j]
            assert known is not None
            columns.append(known.encode(table[:, place]))
        return np.stack(columns, axis=1)

    def knows(self, Y: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Rows all of whose labels are known: (n,)."""
        table = self._check(Y)
        if self.graded.all():
            return np.ones(len(table), dtype=bool)
        index = np.flatnonzero(~self.graded)
        return np.asarray((self._codes(table[:, index], index.tolist()) >= 0).all(axis=1))

    def encode_targets(
        self,
        Y: npt.ArrayLike,
        targets: npt.NDArray[np.int64],
        regions: Regions = NO_REGIONS,
        sample: npt.NDArray[np.int64] | None = None,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Each target as `encode` has it (of a region, the label of most pixels, or their mean), and where that can be.

        Labels never seen before cannot be encoded. `sample`: the row of Y of each target; default, one after the other.
        """
        table = self._check(Y)
        sample = np.arange(len(table)) if sample is None else sample
        if (targets >= self.n_outputs).any():
            return self._encode_regions(table[sample], targets, regions)
        if self.graded.all():
            return self.encode(table)[sample, targets], np.ones(len(targets), dtype=bool)
        if self.shared is not None:
            codes = self.shared.encode(table[sample, targets])
            return np.maximum(codes, 0), codes >= 0
        codes = np.full(len(targets), -1, dtype=np.float32 if self.graded.any() else np.int64)
        for target in np.unique(targets):
            rows, known = targets == target, self.label_sets[target]
            own, is_number = table[sample[rows], target], self.graded[target]
            codes[rows] = self._graded_codes(own, int(target)) if is_number or known is None else known.encode(own)
        return np.maximum(codes, 0), codes >= 0

    def _graded_codes(self, column: Table, output: int) -> npt.NDArray[np.float64]:
        known = self.quantiles[output]
        return as_probabilities(column) if known is None else known.encode(as_numbers(column))

    def _encode_regions(
        self, table: Table, targets: npt.NDArray[np.int64], regions: Regions
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        if self.graded.any():
            return at_targets(self.encode(table), targets, regions), np.ones(len(table), dtype=bool)
        chosen = majority(self._codes(table, range(self.n_outputs)), targets, regions)
        return np.maximum(chosen, 0), chosen >= 0

    def label_targets(self, codes: npt.NDArray[Any], targets: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """What `encode_targets` gave, in the black box's own terms: (targets,), as objects."""
        labels = np.empty(len(targets), dtype=object)
        if self.shared is not None:
            labels[:] = np.asarray(self.shared.values(), dtype=object)[codes.astype(np.int64)]
            return labels
        for target in np.unique(targets):
            rows, first = targets == target, int(min(target, self.n_outputs - 1))
            labels[rows] = self._decode_column(codes[rows], first).tolist()
        return labels

    def _decode_column(self, codes: npt.NDArray[Any], output: int) -> npt.NDArray[Any]:
        known, numbers = self.label_sets[output], self.quantiles[output]
        if numbers is not None:
            return numbers.decode(codes)
        if self.kinds[output] == "probability" or known is None:
            return np.asarray(codes, dtype=np.float64)
        whole = codes if codes.dtype.kind in "iu" else codes.astype(np.int64)
        check_codes(whole, known, self.names[output])
        return np.asarray(known.values()[whole])

    def decode(self, codes: npt.ArrayLike) -> Table:
        """The inverse of `encode`."""
        table = self._check(codes)
        if self.shared is not None:
            check_codes(table, self.shared, self.names[0])
            return np.asarray(self.shared.values()[table])
        columns = [self._decode_column(table[:, j], j) for j in range(self.n_outputs)]
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
        classes = [
            known if known is None or graded else known.extend(found)
            for known, found, graded in zip(self.label_sets, values, self.graded, strict=True)
        ]
        kinds: list[Kind] = []
        for kind, one in zip(self.kinds, classes, strict=True):
            kinds.append("categorical" if kind == "binary" and one is not None and len(one) > 2 else kind)
        return replace(self, kinds=tuple(kinds), label_sets=classes, seen=seen)

    def _masks_with_new_labels(self, table: Table) -> Outputs:
        if len(table) == 0:
            return self
        now = only_values(table, values_seen(table, shared=True))
        seen = tuple(old if old == new else None for old, new in zip(self.seen, now, strict=True))
        if self.shared is None:
            return replace(self, seen=seen)
        classes = self.shared.extend(table_labels(table))
        wider = self.kind == "binary" and len(classes) > 2
        categorical: Kind = "categorical"
        kinds = (categorical,) * self.n_outputs if wider else self.kinds
        return replace(self, kinds=kinds, label_sets=[classes] * self.n_outputs, seen=seen)

    def agree(self, Y_a: npt.ArrayLike, Y_b: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether two tables of replies give the same answer, output by output: (n, n_outputs)."""
        a, b = self._check_pair(Y_a, Y_b)
        if not self.graded.any():
            return equal_values(a, b)
        same = np.empty(a.shape, dtype=bool)
        kinds = np.array(self.kinds)
        columns = np.flatnonzero(~self.graded)
        same[:, columns] = equal_values(a[:, columns], b[:, columns])
        columns = np.flatnonzero(kinds == "probability")
        same[:, columns] = (as_probabilities(a[:, columns]) > 0.5) == (as_probabilities(b[:, columns]) > 0.5)
        columns = np.flatnonzero(kinds == "continuous")
        if len(columns):
            assert self.tolerance is not None
            apart = np.abs(as_numbers(a[:, columns]) - as_numbers(b[:, columns])) / self.scale[columns]
            # The slack lets a difference of exactly the tolerance pass in spite of rounding.
            same[:, columns] = apart <= self.tolerance * (1 + 1e-9)
        return same

    def difference(self, Y_a: npt.ArrayLike, Y_b: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """How far two tables of replies are apart: 0 or 1 for labels, |p - q|, or |a - b| in deviations."""
        a, b = self._check_pair(Y_a, Y_b)
        apart = np.empty(a.shape, dtype=np.float64)
        columns = np.flatnonzero(~self.graded)
        apart[:, columns] = ~equal_values(a[:, columns], b[:, columns])
        columns = np.flatnonzero(self.graded)
        if len(columns):
            apart[:, columns] = np.abs(as_numbers(a[:, columns]) - as_numbers(b[:, columns])) / self.scale[columns]
        return apart

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        n_kept = self.n_outputs if self.shape is None else 1  # all pixels of masks are alike
        labels = [None if one is None else one.to_json() for one in self.label_sets[:n_kept]]
        return {
            "kinds": list(self.kinds[:n_kept]),
            "names": list(self.names),
            "classes": labels,
            "seen": [pack(one) for one in self.seen],
            "quantiles": [None if one is None else one.to_json() for one in self.quantiles],
            "tolerance": self.tolerance,
            "shape": None if self.shape is None else list(self.shape),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outputs:
        """The inverse of `to_json`."""
        try:
            names = list(data["names"])
            shape = None if data.get("shape") is None else (int(data["shape"][0]), int(data["shape"][1]))
            n_times = 1 if shape is None else len(names)
            classes = [None if one is None else Classes.from_json(one) for one in data["classes"]]
            return cls(
                tuple(data["kinds"]) * n_times,
                names,
                classes * n_times,
                tuple(unpack(one) for one in data["seen"]),
                [None if one is None else Quantiles.from_json(one) for one in data["quantiles"]],
                data["tolerance"],
                shape,
            )
        except (KeyError, TypeError, ValueError, IndexError) as exc:
            raise LoadError(
                f"The saved outputs are incomplete or of another version: {exc!r}; expected what "
                "Outputs.to_json writes. Save them again with this version."
            ) from exc

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
