"""A journal of the black box's outputs: kept as they arrive, and replayed for the same queries."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer._support import containers
from sointer.blackbox.box import BlackBox
from sointer.blackbox.mask_replies import TOP_TWO, Size
from sointer.blackbox.records import JournalRecord, RecordFile
from sointer.blackbox.replies import stack
from sointer.errors import CheckpointError

Table = npt.NDArray[Any]
Query = Callable[..., Table]

KEY_BYTES = 20  # a row's digest, and how often the row was queried before
BATCHES_PER_WORKER = 8  # sent on at once, so that workers seldom wait for each other
MAX_TABLE_BYTES = 2**26  # in one record


class Journal:
    """Outputs by query. A query is a row and how many times it was queried before, so the order is free.

    The first record describes the fit (`metadata`); `begin` writes it. So does every other, which holds all that is
    needed to use it: none is lost because another one is.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.metadata: dict[str, Any] | None = None
        self.n_replayed = 0
        self.names: list[str] | None = None
        self.size: Size | None = None
        self._known: dict[bytes, tuple[int, int]] = {}  # of earlier runs: the record of a query, and the row in it
        self._batches: list[JournalRecord] = []
        self._n_queried: Counter[bytes] = Counter()
        self._lock = threading.Lock()
        self._file = RecordFile(path)
        try:
            for record in self._file.records():
                self._take_in(record)
        except BaseException:
            self._file.close()
            raise
        self.damage = self._file.damage
        self.n_known = len(self._known)

    def begin(self, metadata: dict[str, Any]) -> None:
        """Write which fit the outputs are for."""
        self.metadata = metadata
        self._file.append({"kind": "fit", "fit": metadata})
        self._file.sync()

    def close(self) -> None:
        """Close the file; nothing can be added after that."""
        self._file.close()

    def replaying(self, black_box: BlackBox, n_allowed: int | None) -> BlackBox:
        """A black box that replays the journal, and queries the given one only for what is not there.

        It allows `n_allowed` rows in all, those from the journal among them.
        """

        def predict(X: Any, query: Query = black_box.as_returned) -> Table:
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
            keys = self._query_keys(containers.row_keys(X))
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
        """Write outputs down: a kill cannot lose them any more; and when this returns, nor can a power failure.

        Other threads do not wait for the disk with outputs of their own, as they are written without the sync.
        """
        with self._lock:
            self.names, self.size = black_box.output_names, black_box.output_shape
            step = max(1, MAX_TABLE_BYTES // max(1, table.nbytes // len(table)))
            for start in range(0, len(rows), step):
                part = np.ascontiguousarray(table[start : start + step])
                is_plain = _is_plain(part.dtype)
                content = part.tobytes() if is_plain else json.dumps(part.tolist()).encode()
                metadata = {"kind": "outputs", "dtype": part.dtype.str if is_plain else "O", "shape": part.shape}
                metadata |= {"names": self.names, "size": self.size, "fit": self.metadata}
                self._file.append(metadata, b"".join(keys[row] for row in rows[start : start + step]), content)
        self._file.sync()

    def _take_in(self, record: JournalRecord) -> None:
        metadata = record.metadata
        fit = metadata.pop("fit", None)
        if not isinstance(fit, dict) or metadata.get("kind") not in ("fit", "outputs"):
            raise self._foreign()
        self.metadata = self.metadata or fit
        if metadata["kind"] == "outputs":
            n_rows = self._shape(record)[0]
            names, size = metadata.pop("names", None), metadata.pop("size", None)
            try:
                self.names = None if names is None else [str(name) for name in names]
                self.size = None if size is None else (int(size[0]), int(size[1]))
            except (TypeError, ValueError, OverflowError, LookupError) as error:
                raise self._foreign() from error
            keys = self._file.body(JournalRecord({}, record.start, n_rows * KEY_BYTES))
            for row in range(n_rows):
                self._known[keys[row * KEY_BYTES : (row + 1) * KEY_BYTES]] = len(self._batches), row
            self._batches.append(record)

    def _table(self, record: JournalRecord) -> Table:
        n_rows, n_outputs = self._shape(record)
        content = self._file.body(record)[n_rows * KEY_BYTES :]
        if record.metadata["dtype"] == "O":
            table = np.empty((n_rows, n_outputs), dtype=object)
            try:
                table[:] = json.loads(content)
            except (ValueError, RecursionError) as error:
                raise self._foreign() from error
            return table
        dtype = np.dtype(record.metadata["dtype"])
        dtype = TOP_TWO if dtype.str == TOP_TWO.str else dtype
        return np.frombuffer(content, dtype=dtype).reshape(n_rows, n_outputs)

    def _shape(self, record: JournalRecord) -> tuple[int, int]:
        """Rows and outputs of a record, if that is what its bytes hold."""
        try:
            n_rows, n_outputs = (int(side) for side in record.metadata["shape"])
            rest = record.n_bytes - n_rows * KEY_BYTES
            dtype = np.dtype(record.metadata["dtype"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._foreign() from error
        is_plain = _is_plain(dtype)
        # As JSON, an output and what separates it from the next take two bytes or more.
        n_bytes = n_rows * n_outputs * (dtype.itemsize if is_plain else 2)
        fits = rest == n_bytes if is_plain else dtype.kind == "O" and rest >= n_bytes
        if n_rows < 1 or n_outputs < 1 or not fits:
            raise self._foreign()
        return n_rows, n_outputs

    def _foreign(self) -> CheckpointError:
        return CheckpointError(
            f"{self._file.path} holds something else than this version of sointer writes. Choose another checkpoint, "
            "or delete that one."
        )


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether the bytes of an array hold all of it."""
    return dtype.kind in "biufU" or dtype.str == TOP_TWO.str
