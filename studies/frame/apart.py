"""Measure in a process of its own: memory is that of a whole process, and nothing is warm or in the way."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def apart(function: Callable[..., dict[str, Any]], **settings: Any) -> dict[str, Any]:
    """What a function of a module returns when a fresh interpreter with one thread calls it, and its peak memory.

    Settings and result are plain JSON values. quick=True calls it here instead: nothing is measured, only tried.
    """
    if settings.get("quick"):
        return measured(function(**settings))
    command = [
        sys.executable,
        "-m",
        "studies.frame.apart",
        function.__module__,
        function.__name__,
        json.dumps(settings),
    ]
    done = subprocess.run(
        command, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True, check=False, cwd=ROOT
    )
    if done.returncode != 0:
        raise RuntimeError(f"{function.__name__}({settings}) failed in a process of its own:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def in_new_process(function: Callable[..., dict[str, Any]], **arguments: Any) -> dict[str, Any]:
    """What a function returns in a process that knows torch but has done nothing yet."""
    import torch  # not above: a process of `apart` loads nothing but what it measures

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sointer", "sointer.zoo", "sointer.explainers.baselines", "matplotlib.pyplot"])
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(_call, torch.get_num_threads(), function, arguments).result()


def _call(n_threads: int, function: Callable[..., dict[str, Any]], arguments: dict[str, Any]) -> dict[str, Any]:
    import torch

    from sointer.errors import SointerWarning

    torch.set_num_threads(n_threads)
    warnings.simplefilter("ignore", SointerWarning)
    return function(**arguments)


def measured(found: dict[str, Any]) -> dict[str, Any]:
    """What was found, and where."""
    return json.loads(json.dumps({"peak_gigabytes": peak_gigabytes(), "n_cores": os.cpu_count(), **found}))


def peak_gigabytes() -> float:
    """The most memory that this process ever held."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent held before this process became another program
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return round(int(line.split()[1]) / 2**20, 3)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(used / (2**30 if sys.platform == "darwin" else 2**20), 3)


def main() -> None:
    module, function, settings = sys.argv[1:]
    warnings.simplefilter("ignore")
    found = getattr(importlib.import_module(module), function)(**json.loads(settings))
    print(json.dumps(measured(found)))


if __name__ == "__main__":
    main()
