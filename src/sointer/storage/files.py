"""Reading files that may be anything: only regular ones, only of the size they should have, never elsewhere."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_file(path: Path, *, within: Path, most_bytes: int) -> bytes:
    """The content of a regular file; ValueError or OSError, before anything is read, if it is something else."""
    size = checked_size(path, within=within)
    if size > most_bytes:
        raise ValueError(f"it has {size} bytes, expected at most {most_bytes}")
    # Not to wait for ever where a pipe has taken the file's place since.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        content = file.read(size + 1)
    if len(content) != size:
        raise ValueError(f"its size changed from {size} bytes while it was read")
    return content


def checked_size(path: Path, *, within: Path) -> int:
    """The size of a regular file that really lies in the directory `within`, also if links lead to it."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")
    if os.path.islink(path) and not path.resolve().is_relative_to(within.resolve()):
        raise ValueError("it is a link that leads out of its directory; copy the file itself there")
    return status.st_size
