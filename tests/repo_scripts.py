"""Modules of the studies, benchmarks and faults, imported as they import each other: from their own folders.

Several folders have a module of the same name (`tables`, `run`), so what one test imported must not be found by
the next.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parent.parent
FRAME = "experiments/frame"


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
