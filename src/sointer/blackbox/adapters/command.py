"""Models in a program of any language: it reads rows as lines of JSON, and writes their outputs as lines of JSON."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from sointer._support.files import TooManyParts
from sointer._support.validation import check_positive_int
from sointer.blackbox.adapters.connection import (
    ClosableBlackBox,
    PerProcess,
    printable,
    reply_json,
    rows_and_columns,
    to_json,
)
from sointer.blackbox.call import CallTimeout, TransientError, check_seconds, within
from sointer.blackbox.replies import NamedTable
from sointer.errors import InputError

MAX_QUOTE = 1000
SECONDS_TO_END = 1.0


class CommandBlackBox(ClosableBlackBox):
    """A program that is started once, then reads one line of JSON per batch and writes one, until its input ends.

    It reads `{"rows": [[...], ...], "columns": [...]}` (columns only for DataFrames; missing values are null) and
    writes `{"outputs": [[...], ...], "names": [...]}` (names are optional), or `{"error": "what is wrong"}`. The end of
    its error output is quoted in messages. If it dies, hangs or writes something else, it is started again.

    Parameters
    ----------
    command : list of str
        The program and its arguments; no shell is involved.
    timeout : float, default 60
        Seconds for one batch, after which the program is terminated.
    retries : int, default 2
        How often a batch is sent again.
    max_reply_bytes : int, default 256 MiB
        Longer lines are refused.
    **options
        Other parameters of `BlackBox`. Copies in other processes start a program of their own.

    Raises
    ------
    InputError
        If `command` is not a list of strings or, at the first query, cannot be started.

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
        """How often the program was restarted."""
        return self.predict.n_restarts  # type: ignore[attr-defined, no-any-return]


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
        self._program: PerProcess[tuple[Any, Any]] = PerProcess(self._start)  # the process, and its error output
        self._lock = PerProcess(threading.Lock)

    def __call__(self, X: Any) -> Any:
        """The outputs that the program writes for the rows of X."""
        rows, columns = rows_and_columns(X)
        request = to_json({"rows": rows} if columns is None else {"rows": rows, "columns": columns})
        with self._lock.get():
            reply = self._reply(request, len(rows))
        if "error" in reply:
            raise TransientError(f"The program {self.command[0]} says: {printable(str(reply['error'])[:300])}.")
        return NamedTable(reply["outputs"], reply["names"]) if "names" in reply else reply["outputs"]

    def close(self) -> str:
        """End the program; its exit code, if it had ended by itself, and the end of its error output."""
        if (program := self._program.take()) is None:
            return ""
        process, errors = program
        code = process.poll()
        send = partial(os.killpg, process.pid) if os.name == "posix" else process.send_signal
        for number in (signal.SIGTERM, 9):
            if process.poll() is None:
                with suppress(OSError, subprocess.TimeoutExpired):
                    send(number)
                    process.wait(SECONDS_TO_END)
        with suppress(OSError, ValueError):
            process.stdin.close()
        with errors:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - MAX_QUOTE))
            words = " | ".join(map(printable, errors.read(MAX_QUOTE).decode("utf-8", "replace").strip().splitlines()))
        ended = "" if code is None else f" It ended with code {code}."
        return ended + (f" Its last words: {words}." if words else "")

    def _start(self) -> tuple[Any, Any]:
        errors, pipe = tempfile.TemporaryFile(), subprocess.PIPE  # noqa: SIM115
        alone = os.name == "posix"  # in a session of its own, so that what it starts itself can be ended with it
        try:
            process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=errors, start_new_session=alone)
        except OSError as error:
            raise InputError(
                f"command cannot be started: {error}. Give the program and its arguments as a list, such as "
                "['python', 'model.py']; it is not run by a shell."
            ) from None
        return process, errors

    def _exchange(self, process: Any, request: bytes) -> bytes:
        """Write a line and read one; nothing if the program has ended."""
        with suppress(OSError, ValueError):  # a broken pipe, or one that was closed meanwhile
            process.stdin.write(request + b"\n")
            process.stdin.flush()
            if line := process.stdout.readline(self.max_reply_bytes + 1):
                return line  # type: ignore[no-any-return]
        with suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_END)  # it has closed its output: its exit code comes soon
        return b""

    def _reply(self, request: bytes, n_rows: int) -> dict[str, Any]:
        process, _ = self._program.get()
        problem = f"returned nothing within timeout={self.timeout:g} s. Raise timeout, or lower batch_size"
        try:
            line = within(self.timeout, lambda: self._exchange(process, request))
            problem = f'wrote {line[:200]!r}, expected {{"outputs": [[...], ...]}} in one line of JSON'
            if not line:
                problem = "ended before it replied"
            elif len(line) > self.max_reply_bytes:
                problem = f"wrote a line of more than max_reply_bytes={self.max_reply_bytes:,}"
            reply = reply_json(line, n_rows)
            if isinstance(reply, dict) and ("error" in reply or isinstance(reply.get("outputs"), list)):
                return reply
        except TooManyParts as error:
            problem += f", got {error.what}"
        except (CallTimeout, ValueError, RecursionError):
            pass
        except BaseException:
            self.close()  # what it writes next would belong to this query
            raise
        self.n_restarts += 1
        raise TransientError(f"The program {self.command[0]} {problem}.{self.close()}")
