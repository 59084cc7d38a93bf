"""Reading rows for a command: the columns that the model or the explainer wants, and names for what has none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sointer._support import containers
from sointer._support.validation import did_you_mean
from sointer.errors import InputError
from sointer.explainers.base import Explainer
from sointer.io.columns import as_in_fit, columns_needed, csv_dtypes
from sointer.io.readers import open_source, read_chunks, read_table


def read_to_fit(path: Path, *, model: Any, drop: Sequence[str] = (), text: str | None = None) -> tuple[Any, list[str]]:
    """The rows to fit on, and the columns that were left out: those dropped, and those the model does not know."""
    known = open_source(path).columns
    if known is None:
        if drop or text is not None:
            raise InputError(f"{path} has no named columns; --drop and --text are for CSV and Parquet files.")
        return read_table(path), []
    if text is not None:
        if text not in known:
            raise InputError(f"--text: {path} has no column {text!r}. {did_you_mean(text, known)}")
        return list(read_table(path, text)), [name for name in known if name != text]
    for name in drop:
        if name not in known:
            raise InputError(f"--drop: {path} has no column {name!r}. {did_you_mean(name, known)}")
    estimator = getattr(getattr(model, "predict", None), "model", model)  # a BlackBox holds it
    wanted = [str(name) for name in getattr(estimator, "feature_names_in_", ())] or known
    missing = [name for name in wanted if name not in known]
    if missing:
        raise InputError(
            f"{path} lacks {len(missing)} of the columns that the model was trained on: {', '.join(missing[:5])}"
            f"{' ...' if len(missing) > 5 else ''}. {did_you_mean(missing[0], known)}"
        )
    columns = [name for name in wanted if name not in drop]
    if not columns:
        raise InputError(f"all {len(known)} columns of {path} were dropped; leave at least one.")
    return read_table(path, columns), [name for name in known if name not in columns]


def read_to_explain(path: Path, explainer: Explainer, text: str | None = None) -> Any:
    """All rows of a file, as the explainer wants them."""
    opened = open_source(path)
    columns = columns_needed(explainer, opened.columns, text, opened.name)
    return as_in_fit(explainer, read_table(path, columns, dtypes=csv_dtypes(explainer)), text)


def first_rows(path: Path, explainer: Explainer, n_rows: int, text: str | None = None) -> Any:
    """The first rows of a file, as the explainer wants them."""
    opened = open_source(path)
    columns = columns_needed(explainer, opened.columns, text, opened.name)
    first = next(read_chunks(path, columns, chunk_rows=n_rows, dtypes=csv_dtypes(explainer)))
    return as_in_fit(explainer, first, text)


def read_names(text: str | None, option: str) -> list[str] | None:
    """Names separated by commas, or with @FILE one per line of a file."""
    if text is None:
        return None
    if not text.startswith("@"):
        return [name.strip() for name in text.split(",")]
    try:
        lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"{option}: cannot read {text[1:]} ({error}); expected one name on each line.") from error
    return [line.strip() for line in lines if line.strip()]


def read_targets(given: Sequence[str] | None, names: Sequence[str], *, masks: bool = False) -> list[Any] | None:
    """Outputs by name, else by number; of masks, pixels as row,column. None where all are meant."""
    if not given or (list(given) == ["all"] and "all" not in names):
        return None
    return [_target(one, names, masks) for one in given]


def _target(text: str, names: Sequence[str], masks: bool) -> Any:
    if text in names:
        return text
    numbers = text.split(",")
    if masks and len(numbers) == 2 and all(number.strip().isdecimal() for number in numbers):
        return int(numbers[0]), int(numbers[1])
    return int(text) if text.isdecimal() and text.isascii() else text


def describe(X: Any) -> str:
    """How much was read, in words."""
    n = containers.n_rows(X)
    shape: tuple[int, ...] = getattr(X, "shape", (n,))
    if len(shape) == 4:
        return f"{n:,} images of {shape[2]} x {shape[3]} pixels"
    return f"{n:,} texts" if len(shape) == 1 else f"{n:,} rows of {shape[1]:,} columns"
