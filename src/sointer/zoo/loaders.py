"""Loaders of public data sets, a local copy if there is one, else the public files."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from sointer.errors import InputError, LoadError, SointerWarning, warn_caller
from sointer.zoo.files import (
    ArffSource,
    ByteArray,
    Copy,
    MultiLabelData,
    MultiLabelSource,
    PathLike,
    RemoteFile,
    SegmentationData,
    StringArray,
    described,
    load_copy,
    random_split,
    read_source,
)
from sointer.zoo.formats import (
    ArffTable,
    LabelledRows,
    binary,
    read_arff,
    read_arrays,
    read_labelled_rows,
    read_mulan_labels,
)


def load_bibtex(data_home: PathLike | None = None, *, download: bool = True) -> MultiLabelData:
    """BibTeX entries: which of 1836 words occur, and the 159 tags that users gave (official split 4880 / 2515).

    The files call the tags "TAG_games" and so on; here they are "games".

    Parameters
    ----------
    data_home : path, optional
        A directory with the files; by default $SOINTER_DATA, then the cache.
    download : bool
        Whether to download files that are not there.

    Returns
    -------
    MultiLabelData

    Raises
    ------
    LoadError
        If the files are missing or damaged.
    """
    return load_multilabel(read_source("bibtex"), data_home, download)


def load_enron(data_home: PathLike | None = None, *, download: bool = True) -> MultiLabelData:
    """E-mails: which of 1001 words occur, and 53 labels on genre, topic and tone (official split 1123 / 579).

    Labels are codes such as "C.C6"; `label_descriptions` says what they mean.

    Parameters
    ----------
    data_home, download : as for `load_bibtex`

    Returns
    -------
    MultiLabelData
    """
    return load_multilabel(read_source("enron"), data_home, download)


def load_imdb(data_home: PathLike | None = None, *, download: bool = True) -> MultiLabelData:
    """Plots of films (MEKA's IMDB-F): which of 1001 words occur in 120919 plots, and their 28 genres.

    Parameters
    ----------
    data_home, download : as for `load_bibtex`

    Returns
    -------
    MultiLabelData
    """
    return load_multilabel(read_source("imdb"), data_home, download)


def load_ohsumed(data_home: PathLike | None = None, *, download: bool = True) -> MultiLabelData:
    """Medical abstracts: which of 1002 words occur, and 23 categories of disease (MEKA's split 6965 / 6964).

    Labels are codes such as "C04"; `label_descriptions` says what they mean.

    Parameters
    ----------
    data_home, download : as for `load_bibtex`

    Returns
    -------
    MultiLabelData
    """
    return load_multilabel(read_source("ohsumed"), data_home, download)


def load_emotions(data_home: PathLike | None = None, *, download: bool = True) -> MultiLabelData:
    """Pieces of music: 72 measures of their sound, and 6 emotions (official split 391 / 202).

    Parameters
    ----------
    data_home, download : as for `load_bibtex`

    Returns
    -------
    MultiLabelData
    """
    return load_multilabel(read_source("emotions"), data_home, download)


def load_scene(data_home: PathLike | None = None, *, download: bool = True) -> MultiLabelData:
    """Photographs: 294 measures of their colours, and 6 kinds of scene (official split 1211 / 1196).

    Parameters
    ----------
    data_home, download : as for `load_bibtex`

    Returns
    -------
    MultiLabelData
    """
    return load_multilabel(read_source("scene"), data_home, download)


def load_multilabel(source: MultiLabelSource, data_home: PathLike | None, download: bool) -> MultiLabelData:
    """Load any of these data sets: the `.npz` copy, else local ARFF files, else the public ones."""

    def read(paths: list[Path], is_new: bool, arff: ArffSource | None = None) -> MultiLabelData:
        rows = read_labelled_rows(paths[0]) if arff is None else _read(arff, paths)
        return _finished(source, rows, _listed(paths), must_match=is_new)

    npz = RemoteFile(f"{source.name}.npz", sha256=source.npz_sha256)
    copies = [Copy((npz,), read), *(Copy(arff.files, partial(read, arff=arff)) for arff in source.arff)]
    return load_copy(source.name, copies, data_home, download, source.page)


def content_hash(rows: LabelledRows) -> str:
    """A hash of names and values that does not depend on the file format they came in."""
    X = sparse.csr_matrix(rows.X, copy=True)
    X.sort_indices()
    digest = hashlib.sha256("\n".join([*rows.feature_names, "", *rows.label_names]).encode())
    for part, kind in ((X.indptr, "<i8"), (X.indices, "<i8"), (X.data, "<f4"), (rows.Y, "u1")):
        digest.update(np.ascontiguousarray(part, dtype=kind).tobytes())
    return digest.hexdigest()


def _finished(source: MultiLabelSource, rows: LabelledRows, origin: str, must_match: bool) -> MultiLabelData:
    _compare_with_published(source, rows, origin, must_match)
    split = rows.split
    if split is None and source.n_train is not None:
        split = _first_rows_train(rows.X.shape[0], source.n_train)
    texts = source.label_texts
    return MultiLabelData(
        name=source.name,
        X=rows.X,
        Y=rows.Y,
        feature_names=rows.feature_names,
        label_names=tuple(name.removeprefix(source.label_prefix) for name in rows.label_names),
        split=random_split(rows.X.shape[0]) if split is None else split,
        split_is_official=split is not None,
        source=origin,
        citation=source.citation,
        label_descriptions=None if texts is None else tuple(texts.get(name, "") for name in rows.label_names),
    )


def _compare_with_published(source: MultiLabelSource, rows: LabelledRows, origin: str, must_match: bool) -> None:
    """A download must have the published size; a local copy may differ, with a warning; so may values, in both."""
    shape = (*rows.X.shape, rows.Y.shape[1])
    if source.shape is not None and shape != source.shape:
        message = (
            f"{origin}: {shape[0]} samples, {shape[1]} features, {shape[2]} labels; "
            f"{source.name} as published has {source.shape[0]}, {source.shape[1]}, {source.shape[2]}."
        )
        if must_match:
            raise LoadError(f"{message} The public file has changed, or is incomplete.")
        warn_caller(f"{message} Do not report results on it as {source.name}.", SointerWarning)
    elif source.content_sha256 is not None and content_hash(rows) != source.content_sha256:
        message = f"{origin} has the size of {source.name} as published, but other values or names than we tested with."
        warn_caller(message, SointerWarning)


def _read(arff: ArffSource, paths: Sequence[Path]) -> LabelledRows:
    label_names = None if arff.labels is None else read_mulan_labels(paths[0])
    tables = [read_arff(path) for path in paths[len(paths) - len(arff.rows) :]]
    first = tables[0]
    for table in tables[1:]:
        if table.names != first.names:
            raise LoadError(f"{table.path} and {first.path} have different attributes.")
    labels = first.label_columns(label_names)
    is_label = np.zeros(len(first.names), dtype=np.bool_)
    is_label[labels] = True
    features = np.flatnonzero(~is_label)
    values = sparse.csr_matrix(sparse.vstack([table.values for table in tables]))
    try:
        Y = binary(sparse.csr_matrix(values[:, labels]))
    except ValueError as exc:
        raise LoadError(f"{_listed(paths)}: {exc}") from exc
    names = np.array(first.names, dtype=object)
    return LabelledRows(
        sparse.csr_matrix(values[:, features]), Y, tuple(names[features]), tuple(names[labels]), _split_of(tables)
    )


def _split_of(tables: Sequence[ArffTable]) -> StringArray | None:
    """A training and a test file, or one file that says how many of its first rows are for training."""
    n_rows = sum(table.values.shape[0] for table in tables)
    n_train = tables[0].n_train if len(tables) == 1 else tables[0].values.shape[0]
    return None if n_train is None else _first_rows_train(n_rows, n_train)


def _first_rows_train(n_rows: int, n_train: int) -> StringArray | None:
    if not 0 < n_train < n_rows:
        return None
    return np.repeat(np.array(["train", "test"]), [n_train, n_rows - n_train])


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in paths)


N_HORSES = 328

NPZ_SHA256 = {
    32: "df0b8eaaa790b5de5a9a0b6c77826c0afb91ae3c88626198325b0a3664bbc7be",
    128: "ab71762f474501e982c35511bc27cd1aaeaa1aa8fc3e45de8e6141b490abd624",
}
MAT_FILE = RemoteFile(
    "horse.mat",
    "https://raw.githubusercontent.com/iesl/seal-neurips-2022/989dc07509ce6b5705293f0784461ff9d5185c00/"
    "data_preprocessing/weizmann_horse_seg/horse.mat",
)
PIXELS_SHA256_32 = "e4c2d360a4d29a98f3edca9442f9b66f31d3164c197aac999e5fa0dce44770c3"
"""Hash of the 32 by 32 images and masks as they are returned, whatever file they came in."""


def load_weizmann_horses(
    data_home: PathLike | None = None, *, size: int = 32, download: bool = True
) -> SegmentationData:
    """328 horses and their masks, 32 by 32 or 128 by 128 pixels (split 160 train, 40 val, 128 test).

    The 32 by 32 images and the split are those of Li et al. 2013 and Gygli et al. 2017, who train on "train" and
    "val" together. The larger ones are read from a local copy only.

    Parameters
    ----------
    data_home : as in `load_bibtex`
    size : int, default 32
        Height and width, 32 or 128.
    download : as in `load_bibtex`

    Returns
    -------
    SegmentationData

    Raises
    ------
    InputError
        If there is no such size.
    LoadError
        If the files are missing or damaged.
    """
    if size not in NPZ_SHA256:
        raise InputError(f"size must be 32 or 128, got {size!r}")
    return load_horses(size, MAT_FILE, data_home, download)


def load_horses(size: int, mat_file: RemoteFile, data_home: PathLike | None, download: bool) -> SegmentationData:
    """The `.npz` copy, else, for the small ones, a local or the public MATLAB file."""
    npz = RemoteFile(f"weizmann_horses_{size}.npz", sha256=NPZ_SHA256[size])
    copies = [Copy((npz,), partial(_from_npz, size=size)), Copy((mat_file,), _from_mat)]
    return load_copy("weizmann_horses", copies if size == 32 else copies[:1], data_home, download)


def _from_npz(paths: list[Path], is_new: bool, size: int) -> SegmentationData:
    (path,) = paths
    arrays = read_arrays(path, ["images", "masks", "split", "file_names"])
    images = np.ascontiguousarray(arrays["images"].transpose(0, 3, 1, 2))
    return _checked(path, images, arrays["masks"], arrays["split"], tuple(arrays["file_names"].tolist()), size)


def _from_mat(paths: list[Path], is_new: bool) -> SegmentationData:
    """The file of Li et al.: `imgs` a list of images, `segs` one row of pixels, column by column, per mask."""
    (path,) = paths
    try:
        content = loadmat(str(path), variable_names=["imgs", "segs"])
        images = np.stack([_image(image) for image in np.ravel(content["imgs"])])
        masks = np.asarray(content["segs"], dtype=np.uint8).reshape(-1, 32, 32).transpose(0, 2, 1)
    except (OSError, ValueError, TypeError, LookupError, NameError, RuntimeError, MatReadError, zlib.error) as exc:
        raise LoadError(f"{path} cannot be read as the MATLAB file of the horses: {exc}") from exc
    # For each horse of the original database: 0 train, 1 validation, 2 test, as in Gygli et al. 2017.
    split = np.array(["train", "val", "test"])[[int(part) for part in described("weizmann_horses")["split"]]]
    file_names = tuple(f"horse{number:03d}.jpg" for number in range(1, N_HORSES + 1))
    data = _checked(path, images.transpose(0, 3, 1, 2), np.ascontiguousarray(masks), split, file_names, 32)
    if pixel_hash(data) != PIXELS_SHA256_32:
        warn_caller(f"{path} has other pixels than we tested with; look at a few.", SointerWarning)
    return data


def pixel_hash(data: SegmentationData) -> str:
    """Hash of images and masks as they are returned, whatever file they came in."""
    digest = hashlib.sha256(np.ascontiguousarray(data.images).tobytes())
    digest.update(np.ascontiguousarray(data.masks).tobytes())
    return digest.hexdigest()


def _image(given: Any) -> ByteArray:
    image = np.asarray(given)
    if image.shape != (32, 32, 3) or image.dtype != np.uint8:
        raise ValueError(f"expected images of 32 by 32 by 3 bytes, got shape {image.shape} of {image.dtype}")
    return image


def _checked(
    path: Path,
    images: npt.NDArray[Any],
    masks: npt.NDArray[Any],
    split: StringArray,
    file_names: tuple[str, ...],
    size: int,
) -> SegmentationData:
    expected = ((N_HORSES, 3, size, size), (N_HORSES, size, size), (N_HORSES,), N_HORSES)
    got = (images.shape, masks.shape, split.shape, len(file_names))
    if got != expected or images.dtype != np.uint8 or not np.isin(masks, (0, 1)).all():
        raise LoadError(f"{path}: images, masks, split and names should have the sizes {expected}, got {got}.")
    return SegmentationData(
        name=f"weizmann_horses_{size}",
        images=np.ascontiguousarray(images),
        masks=masks.astype(np.uint8),
        split=split,
        file_names=file_names,
        source=str(path),
        citation=described("weizmann_horses")["citation"],
    )
