"""What happened during training: one row per report, and progress where someone is watching."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from sointer.data.outputs import Outputs

SECONDS_BETWEEN_LOOKS = 0.5
# The rate is always per second, and the bar takes what room is left.
LINE = "{desc} {percentage:3.0f}%|{bar}| {remaining} left, {rate_noinv_fmt}{postfix}"
WIDTH_WITHOUT_WORDS = 40


class History:
    """Rows of training facts, shown as a progress bar on a terminal (`verbose` None), always, or never.

    Where there is no terminal, `verbose` True writes one line for every stage that is done. `n_asked` says how many
    rows the black box has been asked about so far, of the `n_planned` that it will be asked about.
    """

    def __init__(
        self, verbose: bool | None = None, *, n_asked: Callable[[], int] | None = None, n_planned: int | None = None
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self._started = time.perf_counter()
        on_terminal = sys.stderr.isatty()
        self._shows_bars = on_terminal and verbose is not False
        self._writes_lines = verbose is True
        self._n_asked, self._n_planned = n_asked, n_planned
        self._stage: Stage | None = None
        self._agreement: float | None = None
        self._facts: dict[str, float] = {}

    def stage(self, name: str, n_steps: int, unit: str = "steps") -> None:
        """Begin a stage of known length; one that is counted in "rows" is over when so many have been asked about."""
        self.close()
        if self._shows_bars or self._writes_lines:
            counter = self._n_asked if unit == "rows" else None
            self._stage = Stage(name, n_steps, unit, counter, self._beside if self._shows_bars else None)

    def step(self, n: int = 1, **facts: float) -> None:
        """Advance; facts are shown beside the bar."""
        if self._stage is not None:
            self._facts = facts or self._facts
            self._stage.step(n)

    def record(self, **facts: Any) -> None:
        """Keep a row for `history_`."""
        self.rows.append({"seconds": round(time.perf_counter() - self._started, 3), **facts})
        self._agreement = facts.get("held_out_agreement", self._agreement)

    def close(self) -> None:
        """End the stage, if there is one."""
        if self._stage is not None:
            self._stage.close()
            if self._writes_lines:
                print(", ".join([self._stage.summary(), *self._beside()]), file=sys.stderr, flush=True)
            self._stage, self._facts = None, {}

    def _beside(self) -> list[str]:
        """What is worth knowing, best first: in a narrow terminal the last are left out."""
        told = [] if self._agreement is None else [f"agrees {self._agreement:.1%}"]
        if self._n_asked is not None:
            told.append(f"asked {self._n_asked():,}" + ("" if self._n_planned is None else f"/{self._n_planned:,}"))
        return told + [f"{name} {value:.3g}" for name, value in self._facts.items()]


class Stage:
    """One stage: what is done of it, and its bar, if `beside` (what to write there last) is given.

    A stage with a `counter` advances by what that counts.
    """

    def __init__(
        self,
        name: str,
        n_steps: int,
        unit: str,
        counter: Callable[[], int] | None,
        beside: Callable[[], list[str]] | None,
    ) -> None:
        self.name, self.unit = name, unit
        self._n_done, self._counter = 0, counter
        self._counted_before = 0 if counter is None else counter()
        self._beside, self._started = beside, time.perf_counter()
        self._bar: Any = None
        self._over = threading.Event()
        if beside is not None:
            self._bar = tqdm(
                total=n_steps, desc=name, unit=f" {unit}", leave=False, dynamic_ncols=True, bar_format=LINE
            )
            threading.Thread(target=self._look, name="sointer-progress", daemon=True).start()

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

    def _show(self, at_once: bool = False) -> None:
        if self._bar is None or self._beside is None:
            return
        with self._bar.get_lock():
            if not self._over.is_set():
                self._bar.set_postfix_str(self._fitting(self._beside()), refresh=False)
                self._bar.update(min(self._done(), self._bar.total) - self._bar.n)
                if at_once:
                    self._bar.refresh()


POOR_SKILL = 0.5
MIN_UNUSUAL = 5


class Quality(NamedTuple):
    """Of predictions on held-out answers."""

    loss: float
    agreement: NDArray[np.float64]
    """(outputs,) share of answers predicted correctly; of numbers, within the tolerance."""
    skill: NDArray[np.float64]
    """(outputs,) share of the error of always guessing the usual value that is avoided; NaN if all answers are alike.

    Of graded outputs this is the coefficient of determination, R squared."""
    poor: list[int]
    """Outputs of which little was learned."""

    def mean_skill(self) -> float:
        """Over outputs that vary; 1 if none does."""
        known = self.skill[~np.isnan(self.skill)]
        return float(known.mean()) if len(known) else 1.0


def quality_of(loss: float, found: Tensor, codes: Tensor, outputs: Outputs) -> Quality:
    """Compare codes that the energy expects (rows, outputs) with those of the black box.

    Agreement alone flatters: where a label is set on 1 % of rows, guessing "no" agrees on 99 %. Numbers count in their
    own unit, outliers as the outermost quantiles.
    """
    a, b = found.double().numpy(), codes.double().numpy()
    agreement, skill = np.empty(a.shape[1]), np.empty(a.shape[1])
    poor = []
    for j, kind in enumerate(outputs.kinds):
        own, said, curve, graded = a[:, j], b[:, j], outputs.quantiles[j], bool(outputs.graded[j])
        if curve is not None:
            own, said = curve.decode(own), curve.decode(said)
            agreement[j] = (np.abs(own - said) <= float(outputs.tolerance or 0.0) * curve.deviation).mean()
        else:
            agreement[j] = ((own > 0.5) == (said > 0.5)).mean() if kind == "probability" else (own == said).mean()
        usual = said.mean() if graded else np.bincount(said.astype(np.int64)).argmax()
        by_guessing, error = _error(said, usual, graded), _error(said, own, graded)
        skill[j] = 1 - error / by_guessing if by_guessing > 0 else np.nan
        if (said != usual).sum() >= MIN_UNUSUAL and error > (1 - POOR_SKILL) * by_guessing:
            poor.append(j)
    return Quality(loss, agreement, skill, poor)


def quality_of_labels(loss: float, found: Tensor, codes: Tensor) -> Quality:
    """The same where all outputs are labels (rows, outputs)."""
    usual = codes.mode(dim=0).values
    by_guessing, error = ((guess != codes).double().mean(dim=0).numpy() for guess in (usual, found))
    with np.errstate(divide="ignore", invalid="ignore"):
        skill = np.where(by_guessing > 0, 1 - error / by_guessing, np.nan)
    return Quality(loss, 1 - error, skill, [])


def _error(said: NDArray[np.float64], guess: Any, graded: bool) -> float:
    return float(((said - guess) ** 2).mean() if graded else (said != guess).mean())
