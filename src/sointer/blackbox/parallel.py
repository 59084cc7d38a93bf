"""Calls of the model beside other work: batches spread by joblib or dask, queries in a thread of their own.

Which queries are sent, and in which order, never depends on how long they take: whoever needs outputs that are not
there yet waits for them. So the speed of a black box changes how long a fit takes, and nothing else.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from importlib import import_module
from itertools import islice
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

from sointer._support import containers
from sointer._support.torch_state import as_outside, outside
from sointer._support.validation import is_integer
from sointer.blackbox.call import THREAD, CallResult, OutputSchema, RetryPolicy, query_batch, with_callers_settings
from sointer.errors import BlackBoxError, InputError, InterruptedFitWarning, SointerError, require_extra, warn_caller

MIN_ROWS = 4
"""Rows that are always sent together: for fewer, a call costs more than the wait."""
BATCHES_UNDER_WAY = 3
"""Batches for each worker that are under way at once, so that none waits for work."""

MAX_RECEIVING = 16
"""Results that are being written to disk at once."""

Predict = Callable[[Any], Any]
Receive = Callable[[int, CallResult], None]


class CallSpec(NamedTuple):
    """What is sent along with a batch: the model's name, the format of its outputs, and the retry policy."""

    name: str
    schema: OutputSchema
    policy: RetryPolicy


class Backend(Protocol):
    """A way to run batches."""

    def n_workers(self) -> int:
        """How many calls can run at once, now."""

    def send(self, predict: Predict, batches: Iterator[Any], spec: Callable[[], CallSpec], receive: Receive) -> None:
        """Send all batches. `spec` is called for each when it is sent, `receive` with its number and result.

        `receive` never raises, and may take its time, as it writes to disk: results that arrive meanwhile do not wait.
        """


def make_backend(n_jobs: object, client: Any, backend: str | None) -> Backend:
    """The backend for these arguments of `BlackBox`."""
    if client is not None:
        if n_jobs is not None:
            raise InputError(
                f"n_jobs={n_jobs!r} was given together with a client, whose workers are all used. Give one of the two."
            )
        return DaskBackend(client)
    if n_jobs is None:
        return SerialBackend()
    if not is_integer(n_jobs) or n_jobs == 0:
        raise InputError(f"n_jobs must be None or an int other than 0, got {n_jobs!r}. -1 means all processors.")
    return JoblibBackend(int(n_jobs), backend)


