"""Showing how far a stream has got."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm


@dataclass
class Progress:
    """Counts rows, and tells whoever wants to know."""

    n_rows: int | None
    tell: Callable[[int, int | None], None] | None = None
    bar: Any = None
    done: int = 0

    def add(self, n: int) -> None:
        self.done += n
        if self.bar is not None:
            self.bar.update(n)
        if self.tell is not None:
            self.tell(self.done, self.n_rows)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def make_progress(progress: bool | Callable[[int, int | None], None] | None, n_rows: int | None) -> Progress:
    """A bar (None: on a terminal only), a function to call, or nothing."""
    if callable(progress):
        return Progress(n_rows, tell=progress)
    shown = sys.stderr.isatty() if progress is None else progress
    bar = tqdm(total=n_rows, desc="explaining rows", unit=" rows", leave=False, dynamic_ncols=True) if shown else None
    return Progress(n_rows, bar=bar)
