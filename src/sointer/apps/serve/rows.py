"""Rows in JSON as the container that fit saw, and back."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support import containers
from sointer._support.validation import brief, did_you_mean, some
from sointer.data.checks import places_of
from sointer.data.columns import FrameColumn, no_number
from sointer.data.inputs import InputFormat
from sointer.data.texts import word_pattern
from sointer.data.times import times_of
from sointer.errors import InputError, require_extra
from sointer.explainers.base import Explainer
from sointer.io.columns import names_in_fit
from sointer.masking.unit_values import plain

FORMS = 'a list of records [{"name": value, ...}], {"columns": [names], "data": [[values]]}, or a list of lists'

MAX_NAME_LENGTH, MAX_NAMES_COMPARED = 60, 2000
MAX_TEXT_LENGTH, MAX_TEXT_WORDS, MAX_WORDS = 2**18, 50_000, 100_000
"""Letters and words of one text, and words of all texts of a request: each takes many times its bytes."""
LISTS = {list, tuple}
NUMBERS = {int, float, bool}
NUMBERS_AND_LISTS = NUMBERS | LISTS


def read_rows(explainer: Explainer, rows: Any, max_rows: int) -> Any:
    """At most `max_rows` rows, in any of the forms, as an array, DataFrame, CSR, or a list of texts."""
    columns, rows = _split(rows) if isinstance(rows, dict) else (None, rows)
    if not isinstance(rows, list):
        raise InputError(f"rows is {_describe(rows)}, expected {FORMS}.")
    if not 1 <= len(rows) <= max_rows:
        instead = " Send them in several requests." if rows else ""
        raise InputError(f"rows holds {len(rows):,} rows, expected 1 to {max_rows:,}.{instead}")
    if explainer.reads_text and all(isinstance(row, str) for row in rows):
        refuse_long(rows)
        return rows
    input_format = explainer.input_format_
    if input_format.image is not None:
        return numbers(rows, "rows")
    names = names_in_fit(input_format)
    if columns is not None:
        if input_format.kind == "csr":
            return _sparse((zip(columns, row, strict=True) for row in rows), len(rows), names)
        places = _in_order({name: place for place, name in enumerate(columns)}, names, 0)
        cells = rows if columns == names else [[row[place] for place in places] for row in rows]
    elif all(isinstance(row, dict) for row in rows):
        if input_format.kind == "csr":
            return _sparse((row.items() for row in rows), len(rows), names)
        cells = [_in_order(row, names, number) for number, row in enumerate(rows)]
    elif all(isinstance(row, list) for row in rows):
        for number, row in enumerate(rows):
            if len(row) != len(names):
                raise InputError(
                    f"row {number} holds {len(row)} values, expected {len(names)}: one for each of {some(names)}, in "
                    "this order. Records say which is which."
                )
        cells = rows
    else:
        wanted = FORMS if not explainer.reads_text else "a list of texts"
        odd = next(row for row in rows if not isinstance(row, list | dict) or type(row) is not type(rows[0]))
        raise InputError(f"rows holds {_describe(odd)}, expected {wanted}.")
    if input_format.columns:
        return as_frame(input_format, list(zip(*cells, strict=True)))
    return numbers(cells, "rows", null=bool(input_format.fills))


def refuse_long(texts: Sequence[str]) -> None:
    """Refuse texts that would take too much memory."""
    if (longest := max(map(len, texts), default=0)) > MAX_TEXT_LENGTH:
        raise InputError(f"rows holds a text of {longest:,} characters, expected at most {MAX_TEXT_LENGTH:,}.")
    if sum(map(len, texts)) <= MAX_TEXT_WORDS:
        return
    n_words = [sum(1 for _ in word_pattern().finditer(text)) for text in texts]
    if max(n_words) > MAX_TEXT_WORDS:
        raise InputError(f"rows holds a text of {max(n_words):,} words, expected at most {MAX_TEXT_WORDS:,}.")
    if sum(n_words) > MAX_WORDS:
        raise InputError(
            f"rows holds {sum(n_words):,} words, expected at most {MAX_WORDS:,}. Send fewer texts at a time."
        )


def as_frame(input_format: InputFormat, columns: Sequence[Sequence[Any] | NDArray[Any]]) -> Any:
    """Columns in the order of fit as a DataFrame: numbers as in fit or as float64, categories as they are."""
    pandas = require_extra("pandas", "pandas")
    made = {}
    for place, (column, values) in enumerate(zip(input_format.columns, columns, strict=True)):
        if column.is_categorical or column.is_text:
            odd = next((value for value in values if isinstance(value, list | dict)), None)
            if odd is not None:
                raise InputError(f"column {str(column.label)!r} holds {_describe(odd)}, expected strings or numbers.")
            made[place] = pandas.Series(list(values), dtype=object)  # else pandas would make its own kind of strings
            if column.is_text:
                refuse_long([value for value in values if isinstance(value, str)])
        elif column.time is not None:
            made[place] = read_times(values, column)
        else:
            null = bool(input_format.fills) and input_format.fills[place] is not None
            is_array = isinstance(values, np.ndarray) and values.dtype.kind != "O"
            cells = values if is_array else _numbers_of(list(values), column, null=null)
            dtype = pandas.api.types.pandas_dtype(column.dtype)
            made[place] = np.asarray(cells, dtype=np.float64)
            if not pandas.api.types.is_float_dtype(dtype):  # else false comes back as 0.0
                made[place] = column.decode(made[place][:, None])
    frame = pandas.DataFrame(made)
    frame.columns = pandas.Index([column.label for column in input_format.columns])
    return frame


def _numbers_of(values: list[Any], column: FrameColumn, *, null: bool) -> NDArray[Any]:
    """A column of numbers; anything else is refused by the sentence that `explain` has for it."""
    odd = next((value for value in values if type(value) not in NUMBERS | {type(None)}), None)
    if odd is not None:
        raise InputError(no_number(odd, column.label, column.dtype))
    return numbers(values, f"column {str(column.label)!r}", null=null)


def read_times(values: Iterable[Any], column: FrameColumn) -> Any:
    """Dates and durations written as text, such as "2024-05-31" and "1 days", with null where they are missing."""
    cells = [plain(value) for value in values]
    odd = next((cell for cell in cells if not (cell is None or isinstance(cell, str))), None)
    assert column.time is not None
    try:
        if odd is None:
            return times_of(cells, column.time, column.label)
    except (ValueError, TypeError, OverflowError):
        odd = next((cell for cell in cells if cell is not None), None)
    kind, example = ("durations", "1 days 12:00:00") if column.time.is_duration else ("dates", "2024-05-31T12:00:00")
    raise InputError(
        f"column {str(column.label)!r}: found {_describe(odd)}, expected {kind} as text, such as {example!r}."
    )


def numbers(cells: Sequence[Any], what: str, *, null: bool = False) -> NDArray[Any]:
    """Nested lists of numbers as an array; where missing values may come, null is NaN.

    numpy sees nothing else, as a string gives each cell room for all of it.
    """
    allowed = NUMBERS_AND_LISTS | {type(None)} if null else NUMBERS_AND_LISTS
    for part in _lists_in(cells):
        if not allowed.issuperset(map(type, part)):
            odd = next(one for one in part if type(one) not in allowed)
            raise InputError(f"{what}: found {_describe(odd)}, expected numbers only.")
    try:
        made = np.asarray(cells)
        if null and made.dtype.kind == "O":
            made = np.asarray(cells, dtype=np.float64)
    except (ValueError, OverflowError, TypeError):
        raise InputError(f"{what}: lists of different lengths or depths, expected a rectangular table.") from None
    if made.dtype.kind not in "biuf":
        large = (one for part in _lists_in(cells) for one in part if isinstance(one, int) and abs(one) > 2**63)
        raise InputError(f"{what}: found {_describe(next(large, cells))}, expected numbers only.")
    return made


def strings_in(cells: Sequence[Any]) -> Iterator[str]:
    """The strings in nested lists."""
    return (one for part in _lists_in(cells) for one in part if isinstance(one, str))


def _lists_in(cells: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """A list and those in it, outer ones first."""
    waiting = [cells]
    while waiting:
        part = waiting.pop()
        yield part
        if not LISTS.isdisjoint(map(type, part)):
            waiting += [one for one in reversed(part) if type(one) in LISTS]


def row_as_json(X: Any, row: int, names: Sequence[str]) -> Any:
    """One row as a record, or a text as it is; of mostly-zero rows only what is there."""
    if isinstance(X, list):
        return X[row]
    return {names[place]: value for place, value in cells_of(X, row).items()}


def cells_of(X: Any, row: int) -> dict[int, Any]:
    """The values of one row of a table by the place of their feature; of CSR, those that are there."""
    if containers.is_frame(X):
        return {place: plain(X.iat[row, place]) for place in range(X.shape[1])}
    if containers.is_sparse(X):
        inside = slice(X.indptr[row], X.indptr[row + 1])
        return {int(place): plain(value) for place, value in zip(X.indices[inside], X.data[inside], strict=True)}
    values = containers.tensor_to_numpy(X[row]) if containers.is_tensor(X) else X[row]
    return dict(enumerate(values.tolist()))


def hint(name: str, names: Sequence[str]) -> str:
    """Names like one that is not known, where looking for them does not take long."""
    return did_you_mean(name[:MAX_NAME_LENGTH], names[:MAX_NAMES_COMPARED])


def _split(split: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    columns, data = split.get("columns"), split.get("data")
    if set(split) != {"columns", "data"} or not isinstance(columns, list) or not isinstance(data, list):
        raise InputError(f"rows is an object with the keys {some(sorted(split))}, expected {FORMS}.")
    if not all(isinstance(name, str) for name in columns):
        raise InputError("rows: columns must be names, as strings.")
    if len(set(columns)) < len(columns):
        places_of([name for name, n in Counter(columns).items() if n > 1], columns, "rows")
    for number, row in enumerate(data):
        if not isinstance(row, list) or len(row) != len(columns):
            raise InputError(
                f"rows: entry {number} of data is {_describe(row)}, expected a list of {len(columns)} values."
            )
    return columns, data


def _in_order(row: dict[str, Any], names: list[str], number: int) -> list[Any]:
    """The values of the features; what else a record holds, such as an id, is ignored, as everywhere."""
    try:
        return [row[name] for name in names]
    except KeyError:
        places_of(names, list(row), f"row {number}")
        raise


def _sparse(rows: Iterable[Iterable[tuple[str, Any]]], n_rows: int, names: list[str]) -> Any:
    place_of = {name: place for place, name in enumerate(names)}
    at_row, at_column, values = array("i"), array("i"), []
    for number, row in enumerate(rows):
        for name, value in row:
            if name not in place_of:
                raise InputError(f"row {number} has {_describe(name)}, which is no feature. {hint(name, names)}")
            at_row.append(number)
            at_column.append(place_of[name])
            values.append(value)
    data = numbers(values, "rows").astype(np.float64) if values else np.zeros(0)
    if data.ndim != 1:
        raise InputError("rows: found lists in records, expected one number for each feature.")
    return containers.csr_array((data, (np.array(at_row), np.array(at_column))), shape=(n_rows, len(names)))


def _describe(value: Any) -> str:
    if isinstance(value, list | tuple | dict):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if value is None:
        return "null"
    if isinstance(value, int) and abs(value) > 2**63:
        return f"an integer of {value.bit_length()} bits"
    return brief(value)
