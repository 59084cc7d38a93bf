"""The studies of this repository, as tests use them: their modules, and the command that runs them."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import forking

ROOT = Path(__file__).parents[2]
PICTURES = re.compile(r"\]\(\.\./images/([^)]+)\)")
"""The pictures that a page shows."""


def run_studies(*arguments: str, fresh: bool = True) -> subprocess.CompletedProcess[str]:
    """`python -m studies`, with these arguments, in a fresh interpreter or a forked one."""
    if not fresh:
        return forking.run(["-m", "studies", *arguments], cwd=ROOT)
    command = [sys.executable, "-m", "studies", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)


def run_smoke(family: str, out: Path, cache: Path, *, fresh: bool = True) -> Path:
    """All its studies in their smoke setting, with models kept in `cache`; returns where results and pages are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOINTER_CACHE", str(cache))
        done = run_studies("run", family, "--smoke", "--out", str(out), fresh=fresh)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def run_apart(family: str, name: str, **arguments: Any) -> Any:
    """What `run(**arguments)` of a module gives in a process of its own, with one thread: from one with many, as tests
    have them in the end, no process can be forked safely."""
    code = (
        f"import sys, json; from studies.{family} import {name}; "
        f"print(json.dumps({name}.run(**json.loads(sys.argv[1]))))"
    )
    done = forking.run(["-c", code, json.dumps(arguments)], cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def study_modules(family: str, *names: str) -> SimpleNamespace:
    """The modules `names` of a family."""
    return SimpleNamespace(**{name: importlib.import_module(f"studies.{family}.{name}") for name in names})
