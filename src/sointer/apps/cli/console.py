"""What commands share: output, exit codes, options, and what is refused early.

Results go to stdout, all else to stderr, errors in one line. Nothing here imports torch or scikit-learn, which takes
seconds.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TextIO

import typer

from sointer._support.files import TOKENS
from sointer.apps.cli import INTERRUPTED
from sointer.errors import InputError, SointerError, SointerWarning

FAILED, UNFAITHFUL, PIPE_CLOSED = 1, 3, 141
RED, YELLOW = typer.colors.RED, typer.colors.YELLOW


@dataclass
class Console:
    """The two streams of a command and how much is printed on them."""

    quiet: bool
    verbose: bool
    as_json: bool
    out: TextIO
    warned: list[Warning] = field(default_factory=list)

    @property
    def progress(self) -> bool | None:
        """Progress bars: never, a line for every stage too, or on a terminal only."""
        return False if self.quiet else True if self.verbose else None

    @property
    def binary(self) -> BinaryIO:
        """Standard output for what is not text to us."""
        return self.out.buffer

    def say(self, line: str = "") -> None:
        """What is going on, for people."""
        if not self.quiet:
            print(line, file=sys.stderr, flush=True)

    def detail(self, line: str) -> None:
        """Details, with --verbose only."""
        if self.verbose:
            self.say(line)

    def result(self, text: str, metadata: Any) -> None:
        """The result: text, or with --json the metadata."""
        self.out.write(json.dumps(metadata, indent=2, allow_nan=False) if self.as_json else text)
        self.out.write("\n")
        self.out.flush()

    def warn(self, message: Warning | str, *_: Any, **__: Any) -> None:
        """A warning in one line, once."""
        warning = message if isinstance(message, Warning) else UserWarning(message)
        if str(warning) in {str(known) for known in self.warned}:
            return
        self.warned.append(warning)
        if not self.quiet:
            print(f"{coloured('warning:', YELLOW)} {one_line(warning)}", file=sys.stderr, flush=True)


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def running(*, quiet: bool = False, verbose: bool = False, as_json: bool = False) -> Iterator[Console]:
    """Run a command: whatever the user's code prints goes to stderr, and every way to fail has its exit code."""
    console = Console(quiet, verbose, as_json, sys.stdout)
    try:
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("always", SointerWarning)
            warnings.showwarning = console.warn
            yield console
        console.out.flush()
    except SointerError as error:
        raise _failed(error, verbose) from error
    except KeyboardInterrupt as error:
        print(str(error) or "stopped", file=sys.stderr, flush=True)
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        _let_go_of(console.out)
        raise typer.Exit(PIPE_CLOSED) from None
    except (OSError, MemoryError) as error:
        raise _failed(error, verbose) from error
    except Exception as error:
        if isinstance(error, typer.Exit) or type(error).__module__.split(".")[0] in ("typer", "click"):
            raise
        raise _failed(error, verbose, "this should not happen, and is likely a mistake in sointer") from error


def one_line(error: BaseException) -> str:
    """The message of an error, or its type if it has none, without line breaks and other control characters."""
    words = " ".join(str(error).split()) or type(error).__name__
    return "".join(character if character.isprintable() else "?" for character in words)


def coloured(text: str, colour: str) -> str:
    """Colours on a terminal only, and not where NO_COLOR or TERM=dumb say otherwise."""
    wanted = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return typer.style(text, fg=colour, bold=True) if wanted else text


def _failed(error: BaseException, verbose: bool, unexpected: str | None = None) -> typer.Exit:
    """Print the error; with --verbose, its traceback too."""
    message = one_line(error)
    if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None:
        message = (
            f"there is no room to write what was asked for ({message}); files of that name from before are as they "
            "were. Make room, or choose another place."
        )
    if unexpected is not None:
        message = f"{type(error).__name__}: {message} ({unexpected}; run the same with --verbose to see where)"
    if verbose:
        traceback.print_exception(error)
    print(f"{coloured('error:', RED)} {message}", file=sys.stderr, flush=True)
    return typer.Exit(FAILED)


def _let_go_of(out: TextIO) -> None:
    """The reader has closed the pipe: flushing what is left must not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, out.fileno())
    except (OSError, ValueError):
        pass
    finally:
        os.close(nowhere)


ExplainerPath = Annotated[
    Path, typer.Argument(metavar="EXPLAINER", help="The folder that `sointer fit` wrote.", show_default=False)
]
DataPath = Annotated[
    Path,
    typer.Option(
        "--data",
        "-d",
        metavar="FILE",
        help="Rows: CSV with a header, Parquet, .npy, or .npz (also sparse); for sequences .jsonl, with tokens or a "
        "text on each line.",
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
    typer.Option("--model", "-m", metavar="MODEL", help="The model, as for fit, to query it again."),
]
Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="METHOD",
        help="For an estimator: predict or predict_proba. Default: predict_proba if it agrees with predict.",
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="HEADER",
        help="For model servers, 'Name: value', repeatable. Keep secrets off the command line: ${VARIABLE} in single "
        "quotes is read from the environment, @FILE from a file. Values are never shown.",
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", metavar="OUTPUT", help="Only this output, by name or number; repeatable."),
]
K = Annotated[
    str | None,
    typer.Option("--k", "-k", metavar="K", help="Number of features to select, or auto: those that matter."),
]
Device = Annotated[
    str,
    typer.Option(
        "--device", metavar="DEVICE", help="Device for networks: cpu, cuda, cuda:1, mps, or auto for the best."
    ),
]
TextColumn = Annotated[
    str | None, typer.Option("--text", metavar="COLUMN", help="The column of texts, for explainers of texts.")
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite existing files.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same result.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result and errors only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more, including where errors happened.")]
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


IdColumn = Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="A column that identifies the rows.")]


def nouns(explainer: Any) -> tuple[str, str]:
    """What an explainer calls a sample and what it selects, both in the plural."""
    if explainer.sequences_ is not None:
        return "sequences", "tokens"
    if explainer.reads_text:
        return "texts", "words"
    return ("rows", "features") if explainer.input_format_.image is None else ("images", "pixels")


def how_many(k: int | str) -> str:
    """How many features are selected, as text."""
    return "those that matter" if k == "auto" else str(k)


def refuse_existing(path: Path, force: bool) -> None:
    """An error if there is something to overwrite."""
    if not force and path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise InputError(f"{path} exists; nothing was written. Choose another --out, or overwrite it with --force.")


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


def check_place(out: Path, data: Path) -> None:
    """Refuse a folder that the explainer of such data cannot be written to; after the fit, its queries are lost."""
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
            raise no_module(top, here)


def no_module(name: str, here: str) -> InputError:
    """The error for a module that is neither in the working directory nor installed."""
    return InputError(
        f"--model: there is no module {name}, neither in {here} nor installed. Run the command where {name}.py is, or "
        "put its folder on PYTHONPATH."
    )


def check_explanations(out: Path) -> None:
    """Refuse a file for explanations whose name says no known kind."""
    if str(out) != "-" and out.suffix.lower() not in EXPLANATIONS:
        raise InputError(f"--out {out}: expected a name that ends in .parquet, .csv or .jsonl, or - (standard output).")
