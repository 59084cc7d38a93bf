"""Read off replies what the outputs are: their kind, the values they take, and their classes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sointer.errors import BlackBoxError, InputError
from sointer.outputs.labels import Classes, Label, column_labels, table_labels

Kind = Literal["binary", "categorical", "probability", "continuous"]
KINDS: tuple[Kind, ...] = ("binary", "categorical", "probability", "continuous")
Table = npt.NDArray[Any]

MOST_CLASSES = 32


def check_table(Y: npt.ArrayLike) -> Table:
    table = np.asarray(Y)
    if table.ndim != 2 or 0 in table.shape or table.dtype.kind not in "biufUO":
        raise InputError(
            f"Y has shape {table.shape} and dtype {table.dtype}, expected (n samples, n outputs) of numbers, "
            "booleans or strings. Give the replies that a BlackBox returns."
        )
    if table.dtype.kind == "f" and not np.isfinite(table).all():
        raise InputError("Y has NaN or infinite values, expected finite ones. Check the model's replies.")
    return table


def values_seen(table: Table, *, shared: bool) -> list[list[Label]]:
    """The different values of every output; one list for all of them if they share their labels."""
    if shared:
        return [table_labels(table)]
    return [column_labels(table[:, j]) for j in range(table.shape[1])]


def only_values(table: Table, values: list[list[Label]]) -> tuple[Label | None, ...]:
    """For every output the one value that it has, or None if it has several."""
    if len(values) == table.shape[1]:
        return tuple(found[0] if len(found) == 1 else None for found in values)
    same = (table == table[:1]).all(axis=0)
    return tuple(value if one else None for value, one in zip(table[0].tolist(), same.tolist(), strict=True))


def is_numeric(values: list[list[Label]]) -> bool:
    return all(not isinstance(value, str) for found in values for value in found)


def infer_kind(table: Table, values: list[list[Label]]) -> Kind:
    if not is_numeric(values):
        return "binary" if max(map(len, values)) <= 2 else "categorical"
    if not _are_whole(table):
        return "probability" if table.min() >= 0 and table.max() <= 1 else "continuous"
    most = max(map(len, values))
    if most <= 2:
        return "binary"
    n_values = len(table) if len(values) == table.shape[1] else table.size
    return "categorical" if most <= MOST_CLASSES and most < n_values / 2 else "continuous"


def check_kind(kind: str, table: Table, values: list[list[Label]]) -> Kind:
    for known in KINDS:
        if kind == known:
            break
    else:
        raise InputError(f"output_kind must be one of {KINDS}, got {kind!r}. Leave it out to have it inferred.")
    numeric = is_numeric(values)
    problem = None
    if known in ("probability", "continuous") and not numeric:
        problem = "the replies hold strings"
    elif known == "probability" and (table.astype(np.float64).min() < 0 or table.astype(np.float64).max() > 1):
        numbers = table.astype(np.float64)
        problem = f"the replies range from {numbers.min():g} to {numbers.max():g}, outside [0, 1]"
    elif known == "binary" and max(map(len, values)) > 2:
        problem = f"an output has {max(map(len, values))} different values"
    elif known == "categorical" and numeric and max(map(len, values)) > MOST_CLASSES:
        problem = None if _are_whole(table) else f"an output has {max(map(len, values))} different fractions"
    if problem is not None:
        raise InputError(
            f"output_kind={kind!r} does not fit: {problem}. Leave it out (it would be inferred as "
            f"{infer_kind(table, values)!r}), or change what the model returns."
        )
    return known


def make_classes(kind: Kind, values: list[list[Label]]) -> list[Classes]:
    if kind == "probability":
        return [Classes((0, 1)) for _ in values]
    together = column_labels(np.array([value for found in values for value in found], dtype=object))
    if kind == "binary" and len(together) == 2:
        return [Classes(tuple(together)) for _ in values]  # a constant output shares the others' two labels
    # A constant 0 or 1 among other labels still gets its opposite, so that it can be modelled.
    return [Classes((_like(f[0], 0), _like(f[0], 1))) if set(f) <= {0, 1} else Classes(tuple(f)) for f in values]


def as_numbers(table: Table) -> npt.NDArray[np.float64]:
    """Replies as numbers, which outputs that are numbers or probabilities must stay."""
    if table.dtype.kind not in "biuf":
        raise BlackBoxError(
            f"Replies have dtype {table.dtype}, expected numbers as before. "
            "Return the same kind of outputs on every call, or set output_kind."
        )
    return table.astype(np.float64)


def as_probabilities(table: Table) -> npt.NDArray[np.float64]:
    """Replies as numbers in [0, 1]."""
    numbers = as_numbers(table)
    if numbers.size and not (numbers.min() >= 0 and numbers.max() <= 1):
        raise BlackBoxError(
            f"Replies range from {numbers.min():g} to {numbers.max():g}, expected probabilities in [0, "
            "1]. Return probabilities on every call, or set output_kind='continuous'."
        )
    return numbers


def check_codes(codes: Table, known: Classes, name: str) -> None:
    """Refuse what are no class indices of an output."""
    if codes.dtype.kind not in "iu" or codes.min(initial=0) < 0 or codes.max(initial=0) >= len(known):
        raise InputError(
            f"decode got values outside the {len(known)} classes of output {name!r}, "
            f"expected integers from 0 to {len(known) - 1}. Give codes as encode returns them."
        )


def _are_whole(table: Table) -> bool:
    return table.dtype.kind in "biu" or bool((table == np.rint(table.astype(np.float64))).all())


def _like(label: Label, value: int) -> Label:
    kind = type(label)
    return kind(value)
