"""Answers remembered by row, so that no row is asked about twice, from any number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from sointer._support.hashing import row_keys
from sointer.blackbox.replies import Table, stack


class AnswerCache:
    """The answers to all rows asked about so far."""

    def __init__(self) -> None:
        self.n_hits = 0
        self._answers: dict[bytes, Table] = {}
        self._asking: set[bytes] = set()  # rows that some thread is asking about
        self._changed = threading.Condition()

    def clear(self) -> None:
        with self._changed:
            self._answers.clear()

    def learn(self, X: Any, table: Table) -> None:
        """Remember answers to the rows of X that came another way; what is known stays as it is."""
        with self._changed:
            for key, answer in zip(row_keys(X), table, strict=True):
                self._answers.setdefault(key, answer)

    def answers(self, X: Any, ask: Callable[[npt.NDArray[np.int64]], Table]) -> Table:
        """The answers to the rows of X; `ask` is called with the numbers of those that are not known."""
        keys = row_keys(X)
        first = {key: row for row, key in reversed(list(enumerate(keys)))}
        order = sorted(first, key=first.__getitem__)
        found: dict[bytes, Table] = {}
        n_asked = 0
        while len(found) < len(first):
            with self._changed:
                found.update((key, self._answers[key]) for key in order if key in self._answers)
                missing = [key for key in order if key not in found]
                mine = [key for key in missing if key not in self._asking]
                self._asking.update(mine)
            if mine:
                found.update(self._ask(mine, np.array([first[key] for key in mine], dtype=np.int64), ask))
                n_asked += len(mine)
            with self._changed:  # other threads ask about the rest; if one fails, its rows become ours
                self._changed.wait_for(lambda others=missing: self._asking.isdisjoint(others))  # type: ignore[misc]
        with self._changed:
            self.n_hits += len(keys) - n_asked
        return stack([found[key][None, :] for key in keys])

    def _ask(
        self, keys: list[bytes], index: npt.NDArray[np.int64], ask: Callable[[npt.NDArray[np.int64]], Table]
    ) -> dict[bytes, Table]:
        answers: dict[bytes, Table] = {}
        try:
            answers = dict(zip(keys, ask(index), strict=True))
        finally:
            with self._changed:
                self._answers.update(answers)
                self._asking.difference_update(keys)
                self._changed.notify_all()
        return answers

    def __getstate__(self) -> dict[str, Any]:
        with self._changed:
            return {"n_hits": self.n_hits, "_answers": dict(self._answers)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.__dict__.update(state)
