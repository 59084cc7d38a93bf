"""How many rows are sent to the model: counted, limited, and no row twice; exact, from any number of threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer._support.containers import row_keys
from sointer._support.torch_state import ForkSafeLock
from sointer._support.validation import check_positive_int
from sointer.blackbox.replies import Table, stack
from sointer.errors import QueryBudgetExceeded


class Budget:
    """Counts rows as they are sent, and reserves them beforehand, all or none."""

    def __init__(self) -> None:
        self.n_sent = 0
        self.rows: int | None = None
        self._reserved = 0  # rows of calls under way that are not sent yet
        # A limit is (n_sent when it was set, rows it allows): the standing one, and those of open blocks.
        self._standing: tuple[int, int] | None = None
        self._inner: list[tuple[int, int]] = []
        self._lock = ForkSafeLock()

    @property
    def remaining(self) -> int | None:
        """Rows that may still be sent, or None when there is no limit."""
        with self._lock:
            tightest = self._tightest()
            return None if tightest is None else max(0, sum(tightest) - self.n_sent - self._reserved)

    def reset(self, rows: int | None) -> None:
        """Allow so many more rows from now on; None: no limit."""
        if rows is not None:
            rows = check_positive_int(rows, "query_budget", minimum=0)
        with self._lock:
            self.rows = rows
            self._standing = None if rows is None else (self.n_sent, rows)

    @contextmanager
    def block(self, rows: int | None) -> Iterator[None]:
        """Allow at most so many more rows inside the block; None adds no limit. Outer limits still hold."""
        if rows is None:
            yield
            return
        rows = check_positive_int(rows, "rows", minimum=0)
        with self._lock:
            limit = (self.n_sent, rows)
            self._inner.append(limit)
        try:
            yield
        finally:
            with self._lock:
                self._inner.remove(limit)

    @contextmanager
    def reserve(self, n: int) -> Iterator[Reservation]:
        """Set `n` rows aside for the block, or refuse all of them; what is not sent in it is given back."""
        with self._lock:
            remaining, tightest = self.remaining, self._tightest()
            if remaining is not None and tightest is not None and n > remaining:
                _, rows = tightest
                raise QueryBudgetExceeded(
                    f"The query budget of {rows} rows does not suffice: {rows - remaining} used, {n} more "
                    f"requested, {remaining} left; none of the {n} was sent. Raise query_budget, or request "
                    "fewer rows."
                )
            self._reserved += n
        reservation = Reservation(self, n)
        try:
            yield reservation
        finally:
            reservation.end()

    def _tightest(self) -> tuple[int, int] | None:
        limits = self._inner if self._standing is None else [self._standing, *self._inner]
        return min(limits, key=sum, default=None)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = self.__dict__.copy()
        del state["_lock"]
        return state | {"_reserved": 0, "_inner": []}  # calls and blocks stay where they are open

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = ForkSafeLock()


class Reservation:
    """Rows set aside for one call."""

    def __init__(self, budget: Budget, n: int) -> None:
        self._budget = budget
        self._n_left = n
        self._is_over = False

    def spend(self, n: int) -> bool:
        """Count `n` rows as sent now; False, and nothing counted, after the end."""
        with self._budget._lock:
            if self._is_over:
                return False
            self._n_left -= n
            self._budget._reserved -= n
            self._budget.n_sent += n
            return True

    def end(self) -> None:
        """Send no more, and give back what is left."""
        with self._budget._lock:
            self._is_over = True
            self._budget._reserved -= self._n_left
            self._n_left = 0


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
