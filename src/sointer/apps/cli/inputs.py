"""Reading rows for a command: the columns that the model or the explainer wants, and names for what has none."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from sointer._support import containers
from sointer._support.files import CSV, TOKENS
from sointer._support.torch_state import resolve_device
from sointer._support.validation import did_you_mean, some
from sointer.apps.cli.console import Console, no_module, one_line
from sointer.blackbox.adapters import as_black_box
from sointer.blackbox.box import BlackBox
from sointer.data.text_tables import find_text_columns
from sointer.errors import InputError
from sointer.explainers.base import Explainer
from sointer.explainers.sequence_base import holds_token_lists
from sointer.explainers.sointer import SOInter
from sointer.io.columns import as_in_fit, columns_needed, csv_dtypes, names_of_rows, with_id
from sointer.io.explainers import load
from sointer.io.readers import open_source, read_chunks, read_table
from sointer.io.sequences import read_token_lines


def read_to_fit(
    path: Path,
    *,
    model: Any,
    drop: Sequence[str] = (),
    text: str | None = None,
    text_columns: Sequence[str] | None = None,
) -> tuple[Any, list[str]]:
    """The rows to fit on, and the columns that were left out: those dropped, and those the model does not know."""
    if text is not None and text_columns is not None:
        raise InputError(
            "--text is for a model that takes a list of texts, and --text-columns for one that takes a whole table; "
            "leave one of them out."
        )
    if path.name.lower().endswith(TOKENS):
        if drop or text is not None:
            raise InputError(f"{path} holds sequences; --drop and --text are for CSV and Parquet files.")
        return list(read_token_lines(path)), []
    opened = open_source(path)
    known = opened.columns
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
    wanted = [str(name) for name in getattr(estimator, "feature_names_in_", ())]
    wanted = wanted or [name for name in known if name not in opened.index]
    missing = [name for name in wanted if name not in known]
    if missing:
        raise InputError(
            f"{path} lacks {len(missing)} of the columns that the model was trained on: {some(missing)}. "
            f"{did_you_mean(missing[0], known)}"
        )
    columns = [name for name in wanted if name not in drop]
    if not columns:
        raise InputError(f"all {len(known)} columns of {path} were dropped; leave at least one.")
    left_out = [name for name in known if name not in columns]
    wrong = [name for name in text_columns or () if name not in columns]
    if wrong:
        raise InputError(f"--text-columns: {path} has no column {wrong[0]!r}. {did_you_mean(wrong[0], columns)}")
    X = read_table(path, columns, dtypes=dict.fromkeys(text_columns or (), "text"))
    if text_columns is None and containers.is_frame(X) and path.name.lower().endswith(CSV):
        for label in find_text_columns(X):
            X[label] = X[label].fillna("")  # an empty cell is an empty text
    return X, left_out


def read_to_explain(path: Path, explainer: Explainer, text: str | None = None, n_rows: int | None = None) -> Any:
    """The rows of a file, as the explainer wants them: all, or the first so many."""
    if explainer.sequences_ is not None:
        return list(islice(read_token_lines(path), n_rows))
    opened, dtypes = open_source(path), csv_dtypes(explainer)
    columns = columns_needed(explainer, opened.columns, text, opened.name)
    if n_rows is not None:
        return as_in_fit(explainer, next(read_chunks(path, columns, chunk_rows=n_rows, dtypes=dtypes)), text)
    return as_in_fit(explainer, read_table(path, columns, dtypes=dtypes), text)


def read_ids(path: Path, column: str) -> list[str]:
    """The names of all rows of a file, which must be unique to find them on a page."""
    names = names_of_rows(read_table(path, with_id([], column, open_source(path)), dtypes={column: "id"})[column])
    n_missing, n_rows = names.count(None), len(names)
    if n_missing:
        raise InputError(f"--id {column}: {n_missing:,} of {n_rows:,} rows have none; fill it in, or leave out --id.")
    known = [name for name in names if name is not None]
    twice = next((name for name, count in Counter(known).items() if count > 1), None)
    if twice is not None:
        raise InputError(
            f"--id {column}: {len(set(known)):,} names for {n_rows:,} rows; {known.count(twice):,} are called "
            f"{twice!r}. Choose a column whose values are unique, or leave out --id."
        )
    return known


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
    """How much was read, as text."""
    n = containers.n_rows(X)
    if holds_token_lists(X):
        return f"{n:,} sequences of {sum(map(len, X)):,} tokens"
    shape: tuple[int, ...] = getattr(X, "shape", (n,))
    if len(shape) == 4:
        return f"{n:,} images of {shape[2]} x {shape[3]} pixels"
    return f"{n:,} texts" if len(shape) == 1 else f"{n:,} rows of {shape[1]:,} columns"


PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".bin", ".sav", ".dill", ".cloudpickle")
FORMS = "expected module:name, model.onnx or http://host/v2/models/name"
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def load_model(
    spec: str, *, headers: Sequence[str] | None = None, method: str | None = None, batch_size: int | None = None
) -> Any:
    """The model that a command was given; `batch_size` is for those that become a BlackBox here."""
    is_url = spec.lower().startswith(("http://", "https://"))
    if headers and not is_url:
        raise InputError("--header is for model servers, but --model is no URL; leave it out.")
    if method and (is_url or spec.lower().endswith(".onnx")):
        raise InputError(f"--method {method} is for estimators of a module; leave it out.")
    options: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size}
    if is_url:
        from sointer.blackbox.adapters.http import HTTPBlackBox

        return HTTPBlackBox(spec, headers=dict(map(read_header, headers or [])), **options)
    if spec.lower().endswith(".onnx"):
        from sointer.blackbox.adapters.onnx import ONNXBlackBox

        return ONNXBlackBox(existing(spec), **options)
    model = load_attribute(spec)
    if method is not None or isinstance(model, BlackBox):
        return as_black_box(model, method=method, **options)
    return model


def existing(spec: str) -> Path:
    """The path of a file with a model; InputError where there is none."""
    path = Path(spec)
    if not path.is_file():
        raise InputError(f"--model {spec} does not exist; it is looked up from {Path.cwd()}.")
    return path


def load_attribute(spec: str) -> Any:
    """What `package.module:name` names; modules are also looked for in the working directory."""
    module_name, colon, name = spec.partition(":")
    if spec.lower().endswith(PICKLES):
        stem = Path(spec).name.split(".")[0]
        raise InputError(
            f"--model {spec} looks like a pickle, which is never opened here: it could run anything. Load it in "
            f"a module of yours, such as my_model.py with: {stem} = joblib.load({Path(spec).name!r}), and give "
            f"--model my_model:{stem}."
        )
    if module_name.endswith(".py"):
        hint = f"; did you mean {module_name[:-3].replace(os.sep, '.')}:{name or 'predict'}?"
        raise InputError(f"--model {spec} is a file, {FORMS}{hint}")
    if not colon or not name or not all(part.isidentifier() for part in module_name.split(".")):
        raise InputError(f"--model is {spec!r}, {FORMS}. For predict() in model.py, give model:predict.")
    found: Any = import_module(module_name)
    for part in name.split("."):
        if not hasattr(found, part):
            public = [one for one in dir(found) if not one.startswith("_")]
            raise InputError(f"--model {spec}: {module_name} has no {part!r}. {did_you_mean(part, public)}")
        found = getattr(found, part)
    return found


def import_module(name: str) -> Any:
    """A module of the user's, also from the folder that the command runs in; InputError if it cannot be imported."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise InputError(f"--model: {name} cannot be imported: {one_line(error)}.") from error
        raise no_module(name, here) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may do anything, sys.exit() included
        raise InputError(f"--model: {name} failed when imported: {type(error).__name__}: {one_line(error)}.") from error


