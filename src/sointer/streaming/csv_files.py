"""CSV files, plain or compressed: blocks of text become DataFrames whose dtypes never change on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sointer.errors import InputError, require_extra
from sointer.streaming.rows import Columns, Dtypes, RowSource, check_columns, reading, slices

BLOCK_BYTES = 2**24
ADVICE = (
    'Where a column changes its kind on the way, say what it is with dtypes={"column": "float64"}, or mend the file.'
)


def csv_source(path: Path) -> RowSource:
    """The rows of a CSV (or tab-separated) file with a header."""
    require_extra("pyarrow", "parquet")

    def chunks(columns: Columns, chunk_rows: int, dtypes: Dtypes) -> Iterator[Any]:
        check_columns(columns, names, str(path))
        wanted = [columns] if isinstance(columns, str) else columns
        with reading(path, "CSV", ADVICE, InputError):
            for batch in _batches(path, wanted, dtypes):
                for span in slices(batch.num_rows, chunk_rows):
                    frame = batch.slice(span.start, span.stop - span.start).to_pandas()
                    yield frame if not isinstance(columns, str) else frame[columns]

    with reading(path, "CSV", ADVICE, InputError), _reader(path, None, {}) as reader:
        names = list(reader.schema.names)
    return RowSource(str(path), names, None, chunks)


def _reader(path: Path, columns: Any, dtypes: Dtypes) -> Any:
    pyarrow, csv = require_extra("pyarrow", "parquet"), require_extra("pyarrow.csv", "parquet")
    types = {name: _arrow_type(pyarrow, dtype) for name, dtype in dtypes.items()}
    plain_name = path.name.lower().removesuffix(".gz").removesuffix(".bz2").removesuffix(".zst")
    return csv.open_csv(
        pyarrow.input_stream(str(path), compression="detect"),
        read_options=csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
        parse_options=csv.ParseOptions(delimiter="\t" if plain_name.endswith(".tsv") else ","),
        convert_options=csv.ConvertOptions(include_columns=columns, column_types=types),
    )


def _batches(path: Path, columns: Any, dtypes: Dtypes) -> Iterator[Any]:
    """Record batches; the types are those of the first block where they were not given."""
    with _reader(path, columns, dtypes) as reader:
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            yield batch


def _arrow_type(pyarrow: Any, dtype: str) -> Any:
    known = {"bool": pyarrow.bool_(), "str": pyarrow.string(), "int64": pyarrow.int64(), "float64": pyarrow.float64()}
    if dtype not in known:
        raise InputError(f"dtypes may be {', '.join(map(repr, known))}, got {dtype!r}.")
    return known[dtype]
