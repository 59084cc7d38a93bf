"""A fitted thing as a directory of JSON and safetensors, written atomically, checked when read, never a pickle."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as deserialise
from safetensors.torch import save as serialise
from torch import Tensor

from sointer._version import __version__
from sointer.errors import InputError, LoadError

WEIGHTS = re.compile(r"weights-[0-9a-f]{16}\.safetensors")
DRAFT = re.compile(r"\.(.+\.json|weights-[0-9a-f]{16}\.safetensors)-.*")

# What reading files that were changed can raise.
DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,  # also RecursionError
    SafetensorError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Storage:
    """How one kind of thing is kept: what it is called, the name of its JSON file, and the format's version."""

    what: str
    facts_file: str
    version: int

    def write(self, directory: str | os.PathLike[str], facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Write facts and tensors, whole or not at all.

        The weights go to a file named after their content; then the JSON file, which names that file, is put in
        place by one atomic rename. Until then what was saved there before stays as it was. Other files in the
        directory are left alone.
        """
        target = Path(directory).resolve()
        if target.exists() and not target.is_dir():
            raise InputError(f"{target} is a file, expected a directory for the {self.what}; choose another path.")
        if target.is_dir() and not (target / self.facts_file).exists() and any(map(is_foreign, target.iterdir())):
            raise InputError(
                f"{target} is not empty and holds no saved {self.what}; nothing was written. Choose a new directory."
            )
        weights = serialise({name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()})
        digest = hashlib.sha256(weights).hexdigest()
        name = f"weights-{digest[:16]}.safetensors"
        known = {"format": self.version, "sointer": __version__, "weights": {"file": name, "sha256": digest}, **facts}
        text = json.dumps(known, indent=1)
        target.mkdir(parents=True, exist_ok=True)
        put(target / name, weights)
        put(target / self.facts_file, text.encode())
        for old in target.iterdir():
            if WEIGHTS.fullmatch(old.name) and old.name != name:
                old.unlink(missing_ok=True)

    def read(self, directory: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What `write` wrote; LoadError if anything is missing or was changed."""
        source = Path(directory)
        facts = self._facts(source)
        try:
            return facts, deserialise(self._weights(source, facts["weights"]["file"], facts["weights"]["sha256"]))
        except LoadError:
            raise
        except DAMAGE as error:
            raise self.damaged(source, error) from error

    def damaged(self, source: Path, error: BaseException) -> LoadError:
        """The error for a directory whose content does not fit together."""
        return LoadError(
            f"{source} does not hold a whole {self.what} ({type(error).__name__}: {error}). Save it again."
        )

    def _facts(self, source: Path) -> dict[str, Any]:
        path = source / self.facts_file
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise LoadError(
                f"{source} is not a saved {self.what}: {self.facts_file} is missing. Give the directory that "
                f"{self.what}.save() wrote."
            ) from error
        except (OSError, ValueError, RecursionError) as error:
            raise LoadError(
                f"{path} cannot be read ({type(error).__name__}: {error}); the {self.what} is damaged. Save it again."
            ) from error
        found = facts.get("format") if isinstance(facts, dict) else None
        if found != self.version:
            raise LoadError(
                f"{source} has format {found!r}, this version of sointer ({__version__}) reads format {self.version}. "
                "Install the version that saved it, or fit and save again."
            )
        known: dict[str, Any] = facts
        return known

    def _weights(self, source: Path, name: str, digest: str) -> bytes:
        """The weights, if they are those that were saved: the name cannot lead elsewhere, the content is checked."""
        if not WEIGHTS.fullmatch(name):
            raise LoadError(
                f"{source / self.facts_file} names the weights file {name!r}, which save never writes. Save it again."
            )
        try:
            content: bytes = (source / name).read_bytes()
        except OSError as error:
            raise LoadError(f"{source / name} cannot be read ({error}). Save the {self.what} again.") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise LoadError(f"{source / name} is not what was saved (its checksum differs). Save it again.")
        return content


def is_foreign(path: Path) -> bool:
    """Whether a file is none that an interrupted `write` leaves behind."""
    return not (WEIGHTS.fullmatch(path.name) or DRAFT.fullmatch(path.name))


def put(path: Path, content: bytes) -> None:
    """Write a file under another name and rename it, so that `path` is never half written."""
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, 0o666 & ~UMASK)  # mkstemp makes files that only their owner can read
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _read_umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


# Read once: the setting belongs to the whole process, and can only be read by changing it.
UMASK = _read_umask()
