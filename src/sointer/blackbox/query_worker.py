"""Asking the black box in a thread of its own, one question after the other, while training goes on.

Which questions are asked, and in which order, never depends on how long the answers take: whoever needs an answer that
is not there yet waits for it. So the speed of a black box changes how long a fit takes, and nothing else.
"""

from __future__ import annotations

import contextvars
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from queue import SimpleQueue
from typing import Any, TypeVar

from sklearn import config_context, get_config

from sointer._support.torch_state import as_outside
from sointer.errors import InterruptedFitWarning

Answer = TypeVar("Answer")
SECONDS_OF_PATIENCE = 2.0


class Asker:
    """Runs questions in the order in which they came, all of them in one thread."""

    def __init__(self) -> None:
        self._questions: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._failure: BaseException = CancelledError("fit stopped before this was asked")

    def ask(self, question: Callable[[], Answer]) -> Future[Answer]:
        """Put a question at the end of the queue; the answer, or what was raised instead, is in the future."""
        future: Future[Answer] = Future()
        if self._thread is None and not self._stopped:
            self._start()
        if self._thread is None:
            future.set_exception(self._failure)
        else:
            self._questions.put((future, question))
        return future

    def stop(self) -> None:
        """Ask nothing more, and wait until the question under way is answered; who is interrupted waits no more."""
        self._stopped = True
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._questions.put(None)
        thread.join(SECONDS_OF_PATIENCE)
        if thread.is_alive():
            warnings.warn(
                "fit is to stop and waits for the black box to end its call; interrupt again to leave at once.",
                InterruptedFitWarning,
                stacklevel=2,
            )
            thread.join()

    def between_batches(self, *_: Any) -> None:
        """Called by a question after each batch of its rows; does not return if fit is to stop."""
        if self._stopped:
            raise CancelledError("fit stopped before all rows of this question were asked")

    def _start(self) -> None:
        # What the caller set for its own thread (numpy's and scikit-learn's settings) holds in the other one too.
        context, settings = contextvars.copy_context(), get_config()

        def run() -> None:
            as_outside()
            with config_context(**settings):
                self._run()

        # A daemon: a black box that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=context.run, args=(run,), name="sointer-black-box", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (item := self._questions.get()) is not None:
            future, question = item
            if self._stopped:
                future.set_exception(self._failure)
                continue
            try:
                future.set_result(question())
            except BaseException as error:  # raised again where the answer is needed
                self._stopped, self._failure = True, error  # questions after a failure would only cost
                future.set_exception(error)
            del item, future, question  # an answer may be large, and waiting may be long
