"""Values that must not be seen: tokens and passwords. They are sent, and never shown, written or pickled."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from sointer.errors import InputError

HIDDEN = "<secret>"
MIN_PART = 4


class Secret:
    """A string that only `reveal` shows; a pickle of it does not contain the string.

    One made by `from_environment` works in other processes too, if they have the variable.

    Parameters
    ----------
    value : str or None
        The string; None for one that is missing.

    Examples
    --------
    >>> secret = Secret("Bearer 1234")
    >>> secret, str(secret), f"{secret}"
    (<secret>, '<secret>', '<secret>')
    """

    __slots__ = ("_prefix", "_value", "_variable")

    def __init__(self, value: str | None) -> None:
        self._value = value
        self._variable: str | None = None
        self._prefix = ""

    @classmethod
    def from_environment(cls, variable: str, prefix: str = "") -> Secret:
        """The value of an environment variable, read when it is needed.

        Parameters
        ----------
        variable : str
            Name of the variable.
        prefix : str, default ""
            Put before the value, such as "Bearer ".

        Returns
        -------
        Secret
        """
        secret = cls(None)
        secret._variable, secret._prefix = variable, prefix
        return secret

    def reveal(self) -> str:
        """The string itself.

        Returns
        -------
        str

        Raises
        ------
        InputError
            If the variable is not set, or the secret was left behind by a copy.
        """
        if self._variable is not None:
            if self._variable not in os.environ:
                raise InputError(f"the environment variable {self._variable} is not set; a secret was to come from it.")
            return self._prefix + os.environ[self._variable].strip()
        if self._value is None:
            raise InputError(
                "a secret is missing: it does not travel with a copy to another process or a file. Use "
                "sointer.blackbox.adapters.secrets.Secret.from_environment(...) for it, and set that variable there."
            )
        return self._value

    def parts(self) -> set[str]:
        """The string and its words, in all spellings that a URL gives them; too short ones hide nothing."""
        try:
            value = self.reveal()
        except InputError:
            return set()
        words = {value, *value.split(), *value.replace("=", "&").split("&")}
        spelled = {spell(word) for word in words for spell in (str, quote, quote_plus, unquote)}
        return {word for word in spelled if len(word) >= MIN_PART and word not in ("Bearer", "Basic", "Token")}

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._variable, self._prefix)


def hide(text: str, secrets: Iterable[Secret]) -> str:
    """A text of somebody else, such as a server's message, without the secrets it may repeat."""
    parts = {part for secret in secrets for part in secret.parts()}
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, HIDDEN)
    return text


_hidden: ContextVar[tuple[Secret, ...]] = ContextVar("_hidden", default=())


class _WithoutSecrets(logging.Filter):
    """Rewrites what other libraries log while secrets are hidden, such as the headers of a reply that repeats them."""

    def filter(self, record: logging.LogRecord) -> bool:
        if _hidden.get():
            record.msg, record.args = hide(record.getMessage(), _hidden.get()), ()
        return True


_without_secrets = _WithoutSecrets()


@contextmanager
def hidden_in_logs(secrets: Iterable[Secret], loggers: Iterable[str]) -> Iterator[None]:
    """Within the block, and in this thread, these loggers do not write the secrets, at any level."""
    for name in loggers:
        logging.getLogger(name).addFilter(_without_secrets)  # which adds it once only
    before = _hidden.set(tuple(secrets))
    try:
        yield
    finally:
        _hidden.reset(before)


def without_frames(interrupt: BaseException) -> BaseException:
    """An interrupt, to be raised again, without the frames that it came through: some hold secrets as plain text."""
    interrupt.__context__ = interrupt.__cause__ = None
    return interrupt.with_traceback(None)


def _unpickled(variable: str | None, prefix: str) -> Secret:
    return Secret(None) if variable is None else Secret.from_environment(variable, prefix)
