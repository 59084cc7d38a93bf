"""Things that belong to one process: connections, sessions, running programs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """Something made when it is first used, and made anew in forked processes and in unpickled copies."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: tuple[int, T] | None = None
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def get(self) -> T:
        """The thing itself."""
        if self._made is not None and self._made[0] == os.getpid():
            return self._made[1]
        if self._owner != os.getpid():  # a lock held by another thread at the fork would stay locked for ever
            self.__setstate__(self.__getstate__())
        with self._lock:
            if self._made is None:
                self._made = os.getpid(), self._make()
            return self._made[1]

    def take(self) -> T | None:
        """The thing if there is one in this process, which is then forgotten, so that its taker may close it."""
        with self._lock:
            made, self._made = self._made, None
        return made[1] if made is not None and made[0] == os.getpid() else None

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": self._make}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_make"])  # type: ignore[misc]
