"""Dates, times and durations as exact numbers, and back in the dtype that they came in."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer._support.validation import brief
from sointer.errors import InputError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
MAX_EXACT = 2**53
UNITS = ("D", "s", "ms", "us", "ns")
BARE_NUMBER = re.compile(r"\s*[-+]?[\d.]+(e[-+]?\d+)?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Ticks:
    """A column of dates or durations as whole numbers of a unit; missing ones are 0 and marked."""

    count: IntArray
    missing: BoolArray
    unit: str
    is_duration: bool
    zone: str | None


@dataclass(frozen=True)
class TimeCode:
    """How a column of dates or durations is counted: number 0 is `origin`, number 1 is `step` units later."""

    unit: str
    origin: int
    step: int = 1
    is_duration: bool = False
    zone: str | None = None

    @classmethod
    def infer(cls, ticks: Ticks, label: Any) -> TimeCode:
        """Count from the earliest value, in steps that float64 tells apart."""
        present = ticks.count[~ticks.missing]
        origin = int(present.min()) if len(present) else 0
        span = int(present.max()) - origin if len(present) else 0
        # Nanoseconds of more than 104 days do not fit, but hardly anyone has them: mostly they are microseconds.
        is_coarse = ticks.unit == "ns" and not (present % 1000).any()
        code = cls(ticks.unit, origin, 1000 if is_coarse else 1, ticks.is_duration, ticks.zone)
        if span // code.step >= MAX_EXACT:
            raise InputError(
                f"X has times in column {label!r} that are finer than a microsecond and lie more than 104 days apart, "
                f"which cannot be handled exactly. Round them, for example with X[{label!r}].dt.floor('us')."
            )
        return code

    def encode(self, ticks: Ticks, label: Any) -> FloatArray:
        """Numbers, NaN where missing."""
        if ticks.is_duration != self.is_duration or ticks.zone != self.zone:
            raise InputError(self._mismatch(ticks, label))
        count = _in_unit(ticks, self.unit)
        whole = None if count is None else (count - self.origin) // self.step
        if whole is None or ((whole * self.step + self.origin != count) & ~ticks.missing).any():
            unit = "us" if self.step > 1 else self.unit
            raise InputError(
                f"X has times in column {label!r} that are finer than those of fit, which were whole {_WORDS[unit]}; "
                f"the model cannot be given them. Round them, for example with X[{label!r}].dt.floor({unit!r})."
            )
        return np.where(ticks.missing, np.nan, whole.astype(np.float64))

    def decode(self, numbers: FloatArray) -> npt.NDArray[Any]:
        """Numbers as datetime64 or timedelta64 of the unit, without time zone; NaN becomes NaT."""
        missing = np.isnan(numbers)
        count = np.rint(np.where(missing, 0.0, numbers)).astype(np.int64) * self.step + self.origin
        values = count.view(f"{'m' if self.is_duration else 'M'}8[{self.unit}]")
        return np.where(missing, values.dtype.type("NaT"), values)

    def words(self, number: float) -> str:
        """One number as a date or duration for people, as short as it can be."""
        value = self.decode(np.array([number]))[0]
        if self.is_duration:
            return str(value.astype("m8[us]").astype(object))
        text = str(value.astype("M8[s]")).replace("T", " ").removesuffix(" 00:00:00")
        return text if self.zone is None else f"{text} UTC"

    def _mismatch(self, ticks: Ticks, label: Any) -> str:
        if ticks.is_duration != self.is_duration:
            got, wanted = ("durations", "dates") if ticks.is_duration else ("dates", "durations")
            return f"X has {got} in column {label!r}, but {wanted} in fit. Convert the column."
        if self.zone is None:
            remedy = f"X[{label!r}].dt.tz_localize(None)"
        else:
            remedy = f"X[{label!r}].dt.{'tz_localize' if ticks.zone is None else 'tz_convert'}({self.zone!r})"
        return (
            f"X has dates {_in_zone(ticks.zone)} in column {label!r}, but {_in_zone(self.zone)} in fit. Convert them, "
            f"for example with {remedy}."
        )

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return asdict(self)


_WORDS = {"D": "days", "s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def _in_zone(zone: str | None) -> str:
    return "without a time zone" if zone is None else f"in the time zone {zone}"


def _in_unit(ticks: Ticks, unit: str) -> IntArray | None:
    """The counts in another unit; None where that would change them."""
    kind = "m" if ticks.is_duration else "M"
    values = ticks.count.view(f"{kind}8[{ticks.unit}]")
    count = values.astype(f"{kind}8[{unit}]")
    same = (count.astype(values.dtype) == values) | ticks.missing
    return np.asarray(count.view(np.int64)) if same.all() else None


def read_ticks(series: Any) -> Ticks | None:
    """A pandas Series of dates or durations as counts; None if it holds something else."""
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        ticks = _of_numpy(series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
        return Ticks(ticks.count, ticks.missing, ticks.unit, False, str(dtype.tz))
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        return _of_numpy(series.to_numpy())
    if isinstance(dtype, pd.ArrowDtype) and dtype.kind in "mM":
        return _of_arrow(series.array.__arrow_array__())
    if pd.api.types.is_object_dtype(dtype):
        missing = np.asarray(series.isna())
        values = series.to_numpy(object)
        if not missing.all() and all(type(value) is datetime.date for value in values[~missing]):
            days = np.zeros(len(values), dtype="M8[D]")
            days[~missing] = values[~missing].astype("M8[D]")
            return Ticks(days.view(np.int64), missing, "D", False, None)
    return None


def _of_numpy(values: npt.NDArray[Any]) -> Ticks:
    missing = np.isnat(values)
    count = np.where(missing, 0, values.view(np.int64))
    return Ticks(count, missing, np.datetime_data(values.dtype)[0], values.dtype.kind == "m", None)


def _of_arrow(array: Any) -> Ticks:
    import pyarrow as pa

    kind = array.type
    missing = np.asarray(array.is_null())
    whole = array.cast(pa.int32()) if pa.types.is_date32(kind) else array
    count = np.asarray(whole.cast(pa.int64()).fill_null(0), dtype=np.int64)
    unit = "D" if pa.types.is_date32(kind) else "ms" if pa.types.is_date64(kind) else kind.unit
    zone = getattr(kind, "tz", None)
    return Ticks(count, missing, unit, pa.types.is_duration(kind), zone)


def write_times(values: npt.NDArray[Any], dtype: str, zone: str | None) -> Any:
    """What `TimeCode.decode` gave as a pandas Series of a dtype."""
    import pandas as pd

    if dtype == "object":  # datetime.date, as pyarrow gives columns of dates
        return pd.Series([None if np.isnat(value) else value.astype(object) for value in values], dtype=object)
    if values.dtype.kind == "M" and np.datetime_data(values.dtype)[0] == "D":
        values = values.astype("M8[s]")  # pandas has no days
    series = pd.Series(values)
    if zone is not None:
        series = series.dt.tz_localize("UTC").dt.tz_convert(zone)
    return series.astype(dtype)


def durations_of(cells: Sequence[str | None], label: Any) -> Any:
    """Durations written as text, such as "1 days 12:00:00", as a pandas Series; None where they are missing.

    A number has no unit, and is refused; pandas would take it for nanoseconds.
    """
    import pandas as pd

    odd = next((cell for cell in cells if cell is not None and BARE_NUMBER.fullmatch(cell)), None)
    try:
        if odd is None:
            return pd.Series(pd.to_timedelta(list(cells)))
    except (ValueError, OverflowError):
        found = pd.Series(pd.to_timedelta(list(cells), errors="coerce"))
        odd = next(cell for cell, failed in zip(cells, found.isna(), strict=True) if failed and cell is not None)
    raise InputError(
        f"column {str(label)!r}: found {brief(odd)}, expected durations as text, such as '1 days 12:00:00'."
    )


def times_of(cells: list[Any], time: TimeCode, label: Any) -> Any:
    """Dates or durations written as text, None where missing, as a pandas Series; ValueError where they are none.

    Dates without a time zone stay so, and are refused where fit saw one.
    """
    import pandas as pd

    if time.is_duration:
        return durations_of(cells, label)
    is_naive = time.zone is None or any(pd.Timestamp(cell).tzinfo is None for cell in cells if cell is not None)
    found = pd.Series(pd.to_datetime(cells, format="ISO8601", utc=not is_naive))
    return found if is_naive else found.dt.tz_convert(time.zone)
