"""A journal of the black box's answers: kept as they arrive, and given again to the same questions."""

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

from sointer import containers
from sointer.blackbox.box import BlackBox
from sointer.blackbox.masks import Size
from sointer.blackbox.records import Record, RecordFile
from sointer.blackbox.replies import stack
from sointer.blackbox.rowkeys import row_keys
from sointer.errors import CheckpointError

Table = npt.NDArray[Any]
Ask = Callable[..., Table]

KEY_BYTES = 20  # a row's digest, and how often the row was asked about before
BATCHES_PER_WORKER = 8  # sent on at once, so that workers seldom wait for each other
MOST_TABLE_BYTES = 2**26  # in one record


class Journal:
    """Answers by question. A question is a row and how many times it was asked before, so the order is free.

    The first record says what the answers are for (`facts`); `begin` writes it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.facts: dict[str, Any] | None = None
        self.n_replayed = 0
        self.names: list[str] | None = None
        self.size: Size | None = None
        self._known: dict[bytes, tuple[int, int]] = {}  # of earlier runs: the record of an answer, and the row in it
        self._batches: list[Record] = []
        self._asked: Counter[bytes] = Counter()
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

    def begin(self, facts: dict[str, Any]) -> None:
        """Say what the answers are for."""
        self.facts = facts
        self._file.append({"kind": "fit", "fit": facts})

    def close(self) -> None:
        self._file.close()

    def door(self, black_box: BlackBox, n_allowed: int | None) -> BlackBox:
        """A black box that answers from the journal, and asks the given one only what is not there.

        It allows `n_allowed` rows in all, those from the journal among them.
        """

        def predict(X: Any, ask: Ask = black_box) -> Table:
            table = self._answer(X, black_box, ask)
            door.output_names = door.output_names or self.names
            return table if self.size is None else table.reshape(len(table), *self.size)

        names = black_box.output_names
        asked = black_box.class_probabilities
        if asked is not None:
            asked = replace(asked, predict=partial(predict, ask=black_box.probabilities))
        setattr(predict, "class_probabilities", asked)  # noqa: B010
        setattr(predict, "declared_kind", black_box.declared_kind)  # noqa: B010
        door = BlackBox(
            predict,
            batch_size=_portion(black_box),
            query_budget=n_allowed,
            cache=black_box.cache,
            output_names=names,
            name=black_box.name,
            retries=0,  # the black box itself has tried often enough
        )
        return door

    # --- answering ---------------------------------------------------------------------------------------

    def _answer(self, X: Any, black_box: BlackBox, ask: Ask) -> Table:
        with self._lock:
            keys = self._questions(row_keys(X))
            found = [self._known.pop(key, None) for key in keys]
            tables, order = self._replay(found)
        unknown = np.array([row for row, place in enumerate(found) if place is None], dtype=np.int64)
        if len(unknown):
            asked = [keys[row] for row in unknown]
            rest = X if len(unknown) == len(keys) else containers.rows(X, unknown)
            tables.append(ask(rest, on_answer=lambda rows, part: self._keep(asked, rows, part, black_box)))
            order.append(unknown)
        answers = stack(tables)
        return answers if len(tables) == 1 else answers[np.argsort(np.concatenate(order), kind="stable")]

    def _questions(self, keys: Sequence[bytes]) -> list[bytes]:
        questions = []
        for key in keys:
            questions.append(key + self._asked[key].to_bytes(KEY_BYTES - len(key), "little"))
            self._asked[key] += 1
        return questions

    def _replay(self, found: Sequence[tuple[int, int] | None]) -> tuple[list[Table], list[npt.NDArray[np.int64]]]:
        """The answers found, record by record, and the rows that they answer."""
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
        """Write answers down; by the time this returns, they outlive the process."""
        with self._lock:
            names, size = black_box.output_names, black_box.output_shape
            if (names, size) != (self.names, self.size):
                self.names, self.size = names, size
                self._file.append({"kind": "outputs", "names": names, "size": size})
            step = max(1, MOST_TABLE_BYTES // max(1, table.nbytes // len(table)))
            for start in range(0, len(rows), step):
                part = np.ascontiguousarray(table[start : start + step])
                is_plain = part.dtype.kind in "biufU"
                content = part.tobytes() if is_plain else json.dumps(part.tolist()).encode()
                facts = {"kind": "answers", "dtype": part.dtype.str if is_plain else "O", "shape": part.shape}
                self._file.append(facts, b"".join(keys[row] for row in rows[start : start + step]), content)

    def _take_in(self, record: Record) -> None:
        facts = record.facts
        if self.facts is None:
            if facts.get("kind") != "fit" or not isinstance(facts.get("fit"), dict):
                raise self._foreign()
            self.facts = facts["fit"]
        elif facts.get("kind") == "outputs":
            names, size = facts.get("names"), facts.get("size")
            self.names = None if names is None else [str(name) for name in names]
            self.size = None if size is None else (int(size[0]), int(size[1]))
        elif facts.get("kind") == "answers":
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
        if record.facts["dtype"] == "O":
            table = np.empty((n_rows, n_outputs), dtype=object)
            try:
                table[:] = json.loads(content)
            except (ValueError, RecursionError) as error:
                raise self._foreign() from error
            return table
        return np.frombuffer(content, dtype=record.facts["dtype"]).reshape(n_rows, n_outputs)

    def _shape(self, record: Record) -> tuple[int, int]:
        """Rows and outputs of a record of answers, if that is what its bytes hold."""
        try:
            n_rows, n_outputs = (int(side) for side in record.facts["shape"])
            rest = record.n_bytes - n_rows * KEY_BYTES
            dtype = np.dtype(record.facts["dtype"])
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


def _portion(black_box: BlackBox) -> int:
    """How many rows are sent on at once: a batch, or enough of them to keep all workers busy."""
    n_workers = black_box._sender.n_workers()
    return black_box.batch_size * (1 if n_workers == 1 else n_workers * BATCHES_PER_WORKER)
