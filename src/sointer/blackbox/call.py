"""One call of the model with one batch: retries, timeout and checks, here or in a worker; errors are returned."""

from __future__ import annotations

import contextvars
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from sointer._support import containers
from sointer._support.validation import check_positive_int
from sointer.blackbox.masks import Size, check_same_shape, image_size
from sointer.blackbox.replies import WRONG, Table, read_named_outputs
from sointer.errors import BlackBoxError, InputError, SointerError

Result = TypeVar("Result")

# Waits are spread at random so that many callers do not come back at once; outputs do not depend on them.
_jitter = random.Random()


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
    """Maximum of retries before the first valid outputs, where a failure is likelier a mistake than an accident."""

    def __post_init__(self) -> None:
        check_positive_int(self.retries, "retries", minimum=0)
        if self.timeout is not None:
            check_seconds(self.timeout, "timeout")

    def tries(self, has_answered: bool) -> int:
        """The maximum of calls in all."""
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


def within(seconds: float | None, call: Callable[[], Result]) -> Result:
    """The result of `call`, or `CallTimeout` after so many seconds; the call itself cannot be stopped and is left."""
    if seconds is None:
        return call()
    results: list[Result] = []
    errors: list[BaseException] = []
    # What the caller set for its own thread (numpy's and scikit-learn's settings) holds in the other one too.
    from sklearn import config_context, get_config

    context, settings = contextvars.copy_context(), get_config()

    def work() -> None:
        try:
            with config_context(**settings):
                results.append(context.run(call))
        except BaseException as exc:
            errors.append(exc)

    # A daemon: a call that hangs for ever must not keep the program from ending.
    thread = threading.Thread(target=work, name="sointer black box", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise CallTimeout(f"no result within {seconds:g} s")
    return results[0]


@dataclass(frozen=True)
class OutputSchema:
    """The format of the outputs, as known from earlier calls."""

    n_outputs: int | None = None
    shape: Size | None = None
    confirmed: bool = False
    """Whether there were valid outputs before; until then wrong ones are no accident."""


@dataclass(frozen=True)
class CallResult:
    """The result of one batch: a checked table, or the error it ended with; and the calls it took."""

    table: Table | None = None
    shape: Size | None = None
    names: list[str] | None = None
    error: SointerError | None = None
    n_failures: int = 0
    n_retries: int = 0
    n_retried_rows: int = 0


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
            outputs = _call(predict, again, name, policy.timeout)
            table, shape, names = _read(outputs, n_rows, image_size(batch), schema)
            return CallResult(table, shape, names, None, n_calls - 1, n_calls - 1, (n_calls - 1) * n_rows)
        except _Wrong as exc:
            error = exc.error
            if not schema.confirmed:
                break
        except TransientError as exc:
            error, at_least = exc, exc.wait
        except SointerError as exc:
            error = exc
            break
        if n_calls < max_calls:
            policy.sleep(n_calls, at_least)
    if isinstance(error, BlackBoxError) and (n_calls > 1 or isinstance(error, TransientError)):
        tried = f"{n_calls} times" if n_calls > 1 else "once"
        final = BlackBoxError(f"{error} It was tried {tried}, for {time.monotonic() - started:.1f} s in all.")
        final.__cause__ = error.__cause__
        error = final
    return CallResult(None, None, None, error, n_calls, n_calls - 1, (n_calls - 1) * n_rows)


class _Wrong(Exception):
    """The model returned something else than a table of outputs."""

    def __init__(self, error: BlackBoxError) -> None:
        self.error = error


def _call(predict: Callable[[Any], Any], batch: Any, name: str, timeout: float | None) -> Any:
    try:
        return within(timeout, lambda: predict(batch))
    except SointerError:
        raise
    except CallTimeout:
        raise TransientError(
            f"Your function hung: {name} returned nothing within timeout={timeout:g} s. It was given "
            f"{containers.describe(batch)}. Raise timeout, lower batch_size, or see what it waits for."
        ) from None
    except Exception as exc:
        raise TransientError(
            f"Your function failed: {name} raised {type(exc).__name__}: {exc}. It was given "
            f"{containers.describe(batch)}, expected to be what it was trained on. Call it yourself on such a batch "
            "to see why."
        ) from exc


def _read(
    outputs: Any, n_rows: int, size: Size | None, schema: OutputSchema
) -> tuple[Table, Size | None, list[str] | None]:
    try:
        table, shape, names = read_named_outputs(outputs, n_rows, schema.n_outputs, size)
        if schema.confirmed:
            check_same_shape(shape, schema.shape, WRONG)
    except BlackBoxError as exc:
        raise _Wrong(exc) from None
    return table, shape, names