def rows_per_batch(n_rows: int, n_workers: int, batch_size: int) -> int:
    """Rows to send in one call: at most batch_size, and few enough that all workers are busy to the end."""
    if n_workers <= 1:
        return batch_size
    n_rounds = -(-n_rows // (n_workers * batch_size))
    return min(batch_size, max(MIN_ROWS, -(-n_rows // (n_workers * n_rounds))))


class SerialBackend:
    """One batch after the other, in the thread of the caller."""

    def n_workers(self) -> int:
        return 1

    def send(self, predict: Predict, batches: Iterator[Any], spec: Callable[[], CallSpec], receive: Receive) -> None:
        for number, batch in enumerate(batches):
            receive(number, query_batch(predict, batch, *spec()))


class JoblibBackend:
    """Several batches at a time, in a backend of joblib; None is the one of its context."""

    def __init__(self, n_jobs: int, backend: str | None) -> None:
        self.n_jobs = n_jobs
        self.backend = backend

    def n_workers(self) -> int:
        import joblib

        return int(self._parallel(joblib)._effective_n_jobs())

    def send(self, predict: Predict, batches: Iterator[Any], spec: Callable[[], CallSpec], receive: Receive) -> None:
        import joblib

        def query_here(number: int, *call: Any) -> None:
            receive(number, query_batch(*call))

        try:
            parallel = self._parallel(joblib, return_as="generator_unordered")
        except ValueError:  # a backend, such as ray's, that gives all results at the end
            parallel = self._parallel(joblib)
        is_here = getattr(parallel._backend, "supports_sharedmem", False)
        query: Callable[..., Any] = query_here if is_here else _numbered
        tasks = (joblib.delayed(query)(number, predict, batch, *spec()) for number, batch in enumerate(batches))
        with ThreadPoolExecutor(MAX_RECEIVING, THREAD) as pool:
            try:
                for got in parallel(tasks):
                    if got is not None:
                        pool.submit(receive, *got)
            except Exception as exc:
                raise _explained(exc, predict, spec().name) from exc

    def _parallel(self, joblib: Any, **options: Any) -> Any:
        # joblib would hand large batches over as read-only maps of memory; models may write into their input.
        return joblib.Parallel(self.n_jobs, backend=self.backend, batch_size=1, max_nbytes=None, **options)


class DaskBackend:
    """Several batches at a time on a dask cluster; those of a worker that dies are given to another one by dask."""

    def __init__(self, client: Any) -> None:
        if not all(callable(getattr(client, verb, None)) for verb in ("submit", "nthreads", "cancel")):
            raise InputError(
                f"client must be a dask.distributed.Client, got {containers.describe(client)}. "
                'Give Client("tcp://scheduler:8786"), or use n_jobs for workers on this machine.'
            )
        if getattr(client, "asynchronous", False):
            raise InputError("client is asynchronous, expected one for plain code. Make it with asynchronous=False.")
        self.client = client
        self._held: tuple[Predict, Any] | None = None
        self._lock = threading.Lock()

    def n_workers(self) -> int:
        return sum(self.client.nthreads().values())

    def send(self, predict: Predict, batches: Iterator[Any], spec: Callable[[], CallSpec], receive: Receive) -> None:
        as_completed: Any = require_extra("distributed", "dask").as_completed
        waiting = enumerate(batches)
        flights: dict[Any, tuple[int, str | None]] = {}  # the number and the worker of every batch under way

        def launch(n: int) -> list[Any]:
            started = []
            for number, batch in islice(waiting, n):
                worker = self._freest(Counter(worker for _, worker in flights.values()))
                # Left alone, dask sends all batches to the one worker that holds the model already.
                place = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
                future = self.client.submit(query_batch, held, batch, *spec(), pure=False, **place)
                flights[future] = number, worker
                started.append(future)
            return started

        try:
            held = self._hold(predict)
            n_first = BATCHES_UNDER_WAY * max(1, self.n_workers())  # a cluster may have no workers yet
            flying = as_completed(launch(n_first), loop=self.client.loop)
            with ThreadPoolExecutor(MAX_RECEIVING, THREAD) as pool:
                for future in flying:
                    got = future.result()
                    number, _ = flights.pop(future)
                    pool.submit(receive, number, got)
                    for later in launch(1):
                        flying.add(later)
        except Exception as exc:
            raise _explained(exc, predict, spec().name) from exc
        finally:
            if flights:
                self.client.cancel(list(flights))

    def _freest(self, n_under_way: Counter[str | None]) -> str | None:
        """The worker with the fewest of our batches for each of its threads."""
        n_threads = self.client.nthreads()
        return min(n_threads, key=lambda worker: n_under_way[worker] / n_threads[worker], default=None)

    def _hold(self, predict: Predict) -> Any:
        """A future of the model, so that it travels to each worker once; computed again if its worker dies."""
        with self._lock:
            if self._held is None or self._held[0] is not predict or self._held[1].status in ("cancelled", "lost"):
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message=".*large graph.*")
                    self._held = predict, self.client.submit(_same, predict, pure=False)
            return self._held[1]


def _numbered(number: int, *call: Any) -> tuple[int, CallResult]:
    return number, query_batch(*call)


def _same(predict: Predict) -> Predict:
    return predict


def _explained(exc: Exception, predict: Predict, name: str) -> Exception:
    """What went wrong between us and the workers; the model's own errors arrive as results."""
    if isinstance(exc, SointerError):
        return exc
    try:
        _cloudpickle().dumps(predict)
    except Exception as reason:
        return InputError(
            f"{name} cannot be sent to workers: it cannot be pickled ({type(reason).__name__}: {reason}). Give a "
            "function or object that can (open files, locks and connections inside it cannot), or leave out n_jobs "
            "and client."
        )
    return BlackBoxError(
        f"The workers failed before {name} had returned: {type(exc).__name__}: {exc}. If they were killed, look "
        "whether they ran out of memory (lower batch_size), and that they have the same packages as this process."
    )


def _cloudpickle() -> Any:
    """joblib and dask both pickle with it; older versions of joblib carry their own."""
    try:
        return import_module("cloudpickle")
    except ImportError:
        return import_module("joblib.externals.cloudpickle")


Result = TypeVar("Result")
SECONDS_TO_STOP = 2.0


class QueryWorker:
    """Runs queries in the order in which they were submitted, all of them in one thread.

    With `caller_thread` that is the thread that submits them, which waits for each.
    """

    def __init__(self, *, caller_thread: bool = False) -> None:
        self._caller_thread = caller_thread
        self._queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._failure: BaseException = CancelledError("fit stopped before this query was sent")

    def submit(self, query: Callable[[], Result]) -> Future[Result]:
        """Put a query at the end of the queue; the future gets its result, or what it raised."""
        future: Future[Result] = Future()
        if self._caller_thread and not self._stopped:
            with outside():
                self._answer(future, query)
            return future
        if self._thread is None and not self._stopped:
            # A daemon: a black box that hangs must not keep the process from ending.
            run = with_callers_settings(self._run)
            self._thread = threading.Thread(target=run, name=THREAD, daemon=True)
            self._thread.start()
        if self._thread is None:
            future.set_exception(self._failure)
        else:
            self._queue.put((future, query))
        return future

    def stop(self) -> None:
        """Send nothing more, and wait until the query under way has ended; an interrupt ends the wait."""
        self._stopped = True
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._queue.put(None)
        thread.join(SECONDS_TO_STOP)
        if thread.is_alive():
            warn_caller(
                "fit is to stop and waits for the black box to end its call; interrupt again to leave at once.",
                InterruptedFitWarning,
            )
            thread.join()

    def between_batches(self, *_: Any) -> None:
        """Called by a query after each batch of its rows; raises if fit is to stop."""
        if self._stopped:
            raise CancelledError("fit stopped before all rows of this query were sent")

    def _run(self) -> None:
        as_outside()
        while (item := self._queue.get()) is not None:
            future, query = item
            if self._stopped:
                future.set_exception(self._failure)
                continue
            self._answer(future, query)
            del item, future, query  # a result may be large, and waiting may be long

    def _answer(self, future: Future[Any], query: Callable[[], Any]) -> None:
        try:
            future.set_result(query())
        except BaseException as error:
            self._stopped, self._failure = True, error  # queries after a failure would only cost
            if self._caller_thread and not isinstance(error, Exception):
                raise
            future.set_exception(error)  # raised again where the result is needed
