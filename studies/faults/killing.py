"""A fit in a process of its own, killed at a random moment, gone on with, and compared with one left in peace."""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sointer import EnergyConfig, SOInter, TrainingConfig
from sointer.blackbox.journal import Journal
from sointer.training.optim import Adam
from sointer.zoo.synthetic import paper_e1
from studies.faults.mutations import metadata_file

Model = Callable[[Any], Any]
PROBLEMS = ("numbers", "names", "numbers", "names", "long")
"""Labels 0 and 1 about arrays; strings, with names, about DataFrames; and arrays with a training of some seconds."""
MAX_SECONDS = 300
DEVNULL = os.open(os.devnull, os.O_WRONLY)


@dataclass(frozen=True)
class Logged:
    """A black box that writes down what it is asked before it answers, and what it has answered, by its own means."""

    model: Model
    log: Path

    def __call__(self, X: Any) -> Any:
        rows = X.to_numpy() if hasattr(X, "to_numpy") else X
        keys = " ".join(blake2b(row.tobytes(), digest_size=8).hexdigest() for row in np.ascontiguousarray(rows))
        self._write(f"asked {keys}\n")
        answers = self.model(X)
        self._write(f"answered {keys}\n")
        return answers

    def _write(self, line: str) -> None:
        handle = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, line.encode())
        os.close(handle)


def read_log(log: Path) -> tuple[list[str], list[str]]:
    """The rows asked about, and the rows answered."""
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    asked, answered = ([key for line in lines if line[0] == kind for key in line[1:]] for kind in ("asked", "answered"))
    return asked, answered


def make_problem(name: str) -> tuple[Any, Model]:
    problem = paper_e1(6)
    data = problem.sample(120, random_state=0)
    if name != "names":
        return data, problem
    columns = [f"feature {i}" for i in range(data.shape[1])]

    def model(frame: pd.DataFrame) -> pd.DataFrame:
        answers = np.asarray(problem(frame.to_numpy()))
        return pd.DataFrame(np.where(answers > 0, "yes", "no"), columns=[f"y {i}" for i in range(answers.shape[1])])

    return pd.DataFrame(data, columns=columns), model


def make_explainer(model: Any, problem: str = "numbers") -> SOInter:
    """So small that its training takes no longer than its questions; but for the long problem."""
    return SOInter(
        model,
        k=3,
        query_budget=400,
        batch_size=16,
        random_state=0,
        verbose=False,
        training=TrainingConfig(n_epochs=60 if problem == "long" else 1),
        energy=EnergyConfig(hidden=(20, 20), coupling_units=8),
    )


def fit(problem: str, checkpoint: Path | None, log: Path) -> None:
    """The fit that is killed."""
    data, model = make_problem(problem)
    take_step = Adam.step

    def logged_step(*args: Any) -> float:
        loss = take_step(*args)
        with open(f"{log}.steps", "ab") as file:
            file.write(b".")
        return loss

    if checkpoint is not None:
        Adam.step = logged_step  # type: ignore[method-assign]  # this process is about nothing else
    make_explainer(Logged(model, log), problem).fit(data, checkpoint=checkpoint)


def n_steps(log: Path) -> int:
    """Steps of training that were taken, by all processes with this log."""
    steps = Path(f"{log}.steps")
    return steps.stat().st_size if steps.exists() else 0


@cache
def warm_up(problem: str) -> None:
    """Import whatever a fit needs, so that forked processes need not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(problem, None, Path(os.devnull))


class Process:
    """A forked process that runs a fit: what takes long, importing, was done before."""

    def __init__(self, problem: str, checkpoint: Path, log: Path) -> None:
        warm_up(problem)
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.dup2(DEVNULL, 2)
                fit(problem, checkpoint, log)
                code = 0
            except BaseException:
                (log.parent / "traceback.txt").write_text(traceback.format_exc())
            finally:
                os._exit(code)

    def cpu_seconds(self) -> float | None:
        """Processor time so far; None once it has ended."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] == "Z" else (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill_after(self, cpu_seconds: float) -> bool:
        """Kill it when it has used so much processor time; whether it was still running."""
        deadline = time.monotonic() + MAX_SECONDS
        while (spent := self.cpu_seconds()) is not None and spent < cpu_seconds:
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} used {spent} s of the processor in {MAX_SECONDS} s")
            time.sleep(0.001)
        os.kill(self.pid, signal.SIGKILL)
        return os.waitpid(self.pid, 0)[1] == signal.SIGKILL

    def wait(self) -> tuple[int, float]:
        """Its exit code, and the processor time that it used."""
        _, status, usage = os.wait4(self.pid, 0)
        return status, usage.ru_utime + usage.ru_stime


def journaled(checkpoint: Path) -> int:
    """How many answers a checkpoint holds; what a kill cut off does not count."""
    if not (checkpoint / "journal.bin").exists():
        return 0
    journal = Journal(checkpoint / "journal.bin")
    journal.close()
    return journal.n_known


def content(saved: Path) -> dict[str, Any]:
    """All files of a saved explainer byte by byte, without how long its training took."""
    metadata = json.loads(metadata_file(saved).read_text())
    del metadata["content_sha256"]
    for row in metadata["history"]:
        del row["seconds"]
    weights = {path.name: path.read_bytes() for path in saved.glob("weights-*")}
    return {"metadata": metadata, **weights}
