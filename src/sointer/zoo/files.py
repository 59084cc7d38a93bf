"""Data sets: what loaders return, and their files, found locally, else downloaded once, and checked either way."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from sointer._support.files import put
from sointer.errors import InputError, LoadError, require_extra

ByteArray: TypeAlias = npt.NDArray[np.uint8]
StringArray: TypeAlias = npt.NDArray[np.str_]
CsrMatrix: TypeAlias = "sparse.csr_matrix[np.float32]"


class DataPart(NamedTuple):
    """Rows of a multi-label data set."""

    X: CsrMatrix
    Y: ByteArray


class Images(NamedTuple):
    """Images of a segmentation data set, and their masks."""

    images: ByteArray
    masks: ByteArray


@dataclass(frozen=True, eq=False)
class MultiLabelData:
    """Documents, songs or photographs as rows of features, each with any number of labels."""

    name: str
    """Name of the data set."""
    X: CsrMatrix = field(repr=False)
    """One row per sample, one column per feature."""
    Y: ByteArray = field(repr=False)
    """One row per sample, one column per label; 1 where the sample has the label."""
    feature_names: tuple[str, ...] = field(repr=False)
    """One per column of X."""
    label_names: tuple[str, ...] = field(repr=False)
    """One per column of Y."""
    split: StringArray = field(repr=False)
    """"train" or "test" for each row."""
    split_is_official: bool
    """False where the publishers give no split, and ours is drawn at random with a fixed seed."""
    source: str
    """The files that were read."""
    citation: str = field(repr=False)
    """What to cite."""
    label_descriptions: tuple[str, ...] | None = field(default=None, repr=False)
    """What each label means, where its name is a code."""

    @property
    def train(self) -> DataPart:
        """The training rows."""
        return self.part("train")

    @property
    def test(self) -> DataPart:
        """The test rows."""
        return self.part("test")

    def part(self, *names: str) -> DataPart:
        """Take the rows of one part of the split, or of several together.

        Parameters
        ----------
        *names : str
            "train" or "test".

        Returns
        -------
        DataPart
            X and Y.
        """
        rows = rows_of(self.split, names)
        return DataPart(self.X[rows], self.Y[rows])

    @property
    def cardinality(self) -> float:
        """How many labels a sample has on average."""
        return float(self.Y.sum(axis=1).mean())


@dataclass(frozen=True, eq=False)
class SegmentationData:
    """Colour images, and for each of their pixels whether it belongs to the object."""

    name: str
    """Name of the data set."""
    images: ByteArray = field(repr=False)
    """Shape (images, 3, height, width); red, green, blue from 0 to 255."""
    masks: ByteArray = field(repr=False)
    """Shape (images, height, width); 1 on the object, 0 elsewhere."""
    split: StringArray = field(repr=False)
    """"train", "val" or "test" for each image."""
    file_names: tuple[str, ...] = field(repr=False)
    """One per image."""
    source: str
    """The file that was read."""
    citation: str = field(repr=False)
    """What to cite."""

    @property
    def train(self) -> Images:
        """The training images."""
        return self.part("train")

    @property
    def val(self) -> Images:
        """The validation images."""
        return self.part("val")

    @property
    def test(self) -> Images:
        """The test images."""
        return self.part("test")

    def part(self, *names: str) -> Images:
        """Take the images of one part of the split, or of several: `part("train", "val")`.

        Parameters
        ----------
        *names : str
            "train", "val" or "test".

        Returns
        -------
        Images
            Images and masks.
        """
        rows = rows_of(self.split, names)
        return Images(self.images[rows], self.masks[rows])


def rows_of(split: StringArray, names: tuple[str, ...]) -> npt.NDArray[np.intp]:
    """The numbers of the rows that belong to the named parts, in their order in the data."""
    known = np.unique(split).tolist()
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InputError(f"part() takes names of parts of the split, {known}; got {list(names)}")
    rows: npt.NDArray[np.intp] = np.flatnonzero(np.isin(split, names))
    return rows


def random_split(n_rows: int) -> StringArray:
    """Two thirds "train", one third "test", drawn with a fixed seed: the same rows on every machine."""
    # The legacy generator is the one whose stream numpy promises never to change.
    order: npt.NDArray[Any] = np.random.RandomState(0).permutation(n_rows)
    split = np.full(n_rows, "test", dtype="<U5")
    split[order[: round(n_rows * 2 / 3)]] = "train"
    return split


DATA_VARIABLE = "SOINTER_DATA"
CACHE_VARIABLE = "SOINTER_CACHE"
TIMEOUT_SECONDS = 30
SOURCES = Path(__file__).with_name("sources.json")
"""Where the public copies of data sets are, and what is known of them."""

PathLike: TypeAlias = str | os.PathLike[str]
Data = TypeVar("Data")


@dataclass(frozen=True)
class RemoteFile:
    """A file, the address of its public copy if there is one, and its hash if that is known."""

    name: str
    url: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Copy(Generic[Data]):
    """One form of a data set: its files, and a function of their paths and of whether they were just downloaded."""

    files: tuple[RemoteFile, ...]
    read: Callable[[list[Path], bool], Data]


def load_copy(
    name: str, copies: Sequence[Copy[Data]], data_home: PathLike | None, download: bool, page: str = ""
) -> Data:
    """Read the first copy that is in a local directory, else the first that can be downloaded.

    Files are looked for in `data_home` or else $SOINTER_DATA, if given, and then in the cache, directly or in a folder
    with the name of the data set.
    """
    given = data_home if data_home is not None else os.environ.get(DATA_VARIABLE)
    places = [] if not given else [_expanded(given)]
    failures: list[str] = []
    try:
        places.append(cache())
    except LoadError as failure:  # nowhere to download to, but the files may be there
        failures.append(str(failure))
        download = False
    for copy in copies:
        for place in places:
            paths = [_find(place, name, file) for file in copy.files]
            found = [path for path in paths if path is not None]
            if len(found) == len(paths):
                for path, file in zip(found, copy.files, strict=True):
                    check(path, file.sha256)
                return copy.read(found, False)
    public = [copy for copy in copies if all(file.url for file in copy.files)]
    for copy in public if download else ():
        try:
            with _downloaded(copy.files, cache() / name) as found:
                return copy.read(found, True)
        except LoadError as failure:
            failures.append(str(failure))
    looked_in = (
        "no directory"
        if not places
        else " and ".join(str(place) if place.is_dir() else f"{place} (no such directory)" for place in places)
    )
    looked_for = ", or ".join(" + ".join(file.name for file in copy.files) for copy in copies)
    lines = [f"{name} was not found. Looked in {looked_in} for {looked_for}.", *failures]
    if not public:
        lines.append("It cannot be downloaded in this form.")
    else:
        urls = " ".join(str(file.url) for file in public[0].files)
        lines += [] if download else ["Nothing was downloaded, because download=False."] * (not failures)
        lines.append(f"Without a network here, fetch elsewhere: {urls}{page and f' (see also {page})'}.")
    lines.append(f"Then pass their directory as data_home=, or in the environment variable {DATA_VARIABLE}.")
    raise LoadError("\n".join(lines))


def cache() -> Path:
    """Where downloads are kept: $SOINTER_CACHE, else .cache/sointer in the user's home. Nothing else is written to."""
    return _expanded(os.environ.get(CACHE_VARIABLE) or "~/.cache/sointer")


