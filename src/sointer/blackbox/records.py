"""Records appended to one file, each with its length and checksum, so that what a kill cut off is found and cut."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sointer.errors import CheckpointError

try:
    import fcntl
except ImportError:  # there is none on Windows, where two fits on one checkpoint must be avoided by hand
    fcntl = None  # type: ignore[assignment]

MAGIC = b"sointer journal 1\n"
FRAME = struct.Struct("<Q16s")  # how long a record is, and its checksum
HEAD = struct.Struct("<I")  # how long its JSON part is
SECONDS_BETWEEN_SYNCS = 1.0
MOST_HEAD_BYTES, MOST_RECORD_BYTES = 2**26, 2**30


class Record(NamedTuple):
    """One record: facts as JSON, and where in the file its bytes are."""

    facts: dict[str, Any]
    start: int
    n_bytes: int


class RecordFile:
    """A file that only grows. A process that is killed loses at most the record it was writing.

    The file is locked while it is open: a second process, or a second fit in this one, is refused. Not for use by
    several threads at a time.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.n_damaged_bytes = 0
        try:
            self._file = open(self.path, "a+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be opened ({error}). Choose another checkpoint.") from error
        self._end = 0
        self._synced = time.monotonic()
        try:
            self._claim()
        except BaseException:
            self.close()
            raise

    def _claim(self) -> None:
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            raise CheckpointError(f"{self.path} is not a regular file. Choose another checkpoint.")
        if fcntl is not None:
            try:
                fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CheckpointError(
                    f"{self.path} is in use: another fit with this checkpoint is running. Wait until it ends, or "
                    "choose another checkpoint."
                ) from error
        begins = self._read(0, len(MAGIC))
        if len(begins) < len(MAGIC) and MAGIC.startswith(begins):
            self._file.truncate(0)
            self._write(MAGIC)
        elif begins != MAGIC:
            raise CheckpointError(
                f"{self.path} is no journal of this version of sointer. Choose another checkpoint, or delete that one."
            )
        self._end = len(MAGIC)

    def records(self) -> Iterator[Record]:
        """All whole records, from the first; what comes after them is cut off, so that new ones can follow.

        To be called once, and read to its end, before anything is appended.
        """
        size = os.fstat(self._file.fileno()).st_size
        while True:
            frame = self._read(self._end, FRAME.size)
            if len(frame) < FRAME.size:
                break
            length, digest = FRAME.unpack(frame)
            start = self._end + FRAME.size
            if start + length > size:  # the writer was killed here
                break
            content = self._read(start, length) if length <= MOST_RECORD_BYTES else b""
            record = _parse(content, start) if _digest(content) == digest else None
            if record is None:  # no kill does this
                self.n_damaged_bytes = size - self._end
                break
            self._end = start + length
            yield record
        self._file.truncate(self._end)

    def append(self, facts: dict[str, Any], *parts: bytes) -> None:
        """Write one more record; on failure the file stays as it was."""
        head = json.dumps(facts).encode()
        content = b"".join([HEAD.pack(len(head)), head, *parts])
        whole = FRAME.pack(len(content), _digest(content)) + content
        self._write(whole)
        self._end += len(whole)
        if time.monotonic() - self._synced > SECONDS_BETWEEN_SYNCS:
            self.sync()

    def body(self, record: Record) -> bytes:
        """The bytes of a record."""
        return self._read(record.start, record.n_bytes)

    def sync(self) -> None:
        """Have everything so far on the disk itself, where also a power failure leaves it."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._full(error) from error
        self._synced = time.monotonic()

    def close(self) -> None:
        self._file.close()

    def _write(self, content: bytes) -> None:
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except BaseException as error:
            self._file.truncate(self._end)
            if isinstance(error, OSError):
                raise self._full(error) from error
            raise

    def _full(self, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"an answer of the black box could not be written to {self.path} ({error.strerror or error}), so the fit "
            "was stopped. All answers before it are kept there: make room, then call fit again with the same "
            "checkpoint."
        )

    def _read(self, where: int, n_bytes: int) -> bytes:
        self._file.seek(where)
        parts = []
        while n_bytes and (part := self._file.read(n_bytes)):
            parts.append(part)
            n_bytes -= len(part)
        return b"".join(parts)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _parse(content: bytes, start: int) -> Record | None:
    """A record's facts and the place of its bytes; None if it is not written as `append` does."""
    if len(content) < HEAD.size:
        return None
    (n_head,) = HEAD.unpack_from(content)
    if n_head > min(MOST_HEAD_BYTES, len(content) - HEAD.size):
        return None
    begin = HEAD.size + n_head
    try:
        facts = json.loads(content[HEAD.size : begin])
    except (ValueError, RecursionError):
        return None
    return Record(facts, start + begin, len(content) - begin) if isinstance(facts, dict) else None
