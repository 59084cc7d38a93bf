"""Files: which can be read, reading them where they may be anything, writing them whole or not at all, strict JSON."""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
import stat
import struct
import sys
import tempfile
import time
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

from sointer.errors import InputError, LoadError, SointerError

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


# What libraries raise while they read files that were damaged.
DAMAGE: tuple[type[Exception], ...] = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


@contextmanager
def reading(
    path: str | os.PathLike[str],
    kind: str,
    advice: str = "Check the file, or write it again.",
    raises: type[SointerError] = LoadError,
) -> Iterator[None]:
    """Within the block, whatever a library says of a file that it cannot read becomes one error of ours."""
    pyarrow = sys.modules.get("pyarrow")
    damage = DAMAGE if pyarrow is None else (*DAMAGE, pyarrow.ArrowException)
    try:
        yield
    except (SointerError, MemoryError):
        raise
    except damage as error:
        message = " ".join(str(error).split())[:300] or type(error).__name__
        raise raises(f"{path} cannot be read as {kind}: {message.rstrip('.')}. {advice}") from error


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written to, or made; better known before the work than after it."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = "may not be written to" if there.is_dir() else "is a file"
        raise InputError(f"cannot write to {folder}: {there} {why}. Choose another place.")


def check_file_place(path: str | os.PathLike[str], *, is_page: bool = False) -> Path:
    """The path, if a file, or a page of HTML, can be written there: better known before the work than after it."""
    place = Path(path)
    if is_page and place.suffix.lower() not in ("", ".html", ".htm"):
        raise InputError(f"cannot write {place}: it is a page of HTML, expected a name that ends in .html.")
    folder = place.absolute().parent
    if not folder.is_dir():
        raise InputError(f"cannot write {place}: there is no folder {folder}. Create it first.")
    if place.is_dir():
        raise InputError(f"cannot write {place}: it is a folder, expected the name of a file.")
    check_writable(folder)
    return place


def _read_umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


# Read once: the setting belongs to the whole process, and can only be read by changing it.
UMASK = _read_umask()


SECONDS_OF_GRACE = 60.0
DRAFT = "-draft-"
"""In the names of unfinished files, so that no file of somebody else is taken for one."""


class AtomicFile:
    """A new file beside `target`, put in its place by `commit`; without that it is removed at the end of the block.

    What a kill leaves of it is removed by the next one with the same target.
    """

    def __init__(self, target: Path, *, private: bool = False) -> None:
        if target.exists() and not target.is_file():  # a device or a pipe would be replaced, not written to
            raise InputError(f"{target} is there and is no ordinary file; nothing was written. Choose another name.")
        make_directory(target.parent)
        _remove_old_drafts(target)
        self._handle, name = tempfile.mkstemp(prefix=f".{target.name}{DRAFT}", dir=target.parent)
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
    for draft in target.parent.glob(f".{glob.escape(target.name)}{DRAFT}????????"):
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


def make_directory(path: Path) -> None:
    """Make a directory, and those it is in, unless they are there; no power failure can lose them afterwards."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(new):
        sync_directory(folder.parent)


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


def strict_json(content: bytes | str) -> tuple[Any, bool]:
    """What a JSON text says, and whether all its numbers are finite; ValueError if a key is there twice."""
    all_finite = True

    def number(text: str) -> float:
        nonlocal all_finite
        value = float(text)
        all_finite = all_finite and math.isfinite(value)
        return value

    text = content.decode("utf-8") if isinstance(content, bytes) else content
    value = json.loads(text, object_pairs_hook=_unique, parse_float=number, parse_constant=number)
    return value, all_finite


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is there twice")
    return result


MAX_PARTS, BYTES_PER_PART = 20_000, 40
"""How many lists, objects and different names a JSON text may hold: so many, some for each row that it is about, and
one for so many bytes. Python takes up to 280 bytes for one, and two bytes are enough to ask for it."""


class TooManyParts(ValueError):
    """A JSON text of more lists, objects and different names than are allowed."""

    def __init__(self, allowed: int) -> None:
        super().__init__(allowed)
        self.what = f"more than {allowed:,} lists and objects, or different names, most of them almost empty"


def check_parts(text: str, n_for_rows: int) -> None:
    """TooManyParts if Python would take many times the bytes of a JSON text for what it says.

    Brackets in strings count too, as counting is fast; ValueError if a string has no end.
    """
    allowed = MAX_PARTS + n_for_rows + len(text) // BYTES_PER_PART
    if text.count("[") + text.count("{") > allowed:
        raise TooManyParts(allowed)
    if text.count(":") <= allowed:
        return
    names, at = set(), text.find('"')
    while at >= 0:
        string, end = scanstring(text, at + 1)
        if text[end : end + BYTES_PER_PART].lstrip().startswith(":"):
            names.add(string)
        if len(names) > allowed:
            raise TooManyParts(allowed)
        at = text.find('"', end)


def content_digest(value: Any) -> str:
    """SHA-256 of what a value says as JSON, however it is laid out."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def as_finite(value: Any) -> Any:
    """The same without NaN and infinities, which JSON does not know: null instead; tuples become lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): as_finite(one) for name, one in value.items()}
    return [as_finite(one) for one in value] if isinstance(value, list | tuple) else value


PARQUET, CSV, ARRAYS = (
    (".parquet", ".pq"),
    (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".csv.zst"),
    (".npy", ".npz"),
)
TOKENS = (".jsonl",)
"""Sequences of tokens."""
KNOWN = "Parquet (.parquet, a folder of them), CSV (.csv, .tsv, .csv.gz), .npy or .npz; of sequences .jsonl"


def check_readable(path: Path) -> None:
    """Refuse a path to nothing, or to a file that is not known."""
    if path.is_dir():
        return
    if not path.name.lower().endswith((*PARQUET, *CSV, *ARRAYS, *TOKENS)):
        raise InputError(
            f"{path} is an unsupported file type; expected {KNOWN}. Convert it, or iterate over its parts."
        )
    if not path.exists():
        raise InputError(f"{path} does not exist. Check the path; it is looked up from {Path.cwd()}.")
