"""One batch, asked and answered: with tries and checks, here or in a worker, and nothing raised on the way."""

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
from sointer.blackbox.replies import WRONG, Table, read_named_reply
from sointer.errors import BlackBoxError, InputError, SointerError

Reply = TypeVar("Reply")

# Waits are spread at random so that many callers do not come back at once; answers do not depend on them.
_jitter = random.Random()


class Unanswered(BlackBoxError):
    """No usable answer this time: asking again may help, after `wait` seconds if the model said so."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


class Hung(TimeoutError):
    """A call that was given up."""


@dataclass(frozen=True)
class Patience:
    """How often and for how long one batch is asked."""

    retries: int
    timeout: float | None = None
    """Seconds after which a call counts as hung."""
    first_wait: float = 0.05
    longest_wait: float = 1.0
    at_first: int | None = None
    """Most retries before the first good answer, where a failure is likelier a mistake than an accident."""

    def __post_init__(self) -> None:
        check_positive_int(self.retries, "retries", minimum=0)
        if self.timeout is not None:
            check_seconds(self.timeout, "timeout")

    def tries(self, has_answered: bool) -> int:
        """How often to ask in all."""
        short = not has_answered and self.at_first is not None
        return 1 + (min(self.retries, self.at_first or 0) if short else self.retries)

    def sleep(self, n_failures: int, at_least: float = 0.0) -> None:
        """Wait before the next try: twice as long after each failure, at least as long as the model asked for."""
        wait = min(self.first_wait * 2.0 ** min(n_failures - 1, 30), self.longest_wait)
        time.sleep(max(wait * _jitter.uniform(0.5, 1.0), min(at_least, self.longest_wait)))


def check_seconds(value: object, what: str) -> float:
    """Return `value` as a number of seconds above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise InputError(f"{what} must be a number of seconds above 0, got {value!r}. Write it as 30.0, for example.")
    return float(value)


def within(seconds: float | None, call: Callable[[], Reply]) -> Reply:
    """The result of `call`, or `Hung` after so many seconds; the call itself cannot be stopped and is left."""
    if seconds is None:
        return call()
    replies: list[Reply] = []
    errors: list[BaseException] = []
    # What the caller set for its own thread (numpy's and scikit-learn's settings) holds in the other one too.
    from sklearn import config_context, get_config

    context, settings = contextvars.copy_context(), get_config()

    def work() -> None:
        try:
            with config_context(**settings):
                replies.append(context.run(call))
        except BaseException as exc:
            errors.append(exc)

    # A daemon: a call that hangs for ever must not keep the program from ending.
    thread = threading.Thread(target=work, name="sointer black box", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not replies:
        raise Hung(f"no answer within {seconds:g} s")
    return replies[0]


@dataclass(frozen=True)
class Known:
    """What the replies before said about the outputs."""

    n_outputs: int | None = None
    shape: Size | None = None
    confirmed: bool = False
    """Whether there was a good reply before; until then a wrong one is no accident."""


@dataclass(frozen=True)
class Answer:
    """What became of one batch: a checked table, or the error it ended with; and what it took."""

    table: Table | None = None
    shape: Size | None = None
    names: list[str] | None = None
    error: SointerError | None = None
    n_failures: int = 0
    n_retries: int = 0
    n_retried_rows: int = 0


def answer(predict: Callable[[Any], Any], batch: Any, name: str, known: Known, patience: Patience) -> Answer:
    """Ask `predict` about a batch until it answers well, it is no use, or patience ends."""
    started = time.monotonic()
    n_rows = containers.n_rows(batch)
    everything = np.arange(n_rows)
    n_calls, most_calls, error = 0, patience.tries(known.confirmed), SointerError()
    while n_calls < most_calls:
        n_calls += 1
        at_least = 0.0
        # A copy for every try: a model may write into its input before it fails.
        again = containers.rows(batch, everything) if n_calls < most_calls else batch
        try:
            reply = _call(predict, again, name, patience.timeout)
            table, shape, names = _read(reply, n_rows, image_size(batch), known)
            return Answer(table, shape, names, None, n_calls - 1, n_calls - 1, (n_calls - 1) * n_rows)
        except _Wrong as exc:
            error = exc.error
            if not known.confirmed:
                break
        except Unanswered as exc:
            error, at_least = exc, exc.wait
        except SointerError as exc:
            error = exc
            break
        if n_calls < most_calls:
            patience.sleep(n_calls, at_least)
    if isinstance(error, BlackBoxError) and (n_calls > 1 or isinstance(error, Unanswered)):
        tried = f"{n_calls} times" if n_calls > 1 else "once"
        told = BlackBoxError(f"{error} It was tried {tried}, for {time.monotonic() - started:.1f} s in all.")
        told.__cause__ = error.__cause__
        error = told
    return Answer(None, None, None, error, n_calls, n_calls - 1, (n_calls - 1) * n_rows)


class _Wrong(Exception):
    """The model replied, but not with a table of outputs."""

    def __init__(self, error: BlackBoxError) -> None:
        self.error = error


def _call(predict: Callable[[Any], Any], batch: Any, name: str, timeout: float | None) -> Any:
    try:
        return within(timeout, lambda: predict(batch))
    except SointerError:
        raise
    except Hung:
        raise Unanswered(
            f"Your function hung: {name} gave no answer within timeout={timeout:g} s. It was given "
            f"{containers.describe(batch)}. Raise timeout, lower batch_size, or see what it waits for."
        ) from None
    except Exception as exc:
        raise Unanswered(
            f"Your function failed: {name} raised {type(exc).__name__}: {exc}. It was given "
            f"{containers.describe(batch)}, expected to be what it was trained on. Call it yourself on such a batch "
            "to see why."
        ) from exc


def _read(reply: Any, n_rows: int, size: Size | None, known: Known) -> tuple[Table, Size | None, list[str] | None]:
    try:
        table, shape, names = read_named_reply(reply, n_rows, known.n_outputs, size)
        if known.confirmed:
            check_same_shape(shape, known.shape, WRONG)
    except BlackBoxError as exc:
        raise _Wrong(exc) from None
    return table, shape, names
