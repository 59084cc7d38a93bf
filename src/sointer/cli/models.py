"""From what --model says to a model: a function or estimator of a module, an ONNX file, a model server."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sointer._support.validation import did_you_mean
from sointer.blackbox.adapters import as_black_box
from sointer.blackbox.box import BlackBox
from sointer.cli.console import one_line
from sointer.errors import InputError

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
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise InputError(f"--model: {name} cannot be imported: {one_line(error)}.") from error
        raise InputError(
            f"--model: there is no module {name}, neither in {here} nor installed. Run the command where {name}.py is, "
            "or put its folder on PYTHONPATH."
        ) from error
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
