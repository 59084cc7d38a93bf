"""How our own networks are computed: in one thread, the other cores being for the black box, and without denormals."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sointer._support.devices import CPU, computing_on, on_host

_lock = threading.Lock()
_n_inside = 0
_default_threads = 0
_default_flush = False
_here = threading.local()


@contextmanager
def one_thread(device: torch.device = CPU, *, lasts: bool = False) -> Iterator[None]:
    """Within the block torch does the work of this thread in this thread alone, on the device; afterwards as before.

    How sums are rounded depends on how many threads share them, so a fixed number gives the same results everywhere.
    It is one because training is made of small steps, because forked processes cannot use more, and because whoever
    wants more cores can explain from several threads. torch keeps the number per thread, but a new thread begins with
    the one that was set last, also if that was in here: where the block `lasts`, another thread sets it back at once,
    which takes a fifth of a millisecond.

    Numbers so small that processors handle them in slow motion count as zero meanwhile: where outputs are certain,
    gradients are full of them, and a step of training takes five times as long. A new thread inherits that too.
    """
    global _n_inside, _default_threads, _default_flush
    if getattr(_here, "inside", False):
        with computing_on(device):
            yield
        return
    with _lock:
        before, flushed = torch.get_num_threads(), flushes_denormals()
        if _n_inside == 0:
            _default_threads, _default_flush = before, flushed
        elif before == 1:
            before = _default_threads
        _n_inside += 1
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        if lasts:
            for_others = threading.Thread(target=torch.set_num_threads, args=(_default_threads,))
            for_others.start()
            for_others.join()
    _here.inside = True
    try:
        with computing_on(device):
            yield
    finally:
        _here.inside = False
        with _lock:
            _n_inside -= 1
            torch.set_num_threads(before)
            torch.set_flush_denormal(flushed)


def as_outside() -> None:
    """Let this thread, begun within `one_thread`, compute as its owner wants: it runs the black box."""
    if _default_threads:
        torch.set_num_threads(_default_threads)
        torch.set_flush_denormal(_default_flush)


@contextmanager
def outside() -> Iterator[None]:
    """Within the block this thread, inside `one_thread`, computes as its owner wants: it runs the black box."""
    if not getattr(_here, "inside", False):
        yield
        return
    as_outside()
    try:
        with on_host():
            yield
    finally:
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)


def flushes_denormals() -> bool:
    """Whether numbers too small for full precision count as zero in this thread; torch has no getter."""
    smallest = torch.tensor(torch.finfo(torch.float32).tiny)
    return float(smallest / 2) == 0.0


class ForkSafeLock:
    """A lock that may be taken again by its owner, and is free in forked processes, whoever held it at the fork."""

    def __init__(self) -> None:
        self._lock, self._process = threading.RLock(), os.getpid()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            self._lock, self._process = threading.RLock(), os.getpid()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_seed_lock = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within the block torch draws what `seed` says; afterwards what it would have drawn without it.

    One thread at a time, since there is one generator for all.
    """
    with _seed_lock, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _after_fork() -> None:
    """Of the threads, only the one that forked is there: locks that others held would never be released."""
    global _lock, _seed_lock, _n_inside
    _lock, _seed_lock, _n_inside = threading.Lock(), threading.RLock(), int(getattr(_here, "inside", False))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
