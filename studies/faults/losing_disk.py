"""A disk that loses what was not synced when the power fails: whole writes, single sectors, names in directories.

Everything that happens below a folder is written down (`LosingDisk`), while it happens on the real disk as usual. Then
`after_power_failure` makes, for any moment, one of the states in which a disk may be found: what was synced is there,
and of the rest each part is there or not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

SECTOR = 512
PATCHED = ("open", "close", "write", "lseek", "ftruncate", "fsync", "replace", "unlink", "mkdir")


class Event(NamedTuple):
    """One thing that happened: what, to which file or name, and with what."""

    what: str
    file: Any
    more: Any = None


class LosingDisk:
    """Writes down what `os` does below `root` within the block."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.events: list[Event] = []
        self._real: dict[str, Callable[..., Any]] = {}
        self._open: dict[int, tuple[str | int, int]] = {}  # handle: directory or number of a file, and the place in it
        self._names: dict[str, int] = {}
        self._n_files = 0
        self._lock = threading.RLock()

    def mark(self, value: Any) -> None:
        """Note how far the program under test has come."""
        with self._lock:
            self.events.append(Event("mark", None, value))

    def __enter__(self) -> LosingDisk:
        for name in PATCHED:
            self._real[name] = getattr(os, name)
            setattr(os, name, self._watched(name))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for name, function in self._real.items():
            setattr(os, name, function)

    def _watched(self, name: str) -> Callable[..., Any]:
        real, note = self._real[name], getattr(self, f"on_{name}")

        def watched(first: Any, *args: Any, **kwargs: Any) -> Any:
            with self._lock:
                result = real(first, *args, **kwargs)
                if first in self._open if isinstance(first, int) else str(first).startswith(self.root):
                    note(result, first, *args)
                return result

        return watched

    def _note(self, what: str, file: Any, more: Any = None) -> None:
        self.events.append(Event(what, file, more))

    def on_open(self, handle: int, path: Any, *_: Any) -> None:
        name = str(path)
        if os.path.isdir(name):
            self._open[handle] = name, 0
            return
        if name not in self._names:
            self._names[name], self._n_files = self._n_files, self._n_files + 1
            self._note("name", name, self._names[name])
        self._open[handle] = self._names[name], 0

    def on_close(self, _: None, handle: int) -> None:
        del self._open[handle]

    def on_lseek(self, place: int, handle: int, *_: Any) -> None:
        self._open[handle] = self._open[handle][0], place

    def on_write(self, n: int, handle: int, content: Any) -> None:
        file, place = self._open[handle]
        self._note("write", file, (place, bytes(content)[:n]))
        self._open[handle] = file, place + n

    def on_ftruncate(self, _: None, handle: int, size: int) -> None:
        self._note("truncate", self._open[handle][0], size)

    def on_fsync(self, _: None, handle: int) -> None:
        self._note("sync", self._open[handle][0])

    def on_replace(self, _: None, old: Any, new: Any) -> None:
        self._names[str(new)] = self._names.pop(str(old))
        self._note("rename", str(old), (str(new), self._names[str(new)]))

    def on_unlink(self, _: None, path: Any, *_args: Any) -> None:
        self._names.pop(str(path), None)
        self._note("name", str(path), None)

    def on_mkdir(self, _: None, path: Any, *_args: Any) -> None:
        self._note("name", str(path), "directory")


def after_power_failure(events: Sequence[Event], place: Path, rng: np.random.Generator) -> None:
    """Make one of the states of the disk after a power failure that followed these events, in the folder `place`."""
    contents: dict[int, bytearray] = {}
    pending: dict[int, list[Event]] = {}
    names: dict[str, Any] = {}
    pending_names: dict[str, list[tuple[str, Any]]] = {}  # of each directory

    for event in events:
        if event.what in ("write", "truncate"):
            pending.setdefault(event.file, []).append(event)
        elif event.what == "name":
            pending_names.setdefault(os.path.dirname(event.file), []).append((event.file, event.more))
        elif event.what == "rename":
            new, file = event.more
            pending_names.setdefault(os.path.dirname(new), []).extend([(new, file), (event.file, None)])
        elif event.what == "sync" and isinstance(event.file, str):
            names.update(pending_names.pop(event.file, []))
        elif event.what == "sync":
            for one in pending.pop(event.file, []):
                _apply(contents.setdefault(event.file, bytearray()), one, None)
    lost = float(rng.choice([0.0, 0.5, 0.9, 1.0]))  # the share of what is lost
    for changes in pending_names.values():
        names.update(change for change in changes if rng.random() >= lost)
    for file, writes in pending.items():
        for one in writes:
            if one.what == "write" or rng.random() >= lost:
                _apply(contents.setdefault(file, bytearray()), one, lambda: rng.random() >= lost)
    for name, file in sorted(names.items()):
        path = place / name.lstrip("/")
        if not path.parent.is_dir():  # lost, and all that is in it
            continue
        if file == "directory":
            path.mkdir(exist_ok=True)
        elif file is not None:
            path.write_bytes(contents.get(file, bytearray()))


def _apply(content: bytearray, event: Event, is_kept: Callable[[], bool] | None) -> None:
    """Write or cut off; of a write, sectors that are not kept stay as they were, or zeros where there was nothing."""
    if event.what == "truncate":
        del content[event.more :]
        content.extend(bytes(event.more - len(content)))
        return
    start, written = event.more
    for first in range(start - start % SECTOR, start + len(written), SECTOR):
        a, b = max(first, start), min(first + SECTOR, start + len(written))
        if is_kept is None or is_kept():
            content.extend(bytes(max(0, b - len(content))))
            content[a:b] = written[a - start : b - start]
