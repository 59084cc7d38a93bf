"""What a model has answered is in the journal before anything else happens with it, whoever called the model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import joblib
import pytest

from quick import QUICK, TABLE, labels
from sointer import BlackBox, SOInter
from sointer._support.containers import row_keys
from sointer.blackbox.journal import KEY_BYTES, Journal

SLOW_DISK = 0.4


class Recording:
    """Writes down on its own disk what it has answered; in call number `kill_at` it waits, and kills a process."""

    def __init__(self, log: Path, kill_at: int, pid: int) -> None:
        self.log, self.kill_at, self.pid = log, kill_at, pid

    def has_killer(self) -> bool:
        try:
            os.close(os.open(f"{self.log}.killer", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return True
        return False

    def __call__(self, X):
        keys = row_keys(X)
        calls = os.open(f"{self.log}.calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(calls, b".")
        n_calls = os.fstat(calls).st_size
        os.close(calls)
        if n_calls >= self.kill_at and not self.has_killer():
            time.sleep(SLOW_DISK / 2)  # until all that the others have answered has been returned
            os.kill(self.pid, signal.SIGKILL)
            time.sleep(5)
        answers = labels(X)
        handle = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, b"".join(keys))
        os.close(handle)
        return answers


def fit_slowly(folder: Path, kill_at: int, n_jobs: int | None, backend: str) -> None:
    """A fit on a disk whose every sync takes long: whoever waits for it must not hold outputs that are not written."""
    sync = os.fsync

    def slow(handle: int) -> None:
        if kill_at and threading.current_thread() is not threading.main_thread():
            time.sleep(SLOW_DISK)
        sync(handle)

    os.fsync = slow
    model = BlackBox(Recording(folder / "log", kill_at, os.getpid()), batch_size=8, n_jobs=n_jobs)
    with warnings.catch_warnings(), joblib.parallel_config(backend=backend):
        warnings.simplefilter("ignore")
        SOInter(model, **QUICK).fit(TABLE, checkpoint=folder / "fit")


def lost(folder: Path) -> tuple[int, int]:
    """How many rows the model has answered, and how many of these are not in the journal."""
    log = (folder / "log").read_bytes()
    n_bytes = len(row_keys(TABLE[:1])[0])
    answered = {log[i : i + n_bytes] for i in range(0, len(log), n_bytes)}
    journal = Journal(folder / "fit" / "journal.bin")
    journal.close()
    known = {key[:n_bytes] for key in journal._known}
    assert n_bytes < KEY_BYTES
    return len(answered), len(answered - known)


@pytest.mark.parametrize(("n_jobs", "kill_at"), [(None, 3), (3, 5), (3, 6)], ids=["serial", "threads", "more threads"])
def test_no_answer_that_was_returned_is_lost_by_a_kill(n_jobs, kill_at, tmp_path):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            fit_slowly(tmp_path, kill_at, n_jobs, "threading")
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    n_answered, n_lost = lost(tmp_path)
    assert n_answered >= 16
    assert n_lost == 0


SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = [{here!r}, {support!r}]
from test_journal import fit_slowly
fit_slowly(Path({folder!r}), 6, 2, "loky")
"""


@pytest.mark.slow
def test_no_answer_that_came_from_another_process_is_lost_by_a_kill(tmp_path):
    here = Path(__file__).parent
    script = SCRIPT.format(here=str(here), support=str(here.parent / "support"), folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    n_answered, n_lost = lost(tmp_path)
    assert n_answered >= 16
    assert n_lost == 0
