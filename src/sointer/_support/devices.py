"""Where our own networks are computed: on the CPU, or on another device that torch knows.

The code of energies and interpreters names no device. Within `computing_on` torch makes every new tensor on the
device, and hands numpy what it asks for; on the CPU nothing is changed at all. What is random is drawn on the CPU, so
that it is the same on every device, and double precision, which not every device has, stays there too.
"""

from __future__ import annotations

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
_here = threading.local()


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
