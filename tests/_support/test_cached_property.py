"""Properties that are computed once, also in a process that was forked while another thread computed one."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, field

import pytest

from sointer._support import cached_property


@dataclass
class Slow:
    goes_on: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    n_computed: int = 0

    @cached_property
    def value(self) -> int:
        self.n_computed += 1
        self.begun.set()
        assert self.goes_on.wait(60)
        return 7


def test_it_is_computed_once() -> None:
    one = Slow()
    one.goes_on.set()
    assert (one.value, one.value, one.n_computed) == (7, 7, 1)
    assert isinstance(Slow.value, cached_property)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_another_thread_computes_one() -> None:
    busy, free = Slow(), Slow()
    free.goes_on.set()
    thread = threading.Thread(target=lambda: busy.value)
    thread.start()
    try:
        assert busy.begun.wait(60)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if free.value == 7 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        busy.goes_on.set()
        thread.join()
