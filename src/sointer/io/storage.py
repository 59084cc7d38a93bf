"""A fitted thing as a directory of JSON and safetensors, written atomically, checked when read, never a pickle."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from sointer._support import __version__
from sointer._support.files import (
    as_finite,
    check_writable,
    checked_size,
    content_digest,
    make_directory,
    put,
    read_file,
    strict_json,
)
from sointer.errors import InputError, LoadError

if TYPE_CHECKING:  # what reads metadata alone need not wait for torch
    from torch import Tensor, nn

try:
    import fcntl
except ImportError:  # on Windows, where saving twice at a time to one place is up to luck
    fcntl = None  # type: ignore[assignment]

WEIGHTS = re.compile(r"weights-[0-9a-f]{16}\.safetensors")
DRAFT = re.compile(r"\.(.+\.json|weights-[0-9a-f]{16}\.safetensors)-(draft-)?[a-z0-9_]{8}")
# JSON takes up to thirty times its size in memory: more of it than this only where the weights are larger still. Of few
# lists and objects, as where names are most of it, it takes half of that.
MIN_METADATA_BYTES, METADATA_SHARE, MAX_METADATA_BYTES = 2**23, 0.25, 2**27
BYTES_PER_PART = 40
MAX_HEADER_BYTES = 2**21
MAX_WEIGHTS_BYTES = 2**33
N_READINGS = 3

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
    """How one kind of thing is kept: what it is called, the name of its JSON file, and the format's version.

    Formats from `oldest` on can be read. Those before `version` have no checksum of the JSON file itself.
    """

    what: str
    metadata_file: str
    version: int
    oldest: int

    def write(self, directory: str | os.PathLike[str], metadata: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Write metadata and tensors, whole or not at all.

        The weights go to a file named after their content; then the JSON file, which names that file, is put in
        place by one atomic rename. Until then what was saved there before stays as it was. Other files in the
        directory are left alone.
        """
        target = self.check_place(directory)
        from safetensors.torch import save as serialise

        weights = serialise({name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()})
        digest = hashlib.sha256(weights).hexdigest()
        name = f"weights-{digest[:16]}.safetensors"
        manifest = {"file": name, "sha256": digest, "bytes": len(weights)}
        known = {"format": self.version, "sointer": __version__, "weights": manifest, **metadata}
        known["history"] = as_finite(metadata.get("history"))  # a loss may be anything
        known = {"format": self.version, "content_sha256": content_digest(known), **known}
        text = as_text(known, self.what)
        if len(text) > (most := _most_metadata_bytes(text, len(weights))):
            raise InputError(
                f"the {self.what} was not saved, as it could not be loaded: its names, labels and settings take "
                f"{len(text) / 1e6:.1f} MB beside weights of {len(weights) / 1e6:.1f} MB, expected at most "
                f"{most / 1e6:.1f} MB. Give features and labels shorter names, and fit again."
            )
        try:
            make_directory(target)
            with _alone_in(target):
                # For the owner alone: what was fitted on private data may hold some of them.
                put(target / name, weights, private=True)
                put(target / self.metadata_file, text, private=True)
                for old in target.iterdir():
                    if (WEIGHTS.fullmatch(old.name) and old.name != name) or DRAFT.fullmatch(old.name):
                        with suppress(OSError):  # what is left over does no harm
                            old.unlink()
        except OSError as error:
            megabytes = (len(weights) + len(text)) / 1e6
            raise type(error)(
                error.errno,
                f"{error.strerror or error}; the {self.what} ({megabytes:.1f} MB) was not saved, and one saved there "
                "before is as it was. Make room, or save to another directory",
                str(target),
            ) from error

    def check_place(self, directory: str | os.PathLike[str]) -> Path:
        """Where `write` would write; InputError if it would refuse to, or may not."""
        target = Path(directory).resolve()
        if target.exists() and not target.is_dir():
            raise InputError(f"{target} is a file, expected a directory for the {self.what}; choose another path.")
        check_writable(target)
        if target.is_dir() and not (target / self.metadata_file).exists() and any(map(is_foreign, target.iterdir())):
            raise InputError(
                f"{target} is not empty and holds no saved {self.what}; nothing was written. Choose a new directory."
            )
        return target

    def read(self, directory: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What `write` wrote; LoadError if anything is missing or was changed."""
        source = Path(directory)
        for tries_left in reversed(range(N_READINGS)):
            metadata, content = self._metadata(source)
            try:
                from safetensors.torch import load as deserialise

                tensors = deserialise(self._weights(source, metadata["weights"], metadata["format"]))
                for name, tensor in tensors.items():
                    need(not tensor.is_floating_point() or bool(tensor.isfinite().all()), f"{name:.80} is not finite")
                return metadata, tensors
            except LoadError:
                # Another process may have replaced the whole thing in between.
                if tries_left and self._changed(source, content):
                    continue
                raise
            except DAMAGE as error:
                raise self.damaged(source, error) from error
        raise AssertionError("the last reading returns or raises")

    def peek(self, directory: str | os.PathLike[str], *, whole: bool = False) -> dict[str, Any]:
        """The metadata of what `write` wrote, without importing torch; with `whole`, the weights are checked too."""
        source = Path(directory)
        metadata, _ = self._metadata(source)
        try:
            if whole:
                self._weights(source, metadata["weights"], metadata["format"])
        except DAMAGE as error:
            raise self.damaged(source, error) from error
        return metadata

    def damaged(self, source: Path, error: BaseException) -> LoadError:
        """The error for a directory whose content does not fit together."""
        return LoadError(
            f"{source} does not hold a whole {self.what} ({type(error).__name__}: {error!s:.300}). Save it again."
        )

    def _metadata(self, source: Path) -> tuple[dict[str, Any], bytes]:
        """The JSON file's content, checked, and its bytes."""
        path = source / self.metadata_file
        try:
            n_weights = _weights_bytes(source)
            content = read_file(path, within=source, max_bytes=2 * _most_metadata_bytes(b"", n_weights))
            if len(content) > (most := _most_metadata_bytes(content, n_weights)):
                raise ValueError(f"it has {len(content)} bytes, expected at most {most}")
            metadata, all_finite = strict_json(content)
            json.dumps(metadata, ensure_ascii=False).encode()  # half a character would be an error later on
        except (FileNotFoundError, NotADirectoryError) as error:
            raise LoadError(
                f"{source} is not a saved {self.what}: {self.metadata_file} is missing. Give the directory that "
                f"{self.what}.save() wrote."
            ) from error
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            raise LoadError(
                f"{path} cannot be read ({type(error).__name__}: {error!s:.300}); the {self.what} is damaged. Save it "
                "again."
            ) from error
        self._check_format(source, metadata.get("format") if isinstance(metadata, dict) else None)
        if metadata["format"] < self.version:
            return metadata, content
        expected = metadata.pop("content_sha256", None)
        if not all_finite or content_digest(metadata) != expected:
            raise LoadError(f"{path} is not what was saved (its checksum differs). Save the {self.what} again.")
        return metadata, content

    def _check_format(self, source: Path, found: Any) -> None:
        if type(found) is int and self.oldest <= found <= self.version:
            return
        reads = f"{self.oldest} to {self.version}" if self.oldest < self.version else f"{self.version}"
        newer = type(found) is int and found > self.version
        remedy = "Install a newer one." if newer else "Install the version that saved it, or fit and save again."
        raise LoadError(
            f"{source} has format {found!r:.50}, this version of sointer ({__version__}) reads format {reads}. {remedy}"
        )

    def _weights(self, source: Path, manifest: dict[str, Any], version: int) -> bytes:
        """The weights, if they are those that were saved: the name cannot lead elsewhere, the content is checked."""
        name, digest = manifest["file"], manifest["sha256"]
        if not isinstance(name, str) or not WEIGHTS.fullmatch(name):
            raise LoadError(
                f"{source / self.metadata_file} names the weights file {name!r:.100}, which save never writes. Save it "
                "again."
            )
        path = source / name
        try:
            size = checked_size(path, within=source)
            expected = manifest["bytes"] if version == self.version else size
            content = b""
            if size == expected and safetensors_size(path, size) == size:
                content = read_file(path, within=source, max_bytes=MAX_WEIGHTS_BYTES)
        except (OSError, ValueError, AttributeError, LookupError, TypeError, RecursionError) as error:
            raise LoadError(f"{path} cannot be read ({error!s:.300}). Save the {self.what} again.") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise LoadError(f"{path} is not what was saved (its checksum differs). Save the {self.what} again.")
        return content

    def _changed(self, source: Path, before: bytes) -> bool:
        try:
            return read_file(source / self.metadata_file, within=source, max_bytes=2 * MAX_METADATA_BYTES) != before
        except (OSError, ValueError):
            return False


def _weights_bytes(source: Path) -> int:
    n_weights = 0
    for path in source.glob("weights-*"):
        with suppress(FileNotFoundError):  # replaced while we look
            n_weights = max(n_weights, checked_size(path, within=source))
    return n_weights


def _most_metadata_bytes(content: bytes, n_weights: int) -> int:
    """How large the JSON file may be, by what is in it and the size of the weights."""
    most = min(MAX_METADATA_BYTES, max(MIN_METADATA_BYTES, int(METADATA_SHARE * n_weights)))
    n_parts = content.count(b"[") + content.count(b"{")
    return 2 * most if 0 < n_parts <= len(content) // BYTES_PER_PART else most


EXPLAINER = Storage("explainer", "explainer.json", 5, oldest=5)
SEQUENCES = Storage("explainer of sequences", "sequences.json", 1, oldest=1)


def storage_of(directory: str | os.PathLike[str]) -> Storage:
    """How the explainer in a directory is kept."""
    return SEQUENCES if (Path(directory) / SEQUENCES.metadata_file).exists() else EXPLAINER


def as_text(known: dict[str, Any], what: str) -> bytes:
    """The content of the JSON file."""
    try:
        json.dumps(known, ensure_ascii=False).encode()
        text = json.dumps(known, indent=1, allow_nan=False).encode()
        return text if len(text) <= MIN_METADATA_BYTES else json.dumps(known, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the {what} cannot be saved: a name or label in it is not valid text ({error}).") from error
    except ValueError as error:
        raise InputError(
            f"the {what} cannot be saved: it holds a number that is not finite ({error}). Fit it on other data."
        ) from error


def safetensors_size(path: Path, size: int) -> int:
    """How long a safetensors file should be, judging by its first bytes, so that no other is read whole."""
    with open(path, "rb") as file:
        n_header = int.from_bytes(file.read(8), "little")
        if not 2 <= n_header <= min(MAX_HEADER_BYTES, size - 8):
            return -1
        header, _ = strict_json(file.read(n_header))
    ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
    return 8 + n_header + max(ends, default=0)


def is_foreign(path: Path) -> bool:
    """Whether a file is none that an interrupted `write` leaves behind."""
    return not (WEIGHTS.fullmatch(path.name) or DRAFT.fullmatch(path.name))


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """One writer at a time, since each removes what it finds left over."""
    if fcntl is None:
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def need(holds: bool, what: str) -> None:
    """ValueError that says `what`, if it does not hold."""
    if not holds:
        raise ValueError(what)


def check_shapes(network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """ValueError if the weights are not those of such a network, which may be one without memory (device "meta")."""
    wanted = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in network.state_dict().items()}
    found = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in state.items()}
    different = [name for name in sorted(wanted.keys() | found.keys()) if wanted.get(name) != found.get(name)]
    need(not different, f"weights are not of the size that the settings say: {', '.join(different[:3])}")


def hash_of(metadata: dict[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of what would be saved."""
    # As saved files say it: without tuples and numpy's numbers.
    found = hashlib.sha256(content_digest(json.loads(json.dumps(metadata))).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()
