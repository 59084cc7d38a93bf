"""A running program that answers lines with lines."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from sointer.blackbox.retrying import within
from sointer.errors import InputError

N_LAST_LINES = 10
SECONDS_TO_END = 1.0


class Ended(Exception):
    """The program ended, or closed its output, instead of answering."""


class Program:
    """Started at once; ended by `close`, by being forgotten, or with this process."""

    def __init__(self, command: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=os.name == "posix",  # so that what it starts itself can be ended with it
            )
        except OSError as error:
            raise InputError(
                f"command cannot be started: {error}. Give the program and its arguments as a list, such as "
                "['python', 'model.py']; it is not run by a shell."
            ) from None
        self._own_end: int | None = None  # the exit code, if it was not ended by us
        self._last_lines: deque[str] = deque(maxlen=N_LAST_LINES)
        self._reader = threading.Thread(target=_drain, args=(self._process.stderr, self._last_lines), daemon=True)
        self._reader.start()
        self._end = weakref.finalize(self, _end, self._process, os.getpid())

    def ask(self, line: bytes, timeout: float, most_bytes: int) -> bytes:
        """The line that the program answers; `Hung`, and the program is ended, if it takes too long."""
        try:
            return within(timeout, lambda: self._exchange(line, most_bytes))
        except BaseException:
            self._own_end = self._process.poll()
            # It may still be writing: what it says next would answer the wrong question.
            self.close()
            raise

    def close(self) -> None:
        """End the program."""
        self._end()

    def last_words(self) -> str:
        """How it ended, and the last lines of its error output."""
        if self._process.poll() is not None:
            self._reader.join(1.0)
        ended = "" if self._own_end is None else f" It ended with code {self._own_end}."
        return ended + (f" Its last words: {' | '.join(self._last_lines)}." if self._last_lines else "")

    def _exchange(self, line: bytes, most_bytes: int) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
            reply = self._process.stdout.readline(most_bytes + 1)
        except (OSError, ValueError):  # a broken pipe, or one that was closed meanwhile
            reply = b""
        if not reply.endswith(b"\n"):
            if len(reply) > most_bytes:
                raise OverflowError(f"its reply has more than max_reply_bytes={most_bytes:,}")
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(SECONDS_TO_END)  # it has closed its output: its exit code comes soon
            raise Ended
        return reply


def _drain(pipe: object, last_lines: deque[str]) -> None:
    """Read the error output for ever, or a full pipe would stop the program."""
    with suppress(OSError, ValueError):
        for line in iter(lambda: pipe.readline(10_000), b""):  # type: ignore[attr-defined]
            last_lines.append(line.decode("utf-8", "replace").rstrip()[:300])


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """By asking, then by force, with all that it started."""
    if os.getpid() != owner:  # a forked copy of this process ends: the program is not its own
        return
    for how in ("SIGTERM", "SIGKILL"):
        if process.poll() is not None:
            break
        with suppress(OSError, subprocess.TimeoutExpired):
            if os.name == "posix":
                os.killpg(process.pid, getattr(signal, how))
            else:
                process.terminate()
            process.wait(SECONDS_TO_END)
    with suppress(OSError, ValueError):
        if process.stdin is not None:
            process.stdin.close()
