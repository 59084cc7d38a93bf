"""How our own networks are computed: in one thread, without denormals, on the CPU or another device that torch knows.

The other cores are for the black box. The code of energies and interpreters names no device: within `computing_on`
torch makes every new tensor on the device, and hands numpy what it asks for; on the CPU nothing is changed at all. What
is random is drawn on the CPU, so that it is the same on every device, and double precision, which not every device has,
stays there too.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sointer.errors import InputError

CPU = torch.device("cpu")
KINDS = ("cuda", "mps")
FACTORIES = {torch.arange, torch.empty, torch.eye, torch.full, torch.linspace, torch.ones, torch.zeros}
MOVED = {torch.as_tensor, torch.tensor, torch.rand, torch.randn, torch.randint, torch.randperm}
"""What is made on the CPU first, where its numbers come from."""
DRAWN_IN_PLACE = {Tensor.normal_, Tensor.uniform_, Tensor.bernoulli_, Tensor.exponential_, Tensor.random_}


def resolve_device(device: object) -> torch.device:
    """The device that a user means by "auto", "cpu", "cuda", "cuda:1" or "mps"; InputError if it is not there."""
    there = {"cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0}
    there["mps"] = int(torch.backends.mps.is_available())
    found = [kind for kind in KINDS if there[kind]]
    name = str(device) if isinstance(device, torch.device) else device
    if name == "auto":
        return torch.device(found[0] if found else "cpu")
    match = re.fullmatch(r"(cpu|cuda|mps)(?::(\d{1,3}))?", name) if isinstance(name, str) else None
    if match is None or (match[2] and match[1] == "cpu"):
        raise InputError(f'device must be "auto", "cpu", "cuda", "mps" or such as "cuda:1", got {device!r}.')
    kind, number = match[1], int(match[2] or 0)
    if kind != "cpu" and number >= there[kind]:
        has = " and ".join(f"{there[one]} of kind {one!r}" for one in found) or "none but the CPU"
        raise InputError(f'device={name!r} is not there: torch finds {has}. Give device="cpu", or "auto" for the best.')
    return CPU if kind == "cpu" else torch.device(match[0])


def device_of(network: nn.Module) -> torch.device:
    """Where a network is computed."""
    return next((tensor.device for tensor in (*network.parameters(), *network.buffers())), CPU)


@contextmanager
def computing_on(device: torch.device) -> Iterator[None]:
    """Within the block this thread's tensors are made on the device; on the CPU nothing changes."""
    if device.type == "cpu":
        yield
        return
    with _OnDevice(device):
        yield


@contextmanager
def on_host() -> Iterator[None]:
    """Within the block torch is as its owner left it, also inside `computing_on`."""
    before = getattr(_here, "paused", False)
    _here.paused = True
    try:
        yield
    finally:
        _here.paused = before


class _OnDevice(TorchFunctionMode):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(_here, "paused", False):
            return func(*args, **kwargs)
        if func in FACTORIES and kwargs.get("device") is None:
            where = CPU if kwargs.get("dtype") is torch.float64 else self.device
            return func(*args, **kwargs | {"device": where})
        if func in MOVED and kwargs.get("device") is None:
            return self._moved(func(*args, **kwargs))
        if func in DRAWN_IN_PLACE or getattr(func, "__module__", None) == "torch.nn.init":
            return self._drawn(func, args, kwargs)
        if func is Tensor.numpy or func is Tensor.__array__ or func is Tensor.double:
            return func(args[0].to(CPU), *args[1:], **kwargs)
        if func is torch.multinomial:
            return self._moved(func(args[0].to(CPU), *args[1:], **kwargs))
        return func(*args, **kwargs)

    def _moved(self, tensor: Tensor) -> Tensor:
        return tensor if tensor.dtype is torch.float64 else tensor.to(self.device)

    def _drawn(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Draw what a tensor is filled with on the CPU."""
        target: Tensor = args[0] if args else kwargs.pop("tensor")
        own = target.detach().to(CPU)
        func(own, *args[1:], **kwargs)
        with torch.no_grad():
            target.copy_(own)
        return target


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
