"""Arrays in numpy's and scipy's files: .npy is mapped into memory, .npz too where it is not compressed."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import csr_array
from sointer.streaming.rows import Columns, Dtypes, RowSource, check_columns, reading, slices

SPARSE_PARTS = {"data", "indices", "indptr", "shape", "format"}


def array_source(path: Path) -> RowSource:
    """The rows of a .npy or .npz file."""
    data = _rows_of(path)

    def chunks(columns: Columns, chunk_rows: int, dtypes: Dtypes) -> Iterator[Any]:
        check_columns(columns, None, str(path))
        for span in slices(data.shape[0], chunk_rows):
            with reading(path, "rows of numbers", "Check the file, or save it again."):
                part = _part(data, span)
            yield part

    return RowSource(str(path), None, int(data.shape[0]), chunks)


def _part(data: Any, span: slice) -> Any:
    """Rows in memory of an array or of the parts of a CSR matrix, which may be on disk."""
    if isinstance(data, np.ndarray):
        return np.array(data[span])
    return data.rows(span)


class _StoredCSR:
    """A CSR matrix whose entries stay where they are until rows are asked for."""

    def __init__(self, data: Any, indices: Any, indptr: NDArray[Any], shape: tuple[int, int]) -> None:
        if len(shape) != 2 or len(indptr) != shape[0] + 1 or len(data) != len(indices) or indptr[-1] > len(data):
            raise ValueError("its parts do not fit together")
        if (np.diff(indptr) < 0).any() or indptr[0] != 0:
            raise ValueError("its rows are not in order")
        self.data, self.indices, self.indptr, self.shape = data, indices, indptr, shape

    def rows(self, span: slice) -> Any:
        cut = self.indptr[span.start : span.stop + 1]
        entries = slice(int(cut[0]), int(cut[-1]))
        parts = np.array(self.data[entries]), np.array(self.indices[entries]), cut - cut[0]
        matrix = csr_array(parts, shape=(len(cut) - 1, self.shape[1]))
        matrix.check_format(full_check=True)
        return matrix


def _rows_of(path: Path) -> Any:
    """An array, mapped where possible, or a stored CSR matrix."""
    with reading(path, "rows of numbers", "Check the file, or save it again."):
        if not zipfile.is_zipfile(path):
            return _at_least_2d(np.load(path, mmap_mode="r", allow_pickle=False))
        members = _members(path)
        if set(members) >= SPARSE_PARTS:
            kept_as = np.asarray(members["format"]).item()
            kept_as = kept_as.decode() if isinstance(kept_as, bytes) else kept_as
            if kept_as != "csr":
                raise ValueError(f"it holds a sparse matrix in {kept_as} format; save matrix.tocsr() instead")
            shape = tuple(int(side) for side in members["shape"])
            return _StoredCSR(members["data"], members["indices"], np.asarray(members["indptr"]), shape)  # type: ignore[arg-type]
        if len(members) == 1:
            return _at_least_2d(next(iter(members.values())))
        if "X" in members:
            return _at_least_2d(members["X"])
        raise ValueError(f"it holds the arrays {sorted(members)}; expected one, or one called 'X'")


def _at_least_2d(array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim < 2 and array.dtype.kind != "U":  # one dimension is a column of texts, or nothing
        raise ValueError(f"its array has the shape {array.shape}; expected rows and columns, or images")
    return array


def _members(path: Path) -> dict[str, Any]:
    """The arrays of an archive by name: mapped where they are stored as they are, else read whole."""
    found = {}
    with zipfile.ZipFile(path) as archive, np.load(path, allow_pickle=False) as loaded:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            stored = info.compress_type == zipfile.ZIP_STORED and info.file_size > 0
            found[name] = _mapped(path, info) if stored else loaded[name]
    return found


def _mapped(path: Path, info: zipfile.ZipInfo) -> Any:
    """The array of an uncompressed member of an archive, mapped into memory."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        header = file.read(30)  # the local header: its last two numbers are the lengths of name and extra field
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        file.seek(info.header_offset + 30 + name_length + extra_length)
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if dtype.hasobject:
            raise ValueError("it holds Python objects, which are never read")
        if int(np.prod(shape)) == 0 or not shape:
            content = file.read(dtype.itemsize * int(np.prod(shape)))
            return np.frombuffer(content, dtype=dtype).reshape(shape)
        order: Any = "F" if fortran else "C"
        return np.memmap(path, dtype=dtype, mode="r", offset=file.tell(), shape=shape, order=order)
