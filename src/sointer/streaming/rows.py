"""Rows that are read a part at a time, wherever they come from."""

from __future__ import annotations

import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any, TypeAlias

from sointer._support import containers
from sointer._support.validation import _some as some
from sointer.errors import InputError, LoadError, SointerError

Columns: TypeAlias = "str | Sequence[str] | None"
"""Some columns of a table, one of them (which gives Series), or all."""
Dtypes: TypeAlias = Mapping[str, str]
"""The dtype of columns by name, for files that do not say it themselves."""

# What libraries raise while they read files that were damaged.
DAMAGE: tuple[type[Exception], ...] = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


@contextmanager
def reading(
    path: str | PathLike[str],
    kind: str,
    advice: str = "Check the file, or write it again.",
    raises: type[SointerError] = LoadError,
) -> Iterator[None]:
    """Within the block, whatever a library says of a file that it cannot read becomes one error of ours."""
    pyarrow = sys.modules.get("pyarrow")
    damage = DAMAGE if pyarrow is None else (*DAMAGE, pyarrow.ArrowException)
    try:
        yield
    except (SointerError, MemoryError):
        raise
    except damage as error:
        told = " ".join(str(error).split())[:300] or type(error).__name__
        raise raises(f"{path} cannot be read as {kind}: {told.rstrip('.')}. {advice}") from error


@dataclass(frozen=True)
class RowSource:
    """What is known of rows before they are read, and the way to read them."""

    name: str
    """What to call it in messages."""
    columns: list[str] | None
    """The names of its columns, where it has names."""
    n_rows: int | None
    """How many rows there are, where that is known without reading them."""
    chunks: Callable[[Columns, int, Dtypes], Iterator[Any]]
    """Parts of at most so many rows, in the container they are kept in."""


def check_columns(columns: Columns, known: Sequence[str] | None, what: str) -> None:
    """Refuse columns that are not there."""
    if columns is None:
        return
    wanted = [columns] if isinstance(columns, str) else columns
    if known is None:
        raise InputError(f"{what} has no named columns, but {some(wanted)} were asked for; leave columns out.")
    names = set(known)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise InputError(
            f"{what} lacks {len(missing)} of the columns that are needed: {some(missing)}; it has {some(known)}. Give "
            "a source with these columns, or rename them."
        )


def slices(n_rows: int, chunk_rows: int) -> Iterator[slice]:
    """Consecutive spans of at most chunk_rows rows."""
    for start in range(0, n_rows, chunk_rows):
        yield slice(start, min(start + chunk_rows, n_rows))


def slice_rows(X: Any, span: slice) -> Any:
    """Consecutive rows of any container."""
    return X.iloc[span] if containers.is_frame(X) or containers.is_series(X) else X[span]
