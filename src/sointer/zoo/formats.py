"""Multi-label ARFF files, dense or sparse: MULAN's (labels named in an XML file) and MEKA's (labels counted by -C)."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TextIO, TypeAlias
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
from scipy import sparse

from sointer._support.files import reading
from sointer.errors import LoadError, require_extra
from sointer.zoo.files import ByteArray, CsrMatrix, StringArray

_RELATION = re.compile(r"@relation\s+(.*)", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    r"""@attribute\s+
        (?: '(?P<single>(?:[^'\\]|\\.)*)'\s*
          | "(?P<double>(?:[^"\\]|\\.)*)"\s*
          | (?P<bare>[^\s'"{},][^\s{},]*)\s+ )
        (?P<kind>\S.*)""",
    re.IGNORECASE | re.VERBOSE,
)
_NUMERIC = re.compile(r"(numeric|real|integer)$", re.IGNORECASE)
_NOMINAL = re.compile(r"\{([^{}]*)\}$")
_MEKA_LABELS = re.compile(r"-C\s+(-?\d{1,9})\b")
_MEKA_SPLIT = re.compile(r"-split-number\s+(\d{1,9})\b")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r"}


@dataclass(frozen=True, eq=False)
class ArffTable:
    """The numbers of an ARFF file, one column per attribute."""

    path: Path
    relation: str
    names: tuple[str, ...]
    values: CsrMatrix

    @property
    def n_train(self) -> int | None:
        """How many of the first rows are for training, where MEKA's relation name says so."""
        found = _MEKA_SPLIT.search(self.relation)
        return None if found is None else int(found[1])

    def label_columns(self, label_names: Sequence[str] | None) -> list[int]:
        """The columns that are labels: those of the given names, else as many as MEKA's relation name says.

        MEKA counts from the first attribute, or from the last where the number is negative.
        """
        if label_names is None:
            return self._counted_columns()
        place = {name: column for column, name in enumerate(self.names)}
        missing = [name for name in label_names if name not in place]
        if missing:
            raise LoadError(f"{self.path} has no attribute for {len(missing)} of the labels, such as {missing[0]!r}.")
        return sorted(place[name] for name in label_names)

    def _counted_columns(self) -> list[int]:
        found = _MEKA_LABELS.search(self.relation)
        n_labels = 0 if found is None else int(found[1])
        n_columns = len(self.names)
        if not 0 < abs(n_labels) < n_columns:
            raise LoadError(
                f"{self.path} does not say which of its {n_columns} attributes are labels: expected '-C 28' or the "
                f"like in the relation name, got {self.relation!r}."
            )
        return list(range(n_labels) if n_labels > 0 else range(n_columns + n_labels, n_columns))


class _Header(NamedTuple):
    relation: str
    names: tuple[str, ...]
    omitted_is_zero: bool
    """Whether a value left out of a sparse row is 0; else it is the first one of a list that starts otherwise."""


def read_arff(path: Path) -> ArffTable:
    """Read a file whose attributes are all numbers, or lists of numbers such as {0,1}."""
    arff = require_extra("arff", "datasets")
    try:
        with path.open(encoding="utf-8") as lines:
            header = _read_header(lines)
            values = _read_rows(arff, lines, header)
    except (arff.ArffException, csv.Error, ValueError, TypeError, OverflowError, OSError) as exc:
        raise LoadError(f"{path} cannot be read as ARFF: {_reason(exc)}") from exc
    return ArffTable(path, header.relation, header.names, values)


def read_mulan_labels(path: Path) -> list[str]:
    """The names of the labels in a MULAN header file."""
    try:
        content = path.read_bytes()
        if b"<!" in content.replace(b"<!--", b""):
            raise ValueError("it declares a document type, which a list of labels does not need")
        elements = ElementTree.fromstring(content).iter()
        names = [element.get("name") for element in elements if element.tag.rpartition("}")[2] == "label"]
    except (ElementTree.ParseError, ValueError, LookupError, OSError) as exc:
        raise LoadError(f"{path} cannot be read as a MULAN list of labels: {exc}") from exc
    labels = [name for name in names if name]
    if not labels or len(set(labels)) < len(names):
        raise LoadError(
            f"{path} should list labels by different names, got {len(names)} with {len(set(labels))} names."
        )
    return labels


def _read_header(lines: TextIO) -> _Header:
    """Read up to @data. liac-arff would leave escapes in names as they are and refuse tabs, so this is ours."""
    relation = ""
    names: list[str] = []
    omitted_is_zero = True
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        keyword = text.split(None, 1)[0].lower() if text else "%"
        if keyword == "@data":
            break
        if keyword == "@relation" and (found := _RELATION.match(text)):
            relation = found[1].strip("'\" ")
        elif keyword == "@attribute" and (found := _ATTRIBUTE.match(text)):
            names.append(_name(found))
            omitted_is_zero &= _first_value(found["kind"], number) == 0
        elif not keyword.startswith("%"):
            raise ValueError(f"line {number} is no declaration: {_shortened(text)}")
    else:
        raise ValueError("it ends before @data")
    if not names:
        raise ValueError("it declares no attributes")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two attributes are called {twice!r}")
    return _Header(relation, tuple(names), omitted_is_zero)


def _name(found: re.Match[str]) -> str:
    if found["bare"] is not None:
        return found["bare"]
    quoted = found["single"] if found["single"] is not None else found["double"]
    return re.sub(r"\\(.)", lambda escape: _CONTROL.get(escape[1], escape[1]), quoted)


def _first_value(kind: str, number: int) -> float:
    """What stands for an omitted value: 0, or the first of a list of values."""
    if _NUMERIC.match(kind):
        return 0.0
    listed = _NOMINAL.match(kind)
    if listed is None:
        raise ValueError(f"line {number} declares no numbers but {_shortened(kind)}")
    values = [float(value.strip(" '\"\t")) for value in listed[1].split(",")]
    return values[0]


def _read_rows(arff: ModuleType, lines: TextIO, header: _Header) -> CsrMatrix:
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("%")), None)
    if first is None:
        raise ValueError("it has no rows")
    is_sparse = first.lstrip().startswith("{")
    if is_sparse and not header.omitted_is_zero:
        raise ValueError("its rows are sparse, but a list of values does not start with 0")
    data, indices, indptr = array("d"), array("q"), array("q", [0])
    for row in _decoded(arff, chain([first], lines), len(header.names), is_sparse):
        for column, value in row:
            if value is None:
                raise ValueError(f"row {len(indptr)} has a missing value")
            if value != 0:
                indices.append(column)
                data.append(value)
        indptr.append(len(indices))
    with np.errstate(over="ignore"):
        values = np.asarray(data, dtype=np.float32)
    if not np.isfinite(values).all():
        raise ValueError("it has values that are not finite in single precision")
    shape = (len(indptr) - 1, len(header.names))
    table: CsrMatrix = sparse.csr_matrix((values, np.asarray(indices), np.asarray(indptr)), shape=shape)
    table.eliminate_zeros()
    table.sort_indices()
    return table


