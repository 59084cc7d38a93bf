"""Files: reading them where they may be anything, and writing them whole or not at all."""

from __future__ import annotations

import glob
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from sointer.errors import InputError

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]


def read_file(path: Path, *, within: Path, max_bytes: int) -> bytes:
    """The content of a regular file; ValueError or OSError, before anything is read, if it is something else."""
    checked_size(path, within=within)
    # Another file, or a pipe, may have taken its place since: its size is that of what was opened, without waiting.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        size = _size_of_regular(os.fstat(handle))
        if size > max_bytes:
            raise ValueError(f"it has {size} bytes, expected at most {max_bytes}")
        content = file.read(size + 1)
    if len(content) != size:
        raise ValueError(f"its size changed from {size} bytes while it was read")
    return content


def checked_size(path: Path, *, within: Path) -> int:
    """The size of a regular file that really lies in the directory `within`, also if links lead to it."""
    size = _size_of_regular(os.stat(path))
    if os.path.islink(path) and not path.resolve().is_relative_to(within.resolve()):
        raise ValueError("it is a link that leads out of its directory; copy the file itself there")
    return size


def _size_of_regular(status: os.stat_result) -> int:
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")
    return status.st_size


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written to, or made; better known before the work than after it."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = "may not be written to" if there.is_dir() else "is a file"
        raise InputError(f"cannot write to {folder}: {there} {why}. Choose another place.")


def _read_umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


# Read once: the setting belongs to the whole process, and can only be read by changing it.
UMASK = _read_umask()


SECONDS_OF_GRACE = 60.0


class AtomicFile:
    """A new file beside `target`, put in its place by `commit`; without that it is removed at the end of the block.

    What a kill leaves of it is removed by the next one with the same target.
    """

    def __init__(self, target: Path, *, private: bool = False) -> None:
        if target.exists() and not target.is_file():  # a device or a pipe would be replaced, not written to
            raise InputError(f"{target} is there and is no ordinary file; nothing was written. Choose another name.")
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_old_drafts(target)
        self._handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
        _lock(self._handle)
        if not private:
            os.chmod(name, 0o666 & ~UMASK)  # mkstemp makes files that only their owner can read
        self.path, self.target = Path(name), target

    def commit(self, name: Path | None = None) -> Path:
        """Have the content on the disk itself, then give the file its name, or another."""
        place = self.target if name is None else name
        os.fsync(self._handle)
        self._close()  # some systems do not rename open files
        os.replace(self.path, place)
        sync_directory(place.parent)
        return place

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self.path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _lock(handle: int) -> bool:
    """Whether the file is ours alone now, until it is closed."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_old_drafts(target: Path) -> None:
    """Delete what a kill has left of earlier drafts: nobody has locked them, and they have not changed for a while."""
    for draft in target.parent.glob(f".{glob.escape(target.name)}-????????"):
        with suppress(OSError):
            if time.time() - draft.lstat().st_mtime < SECONDS_OF_GRACE or not stat.S_ISREG(draft.lstat().st_mode):
                continue
            handle = os.open(draft, os.O_RDONLY)
            try:
                if _lock(handle):
                    draft.unlink()
            finally:
                os.close(handle)


def put(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file under another name and rename it, so that `path` is never half written."""
    with AtomicFile(path, private=private) as draft:
        handle, rest = os.open(draft.path, os.O_WRONLY | getattr(os, "O_BINARY", 0)), memoryview(content)
        try:
            while rest:
                rest = rest[os.write(handle, rest) :]
        finally:
            os.close(handle)
        draft.commit()


def sync_directory(path: Path) -> None:
    """Have the names in a directory on the disk itself, where systems know how to."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass  # some file systems cannot, and the files themselves are safe
    finally:
        os.close(handle)
