"""Cases that need a process of their own: memory is that of a whole process."""

from __future__ import annotations

import multiprocessing
import resource
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

from sointer.errors import SointerWarning


def in_new_process(function: Callable[..., dict[str, Any]], **arguments: Any) -> dict[str, Any]:
    """What a function returns in a process that knows torch but has done nothing yet."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sointer", "sointer.zoo", "sointer.explainers.baselines", "matplotlib.pyplot"])
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(_call, torch.get_num_threads(), function, arguments).result()


def _call(n_threads: int, function: Callable[..., dict[str, Any]], arguments: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(n_threads)
    warnings.simplefilter("ignore", SointerWarning)
    return function(**arguments)


def peak_gigabytes() -> float:
    """The most memory that this process has used so far."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
