"""One column of a DataFrame as numbers, and back: numbers as they are, dates counted, the others one-hot."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer._support.validation import brief, some
from sointer.data.checks import MAX_EXACT, integers_to_float, refuse_ids
from sointer.data.times import TimeCode, read_ticks, write_times
from sointer.errors import InputError

FloatArray = npt.NDArray[np.float64]


def restore_dtype(values: FloatArray, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Float64 values in `dtype`, copied only if need be; integers and booleans only where no value would change."""
    if dtype.kind == "f":
        return values.astype(dtype, copy=False)
    if dtype.kind == "b":
        fits = bool(np.all((values == 0) | (values == 1)))
    else:
        info = np.iinfo(dtype)
        low, high = max(float(info.min), -MAX_EXACT), min(float(info.max), MAX_EXACT)
        fits = bool(np.all((values == np.rint(values)) & (values >= low) & (values <= high)))
    return values.astype(dtype) if fits else values


@dataclass(frozen=True)
class FrameColumn:
    """How one DataFrame column is written: its label and dtype, its categories, or how its dates are counted."""

    label: Hashable
    dtype: str
    categories: tuple[Any, ...] | None = None
    categories_dtype: str | None = None
    ordered: bool = False
    missing: str | None = None
    """Of categories: what a missing one is (a key of `MISSING`), if there may be any; it has the last column."""
    time: TimeCode | None = None
    is_enum: bool = False
    """Whether the categories are an Enum of polars."""
    is_text: bool = False
    """Whether its values are free text, of which the words are features: see `TextTableFormat`."""

    @classmethod
    def infer(cls, series: Any, *, may_miss: bool = False) -> FrameColumn:
        """Read the column's dtype; a str or object column's categories are the values it holds.

        Categories get a column for missing ones if there are any, or if there may be.
        """
        import pandas as pd

        label, dtype = series.name, series.dtype
        missing = _missing_value(series) if may_miss or series.isna().any() else None
        if isinstance(dtype, pd.CategoricalDtype):
            known = tuple(_plain(value, label) for value in dtype.categories)
            return cls(label, "category", known, str(dtype.categories.dtype), bool(dtype.ordered), missing)
        if is_number(dtype):
            return cls(label, str(dtype))
        if (ticks := read_ticks(series)) is not None:
            return cls(label, str(dtype), time=TimeCode.infer(ticks, label))
        if pd.api.types.is_object_dtype(dtype) or pd.api.types.is_string_dtype(dtype):
            seen = {(type(plain), plain) for plain in (_plain(v, label) for v in series.dropna().to_numpy(object))}
            are_numbers = all(issubclass(kind, (int, float)) for kind, _ in seen)
            refuse_ids(len(seen), len(series), label, are_numbers=are_numbers, values=[value for _, value in seen])
            # Sorted, so that the columns do not depend on the order of the rows.
            ordered = sorted(seen, key=lambda pair: (pair[0].__name__, pair[1]))
            return cls(label, _dtype_name(dtype), tuple(value for _, value in ordered), missing=missing)
        raise InputError(
            f"X has a column {label!r} of dtype {dtype}; expected numbers, booleans, strings, categories, dates or "
            f"durations. {_how_to_convert(str(dtype))}"
        )

    @property
    def is_categorical(self) -> bool:
        """True when the column is one-hot inside."""
        return self.categories is not None

    @property
    def width(self) -> int:
        """How many numeric columns stand for this one."""
        return 1 if self.categories is None else len(self.categories) + (self.missing is not None)

    def encode(self, series: Any) -> FloatArray:
        """The column as numbers: (n, width); missing numbers and dates are NaN."""
        if str(series.dtype) == "null[pyarrow]":  # where all are missing, other libraries know no other dtype
            series = series.astype(object)
        if self.categories is not None:
            codes = self._codes(series)
            block = np.zeros((len(codes), self.width))
            block[np.arange(len(codes)), codes] = 1.0
            return block
        if self.time is not None:
            if series.isna().all():  # whatever its dtype: of NaT alone, pandas makes dates
                return np.full((len(series), 1), np.nan)
            ticks = read_ticks(series)
            if ticks is None:
                what, how = ("durations", "to_timedelta") if self.time.is_duration else ("dates", "to_datetime")
                raise InputError(
                    f"X has column {self.label!r} of dtype {series.dtype}, expected {what} like the "
                    f"{self.dtype} seen before. Convert the column, for example with pandas.{how}."
                )
            return self.time.encode(ticks, self.label).reshape(-1, 1)
        return self._numbers(series).reshape(-1, 1)

    def _numbers(self, series: Any) -> FloatArray:
        import pandas as pd

        dtype = series.dtype
        if pd.api.types.is_object_dtype(dtype) or pd.api.types.is_string_dtype(dtype):
            odd = [value for value in series.dropna() if not isinstance(value, _NUMBER)]
            if odd:
                raise InputError(no_number(odd[0], self.label, self.dtype))
            series = pd.Series(series.to_numpy(object), dtype=object).astype("Float64")  # numbers beside None
        elif not is_number(dtype):
            raise InputError(
                f"X has column {self.label!r} of dtype {dtype}, expected numbers like the {self.dtype} "
                "seen before. Convert the column."
            )
        if isinstance(dtype, np.dtype) and dtype.kind in "iu":
            numbers = integers_to_float(np.asarray(series), f"X, in column {self.label!r},")
        else:
            numbers = np.asarray(series.to_numpy(np.float64, na_value=np.nan))
            if pd.api.types.is_integer_dtype(dtype):
                integers_to_float(numbers, f"X, in column {self.label!r},")
        # Between them may be a mean, as of what was removed.
        neither = numbers[(numbers < 0) | (numbers > 1)]
        if self.dtype.startswith("bool") and len(neither):
            raise InputError(no_number(float(neither[0]), self.label, self.dtype))
        return numbers

    def _codes(self, series: Any) -> npt.NDArray[np.int64]:
        assert self.categories is not None
        exact = {(type(value), value): code for code, value in enumerate(self.categories)}
        # 1, 1.0 and True are one value to pandas when a column changes dtype; exact types go first.
        loose = {value: code for code, value in enumerate(self.categories)}
        missing = np.asarray(series.isna())
        if missing.any() and self.missing is None:
            raise InputError(refused_missing(missing, f"column {self.label!r}"))
        codes = np.full(len(series), len(self.categories), dtype=np.int64)
        unseen = []
        values = series.to_numpy(object)
        for row in np.flatnonzero(~missing).tolist():
            plain = _plain(values[row], self.label)
            code = exact.get((type(plain), plain), loose.get(plain, -1))
            codes[row] = code
            if code < 0:
                unseen.append(plain)
        if unseen:
            raise InputError(
                f"X has unseen categories in column {self.label!r}: {some(list(dict.fromkeys(unseen)))}; "
                f"expected one of {some(list(self.categories))}. Map them to known ones, or fit again with "
                "them."
            )
        return codes

    def decode(self, block: FloatArray) -> Any:
        """Numbers (n, width) back to a pandas Series; the largest entry of a block names the category."""
        import pandas as pd

        if self.categories is None:
            values = block[:, 0]
            if self.time is not None:
                return write_times(self.time.decode(values), self.dtype, self.time.zone)
            dtype = pd.api.types.pandas_dtype(self.dtype)
            if isinstance(dtype, np.dtype):
                return pd.Series(restore_dtype(values, dtype), copy=False)
            present = values[~np.isnan(values)]
            integral = pd.api.types.is_integer_dtype(dtype) and np.any(present != np.rint(present))
            boolean = pd.api.types.is_bool_dtype(dtype) and np.any((present != 0) & (present != 1))
            return pd.Series(values) if integral or boolean else pd.Series(values).astype(dtype)
        codes = np.argmax(block, axis=1)
        if self.dtype == "category":
            index = pd.Index(list(self.categories), dtype=self.categories_dtype)
            codes = np.where(codes == len(self.categories), -1, codes)
            return pd.Series(pd.Categorical.from_codes(codes, categories=index, ordered=self.ordered))
        labels = np.empty(len(self.categories) + 1, dtype=object)
        labels[:-1] = self.categories
        labels[-1] = MISSING[self.missing or "None"]()
        return pd.Series(labels[codes], dtype=_dtype(self.dtype))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; a tuple label (of a MultiIndex) is written as a list."""
        label = list(self.label) if isinstance(self.label, tuple) else self.label
        categories = None if self.categories is None else list(self.categories)
        return {
            "label": label,
            "dtype": self.dtype,
            "categories": categories,
            "categories_dtype": self.categories_dtype,
            "ordered": self.ordered,
            **({} if self.missing is None else {"missing": self.missing}),
            **({} if self.time is None else {"time": self.time.to_json()}),
            **({"is_enum": True} if self.is_enum else {}),
            **({"is_text": True} if self.is_text else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> FrameColumn:
        """The inverse of `to_json`."""
        label = tuple(data["label"]) if isinstance(data["label"], list) else data["label"]
        categories = None if data["categories"] is None else tuple(data["categories"])
        missing, time = data.get("missing"), data.get("time")
        if missing is not None and missing not in MISSING:
            raise TypeError(f"missing is {missing!r}")
        return cls(
            label,
            data["dtype"],
            categories,
            data["categories_dtype"],
            data["ordered"],
            missing,
            None if time is None else TimeCode(**time),
            bool(data.get("is_enum", False)),
            bool(data.get("is_text", False)),
        )


def no_number(value: Any, label: Hashable, dtype: str) -> str:
    """Why a value cannot be in a column of numbers."""
    wanted = "True or False" if dtype.startswith("bool") else f"numbers ({dtype})"
    return f"X has {brief(value)} in column {str(label)!r}, expected {wanted}. Convert the column."


def _pandas_na() -> Any:
    import pandas as pd

    return pd.NA


ARROW_STRING = "arrow string"
MISSING: dict[str, Callable[[], Any]] = {"None": lambda: None, "nan": lambda: float("nan"), "NA": _pandas_na}
"""What stands for a missing value in a column of objects."""
_NUMBER = (bool, int, float, np.number, np.bool_)


def _missing_value(series: Any) -> str:
    """What missing values of a column are, by the first of them."""
    if series.dtype != object:
        return "None"  # the dtype has its own
    first = next(iter(series[series.isna()]), None)
    return "None" if first is None else "nan" if isinstance(first, float) else "NA"


def is_number(dtype: Any) -> bool:
    """Whether a pandas dtype is of numbers or booleans that float64 can hold."""
    import pandas as pd

    if isinstance(dtype, pd.ArrowDtype) and dtype.name.startswith("decimal"):
        return False
    is_numeric = pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype)  # Arrow's too
    return bool(is_numeric and not pd.api.types.is_complex_dtype(dtype))


def _dtype_name(dtype: Any) -> str:
    """A name of a pandas dtype from which `_dtype` makes it again."""
    import pandas as pd

    is_arrow_string = isinstance(dtype, pd.ArrowDtype) and str(dtype) == "string[pyarrow]"
    return ARROW_STRING if is_arrow_string else str(dtype)  # else pandas would read its own kind of strings


def _dtype(name: str) -> Any:
    import pandas as pd

    if name == ARROW_STRING:
        import pyarrow

        return pd.ArrowDtype(pyarrow.string())
    return pd.api.types.pandas_dtype(name)


def refused_missing(missing: npt.NDArray[np.bool_], where: str) -> str:
    """Why missing values cannot be explained where fit saw none."""
    rows = np.flatnonzero(missing).tolist()
    return (
        f"X has {len(rows)} missing value{'s' * (len(rows) > 1)} in {where} (rows {some(rows)}), but fit saw none "
        "there. Impute them, drop those rows, or fit again on data where they occur."
    )


_CONVERSIONS = (
    ("decimal", "Convert it, in pandas with astype('float64')."),
    ("period", "Convert it, in pandas with .dt.to_timestamp()."),
    ("dictionary", "Convert it, in pandas with astype('category')."),
    ("null", "It holds nothing: drop it."),
    ("time", "Convert it to a number, such as seconds since midnight."),
    ("list", "Make a column of each of its places, or of what the model makes of it."),
    ("struct", "Make a column of each of its fields."),
)
"""What dtypes begin with, and what to do about them."""


def _how_to_convert(dtype: str) -> str:
    name = dtype.removeprefix("large_").removeprefix("fixed_size_")
    known = (remedy for start, remedy in _CONVERSIONS if name.startswith(start))
    return next(known, "Convert it, or drop it and let a function that calls the model fill it in.")


def plain_label(label: Any) -> Hashable:
    """A DataFrame column label as a plain Python value that JSON can hold."""
    if isinstance(label, tuple):
        return tuple(plain_label(part) for part in label)
    value = label.item() if isinstance(label, np.generic) else label
    if isinstance(value, (str, int, float, bool)):
        return value
    raise InputError(
        f"X has a column label {label!r} of type {type(label).__name__}, expected a string or a number. "
        "Rename the columns with X.columns = X.columns.astype(str)."
    )


def _plain(value: Any, label: Hashable) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    if type(plain) in (str, int, float, bool):
        return plain
    raise InputError(
        f"X has the value {value!r} of type {type(value).__name__} in column {label!r}, expected a string, a "
        "number or a boolean. Convert the column, dates with pandas.to_datetime, anything else with astype(str)."
    )


def means_of(
    Z: FloatArray, wanted: npt.NDArray[np.bool_], column_feature: npt.NDArray[np.int64]
) -> tuple[float | None, ...]:
    """For each feature the mean of what is there of its column, if that is wanted; nothing if none is."""
    if not wanted.any():
        return ()
    there = ~np.isnan(Z)
    means = np.where(there, Z, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    found: list[float | None] = [None] * (int(column_feature[-1]) + 1)
    for column in np.flatnonzero(wanted).tolist():
        found[column_feature[column]] = float(means[column])
    return tuple(found)
