"""Opening whatever holds rows: Parquet, CSV, .npy, .npz, a container in memory, or an iterable of containers."""

from __future__ import annotations

import codecs
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sointer._support import containers
from sointer._support.files import CSV, KNOWN, PARQUET, TOKENS, check_readable, reading
from sointer._support.validation import check_positive_int
from sointer.data.columns import no_number
from sointer.data.times import durations_of
from sointer.errors import InputError, require_extra
from sointer.io.columns import (
    NULLS,
    Columns,
    Dtypes,
    RowSource,
    check_columns,
    column_names,
    slice_rows,
)
from sointer.io.parquet import parquet_source

BLOCK_BYTES = 2**24
ZONE, DURATION = re.compile(r"datetime64\[us, (.+)\]"), "timedelta64[us]"
"""Dtypes of dates in a time zone, and of durations."""
WRONG_VALUE = re.compile(
    r"In CSV column #(\d+): Row #(\d+): CSV conversion error to \w+: invalid value '(.*)'", re.DOTALL
)
WRONG_BYTES = re.compile(r"In CSV column #(\d+): Row #(\d+): CSV conversion error to \w+: invalid UTF8")
MAX_EXPANDED, MAX_EXPANSION = 2**29, 32
"""Bytes that a compressed .npz file may take in memory: so many, or so many times its size."""
VERBATIM = ("id", "known")
"""Dtypes of columns whose values may be "NA" or "None", as of countries: only an empty one is missing."""
FIX = "Fix the file, or write it again."
CHANGED = (
    'Where a column changes its kind on the way, say what it is with dtypes={"column": "float64"}, or fix the file.'
)
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
HEAD_BYTES = 2**16


def csv_source(path: Path) -> RowSource:
    """The rows of a CSV (or tab-separated) file with a header."""
    require_extra("pyarrow", "parquet")

    def chunks(columns: Columns, chunk_rows: int, dtypes: Dtypes) -> Iterator[Any]:
        check_columns(columns, names, str(path))
        wanted = column_names(columns)
        zones = {
            name: found[1]
            for name, dtype in dtypes.items()
            if (found := ZONE.fullmatch(dtype)) and (wanted is None or name in wanted)
        }
        # The types are those of the first block where they were not given.
        with (
            reading(path, "CSV", FIX, InputError),
            _naming_values(path, names, dtypes),
            _reader(path, wanted, dtypes) as reader,
        ):
            for field in reader.schema:
                if str(field.type) == "binary":
                    raise _not_utf8(path, f"column {field.name!r}")
            for batch in reader:
                if not isinstance(columns, str):  # of texts, every one is a text
                    batch = _with_nulls(batch, [name for name, dtype in dtypes.items() if dtype in VERBATIM])
                for span in containers.slices(batch.num_rows, chunk_rows):
                    frame = batch.slice(span.start, span.stop - span.start).to_pandas(date_as_object=False)
                    for name, zone in zones.items():
                        if hasattr(frame[name].dtype, "tz"):  # of a text, the moment is known, and no time zone
                            frame[name] = frame[name].dt.tz_convert(zone)
                    for name in frame.columns.intersection(list(dtypes)):
                        if dtypes[name] == "text":
                            frame[name] = frame[name].fillna("")  # an empty cell is an empty text
                        elif dtypes[name] == DURATION:
                            texts = zip(frame[name], frame[name].isna(), strict=True)
                            frame[name] = durations_of([None if none else text for text, none in texts], name)
                    yield frame if not isinstance(columns, str) else frame[columns]

    with reading(path, "CSV", FIX, InputError):
        _check_head(path)
        with _reader(path, None, {}) as reader:
            names = list(reader.schema.names)
    return RowSource(str(path), names, None, chunks)


def _check_head(path: Path) -> None:
    """Refuse a file in another encoding, or whose columns are separated otherwise: each line would be one column."""
    with require_extra("pyarrow", "parquet").input_stream(str(path), compression="detect") as stream:
        head: bytes = stream.read(HEAD_BYTES)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise _not_utf8(path, "it", "utf-16")
    lines = head.splitlines()
    try:
        header, first = (line.decode() for line in (*lines, b"", b"")[:2])
    except UnicodeDecodeError:
        header = first = ""  # of the rows, a column that is needed may be fine; of the header, pyarrow tells
    for separator, called in SEPARATORS.items():
        n = header.count(separator)
        if n and n == first.count(separator) and not header.count("\t" if _is_tsv(path) else ","):
            raise InputError(
                f"{path} has columns separated by {called}, expected {'tabs' if _is_tsv(path) else 'commas'}. Convert "
                f"it, for example: pandas.read_csv({path.name!r}, sep={separator!r}, decimal=',')"
                ".to_parquet('rows.parquet'); leave out decimal where numbers have points."
            )


