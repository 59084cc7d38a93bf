"""One batch, asked and answered: with tries and checks, here or in a worker, and nothing raised on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sointer import containers
from sointer.blackbox.masks import Size, check_same_shape, image_size
from sointer.blackbox.replies import WRONG, Table, read_named_reply
from sointer.blackbox.retrying import Hung, Patience, Unanswered, within
from sointer.errors import BlackBoxError, SointerError


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
