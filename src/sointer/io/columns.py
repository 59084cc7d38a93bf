"""Which columns of a table an explainer needs, and in what order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sointer._support import containers
from sointer._support.validation import some
from sointer.data.checks import places_of
from sointer.data.inputs import InputFormat
from sointer.errors import InputError
from sointer.explainers.base import Explainer

Columns: TypeAlias = "str | Sequence[str] | None"
"""Columns of a table, one of them (which gives Series), or all."""
Dtypes: TypeAlias = Mapping[str, str]
"""The dtype of columns by name, for files that do not say it themselves."""

NULLS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""What stands for a missing value in CSV files: the same as for pandas.read_csv."""


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
    index: tuple[str, ...] = ()
    """Those of the columns that hold the index of a DataFrame: names of rows, and no features."""


def column_names(columns: Columns) -> list[str] | None:
    """The columns as a list; None for all."""
    return [columns] if isinstance(columns, str) else columns if columns is None else list(columns)


def check_columns(columns: Columns, known: Sequence[str] | None, what: str) -> None:
    """Refuse columns that are not there."""
    wanted = column_names(columns)
    if wanted is None:
        return
    if known is None:
        raise InputError(f"{what} has no named columns, but {some(wanted)} were requested; leave columns out.")
    names = set(known)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise InputError(
            f"{what} lacks {len(missing)} of the columns that are needed: {some(missing)}; it has {some(known)}. "
            "Give a source with these columns, or rename them."
        )


def slice_rows(X: Any, span: slice) -> Any:
    """Consecutive rows of any container."""
    return X.iloc[span] if containers.is_frame(X) or containers.is_series(X) else X[span]


def columns_needed(explainer: Explainer, names: Sequence[str] | None, text_column: str | None, what: str) -> Columns:
    """The columns to read of a table with these names: by name, whatever their order; others are left alone.

    None where the rows have no names, or where neither they nor those of fit were named by anyone.
    """
    if names is None or explainer.input_format_.image is not None:
        return None
    if explainer.reads_text:
        return _text_column(names, text_column, what)
    wanted = names_in_fit(explainer.input_format_)
    nameless = explainer.input_format_._is_nameless and not set(wanted) <= set(names)
    if nameless and len(names) == len(wanted):
        return None
    if nameless:
        raise InputError(
            f"{what} has {len(names)} columns, but the explainer was fitted on {len(wanted)} features without names; "
            "keep only those columns, in the order of fit, or fit on a DataFrame."
        )
    places_of(wanted, list(names), what)
    return wanted


def with_id(columns: Columns, id_column: str, source: RowSource) -> list[str]:
    """The columns to read, with the one that holds the ids of rows."""
    if source.columns is None:
        raise InputError(
            f"{source.name} has no named columns, but rows are to be known by {id_column!r}; leave the id out, or "
            "give a table with names."
        )
    check_columns([id_column], source.columns, source.name)
    wanted = column_names(columns)
    wanted = list(source.columns) if wanted is None else wanted
    return wanted if id_column in wanted else [*wanted, id_column]


def names_of_rows(column: Any) -> list[str | None]:
    """The ids of rows as text; None where one is missing."""
    return [None if missing else str(one) for one, missing in zip(column.tolist(), column.isna(), strict=True)]


def csv_dtypes(explainer: Explainer) -> Dtypes:
    """How to read the columns of a CSV file, which does not say it, so that they are as in fit."""
    columns = explainer.input_format_.columns
    if explainer.reads_text:
        return {}
    if not columns:
        return {name: "float64" for name in explainer.input_format_.feature_names}
    times = {str(c.label): c.time for c in columns if c.time and (c.time.zone or c.time.is_duration)}
    known = {name: "timedelta64[us]" if t.is_duration else f"datetime64[us, {t.zone}]" for name, t in times.items()}
    others = [c for c in columns if c.time is None]
    return known | {str(c.label): "text" if c.is_text else _csv_dtype(c.dtype, c.categories) for c in others}


def as_in_fit(explainer: Explainer, X: Any, text_column: str | None) -> Any:
    """A part of the rows with the columns of fit, under the labels of fit; other containers as they are."""
    if not containers.is_frame(X):
        return X
    names = [str(label) for label in X.columns]
    needed = columns_needed(explainer, names, text_column, "a table of the source")
    if needed is None:
        return X
    if isinstance(needed, str):
        return X.iloc[:, names.index(needed)]
    if needed != names:
        X = X.iloc[:, places_of(column_names(needed) or [], names, "a table of the source")]
    columns = explainer.input_format_.columns
    return X.set_axis([column.label for column in columns], axis=1) if columns else X


def names_in_fit(input_format: InputFormat) -> list[str]:
    """What the features are called in tables and requests."""
    columns = input_format.columns
    return [str(column.label) for column in columns] if columns else list(input_format.feature_names)


def _text_column(names: Sequence[str], text_column: str | None, what: str) -> str:
    if text_column is None and len(names) == 1:
        return names[0]
    chosen = "text" if text_column is None else text_column
    if chosen in names:
        return chosen
    wanted = "" if text_column is None else f", and none is {text_column!r}"
    raise InputError(
        f"{what} has the columns {some(list(names))}{wanted}, but the explainer was fitted on texts. Name the column "
        "that holds them: --text on the command line, text_column= in Python."
    )


def _csv_dtype(dtype: str, categories: tuple[Any, ...] | None) -> str:
    if categories is not None:
        kinds = {type(category) for category in categories}
        if not set(NULLS).isdisjoint(categories):
            return "known"  # a country may be "NA"
        return {str: "str", int: "int64", float: "float64", bool: "bool"}[kinds.pop()] if len(kinds) == 1 else "str"
    return "bool" if dtype.startswith("bool") else "float64"