def _is_tsv(path: Path) -> bool:
    return path.name.lower().removesuffix(".gz").removesuffix(".bz2").removesuffix(".zst").endswith(".tsv")


def _not_utf8(path: Path, what: str, encoding: str = "latin-1") -> InputError:
    return InputError(
        f"{path} cannot be read: {what} is not UTF-8. Convert the file, for example, if it is {encoding}: "
        f"pandas.read_csv({path.name!r}, encoding={encoding!r}).to_parquet('rows.parquet')."
    )


def _reader(path: Path, columns: Any, dtypes: Dtypes) -> Any:
    pyarrow, csv = require_extra("pyarrow", "parquet"), require_extra("pyarrow.csv", "parquet")
    types = {name: _arrow_type(pyarrow, dtype) for name, dtype in dtypes.items() if not ZONE.fullmatch(dtype)}
    return csv.open_csv(
        pyarrow.input_stream(str(path), compression="detect"),
        read_options=csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
        parse_options=csv.ParseOptions(delimiter="\t" if _is_tsv(path) else ",", newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            include_columns=columns, column_types=types, null_values=NULLS, strings_can_be_null=False
        ),
    )


def _with_nulls(batch: Any, verbatim: Sequence[str]) -> Any:
    """A batch whose strings that stand for missing values are missing."""
    pyarrow, compute = require_extra("pyarrow", "parquet"), require_extra("pyarrow.compute", "parquet")
    columns = batch.columns
    for place, field in enumerate(batch.schema):
        if pyarrow.types.is_string(field.type):
            nulls = pyarrow.array(NULLS[:1] if field.name in verbatim else NULLS)
            missing = compute.is_in(columns[place], value_set=nulls)
            columns[place] = compute.if_else(missing, None, columns[place])
    return pyarrow.RecordBatch.from_arrays(columns, schema=batch.schema)


@contextmanager
def _naming_values(path: Path, names: list[str], dtypes: Dtypes) -> Iterator[None]:
    """Within the block, a value that does not fit the type of its column is named as everywhere."""
    pyarrow = require_extra("pyarrow", "parquet")
    try:
        yield
    except pyarrow.ArrowInvalid as error:
        encoded, found = WRONG_BYTES.search(str(error)), WRONG_VALUE.search(str(error))
        if encoded is not None:
            raise _not_utf8(path, f"column {names[int(encoded[1])]!r} in row {int(encoded[2]) - 2}") from error
        if found is None:
            raise
        label = names[int(found[1])]
        if label not in dtypes:
            message = " ".join(str(error).split())[:300]
            raise InputError(f"{path} cannot be read as CSV: {message}. {CHANGED}") from error
        raise InputError(f"{path}, row {int(found[2]) - 2}: {no_number(found[3], label, dtypes[label])}") from error


def _arrow_type(pyarrow: Any, dtype: str) -> Any:
    known = {"bool": pyarrow.bool_(), "str": pyarrow.string(), "int64": pyarrow.int64(), "float64": pyarrow.float64()}
    if dtype not in (*known, "text", DURATION, *VERBATIM):
        raise InputError(f"dtypes may be {', '.join(map(repr, known))}, got {dtype!r}.")
    return known.get(dtype, pyarrow.string())


def array_source(path: Path) -> RowSource:
    """The rows of a .npy file, which stays on disk, or of a .npz file, which is loaded whole."""
    with reading(path, "rows of numbers", "Check the file, or save it again."):
        data = _rows_of(path)

    def chunks(columns: Columns, chunk_rows: int, dtypes: Dtypes) -> Iterator[Any]:
        check_columns(columns, None, str(path))
        for span in containers.slices(data.shape[0], chunk_rows):
            with reading(path, "rows of numbers", "Check the file, or save it again."):
                part = data[span] if containers.is_sparse(data) else np.array(data[span])
            yield part

    return RowSource(str(path), None, int(data.shape[0]), chunks)


