"""One column of a DataFrame as numbers, and back: numeric columns as they are, the others one-hot."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer._support.validation import _some
from sointer.errors import InputError

FloatArray = npt.NDArray[np.float64]
MAX_EXACT = 2.0**53  # beyond it float64 skips integers, and the round trip would change ids silently


def integers_to_float(values: npt.NDArray[Any], what: str) -> FloatArray:
    """Integers as float64, refused where that would change them."""
    result = values.astype(np.float64)
    if result.size and np.abs(result).max() > MAX_EXACT:
        raise InputError(
            f"{what} holds integers beyond 2**53 (largest size {np.abs(result).max():.0f}), which cannot be "
            "handled exactly; expected smaller ones. Drop the column if it is an id, or rescale it."
        )
    return result


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
    """How one DataFrame column is written: its label, dtype and, if not numeric, its categories."""

    label: Hashable
    dtype: str
    categories: tuple[Any, ...] | None = None
    categories_dtype: str | None = None
    ordered: bool = False

    @classmethod
    def infer(cls, series: Any) -> FrameColumn:
        """Read the column's dtype; a str or object column's categories are the values it holds."""
        import pandas as pd

        label, dtype = series.name, series.dtype
        if isinstance(dtype, pd.CategoricalDtype):
            known = tuple(_plain(value, label) for value in dtype.categories)
            return cls(label, "category", known, str(dtype.categories.dtype), bool(dtype.ordered))
        if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
            return cls(label, str(dtype))
        if pd.api.types.is_object_dtype(dtype) or pd.api.types.is_string_dtype(dtype):
            _refuse_missing(series)
            seen = {(type(plain), plain) for plain in (_plain(v, label) for v in series.to_numpy(object))}
            # Sorted, so that the columns do not depend on the order of the rows.
            ordered = sorted(seen, key=lambda pair: (pair[0].__name__, pair[1]))
            return cls(label, str(dtype), tuple(value for _, value in ordered))
        raise InputError(
            f"X has a column {label!r} of dtype {dtype}; expected numbers, booleans, strings or categories. "
            "Convert it, for example dates to a number of days."
        )

    @property
    def is_categorical(self) -> bool:
        """True when the column is one-hot inside."""
        return self.categories is not None

    @property
    def width(self) -> int:
        """How many numeric columns stand for this one."""
        return 1 if self.categories is None else len(self.categories)

    def encode(self, series: Any) -> FloatArray:
        """The column as numbers: (n, width)."""
        import pandas as pd

        _refuse_missing(series)
        if self.categories is None:
            dtype = series.dtype
            if not pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_complex_dtype(dtype):
                raise InputError(
                    f"X has column {self.label!r} of dtype {dtype}, expected numbers like the {self.dtype} "
                    "seen before. Convert the column."
                )
            if pd.api.types.is_float_dtype(dtype) or pd.api.types.is_bool_dtype(dtype):
                return np.asarray(series.to_numpy(np.float64)).reshape(-1, 1)
            return integers_to_float(np.asarray(series), f"X, in column {self.label!r},").reshape(-1, 1)
        codes = self._codes(series)
        block = np.zeros((len(codes), self.width))
        block[np.arange(len(codes)), codes] = 1.0
        return block

    def _codes(self, series: Any) -> npt.NDArray[np.int64]:
        assert self.categories is not None
        exact = {(type(value), value): code for code, value in enumerate(self.categories)}
        # 1, 1.0 and True are one value to pandas when a column changes dtype; exact types go first.
        loose = {value: code for code, value in enumerate(self.categories)}
        codes = np.empty(len(series), dtype=np.int64)
        unseen = []
        for row, value in enumerate(series.to_numpy(object)):
            plain = _plain(value, self.label)
            code = exact.get((type(plain), plain), loose.get(plain, -1))
            codes[row] = code
            if code < 0:
                unseen.append(plain)
        if unseen:
            raise InputError(
                f"X has unseen categories in column {self.label!r}: {_some(list(dict.fromkeys(unseen)))}; "
                f"expected one of {_some(list(self.categories))}. Map them to known ones, or fit again with "
                "them."
            )
        return codes

    def decode(self, block: FloatArray) -> Any:
        """Numbers (n, width) back to a pandas Series; the largest entry of a block names the category."""
        import pandas as pd

        if self.categories is None:
            values = block[:, 0]
            dtype = pd.api.types.pandas_dtype(self.dtype)
            if isinstance(dtype, np.dtype):
                return pd.Series(restore_dtype(values, dtype), copy=False)
            integral = pd.api.types.is_integer_dtype(dtype) and np.any(values != np.rint(values))
            boolean = pd.api.types.is_bool_dtype(dtype) and np.any((values != 0) & (values != 1))
            return pd.Series(values) if integral or boolean else pd.Series(values).astype(dtype)
        codes = np.argmax(block, axis=1)
        if self.dtype == "category":
            index = pd.Index(list(self.categories), dtype=self.categories_dtype)
            return pd.Series(pd.Categorical.from_codes(codes, categories=index, ordered=self.ordered))
        labels = np.empty(self.width, dtype=object)
        labels[:] = self.categories
        return pd.Series(labels[codes], dtype=self.dtype)

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
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> FrameColumn:
        """The inverse of `to_json`."""
        label = tuple(data["label"]) if isinstance(data["label"], list) else data["label"]
        categories = None if data["categories"] is None else tuple(data["categories"])
        return cls(label, data["dtype"], categories, data["categories_dtype"], data["ordered"])


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
        "number or a boolean. Convert the column with astype(str)."
    )


def _refuse_missing(series: Any) -> None:
    missing = np.flatnonzero(np.asarray(series.isna()))
    if missing.size:
        raise InputError(
            f"X has {missing.size} missing values in column {series.name!r} (rows "
            f"{_some(missing.tolist())}), expected none. Impute them, or drop those rows."
        )
