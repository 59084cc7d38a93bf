"""Outputs kept by row, so that no row is queried twice, from any number of threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer._support.containers import row_keys
from sointer.blackbox.replies import Table, stack


class OutputCache:
    """The outputs of all rows queried so far."""

    def __init__(self) -> None:
        self.n_hits = 0
        self._outputs: dict[bytes, Table] = {}
        self._pending: set[bytes] = set()  # rows that some thread is querying
        self._changed = threading.Condition()
        self._owner = os.getpid()

    def _after_fork(self) -> None:
        """In a forked process, wait for none of the threads that stayed behind."""
        if self._owner != os.getpid():
            self._changed, self._pending, self._owner = threading.Condition(), set(), os.getpid()

    def clear(self) -> None:
        """Forget all outputs."""
        with self._changed:
            self._outputs.clear()

    def learn(self, X: Any, table: Table) -> None:
        """Keep outputs of the rows of X that came another way; what is known stays as it is."""
        self._after_fork()
        with self._changed:
            for key, row in zip(row_keys(X), table, strict=True):
                self._outputs.setdefault(key, row)

    def outputs(self, X: Any, query: Callable[[npt.NDArray[np.int64]], Table]) -> Table:
        """The outputs of the rows of X; `query` is called with the indices of those that are not known."""
        self._after_fork()
        keys = row_keys(X)
        first = {key: row for row, key in reversed(list(enumerate(keys)))}
        order = sorted(first, key=first.__getitem__)
        found: dict[bytes, Table] = {}
        n_queried = 0
        while len(found) < len(first):
            with self._changed:
                found.update((key, self._outputs[key]) for key in order if key in self._outputs)
                missing = [key for key in order if key not in found]
                mine = [key for key in missing if key not in self._pending]
                self._pending.update(mine)
            if mine:
                found.update(self._query(mine, np.array([first[key] for key in mine], dtype=np.int64), query))
                n_queried += len(mine)
            with self._changed:  # other threads query the rest; if one fails, its rows become ours
                self._changed.wait_for(lambda others=missing: self._pending.isdisjoint(others))  # type: ignore[misc]
        with self._changed:
            self.n_hits += len(keys) - n_queried
        return stack([found[key][None, :] for key in keys])

    def _query(
        self, keys: list[bytes], index: npt.NDArray[np.int64], query: Callable[[npt.NDArray[np.int64]], Table]
    ) -> dict[bytes, Table]:
        outputs: dict[bytes, Table] = {}
        try:
            outputs = dict(zip(keys, query(index), strict=True))
        finally:
            with self._changed:
                self._outputs.update(outputs)
                self._pending.difference_update(keys)
                self._changed.notify_all()
        return outputs

    def __getstate__(self) -> dict[str, Any]:
        with self._changed:
            return {"n_hits": self.n_hits, "_outputs": dict(self._outputs)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.__dict__.update(state)
