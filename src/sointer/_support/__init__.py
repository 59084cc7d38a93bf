"""What every folder may use, and what knows of none of them: the version, words for numbers, cached properties."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["MAX_PLAIN", "__version__", "cached_property", "number_words"]

__version__ = "0.2.0"
MAX_PLAIN = 1e15  # numbers from here on are written with an exponent


def number_words(number: float) -> str:
    """A number with about four digits, for people.

    Examples
    --------
    >>> number_words(0.123456), number_words(2015.0), number_words(45678.91)
    ('0.1235', '2015', '45678.9')
    """
    is_large = 1000 <= abs(number) < MAX_PLAIN
    return f"{number:.1f}".removesuffix(".0") if is_large else f"{number:.4g}"


if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):
        """As in Python 3.12, without the lock that all objects of a class shared before.

        In a process forked while another thread held it, nobody would ever release it.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            known = instance.__dict__
            if self.attrname not in known:
                known[self.attrname] = self.func(instance)
            return known[self.attrname]
