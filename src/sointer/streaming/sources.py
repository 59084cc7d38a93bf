"""Opening whatever holds rows: Parquet, CSV, .npy, .npz, a container in memory, or an iterable of containers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from sointer._support import containers
from sointer._support.containers import csr_array
from sointer._support.validation import check_positive_int
from sointer.errors import InputError
from sointer.streaming.array_files import array_source
from sointer.streaming.csv_files import csv_source
from sointer.streaming.parquet_files import parquet_source
from sointer.streaming.rows import Columns, Dtypes, RowSource, check_columns, slice_rows, slices

CHUNK_ROWS = 2**14
PARQUET, CSV, ARRAYS = (
    (".parquet", ".pq"),
    (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".csv.zst"),
    (".npy", ".npz"),
)
KNOWN = "Parquet (.parquet, a folder of them), CSV (.csv, .tsv, .csv.gz), .npy or .npz"


def read_chunks(
    source: Any, columns: Columns = None, *, chunk_rows: int = CHUNK_ROWS, dtypes: Dtypes | None = None
) -> Iterator[Any]:
    """Rows of a file or an iterable, at most chunk_rows at a time, never all at once.

    Parameters
    ----------
    source : a path (Parquet, a folder of Parquet files, CSV, .npy, .npz), a container, or an iterable of containers.
    columns : which columns of a table, in this order; one name gives Series; None gives all.
    dtypes : of columns of a CSV file ("float64", "int64", "bool", "str"); others are what the first block shows.

    Tables come as DataFrames, sparse rows as `csr_array`, arrays as arrays. A compressed .npz must be loaded whole;
    .npy, and .npz as numpy.savez writes it, are read from disk as needed.
    """
    chunk_rows = check_positive_int(chunk_rows, "chunk_rows")
    return open_source(source).chunks(columns, chunk_rows, dtypes or {})


def read_table(source: Any, columns: Columns = None, *, dtypes: Dtypes | None = None) -> Any:
    """All rows of a file or an iterable in one container, to fit on; `columns` and `dtypes` as in `read_chunks`."""
    parts = list(read_chunks(source, columns, dtypes=dtypes))
    if not parts:
        raise InputError(f"{open_source(source).name} has no rows; expected at least one.")
    first = parts[0]
    if len(parts) == 1:
        return first
    if containers.is_frame(first) or containers.is_series(first):
        import pandas as pd

        return pd.concat(parts, ignore_index=True)
    if containers.is_sparse(first):
        from scipy import sparse

        return csr_array(sparse.vstack(parts))
    return np.concatenate(parts)


def open_source(source: Any) -> RowSource:
    """What is known of the rows without reading them."""
    if isinstance(source, str | PathLike):
        return _open_path(Path(source))
    if _is_container(source):
        return _of_container(source)
    if isinstance(source, Iterable):
        return RowSource("the iterable", None, None, lambda columns, n, _: _of_iterable(source, columns, n))
    raise InputError(
        f"the source is {containers.describe(source)}; expected a path to {KNOWN}, a table, or an iterable of tables."
    )


def _open_path(path: Path) -> RowSource:
    name = path.name.lower()
    if path.is_dir():
        parts = sorted(part for part in path.rglob("*.parquet") if not part.name.startswith((".", "_")))
        if not parts:
            raise InputError(f"{path} is a folder without .parquet files; expected some, or a path to {KNOWN}.")
        return parquet_source(parts, str(path))
    if not name.endswith((*PARQUET, *CSV, *ARRAYS)):
        raise InputError(
            f"{path} is none of the files that can be read: {KNOWN}. Convert it, or iterate over its parts."
        )
    if not path.exists():
        raise InputError(f"{path} does not exist. Check the path; it is looked up from {Path.cwd()}.")
    if name.endswith(PARQUET):
        return parquet_source([path], str(path))
    return csv_source(path) if name.endswith(CSV) else array_source(path)


def _is_container(source: Any) -> bool:
    known = isinstance(source, np.ndarray) or containers.is_sparse(source) or containers.is_tensor(source)
    texts = isinstance(source, list | tuple) and len(source) > 0 and all(isinstance(one, str) for one in source)
    return known or containers.is_frame(source) or containers.is_series(source) or texts


def _of_container(X: Any) -> RowSource:
    if containers.is_sparse(X) and X.format != "csr":
        X = X.tocsr()
    names = [str(label) for label in X.columns] if containers.is_frame(X) else None

    def chunks(columns: Columns, chunk_rows: int, dtypes: Dtypes) -> Iterator[Any]:
        check_columns(columns, names, containers.describe(X))
        for span in slices(containers.n_rows(X), chunk_rows):
            yield _some_columns(slice_rows(X, span), names, columns)

    return RowSource(containers.describe(X), names, containers.n_rows(X), chunks)


def _of_iterable(source: Iterable[Any], columns: Columns, chunk_rows: int) -> Iterator[Any]:
    for number, X in enumerate(source):
        if not _is_container(X):
            raise InputError(
                f"part {number} of the iterable is {containers.describe(X)}; expected a DataFrame, an array, a scipy "
                "CSR matrix or a list of texts, each with some of the rows."
            )
        part = _of_container(X)
        yield from part.chunks(columns if part.columns is not None else None, chunk_rows, {})


def _some_columns(X: Any, names: list[str] | None, columns: Columns) -> Any:
    if columns is None or names is None:
        return X
    if isinstance(columns, str):
        return X.iloc[:, names.index(columns)]
    place = {name: i for i, name in enumerate(names)}
    return X.iloc[:, [place[name] for name in columns]]
