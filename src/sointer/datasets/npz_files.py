"""Compact local copies: numpy archives of plain arrays, read without pickle."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from sointer.datasets.records import ByteArray, CsrMatrix, StringArray
from sointer.errors import LoadError

# What numpy and zipfile raise on archives that were changed.
DAMAGE = (
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]


class LabelledRows(NamedTuple):
    """What any copy of a multi-label data set holds, whatever its format."""

    X: CsrMatrix
    Y: ByteArray
    feature_names: tuple[str, ...]
    label_names: tuple[str, ...]
    split: StringArray | None


def read_arrays(path: Path, required: Sequence[str]) -> Arrays:
    """All arrays of an archive, which must hold the required ones."""
    try:
        with path.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it is a single array, not an archive")
            missing = [name for name in required if name not in archive.files]
            if missing:
                raise ValueError(f"it lacks the arrays {missing}; it has {sorted(archive.files)}")
            return {name: archive[name] for name in archive.files}
    except DAMAGE as exc:
        raise LoadError(f"{path} cannot be read as a numpy archive: {exc}") from exc


def read_labelled_rows(path: Path) -> tuple[LabelledRows, Arrays]:
    """The rows in an archive of sparse X and Y with their names, and all its arrays as they are."""
    parts = ("data", "indices", "indptr", "shape")
    arrays = read_arrays(path, [*(f"{m}_{p}" for m in "XY" for p in parts), "feature_names", "label_names"])
    try:
        X, Y = (_matrix(*(arrays[f"{name}_{part}"] for part in parts)) for name in "XY")
        names = {
            key: _strings(arrays[key], n) for key, n in (("feature_names", X.shape[1]), ("label_names", Y.shape[1]))
        }
        split = arrays.get("split")
        if X.shape[0] != Y.shape[0] or X.shape[0] == 0:
            raise ValueError(f"X has {X.shape[0]} rows and Y has {Y.shape[0]}")
        if split is not None and not set(_strings(split, X.shape[0])) <= {"train", "test"}:
            raise ValueError("the split has other names than train and test")
        rows = LabelledRows(X, binary(Y), names["feature_names"], names["label_names"], split)
    except (ValueError, TypeError, OverflowError) as exc:
        raise LoadError(f"{path} does not hold multi-label data: {exc}") from exc
    return rows, arrays


def binary(labels: CsrMatrix) -> ByteArray:
    """The labels as an array of 0 and 1."""
    if not np.all(labels.data == 1):
        raise ValueError("labels must be 0 or 1")
    return labels.astype(np.uint8).toarray()


def _matrix(data: Any, indices: Any, indptr: Any, shape: Any) -> CsrMatrix:
    if shape.shape != (2,) or indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        raise ValueError("its sparse matrices are malformed")
    with np.errstate(over="ignore"):
        values = data.astype(np.float32)
    matrix = sparse.csr_matrix((values, indices, indptr), shape=(int(shape[0]), int(shape[1])))
    matrix.check_format(full_check=True)
    if not np.isfinite(matrix.data).all():
        raise ValueError("it has values that are not finite")
    matrix.sum_duplicates()
    return matrix


def _strings(names: npt.NDArray[Any], n: int) -> tuple[str, ...]:
    if names.dtype.kind != "U" or names.shape != (n,):
        raise ValueError(f"expected {n} strings, got shape {names.shape} of {names.dtype}")
    return tuple(names.tolist())
