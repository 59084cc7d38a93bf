"""Progress of long work, shown where someone is watching, and what happened in training, one row per report."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm


@dataclass
class Progress:
    """Counts rows, and reports them to a bar or a callback."""

    n_rows: int | None
    callback: Callable[[int, int | None], None] | None = None
    bar: Any = None
    done: int = 0

    def add(self, n: int) -> None:
        self.done += n
        if self.bar is not None:
            self.bar.update(n)
        if self.callback is not None:
            self.callback(self.done, self.n_rows)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def make_progress(progress: bool | Callable[[int, int | None], None] | None, n_rows: int | None) -> Progress:
    """A bar (None: on a terminal only), a function to call, or nothing."""
    if callable(progress):
        return Progress(n_rows, callback=progress)
    shown = sys.stderr.isatty() if progress is None else progress
    bar = tqdm(total=n_rows, desc="explaining rows", unit=" rows", leave=False, dynamic_ncols=True) if shown else None
    return Progress(n_rows, bar=bar)


SECONDS_BETWEEN_LOOKS, SECONDS_BETWEEN_LINES = 0.5, 30.0


# The rate is always per second, and the bar takes what room is left.
LINE = "{desc} {percentage:3.0f}%|{bar}| {remaining} left, {rate_noinv_fmt}{postfix}"


WIDTH_WITHOUT_WORDS = 40


class History:
    """Rows of training values, shown as a progress bar on a terminal (`verbose` None), always, or never.

    Where there is no terminal, `verbose` True writes one line for every stage that is done, and one every half minute
    until then. `n_queried` gives how many rows the black box was queried for so far, of the `n_planned`, and
    `n_answered` how many of them it has answered.
    """

    def __init__(
        self,
        verbose: bool | None = None,
        *,
        n_queried: Callable[[], int] | None = None,
        n_answered: Callable[[], int] | None = None,
        n_planned: int | None = None,
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self._started = time.perf_counter()
        on_terminal = sys.stderr.isatty()
        self._shows_bars = on_terminal and verbose is not False
        self._writes_lines = verbose is True
        self._n_queried, self._n_planned = n_queried, n_planned
        self._n_answered = n_queried if n_answered is None else n_answered
        self._stage: Stage | None = None
        self._agreement: float | None = None
        self._values: dict[str, float] = {}

    def stage(self, name: str, n_steps: int, unit: str = "steps") -> None:
        """Begin a stage of known length; one that is counted in "rows" is over when so many were answered."""
        self.close()
        if self._shows_bars or self._writes_lines:
            counter = self._n_answered if unit == "rows" else None
            self._stage = Stage(name, n_steps, unit, counter, self._beside, shows_bar=self._shows_bars)

    def step(self, n: int = 1, **values: float) -> None:
        """Advance; values are shown beside the bar."""
        if self._stage is not None:
            self._values = values or self._values
            self._stage.step(n)

    def record(self, **values: Any) -> None:
        """Keep a row for `history_`."""
        self.rows.append({"seconds": round(time.perf_counter() - self._started, 3), **values})
        self._agreement = values.get("held_out_agreement", self._agreement)

    def close(self) -> None:
        """End the stage, if there is one."""
        if self._stage is not None:
            self._stage.close()
            if self._writes_lines:
                print(", ".join([self._stage.summary(), *self._beside()]), file=sys.stderr, flush=True)
            self._stage, self._values = None, {}

    def _beside(self) -> list[str]:
        """What is worth knowing, best first: in a narrow terminal the last are left out."""
        parts = [] if self._agreement is None else [f"agrees {self._agreement:.1%}"]
        if self._n_queried is not None:
            parts.append(
                f"queried {self._n_queried():,}" + ("" if self._n_planned is None else f"/{self._n_planned:,}")
            )
        return parts + [f"{name} {value:.3g}" for name, value in self._values.items()]


def last_value(rows: list[dict[str, Any]], name: str) -> float | None:
    """The number last recorded under a name, if there is one."""
    found = [row[name] for row in rows if isinstance(row.get(name), float) and math.isfinite(row[name])]
    return found[-1] if found else None


class Stage:
    """One stage: what is done of it, as a bar or, without one, as a line from time to time.

    A stage with a `counter` advances by what that counts; `beside` gives what to write last.
    """

    def __init__(
        self,
        name: str,
        n_steps: int,
        unit: str,
        counter: Callable[[], int] | None,
        beside: Callable[[], list[str]],
        *,
        shows_bar: bool,
    ) -> None:
        self.name, self.n_steps, self.unit = name, n_steps, unit
        self._n_done, self._counter = 0, counter
        self._counted_before = 0 if counter is None else counter()
        self._beside, self._started = beside, time.perf_counter()
        self._bar: Any = None
        self._over = threading.Event()
        if shows_bar:
            self._bar = tqdm(
                total=n_steps, desc=name, unit=f" {unit}", leave=False, dynamic_ncols=True, bar_format=LINE
            )
        watch = self._look if shows_bar else self._tell
        threading.Thread(target=watch, name="sointer-progress", daemon=True).start()

    def step(self, n: int) -> None:
        if self._counter is None:
            self._n_done += n
        self._show()

    def close(self) -> None:
        self._over.set()
        if self._bar is not None:
            with self._bar.get_lock():
                self._bar.close()

    def summary(self) -> str:
        """What was done, in a line."""
        seconds = time.perf_counter() - self._started
        return f"{self.name}: {self._done():,} {self.unit} in {seconds:.1f} s"

    def so_far(self) -> str:
        """What is done until now, and how long the rest will take, in a line."""
        done, seconds = self._done(), time.perf_counter() - self._started
        left = "?" if done == 0 else tqdm.format_interval(max(0, self.n_steps - done) * seconds / done)
        return f"{self.name}: {done:,} of {self.n_steps:,} {self.unit}, {left} left"

    def _done(self) -> int:
        return self._n_done if self._counter is None else self._counter() - self._counted_before

    def _fitting(self, words: list[str]) -> str:
        """As many of the words as the terminal has room for."""
        room = (self._bar.format_dict["ncols"] or 80) - len(self.name) - WIDTH_WITHOUT_WORDS
        while len(", ".join(words)) > max(0, room):
            words = words[:-1]
        return ", ".join(words)

    def _look(self) -> None:
        """A slow black box is no reason for the clock to stand still."""
        while not self._over.wait(SECONDS_BETWEEN_LOOKS):
            self._show(at_once=True)

    def _tell(self) -> None:
        """Where nobody watches a bar, a line now and then says that a slow black box is still being queried."""
        while not self._over.wait(SECONDS_BETWEEN_LINES):
            print(", ".join([self.so_far(), *self._beside()]), file=sys.stderr, flush=True)

    def _show(self, at_once: bool = False) -> None:
        if self._bar is None:
            return
        with self._bar.get_lock():
            if not self._over.is_set():
                self._bar.set_postfix_str(self._fitting(self._beside()), refresh=False)
                self._bar.update(min(self._done(), self._bar.total) - self._bar.n)
                if at_once:
                    self._bar.refresh()
