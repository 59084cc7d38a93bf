"""States of training, kept in a checkpoint: a fit that is called again takes no step that it has taken before."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from sointer._support.files import checked_size, put
from sointer._support.progress import History
from sointer.errors import CheckpointWarning, InputError, warn_caller

SECONDS_BETWEEN, MAX_SHARE = 1.0, 0.02
"""Within a stage a state is kept so often, but no larger share of the time is spent on that."""
MAX_HEADER_BYTES = 2**22
MAX_BYTES = 2**30
"""Of all states of a fit."""
STAGES = "stage-*.safetensors"
UNUSABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, MemoryError, SafetensorError)
"""What reading a file that holds anything can raise; RecursionError is one of RuntimeError."""


class Snapshots:
    """The last state of every stage of training, one file each; without a directory nothing is kept.

    Fit is deterministic: called again it comes to the same stages, with the same outputs of the model from the journal,
    and draws what it drew. So parameters and moments at the end of a stage, or after some of its steps, are all that is
    needed to leave these steps out. A file that is damaged, or of another fit, costs its stage.
    """

    def __init__(self, directory: Path | None = None, fit: str = "") -> None:
        self.directory, self.fit = directory, fit
        self.sizes: dict[Path, int] = {}
        self._n_stages, self._has_warned = 0, False

    def stage(self, tensors: Mapping[str, Tensor], n_steps: int, history: History) -> StoredStage:
        """Begin the next stage, of steps that change these tensors in place, up to step number `n_steps`."""
        self._n_stages += 1
        path = None if self.directory is None else self.directory / f"stage-{self._n_stages:03d}.safetensors"
        return StoredStage(self, path, tensors, n_steps, history)

    def warn(self, what: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn_caller(what, CheckpointWarning)

    def clear(self) -> None:
        """Delete all states: the explainer is finished."""
        if self.directory is not None:
            with suppress(OSError):
                for path in [*self.directory.glob(STAGES), *self.directory.glob(f".{STAGES}-*")]:
                    path.unlink()
                self.directory.rmdir()


class StoredStage:
    """Steps with one state; `n_done` of them were taken before, and the tensors are as they were after these."""

    def __init__(
        self,
        snapshots: Snapshots,
        path: Path | None,
        tensors: Mapping[str, Tensor],
        n_steps: int,
        history: History,
    ) -> None:
        self.n_done = 0
        self._snapshots, self._path, self._tensors, self._n_steps = snapshots, path, tensors, n_steps
        self._history, self._first_row = history, len(history.rows)
        self._name = f"{path and path.stem} of {snapshots.fit}"
        if path is not None and path.exists():
            try:
                self._restore(path)
            except UNUSABLE as error:
                snapshots.warn(
                    f"{path} cannot be used ({error!s:.200}): that part of the training is done again. Outputs of the "
                    "model are not affected."
                )
        self._due = time.monotonic() + SECONDS_BETWEEN

    def keep(self, n_done: int, *, is_last: bool = False) -> None:
        """Call after each step: writes the state at the end of the stage, early or not, and now and then before."""
        started, is_last = time.monotonic(), is_last or n_done == self._n_steps
        if self._path is None or n_done <= self.n_done or (not is_last and started < self._due):
            return
        rows = self._history.rows[self._first_row :]
        text = json.dumps({"stage": self._name, "n_done": n_done, "history": rows})
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in self._tensors.items()}
        content = save(tensors, {"snapshot": text, "blake2b": digest(text, tensors)})
        sizes = self._snapshots.sizes | {self._path: len(content)}
        if sum(sizes.values()) > MAX_BYTES:
            self._snapshots.warn(
                f"the states of training take more than {MAX_BYTES // 2**20:,} MB: later ones are not kept, and a fit "
                "that is called again repeats that part of its training. Outputs of the model are kept."
            )
            return
        try:
            put(self._path, content, private=True)
        except (OSError, InputError) as error:
            self._snapshots.warn(
                f"the state of training could not be written to {self._path} ({error}). Fit goes on; "
                "if it is stopped and called again, it repeats a part of its training."
            )
            self._path = None
            return
        self.n_done, self._snapshots.sizes = n_done, sizes
        now = time.monotonic()
        self._due = now + max(SECONDS_BETWEEN, (now - started) / MAX_SHARE)

    def _restore(self, path: Path) -> None:
        n_bytes = sum(tensor.nbytes for tensor in self._tensors.values())
        size = checked_size(path, within=path.parent)
        if size > n_bytes + MAX_HEADER_BYTES:
            raise ValueError(f"it has {size} bytes, expected about {n_bytes}")
        with safe_open(path, "pt") as file:
            header = file.metadata()
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        known: dict[str, Any] = json.loads(header["snapshot"])
        if digest(header["snapshot"], found) != header["blake2b"]:
            raise ValueError("it is damaged")
        if known["stage"] != self._name or _form(found) != _form(self._tensors):
            raise ValueError("it is of another fit or stage")
        rows, n_done = known["history"], known["n_done"]
        if type(n_done) is not int or not 0 < n_done <= self._n_steps:
            raise ValueError(f"it is of step {n_done!r:.20} of {self._n_steps}")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("its history is none")
        with torch.no_grad():
            for name, tensor in self._tensors.items():
                tensor.copy_(found[name])
        self._history.rows.extend(rows)
        self.n_done = n_done
        self._snapshots.sizes[path] = size


def digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Of all that a file holds."""
    found = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(tensors):
        found.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _form(tensors: Mapping[str, Tensor]) -> dict[str, tuple[Any, ...]]:
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
