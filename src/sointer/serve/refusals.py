"""Every way to say no: a status, and one line that says why."""

from __future__ import annotations

import logging

from sointer.errors import BlackBoxError, InputError, QueryBudgetExceeded

log = logging.getLogger("sointer.serve")
LONGEST = 500


class Refusal(Exception):
    """A request that is not answered, and why."""

    def __init__(self, status: int, why: str, **headers: str) -> None:
        super().__init__(why)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    @property
    def why(self) -> str:
        return one_line(str(self))


def one_line(text: str) -> str:
    """A message without line breaks and control characters, and not too long."""
    words = "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"


def too_busy() -> Refusal:
    return Refusal(429, "Too many requests are waiting already; this one was not read. Try again.", Retry_After="1")


def shutting_down() -> Refusal:
    return Refusal(503, "The server is shutting down. Try again when it is back.", Retry_After="5")


def too_slow(seconds: float) -> Refusal:
    return Refusal(
        503, f"No answer within {seconds:g} s; nothing was kept. Try again with fewer rows.", Retry_After="1"
    )


def refusal_of(error: BaseException) -> Refusal:
    """What to say about an error; what went wrong on our side is told to the log only."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, InputError):
        return Refusal(422, str(error).removeprefix("explain: "))
    if isinstance(error, QueryBudgetExceeded):
        return Refusal(
            503,
            "The model may not be queried any more: its query budget is used up. Send its outputs as predicted, or "
            "query: false to explain what is expected of it.",
        )
    if isinstance(error, BlackBoxError):
        log.warning("the model failed: %s", one_line(str(error)))
        return Refusal(502, "The model that is explained failed or gave no usable answer; the server's log says more.")
    log.error("a request failed unexpectedly", exc_info=error)
    return Refusal(500, "Something went wrong in the server; its log says what.")
