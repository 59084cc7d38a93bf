"""Rows as JSON, and JSON from somebody else as a reply."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from sointer import containers
from sointer.adapters.tensors import dense
from sointer.errors import InputError


def rows_and_columns(X: Any) -> tuple[list[Any], list[str] | None]:
    """Rows as nested lists, missing numbers as None, and the names of the columns of a DataFrame."""
    columns = [str(column) for column in X.columns] if containers.is_frame(X) else None
    table = dense(X)
    rows: list[Any] = table.tolist()
    if table.dtype.kind == "f" and not np.isfinite(table).all():
        cells = table.astype(object)
        cells[np.isnan(table)] = None
        rows = cells.tolist()
    elif table.dtype.kind == "O" and table.ndim == 2:
        rows = [[None if _is_missing(cell) else cell for cell in row] for row in rows]
    return rows, columns


def to_json(content: Any) -> bytes:
    """Compact JSON without NaN or infinity, which JSON cannot say."""
    try:
        text = json.dumps(content, allow_nan=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"X cannot be sent as JSON: {error}. Expected finite numbers, strings, booleans and dates; fill in missing "
            "values, or convert the column."
        ) from None
    return text.encode()


def _is_missing(cell: Any) -> bool:
    return (
        cell is None or (isinstance(cell, float) and math.isnan(cell)) or type(cell).__name__ in ("NAType", "NaTType")
    )


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"a value of type {type(value).__name__}")
