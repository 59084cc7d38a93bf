"""One call of the model with one batch: retries, timeout and checks, here or in a worker; errors are returned."""

from __future__ import annotations

import contextvars
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sointer._support import containers
from sointer._support.validation import check_positive_int, message_of
from sointer.blackbox.mask_replies import Size
from sointer.blackbox.replies import ModelOutputs, check_same_shape, read_outputs, refuse_other_order
from sointer.errors import BlackBoxError, InputError, SointerError

if TYPE_CHECKING:
    from typing_extensions import Self

Result = TypeVar("Result")
THREAD = "sointer-black-box"
"""The name of threads in which models are called."""

# Waits are spread at random so that many callers do not come back at once; outputs do not depend on them.
_jitter = random.Random()


class CopiedAsItself:
    """Stays one object: copies and clones of an explainer must not un-fit, duplicate or re-count the user's model."""

    def __sklearn_clone__(self) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class TransientError(BlackBoxError):
    """No usable outputs this time: a retry may help, after `wait` seconds if the server set that."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


class CallTimeout(TimeoutError):
    """A call that did not end in time."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often and for how long one batch is tried."""

    retries: int
    timeout: float | None = None
    """Seconds after which a call counts as hung."""
    first_wait: float = 0.05
    max_wait: float = 1.0
    at_first: int | None = None
    """Maximum of `retries` before the first valid outputs, where a failure is likelier a mistake than an accident."""

    def __post_init__(self) -> None:
        check_positive_int(self.retries, "retries", minimum=0)
        if self.timeout is not None:
            check_seconds(self.timeout, "timeout")

    def tries(self, has_answered: bool) -> int:
        """The maximum number of calls."""
        short = not has_answered and self.at_first is not None
        return 1 + (min(self.retries, self.at_first or 0) if short else self.retries)

    def sleep(self, n_failures: int, at_least: float = 0.0) -> None:
        """Wait before the next try: twice as long after each failure, at least as long as the server requested."""
        wait = min(self.first_wait * 2.0 ** min(n_failures - 1, 30), self.max_wait)
        time.sleep(max(wait * _jitter.uniform(0.5, 1.0), min(at_least, self.max_wait)))


def check_seconds(value: object, what: str) -> float:
    """Return `value` as a number of seconds above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise InputError(f"{what} must be a number of seconds above 0, got {value!r}. Write it as 30.0, for example.")
    return float(value)


def with_callers_settings(function: Callable[[], Result]) -> Callable[[], Result]:
    """The function, for a new thread, with the settings of numpy, scikit-learn and joblib that hold in this one."""
    context = contextvars.copy_context()
    # Not imported here: in a process forked while another thread imports, that would wait for ever.
    sklearn = sys.modules.get("sklearn")
    settings = sklearn.get_config() if sklearn is not None and hasattr(sklearn, "get_config") else None
    of_joblib: Any = getattr(sys.modules.get("joblib.parallel"), "_backend", None)  # kept by thread
    backend = getattr(of_joblib, "config", None)

    def run() -> Result:
        if backend is not None:
            of_joblib.config = backend
        if sklearn is None or settings is None:
            return context.run(function)
        with sklearn.config_context(**settings):
            return context.run(function)

    return run


def within(seconds: float | None, call: Callable[[], Result]) -> Result:
    """The result of `call`, or `CallTimeout` after so many seconds; the call itself cannot be stopped and is left."""
    if seconds is None:
        return call()
    future: Future[Result] = Future()
    run = with_callers_settings(call)

    def work() -> None:
        try:
            future.set_result(run())
        except BaseException as exc:
            future.set_exception(exc)

    # A daemon: a call that hangs for ever must not keep the program from ending.
    thread = threading.Thread(target=work, name=THREAD, daemon=True)
    thread.start()
    thread.join(seconds)
    if not future.done():
        raise CallTimeout(f"no result within {seconds:g} s")
    return future.result()


@dataclass(frozen=True)
class OutputSchema:
    """The format of the outputs, as known from earlier calls."""

    n_outputs: int | None = None
    shape: Size | None = None
    confirmed: bool = False
    """Whether there were valid outputs before; until then wrong ones are no accident."""


@dataclass(frozen=True)
class CallResult:
    """The result of one batch: checked outputs, or the error it ended with; and the calls it took."""

    outputs: ModelOutputs | None
    error: SointerError | None
    n_calls: int
    n_rows: int


def query_batch(
    predict: Callable[[Any], Any], batch: Any, name: str, schema: OutputSchema, policy: RetryPolicy
) -> CallResult:
    """Call `predict` with a batch until its outputs are valid, a retry is no use, or the policy allows no more."""
    started = time.monotonic()
    n_rows = containers.n_rows(batch)
    everything = np.arange(n_rows)
    n_calls, max_calls, error = 0, policy.tries(schema.confirmed), SointerError()
    while n_calls < max_calls:
        n_calls += 1
        at_least = 0.0
        # A copy for every try: a model may write into its input before it fails.
        again = containers.rows(batch, everything) if n_calls < max_calls else batch
        try:
            returned = _call(predict, again, name, policy.timeout)
        except TransientError as exc:
            error, at_least = exc, exc.wait
        except SointerError as exc:
            error = exc
            break
        else:
            try:
                refuse_other_order(returned, batch)
                outputs = read_outputs(returned, n_rows, schema.n_outputs, image_size(batch))
                if schema.confirmed:
                    check_same_shape(outputs.shape, schema.shape)
                return CallResult(outputs, None, n_calls, n_rows)
            except BlackBoxError as exc:
                error = exc
                if not schema.confirmed:
                    break
        if n_calls < max_calls:
            policy.sleep(n_calls, at_least)
    if isinstance(error, BlackBoxError) and (n_calls > 1 or isinstance(error, TransientError)):
        tried = f"{n_calls} times" if n_calls > 1 else "once"
        final = BlackBoxError(f"{error} It was tried {tried}, in {time.monotonic() - started:.1f} s.")
        final.__cause__ = error.__cause__
        error = final
    return CallResult(None, error, n_calls, n_rows)


def _call(predict: Callable[[Any], Any], batch: Any, name: str, timeout: float | None) -> Any:
    try:
        return within(timeout, lambda: predict(batch))
    except SointerError:
        raise
    except CallTimeout:
        raise TransientError(
            f"Your function hung: {name} returned nothing within timeout={timeout:g} s. It received "
            f"{containers.describe(batch)}. Raise timeout, lower batch_size, or see what it waits for."
        ) from None
    except Exception as exc:
        where = ""
        if threading.current_thread().name == THREAD or timeout is not None:
            where = (
                " It was called from another thread than yours, which sqlite3 connections, signal handlers, asyncio "
                "loops and thread-local objects do not allow: if it uses any of these, pass "
                "BlackBox(model, caller_thread=True)."
            )
        raise TransientError(
            f"Your function failed: {name} raised {type(exc).__name__}: {message_of(exc)}. It received "
            f"{containers.describe(batch)}; expected the form of data that it was trained on. Call it yourself on such "
            f"a batch to see why.{where}"
        ) from exc


def image_size(X: Any) -> Size | None:
    """Height and width of images (n, channels, height, width); None for anything else."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    return (int(shape[2]), int(shape[3])) if len(shape) == 4 and not containers.is_sparse(X) else None
