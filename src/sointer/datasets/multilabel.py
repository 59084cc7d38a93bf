"""Loaders of public multi-label data sets: a local copy if there is one, else the public files."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse

from sointer.datasets import files, sources
from sointer.datasets.arff_files import ArffTable, read_arff, read_mulan_labels
from sointer.datasets.files import PathLike
from sointer.datasets.npz_files import LabelledRows, binary, read_labelled_rows
from sointer.datasets.records import MultiLabelData, StringArray, random_split
from sointer.datasets.sources import ArffSource, MultiLabelSource
from sointer.errors import LoadError, SointerWarning


def load_bibtex(data_home: PathLike | None = None, *, download: bool = True) -> MultiLabelData:
    """BibTeX entries: which of 1836 words occur, and the 159 tags that users gave (official split 4880 / 2515).

    The files call the tags "TAG_games" and so on; here they are "games".
    """
    return load_multilabel(sources.BIBTEX, data_home, download)


def load_enron(data_home: PathLike | None = None, *, download: bool = True) -> MultiLabelData:
    """E-mails: which of 1001 words occur, and 53 labels on genre, topic and tone (official split 1123 / 579).

    Labels are codes such as "C.C6"; `label_descriptions` says what they mean.
    """
    return load_multilabel(sources.ENRON, data_home, download)


def load_imdb(data_home: PathLike | None = None, *, download: bool = True) -> MultiLabelData:
    """Plots of films (MEKA's IMDB-F): which of 1001 words occur in 120919 plots, and their 28 genres."""
    return load_multilabel(sources.IMDB, data_home, download)


def load_wikimovies(data_home: PathLike | None = None, *, genre_words: bool = True) -> MultiLabelData:
    """Films as Wikipedia introduces them: which of 1001 words occur, and 28 genres. This is not IMDB.

    The texts often say the genre outright; `genre_words=False` leaves those words out of the features.
    Read from a local copy only. No official split.
    """
    data = load_multilabel(sources.WIKIMOVIES, data_home, download=False)
    if genre_words:
        return data
    kept = np.flatnonzero(~read_labelled_rows(Path(data.source))[1]["genre_word"])
    return replace(data, X=data.X[:, kept], feature_names=tuple(data.feature_names[i] for i in kept))


def load_ohsumed(data_home: PathLike | None = None, *, download: bool = True) -> MultiLabelData:
    """Medical abstracts: which of 1002 words occur, and 23 categories of disease (MEKA's split 6965 / 6964).

    Labels are codes such as "C04"; `label_descriptions` says what they mean.
    """
    return load_multilabel(sources.OHSUMED, data_home, download)


def load_emotions(data_home: PathLike | None = None, *, download: bool = True) -> MultiLabelData:
    """Pieces of music: 72 measures of their sound, and 6 emotions (official split 391 / 202)."""
    return load_multilabel(sources.EMOTIONS, data_home, download)


def load_scene(data_home: PathLike | None = None, *, download: bool = True) -> MultiLabelData:
    """Photographs: 294 measures of their colours, and 6 kinds of scene (official split 1211 / 1196)."""
    return load_multilabel(sources.SCENE, data_home, download)


def load_multilabel(source: MultiLabelSource, data_home: PathLike | None, download: bool) -> MultiLabelData:
    """Any of them: the `.npz` copy, else local ARFF files, else the public ones."""
    places = files.directories(data_home)
    npz = files.find(places, source.name, f"{source.name}.npz")
    if npz is not None:
        files.check(npz, source.npz_sha256)
        return _finished(source, read_labelled_rows(npz)[0], str(npz), must_match=False)
    for arff in source.arff:
        paths = files.find_all(places, source.name, arff.files)
        if paths is not None:
            return _finished(source, _read(arff, paths), _listed(paths), must_match=False)
    failures: list[LoadError] = []
    for arff in source.arff if download else ():
        try:
            with files.downloaded(arff.files, files.cache() / source.name) as paths:
                return _finished(source, _read(arff, paths), _listed(paths), must_match=True)
        except LoadError as failure:
            failures.append(failure)
    raise LoadError(_not_found(source, places, download, failures))


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
            raise LoadError(f"{message} The public file has changed, or did not arrive whole.")
        warnings.warn(f"{message} Do not report results on it as {source.name}.", SointerWarning, stacklevel=5)
    elif source.content_sha256 is not None and content_hash(rows) != source.content_sha256:
        message = f"{origin} has the size of {source.name} as published, but other values or names than we tested with."
        warnings.warn(message, SointerWarning, stacklevel=5)


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


def _not_found(source: MultiLabelSource, places: Sequence[Path], download: bool, failures: Sequence[LoadError]) -> str:
    wanted = [f"{source.name}.npz", *(" + ".join(file.name for file in arff.files) for arff in source.arff)]
    lines = [f"{source.name} was not found. Looked in {files.described(places)} for {', or '.join(wanted)}."]
    lines += [f"{failure}" for failure in failures]
    if not source.arff:
        lines.append(f"It cannot be downloaded in this form; its origin is {source.page}.")
    elif not download:
        lines.append("Nothing was downloaded, because download=False.")
    urls = [file.url for arff in source.arff[:1] for file in arff.files]
    if urls:
        lines.append(f"Without a network here, fetch elsewhere: {' '.join(urls)} (see also {source.page}).")
    lines.append(f"Then give their directory as data_home=, or in the environment variable {files.DATA_VARIABLE}.")
    return "\n".join(lines)
