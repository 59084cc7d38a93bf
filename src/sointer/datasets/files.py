"""The files of a data set: found in a local directory, else downloaded once into a cache, and checked either way."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sointer.errors import LoadError, require_extra

DATA_VARIABLE = "SOINTER_DATA"
CACHE_VARIABLE = "SOINTER_CACHE"
SECONDS_WITHOUT_ANSWER = 30

PathLike: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class RemoteFile:
    """A file, where the public copy is, and its hash where that is known."""

    name: str
    url: str
    sha256: str | None = None


def directories(data_home: PathLike | None) -> list[Path]:
    """Where to look: `data_home` or else $SOINTER_DATA, if given, and then the cache."""
    given = data_home if data_home is not None else os.environ.get(DATA_VARIABLE)
    return [Path(given).expanduser(), cache()] if given else [cache()]


def cache() -> Path:
    """Where downloads are kept: $SOINTER_CACHE, else .cache/sointer in the user's home. Nothing else is written to."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".cache" / "sointer"


def find(places: Sequence[Path], folder: str, name: str) -> Path | None:
    """The first such file, directly in one of the places or in the data set's own folder there."""
    candidates = (path for place in places for path in (place / name, place / folder / name))
    return next((path for path in candidates if path.is_file()), None)


def find_all(places: Sequence[Path], folder: str, files: Sequence[RemoteFile]) -> list[Path] | None:
    """Copies of all the files in one of the places, checked; None where there are none."""
    for place in places:
        paths = [path for file in files if (path := find([place], folder, file.name)) is not None]
        if len(paths) == len(files):
            for path, file in zip(paths, files, strict=True):
                check(path, file.sha256)
            return paths
    return None


def described(places: Sequence[Path]) -> str:
    """The places for a message, saying which do not exist."""
    return " and ".join(str(place) if place.is_dir() else f"{place} (no such directory)" for place in places)


@contextmanager
def downloaded(files: Sequence[RemoteFile], folder: Path) -> Iterator[list[Path]]:
    """Fetch the files that are not in the folder yet.

    If the caller cannot use them (an error inside the `with`), what was fetched is deleted again; otherwise its hash
    is recorded beside it, so that a later change is noticed even where the publisher gives no hash.
    """
    fetched: list[Path] = []
    try:
        for file in files:
            path = folder / file.name
            if not path.is_file():
                fetched.append(path)
                _fetch(file, folder)
            check(path, file.sha256)
        yield [folder / file.name for file in files]
    except BaseException:
        for path in fetched:
            path.unlink(missing_ok=True)
        raise
    for path in fetched:
        _record(path).write_text(f"{sha256_of(path)}  {path.name}\n", encoding="ascii")


def check(path: Path, expected: str | None) -> None:
    """Refuse a file whose hash is neither the known one nor, if none is known, the one recorded when it came."""
    record = _record(path)
    if expected is None and record.is_file():
        expected = record.read_text(encoding="ascii", errors="replace").split(" ")[0].strip()
    if expected is None:
        return
    got = sha256_of(path)
    if got != expected:
        raise LoadError(
            f"{path} is damaged or not the published file: its sha256 is {got}, expected {expected}. "
            "Remove it (and any .sha256 file beside it) and load again to download it, or put a good copy in its place."
        )


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _fetch(file: RemoteFile, folder: Path) -> None:
    pooch = require_extra("pooch", "datasets")
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=SECONDS_WITHOUT_ANSWER)
    known_hash = None if file.sha256 is None else f"sha256:{file.sha256}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _without_messages(pooch.get_logger()):
            pooch.retrieve(file.url, known_hash, fname=file.name, path=folder, downloader=downloader)
    except (OSError, ValueError) as exc:  # requests' errors are OSErrors; pooch reports a wrong hash as a ValueError
        raise LoadError(f"{file.url} could not be downloaded into {folder}: {exc}") from exc


@contextmanager
def _without_messages(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
