"""Options and arguments that several commands share, so that they mean the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sointer.errors import InputError

ExplainerPath = Annotated[
    Path, typer.Argument(metavar="EXPLAINER", help="The folder that `sointer fit` wrote.", show_default=False)
]
DataPath = Annotated[
    Path,
    typer.Option(
        "--data",
        "-d",
        metavar="FILE",
        help="Rows: CSV with a header, Parquet, .npy, or .npz (sparse rows too).",
        show_default=False,
    ),
]
MODEL_HELP = (
    "What to explain: module:name (a function X -> Y or a fitted estimator, importable from the working "
    "directory), model.onnx, or the URL of a model server."
)
ModelSpec = Annotated[str, typer.Option("--model", "-m", metavar="MODEL", help=MODEL_HELP, show_default=False)]
OptionalModelSpec = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="MODEL", help="The model that was explained, as for fit, to ask it again."),
]
Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="METHOD",
        help="Of an estimator: predict or predict_proba. Default: probabilities where they agree with predict.",
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="HEADER",
        help="For model servers, 'Name: value', repeatable. Keep secrets off the command line: ${VARIABLE} in single "
        "quotes is read from the environment, @FILE as the value from a file. Values are never shown.",
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", metavar="OUTPUT", help="Only this output, by name or number; repeatable."),
]
K = Annotated[
    str | None,
    typer.Option("--k", "-k", metavar="K", help="How many features to select, or auto: those that matter."),
]
TextColumn = Annotated[
    str | None, typer.Option("--text", metavar="COLUMN", help="The column of texts, for explainers of texts.")
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite what is there.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same result.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result and errors only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more; for errors, where they happened.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for machines.")]


def as_k(text: str | None) -> int | Literal["auto"] | None:
    """What --k says: a number, or "auto"; the explainer checks the rest."""
    if text is None:
        return None
    if text == "auto":
        return "auto"
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--k must be a whole number or auto, got {text!r}.") from None


def how_many(k: int | str) -> str:
    """How many features are selected, in words."""
    return "those that matter" if k == "auto" else str(k)


def refuse_existing(path: Path, force: bool) -> None:
    """Nothing is overwritten by accident."""
    if not force and path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise InputError(f"{path} exists; nothing was written. Choose another --out, or overwrite it with --force.")


def check_parent(path: Path) -> None:
    """A file can only be written into a folder that is there; better said before the work than after it."""
    if not path.absolute().parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {path.absolute().parent}. Create it first.")
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder, expected the name of a file.")
