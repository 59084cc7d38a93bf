"""`sointer serve` in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forking


@contextmanager
def command(*arguments: Any, fresh: bool = False) -> Iterator[tuple[str, subprocess.Popen[str] | forking.Forked]]:
    """`sointer serve ...` in a process of its own, a fresh interpreter or a forked one: its address and the process."""
    call, here = ["-m", "sointer", "serve", *map(str, arguments), "--port", "0"], Path(__file__).parent
    process: subprocess.Popen[str] | forking.Forked
    if fresh:
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen([sys.executable, *call], stderr=subprocess.PIPE, text=True, cwd=here, env=one_thread)
    else:
        process = forking.start(call, cwd=here)
    try:
        assert process.stderr is not None
        output = ""
        while (found := re.search(r"open (http://\S+)", output)) is None:
            line = process.stderr.readline()
            assert line, f"the server did not start: {output}"
            output += line
        yield found[1], process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(30)
        process.stderr.close()