def _rows_of(path: Path) -> Any:
    if not zipfile.is_zipfile(path):
        return _at_least_2d(np.load(path, mmap_mode="r", allow_pickle=False))
    with zipfile.ZipFile(path) as archive:
        n_bytes = sum(member.file_size for member in archive.infolist())
    if n_bytes > max(MAX_EXPANDED, MAX_EXPANSION * path.stat().st_size):
        raise ValueError(
            f"it would take {n_bytes / 2**20:,.0f} MB of memory, {n_bytes // path.stat().st_size} times its size; save "
            "the rows with np.save as .npy, which is read part by part, or as a sparse matrix"
        )
    with np.load(path, allow_pickle=False) as members:
        names = members.files
        if {"indices", "indptr", "shape", "format"} <= set(names):
            matrix: Any = sparse.load_npz(path)
            if matrix.format != "csr":
                raise ValueError(f"it holds a sparse matrix in {matrix.format} format; save matrix.tocsr() instead")
            matrix.check_format(full_check=True)
            return containers.csr_array(matrix)
        if len(names) != 1 and "X" not in names:
            raise ValueError(f"it holds the arrays {sorted(names)}; expected one, or one called 'X'")
        return _at_least_2d(members[names[0] if len(names) == 1 else "X"])


def _at_least_2d(array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim < 2 and array.dtype.kind != "U":  # one dimension is a column of texts, or nothing
        raise ValueError(f"its array has the shape {array.shape}; expected rows and columns, or images")
    return array


CHUNK_ROWS = 2**14


def read_chunks(
    source: Any, columns: Columns = None, *, chunk_rows: int = CHUNK_ROWS, dtypes: Dtypes | None = None
) -> Iterator[Any]:
    """Rows of a file or an iterable in chunks, never all at once.

    A .npz file is loaded whole; all others are read from disk as needed.

    Parameters
    ----------
    source : path, container, or iterable of containers
        Paths to Parquet, a folder of Parquet files, CSV, .npy or .npz.
    columns : str or sequence of str, optional
        Columns of a table, in this order; a single name yields Series. Default: all.
    chunk_rows : int, default 16384
        Maximum number of rows in a chunk.
    dtypes : mapping, optional
        Types of columns of a CSV file ("float64", "int64", "bool", "str", "timedelta64[us]" for durations written as
        "1 days 12:00:00", or "datetime64[us, Europe/Oslo]" for dates in a time zone); others are inferred from the
        first block.

    Returns
    -------
    iterator
        Tables as DataFrames, sparse rows as `csr_array`, arrays as arrays.

    Raises
    ------
    InputError
        If the source or its columns do not exist, or a CSV file cannot be read.
    LoadError
        If a file of another format is damaged.

    Examples
    --------
    >>> import numpy as np
    >>> [chunk.shape for chunk in read_chunks(np.zeros((5, 2)), chunk_rows=3)]
    [(3, 2), (2, 2)]
    """
    chunk_rows = check_positive_int(chunk_rows, "chunk_rows")
    return open_source(source).chunks(columns, chunk_rows, dtypes or {})


def read_table(source: Any, columns: Columns = None, *, dtypes: Dtypes | None = None) -> Any:
    """All rows of a file or an iterable in one container, for `fit`.

    Parameters
    ----------
    source, columns, dtypes : as for `read_chunks`

    Returns
    -------
    DataFrame, Series, csr_array or array

    Raises
    ------
    InputError
        As `read_chunks`, and if there are no rows.
    LoadError
        As `read_chunks`.

    Examples
    --------
    >>> import numpy as np
    >>> read_table([np.zeros((2, 3)), np.ones((1, 3))]).shape
    (3, 3)
    """
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
        return containers.csr_array(sparse.vstack(parts))
    return np.concatenate(parts)


def open_source(source: Any) -> RowSource:
    """What is known of the rows without reading them."""
    source = containers.as_pandas(source)
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
    check_readable(path)
    if name.endswith(TOKENS):
        raise InputError(
            f"{path}: .jsonl files hold sequences, but the explainer was fitted on rows; expected {KNOWN}."
        )
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
        for span in containers.slices(containers.n_rows(X), chunk_rows):
            yield _columns_of(slice_rows(X, span), names, columns)

    return RowSource(containers.describe(X), names, containers.n_rows(X), chunks)


def _of_iterable(source: Iterable[Any], columns: Columns, chunk_rows: int) -> Iterator[Any]:
    for number, X in enumerate(map(containers.as_pandas, source)):
        if not _is_container(X):
            raise InputError(
                f"part {number} of the iterable is {containers.describe(X)}; expected a DataFrame, an array, a scipy "
                "CSR matrix or a list of texts, each with a part of the rows."
            )
        part = _of_container(X)
        yield from part.chunks(columns if part.columns is not None else None, chunk_rows, {})


def _columns_of(X: Any, names: list[str] | None, columns: Columns) -> Any:
    if columns is None or names is None:
        return X
    place = {name: i for i, name in enumerate(names)}
    return X.iloc[:, place[columns] if isinstance(columns, str) else [place[name] for name in columns]]
