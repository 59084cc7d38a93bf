"""Parquet files: tables with one column per feature, and sparse rows as two columns of lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sointer._support import containers
from sointer._support.files import AtomicFile, reading
from sointer._support.validation import check_unique_names, some
from sointer.errors import InputError, require_extra
from sointer.io.columns import Columns, Dtypes, RowSource, check_columns, column_names

INDICES, VALUES = "indices", "values"
N_FEATURES, FEATURE_NAMES = b"sointer.n_features", b"sointer.feature_names"
NAMELESS = re.compile(r"__index_level_\d+__")
"""What pandas calls the index of a DataFrame that was filtered before it was written."""
GROUP_ROWS = 2**16
BUFFER_BYTES = 2**20  # of each column that is being read: row groups need not fit into memory


def parquet_source(paths: Sequence[Path], name: str) -> RowSource:
    """The rows of one Parquet file, or of several that have the same columns, one after the other."""
    schema, n_rows = _schema(paths[0]), 0
    for path in paths:
        if _schema(path).names != schema.names:
            raise InputError(
                f"{path} has other columns than {paths[0]}: {some(_schema(path).names)}, not {some(schema.names)}; "
                "expected parts of one table. Give them one by one."
            )
        n_rows += _opened(path).metadata.num_rows
    is_sparse = _is_sparse(schema)
    names = _sparse_names(schema) if is_sparse else [label for label in schema.names if not NAMELESS.fullmatch(label)]
    index = [] if is_sparse else [label for label in _index_of(schema) if label in (names or ())]

    def chunks(columns: Columns, chunk_rows: int, dtypes: Dtypes) -> Iterator[Any]:
        check_columns(columns, names, name)
        for path in paths:
            with reading(path, "Parquet"):
                yield from (
                    _sparse_chunks(path, columns, chunk_rows)
                    if is_sparse
                    else _frames(path, columns, chunk_rows, dtypes)
                )

    return RowSource(name, names, n_rows, chunks, tuple(index))


def write_sparse_parquet(
    matrix: Any, path: str | Path, *, feature_names: Sequence[str] | None = None, n_features: int | None = None
) -> Path:
    """Write sparse rows to a Parquet file that `stream_explain` and `read_chunks` read.

    Each row becomes two lists: `indices` (of the non-zero features) and `values`. Other programs can write such files
    too. The names of the features, or at least their number, are in the file's metadata as `sointer.feature_names`
    (JSON) and `sointer.n_features`.

    Parameters
    ----------
    matrix : scipy sparse matrix, or iterable of them
        Several, for data larger than memory, are stacked vertically.
    path : path
        The file.
    feature_names : sequence of str, optional
        One per feature.
    n_features : int, optional
        Their number; default: that of the matrix.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        If there are no rows, or matrices or names do not fit together.
    """
    pyarrow, parquet = require_extra("pyarrow", "parquet"), require_extra("pyarrow.parquet", "parquet")
    parts: Iterable[Any] = [matrix] if containers.is_sparse(matrix) else matrix
    path, writer = Path(path), None
    with AtomicFile(path) as file:
        for part in parts:
            if not containers.is_sparse(part):
                raise InputError(
                    f"write_sparse_parquet got {containers.describe(part)}, expected a scipy sparse matrix. Write "
                    "dense tables with DataFrame.to_parquet()."
                )
            rows = containers.csr_array(part)
            rows.sum_duplicates()
            if writer is None:
                n_features = rows.shape[1] if n_features is None else n_features
                writer = parquet.ParquetWriter(file.path, _sparse_schema(pyarrow, rows, n_features, feature_names))
            if rows.shape[1] != n_features:
                raise InputError(f"write_sparse_parquet got {rows.shape[1]} features, after {n_features} before.")
            for span in containers.slices(rows.shape[0], GROUP_ROWS):
                writer.write_table(_sparse_table(pyarrow, rows[span], writer.schema))
        if writer is None:
            raise InputError("write_sparse_parquet got no rows; expected a scipy sparse matrix, or several.")
        writer.close()
        file.commit()
    return path


def _sparse_schema(pyarrow: Any, rows: Any, n_features: int, names: Sequence[str] | None) -> Any:
    metadata = {N_FEATURES: str(n_features).encode()}
    if names is not None:
        metadata[FEATURE_NAMES] = json.dumps(check_unique_names(names, n_features, "feature_names")).encode()
    values = pyarrow.from_numpy_dtype(rows.dtype)
    fields = [(INDICES, pyarrow.list_(pyarrow.int32())), (VALUES, pyarrow.list_(values))]
    return pyarrow.schema(fields, metadata=metadata)


def _sparse_table(pyarrow: Any, rows: Any, schema: Any) -> Any:
    cut = pyarrow.array(rows.indptr.astype(np.int32))
    lists = [
        pyarrow.ListArray.from_arrays(cut, pyarrow.array(entries, type=field.type.value_type))
        for entries, field in zip((rows.indices.astype(np.int32), rows.data), schema, strict=True)
    ]
    return pyarrow.table(lists, schema=schema)


def _opened(path: Path) -> Any:
    parquet = require_extra("pyarrow.parquet", "parquet")
    with reading(path, "Parquet"):
        return parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False)


def _schema(path: Path) -> Any:
    return _opened(path).schema_arrow


def _is_sparse(schema: Any) -> bool:
    types = require_extra("pyarrow.types", "parquet")

    def lists(name: str) -> bool:
        kind = schema.field(name).type
        return bool(types.is_list(kind) or types.is_large_list(kind))

    return all(schema.names.count(name) == 1 and lists(name) for name in (INDICES, VALUES))


def _sparse_names(schema: Any) -> list[str] | None:
    metadata = schema.metadata or {}
    return json.loads(metadata[FEATURE_NAMES]) if FEATURE_NAMES in metadata else None


def _index_of(schema: Any) -> list[str]:
    """The columns that hold the index of the DataFrame that was written."""
    try:
        labels = (schema.pandas_metadata or {}).get("index_columns", ())
    except ValueError as exc:
        raise InputError(
            f"The file's pandas metadata are damaged ({exc}), expected JSON; so it is not known which columns are the "
            "index. Write the file again, with to_parquet."
        ) from exc
    return [label for label in labels if isinstance(label, str)]


def _frames(path: Path, columns: Columns, chunk_rows: int, dtypes: Dtypes) -> Iterator[Any]:
    types = require_extra("pyarrow.types", "parquet")
    wanted = column_names(columns)
    for batch in _opened(path).iter_batches(chunk_rows, columns=wanted, use_threads=False):
        frame = batch.to_pandas()
        inside = [label for label in frame.index.names if label in (wanted or ())]
        frame = frame.reset_index(inside) if inside else frame
        for label in [label for label in wanted or () if dtypes.get(label) == "id"]:
            if types.is_integer(batch.column(label).type):  # which pandas makes floats where some are missing
                frame[label] = batch.column(label).cast("string").to_numpy(zero_copy_only=False)
        yield frame[columns] if isinstance(columns, str) else frame if wanted is None else frame[wanted]


def _sparse_chunks(path: Path, columns: Columns, chunk_rows: int) -> Iterator[Any]:
    opened = _opened(path)
    schema = opened.schema_arrow
    names, metadata = _sparse_names(schema), schema.metadata or {}
    n_features = int(metadata[N_FEATURES]) if N_FEATURES in metadata else None if names is None else len(names)
    place = None if names is None else {name: i for i, name in enumerate(names)}
    wanted = column_names(columns)
    order = None if wanted is None or place is None else [place[name] for name in wanted]
    order = None if order == list(range(n_features or 0)) else order
    for batch in opened.iter_batches(chunk_rows, columns=[INDICES, VALUES], use_threads=False):
        rows = _csr(batch, n_features, path)
        yield rows if order is None else rows[:, order]


def _csr(batch: Any, n_features: int | None, path: Path) -> Any:
    compute = require_extra("pyarrow.compute", "parquet")
    lengths = [
        compute.fill_null(compute.list_value_length(batch.column(name)), 0).to_numpy() for name in (INDICES, VALUES)
    ]
    indices = batch.column(INDICES).flatten().to_numpy(zero_copy_only=False)
    values = batch.column(VALUES).flatten().to_numpy(zero_copy_only=False)
    if not np.array_equal(*lengths):
        row = int(np.flatnonzero(lengths[0] != lengths[1])[0])
        raise InputError(
            f"{path} has a row with {lengths[0][row]} indices and {lengths[1][row]} values; expected one value for "
            "each index. Write it again, for example with write_sparse_parquet()."
        )
    if n_features is None:
        raise InputError(
            f"{path} holds sparse rows but does not say how many features there are; write it with "
            "write_sparse_parquet(), or put the number into its metadata as 'sointer.n_features'."
        )
    if len(indices) and (indices.min() < 0 or indices.max() >= n_features):
        wrong = int(indices.min()) if indices.min() < 0 else int(indices.max())
        raise InputError(f"{path} has the feature number {wrong}; expected 0 to {n_features - 1}. Write it again.")
    cut = np.concatenate([[0], np.cumsum(lengths[0])])
    return containers.csr_array(
        (np.array(values), np.array(indices, dtype=np.int64), cut), shape=(len(cut) - 1, n_features)
    )
