"""How much the server accepts at once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from sointer._support.validation import check_positive_int
from sointer.errors import InputError


@dataclass(frozen=True)
class Limits:
    """How much the server accepts; it rejects the rest at once, so that accepted requests are answered in time.

    Reading a body takes at most 20 times its bytes, `concurrency` of them at a time. What arrives and what waits is
    bounded by (concurrency + queue) * max_body_bytes, times about ten for what is made from a body.

    Parameters
    ----------
    max_body_bytes : int, default 2**22
        Size of the largest request.
    max_rows : int, default 1000
        Rows in one request.
    concurrency : int, default one per processor, at most 4
        Threads that explain; one more queries the model.
    queue : int, default 64
        Requests that may wait in addition to those being explained; more get status 429. Those that query the model
        have a queue of their own, of the same size.
    timeout : float, default 30.0
        Seconds that a body may take to arrive, and after that the answer.

    Raises
    ------
    InputError
        If a limit is not a number in its range.

    Examples
    --------
    >>> Limits(max_rows=100, concurrency=2, queue=10).n_places
    12
    """

    max_body_bytes: int = 2**22
    max_rows: int = 1000
    concurrency: int = field(
        default_factory=lambda: max(1, min(4, os.cpu_count() or 1))
    )  # they share Python's one lock
    queue: int = 64
    timeout: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_rows", "concurrency"):
            check_positive_int(getattr(self, name), name)
        check_positive_int(self.queue, "queue", minimum=0)
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float) or not 0 < self.timeout < 86400:
            raise InputError(f"timeout must be a number of seconds, more than 0 and below 86400, got {self.timeout!r}.")

    @property
    def n_places(self) -> int:
        """How many requests may be read, wait or be explained at the same time."""
        return self.concurrency + self.queue
