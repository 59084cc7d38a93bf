"""What a command says, where, and how it ends: results on stdout, all else on stderr, errors in one line."""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TextIO

import typer

from sointer.cli import INTERRUPTED
from sointer.errors import SointerError, SointerWarning

FAILED, UNFAITHFUL, PIPE_CLOSED = 1, 3, 141
RED, YELLOW = typer.colors.RED, typer.colors.YELLOW


@dataclass
class Console:
    """The two streams of a command and how much is said on them."""

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
        """What only those want to know who said --verbose."""
        if self.verbose:
            self.say(line)

    def result(self, text: str, facts: Any) -> None:
        """What was asked for: text, or with --json the facts."""
        self.out.write(json.dumps(facts, indent=2, allow_nan=False) if self.as_json else text)
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
    """Say what went wrong; where it went wrong is for those who said --verbose."""
    message = one_line(error)
    if unexpected is not None:
        message = f"{type(error).__name__}: {message} ({unexpected}; run the same with --verbose to see where)"
    if verbose:
        traceback.print_exception(error)
    print(f"{coloured('error:', RED)} {message}", file=sys.stderr, flush=True)
    return typer.Exit(FAILED)


def _let_go_of(out: TextIO) -> None:
    """Nobody reads any more: what is still to be flushed at the end must not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, out.fileno())
    except (OSError, ValueError):
        pass
    finally:
        os.close(nowhere)