def _expanded(path: PathLike) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise LoadError(
            f"{path} is in your home directory, but there is none (the variable HOME is not set). Set {CACHE_VARIABLE} "
            "to a directory for downloads, or give data_home=."
        ) from error


def check(path: Path, expected: str | None) -> None:
    """Reject a file whose hash is neither the known one nor, if none is known, the one recorded at the download."""
    record = _record(path)
    if expected is None and record.is_file():
        expected = record.read_text(encoding="ascii", errors="replace").split(" ")[0].strip()
    if expected is None:
        return
    got = _sha256(path)
    if got != expected:
        raise LoadError(
            f"{path} is damaged or not the published file: its sha256 is {got}, expected {expected}. "
            "Remove it (and any .sha256 file beside it) and load again to download it, or put a good copy in its place."
        )


def _find(place: Path, folder: str, file: RemoteFile) -> Path | None:
    return next((path for path in (place / file.name, place / folder / file.name) if path.is_file()), None)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


@contextmanager
def _downloaded(files: Sequence[RemoteFile], folder: Path) -> Iterator[list[Path]]:
    """Download the files that are not in the folder yet.

    If the caller cannot use them (an error inside the `with`), they are deleted again; otherwise their hashes are
    recorded beside them, so that a later change is noticed even where the publisher gives no hash.
    """
    new: list[Path] = []
    try:
        for file in files:
            path = folder / file.name
            if not path.is_file():
                new.append(path)
                _fetch(file, folder)
            check(path, file.sha256)
        yield [folder / file.name for file in files]
    except BaseException:
        for path in new:
            path.unlink(missing_ok=True)
        raise
    for path in new:
        put(_record(path), f"{_sha256(path)}  {path.name}\n".encode("ascii"))


def _fetch(file: RemoteFile, folder: Path) -> None:
    pooch = require_extra("pooch", "datasets")
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=TIMEOUT_SECONDS)
    known_hash = None if file.sha256 is None else f"sha256:{file.sha256}"
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pooch.retrieve(file.url, known_hash, fname=file.name, path=folder, downloader=downloader)
    except (OSError, ValueError) as exc:  # requests' errors are OSErrors; pooch reports a wrong hash as a ValueError
        raise LoadError(f"{file.url} could not be downloaded into {folder}: {exc}") from exc
    finally:
        logger.setLevel(level)


@dataclass(frozen=True)
class ArffSource:
    """ARFF files that together are one data set."""

    rows: tuple[RemoteFile, ...]
    """A training and a test file, or one file with everything."""
    labels: RemoteFile | None = None
    """MULAN's list of labels; without it the ARFF file says how many attributes are labels."""

    @property
    def files(self) -> tuple[RemoteFile, ...]:
        """All files, the list of labels first."""
        return self.rows if self.labels is None else (self.labels, *self.rows)


@dataclass(frozen=True)
class MultiLabelSource:
    """A data set and all its public forms."""

    name: str
    page: str
    citation: str
    shape: tuple[int, int, int] | None = None
    """How many samples, features and labels the published data set has."""
    content_sha256: str | None = None
    """Hash of the parsed content (see `content_hash`), which holds for every file format."""
    npz_sha256: str | None = None
    arff: tuple[ArffSource, ...] = ()
    """Public copies, best first."""
    n_train: int | None = None
    """Where the publishers train on the first rows of a single file: how many."""
    label_prefix: str = ""
    """What every label name starts with in the files, and is left out here."""
    label_texts: Mapping[str, str] | None = None


def described(name: str) -> dict[str, Any]:
    """What sources.json says of a data set."""
    found: dict[str, Any] = json.loads(SOURCES.read_text(encoding="utf-8"))[name]
    return found


def read_source(name: str) -> MultiLabelSource:
    """A multi-label data set of sources.json."""
    found = described(name)
    arff = tuple(
        ArffSource(
            tuple(RemoteFile(**file) for file in copy["rows"]),
            RemoteFile(**copy["labels"]) if "labels" in copy else None,
        )
        for copy in found.pop("arff")
    )
    return MultiLabelSource(name, **(found | {"shape": tuple(found["shape"])}), arff=arff)
