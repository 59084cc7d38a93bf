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


@contextmanager
def command(*arguments: Any) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`sointer serve ...` in a process of its own: its address and the process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sointer", "serve", *map(str, arguments), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
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
