"""Ways to damage a saved explainer: by accident, and with intent (then every checksum is made right again)."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sointer._support.files import content_digest
from sointer.blackbox.checkpoint import SAVED

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, "", "x", [], {}, [[]], -1, 0, 1, 2, 0.5, -0.0, 1e308, 5e-324),
    *(2**31, 2**63, 2**64, 10**30, -(2**63), 1e19, "NaN", "../../etc/passwd", "\x00", "\ud800", "0" * 5000),
    *([2**40] * 3, [10**6] * 3, [1] * 5000, {"type": "function", "name": "x"}, "cuda:0", "object", "load", "O"),
)
DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL", "C64", "F8_E4M3", "X", "")

Damage = Callable[[Path, np.random.Generator], None]


class Payload:
    """What a pickle would run, if anything loaded it."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("true",)


# --- by accident -------------------------------------------------------------------------------------------


def flip_bits(saved: Path, rng: np.random.Generator) -> None:
    path = _any_file(saved, rng)
    content = bytearray(path.read_bytes())
    for place in rng.integers(len(content), size=int(rng.integers(1, 5))):
        content[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)


def cut_off(saved: Path, rng: np.random.Generator) -> None:
    path = _any_file(saved, rng)
    content = path.read_bytes()
    path.write_bytes(content[: int(rng.integers(len(content)))])


def shuffle_pieces(saved: Path, rng: np.random.Generator) -> None:
    path = _any_file(saved, rng)
    content = path.read_bytes()
    a, b, c = np.sort(rng.integers(len(content) + 1, size=3))
    path.write_bytes(content[:a] + content[b:c] + content[a:b] + content[c:] + content[a:b])


def lose_a_file(saved: Path, rng: np.random.Generator) -> None:
    _any_file(saved, rng).unlink()


# --- with intent -------------------------------------------------------------------------------------------


def change_metadata(saved: Path, rng: np.random.Generator) -> None:
    """Other values at some places of the JSON file."""
    metadata = json.loads(metadata_file(saved).read_text())
    for _ in range(int(rng.integers(1, 4))):
        holder, key = some_place(metadata, rng)
        action = int(rng.integers(4))
        if action == 0:
            del holder[key]
        elif action == 1 and isinstance(holder, list):
            holder.append(holder[key])
        elif action == 2 and isinstance(holder[key], int | float):
            holder[key] = holder[key] * int(rng.integers(-3, 1000))
        else:
            holder[key] = HOSTILE[int(rng.integers(len(HOSTILE)))]
    seal(saved, metadata)


def change_tensors(saved: Path, rng: np.random.Generator) -> None:
    """Other names, types, shapes or places in the header of the weights, or other numbers in them."""
    metadata = json.loads(metadata_file(saved).read_text())
    (path,) = saved.glob("weights-*")
    content = path.read_bytes()
    n_header = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + n_header]), bytearray(content[8 + n_header :])
    name = sorted(header)[int(rng.integers(len(header)))]
    action = int(rng.integers(7))
    entry = header[name]
    if action == 0:
        del header[name]
    elif action == 1:
        entry["dtype"] = DTYPES[int(rng.integers(len(DTYPES)))]
    elif action == 2:
        entry["shape"] = [int(side) for side in rng.permutation([*entry["shape"], 1])]
    elif action == 3:
        holder, key = some_place(entry, rng)
        holder[key] = HOSTILE[int(rng.integers(len(HOSTILE)))]
    elif action == 4:
        header[f"{name}.more"] = header.pop(name)
    elif action == 5:
        start, end = entry["data_offsets"]
        data[start:end] = rng.integers(256, size=end - start, dtype=np.uint8).tobytes()
    else:
        start, end = entry["data_offsets"]
        data[start:end] = (b"\xff" if rng.random() < 0.5 else b"\x7f") * (end - start)
    head = json.dumps(header).encode()
    reseal_weights(saved, metadata, len(head).to_bytes(8, "little") + head + bytes(data))