def _decoded(
    arff: ModuleType, rows: Iterable[str], n_columns: int, is_sparse: bool
) -> Iterator[Iterable[tuple[int, float | None]]]:
    """For each row, its columns and their values."""
    declarations = ["@relation rows", *(f"@attribute a{column} numeric" for column in range(n_columns)), "@data"]
    kind = arff.LOD_GEN if is_sparse else arff.DENSE_GEN
    for row in arff.ArffDecoder().decode(chain(declarations, rows), return_type=kind)["data"]:
        yield row.items() if is_sparse else enumerate(row)


def _reason(exc: Exception) -> str:
    try:
        return _shortened(str(exc))
    except (TypeError, ValueError):  # liac-arff formats its message with the row in it, which may hold a %
        return type(exc).__name__


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."


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
    with reading(path, "a numpy archive"), path.open("rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array, not an archive")
        missing = [name for name in required if name not in archive.files]
        if missing:
            raise ValueError(f"it lacks the arrays {missing}; it has {sorted(archive.files)}")
        return {name: archive[name] for name in archive.files}


def read_labelled_rows(path: Path) -> LabelledRows:
    """The rows in an archive of sparse X and Y with their names."""
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
        return LabelledRows(X, binary(Y), names["feature_names"], names["label_names"], split)
    except (ValueError, TypeError, OverflowError) as exc:
        raise LoadError(f"{path} does not hold multi-label data: {exc}") from exc


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
