"""Processes that begin in a moment: forked from one that has imported what most need, and that has one thread.

A new interpreter spends four seconds on importing torch, scikit-learn and pandas. Where that is not what is tested,
`start` and `run` take the arguments of `python` and give what `subprocess` gives.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import IO, Any

IMPORTED = ["torch._dynamo", "sointer.explainers.sointer", "sointer.explainers.fitting", "sointer.io.explainers"]
IMPORTED += ["sointer.training.tables", "sointer.zoo", "sointer.apps.serve.server", "sointer.apps.cli.app", "pandas"]
"""torch imports torch._dynamo at the first step of its optimisers, and elsewhere."""


def context() -> Any:
    """The way of multiprocessing to start such processes; the one that they are forked from is started here."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(IMPORTED)
    forkserver.ensure_running()
    return made


def stop() -> None:
    """End the process that the others are forked from, so that what they computed counts as computed by this one."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


@contextmanager
def dask_workers() -> Iterator[None]:
    """Local clusters start their workers so."""
    import dask

    context()
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


@contextmanager
def joblib_workers() -> Iterator[None]:
    """joblib starts its processes so; afterwards they are gone."""
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.backend.context import set_start_method

    context()
    set_start_method("forkserver", force=True)
    try:
        yield
    finally:
        get_reusable_executor().shutdown(wait=True, kill_workers=True)
        set_start_method(None, force=True)


class Forked:
    """What subprocess.Popen is to a process: its output as text, and its end."""

    def __init__(self, arguments: list[str], cwd: Path, environment: dict[str, str]) -> None:
        (out, its_out), (errors, its_errors) = (multiprocessing.Pipe(duplex=False) for _ in range(2))
        streams = its_out, its_errors
        self._process = context().Process(target=_begin, args=(streams, arguments, cwd, environment))
        self._process.start()
        self.stdout, self.stderr = _text(out), _text(errors)
        for stream in streams:
            stream.close()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def returncode(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        """As subprocess does: nothing where it has ended, also where it ends just now and its number is gone."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it still prints; it must be little, for one stream is read after the other."""
        found = "" if self.stdout.closed else self.stdout.read(), self.stderr.read()
        self.wait(timeout)
        return found

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        if self.poll() is None:
            self._process.kill()
        self.wait(30)
        self.stdout.close()
        self.stderr.close()


def start(arguments: list[str], *, cwd: Path | None = None) -> Forked:
    """As `python` with these arguments: `-m NAME ...` or `-c CODE ...`."""
    return Forked(arguments, cwd or Path.cwd(), dict(os.environ))


def run(arguments: list[str], *, cwd: Path | None = None, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """The same, to its end."""
    with start(arguments, cwd=cwd) as process:
        out, errors = process.communicate(timeout)
        code = process.returncode
    return subprocess.CompletedProcess(arguments, -1 if code is None else code, out, errors)


def _text(stream: connection.Connection) -> IO[str]:
    text = os.fdopen(os.dup(stream.fileno()), encoding="utf-8")
    stream.close()
    return text


def _begin(
    streams: tuple[connection.Connection, ...], arguments: list[str], cwd: Path, environment: dict[str, str]
) -> None:
    for number, stream in enumerate(streams, 1):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, encoding="utf-8", closefd=False) for number in (1, 2))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.path.insert(0, os.getcwd())
    option, what, *sys.argv[1:] = arguments
    sys.argv[0] = option
    if option == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
