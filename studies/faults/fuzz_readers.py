"""What do the readers of data files make of files that were damaged, or written to do harm?"""

from __future__ import annotations

import gzip
import io
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from sointer.errors import SointerError
from sointer.io.parquet import write_sparse_parquet
from sointer.io.readers import read_table
from sointer.zoo.formats import read_arff, read_labelled_rows, read_mulan_labels
from studies.faults.fuzzing import fuzz, n_tried, section, what_held
from studies.frame.study import Case, Row, Study

PER_PART, N_PARTS = 2500, 16
PIECES = (
    *(b"", b"\x00", b"\xff", b"\n", b"\r\n", b",", b'"', b"'", b"{", b"}", b"@data", b"@attribute", b"%", b"?", b"-1"),
    *(b"nan", b"inf", b"1e999", b"99999999999999999999", b"0" * 5000, b"\xef\xbb\xbf", b"\xed\xa0\x80", b"PK\x03\x04"),
    *(b"PAR1", b"\x93NUMPY", b"'descr': '|O'", b"(10**12,)", b"<!ENTITY a 'b'>", b"\\", b"\t", b"{0 1, 0 2}", b"-C 3"),
)
FOLDER = Path(tempfile.gettempdir())


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "n": 60 if smoke else PER_PART}


def _archive(compressed: bool = False, **arrays: Any) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


def _parts(name: str, matrix: Any) -> dict[str, Any]:
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": np.array(matrix.shape)}
    return {f"{name}_{part}": array for part, array in parts.items()}


@cache
def good_files() -> dict[str, tuple[str, bytes, Callable[[Path], Any]]]:
    """A small whole file of every kind: the end of its name, its content, and what reads it."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(8, 3)), columns=["a", "b b", "c"]).assign(d=list("xyzxyzxy"), e=True)
    matrix = sp.csr_matrix((rng.random((6, 9)) < 0.3).astype(np.float32))
    labels = sp.csr_matrix((rng.random((6, 2)) < 0.5).astype(np.uint8))
    csv = table.to_csv(index=False).encode()
    parquet, npy, csr = io.BytesIO(), io.BytesIO(), io.BytesIO()
    table.to_parquet(parquet)
    np.save(npy, rng.normal(size=(5, 4)))
    sp.save_npz(csr, matrix)
    with tempfile.TemporaryDirectory() as folder:
        lists = write_sparse_parquet(matrix, Path(folder, "rows.parquet")).read_bytes()
    head = b"@relation 'x: -C 1'\n@attribute 'a b' {0,1}\n@attribute b numeric\n@attribute c real\n@data\n"
    names = {"feature_names": np.array(list("abcdefghi")), "label_names": np.array(["p", "q"])}
    xml = b'<labels xmlns="http://mulan"><label name="a"/><label name="b"><label name="c"/></label></labels>'
    return {
        "csv": (".csv", csv, read_table),
        "tsv": (".tsv", csv.replace(b",", b"\t"), read_table),
        "csv.gz": (".csv.gz", gzip.compress(csv), read_table),
        "parquet": (".parquet", parquet.getvalue(), read_table),
        "sparse parquet": (".parquet", lists, read_table),
        "npy": (".npy", npy.getvalue(), read_table),
        "npz": (".npz", _archive(X=rng.normal(size=(5, 4))), read_table),
        "compressed npz": (".npz", _archive(compressed=True, X=rng.normal(size=(5, 4))), read_table),
        "sparse npz": (".npz", csr.getvalue(), read_table),
        "labelled npz": (".npz", _archive(**_parts("X", matrix), **_parts("Y", labels), **names), read_labelled_rows),
        "dense arff": (".arff", head + b"0,1.5,2\n1,0,-3e4\n1,?,2\n", read_arff),
        "sparse arff": (".arff", head + b"{0 1,2 3.5}\n{}\n{1 2}\n", read_arff),
        "xml": (".xml", xml, read_mulan_labels),
    }


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Bits flipped, pieces cut out, doubled, moved or put in; once or a few times."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        n = len(data)
        a, b = np.sort(rng.integers(n + 1, size=2))
        b = min(b, a + int(rng.choice([1, 4, 16, n + 1])))
        kind = int(rng.integers(7))
        if kind == 0 and n:
            data[int(rng.integers(n))] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del data[a:b]
        elif kind == 2:
            data[a:a] = data[a:b] * int(rng.integers(1, 4))
        elif kind == 3:
            data[a:b] = PIECES[int(rng.integers(len(PIECES)))]
        elif kind == 4:
            data[a:b] = rng.integers(256, size=b - a, dtype=np.uint8).tobytes()
        elif kind == 5 and n >= 8:  # a length or an offset somewhere
            place, size = int(rng.integers(n - 7)), int(rng.choice([2, 4, 8]))
            value = int(rng.choice([0, 1, 255, 2**15, 2**31 - 1, 2**31, 2**40])) % 256**size
            data[place : place + size] = value.to_bytes(size, "little")
        else:
            del data[int(rng.integers(n + 1)) :]
    return bytes(data)


def make(rng: np.random.Generator) -> tuple[str, Callable[[], str]]:
    files = good_files()
    name = str(rng.choice(list(files)))
    ending, content, read = files[name]
    foreign = rng.random() < 0.05  # the content of another kind of file
    if foreign:
        content = files[str(rng.choice(list(files)))][1]
    path = FOLDER / f"fuzzed{ending}"
    path.write_bytes(mutated(content, rng))

    def attempt() -> str:
        try:
            read(path)
        except SointerError as error:
            if not str(error).strip() or "allocate" in str(error):
                raise RuntimeError("a refusal that says nothing, or that memory is short") from error
            return "refused"
        return "accepted"

    return name, attempt


def run(part: int, n: int) -> dict[str, Any]:
    global FOLDER
    good_files()
    with tempfile.TemporaryDirectory() as folder:
        FOLDER = Path(folder)
        return fuzz(make, part, n)


def verdict(rows: list[Row]) -> tuple[str, str]:
    return f"{n_tried(rows):,} damaged and hostile data files read", what_held(rows)


def page(rows: list[Row], images: Path) -> str:
    lead = (
        f"Files of {len(good_files())} kinds ({', '.join(good_files())}) with bits flipped, pieces cut out, "
        "duplicated, "
        "moved or inserted, and lengths changed."
    )
    return section("Data files", lead, rows)


STUDY = Study("fuzz_readers", cases, run, page)
