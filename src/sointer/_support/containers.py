"""Tell numpy, pandas, polars, scipy sparse and torch apart, slice and hash their rows, importing none needlessly."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from sointer.errors import InputError, require_extra

BACKENDS = {"polars": "DataFrame", "pyarrow": "Table"}
"""Libraries whose tables are taken, and what those are called there."""


def backend_of(X: object) -> str | None:
    """The library that a table is of, if it is one of `BACKENDS`; none is imported for this."""
    for name, kind in BACKENDS.items():
        library = sys.modules.get(name)
        if library is not None and isinstance(X, getattr(library, kind)):
            return name
    return None


def refuse_lazy(X: object, caller: str) -> None:
    """Refuse a polars LazyFrame, which holds no rows, and a batch of pyarrow, which looks like a list of columns."""
    polars, pyarrow = sys.modules.get("polars"), sys.modules.get("pyarrow")
    if polars is not None and isinstance(X, polars.LazyFrame):
        raise InputError(f"{caller}: X is a polars LazyFrame, expected rows in memory. Give X.collect().")
    if pyarrow is not None and isinstance(X, pyarrow.RecordBatch):
        raise InputError(
            f"{caller}: X is a pyarrow RecordBatch, expected a Table. Give pyarrow.Table.from_batches([X])."
        )


def as_pandas(X: Any) -> Any:
    """A table of polars or pyarrow as a pandas DataFrame; anything else as it is."""
    if backend_of(X) is None:
        return X
    pandas = require_extra("pandas", "polars")
    narwhals, pyarrow = require_extra("narwhals", "polars"), require_extra("pyarrow", "polars")
    table = narwhals.from_native(X, eager_only=True).to_arrow()
    if len(set(table.column_names)) < len(table.column_names):
        repeated = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
        raise InputError(f"The column names of X must be unique, got more than one of {repeated[0]!r}. Rename them.")
    is_dictionary = pyarrow.types.is_dictionary  # as categories of pandas, which say all of their levels
    return table.to_pandas(types_mapper=lambda kind: None if is_dictionary(kind) else pandas.ArrowDtype(kind))


def enum_columns(X: Any) -> list[str]:
    """Columns of a polars DataFrame whose levels are part of their dtype, in which pandas has nothing like it."""
    if backend_of(X) != "polars":
        return []
    return [name for name, dtype in X.schema.items() if str(dtype).startswith("Enum")]


def to_backend(frame: Any, backend: str, levels: Mapping[str, Sequence[str]]) -> Any:
    """A pandas DataFrame as a table of another library; `levels` are those of its Enum columns."""
    narwhals, pyarrow = require_extra("narwhals", "polars"), require_extra("pyarrow", "polars")
    table = narwhals.from_arrow(pyarrow.Table.from_pandas(frame, preserve_index=False), backend=backend)
    casts = [narwhals.col(name).cast(narwhals.Enum(list(own))) for name, own in levels.items()]
    return (table.with_columns(*casts) if casts else table).to_native()


# The stubs of scipy know neither a narrowed sparse matrix's attributes nor all ways to build one.
csr_array: Any = sparse.csr_array
csr_matrix: Any = sparse.csr_matrix


def is_missing(value: Any) -> bool:
    """Whether one value is None, NaN, NA or NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def is_sparse(X: object) -> bool:
    """True for any scipy sparse matrix or array."""
    return bool(sparse.issparse(X))


def is_frame(X: object) -> bool:
    """True for a pandas DataFrame; pandas is never imported for this."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(X, pandas.DataFrame)


def is_series(X: object) -> bool:
    """True for a pandas Series."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(X, pandas.Series)


def is_tensor(X: object) -> bool:
    """True for a torch tensor; torch is never imported for this."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.Tensor)


def is_dask(X: object) -> bool:
    """True for a dask array, dataframe or series; dask is never imported for this."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr")


def tensor_to_numpy(X: Any) -> npt.NDArray[Any]:
    """A tensor as numpy on the CPU; bfloat16, which numpy lacks, becomes float32."""
    tensor = X.detach().cpu()
    if tensor.is_sparse or str(tensor.layout) != "torch.strided":
        tensor = tensor.to_dense()
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    array: npt.NDArray[Any] = tensor.resolve_conj().resolve_neg().numpy()
    return array


def dense(X: Any) -> npt.NDArray[Any]:
    """Rows of any container as one dense array; strings, alone or beside numbers, as objects."""
    X = as_pandas(X)
    if is_frame(X):
        numbers = all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in X.dtypes)
        return np.asarray(X.to_numpy() if numbers else X.astype(object).to_numpy())
    if is_sparse(X):
        return np.asarray(X.toarray())
    if is_tensor(X):
        return tensor_to_numpy(X)
    array = np.asarray(X)
    return array.astype(object) if array.dtype.kind in "US" else array


