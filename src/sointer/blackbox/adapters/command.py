"""Models in a program of any language: it reads rows as lines of JSON, and writes their outputs as lines of JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from sointer._support.validation import check_positive_int
from sointer.blackbox.adapters.connection import PerProcess, rows_and_columns, to_json
from sointer.blackbox.box import BlackBox
from sointer.blackbox.call import CallTimeout, TransientError, check_seconds, within
from sointer.blackbox.replies import NamedTable
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
        """The line that the program answers; `CallTimeout`, and the program is ended, if it takes too long."""
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


class CommandBlackBox(BlackBox):
    """A program that is started once and then answers one line of JSON for each line of JSON.

    It is sent `{"rows": [[...], ...], "columns": [...]}` (columns only for DataFrames; missing values are null) and
    answers `{"outputs": [[...], ...], "names": [...]}` (names if it likes), or `{"error": "what is wrong"}`. What it
    writes to its error output is kept for messages. If it dies, hangs or writes something else it is started again.

    Parameters
    ----------
    command : the program and its arguments, as a list; no shell is involved.
    timeout : seconds for one batch, after which the program is ended.
    retries : how often a batch is asked again.
    max_reply_bytes : lines longer than this are refused.
    options : what else `BlackBox` takes. Copies in other processes start a program of their own.

    Examples
    --------
    >>> import sys, numpy as np
    >>> loop = "for line in sys.stdin: print(json.dumps({'outputs': json.loads(line)['rows']}), flush=True)"
    >>> code = f"import json, sys; exec({loop!r})"
    >>> with CommandBlackBox([sys.executable, "-c", code]) as box:
    ...     box(np.array([[1, 2]]))
    array([[1, 2]])
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        timeout: float = 60.0,
        retries: int = 2,
        max_reply_bytes: int = 256 * 2**20,
        **options: Any,
    ) -> None:
        predict = CommandPredict(command, timeout, max_reply_bytes)
        options.setdefault("name", Path(predict.command[0]).name)
        super().__init__(predict, retries=retries, **options)

    @property
    def n_restarts(self) -> int:
        """How often the program had to be started again."""
        return self._predict.n_restarts

    def close(self) -> None:
        """End the program; it is started again when needed."""
        self._predict.close()

    @property
    def _predict(self) -> CommandPredict:
        assert isinstance(self.predict, CommandPredict)
        return self.predict

    def __enter__(self) -> CommandBlackBox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CommandPredict:
    """One line to the program and one from it for each call, one call at a time."""

    def __init__(self, command: Sequence[str], timeout: float, max_reply_bytes: int) -> None:
        if isinstance(command, (str, bytes)) or not all(isinstance(part, str) for part in command) or not command:
            raise InputError(
                f"command must be a list of strings, the program and its arguments, got {command!r:.80}. "
                "It is not run by a shell; shlex.split(...) makes a list of what you would type there."
            )
        self.command = list(command)
        self.timeout = check_seconds(timeout, "timeout")
        self.max_reply_bytes = check_positive_int(max_reply_bytes, "max_reply_bytes")
        self.n_restarts = 0
        self._program = PerProcess(partial(Program, self.command))
        self._lock = threading.Lock()

    def __call__(self, X: Any) -> Any:
        """The outputs that the program writes for the rows of X."""
        rows, columns = rows_and_columns(X)
        question = to_json({"rows": rows} if columns is None else {"rows": rows, "columns": columns})
        with self._lock:
            reply = self._reply(question)
        if "names" not in reply:
            return reply["outputs"]
        names = reply["names"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TransientError(
                f"The program {self.command[0]} gave names that are no list of strings: {names!r:.200}."
            )
        return NamedTable(reply["outputs"], names)

    def close(self) -> None:
        """End the program; it is started again when needed."""
        program = self._program.take()
        if program is not None:
            program.close()

    def _reply(self, question: bytes) -> dict[str, Any]:
        program = self._program.get()
        line = b""
        try:
            line = program.ask(question, self.timeout, self.max_reply_bytes)
            reply = json.loads(line)
        except CallTimeout:
            problem = (
                f"gave no answer within timeout={self.timeout:g} s and was ended. Raise timeout, or lower batch_size"
            )
        except Ended:
            problem = "ended before it answered"
        except OverflowError as error:
            problem = f"was ended: {error}"
        except (ValueError, RecursionError):
            problem = f"wrote something else than JSON: {line[:200]!r}. Other things go to its error output"
        else:
            if isinstance(reply, dict) and "error" in reply:
                raise TransientError(f"The program {self.command[0]} says: {reply['error']!s:.300}.")
            if isinstance(reply, dict) and isinstance(reply.get("outputs"), list):
                return reply
            problem = f'wrote something else than {{"outputs": [[...], ...]}}: {line[:200]!r}'
        self.close()
        self.n_restarts += 1
        raise TransientError(f"The program {self.command[0]} {problem}.{program.last_words()}")

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"CommandPredict({self.command[0]})"
