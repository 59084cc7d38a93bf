"""Tables of polars and pyarrow as pandas DataFrames with Arrow dtypes, and back."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

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
    """Refuse a polars LazyFrame, which holds no rows."""
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(X, polars.LazyFrame):
        raise InputError(f"{caller}: X is a polars LazyFrame, expected rows in memory. Give X.collect().")


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


def rows(X: Any, index: Any) -> Any:
    """Rows of a table by number."""
    return X[index] if backend_of(X) == "polars" else X.take(index)