def n_rows(X: Any) -> int:
    """How many rows any container holds."""
    shape = getattr(X, "shape", None)
    return int(shape[0]) if shape is not None and len(shape) else len(X)


def rows(X: Any, index: npt.ArrayLike) -> Any:
    """The rows at `index` (integer positions), copied, in the container they came in."""
    where = np.asarray(index, dtype=np.int64)
    if is_frame(X) or is_series(X):
        return X.iloc[where]
    if (backend := backend_of(X)) is not None:
        return X[where] if backend == "polars" else X.take(where)
    if is_tensor(X):
        import torch

        return X[torch.as_tensor(where, device=X.device)]
    if is_sparse(X):
        return (X if X.format == "csr" else X.tocsr())[where]
    if isinstance(X, np.ndarray):
        return X[where]
    return [X[i] for i in where]


def slices(n: int, size: int) -> list[slice]:
    """Consecutive spans of at most `size` of n rows."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def row_labels(X: Any) -> Any:
    """The index of a DataFrame or Series, unless it only counts the rows; None for anything else."""
    if not (is_frame(X) or is_series(X)):
        return None
    index = X.index
    counts = type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1
    return None if counts else index


def describe(X: object) -> str:
    """A few words on what a value is, for messages: its container, shape and dtype."""
    if is_frame(X):
        return f"a pandas DataFrame of shape {X.shape}"  # type: ignore[attr-defined]
    if is_series(X):
        return f"a pandas Series of length {len(X)}"  # type: ignore[arg-type]
    if (backend := backend_of(X)) is not None:
        return f"a {backend} {BACKENDS[backend]} of shape {X.shape}"  # type: ignore[attr-defined]
    if is_tensor(X):
        return f"a torch tensor of shape {tuple(X.shape)} and dtype {X.dtype}"  # type: ignore[attr-defined]
    if is_sparse(X):
        return f"a scipy sparse matrix ({X.format}) of shape {X.shape} and dtype {X.dtype}"  # type: ignore[attr-defined]
    if isinstance(X, np.ndarray):
        return f"a numpy array of shape {X.shape} and dtype {X.dtype}"
    if isinstance(X, (list, tuple)):
        return f"a {type(X).__name__} of length {len(X)}"
    if isinstance(X, str):
        return f"the string {X!r:.80}"
    if X is None:
        return "None"
    return f"an object of type {type(X).__name__}"


PANDAS_VALUES = ("Timestamp", "Timedelta", "NaTType", "NAType")
"""Types of dates, durations and missing values in columns of pandas; what they are called tells them apart."""


def row_keys(X: Any) -> list[bytes]:
    """One digest per row, from its bytes, its container and its dtypes."""
    X = as_pandas(X)
    if is_frame(X):
        header = repr((list(X.columns), [str(dtype) for dtype in X.dtypes])).encode()
        plain = all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in X.dtypes)
        if plain:
            return [_key(header, record.tobytes()) for record in X.to_records(index=False)]
        columns = [X.iloc[:, j].astype(object).tolist() for j in range(X.shape[1])]
        return [_key(header, _cells(row)) for row in zip(*columns, strict=True)]
    if is_sparse(X):
        matrix = csr_array(X, copy=True)
        matrix.sum_duplicates()
        header = f"csr {matrix.shape[1]} {matrix.dtype.str}".encode()
        indices, data, cut = matrix.indices.astype(np.int64), matrix.data, matrix.indptr
        spans = [slice(cut[i], cut[i + 1]) for i in range(matrix.shape[0])]
        return [_key(header, indices[span].tobytes() + data[span].tobytes()) for span in spans]
    if isinstance(X, list) and all(isinstance(text, str) for text in X):
        return [_key(b"text", text.encode("utf-8", "surrogatepass")) for text in X]
    if is_tensor(X):
        table = tensor_to_numpy(X)
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
    if isinstance(X, np.ndarray) and X.dtype.kind in "biuf" and X.size and (found := _distinct_numbers(X)) is not None:
        return found
    place_of: dict[bytes, int] = {}
    first: list[int] = []
    which: list[int] = []
    for row, key in enumerate(row_keys(X)):
        if key not in place_of:
            place_of[key] = len(first)
            first.append(row)
        which.append(place_of[key])
    return np.array(first, dtype=np.int64), np.array(which, dtype=np.int64)


def _distinct_numbers(table: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """The same, all rows at once; None if sums of their bits do not tell different rows apart."""
    bits = np.ascontiguousarray(table).reshape(len(table), -1).view(np.uint8)
    if bits.shape[1] % 8:
        bits = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8)))
    words = bits.view(np.uint64)
    weights = np.random.default_rng(0).integers(2**64, size=words.shape[1], dtype=np.uint64) | np.uint64(1)
    _, first, which = np.unique(words @ weights, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[which] != np.arange(len(words)))
    if not np.array_equal(words[again], words[first[which[again]]]):
        return None
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return first[order], place[which]


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
