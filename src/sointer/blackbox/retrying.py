"""How long to go on asking a model that fails: tries, waits between them, and an end to calls that hang."""

from __future__ import annotations

import contextvars
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sointer.errors import BlackBoxError, InputError
from sointer.validation import check_positive_int

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
