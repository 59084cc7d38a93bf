"""What X may be: containers with rows and columns, or images, of numbers that float64 holds; no columns of ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer._support import containers
from sointer._support.validation import some
from sointer.data.images import image_hint
from sointer.errors import InputError

FILE_NAME = re.compile(r"^\S+\.(csv|tsv|csv\.gz|parquet|feather|jsonl?|xlsx?|npy|npz|txt|pkl|joblib)$", re.IGNORECASE)
"""Strings that name a file: no text to explain looks like that."""
MAX_EXACT = 2.0**53  # beyond it float64 skips integers, and the round trip would change ids silently


def check_container(X: Any, caller: str) -> Any:
    """X as numpy, DataFrame, CSR or tensor with at least one row and column; numpy and tensors may be images."""
    refuse_one_dimension(X, caller)
    X = containers.as_pandas(X)
    if isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1):
        _refuse_images_of_different_sizes(X, caller)
        try:
            X = np.asarray(X)
        except ValueError as exc:
            raise InputError(
                f"{caller}: X is {containers.describe(X)} with rows of different lengths, expected equal "
                "ones. Give a rectangular table; tokens of sequences must be strings, so give ids as str(id)."
            ) from exc
    if isinstance(X, np.ma.MaskedArray):
        raise InputError(
            f"{caller}: X is a masked array, expected plain numbers. Fill it with X.filled(value), or with "
            "X.filled(numpy.nan) if the model takes missing values."
        )
    known = isinstance(X, np.ndarray) or containers.is_sparse(X) or containers.is_frame(X) or containers.is_tensor(X)
    if not known:
        raise InputError(
            f"{caller}: X is {describe_wrong(X)}, expected a numpy array, a pandas or polars DataFrame, a "
            f"pyarrow Table, a scipy CSR matrix or a torch tensor. {_remedy(X)}"
        )
    if len(X.shape) not in (2, 4):
        hint = (
            "Give pandas.DataFrame(X), which has a column for each of its fields."
            if getattr(X.dtype, "names", None)
            else "Use x.reshape(1, -1) for one sample, x.reshape(-1, 1) for one feature."
            if len(X.shape) < 2
            else "Flatten a table to (n_samples, -1); windows of a time series (n, steps, variables) with "
            f"X.reshape(len(X), -1), one feature per step and variable (docs/how-to/sequences.md). {image_hint(X)}"
        )
        raise InputError(
            f"{caller}: X has {len(X.shape)} dimensions (shape {tuple(X.shape)}), expected 2: samples and "
            "features. " + hint
        )
    if 0 in X.shape:
        least = "one sample and one feature" if len(X.shape) == 2 else "one image, one channel and one pixel"
        raise InputError(
            f"{caller}: X is empty (shape {tuple(X.shape)}), expected at least {least}. Check how X was selected."
        )
    if containers.is_sparse(X):
        X = X if X.format == "csr" else X.tocsr()
    elif isinstance(X, np.ndarray):
        X = np.asarray(X)  # np.matrix indexes differently
    return X


def refuse_one_dimension(X: Any, caller: str) -> None:
    """Refuse what looks like a list of something else: one row of a table, records, the path of a file."""
    containers.refuse_lazy(X, caller)
    if isinstance(X, PathLike) or (isinstance(X, str) and FILE_NAME.search(X)):
        raise InputError(
            f"{caller}: X is {describe_wrong(X)}, expected the data themselves. Read the file first, for example with "
            "pandas.read_csv; sointer.io.stream.stream_explain and the command line take paths."
        )
    is_series = containers.is_series(X) or type(X).__name__ == "Series"
    strings = is_series and _holds_texts(list(X))
    is_records = isinstance(X, (list, tuple)) and len(X) > 0 and all(isinstance(one, dict) for one in X)
    if (is_series and not strings) or is_records or isinstance(X, dict):
        raise InputError(f"{caller}: X is {describe_wrong(X)}, expected a table of samples and features. {_remedy(X)}")


def _holds_texts(values: list[Any]) -> bool:
    """Whether values are texts, of which some may be missing: what reads texts says so."""
    n_texts = sum(isinstance(value, str) for value in values)
    return 2 * n_texts >= len(values) == n_texts + sum(map(containers.is_missing, values))


def describe_wrong(X: Any) -> str:
    """What X is, with the library where its name alone says too little."""
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], dict):
        return f"a {type(X).__name__} of {len(X)} dicts"
    library = type(X).__module__.split(".")[0]
    is_other = type(X).__name__ == "Series" and not containers.is_series(X)
    return f"a {library} Series of length {len(X)}" if is_other else containers.describe(X)


def _remedy(X: Any) -> str:
    if type(X).__name__ == "Series":
        return "One sample of a DataFrame is X.iloc[[0]], of polars X[[0]]; one feature is X[['name']]."
    if isinstance(X, Iterator):
        return "Give list(X), or a table made of it."
    if isinstance(X, dict):
        return "Give pandas.DataFrame(X); of one sample, pandas.DataFrame([X])."
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], dict):
        return "Give pandas.DataFrame(X)."
    return "Convert it; one sample of a DataFrame is X.iloc[[0]]."


def _refuse_images_of_different_sizes(X: Any, caller: str) -> None:
    shapes = [tuple(one.shape) for one in X if hasattr(one, "shape")]
    if len(shapes) < len(X) or any(len(shape) not in (2, 3) for shape in shapes) or len(set(shapes)) < 2:
        return
    sizes = " and ".join(str(shape) for shape in sorted(set(shapes))[:2])
    raise InputError(
        f"{caller}: X has {len(X)} images of {len(set(shapes))} different shapes, such as {sizes}; expected one shape "
        "(channels, height, width) for all. Resize or crop them, for example with torch.nn.functional.interpolate, and "
        "let the model get them in that size."
    )


def to_float(X: Any, caller: str) -> Any:
    """A numpy array, CSR or tensor as float64; only numbers that float64 holds exactly are accepted."""
    values = containers.tensor_to_numpy(X) if containers.is_tensor(X) else X
    dtype = values.dtype
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        hint = "Use float64."
        if dtype.kind in "OUSTVmM":
            what = "dates and durations" if dtype.kind in "mM" else "strings and categories"
            hint = f"Give a pandas DataFrame for {what}."
        raise InputError(f"{caller}: X has dtype {dtype}, expected numbers or booleans. {hint}")
    if containers.is_sparse(values):
        copied = containers.csr_array(values, copy=True)
        copied.sum_duplicates()  # on the copy: the owner's matrix stays as it was
        data = copied.data
        numbers = integers_to_float(data, f"{caller}: X") if dtype.kind in "iu" else data.astype(np.float64)
        return containers.csr_array((numbers, copied.indices, copied.indptr), shape=copied.shape)
    if dtype.kind in "iu":
        return integers_to_float(values, f"{caller}: X")
    return values.astype(np.float64)


def places_of(wanted: Sequence[Any], given: Sequence[Any], what: str) -> list[int]:
    """Where the features of fit are among the columns given, whatever their order; other columns are ignored."""
    missing = [name for name in wanted if name not in set(given)]
    if missing:
        raise InputError(
            f"{what} lacks {len(missing)} of the {len(wanted)} features seen in fit: {some(missing)}; it has "
            f"{some(given)}. Add or rename the columns; others are ignored, and their order does not matter."
        )
    place = {name: i for i, name in enumerate(given)}
    if len(place) < len(given):
        twice = [name for name in wanted if list(given).count(name) > 1]
        if twice:
            raise InputError(
                f"{what} has several columns named {some(twice)}, so which of them is meant is not clear. Rename or "
                "drop all but one."
            )
    return [place[name] for name in wanted]


def integers_to_float(values: npt.NDArray[Any], what: str) -> npt.NDArray[np.float64]:
    """Integers as float64, refused where that would change them."""
    result = values.astype(np.float64)
    if result.size and np.abs(result).max() > MAX_EXACT:
        raise InputError(
            f"{what} holds integers beyond 2**53 (largest size {np.abs(result).max():.0f}), which cannot be "
            "handled exactly; expected smaller ones. Drop the column if it is an id, or rescale it."
        )
    return result


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
            f"X has a column {label!r} with {n_levels} different values in {n_rows} rows: an id or free text, not a "
            f"category. Drop it (command line: --drop {label}); if it is text, pass "
            f"text_columns=[{label!r}] (--text-columns {label}); where the model needs it, give a function that fills "
            "it in and calls the model."
        )
