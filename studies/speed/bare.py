"""The physical limit of explaining: the interpreter's forward pass alone, on inputs that are tensors already."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from sointer.energy.image import ImageEnergy, Maps
from sointer.interpreter import scoring
from sointer.interpreter.effects import Effects, FirstLayer
from sointer.interpreter.image import ImageInterpreter
from sointer.interpreter.tables import Shown, TableInterpreter

PARTS: tuple[tuple[Any, str], ...] = (
    (ImageEnergy, "maps"),
    (ImageInterpreter, "forward"),
    (Effects, "first_layer"),
    (TableInterpreter, "forward"),
    (scoring, "whole_rows"),
    (scoring, "eliminate"),
)
"""What explaining images, tables and sparse rows calls: the network once per sample, the rest for every target."""
Calls = list[tuple[Any, tuple[Any, ...]]]


def recorded(explain: Callable[[], object]) -> Calls:
    """The calls of the interpreter that explaining makes: the network, and what it was given."""
    calls: Calls = []
    parts = [(kind, name, getattr(kind, name)) for kind, name in PARTS]
    try:
        for kind, name, part in parts:
            setattr(kind, name, noted(part, calls))
        explain()
    finally:
        for kind, name, part in parts:
            setattr(kind, name, part)
    if not calls:
        raise RuntimeError("explaining never called the interpreter, so there is no bare forward pass to compare with")
    return calls


def copied(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Explaining uses its tensors again, and those made in inference mode know no gradients, which saliency needs."""
    with torch.inference_mode(False):
        return tuple(_copied(x) for x in inputs)


def _copied(x: Any) -> Any:
    if torch.is_tensor(x):
        return x.clone()
    return type(x)(*(_copied(part) for part in x)) if isinstance(x, Shown | Maps | FirstLayer) else x


def noted(part: Callable[..., Any], calls: Calls) -> Callable[..., Any]:
    def call(first: Any, *inputs: Any) -> Any:
        calls.append((partial(part, first), copied(inputs)))
        return part(first, *inputs)

    return call


def in_one_batch(calls: Calls) -> Calls | None:
    """The same in a single call, where the inputs are dense rows."""
    if not isinstance(calls[-1][1][0], FirstLayer):
        return None
    (first_layer, _), (rest, _) = calls[:2]  # of one target they take turns, a chunk of samples at a time

    def whole(x: torch.Tensor, *inputs: Any) -> Any:
        return rest(first_layer(x), *inputs)

    tables = [inputs[0] for _, inputs in calls[::2]]
    starts = torch.tensor([0, *map(len, tables)]).cumsum(0)
    passes = []
    for start, (_, (_, sample, targets, *inputs)) in zip(starts, calls[1::2], strict=False):
        own = torch.arange(len(targets)) if sample is None else sample
        passes.append((start + own, targets, *inputs))
    return [(whole, (torch.cat(tables), *(_joined(parts) for parts in zip(*passes, strict=True))))]


def _joined(parts: tuple[Any, ...]) -> Any:
    if isinstance(parts[0], Shown):
        return Shown(*(torch.cat(each) for each in zip(*parts, strict=True)))
    return torch.cat(parts)


def replay(calls: Calls) -> None:
    with torch.no_grad():
        for network, inputs in calls:
            network(*inputs)


def median_seconds(works: dict[str, Callable[[], object]], n_repeats: int) -> dict[str, float]:
    """Median time of each of some works, which take turns, so that all of them meet the same machine."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(n_repeats):
        for name, work in works.items():
            started = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - started)
    return {name: statistics.median(found) for name, found in times.items()}
