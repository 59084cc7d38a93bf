"""Modules of the studies, benchmarks and faults, imported as they import each other: from their own folders.

Several folders have a module of the same name (`tables`, `run`), so what one test imported must not be found by
the next.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FRAME = "experiments/frame"
PICTURES = re.compile(r"\]\(\.\./images/([^)]+)\)")
"""The pictures that a page shows."""


def run_studies(folder: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command that runs the studies of a folder of this repository."""
    command = [sys.executable, str(ROOT / folder / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def run_smoke(folder: str, out: Path, cache: Path) -> Path:
    """All its studies in their smoke setting, with models kept in `cache`; returns where results and pages are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOINTER_CACHE", str(cache))
        done = run_studies(folder, "--smoke", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def run_apart(folder: str, name: str, **arguments: Any) -> Any:
    """What `run(**arguments)` of a module gives in a process of its own: from one with many threads, as tests have
    them in the end, no process can be forked safely."""
    code = (
        f"import sys, json; sys.path[:0] = {[str(ROOT / folder), str(ROOT / FRAME)]}; import {name}; "
        f"print(json.dumps({name}.run(**json.loads(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", code, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def repo_scripts(folder: str, *names: str) -> Iterator[SimpleNamespace]:
    """The modules `names` of a folder of this repository; inside the block others of it can be imported too."""
    folders = [str(ROOT / folder), str(ROOT / FRAME)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*folders, *sys.path])
        known = set(sys.modules)
        try:
            yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
        finally:
            for name in set(sys.modules) - known:
                file = getattr(sys.modules[name], "__file__", None) or ""
                if any(Path(file).is_relative_to(place) for place in folders):
                    del sys.modules[name]
