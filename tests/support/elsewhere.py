"""A device that is not there: tensors that claim to be elsewhere, and may not be mixed with those of the CPU.

It computes with the numbers of the CPU, so what comes out must be the same up to rounding, and it is as strict as CUDA
and MPS together: no operation mixes devices (but for single numbers and indices from the CPU), nothing becomes a numpy
array, no double precision, no generator of the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from sointer._support import torch_state

ELSEWHERE = torch.device("meta")
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


class Elsewhere(torch.Tensor):
    """A tensor on the device, whose numbers are in `host`."""

    host: torch.Tensor

    @staticmethod
    def __new__(cls, host: torch.Tensor) -> Elsewhere:
        made = torch.Tensor._make_wrapper_subclass(
            cls, host.shape, strides=host.stride(), storage_offset=host.storage_offset(), dtype=host.dtype,
            device=ELSEWHERE, requires_grad=False,
        )  # fmt: skip
        made.host = host
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Elsewhere({self.host!r})"

    def tolist(self) -> Any:
        return self.host.tolist()


class _Guard(TorchDispatchMode):
    """Sees what is made elsewhere from nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.n += 1
        return compute(func, args, kwargs or {})


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = func._schema.name.split("::")[1]
    flat = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
    there = [one for one in flat if isinstance(one, Elsewhere)]
    asked = kwargs.get("device")
    if name in ("_to_copy", "to", "copy_"):
        moves = name != "copy_" and asked is not None
        result = func(*tree_map(_host, args), **tree_map(_host, {**kwargs, **({"device": "cpu"} if moves else {})}))
        elsewhere = asked.type == ELSEWHERE.type if moves else isinstance(args[0], Elsewhere)
        if name == "copy_":
            return args[0]
        return _wrap(result.clone() if moves else result) if elsewhere else result
    if not there and (asked is None or torch.device(asked).type != ELSEWHERE.type):
        return func(*args, **kwargs)
    if there:
        indices = INDEXING & {name}
        mixed = [one for one in flat if not isinstance(one, Elsewhere) and one.ndim > 0]
        if indices:
            mixed = [one for one in mixed if one.dtype not in (torch.int64, torch.bool)]
            mixed += [] if isinstance(args[0], Elsewhere) else [args[0]]
        assert not mixed, f"{func} mixes devices: {[tuple(one.shape) for one in mixed]} are on the CPU"
    generator = kwargs.get("generator")
    assert generator is None, f"{func} draws elsewhere with a generator of the CPU"
    assert name not in ("uniform_", "normal_", "rand", "randn", "randint", "randperm", "bernoulli_"), f"{func} draws"
    if asked is not None:
        kwargs = {**kwargs, "device": "cpu"}
    result = func(*tree_map(_host, args), **tree_map(_host, kwargs))
    if name == "_local_scalar_dense":
        return result
    same = {id(one.host): one for one in there}  # of operations in place

    def wrapped(one: Any) -> Any:
        if not isinstance(one, torch.Tensor):
            return one
        return same[id(one)] if id(one) in same else _wrap(one)

    return tree_map(wrapped, result)


def _host(one: Any) -> Any:
    if not isinstance(one, Elsewhere):
        return one
    if one.stride() != one.host.stride():  # `parameter.data = ...` has changed the layout of the outside only
        one.host = torch.empty_strided(one.shape, one.stride(), dtype=one.dtype).copy_(one.host)
    return one.host


def _wrap(host: torch.Tensor) -> Elsewhere:
    assert host.dtype is not torch.float64, "double precision elsewhere"
    return Elsewhere(host)


@contextmanager
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Within the block device="cuda" is such a device."""

    def resolve(device: object) -> torch.device:
        return ELSEWHERE if device == "cuda" else torch_state.CPU

    original = torch_state.resolve_device
    for module in [module for name, module in sys.modules.items() if name.startswith("sointer")]:
        if getattr(module, "resolve_device", None) is original:
            monkeypatch.setattr(module, "resolve_device", resolve)
        if hasattr(module, "NO_MEMORY"):  # it is of the same name
            monkeypatch.setattr(module, "NO_MEMORY", nullcontext())
    with _Guard():
        yield "cuda"
