"""A fitted model as a directory of JSON and safetensors, written atomically, checked when read, never a pickle."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as deserialise
from safetensors.torch import save as serialise
from torch import Tensor

from sointer._version import __version__
from sointer.errors import InputError, LoadError

FORMAT = 1
FACTS = "model.json"
WEIGHTS = re.compile(r"weights-[0-9a-f]{16}\.safetensors")


def write(directory: str | os.PathLike[str], facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write the model, whole or not at all.

    The weights go to a file named after their content; then model.json, which names that file, is put in
    place by one atomic rename. Until then a model saved there before stays as it was.
    """
    target = Path(directory).resolve()
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file, expected a directory for the model; choose another path.")
    if target.is_dir() and not (target / FACTS).exists() and any(target.iterdir()):
        raise InputError(
            f"{target} is not empty and holds no saved model; nothing was written. Choose a new directory."
        )
    weights = serialise({name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()})
    digest = hashlib.sha256(weights).hexdigest()
    name = f"weights-{digest[:16]}.safetensors"
    known = {"format": FORMAT, "sointer": __version__, "weights": {"file": name, "sha256": digest}, **facts}
    text = json.dumps(known, indent=1)
    target.mkdir(parents=True, exist_ok=True)
    _put(target / name, weights)
    _put(target / FACTS, text.encode())
    for old in target.iterdir():
        if WEIGHTS.fullmatch(old.name) and old.name != name:
            old.unlink(missing_ok=True)


def read(directory: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `write` wrote; LoadError if anything is missing or was changed."""
    source = Path(directory)
    try:
        facts = json.loads((source / FACTS).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise LoadError(
            f"{source} is not a saved model: {FACTS} is missing. Give the directory that model.save() wrote."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(
            f"{source / FACTS} cannot be read ({type(error).__name__}: {error}); the model is damaged. Save it again."
        ) from error
    found = facts.get("format") if isinstance(facts, dict) else None
    if found != FORMAT:
        raise LoadError(
            f"{source} has format {found!r}, this version of sointer ({__version__}) reads format {FORMAT}. "
            "Install the version that saved it, or fit and save again."
        )
    try:
        return facts, deserialise(_checked_weights(source, facts["weights"]["file"], facts["weights"]["sha256"]))
    except (KeyError, TypeError, SafetensorError) as error:
        raise LoadError(
            f"{source} does not hold a whole model ({type(error).__name__}: {error}). Save it again."
        ) from error


def _checked_weights(source: Path, name: str, digest: str) -> bytes:
    """The weights, if they are those that were saved: the name cannot lead elsewhere, the content is checked."""
    if not WEIGHTS.fullmatch(name):
        raise LoadError(f"{source / FACTS} names the weights file {name!r}, which save never writes. Save it again.")
    try:
        content: bytes = (source / name).read_bytes()
    except OSError as error:
        raise LoadError(f"{source / name} cannot be read ({error}). Save the model again.") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise LoadError(f"{source / name} is not what was saved (its checksum differs). Save it again.")
    return content


def _put(path: Path, content: bytes) -> None:
    """Write a file under another name and rename it, so that `path` is never half written."""
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(draft, 0o666 & ~umask)  # mkstemp makes files that only their owner can read
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
