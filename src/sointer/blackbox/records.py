"""A file of independent records with checksums, of which damage costs those that it touches.

Why not SQLite: it has no checksums of its pages, and they build on each other. Of 1,000 bits flipped in 300 outputs
kept by it, one at a time, 456 gave wrong outputs unnoticed and 69 made all unreadable; in its WAL, 961 lost outputs
unnoticed, 122 on average; and the WAL needs shared memory, which network drives lack. Here each cost one record, and
was noticed. Both write as fast: the disk's sync takes the time.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from sointer._support.files import make_directory, sync_directory
from sointer.errors import CheckpointError, CheckpointWarning, warn_caller

try:
    import fcntl
except ImportError:  # there is none on Windows, where two fits on one checkpoint must be avoided by hand
    fcntl = None  # type: ignore[assignment]

MAGIC = b"\x89sjrnl2\n"
FRAME = struct.Struct("<8sQQ16s8s")  # magic, the record's number, how long it is, its checksum, and that of all this
HEAD = struct.Struct("<I")  # how long its JSON part is
MAX_HEAD_BYTES, MAX_RECORD_BYTES = 2**26, 2**30
MAX_FIRST_BYTES = 2**16
BLOCK = 4096  # what a bad sector costs
WINDOW = 2**20


class JournalRecord(NamedTuple):
    """One record: metadata as JSON, and where in the file its bytes are."""

    metadata: dict[str, Any]
    start: int
    n_bytes: int


class Damage(NamedTuple):
    """Bytes of the file that are no record, and how many records were there (at the end of the file: at least)."""

    start: int
    n_bytes: int
    n_records: int


class RecordFile:
    """A file of records that only grows. A kill cannot lose what `append` wrote, and after `sync` no power failure can.

    A kill or a power failure loses at most the record being written, and other damage the records that it touches. The
    file is locked while it is open: a second process, or a second fit in this one, is refused. Nothing is created or
    changed before the first `append`. Several threads may `sync`, but one at a time may do anything else.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.damage: list[Damage] = []
        self._handle: int | None = None
        self._refused: OSError | None = None
        """Why the file can be read only."""
        self._end, self._next = 0, 0  # where the next record goes, and its number
        if self.path.exists():
            self._open()

    def _open(self) -> None:
        flags = getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            try:
                self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | flags, 0o600)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or not self.path.exists():
                    raise
                self._handle, self._refused = os.open(self.path, os.O_RDONLY | flags), error  # enough to replay
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be opened ({error}). Choose another checkpoint.") from error
        try:
            self._claim(self._handle)
        except BaseException:
            self.close()
            raise

    def _claim(self, handle: int) -> None:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise CheckpointError(f"{self.path} is not a regular file. Choose another checkpoint.")
        if fcntl is None:
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(
                f"{self.path} is in use: another fit with this checkpoint is running. Wait until it ends, or "
                "choose another checkpoint."
            ) from error
        except OSError as error:
            warn_caller(
                f"{self.path} cannot be locked ({error.strerror or error}), as on some network drives. Make sure that "
                "no other fit uses this checkpoint at the same time.",
                CheckpointWarning,
            )

    def records(self) -> Iterator[JournalRecord]:
        """All whole records; `damage` lists what lies between them. To be read to its end before anything is appended.

        A record that ends beyond the file is one whose writer was stopped: it was never promised to be there. Every
        byte is read once: a header that is right, having a checksum of its own, says where the next one is, and after
        one that is not the next is found by its first bytes.
        """
        if self._handle is None:
            return
        size = os.fstat(self._handle).st_size
        position, gap, n_bad = 0, 0, 0  # gap: where the bytes began that are no record
        n_found, torn = 0, size
        while position < size:
            frame = self._read(position, FRAME.size)
            _, number, length, digest, _ = FRAME.unpack(frame.ljust(FRAME.size, b"\0"))
            if not _is_header(frame):
                if size - position < FRAME.size:
                    torn = position
                    break
                position = self._find(position + 1, size)
                continue
            start, end = position + FRAME.size, position + FRAME.size + length
            if end > size:
                torn = position
                break
            content = self._read(start, length) if length <= MAX_RECORD_BYTES else b""
            record = _parse(content, start) if _digest(content, len(digest)) == digest else None
            position = end
            if record is None:
                n_bad += 1
                continue
            if position - FRAME.size - length > gap:
                self._lost(gap, start - FRAME.size, number - self._next)
            self._next, gap, n_bad = number + 1, end, 0
            n_found += 1
            yield record
        if torn > gap:
            self._check_ours(n_found, size)
            n_bad = max(n_bad, 1)
            self._lost(gap, torn, n_bad)
            self._next += n_bad
        elif not n_found:
            self._check_ours(n_found, size)
        self._end = torn

    def _lost(self, start: int, end: int, n_records: int) -> None:
        self.damage.append(Damage(start, end - start, max(1, n_records)))

    def _check_ours(self, n_found: int, size: int) -> None:
        """Refuse a file without any record, unless what is there can be the remains of the very first one."""
        begins = self._read(0, len(MAGIC))
        is_blank = not any(begins) and size <= MAX_FIRST_BYTES  # its first sector never reached the disk
        if not n_found and size and not is_blank and begins != MAGIC[: len(begins)]:
            raise CheckpointError(
                f"{self.path} is no journal of this version of sointer. Choose another checkpoint, or delete that one."
            )

    def append(self, metadata: dict[str, Any], *parts: bytes) -> None:
        """Write one more record; on failure the file stays as it was."""
        is_new = self._handle is None
        if is_new:
            self._create()
        head = json.dumps(metadata).encode()
        content = b"".join([HEAD.pack(len(head)), head, *parts])
        whole = _frame(self._next, content) + content
        self._write(whole, self._end)
        if is_new:
            sync_directory(self.path.parent)
        self._end += len(whole)
        self._next += 1

    def body(self, record: JournalRecord) -> bytes:
        """The bytes of a record."""
        return self._read(record.start, record.n_bytes)

    def close(self) -> None:
        """Close the file; more than once does no harm."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    __del__ = close

    def _create(self) -> None:
        try:
            make_directory(self.path.parent)
        except OSError as error:
            raise CheckpointError(
                f"{self.path.parent} cannot be made ({error}). Choose another directory for the checkpoint."
            ) from error
        self._open()
        if self._handle is None or os.fstat(self._handle).st_size:
            raise CheckpointError(f"{self.path} is in use: another fit has just begun with this checkpoint.")

    def _write(self, content: bytes, where: int) -> None:
        assert self._handle is not None
        rest = memoryview(content)
        try:
            if self._refused is not None:
                raise self._refused
            if os.fstat(self._handle).st_size > where:  # what a kill cut off must be gone before others take its place
                os.ftruncate(self._handle, where)
                os.fsync(self._handle)
            os.lseek(self._handle, where, os.SEEK_SET)
            while rest:
                rest = rest[os.write(self._handle, rest) :]
        except BaseException as error:
            with suppress(OSError):
                os.ftruncate(self._handle, where)
            if not isinstance(error, OSError):
                raise
            raise self._unwritten(error) from error

    def sync(self) -> None:
        """Have all that was appended on the disk itself."""
        assert self._handle is not None
        try:
            os.fsync(self._handle)
        except OSError as error:
            raise self._unwritten(error) from error

    def _unwritten(self, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"outputs of the black box could not be written to {self.path} ({error.strerror or error}), so the fit "
            "was stopped. All outputs before them are kept there: make room, then call fit again with the same "
            "checkpoint."
        )

    def _find(self, position: int, size: int) -> int:
        """Where the next whole header begins, or one that the end of the file cuts off; `size` if nowhere."""
        while position < size:
            window = self._read(position, WINDOW + FRAME.size)
            found = window.find(MAGIC, 0, WINDOW + len(MAGIC) - 1)
            while found >= 0:
                if position + found + FRAME.size > size or _is_header(window[found : found + FRAME.size]):
                    return position + found
                found = window.find(MAGIC, found + 1, WINDOW + len(MAGIC) - 1)
            position += WINDOW
        return size

    def _read(self, where: int, n_bytes: int) -> bytes:
        assert self._handle is not None
        parts = []
        while n_bytes > 0:
            os.lseek(self._handle, where, os.SEEK_SET)
            try:
                part = os.read(self._handle, n_bytes)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise CheckpointError(
                        f"{self.path} cannot be read ({error}). Choose another checkpoint."
                    ) from error
                if n_bytes > BLOCK:  # somewhere in here is a bad sector
                    n_first = BLOCK - where % BLOCK
                    parts.append(self._read(where, n_first))
                    where, n_bytes = where + n_first, n_bytes - n_first
                    continue
                part = bytes(n_bytes)  # read as zeros, which no checksum fits
            if not part:
                break
            parts.append(part)
            where, n_bytes = where + len(part), n_bytes - len(part)
        return b"".join(parts)


def _digest(content: bytes, n_bytes: int) -> bytes:
    return hashlib.blake2b(content, digest_size=n_bytes).digest()


def _frame(number: int, content: bytes) -> bytes:
    begin = FRAME.pack(MAGIC, number, len(content), _digest(content, 16), b"")[:-8]
    return begin + _digest(begin, 8)


def _is_header(frame: bytes) -> bool:
    """Whether these are the bytes of a header as `append` writes them."""
    return frame.startswith(MAGIC) and len(frame) == FRAME.size and _digest(frame[:-8], 8) == frame[-8:]


def _parse(content: bytes, start: int) -> JournalRecord | None:
    """A record's metadata and the place of its bytes; None if it is not written as `append` does."""
    if len(content) < HEAD.size:
        return None
    (n_head,) = HEAD.unpack_from(content)
    if n_head > min(MAX_HEAD_BYTES, len(content) - HEAD.size):
        return None
    begin = HEAD.size + n_head
    try:
        metadata = json.loads(content[HEAD.size : begin])
    except (ValueError, RecursionError):
        return None
    return JournalRecord(metadata, start + begin, len(content) - begin) if isinstance(metadata, dict) else None
