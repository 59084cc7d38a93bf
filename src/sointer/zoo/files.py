"""The files of a data set: found in a local directory, else downloaded once into a cache, and checked either way."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from sointer._support.files import put
from sointer.errors import LoadError, require_extra
from sointer.zoo.records import ENRON_LABELS, OHSUMED_LABELS

DATA_VARIABLE = "SOINTER_DATA"
CACHE_VARIABLE = "SOINTER_CACHE"
TIMEOUT_SECONDS = 30

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


_MULAN = (
    "https://raw.githubusercontent.com/tsoumakas/mulan/43f6389095ad71984264db4387a8074b22bc7d4a/data/multi-label/{}"
)
_BOOMER = "{}/mrapp-ke/Boomer-Datasets/f7e13d57a83f95c00098252641d69f78a8d0c204/{}"


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


def _mulan(name: str) -> ArffSource:
    def file(ending: str) -> RemoteFile:
        return RemoteFile(f"{name}{ending}", _MULAN.format(f"{name}/{name}{ending}"))

    return ArffSource((file("-train.arff"), file("-test.arff")), file(".xml"))


_MULAN_PAGE = "http://mulan.sourceforge.net/datasets-mlc.html"
_MEKA_PAGE = "https://waikato.github.io/meka/datasets/"

BIBTEX = MultiLabelSource(
    "bibtex",
    _MULAN_PAGE,
    'I. Katakis, G. Tsoumakas, I. Vlahavas, "Multilabel Text Classification for Automated Tag Suggestion", '
    "ECML/PKDD 2008 Discovery Challenge.",
    shape=(7395, 1836, 159),
    npz_sha256="02bb59e8f79b6a239b339ce4168073c3866989882045152bfc8bf1e5923cc13a",
    content_sha256="b1b3e3aab3bdeed17d4367b6ed0f9917c05e6efbceb3c879b3bbb70bd545e62a",
    arff=(_mulan("bibtex"),),
    label_prefix="TAG_",
)

ENRON = MultiLabelSource(
    "enron",
    _MULAN_PAGE,
    'B. Klimt, Y. Yang, "The Enron Corpus", ECML 2004; J. Read, B. Pfahringer, G. Holmes, "Multi-label '
    'Classification using Ensembles of Pruned Sets", ICDM 2008.',
    shape=(1702, 1001, 53),
    npz_sha256="7ccc427a76304312aba84e0a1673b6c5706cad3e747ddf2475227da38f66424c",
    content_sha256="56f7073bd0086f0b9ec6d72fb4f255e8b648f18a498bdf816422634ab14d5697",
    arff=(_mulan("enron"),),
    label_texts=ENRON_LABELS,
)

IMDB = MultiLabelSource(
    "imdb",
    _MEKA_PAGE,
    'J. Read, B. Pfahringer, G. Holmes, E. Frank, "Classifier chains for multi-label classification", '
    "Machine Learning 85(3), 2011.",
    shape=(120919, 1001, 28),
    arff=(
        ArffSource(
            (
                RemoteFile(
                    "imdb.arff",
                    _BOOMER.format("https://media.githubusercontent.com/media", "imdb.arff"),
                    "4c06df12806d36017864fd78f75c294d97a7bc8c1d0638eca93a1c7fc7cda0cd",
                ),
            ),
            RemoteFile("imdb.xml", _BOOMER.format("https://raw.githubusercontent.com", "imdb.xml")),
        ),
        ArffSource(
            (RemoteFile("IMDB-F.arff", "https://sourceforge.net/projects/meka/files/Datasets/IMDB-F.arff/download"),)
        ),
    ),
)

OHSUMED = MultiLabelSource(
    "ohsumed",
    _MEKA_PAGE,
    'W. Hersh et al., "OHSUMED: an interactive retrieval evaluation and new large test collection for research", '
    'SIGIR 1994; T. Joachims, "Text categorization with support vector machines", ECML 1998.',
    shape=(13929, 1002, 23),
    npz_sha256="499b7fbbda456708793c4f289e2914614c856d4bee3b74a3bee4489693e805ab",
    content_sha256="81227006c889117a5a25fcdd91cebae7ae9a66b194382d44809b9d02a37965ef",
    arff=(
        ArffSource(
            (
                RemoteFile(
                    "OHSUMED-F.arff",
                    "https://raw.githubusercontent.com/abuyukcakir/gooweml/"
                    "544122a6985949162373948ca6f0abacead47526/datasets/OHSUMED-F.arff",
                ),
            )
        ),
    ),
    n_train=6965,
    label_texts=OHSUMED_LABELS,
)

EMOTIONS = MultiLabelSource(
    "emotions",
    _MULAN_PAGE,
    'K. Trohidis, G. Tsoumakas, G. Kalliris, I. Vlahavas, "Multilabel Classification of Music into Emotions", '
    "ISMIR 2008.",
    shape=(593, 72, 6),
    npz_sha256="86fd38575e9870efe69c1b8daf00148aa07608b73d93348c5097dc3857a7c316",
    content_sha256="9f9ada17319bb7c4ecd4a1d7233d9dfeb2225d1e0f655011ca3f1c524a9bd1e2",
    arff=(_mulan("emotions"),),
)

SCENE = MultiLabelSource(
    "scene",
    _MULAN_PAGE,
    'M. Boutell, J. Luo, X. Shen, C. Brown, "Learning multi-label scene classification", Pattern Recognition 37(9), '
    "2004.",
    shape=(2407, 294, 6),
    npz_sha256="7e26844609247f84e8c3d8150500d6b97506591067db1ed3263bfa3f95183a2d",
    content_sha256="d968f71c2ccf93624c755b977333fadcf839b369c27eaf868f97a8caa315c57d",
    arff=(_mulan("scene"),),
)
