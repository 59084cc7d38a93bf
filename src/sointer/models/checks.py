"""Checks of what the models are given: settings and labels."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support import containers
from sointer.errors import InputError


def check_number(value: object, what: str, *, zero: bool = False) -> None:
    """Raise unless `value` is a positive, finite number (or zero, where that is allowed)."""
    fits = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or value < 0 or (value == 0 and not zero):  # type: ignore[operator]
        raise InputError(f"{what} must be a positive number{' or zero' if zero else ''}, got {value!r}.")


def check_share(value: object, what: str) -> None:
    """Raise unless `value` is a number from 0 to less than 1."""
    check_number(value, what, zero=True)
    if not value < 1:  # type: ignore[operator]
        raise InputError(f"{what} must be a share of at least 0 and below 1, got {value!r}.")


def check_labels(
    Y: Any, n_rows: int, caller: str, *, n_labels: int | None = None, relaxed: bool = False
) -> NDArray[np.float32]:
    """Y as float32 (rows, labels), of 0 and 1 or, relaxed, of numbers between."""
    given = containers.describe(Y)
    if containers.is_sparse(Y):
        Y = Y.toarray()
    elif containers.is_tensor(Y):
        Y = containers.tensor_to_numpy(Y)
    try:
        table = np.asarray(Y).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{caller}: Y is {given} that cannot be read as numbers ({error}), expected a table of 0 and 1. "
            "Encode labels with sklearn.preprocessing.MultiLabelBinarizer."
        ) from error
    if table.ndim != 2 or table.shape[0] != n_rows or not table.shape[1] or n_labels not in (None, table.shape[1]):
        raise InputError(
            f"{caller}: Y has shape {table.shape}, expected ({n_rows}, {n_labels or 'one or more'}). "
            "Give one row of labels for each row of X."
        )
    fits = (table >= 0) & (table <= 1) if relaxed else (table == 0) | (table == 1)
    if not fits.all():
        wanted = "numbers from 0 to 1" if relaxed else "only 0 and 1"
        raise InputError(
            f"{caller}: Y holds {float(table[~fits][0])!r}, expected {wanted}. "
            "Encode labels with sklearn.preprocessing.MultiLabelBinarizer."
        )
    return table.astype(np.float32)


def label_names(Y: Any, n_labels: int) -> list[str]:
    """The column names of a DataFrame; y0, y1, ... otherwise."""
    return [str(name) for name in Y.columns] if containers.is_frame(Y) else [f"y{i}" for i in range(n_labels)]
