"""How much the server accepts at once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from sointer._support.validation import check_positive_int
from sointer.errors import InputError


def default_concurrency() -> int:
    """One thread for each processor, up to four: the threads share Python's one lock."""
    return max(1, min(4, os.cpu_count() or 1))


@dataclass(frozen=True)
class Limits:
    """What is beyond these limits is refused at once, so that what was accepted is answered in time.

    Memory is bounded by (concurrency + queue) * max_body_bytes, times about ten for what is read from a body.
    """

    max_body_bytes: int = 2**22
    max_rows: int = 1000
    concurrency: int = field(default_factory=default_concurrency)
    """Threads that explain."""
    queue: int = 64
    """Requests that may wait beside those; more get 429."""
    timeout: float = 30.0
    """Seconds that a body may take to arrive, and after that the answer."""

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_rows", "concurrency"):
            check_positive_int(getattr(self, name), name)
        check_positive_int(self.queue, "queue", minimum=0)
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float) or not 0 < self.timeout < 86400:
            raise InputError(f"timeout must be a number of seconds, more than 0 and below 86400, got {self.timeout!r}.")

    @property
    def n_places(self) -> int:
        """How many requests may be inside."""
        return self.concurrency + self.queue
