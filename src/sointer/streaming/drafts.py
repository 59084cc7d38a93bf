"""A file that appears under its name only when it is whole."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from sointer.errors import InputError
from sointer.storage.files import UMASK


class Draft:
    """A new file beside `target`, put in its place by `keep`; without that it is removed at the end of the block."""

    def __init__(self, target: Path) -> None:
        if target.exists() and not target.is_file():  # a device or a pipe would be replaced, not written to
            raise InputError(f"{target} is there and is no ordinary file; nothing was written. Choose another name.")
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
        os.close(handle)
        os.chmod(name, 0o666 & ~UMASK)  # mkstemp makes files that only their owner can read
        self.path, self.target = Path(name), target

    def keep(self, name: Path | None = None) -> Path:
        """Give the file its name, or another."""
        place = self.target if name is None else name
        os.replace(self.path, place)
        return place

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, *_: object) -> None:
        self.path.unlink(missing_ok=True)
