"""Opening a saved explainer for a command, with the model where one is given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sointer.cli.console import Console
from sointer.cli.models import load_model
from sointer.errors import InputError
from sointer.explainers.sointer import SOInter
from sointer.io.explainers import STORAGE, load


def open_explainer(
    path: Path,
    console: Console,
    model: str | None = None,
    *,
    headers: Sequence[str] | None = None,
    method: str | None = None,
    text: str | None = None,
) -> SOInter:
    """The explainer; with its model, if that was named."""
    if model is None and (headers or method):
        raise InputError(f"--{'header' if headers else 'method'} is about the model, but no --model was given.")
    black_box = None if model is None else load_model(model, headers=headers, method=method)
    explainer = load(path, black_box)
    if text is not None and explainer.text_ is None:
        raise InputError(
            f"--text {text}: to read texts the explainer needs the pipeline that was explained; give it as --model "
            "module:name. (Explainers that were not fitted on texts take no --text.)"
        )
    explainer.verbose = console.progress
    return explainer


def saved_facts(path: Path) -> dict[str, Any]:
    """What a folder says about the explainer in it, which was loaded before and so is whole."""
    facts: dict[str, Any] = json.loads((path / STORAGE.facts_file).read_text(encoding="utf-8"))
    return facts
