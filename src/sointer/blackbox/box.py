"""BlackBox: the model that is explained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer._support import containers
from sointer._support.torch_state import ForkSafeLock
from sointer._support.validation import check_positive_int, check_unique_names
from sointer.blackbox.budget import Budget, OutputCache
from sointer.blackbox.call import CallResult, CallTimeout, CopiedAsItself, OutputSchema, RetryPolicy, within
from sointer.blackbox.mask_replies import Size, has_top_two, labels_of
from sointer.blackbox.parallel import CallSpec, DaskBackend, SerialBackend, make_backend, rows_per_batch
from sointer.blackbox.replies import ClassProbabilities, Soft, check_same_shape, in_known_order, read_outputs, stack
from sointer.errors import InputError, MethodWarning, warn_caller

Table = npt.NDArray[Any]
N_COMPARED = 64
"""Rows by which an estimator chooses between predict and predict_proba."""
OnAnswer = Callable[[npt.NDArray[np.int64], Table], None]
"""Called with the indices of the rows of each batch, and their outputs, before anything else happens with them.

By the thread that called the model; with processes and clusters, by any thread, as soon as they arrive."""


class BlackBox(CopiedAsItself):
    """A black-box model: queried in batches, within a budget, with retries and checks of its outputs.

    Parameters
    ----------
    predict : callable
        Takes rows in the container that the caller gives and returns their outputs; for images (n, channels, height,
        width) these may be masks (n, height, width), whose pixels become the outputs.
    batch_size : int, default 1024
        Maximum number of rows in one call of `predict`.
    query_budget : int or None, default None
        Maximum number of rows in total; None for no limit.
    cache : bool, default False
        Keep outputs by row and never query a row twice; only for deterministic models.
    output_names : sequence of str or None, default None
        One name per output; a DataFrame of outputs brings its own.
    name : str or None, default None
        Name of the model in messages; by default that of the function.
    retries : int, default 5
        How often a batch is sent again when `predict` raises, hangs or, having returned valid outputs before, returns
        an invalid result, after growing waits. Then the error is raised. Before the first valid outputs, a batch is
        sent again at most twice.
    timeout : float or None, default None
        Seconds after which a call counts as hung; None waits forever. Python cannot stop such a call: it keeps
        running, possibly beside the next one.
    n_jobs : int or None, default None
        Number of parallel calls, through joblib: in processes, or as set by `joblib.parallel_config` (-1: all
        processors). None sends one batch after the other.
    client : dask.distributed.Client or None, default None
        A cluster whose workers make the calls.
    caller_thread : bool, default False
        By default `fit` calls `predict` from a thread of its own while it trains (one call at a time). True calls it
        from the thread that called `fit`, for models with sqlite3 connections, signal handlers, asyncio loops or
        thread-local objects; fit takes longer, and gives the same explainer. Not with timeout, n_jobs or client.

    Raises
    ------
    InputError
        If a parameter is wrong.

    Notes
    -----
    Counters: `n_queries`, rows sent, each counted once, as in the budget; `n_answered`, rows whose outputs have
    arrived; `n_failures`, calls without valid outputs; `n_retries`, repeated calls; `n_retried_rows`, rows in them.

    Examples
    --------
    >>> import numpy as np
    >>> box = BlackBox(lambda X: X > 0, query_budget=10)
    >>> box(np.array([[1.0, -1.0]])), box.n_queries, box.remaining
    (array([[ True, False]]), 1, 9)
    """

    _first_wait, _max_wait = 0.05, 1.0  # seconds between tries
    _retries_at_first: int | None = 2  # None: as many as later
    _joblib_backend: str | None = None  # as set by joblib's context

    def __init__(
        self,
        predict: Callable[[Any], Any],
        *,
        batch_size: int = 1024,
        query_budget: int | None = None,
        cache: bool = False,
        output_names: Sequence[str] | None = None,
        name: str | None = None,
        retries: int = 5,
        timeout: float | None = None,
        n_jobs: int | None = None,
        client: Any = None,
        caller_thread: bool = False,
    ) -> None:
        if not callable(predict):
            raise InputError(
                f"predict must be callable, got {containers.describe(predict)}. "
                "Give a function X -> Y, or use as_black_box(model)."
            )
        if caller_thread and not (timeout is None and n_jobs is None and client is None):
            raise InputError(
                "caller_thread=True was given together with timeout, n_jobs or client, which need other threads or "
                "processes. Give one or the other."
            )
        self.caller_thread = bool(caller_thread)
        self.predict = predict
        self.batch_size = check_positive_int(batch_size, "batch_size")
        self.cache = bool(cache)
        self.name = str(name or getattr(predict, "__name__", type(predict).__name__))
        self.output_names: list[str] | None = None
        self.n_outputs: int | None = None
        self.output_shape: Size | None = None  # height and width, where the outputs are masks
        self.n_failures = 0
        self.n_retries = 0
        self.n_retried_rows = 0
        self.n_answered = 0
        if output_names is not None:
            self.output_names = check_unique_names(output_names, len(output_names), "output_names")
            self.n_outputs = len(self.output_names)
        self._confirmed = False  # until the first outputs, n_outputs is only what the caller gave
        self._columns: list[str] | None = None  # the names that the model gives its outputs
        self._empty: Table | None = None
        self._retry_policy = RetryPolicy(retries, timeout, self._first_wait, self._max_wait, self._retries_at_first)
        self._backend = make_backend(n_jobs, client, self._joblib_backend)
        self._cache, self._probability_cache = OutputCache(), OutputCache()
        self._budget = Budget()
        self._budget.reset(query_budget)
        self._lock = ForkSafeLock()

    def __call__(self, X: Any, *, on_answer: OnAnswer | None = None) -> Table:
        """Query the model.

        Parameters
        ----------
        X : array, DataFrame, sparse matrix, tensor or list
            The rows.
        on_answer : callable or None, default None
            Called with the indices and the outputs of every batch as soon as they arrive.

        Returns
        -------
        array of shape (n_rows, n_outputs)
            The outputs of every row.

        Raises
        ------
        QueryBudgetExceeded
            If X has more rows than the budget allows; nothing is sent then.
        BlackBoxError
            If the model failed, hung or returned something wrong, after all retries.
        """
        n = containers.n_rows(X)
        if n == 0:
            if self._empty is None:
                raise InputError("X has 0 rows, expected at least one, as outputs are not known yet. Give a row first.")
            empty: Table = self._empty.copy()
            return empty
        if on_answer is None:
            return labels_of(self.as_returned(X))
        return labels_of(self.as_returned(X, on_answer=lambda rows, part: on_answer(rows, labels_of(part))))

    def as_returned(self, X: Any, *, on_answer: OnAnswer | None = None) -> Table:
        """The outputs for every row, masks of more than two classes with their probabilities: see `TOP_TWO`."""
        if self.cache:
            return self._cache.outputs(X, lambda index: self._query(X, index, on_answer))
        return self._query(X, np.arange(containers.n_rows(X)), on_answer)

    def query(self, X: Any, *, on_answer: OnAnswer | None = None) -> tuple[Table, Soft | None]:
        """The outputs for every row and, where it is known, how probable their classes are.

        The outputs are then the most probable classes, and `on_answer` is given probabilities.
        """
        known = self.class_probabilities
        if known is None:
            returned = self.as_returned(X, on_answer=on_answer)
            return labels_of(returned), Soft((), returned) if has_top_two(returned) else None
        table = self.probabilities(X, on_answer=on_answer)
        labels = known.most_probable(table)
        if self.cache:
            self._cache.learn(X, labels)
        return labels, Soft(known.classes, table.astype(np.float32))

    def probabilities(self, X: Any, *, on_answer: OnAnswer | None = None) -> Table:
        """The probabilities of the classes of all outputs, where `class_probabilities` are known: (n_rows, classes)."""
        proba = self.class_probabilities
        if self.cache:
            return self._probability_cache.outputs(X, lambda index: self._query(X, index, on_answer, proba))
        return self._query(X, np.arange(containers.n_rows(X)), on_answer, proba)

    @property
    def class_probabilities(self) -> ClassProbabilities | None:
        """How to get the probabilities of classes, where there are more than two; known from `prepare` on."""
        return getattr(self.predict, "class_probabilities", None)

    @property
    def method(self) -> str | None:
        """Which method of an estimator is called; None for other models, and until it is chosen."""
        return getattr(self.predict, "method", None) if hasattr(self.predict, "choose_method") else None

    @property
    def declared_kind(self) -> str | list[str | None] | None:
        """What kind the outputs are, or each of them, as declared by the model, such as those of predict_proba."""
        return getattr(self.predict, "declared_kind", None)

    def settle_method(self, method: str) -> None:
        """Set which method of an estimator is called, unless it is given or chosen already."""
        predict: Any = self.predict
        if self.method is None and hasattr(predict, "choose_method"):
            predict.method = method

    def prepare(self, X: Any) -> None:
        """Let an estimator choose between predict and predict_proba, by rows of X; other models need no such thing.

        It must be done before workers get copies of it, which would each choose for themselves. The rows are not
        counted: at most 64 are sent, once.
        """
        choose = getattr(self.predict, "choose_method", None)
        if choose is None or self._confirmed:
            return
        subset = containers.rows(X, np.arange(min(N_COMPARED, containers.n_rows(X))))
        with self._lock:
            try:
                note = within(self._retry_policy.timeout, lambda: choose(subset))
            except CallTimeout:
                return  # the call itself will hang too, and raise
        if note is not None:
            warn_caller(note, MethodWarning)

    @property
    def n_queries(self) -> int:
        """Rows sent so far."""
        return self._budget.n_sent

    @n_queries.setter
    def n_queries(self, n: int) -> None:
        self._budget.n_sent = n

    @property
    def n_cache_hits(self) -> int:
        """Rows whose outputs came from the cache."""
        return self._cache.n_hits + self._probability_cache.n_hits

    @property
    def query_budget(self) -> int | None:
        """The rows allowed when the budget was last set."""
        return self._budget.rows

    @property
    def remaining(self) -> int | None:
        """Rows that may still be sent, or None when there is no limit."""
        return self._budget.remaining

    def reset_budget(self, query_budget: int | None) -> None:
        """Set how many more rows may be sent from now on; `n_queries` keeps counting.

        Parameters
        ----------
        query_budget : int or None
            None for no limit.
        """
        self._budget.reset(query_budget)

    @contextmanager
    def budget(self, rows: int | None) -> Iterator[BlackBox]:
        """Limit the rows sent inside a `with` block; outer limits still hold.

        Parameters
        ----------
        rows : int or None
            Maximum number of rows; None adds no limit.

        Yields
        ------
        BlackBox
        """
        with self._budget.block(rows):
            yield self

    def clear_cache(self) -> None:
        """Empty the cache."""
        self._cache.clear()
        self._probability_cache.clear()

    def _query(
        self,
        X: Any,
        index: npt.NDArray[np.int64],
        on_answer: OnAnswer | None,
        proba: ClassProbabilities | None = None,
    ) -> Table:
        """The outputs of the rows at `index`. After a failure no more are sent, but those under way are awaited."""
        size = rows_per_batch(len(index), self._backend.n_workers(), self.batch_size)
        tables: dict[int, Table] = {}
        errors: list[Exception] = []
        with self._budget.reserve(len(index)) as reservation:
            self.prepare(containers.rows(X, index[: min(self.batch_size, N_COMPARED)]))

            def batches() -> Iterator[Any]:
                for start in range(0, len(index), size):
                    chosen = index[start : start + size]
                    if not reservation.spend(len(chosen)):
                        return
                    # Indexing copies, so a model that writes into its input cannot reach the caller's data.
                    yield containers.rows(X, chosen)

            def receive(number: int, result: CallResult) -> None:
                try:
                    table = tables[number] = self._accept(result, proba)
                    with self._lock:
                        self.n_answered += len(table)
                    if on_answer is not None:
                        on_answer(index[number * size : (number + 1) * size], table)
                except Exception as exc:
                    errors.append(exc)
                    reservation.end()

            predict = self.predict if proba is None else proba.predict
            self._backend.send(predict, batches(), lambda: self._call_spec(proba), receive)
        if errors:
            raise errors[0]
        return stack([tables[number] for number in sorted(tables)])

    def _call_spec(self, proba: ClassProbabilities | None) -> CallSpec:
        with self._lock:
            n_columns = self.n_outputs if proba is None else proba.n_columns
            schema = OutputSchema(n_columns, self.output_shape, True) if self._confirmed else OutputSchema()
        return CallSpec(self.name, schema, self._retry_policy)

    def _accept(self, result: CallResult, proba: ClassProbabilities | None) -> Table:
        """Count the calls, learn the format of the outputs from the first result, and return its table."""
        with self._lock:
            n_again = result.n_calls - 1
            self.n_failures += n_again + (result.error is not None)
            self.n_retries += n_again
            self.n_retried_rows += n_again * result.n_rows
            if result.outputs is None:
                raise result.error or RuntimeError("a result without outputs or error")
            table, shape, names = result.outputs
            if self._confirmed:
                n_columns = self._call_spec(proba).schema.n_outputs
                if table.shape[1] != n_columns:  # sent before the first result was known
                    read_outputs(table, len(table), n_columns)
                check_same_shape(shape, self.output_shape)
                return table if proba is not None else in_known_order(table, names, self._columns)
            outputs = table if proba is None else proba.most_probable(table)
            n_outputs = outputs.shape[1]
            if self.output_names is not None and n_outputs != len(self.output_names):
                raise InputError(
                    f"output_names holds {len(self.output_names)} names, but the model returned {n_outputs} "
                    "outputs. Give one name per output."
                )
            if self.output_names is None and names is not None:
                if len(names) < n_outputs:
                    raise InputError(
                        f"the model returned {n_outputs} numbers under {len(names)} names, such as {names[0]!r:.40}, "
                        "expected one number for each name. Return the array alone; masks as one array (n, height, "
                        "width)."
                    )
                self.output_names = check_unique_names(names, n_outputs, "The columns of the model's outputs")
            self._confirmed = True
            self._columns = names
            self.output_shape = shape
            self.n_outputs = n_outputs
            self._empty = labels_of(outputs[:0]).copy()
        return table

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"]
        if isinstance(self._backend, DaskBackend):
            state["_backend"] = SerialBackend()  # a connection to a cluster cannot be copied
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = ForkSafeLock()

    def __repr__(self) -> str:
        outputs = "unknown" if self.n_outputs is None else self.n_outputs
        return f"{type(self).__name__}({self.name}, n_outputs={outputs}, n_queries={self.n_queries})"
