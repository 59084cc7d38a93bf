"""Which columns of a table an explainer needs, and in what order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sointer._support import containers
from sointer._support.validation import _some as some
from sointer.errors import InputError
from sointer.explainers.base import Explainer
from sointer.streaming.rows import Columns, Dtypes


def columns_needed(explainer: Explainer, names: Sequence[str] | None, text_column: str | None, what: str) -> Columns:
    """The columns to read of a table with these names: by name, whatever their order; others are left alone.

    None where the rows have no names, or where neither they nor those of fit were named by anyone.
    """
    if names is None or explainer.input_format_.image is not None:
        return None
    if explainer.text_ is not None:
        return _text_column(names, text_column, what)
    wanted = _names_in_fit(explainer)
    missing = [name for name in wanted if name not in set(names)]
    if not missing:
        return wanted
    nameless = not explainer.input_format_.columns and wanted == [f"x{i}" for i in range(len(wanted))]
    if nameless and len(names) == len(wanted):
        return None
    if nameless:
        raise InputError(
            f"{what} has {len(names)} columns, but the explainer was fitted on {len(wanted)} features without names; "
            "keep only those columns, in the order of fit, or fit on a DataFrame."
        )
    raise InputError(
        f"{what} lacks {len(missing)} of the {len(wanted)} features seen in fit: {some(missing)}; it has {some(names)}"
        ". Add or rename the columns; others are ignored, and their order does not matter."
    )


def csv_dtypes(explainer: Explainer) -> Dtypes:
    """How to read the columns of a CSV file, which does not say it, so that they are as in fit."""
    columns = explainer.input_format_.columns
    if explainer.text_ is not None:
        return {}
    if not columns:
        return {name: "float64" for name in explainer.input_format_.feature_names}
    return {str(column.label): _csv_dtype(column.dtype, column.categories) for column in columns}


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
        place = {name: i for i, name in enumerate(names)}
        X = X.iloc[:, [place[name] for name in needed]]
    columns = explainer.input_format_.columns
    return X.set_axis([column.label for column in columns], axis=1) if columns else X


def _names_in_fit(explainer: Explainer) -> list[str]:
    columns = explainer.input_format_.columns
    return [str(column.label) for column in columns] if columns else list(explainer.input_format_.feature_names)


def _text_column(names: Sequence[str], text_column: str | None, what: str) -> str:
    if text_column is None and len(names) == 1:
        return names[0]
    chosen = "text" if text_column is None else text_column
    if chosen in names:
        return chosen
    wanted = "no text_column was given" if text_column is None else f"none is {text_column!r}"
    raise InputError(
        f"{what} has the columns {some(list(names))}, and {wanted}; the explainer was fitted on texts. Say which "
        "column holds them with text_column=."
    )


def _csv_dtype(dtype: str, categories: tuple[Any, ...] | None) -> str:
    if categories is not None:
        kinds = {type(category) for category in categories}
        return {str: "str", int: "int64", float: "float64", bool: "bool"}[kinds.pop()] if len(kinds) == 1 else "str"
    return "bool" if dtype.startswith("bool") else "float64"
