"""What an output is: labels, probabilities or numbers; how to encode them and when two agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sointer.errors import BlackBoxError, InputError, LoadError
from sointer.outputs.labels import Classes, Label, column_labels, pack, unpack
from sointer.validation import _some, check_unique_names

Kind = Literal["binary", "categorical", "probability", "continuous"]
KINDS: tuple[Kind, ...] = ("binary", "categorical", "probability", "continuous")
Table = npt.NDArray[Any]

MOST_CLASSES = 32
DEFAULT_TOLERANCE = 0.1  # continuous replies within this share of a standard deviation count as the same answer


@dataclass(frozen=True, eq=False)
class Outputs:
    """The kind, names and classes of a black box's outputs.

    - "binary": at most two labels per output.
    - "categorical": each output has its own classes, with labels of any type.
    - "probability": floats in [0, 1]; the label is 1 above 0.5, as scikit-learn decides.
    - "continuous": numbers, standardised by `center` and `scale`; two agree when they differ by at most
      `tolerance` (by default 0.1) of the output's standard deviation.

    `seen` holds, for each output, the only value seen so far, or None once it has varied.

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

    @classmethod
    def infer(
        cls,
        Y: npt.ArrayLike,
        names: Sequence[str] | None = None,
        kind: str | None = None,
        tolerance: float | None = None,
    ) -> Outputs:
        """Decide what the outputs are from observed replies (n samples, n outputs), unless `kind` says."""
        table = _check_table(Y)
        n_outputs = table.shape[1]
        default = [f"y{j}" for j in range(n_outputs)]
        checked = check_unique_names(default if names is None else names, n_outputs, "output_names")
        values = [column_labels(table[:, j]) for j in range(n_outputs)]
        decided = _infer_kind(table, values) if kind is None else _check_kind(kind, table, values)
        seen = tuple(found[0] if len(found) == 1 else None for found in values)
        if decided != "continuous":
            if tolerance is not None:
                raise InputError(
                    f"tolerance is for continuous outputs, got {tolerance!r} with {decided} ones. "
                    "Leave it out, or set output_kind='continuous'."
                )
            return cls(decided, checked, _make_classes(decided, values), seen)
        share = DEFAULT_TOLERANCE if tolerance is None else tolerance
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < np.inf:
            raise InputError(
                f"tolerance must be a number of at least 0, got {tolerance!r}. "
                "Give the share of each output's standard deviation that counts as no change."
            )
        numbers = table.astype(np.float64)
        scale = numbers.std(axis=0)
        scale[(scale == 0) | [one is not None for one in seen]] = 1.0
        return cls(decided, checked, None, seen, numbers.mean(axis=0), scale, float(share))

    @property
    def n_outputs(self) -> int:
        """How many outputs there are."""
        return len(self.names)

    @property
    def classes(self) -> list[npt.NDArray[Any]] | None:
        """The labels of each output in the order of their codes; None for continuous outputs."""
        return None if self.label_sets is None else [one.values() for one in self.label_sets]

    @property
    def n_classes(self) -> list[int]:
        """How many classes each output has; 1 for continuous outputs, which take one number."""
        return [1] * self.n_outputs if self.label_sets is None else [len(one) for one in self.label_sets]

    @property
    def constant(self) -> npt.NDArray[np.bool_]:
        """For each output, whether only one value of it was ever seen: (n_outputs,)."""
        return np.array([one is not None for one in self.seen], dtype=bool)

    def encode(self, Y: npt.ArrayLike) -> npt.NDArray[Any]:
        """Replies (n, n_outputs) as class indices (int64), or as standardised float32 if continuous."""
        table = self._check(Y)
        if self.kind == "continuous":
            center, scale = self._moments()
            return ((self._numbers(table) - center) / scale).astype(np.float32)
        if self.kind == "probability":
            return (self._probabilities(table) > 0.5).astype(np.int64)
        assert self.label_sets is not None
        if table.dtype.kind in "biuf" and all(one.is_zero_one for one in self.label_sets):
            plain = table.astype(np.int64)
            if np.array_equal(plain, table) and plain.min(initial=0) >= 0 and plain.max(initial=0) <= 1:
                return plain
        codes = np.empty(table.shape, dtype=np.int64)
        for j, known in enumerate(self.label_sets):
            codes[:, j] = known.encode(table[:, j])
            if (codes[:, j] < 0).any():
                new = column_labels(table[codes[:, j] < 0, j])
                raise BlackBoxError(
                    f"Output {self.names[j]!r} has new labels {_some(new)}, expected one of "
                    f"{_some(known.labels)}. Fit on data where every class occurs, or extend the classes "
                    "with with_new_labels(Y)."
                )
        return codes

    def encode_targets(
        self, Y: npt.ArrayLike, targets: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Each row's target as `encode` has it, and where that can be: labels never seen before cannot be encoded."""
        table = self._check(Y)
        at = (np.arange(len(table)), targets)
        if self.label_sets is None or self.kind == "probability":
            return self.encode(table)[at], np.ones(len(table), dtype=bool)
        codes = np.full(len(table), -1, dtype=np.int64)
        for target in np.unique(targets):
            rows = targets == target
            codes[rows] = self.label_sets[target].encode(table[rows, target])
        return np.maximum(codes, 0), codes >= 0

    def decode(self, codes: npt.ArrayLike) -> Table:
        """The inverse of `encode`; probabilities come back as the labels 0.0 and 1.0."""
        table = self._check(codes)
        if self.kind == "continuous":
            center, scale = self._moments()
            return np.asarray(table.astype(np.float64) * scale + center)
        if self.kind == "probability":
            return table.astype(np.float64)
        assert self.label_sets is not None
        columns = []
        for j, known in enumerate(self.label_sets):
            column = table[:, j]
            if column.dtype.kind not in "iu" or column.min(initial=0) < 0 or column.max(initial=0) >= len(known):
                raise InputError(
                    f"decode got values outside the {len(known)} classes of output {self.names[j]!r}, "
                    f"expected integers from 0 to {len(known) - 1}. Give codes as encode returns them."
                )
            columns.append(known.values()[column])
        if len({column.dtype.kind for column in columns}) > 1:
            columns = [column.astype(object) for column in columns]
        return np.column_stack(columns)

    def with_new_labels(self, Y: npt.ArrayLike) -> Outputs:
        """The same outputs knowing also what Y (n, n_outputs) shows; the codes so far keep their meaning."""
        table = self._check(Y)
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

    def agree(self, Y_a: npt.ArrayLike, Y_b: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether two tables of replies give the same answer, output by output: (n, n_outputs)."""
        a, b = self._check_pair(Y_a, Y_b)
        if self.kind == "continuous":
            assert self.tolerance is not None
            # The slack lets a difference of exactly the tolerance pass in spite of rounding.
            return np.asarray(self.difference(a, b) <= self.tolerance * (1 + 1e-9))
        if self.kind == "probability":
            return np.asarray((self._probabilities(a) > 0.5) == (self._probabilities(b) > 0.5))
        if (a.dtype.kind in "biuf") != (b.dtype.kind in "biuf") or "O" in (a.dtype.kind, b.dtype.kind):
            a, b = a.astype(object), b.astype(object)  # numpy refuses to compare strings with numbers
        return np.asarray(a == b, dtype=bool)

    def difference(self, Y_a: npt.ArrayLike, Y_b: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """How far two tables of replies are apart: 0 or 1 for labels, |p - q|, or |a - b| in deviations."""
        a, b = self._check_pair(Y_a, Y_b)
        if self.kind == "continuous":
            _, scale = self._moments()
            return np.asarray(np.abs(self._numbers(a) - self._numbers(b)) / scale)
        if self.kind == "probability":
            return np.asarray(np.abs(self._probabilities(a) - self._probabilities(b)))
        return (~self.agree(a, b)).astype(np.float64)

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {
            "kind": self.kind,
            "names": list(self.names),
            "classes": None if self.label_sets is None else [one.to_json() for one in self.label_sets],
            "seen": [pack(one) for one in self.seen],
            "center": None if self.center is None else self.center.tolist(),
            "scale": None if self.scale is None else self.scale.tolist(),
            "tolerance": self.tolerance,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outputs:
        """The inverse of `to_json`."""
        try:
            classes = data["classes"]
            return cls(
                data["kind"],
                list(data["names"]),
                None if classes is None else [Classes.from_json(one) for one in classes],
                tuple(unpack(one) for one in data["seen"]),
                None if data["center"] is None else np.asarray(data["center"], dtype=np.float64),
                None if data["scale"] is None else np.asarray(data["scale"], dtype=np.float64),
                data["tolerance"],
            )
        except (KeyError, TypeError, ValueError) as exc:
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

    def _numbers(self, table: Table) -> npt.NDArray[np.float64]:
        if table.dtype.kind not in "biuf":
            raise BlackBoxError(
                f"Replies have dtype {table.dtype}, expected numbers for {self.kind} outputs. "
                "Return the same kind of outputs on every call, or set output_kind."
            )
        return table.astype(np.float64)

    def _probabilities(self, table: Table) -> npt.NDArray[np.float64]:
        numbers = self._numbers(table)
        if numbers.size and not (numbers.min() >= 0 and numbers.max() <= 1):
            raise BlackBoxError(
                f"Replies range from {numbers.min():g} to {numbers.max():g}, expected probabilities in [0, "
                "1]. Return probabilities on every call, or set output_kind='continuous'."
            )
        return numbers


def _check_table(Y: npt.ArrayLike) -> Table:
    table = np.asarray(Y)
    if table.ndim != 2 or 0 in table.shape or table.dtype.kind not in "biufUO":
        raise InputError(
            f"Y has shape {table.shape} and dtype {table.dtype}, expected (n samples, n outputs) of numbers, "
            "booleans or strings. Give the replies that a BlackBox returns."
        )
    if table.dtype.kind == "f" and not np.isfinite(table).all():
        raise InputError("Y has NaN or infinite values, expected finite ones. Check the model's replies.")
    return table


def _is_numeric(values: list[list[Label]]) -> bool:
    return all(not isinstance(value, str) for found in values for value in found)


def _infer_kind(table: Table, values: list[list[Label]]) -> Kind:
    if not _is_numeric(values):
        return "binary" if max(map(len, values)) <= 2 else "categorical"
    numbers = table.astype(np.float64)
    if not np.array_equal(numbers, np.rint(numbers)):
        return "probability" if numbers.min() >= 0 and numbers.max() <= 1 else "continuous"
    most = max(map(len, values))
    if most <= 2:
        return "binary"
    return "categorical" if most <= MOST_CLASSES and most < len(table) / 2 else "continuous"


def _check_kind(kind: str, table: Table, values: list[list[Label]]) -> Kind:
    for known in KINDS:
        if kind == known:
            break
    else:
        raise InputError(f"output_kind must be one of {KINDS}, got {kind!r}. Leave it out to have it inferred.")
    numeric = _is_numeric(values)
    problem = None
    if known in ("probability", "continuous") and not numeric:
        problem = "the replies hold strings"
    elif known == "probability" and (table.astype(np.float64).min() < 0 or table.astype(np.float64).max() > 1):
        numbers = table.astype(np.float64)
        problem = f"the replies range from {numbers.min():g} to {numbers.max():g}, outside [0, 1]"
    elif known == "binary" and max(map(len, values)) > 2:
        problem = f"an output has {max(map(len, values))} different values"
    elif known == "categorical" and numeric and max(map(len, values)) > MOST_CLASSES:
        whole = np.array_equal(table.astype(np.float64), np.rint(table.astype(np.float64)))
        problem = None if whole else f"an output has {max(map(len, values))} different fractions"
    if problem is not None:
        raise InputError(
            f"output_kind={kind!r} does not fit: {problem}. Leave it out (it would be inferred as "
            f"{_infer_kind(table, values)!r}), or change what the model returns."
        )
    return known


def _make_classes(kind: Kind, values: list[list[Label]]) -> list[Classes]:
    if kind == "probability":
        return [Classes((0, 1)) for _ in values]
    together = column_labels(np.array([value for found in values for value in found], dtype=object))
    if kind == "binary" and len(together) == 2:
        return [Classes(tuple(together)) for _ in values]  # a constant output shares the others' two labels
    # A constant 0 or 1 among other labels still gets its opposite, so that it can be modelled.
    return [Classes((_like(f[0], 0), _like(f[0], 1))) if set(f) <= {0, 1} else Classes(tuple(f)) for f in values]


def _like(label: Label, value: int) -> Label:
    kind = type(label)
    return kind(value)
