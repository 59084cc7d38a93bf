"""A key for every row of a table: equal keys mean equal rows, byte for byte."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer._support import containers
from sointer._support.frames import as_pandas
from sointer.errors import InputError

PANDAS_VALUES = ("Timestamp", "Timedelta", "NaTType", "NAType")
"""Types of dates, durations and missing values in columns of pandas; what they are called tells them apart."""


def row_keys(X: Any) -> list[bytes]:
    """One digest per row, from its bytes, its container and its dtypes."""
    X = as_pandas(X)
    if containers.is_frame(X):
        header = repr((list(X.columns), [str(dtype) for dtype in X.dtypes])).encode()
        plain = all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in X.dtypes)
        if plain:
            return [_key(header, record.tobytes()) for record in X.to_records(index=False)]
        columns = [X.iloc[:, j].astype(object).tolist() for j in range(X.shape[1])]
        return [_key(header, _cells(row)) for row in zip(*columns, strict=True)]
    if containers.is_sparse(X):
        matrix = containers.csr_array(X, copy=True)
        matrix.sum_duplicates()
        header = f"csr {matrix.shape[1]} {matrix.dtype.str}".encode()
        indices, data, cut = matrix.indices.astype(np.int64), matrix.data, matrix.indptr
        spans = [slice(cut[i], cut[i + 1]) for i in range(matrix.shape[0])]
        return [_key(header, indices[span].tobytes() + data[span].tobytes()) for span in spans]
    if isinstance(X, list) and all(isinstance(text, str) for text in X):
        return [_key(b"text", text.encode("utf-8", "surrogatepass")) for text in X]
    if containers.is_tensor(X):
        table = containers.tensor_to_numpy(X)
        header = f"torch {X.dtype} {tuple(X.shape[1:])}".encode()
    else:
        table = np.asarray(X)
        header = f"numpy {table.dtype.str} {table.shape[1:]}".encode()
    if table.dtype.kind == "O":
        return [_key(header, _cells(np.ravel(row).tolist())) for row in table]
    table = np.ascontiguousarray(table)
    return [_key(header, row.tobytes()) for row in table]


def distinct_rows(X: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each different row first occurs, in order, and for every row which of these it equals."""
    place_of: dict[bytes, int] = {}
    first: list[int] = []
    which: list[int] = []
    for row, key in enumerate(row_keys(X)):
        if key not in place_of:
            place_of[key] = len(first)
            first.append(row)
        which.append(place_of[key])
    return np.array(first, dtype=np.int64), np.array(which, dtype=np.int64)


def _key(header: bytes, body: bytes) -> bytes:
    return blake2b(len(header).to_bytes(8, "little") + header + body, digest_size=16).digest()


def _cells(row: Any) -> bytes:
    """A row of Python values as bytes; only types whose repr tells values apart are accepted."""
    cells = tuple(cell.item() if isinstance(cell, np.generic) else cell for cell in row)
    for cell in cells:
        if type(cell) not in (str, bytes, int, float, bool, type(None)) and type(cell).__name__ not in PANDAS_VALUES:
            raise InputError(
                f"cache=True cannot tell apart values such as {cell!r:.80} of type {type(cell).__name__}; "
                "expected strings, numbers, booleans and dates. Convert that column, or use cache=False."
            )
    return repr(cells).encode("utf-8", "surrogatepass")
