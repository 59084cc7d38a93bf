"""Columns of strings that are no categories: ids, and numbers or dates that are written as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from sointer._support.validation import some
from sointer.errors import InputError


def _is_read(read: Callable[[str], Any], value: Any) -> bool:
    try:
        read(str(value))
    except (ValueError, OverflowError):
        return False
    return True


def _with_comma(text: str) -> float:
    return float(text.replace(",", "."))


def _duration(text: str) -> Any:
    import pandas as pd

    if ":" not in text and "day" not in text:
        raise ValueError  # pandas reads "5-6" too
    return pd.to_timedelta(text)


def _date(text: str) -> Any:
    import pandas as pd

    if len(re.findall(r"\d+", text)) < 2 and not _MONTH.search(text):
        raise ValueError  # pandas reads ids such as T-0012, too
    return pd.Timestamp(text)


_MONTH = re.compile("jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec", re.IGNORECASE)
_WRITTEN: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    ("numbers", float, "pandas.to_numeric({}, errors='coerce')"),
    ("numbers with decimal commas", _with_comma, "{}.str.replace(',', '.').astype(float)"),
    ("durations", _duration, "pandas.to_timedelta({})"),
    ("dates", _date, "pandas.to_datetime({})"),
)
"""What a column of strings may hold instead of ids: how to read one of them, and how to convert the column."""
MAX_FEW = 100
"""As many levels a column may have, however few rows there are."""


def refuse_ids(
    n_levels: int, n_rows: int, label: Hashable, *, are_numbers: bool = False, values: Sequence[Any] = ()
) -> None:
    """Refuse strings of which most rows have one of their own, and say if `values` are numbers or times in disguise."""
    if n_levels > max(MAX_FEW, n_rows / 2):
        if are_numbers:
            raise InputError(
                f"X has numbers in column {label!r} of dtype object, {n_levels} different ones in {n_rows} rows, which "
                f"are no categories. Convert it with X[{label!r}].astype(float), or all such with X.infer_objects()."
            )
        for what, read, remedy in _WRITTEN:
            odd = sorted(str(value) for value in values if not _is_read(read, value))
            if values and len(odd) <= len(values) / 10:
                but = f", but for {some(odd)}" if odd else ""
                raise InputError(
                    f"X has a column {label!r} with {n_levels} different values in {n_rows} rows, written as text: "
                    f"{what}{but}. Drop it if it is an id (command line: --drop {label}); else convert it, for example "
                    f"with {remedy.format(f'X[{label!r}]')}, and give Parquet instead of CSV."
                )
        raise InputError(
            f"X has a column {label!r} with {n_levels} different values in {n_rows} rows: an id, or free text, and no "
            f"category, as other rows will bring others. Drop it (command line: --drop {label}); if it is text, pass "
            f"text_columns=[{label!r}] (--text-columns {label}); where the model needs it, give a function that fills "
            "it in and calls the model."
        )
