"""What happened during training: one row per report, and a progress bar where someone is watching."""

from __future__ import annotations

import sys
import time
from typing import Any

from tqdm import tqdm


class History:
    """Rows of training facts, shown as a progress bar on a terminal (or always, if verbose)."""

    def __init__(self, verbose: bool | None = None) -> None:
        self.rows: list[dict[str, Any]] = []
        self._started = time.perf_counter()
        self._shown = sys.stderr.isatty() if verbose is None else verbose
        self._bar: tqdm[Any] | None = None

    def stage(self, name: str, n_steps: int) -> None:
        """Begin a stage of known length."""
        self.close()
        if self._shown:
            self._bar = tqdm(total=n_steps, desc=name, leave=False, dynamic_ncols=True)

    def step(self, n: int = 1, **facts: float) -> None:
        """Advance the bar; facts are shown beside it."""
        if self._bar is not None:
            if facts:
                self._bar.set_postfix({key: f"{value:.3g}" for key, value in facts.items()}, refresh=False)
            self._bar.update(n)

    def record(self, **facts: Any) -> None:
        """Keep a row for `history_`."""
        self.rows.append({"seconds": round(time.perf_counter() - self._started, 3), **facts})

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