def read_header(text: str) -> tuple[str, str]:
    """A header's name and value; the value may come from the environment or a file, and is in no message."""
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
        raise InputError("--header must be 'Name: value'; what was given is not shown. Write a name, a colon, a value.")
    if value.startswith("@"):
        try:
            value = Path(value[1:]).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise InputError(f"--header {name}: the file cannot be read ({type(error).__name__}).") from None
    else:
        value = VARIABLE.sub(lambda found: _variable(found[1], name), value)
    if not value or not value.isprintable():
        raise InputError(f"--header {name}: the value is empty or has line breaks; expected one line of text.")
    return name, value


def _variable(variable: str, header: str) -> str:
    if variable not in os.environ:
        raise InputError(f"--header {header}: the environment variable {variable} is not set.")
    return os.environ[variable]


def open_explainer(
    path: Path,
    console: Console,
    model: str | None = None,
    *,
    headers: Sequence[str] | None = None,
    method: str | None = None,
    text: str | None = None,
    device: str = "cpu",
) -> SOInter:
    """The explainer; with its model, if that was named."""
    if model is None and (headers or method):
        raise InputError(f"--{'header' if headers else 'method'} is about the model, but no --model was given.")
    resolve_device(device)  # before a model is loaded
    black_box = None if model is None else load_model(model, headers=headers, method=method)
    explainer = load(path, black_box, device=device)
    if text is not None and (explainer.sequences_ is not None or not explainer.reads_text):
        raise InputError(
            f"--text {text}: the explainer was not fitted on texts; leave out --text, and give a file with the columns "
            "that it was fitted on."
        )
    explainer.verbose = console.progress
    return explainer
