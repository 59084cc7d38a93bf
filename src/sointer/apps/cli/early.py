"""What can be refused before torch, scikit-learn and the model are loaded, which takes seconds."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sointer.errors import InputError

EXPLANATIONS = (".parquet", ".pq", ".csv", ".jsonl")


def check_explainer(path: Path, target: Sequence[str] | None = None) -> dict[str, Any]:
    """The metadata of a saved explainer; refuses what is none, and outputs that it does not explain."""
    from sointer.io.storage import SEQUENCES, storage_of

    storage = storage_of(path)
    metadata = storage.peek(path)
    if storage is SEQUENCES:
        read_positions(target)
        return metadata
    outputs = metadata.get("outputs")
    if target and isinstance(outputs, dict) and outputs.get("shape") is None:
        _check_targets(target, outputs.get("names"))
    return metadata


def read_positions(target: Sequence[str] | None) -> list[int] | None:
    """Of sequences, the tokens that are explained, by their numbers; None for all."""
    if not target or list(target) == ["all"]:
        return None
    try:
        return [int(one) for one in target]
    except ValueError:
        raise InputError(
            f"--target {' '.join(target)}: of sequences, expected the number of a token, from 0, or all."
        ) from None


def _check_targets(target: Sequence[str], names: Any) -> None:
    if not isinstance(names, list) or (list(target) == ["all"] and "all" not in names):
        return
    from sointer._support.validation import resolve_targets

    for one in target:
        resolve_targets(int(one) if one not in names and one.isdecimal() and one.isascii() else one, names, 1)


def check_data(path: Path) -> None:
    """Refuse data that are not there, or of no known kind."""
    from sointer.io.locations import check_readable

    check_readable(path)


def check_place(out: Path, data: Path) -> None:
    """Refuse a folder that the explainer of such data cannot be written to; after the fit, its queries are lost."""
    from sointer.io.locations import TOKENS
    from sointer.io.storage import EXPLAINER, SEQUENCES

    (SEQUENCES if data.name.lower().endswith(TOKENS) else EXPLAINER).check_place(out)


def check_model(spec: str | None) -> None:
    """Refuse the name of a module that does not exist; everything else is left to whoever loads the model."""
    if spec is None or "://" in spec or ":" not in spec:
        return
    top = spec.partition(":")[0].partition(".")[0]
    here = str(Path.cwd())
    if top.isidentifier() and not (Path(here) / f"{top}.py").exists() and not (Path(here) / top).is_dir():
        try:
            found = top in sys.modules or importlib.util.find_spec(top) is not None
        except (ImportError, ValueError):
            return
        if not found:
            raise InputError(
                f"--model: there is no module {top}, neither in {here} nor installed. Run the command where {top}.py "
                "is, or put its folder on PYTHONPATH."
            )


def check_explanations(out: Path) -> None:
    """Refuse a file for explanations whose name says no known kind."""
    if str(out) != "-" and out.suffix.lower() not in EXPLANATIONS:
        raise InputError(f"--out {out}: expected a name that ends in .parquet, .csv or .jsonl, or - (standard output).")
