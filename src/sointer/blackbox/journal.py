"""A journal of the black box's outputs: kept as they arrive, and replayed for the same queries."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sointer._support import containers
from sointer._support.hashing import row_keys
from sointer.blackbox.box import BlackBox
from sointer.blackbox.replies import Size, stack
from sointer.errors import CheckpointError

try:
    import fcntl
except ImportError:  # there is none on Windows, where two fits on one checkpoint must be avoided by hand
    fcntl = None  # type: ignore[assignment]

MAGIC = b"sointer journal 1\n"
FRAME = struct.Struct("<Q16s")  # how long a record is, and its checksum
HEAD = struct.Struct("<I")  # how long its JSON part is
SECONDS_BETWEEN_SYNCS = 1.0
MAX_HEAD_BYTES, MAX_RECORD_BYTES = 2**26, 2**30


class Record(NamedTuple):
    """One record: metadata as JSON, and where in the file its bytes are."""

    metadata: dict[str, Any]
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
            content = self._read(start, length) if length <= MAX_RECORD_BYTES else b""
            record = _parse(content, start) if _digest(content) == digest else None
            if record is None:  # no kill does this
                self.n_damaged_bytes = size - self._end
                break
            self._end = start + length
            yield record
        self._file.truncate(self._end)

    def append(self, metadata: dict[str, Any], *parts: bytes) -> None:
        """Write one more record; on failure the file stays as it was."""
        head = json.dumps(metadata).encode()
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
            f"outputs of the black box could not be written to {self.path} ({error.strerror or error}), so the fit "
            "was stopped. All outputs before them are kept there: make room, then call fit again with the same "
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
    return Record(metadata, start + begin, len(content) - begin) if isinstance(metadata, dict) else None


Table = npt.NDArray[Any]
Query = Callable[..., Table]

KEY_BYTES = 20  # a row's digest, and how often the row was queried before
BATCHES_PER_WORKER = 8  # sent on at once, so that workers seldom wait for each other
MAX_TABLE_BYTES = 2**26  # in one record


class Journal:
    """Outputs by query. A query is a row and how many times it was queried before, so the order is free.

    The first record describes the fit (`metadata`); `begin` writes it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.metadata: dict[str, Any] | None = None
        self.n_replayed = 0
        self.names: list[str] | None = None
        self.size: Size | None = None
        self._known: dict[bytes, tuple[int, int]] = {}  # of earlier runs: the record of a query, and the row in it
        self._batches: list[Record] = []
        self._n_queried: Counter[bytes] = Counter()
        self._lock = threading.Lock()
        self._file = RecordFile(path)
        try:
            for record in self._file.records():
                self._take_in(record)
        except BaseException:
            self._file.close()
            raise
        self.n_damaged_bytes = self._file.n_damaged_bytes
        self.n_known = len(self._known)

    def begin(self, metadata: dict[str, Any]) -> None:
        """Write which fit the outputs are for."""
        self.metadata = metadata
        self._file.append({"kind": "fit", "fit": metadata})

    def close(self) -> None:
        self._file.close()

    def replaying(self, black_box: BlackBox, n_allowed: int | None) -> BlackBox:
        """A black box that replays the journal, and queries the given one only for what is not there.

        It allows `n_allowed` rows in all, those from the journal among them.
        """

        def predict(X: Any, query: Query = black_box) -> Table:
            table = self._outputs(X, black_box, query)
            replay.output_names = replay.output_names or self.names
            return table if self.size is None else table.reshape(len(table), *self.size)

        n_workers = black_box._backend.n_workers()
        proba = black_box.class_probabilities
        if proba is not None:
            proba = replace(proba, predict=partial(predict, query=black_box.probabilities))
        setattr(predict, "class_probabilities", proba)  # noqa: B010
        setattr(predict, "declared_kind", black_box.declared_kind)  # noqa: B010
        replay = BlackBox(
            predict,
            # A batch, or enough of them to keep all workers busy.
            batch_size=black_box.batch_size * (1 if n_workers == 1 else n_workers * BATCHES_PER_WORKER),
            query_budget=n_allowed,
            cache=black_box.cache,
            output_names=black_box.output_names,
            name=black_box.name,
            retries=0,  # the black box itself has tried often enough
        )
        return replay

    # --- querying ----------------------------------------------------------------------------------------

    def _outputs(self, X: Any, black_box: BlackBox, query: Query) -> Table:
        with self._lock:
            keys = self._query_keys(row_keys(X))
            found = [self._known.pop(key, None) for key in keys]
            tables, order = self._replay(found)
        unknown = np.array([row for row, place in enumerate(found) if place is None], dtype=np.int64)
        if len(unknown):
            new_keys = [keys[row] for row in unknown]
            rest = X if len(unknown) == len(keys) else containers.rows(X, unknown)
            tables.append(query(rest, on_answer=lambda rows, part: self._keep(new_keys, rows, part, black_box)))
            order.append(unknown)
        outputs = stack(tables)
        return outputs if len(tables) == 1 else outputs[np.argsort(np.concatenate(order), kind="stable")]

    def _query_keys(self, keys: Sequence[bytes]) -> list[bytes]:
        query_keys = []
        for key in keys:
            query_keys.append(key + self._n_queried[key].to_bytes(KEY_BYTES - len(key), "little"))
            self._n_queried[key] += 1
        return query_keys

    def _replay(self, found: Sequence[tuple[int, int] | None]) -> tuple[list[Table], list[npt.NDArray[np.int64]]]:
        """The outputs found, record by record, and the rows that they belong to."""
        rows_of: dict[int, list[tuple[int, int]]] = {}
        for row, place in enumerate(found):
            if place is not None:
                rows_of.setdefault(place[0], []).append((row, place[1]))
        tables, order = [], []
        for batch in sorted(rows_of):
            rows, places = np.array(rows_of[batch], dtype=np.int64).T
            tables.append(self._table(self._batches[batch])[places])
            order.append(rows)
            self.n_replayed += len(rows)
        return tables, order

    # --- writing and reading -----------------------------------------------------------------------------

    def _keep(self, keys: list[bytes], rows: npt.NDArray[np.int64], table: Table, black_box: BlackBox) -> None:
        """Write outputs down; by the time this returns, they outlive the process."""
        with self._lock:
            names, size = black_box.output_names, black_box.output_shape
            if (names, size) != (self.names, self.size):
                self.names, self.size = names, size
                self._file.append({"kind": "outputs", "names": names, "size": size})
            step = max(1, MAX_TABLE_BYTES // max(1, table.nbytes // len(table)))
            for start in range(0, len(rows), step):
                part = np.ascontiguousarray(table[start : start + step])
                is_plain = part.dtype.kind in "biufU"
                content = part.tobytes() if is_plain else json.dumps(part.tolist()).encode()
                metadata = {"kind": "answers", "dtype": part.dtype.str if is_plain else "O", "shape": part.shape}
                self._file.append(metadata, b"".join(keys[row] for row in rows[start : start + step]), content)

    def _take_in(self, record: Record) -> None:
        metadata = record.metadata
        if self.metadata is None:
            if metadata.get("kind") != "fit" or not isinstance(metadata.get("fit"), dict):
                raise self._foreign()
            self.metadata = metadata["fit"]
        elif metadata.get("kind") == "outputs":
            names, size = metadata.get("names"), metadata.get("size")
            self.names = None if names is None else [str(name) for name in names]
            self.size = None if size is None else (int(size[0]), int(size[1]))
        elif metadata.get("kind") == "answers":
            n_rows = self._shape(record)[0]
            keys = self._file.body(Record({}, record.start, n_rows * KEY_BYTES))
            for row in range(n_rows):
                self._known[keys[row * KEY_BYTES : (row + 1) * KEY_BYTES]] = len(self._batches), row
            self._batches.append(record)
        else:
            raise self._foreign()

    def _table(self, record: Record) -> Table:
        n_rows, n_outputs = self._shape(record)
        content = self._file.body(record)[n_rows * KEY_BYTES :]
        if record.metadata["dtype"] == "O":
            table = np.empty((n_rows, n_outputs), dtype=object)
            try:
                table[:] = json.loads(content)
            except (ValueError, RecursionError) as error:
                raise self._foreign() from error
            return table
        return np.frombuffer(content, dtype=record.metadata["dtype"]).reshape(n_rows, n_outputs)

    def _shape(self, record: Record) -> tuple[int, int]:
        """Rows and outputs of a record, if that is what its bytes hold."""
        try:
            n_rows, n_outputs = (int(side) for side in record.metadata["shape"])
            rest = record.n_bytes - n_rows * KEY_BYTES
            dtype = np.dtype(record.metadata["dtype"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._foreign() from error
        is_plain = dtype.kind in "biufU"
        fits = rest == n_rows * n_outputs * dtype.itemsize if is_plain else dtype.kind == "O" and rest >= 0
        if n_rows < 1 or n_outputs < 1 or not fits:
            raise self._foreign()
        return n_rows, n_outputs

    def _foreign(self) -> CheckpointError:
        return CheckpointError(
            f"{self._file.path} holds something else than this version of sointer writes. Choose another checkpoint, "
            "or delete that one."
        )
