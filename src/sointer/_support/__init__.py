"""What every folder may use, and what knows of none of them; here the version, and properties computed once."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["__version__", "cached_property"]

__version__ = "0.2.0"

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
