"""Checkpoints: directories in which fit keeps the black box's outputs, to resume from there."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import torch

from sointer._support import __version__
from sointer._support.containers import is_sparse
from sointer._support.validation import is_integer
from sointer.blackbox.box import BlackBox
from sointer.blackbox.journal import Journal
from sointer.data.texts import Documents
from sointer.errors import CheckpointError, CheckpointWarning, warn_caller

JOURNAL, TRAINING, FINISHED = "journal.bin", "training", "explainer"
SAVED = ("explainer.json", "sequences.json")
"""One of these is there once the explainer is whole: of tables, texts and images, or of sequences."""
DIGEST = "sha256:"


class Fingerprinted(Protocol):
    """What a fit is about."""

    @property
    def data(self) -> Any: ...
    @property
    def input_format(self) -> Any: ...
    @property
    def groups(self) -> Any: ...
    @property
    def removal(self) -> Any: ...


class Checkpoint:
    """The journal of one fit, states of its training and, when it has ended, its explainer; for one fit at a time.

    Fit is deterministic, so the same fit sends the same queries again: known outputs come from the journal, and the
    explainer is the one that an uninterrupted fit would have given.
    """

    def __init__(self, directory: str | os.PathLike[str], random_state: Any) -> None:
        self.directory = Path(directory).resolve()
        self._random_state = _of_random_state(random_state)
        try:
            self._prepare()
            self.journal = Journal(self.directory / JOURNAL)
        except OSError as error:
            raise CheckpointError(f"{self.directory} cannot be used ({error}). Choose another checkpoint.") from error
        if damage := self.journal.damage:
            n_lost = sum(part.n_records for part in damage)
            where = ", ".join(f"{part.start} to {part.start + part.n_bytes}" for part in damage[:5])
            warn_caller(
                f"{self.directory / JOURNAL} is damaged: {n_lost} of its records are lost, at bytes {where}"
                f"{' ...' if len(damage) > 5 else ''}. The {self.journal.n_known} outputs in the others are used, and "
                "those lost are queried again.",
                CheckpointWarning,
            )
        known = self.journal.metadata or {}
        self.seed: int | None = None
        """What to draw from instead of random_state=None, always the same."""
        if random_state is None:
            self.seed = known["seed"] if is_integer(known.get("seed")) else secrets.randbits(63)

    def _prepare(self) -> None:
        if self.directory.exists() and not self.directory.is_dir():
            raise CheckpointError(f"{self.directory} is a file, expected a directory for the checkpoint.")
        if self.directory.is_dir() and not (self.directory / JOURNAL).exists() and any(self.directory.iterdir()):
            raise CheckpointError(
                f"{self.directory} is not empty and holds no checkpoint; nothing was written. Choose a new directory."
            )

    def replaying(self, black_box: BlackBox, wanted: dict[str, Any]) -> BlackBox:
        """The black box behind the outputs of the journal, if these belong to the fit with this fingerprint."""
        wanted = {**wanted, "random_state": self._random_state}
        if self.journal.metadata is None:
            self.journal.begin({"seed": self.seed, "n_allowed": black_box.remaining, "for": wanted})
        metadata = self.journal.metadata or {}
        kept = metadata.get("for")
        self._compare(kept if isinstance(kept, dict) else {}, wanted)
        return self.journal.replaying(black_box, metadata.get("n_allowed"))

    def _compare(self, kept: dict[str, Any], wanted: dict[str, Any]) -> None:
        found = [
            f"{name} differ"
            if DIGEST in f"{kept.get(name)} {value}"
            else f"{name} was {kept.get(name)!r}, is {value!r}"
            for name, value in wanted.items()
            if kept.get(name) != value
        ]
        if found:
            raise CheckpointError(
                f"the checkpoint {self.directory} is of another fit: {'; '.join(found)}. Fit with what it was begun "
                "with, or choose another directory."
            )

    def keep(self, save: Callable[[Path], None]) -> None:
        """Save the finished explainer."""
        try:
            save(self.finished)
        except OSError as error:
            raise CheckpointError(
                f"the explainer is fitted, but could not be saved in {self.finished} ({error.strerror or error}). All "
                "outputs of the model are kept: make room, then call fit again with the same checkpoint."
            ) from error

    @property
    def training(self) -> Path:
        """Where states of training are kept."""
        return self.directory / TRAINING

    @property
    def fit_digest(self) -> str:
        """Of all that decides what is learned, but for the outputs of the model."""
        return _digest(_json(self.journal.metadata))

    @property
    def finished(self) -> Path:
        """Where the finished explainer is kept."""
        return self.directory / FINISHED

    @property
    def is_finished(self) -> bool:
        """Whether the explainer is there; a kill while it was saved leaves its directory without its last file."""
        return any((self.finished / name).exists() for name in SAVED)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.journal.close()


def fingerprint(subject: Fingerprinted, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the queries of a fit on rows: short values as they are, long ones as digests."""
    removal_metadata, removal_arrays = subject.removal.state()
    arrays = [np.ascontiguousarray(array) for _, array in sorted(removal_arrays.items())]
    return {
        **plain_fingerprint(settings),
        "data": _digest(*_arrays_of(subject.data)),
        "features": _digest(_json(subject.input_format.to_json())),
        "groups": _digest(_json(subject.groups.to_json())),
        "removal": [removal_metadata.get("name"), _digest(_json(removal_metadata), *arrays)],
    }


def plain_fingerprint(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Values that JSON can hold, long ones as digests, and the versions of what computes with them."""
    versions = {"sointer": __version__, "torch": str(torch.__version__), "numpy": np.__version__}
    return {**{name: _short(value) for name, value in settings.items()}, **versions}


def _arrays_of(data: Any) -> list[Any]:
    shape = _json(list(data.shape))
    if isinstance(data, Documents):
        return [shape, _json(data.keys())]
    if is_sparse(data):
        return [shape, data.indptr.astype(np.int64), data.indices.astype(np.int64), data.data]
    return [shape, np.ascontiguousarray(data)]


def _digest(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
        digest.update(b"\0")
    return DIGEST + digest.hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, default=str).encode()


def _short(value: Any) -> Any:
    """What JSON gives back for a setting, or its digest if that is long."""
    text = _json(value)
    return json.loads(text) if len(text) <= 200 else _digest(text)


def _of_random_state(random_state: Any) -> Any:
    if random_state is None or is_integer(random_state):
        return None if random_state is None else int(random_state)
    if isinstance(random_state, np.random.Generator):
        return _digest(_json(random_state.bit_generator.state))
    if isinstance(random_state, np.random.RandomState):
        return _digest(repr(random_state.get_state(legacy=False)).encode())
    return repr(random_state)
