"""Query the black box in a thread of its own, one query after the other, while training goes on.

Which queries are sent, and in which order, never depends on how long they take: whoever needs outputs that are not
there yet waits for them. So the speed of a black box changes how long a fit takes, and nothing else.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from queue import SimpleQueue
from typing import Any, TypeVar

from sointer._support.torch_state import as_outside, outside
from sointer.blackbox.call import THREAD, with_callers_settings
from sointer.errors import InterruptedFitWarning

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
            warnings.warn(
                "fit is to stop and waits for the black box to end its call; interrupt again to leave at once.",
                InterruptedFitWarning,
                stacklevel=2,
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
