"""The values of a sample's features, for people and for tables."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support import MAX_PLAIN
from sointer._support.containers import BACKENDS, as_pandas, is_missing, is_sparse, is_tensor, tensor_to_numpy
from sointer.data.inputs import InputFormat
from sointer.data.text_tables import TextTableFormat
from sointer.errors import require_extra
from sointer.masking.groups import FixedGroups, Groups
from sointer.masking.rows import ExplainedRows

MAX_LENGTH, MAX_MEMBERS = 60, 4


def format_value(value: Any) -> str:
    """A value for people: numbers with thousands separators and four digits, missing ones as such, long texts cut."""
    if is_missing(value):
        return "missing"
    if isinstance(value, bool | np.bool_):
        return str(value)
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    if isinstance(value, float | np.floating):
        is_large = 1000 <= abs(value) < MAX_PLAIN
        return f"{float(value):,.0f}" if is_large else f"{value:.4g}"
    if isinstance(value, timedelta):
        return time_text(np.timedelta64(value))
    text = str(value).removesuffix(" 00:00:00")  # of dates without a time
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 1]}…"


def plain(value: Any) -> Any:
    """A value as JSON knows it: missing ones as null, what is no number, truth value or text as text."""
    value = value.item() if isinstance(value, np.generic) else value
    if is_missing(value):
        return None
    return value if isinstance(value, str | bool | int | float) else str(value)


def value_kind(form: InputFormat, groups: Groups) -> str | None:
    """The type that holds the values of all units: "int64", "float64", "bool" or "string"; None of pixels."""
    if form.image is not None:
        return None
    if not isinstance(groups, FixedGroups) or any(len(members) != 1 for members in groups.members):
        return "string"
    if form.has_words and not form.columns:
        return "int64"
    dtype = form.dtype.lower()
    known = {"int": "int64", "uint": "int64", "float": "float64", "bfloat": "float64", "double": "float64"}
    name = dtype.removesuffix("[pyarrow]").rstrip("0123456789")
    return "bool" if name in ("bool", "boolean") else known.get(name, "string")


class UnitValues:
    """The values of a sample's units as text: of a feature, or of each feature of a group."""

    def __init__(self, source: ExplainedRows) -> None:
        self._names = source.input_format.feature_names
        self._groups = source.groups
        self._n_samples = source.data.shape[0]
        form = source.input_format
        self._counts = source.data.astype(np.int64) if form.has_words else None  # how often each word is there
        self._n_words = int(form.piece_starts[-1]) if isinstance(form, TextTableFormat) else 0
        shown: Any = self._counts
        if isinstance(form, TextTableFormat):
            shown = as_pandas(form.decode(source.data))
            shown = shown[[label for label in shown.columns if label not in form.text_labels]]
        elif not form.has_words:
            shown = as_pandas(form.decode(source.data))
        if is_tensor(shown):
            shown = tensor_to_numpy(shown)
        self._shown = shown.tocsr() if is_sparse(shown) else shown
        self._is_frame = hasattr(shown, "iloc")
        self._columns: dict[int, list[Any]] = {}

    def of(self, sample: int, unit: int) -> str:
        """The value of one unit of one sample."""
        members = self._groups.members[unit].tolist() if isinstance(self._groups, FixedGroups) else [unit]
        if len(members) == 1:
            return format_value(self._value(sample, members[0]))
        shown = [f"{self._names[j]}={format_value(self._value(sample, j))}" for j in members[:MAX_MEMBERS]]
        return ", ".join(shown) + (f" and {len(members) - MAX_MEMBERS} more" if len(members) > MAX_MEMBERS else "")

    def own(self, sample: NDArray[np.int64], unit: NDArray[np.int64]) -> list[Any]:
        """The values of units, each of its sample, in their owner's type; None where missing, text for groups."""
        if not len(unit):
            return []  # of nothing, scipy makes a matrix
        if not isinstance(self._groups, FixedGroups) or any(len(members) != 1 for members in self._groups.members):
            return [self.of(one, int(which)) for one, which in zip(sample.tolist(), unit.tolist(), strict=True)]
        feature = np.array([members[0] for members in self._groups.members], dtype=np.int64)[unit]
        if self._is_frame:
            pairs = zip(sample.tolist(), feature.tolist(), strict=True)
            found = [self._value(one, which) for one, which in pairs]
        else:
            found = np.asarray(self._shown[sample, feature]).ravel().tolist()
        return [None if is_missing(value) else value for value in found]

    def column(self, unit: int) -> NDArray[Any] | None:
        """The values of a unit in all samples: numbers (NaN where missing), dates, durations, or text.

        None for a group of features.
        """
        members = self._groups.members[unit].tolist() if isinstance(self._groups, FixedGroups) else [unit]
        if len(members) != 1:
            return None
        values = [self._value(sample, members[0]) for sample in range(self._n_samples)]
        there = [one for one in values if not is_missing(one)]
        if all(isinstance(one, int | float | np.number) and not isinstance(one, bool) for one in there):
            return np.array([np.nan if is_missing(one) else one for one in values], dtype=np.float64)
        times = _times(values, there)
        if times is not None:
            return times
        return np.array([format_value(one) for one in values], dtype=object)

    def _value(self, sample: int, feature: int) -> Any:
        if not self._is_frame:
            return self._shown[sample, feature]
        if feature < self._n_words and self._counts is not None:
            return self._counts[sample, feature]
        feature -= self._n_words
        if feature not in self._columns:
            self._columns[feature] = self._shown.iloc[:, feature].tolist()
        return self._columns[feature][sample]


def _times(values: list[Any], there: list[Any]) -> NDArray[Any] | None:
    """Dates of one time zone, or durations, as numpy knows them; None unless all are."""
    is_duration = all(isinstance(one, timedelta) for one in there)
    is_date = all(isinstance(one, datetime) for one in there) and len({one.tzinfo for one in there}) == 1
    if not is_duration and not is_date:
        return None
    plain = [None if is_missing(one) else one if is_duration else one.replace(tzinfo=None) for one in values]
    return np.array(plain, dtype="timedelta64[us]" if is_duration else "datetime64[us]")


def time_text(value: np.datetime64 | np.timedelta64) -> str:
    """A date or duration for people, as `format_value` shows it."""
    if isinstance(value, np.timedelta64):
        return str(value.astype("timedelta64[us]").astype(object)).removesuffix(", 0:00:00")
    return format_value(str(value.astype("datetime64[s]")).replace("T", " "))


def feature_values(
    source: ExplainedRows, sample: NDArray[np.int64], unit: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """The column of values of features, in their own type, as far as one column holds them; none of pixels."""
    kind = value_kind(source.input_format, source.groups)
    if kind is None:
        return {}
    own = UnitValues(source).own(sample, unit)
    if source.input_format.kind in BACKENDS and kind == "string":
        own = [None if value is None else str(value) for value in own]
    values = np.array([*own, None], dtype=object)[:-1]
    is_plain = kind == "float64" or (kind != "string" and all(value is not None for value in own))
    return {"feature_value": values.astype(kind) if is_plain else values}


def output_values(source: ExplainedRows, values: NDArray[Any]) -> Any:
    """The column of values of targets, in their own type; of several kinds as objects, or as text outside pandas."""
    if source.input_format.kind in BACKENDS and len({type(value) for value in values}) > 1:
        is_text = any(isinstance(value, str) for value in values)
        return values.astype(str) if is_text else values.astype(np.float64)
    return values if len(values) == 0 else require_extra("pandas", "pandas").Series(values).infer_objects().array
