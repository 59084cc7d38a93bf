"""Progress of a fit: bars on a real (pseudo-)terminal, lines where asked for, nothing elsewhere."""

from __future__ import annotations

import os
import re
import sys
import threading
import time

import numpy as np
import pytest

from quick import TAUGHT
from sointer import BlackBox, EnergyConfig, SOInter
from sointer._support.progress import History

pty = pytest.importorskip("pty")
fcntl = pytest.importorskip("fcntl")
termios = pytest.importorskip("termios")


class Terminal:
    """A pseudo-terminal to be standard error, read all the time: one that nobody reads stops whoever writes."""

    def __init__(self, columns: int) -> None:
        self.keyboard, screen = pty.openpty()
        size = b"".join(number.to_bytes(2, sys.byteorder) for number in (24, columns, 0, 0))
        fcntl.ioctl(screen, termios.TIOCSWINSZ, size)
        self.stream = os.fdopen(screen, "w")
        self.written = b""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        while True:
            try:
                self.written += os.read(self.keyboard, 65536)
            except OSError:  # the other end was closed
                return

    @property
    def text(self) -> str:
        return self.written.decode(errors="ignore")

    def close(self) -> str:
        """End it, and return all that was written."""
        if not self.stream.closed:
            self.stream.close()
            self.reader.join(10)
            os.close(self.keyboard)
        return self.text


@pytest.fixture
def terminal(monkeypatch):
    made = []

    def make(columns: int) -> Terminal:
        made.append(Terminal(columns))
        monkeypatch.setattr("sys.stderr", made[-1].stream)
        return made[-1]

    yield make
    monkeypatch.undo()
    for one in made:
        one.close()


def last_lines(text: str) -> list[str]:
    return [line for line in re.split(r"[\r\n]", re.sub(r"\x1b\[\w", "", text)) if line.strip()]


def test_a_fit_shows_stages_rate_time_left_queries_agreement_and_loss(terminal, small_problem, small_data):
    shown = terminal(130)
    SOInter(small_problem, **TAUGHT | {"query_budget": 500}).fit(small_data)
    text = shown.close()
    assert re.search(r"querying the model +\d+%\|", text)
    numbers = r"\| \d\d:\d\d left, +\S+ steps/s, agrees \d+\.\d%, queried \d+/500, loss \S+ *$"
    assert [line for line in last_lines(text) if re.match(r"learning +\d+%\|", line) and re.search(numbers, line)]
    assert text.rstrip(" ").endswith("\r")  # nothing stays behind


def test_a_narrow_terminal_leaves_out_what_matters_least(terminal):
    shown = terminal(62)
    history = History(n_queried=lambda: 4200, n_planned=5000)
    history.stage("learning", 10)
    history.record(held_out_agreement=0.971)
    time.sleep(0.15)  # tqdm draws ten times a second at most
    history.step(loss=0.25)
    while "agrees" not in shown.text:  # the reader takes its time
        time.sleep(0.01)
    lines = last_lines(shown.text)
    assert "agrees 97.1%" in lines[-1]
    assert "queried" not in lines[-1]
    assert "loss" not in lines[-1]
    assert max(map(len, lines)) <= 62
    history.close()


def test_a_slow_black_box_still_shows_that_it_is_being_asked(terminal):
    shown, asked = terminal(100), [0]
    history = History(n_queried=lambda: asked[0], n_planned=1000)
    history.stage("querying the model", 1000, unit="rows")
    asked[0] = 400  # in another thread, while this one waits
    deadline = time.monotonic() + 20
    while "queried 400/1,000" not in shown.text and time.monotonic() < deadline:
        time.sleep(0.05)
    history.close()
    assert re.search(r"querying the model +40%\|.*queried 400/1,000", shown.close())


def test_without_a_terminal_nothing_is_shown_unless_asked_for(capsys):
    for verbose, lines in ((None, 0), (False, 0), (True, 2)):
        history = History(verbose, n_queried=lambda: 7, n_planned=8)
        history.stage("querying", 7, unit="rows")
        history.stage("learning", 3)
        history.record(held_out_agreement=0.5)
        history.step(2, loss=0.125)
        history.close()
        captured = capsys.readouterr()
        assert captured.out == ""
        assert len(captured.err.splitlines()) == lines
        assert "\r" not in captured.err
    assert re.fullmatch(
        r"learning: 2 steps in 0\.\d s, agrees 50\.0%, queried 7/8, loss 0\.125", captured.err.splitlines()[1]
    )


def test_without_a_terminal_a_line_now_and_then_says_how_far_a_slow_black_box_is(capsys, monkeypatch):
    monkeypatch.setattr("sointer._support.progress.SECONDS_BETWEEN_LINES", 0.05)
    answered = [0]
    for verbose in (None, True):
        history = History(verbose, n_queried=lambda: 64, n_answered=lambda: answered[0], n_planned=128)
        history.stage("querying", 100, unit="rows")
        time.sleep(0.4)
        answered[0] = 50
        time.sleep(0.4)
        history.close()
        answered[0] = 0
        if verbose is None:
            assert capsys.readouterr().err == ""
    first, *_, last, summary = capsys.readouterr().err.splitlines()
    assert first == "querying: 0 of 100 rows, ? left, queried 64/128"
    assert re.fullmatch(r"querying: 50 of 100 rows, 00:0\d left, queried 64/128", last)
    assert summary.startswith("querying: 50 rows in 0.")


def test_rows_count_when_they_are_answered():
    seen = []

    def model(X):
        seen.append((box.n_queries, box.n_answered))
        return X > 0

    box = BlackBox(model, batch_size=4)
    box(np.ones((8, 2)))
    assert seen[-2:] == [(4, 0), (8, 4)]
    assert box.n_answered == 8


def test_how_long_a_slow_segmenter_will_take_is_known_from_its_first_answers(terminal):
    """Long before the first mixtures have come, which are sent many at a time."""
    shown, before_mixtures = terminal(130), []

    def slow(X):
        time.sleep(0.002 * len(X))
        if len(X) == 256 and not before_mixtures:
            time.sleep(1.5)  # the bar is drawn twice a second
            before_mixtures.append(shown.text)
        return (np.asarray(X)[:, 0] > 0.5).astype(int)

    images = np.random.default_rng(0).random((60, 1, 6, 6))
    energy = EnergyConfig(hidden=(4,), batch_size=4)
    SOInter(slow, query_budget=600, batch_size=256, random_state=0, energy=energy).fit(images)
    first = last_lines(before_mixtures[0])[-1]
    assert re.match(r"querying the model +\d+%\|.*\d\d:\d\d left", first), first
    assert re.search(r"learning +\d+%\|", shown.close())


def test_on_a_terminal_false_is_silent(terminal):
    shown = terminal(100)
    history = History(False)
    history.stage("learning", 3)
    history.step(loss=1.0)
    history.close()
    assert shown.close() == ""


def test_colours_only_on_a_terminal_that_wants_them(terminal, monkeypatch):
    pytest.importorskip("typer")
    from sointer.apps.cli.console import RED, coloured

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert coloured("error:", RED) == "error:"  # no terminal here
    terminal(80)
    assert coloured("error:", RED) == "\x1b[31m\x1b[1merror:\x1b[0m"
    monkeypatch.setenv("TERM", "dumb")
    assert coloured("error:", RED) == "error:"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured("error:", RED) == "error:"