def change_file(saved: Path, rng: np.random.Generator) -> None:
    """Something else in the place of a file: a pipe, a directory, a link, a pickle, a hundred gigabytes of nothing."""
    path = _any_file(saved, rng)
    content = path.read_bytes()
    path.unlink()
    action = int(rng.integers(8))
    if action == 0:
        os.mkfifo(path)
    elif action == 1:
        path.mkdir()
    elif action == 2:
        path.symlink_to("/dev/zero")
    elif action == 3:
        outside = saved.parent / "outside"
        outside.write_bytes(content)
        path.symlink_to(outside)
    elif action == 4:
        path.write_bytes(pickle.dumps(Payload()))
    elif action == 5:
        path.write_bytes(content)
        os.truncate(path, 100 * 2**30)
    elif action == 6:
        path.symlink_to(path.name)
    else:
        path.write_bytes(b"[" * 10**6 if path.suffix == ".json" else (2**62).to_bytes(8, "little") + content[8:])


def repeat_a_key(saved: Path, rng: np.random.Generator) -> None:
    text = metadata_file(saved).read_text()
    metadata_file(saved).write_text(text.replace("{", '{"format": 3, "preset": "paper", ', 1))


def change_version(saved: Path, rng: np.random.Generator) -> None:
    metadata = json.loads(metadata_file(saved).read_text())
    metadata["format"] = (0, 1, 2, 2, 2, 4, 99, -1, "3", 3.0, None)[int(rng.integers(11))]
    if rng.random() < 0.7:  # as an old file, which has no checksum of its own
        holder, key = some_place(metadata, rng)
        if (holder, key) != (metadata, "format"):
            holder[key] = HOSTILE[int(rng.integers(len(HOSTILE)))]
    metadata_file(saved).write_text(json.dumps(metadata))


DAMAGES: dict[str, tuple[Damage, float]] = {
    "bits flipped": (flip_bits, 0.1),
    "cut off": (cut_off, 0.05),
    "pieces shuffled": (shuffle_pieces, 0.05),
    "a file lost": (lose_a_file, 0.01),
    "metadata changed, checksums right": (change_metadata, 0.35),
    "tensors changed, checksums right": (change_tensors, 0.25),
    "something else in place of a file": (change_file, 0.05),
    "a key repeated": (repeat_a_key, 0.01),
    "another format": (change_version, 0.13),
}


def metadata_file(saved: Path) -> Path:
    """The JSON file of a saved explainer, of any kind."""
    return next(path for path in map(saved.joinpath, SAVED) if path.exists())


def seal(saved: Path, metadata: Any) -> None:
    """Write metadata with the checksum that belongs to them."""
    metadata.pop("content_sha256", None)
    try:
        metadata["content_sha256"] = content_digest(metadata)
        metadata_file(saved).write_text(json.dumps(metadata))
    except (UnicodeEncodeError, ValueError):
        metadata_file(saved).write_text(json.dumps(metadata, ensure_ascii=True))


def reseal_weights(saved: Path, metadata: dict[str, Any], content: bytes) -> None:
    for old in saved.glob("weights-*"):
        old.unlink()
    digest = hashlib.sha256(content).hexdigest()
    name = f"weights-{digest[:16]}.safetensors"
    (saved / name).write_bytes(content)
    metadata["weights"] = {"file": name, "sha256": digest, "bytes": len(content)}
    seal(saved, metadata)


def fresh_copy(saved: Path, place: Path) -> None:
    """The explainer as it was, whatever was there before."""
    if place.exists():
        shutil.rmtree(place)
    shutil.copytree(saved, place)


def _any_file(saved: Path, rng: np.random.Generator) -> Path:
    files = sorted(path for path in saved.iterdir() if path.is_file())
    return files[int(rng.integers(len(files)))]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def some_place(value: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """A place anywhere inside; first which of the outermost parts, so that long lists are not all there is."""
    keys = list(value)
    key = keys[int(rng.integers(len(keys)))]
    places = [(value, key), *_places(value[key])]
    return places[int(rng.integers(len(places)))]
