"""BlackBox: the one door to the model that is explained."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer import containers
from sointer.blackbox.masks import Size, check_same_shape, image_size
from sointer.blackbox.replies import WRONG, read_shaped_reply, stack
from sointer.blackbox.rowkeys import row_keys
from sointer.errors import BlackBoxError, InputError, QueryBudgetExceeded, SointerError
from sointer.validation import check_positive_int, check_unique_names

Table = npt.NDArray[Any]


class BlackBox:
    """A model known only by its answers: batched, counted, kept within a budget, and checked.

    Parameters
    ----------
    predict : callable that takes rows in their owner's container and returns their outputs; for images (n, channels,
        height, width) these may be masks (n, height, width), whose pixels become the outputs.
    batch_size : most rows sent in one call of `predict`.
    query_budget : most rows sent in all, or None for no limit.
    cache : remember answers by row and not ask twice; only for models that always answer the same.
    output_names : one name per output; a DataFrame reply brings its own.

    Examples
    --------
    >>> import numpy as np
    >>> box = BlackBox(lambda X: X > 0, query_budget=10)
    >>> box(np.array([[1.0, -1.0]])), box.n_queries, box.remaining
    (array([[ True, False]]), 1, 9)
    """

    def __init__(
        self,
        predict: Callable[[Any], Any],
        *,
        batch_size: int = 1024,
        query_budget: int | None = None,
        cache: bool = False,
        output_names: Sequence[str] | None = None,
        name: str | None = None,
    ) -> None:
        if not callable(predict):
            raise InputError(
                f"predict must be callable, got {containers.describe(predict)}. "
                "Give a function X -> Y, or use as_black_box(model)."
            )
        self.predict = predict
        self.batch_size = check_positive_int(batch_size, "batch_size")
        self.cache = bool(cache)
        self.name = name or getattr(predict, "__name__", type(predict).__name__)
        self.output_names: list[str] | None = None
        self.n_outputs: int | None = None
        self.output_shape: Size | None = None  # height and width, where the replies are masks
        self.n_queries = 0
        self.n_cache_hits = 0
        if output_names is not None:
            self.output_names = check_unique_names(output_names, len(output_names), "output_names")
            self.n_outputs = len(self.output_names)
        self._confirmed = False  # until the first reply, n_outputs is only what the caller said
        self._reserved = 0  # rows promised to calls under way
        self._answers: dict[bytes, Table] = {}
        self._empty: Table | None = None
        self._lock = threading.RLock()
        self.query_budget: int | None = None
        # A limit is (n_queries when it was set, rows it allows): the standing one, and those of open blocks.
        self._standing: tuple[int, int] | None = None
        self._inner: list[tuple[int, int]] = []
        self.reset_budget(query_budget)

    def __call__(self, X: Any) -> Table:
        """The outputs for every row of X: (n_rows, n_outputs). Nothing is sent if it is beyond the budget."""
        n = containers.n_rows(X)
        if n == 0:
            if self._empty is None:
                raise InputError("X has 0 rows, expected at least one, as outputs are not known yet. Give a row first.")
            empty: Table = self._empty.copy()
            return empty
        return self._ask_cached(X) if self.cache else self._ask(X, np.arange(n))

    @property
    def remaining(self) -> int | None:
        """Rows that may still be sent, or None when there is no limit."""
        with self._lock:
            tightest = self._tightest()
            return None if tightest is None else max(0, sum(tightest) - self.n_queries - self._reserved)

    def reset_budget(self, query_budget: int | None) -> None:
        """Allow `query_budget` more rows from now on (None: no limit); `n_queries` keeps counting."""
        if query_budget is not None:
            query_budget = check_positive_int(query_budget, "query_budget", minimum=0)
        with self._lock:
            self.query_budget = query_budget
            self._standing = None if query_budget is None else (self.n_queries, query_budget)

    @contextmanager
    def budget(self, rows: int | None) -> Iterator[BlackBox]:
        """Allow at most `rows` more rows inside the block; None adds no limit. Outer limits still hold."""
        limit = None if rows is None else (self.n_queries, check_positive_int(rows, "rows", minimum=0))
        with self._lock:
            if limit is not None:
                self._inner.append(limit)
        try:
            yield self
        finally:
            with self._lock:
                if limit is not None:
                    self._inner.remove(limit)

    def clear_cache(self) -> None:
        """Forget all remembered answers."""
        with self._lock:
            self._answers.clear()

    def _tightest(self) -> tuple[int, int] | None:
        limits = self._inner if self._standing is None else [self._standing, *self._inner]
        return min(limits, key=sum, default=None)

    def _reserve(self, n: int) -> None:
        """Promise `n` rows to the caller, or refuse all of them."""
        with self._lock:
            remaining, tightest = self.remaining, self._tightest()
            if remaining is not None and tightest is not None and n > remaining:
                _, rows = tightest
                raise QueryBudgetExceeded(
                    f"The query budget of {rows} rows does not suffice: {rows - remaining} used, {n} more "
                    f"asked, {remaining} left; none of the {n} was sent. Raise query_budget, or ask for "
                    "fewer rows."
                )
            self._reserved += n

    def _ask(self, X: Any, index: npt.NDArray[np.int64]) -> Table:
        self._reserve(len(index))
        unsent = len(index)
        tables = []
        try:
            for start in range(0, len(index), self.batch_size):
                # Indexing copies, so a model that writes into its input cannot reach the caller's data.
                batch = containers.rows(X, index[start : start + self.batch_size])
                sent = containers.n_rows(batch)
                unsent -= sent
                with self._lock:
                    self._reserved -= sent
                    self.n_queries += sent
                tables.append(self._ask_batch(batch, sent))
        finally:
            with self._lock:
                self._reserved -= unsent
        return stack(tables)

    def _ask_batch(self, batch: Any, n: int) -> Table:
        shown = containers.describe(batch)
        try:
            reply = self.predict(batch)
        except SointerError:
            raise
        except Exception as exc:
            raise BlackBoxError(
                f"Your function failed: {self.name} raised {type(exc).__name__}: {exc}. It was given "
                f"{shown}, expected to be what it was trained on. Call it yourself on such a batch to see "
                "why."
            ) from exc
        with self._lock:
            named_only = self.n_outputs is not None and not self._confirmed
            table, shape = read_shaped_reply(reply, n, None if named_only else self.n_outputs, image_size(batch))
            if self._confirmed:
                check_same_shape(shape, self.output_shape, WRONG)
            if named_only and table.shape[1] != self.n_outputs:
                raise InputError(
                    f"output_names holds {self.n_outputs} names, but the model returned {table.shape[1]} "
                    "outputs. Give one name per output."
                )
            self._confirm(reply, table, shape)
        return table

    def _confirm(self, reply: Any, table: Table, shape: Size | None) -> None:
        if self._confirmed:
            return
        self._confirmed = True
        self.output_shape = shape
        self.n_outputs = table.shape[1]
        self._empty = table[:0].copy()
        if self.output_names is None and containers.is_frame(reply):
            names = [str(label) for label in reply.columns]
            self.output_names = check_unique_names(names, self.n_outputs, "The columns of the model's reply")

    def _ask_cached(self, X: Any) -> Table:
        keys = row_keys(X)
        with self._lock:
            first = {key: row for row, key in reversed(list(enumerate(keys))) if key not in self._answers}
        index = np.array(sorted(first.values()), dtype=np.int64)
        if len(index):
            table = self._ask(X, index)
            with self._lock:
                self._answers.update((keys[row], answer) for row, answer in zip(index, table, strict=True))
        with self._lock:
            self.n_cache_hits += len(keys) - len(index)
            return stack([self._answers[key][None, :] for key in keys])

    # One door: copies of an explainer must not un-fit, duplicate or forget the count of the user's model.
    def __sklearn_clone__(self) -> BlackBox:
        return self

    def __copy__(self) -> BlackBox:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> BlackBox:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        outputs = "unknown" if self.n_outputs is None else self.n_outputs
        return f"BlackBox({self.name}, n_outputs={outputs}, n_queries={self.n_queries})"
