"""Loaders of public data: the real files where they are at hand, ARFF written here, and a real local server."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import threading
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.io import savemat

from sointer import zoo as datasets
from sointer.errors import InputError, LoadError, MissingExtraError, SointerWarning
from sointer.zoo.files import ArffSource, MultiLabelSource, RemoteFile, random_split
from sointer.zoo.formats import read_arff, read_arrays, read_mulan_labels
from sointer.zoo.loaders import load_horses, load_multilabel

DATA = os.environ.get("SOINTER_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="set SOINTER_DATA to a directory with the .npz copies")


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch, global_random_state_is_left_alone) -> Path:
    """An empty cache, no directory given by the environment, and every warning an error unless expected."""
    monkeypatch.delenv("SOINTER_DATA", raising=False)
    monkeypatch.setenv("SOINTER_CACHE", str(tmp_path / "cache"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # requests leaves a broken connection to the collector
        yield tmp_path / "cache"


# --- writing files of each form, independently of the code that reads them -----------------------------------


def quoted(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


def arff_text(names, table, *, relation="test", kind="{0,1}", as_sparse=True) -> str:
    header = [f"@relation {quoted(relation)}", "", *(f"@attribute {quoted(n)} {kind}" for n in names), "", "@data"]
    if as_sparse:
        rows = ["{" + ",".join(f"{c} {v:g}" for c, v in enumerate(row) if v) + "}" for row in table]
    else:
        rows = [",".join(repr(float(v)) for v in row) for row in table]
    return "\n".join([*header, *rows, ""])


def mulan_xml(names) -> str:
    labels = "".join(f"<label name={quoteattr(name)}></label>\n" for name in names)
    return f'<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="http://mulan.sourceforge.net/labels">\n{labels}</labels>'


def write_mulan(directory: Path, name: str, data, as_sparse: bool, label_names=None) -> None:
    """A training file, a test file and the list of labels, with the label columns last, as MULAN has them."""
    labels = list(label_names or data.label_names)
    table = np.hstack([data.X.toarray(), data.Y])
    kind = "{0,1}" if as_sparse else "numeric"
    for part in ("train", "test"):
        text = arff_text([*data.feature_names, *labels], table[data.split == part], kind=kind, as_sparse=as_sparse)
        (directory / f"{name}-{part}.arff").write_text(text, encoding="utf-8")
    (directory / f"{name}.xml").write_text(mulan_xml(labels[::-1]), encoding="utf-8")


# --- the real data --------------------------------------------------------------------------------------------

PUBLISHED = {
    "bibtex": ((7395, 1836, 159), 2.402, (4880, 2515), True, "games"),
    "enron": ((1702, 1001, 53), 3.378, (1123, 579), True, "C.C6"),
    "ohsumed": ((13929, 1002, 23), 1.663, (6965, 6964), True, "C04"),
    "emotions": ((593, 72, 6), 1.868, (391, 202), True, "sad-lonely"),
    "scene": ((2407, 294, 6), 1.074, (1211, 1196), True, "Sunset"),
}


def loader(name: str):
    return getattr(datasets, f"load_{name}")


@needs_data
@pytest.mark.parametrize("name", PUBLISHED)
def test_real_copies_have_the_published_size(name):
    shape, cardinality, split, official, label = PUBLISHED[name]
    data = loader(name)(data_home=DATA)
    assert (*data.X.shape, data.Y.shape[1]) == shape
    assert data.cardinality == pytest.approx(cardinality, abs=6e-4)
    assert (data.train.X.shape[0], data.test.X.shape[0]) == split
    assert (data.train.Y.shape[0], data.test.Y.shape[0]) == split
    assert data.split_is_official is official
    assert data.name == name
    assert data.citation
    assert data.X.dtype == np.float32
    assert data.X.format == "csr"
    assert data.Y.dtype == np.uint8
    assert (len(data.feature_names), len(data.label_names)) == shape[1:]
    assert label in data.label_names
    assert len(set(data.label_names)) == len(data.label_names)


@needs_data
def test_bibtex_tags_are_plain_words():
    data = datasets.load_bibtex(DATA)
    assert not any(name.startswith("TAG_") for name in data.label_names)
    # The paper's tags, and a word that goes with one of them.
    assert {"games", "networks", "education", "dynamics", "system"} <= set(data.label_names)
    has_tag = data.Y[:, data.label_names.index("games")] == 1
    has_word = data.X[:, data.feature_names.index("game")].toarray().ravel() == 1
    assert has_word[has_tag].mean() > 10 * has_word[~has_tag].mean()


@needs_data
@pytest.mark.parametrize("name", ["enron", "ohsumed"])
def test_codes_are_described(name):
    data = loader(name)(DATA)
    with np.load(Path(DATA) / f"{name}.npz", allow_pickle=False) as archive:
        assert data.label_descriptions == tuple(archive["label_descriptions"].tolist())


@needs_data
@pytest.mark.parametrize(("name", "as_sparse"), [("enron", True), ("emotions", False)])
def test_mulan_files_give_the_same_data_as_the_compact_copy(name, as_sparse, tmp_path):
    compact = loader(name)(DATA)
    write_mulan(tmp_path, name, compact, as_sparse)
    data = loader(name)(tmp_path)  # the content hash agrees, or this would warn
    assert (data.X != compact.X).nnz == 0
    np.testing.assert_array_equal(data.Y, compact.Y)
    np.testing.assert_array_equal(data.split, compact.split)
    assert (data.feature_names, data.label_names) == (compact.feature_names, compact.label_names)
    assert data.label_descriptions == compact.label_descriptions
    assert data.split_is_official
    assert data.source.endswith(f"{name}-test.arff")


@needs_data
def test_meka_files_give_the_same_data_as_the_compact_copy(tmp_path):
    compact = datasets.load_ohsumed(DATA)
    table = np.hstack([compact.Y, compact.X.toarray()])
    text = arff_text(
        [*compact.label_names, *compact.feature_names], table, relation="Ohsumed: -C 23 -split-number 6965"
    )
    (tmp_path / "OHSUMED-F.arff").write_text(text)
    data = datasets.load_ohsumed(tmp_path)
    assert (data.X != compact.X).nnz == 0
    np.testing.assert_array_equal(data.Y, compact.Y)
    np.testing.assert_array_equal(data.split, compact.split)


@needs_data
def test_values_that_differ_from_the_tested_ones_are_noticed(tmp_path):
    enron = datasets.load_enron(DATA)
    X = enron.X.copy()
    X.data[0] = 2
    write_mulan(tmp_path, "enron", replace(enron, X=X), as_sparse=True)
    with pytest.warns(SointerWarning, match="other values or names"):
        datasets.load_enron(tmp_path)


@needs_data
@pytest.mark.parametrize("size", [32, 128])
def test_horses(size):
    data = datasets.load_weizmann_horses(DATA, size=size)
    assert data.images.shape == (328, 3, size, size)
    assert data.images.dtype == np.uint8
    assert data.masks.shape == (328, size, size)
    assert set(np.unique(data.masks)) == {0, 1}
    assert [len(part.images) for part in (data.train, data.val, data.test)] == [160, 40, 128]
    assert data.part("train", "val").masks.shape == (200, size, size)
    assert 0.2 < data.masks.mean() < 0.35
    assert data.file_names[317] == "horse318.jpg"


@needs_data
def test_the_matlab_file_gives_the_same_horses(tmp_path):
    compact = datasets.load_weizmann_horses(DATA)
    write_matlab(tmp_path / "horse.mat", compact)
    data = datasets.load_weizmann_horses(tmp_path)  # the pixel hash agrees, or this would warn
    np.testing.assert_array_equal(data.images, compact.images)
    np.testing.assert_array_equal(data.masks, compact.masks)
    np.testing.assert_array_equal(data.split, compact.split)
    assert data.file_names == compact.file_names


def write_matlab(path: Path, data, mask_rows=None) -> None:
    pictures = np.empty((1, len(data.images)), dtype=object)
    for i, image in enumerate(data.images):
        pictures[0, i] = image.transpose(1, 2, 0)
    by_column = np.stack([mask.ravel(order="F") for mask in data.masks])
    savemat(path, {"imgs": pictures, "segs": by_column if mask_rows is None else mask_rows})


# --- local files ------------------------------------------------------------------------------------------------


def small_data(n_rows=6, n_features=4, n_labels=3) -> datasets.MultiLabelData:
    rng = np.random.default_rng(0)
    return datasets.MultiLabelData(
        name="small",
        X=sparse.csr_matrix(rng.integers(0, 2, (n_rows, n_features)).astype(np.float32)),
        Y=rng.integers(0, 2, (n_rows, n_labels)).astype(np.uint8),
        feature_names=tuple(f"word {i}" for i in range(n_features)),
        label_names=tuple(f"label {i}" for i in range(n_labels)),
        split=np.repeat(["train", "test"], [n_rows - 2, 2]),
        split_is_official=True,
        source="",
        citation="",
    )


def imdb_like(directory: Path, relation: str, first_labels=True, n_rows=9) -> np.ndarray:
    table = np.random.default_rng(1).integers(0, 2, (n_rows, 28 + 5))
    table[-1] = 0  # an empty last row, which sparse files may leave as {}
    labels, words = [f"genre{i}" for i in range(28)], [f"w{i}" for i in range(5)]
    names = [*labels, *words] if first_labels else [*words, *labels]
    (directory / "IMDB-F.arff").write_text(arff_text(names, table, relation=relation))
    return table


def test_imdb_takes_the_first_28_attributes_as_labels(tmp_path):
    table = imdb_like(tmp_path, "IMDB: -C 28 -split-number 6")
    with pytest.warns(SointerWarning, match="as published has 120919, 1001, 28") as caught:
        data = datasets.load_imdb(tmp_path)
    assert caught[0].filename == __file__, "the warning points to the caller's line"
    np.testing.assert_array_equal(data.Y, table[:, :28])
    np.testing.assert_array_equal(data.X.toarray(), table[:, 28:])
    assert data.label_names[0] == "genre0"
    assert data.feature_names == ("w0", "w1", "w2", "w3", "w4")
    assert data.split_is_official
    assert data.split.tolist() == ["train"] * 6 + ["test"] * 3


def test_imdb_without_a_stated_split_or_with_labels_last(tmp_path):
    table = imdb_like(tmp_path, "IMDB: -C -28", first_labels=False)
    with pytest.warns(SointerWarning, match="as published"):
        data = datasets.load_imdb(tmp_path)
    np.testing.assert_array_equal(data.Y, table[:, 5:])
    assert not data.split_is_official
    assert sorted(data.split.tolist()) == ["test"] * 3 + ["train"] * 6


@pytest.mark.parametrize("relation", ["IMDB", "IMDB: -C 0", "IMDB: -C 33", "IMDB: -C 999999999999999999", "-C x"])
def test_labels_that_cannot_be_told_from_features(relation, tmp_path):
    imdb_like(tmp_path, relation)
    with pytest.raises(LoadError, match="does not say which of its 33 attributes are labels"):
        datasets.load_imdb(tmp_path)


def test_places_are_tried_in_order_and_only_read(tmp_path, monkeypatch, surroundings):
    for place in ("argument", "variable"):
        (tmp_path / place).mkdir()
        write_mulan(tmp_path / place, "emotions", small_data(5 if place == "argument" else 6), as_sparse=False)
    (surroundings / "emotions").mkdir(parents=True)
    write_mulan(surroundings / "emotions", "emotions", small_data(7), as_sparse=False)
    warnings.simplefilter("ignore", SointerWarning)
    assert datasets.load_emotions().X.shape[0] == 7
    monkeypatch.setenv("SOINTER_DATA", str(tmp_path / "variable"))
    assert datasets.load_emotions().X.shape[0] == 6
    assert datasets.load_emotions(tmp_path / "argument").X.shape[0] == 5
    assert datasets.load_emotions(tmp_path / "nowhere").X.shape[0] == 7
    assert len(list((tmp_path / "argument").iterdir())) == 3
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", [*PUBLISHED, "imdb"])
def test_nothing_found_says_where_and_what(name, tmp_path):
    with pytest.raises(LoadError) as caught:
        loader(name)(tmp_path / "absent", download=False)
    message = str(caught.value)
    assert f"{name}.npz" in message
    assert "SOINTER_DATA" in message
    assert "data_home=" in message
    assert f"{tmp_path / 'absent'} (no such directory)" in message
    assert "http" in message


def test_horses_not_found_or_of_another_size(tmp_path):
    for size, words in ((32, "download=False"), (128, "cannot be downloaded")):
        with pytest.raises(LoadError, match=f"weizmann_horses_{size}.npz(.|\n)*{words}(.|\n)*SOINTER_DATA"):
            datasets.load_weizmann_horses(tmp_path, size=size, download=False)
    with pytest.raises(InputError, match="32 or 128, got 64"):
        datasets.load_weizmann_horses(tmp_path, size=64)


def test_horses_that_are_no_horses(tmp_path):
    flat = datasets.SegmentationData(
        "flat",
        images=np.zeros((328, 3, 32, 32), np.uint8),
        masks=np.zeros((328, 32, 32), np.uint8),
        split=np.array([]),
        file_names=(),
        source="",
        citation="",
    )
    path = tmp_path / "horse.mat"
    write_matlab(path, flat)
    with pytest.warns(SointerWarning, match="other pixels") as caught:
        datasets.load_weizmann_horses(tmp_path)
    assert caught[0].filename == __file__
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"MATLAB 5.0 MAT-file" + b"\0" * 200, os.urandom(500)):
        path.write_bytes(damaged)
        with pytest.raises(LoadError, match=r"horse\.mat"):
            datasets.load_weizmann_horses(tmp_path)
    write_matlab(path, flat, mask_rows=np.full((328, 1024), 3))
    with pytest.raises(LoadError, match="images, masks, split"):
        datasets.load_weizmann_horses(tmp_path)
    write_matlab(path, replace(flat, images=flat.images[:10]))
    with pytest.raises(LoadError, match="10, 3, 32, 32"):
        datasets.load_weizmann_horses(tmp_path)


@needs_data
def test_a_changed_copy_is_refused(tmp_path):
    content = bytearray((Path(DATA) / "emotions.npz").read_bytes())
    content[-1] ^= 1
    (tmp_path / "emotions.npz").write_bytes(content)
    with pytest.raises(LoadError, match="damaged or not the published file: its sha256 is"):
        datasets.load_emotions(tmp_path)
    (tmp_path / "weizmann_horses_32.npz").write_bytes(content)
    with pytest.raises(LoadError, match="damaged or not the published file"):
        datasets.load_weizmann_horses(tmp_path)


@pytest.mark.parametrize("header", [b"{'descr': '<f8', 'fortran_order': False, 'shape': (5, 4)0", b"{'descr'\x00"])
def test_archives_with_headers_that_are_no_python_are_refused(header, tmp_path):
    """Found by fuzzing: numpy looks for tokens in such a header, and does not catch what goes wrong there."""
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", array)
    with pytest.raises(LoadError, match="cannot be read as a numpy archive"):
        read_arrays(tmp_path / "a.npz", ["X"])


def archive_arrays() -> dict[str, np.ndarray]:
    small = small_data()
    arrays = {"feature_names": np.array(small.feature_names), "label_names": np.array(small.label_names)}
    for name, matrix in (("X", small.X), ("Y", sparse.csr_matrix(small.Y))):
        for part in ("data", "indices", "indptr"):
            arrays[f"{name}_{part}"] = getattr(matrix, part)
        arrays[f"{name}_shape"] = np.array(matrix.shape)
    return arrays


HOSTILE_ARRAYS = {
    "objects": ("X_data", np.array([1, {}, "x"], dtype=object)),
    "index beyond the last column": ("X_indices", lambda a: np.where(a == a.max(), 10**6, a)),
    "negative index": ("X_indices", lambda a: np.where(a == 0, -1, a)),
    "pointer beyond the data": ("X_indptr", lambda a: a * 1000),
    "float indices": ("X_indices", lambda a: a.astype(float)),
    "shape of three": ("X_shape", np.array([6, 4, 1])),
    "huge shape": ("X_shape", np.array([2**62, 2**62])),
    "not finite": ("X_data", lambda a: np.full(a.shape, np.nan)),
    "too large for single precision": ("X_data", lambda a: np.full(a.shape, 1e300)),
    "too few names": ("feature_names", np.array(["one"])),
    "names that are numbers": ("label_names", np.arange(3)),
    "labels that are not 0 or 1": ("Y_data", lambda a: a * 2),
    "another split": ("split", np.array(["train"] * 5 + ["holdout"])),
    "split of another length": ("split", np.array(["train", "test"])),
    "missing array": ("X_indptr", None),
}


@pytest.mark.parametrize("case", HOSTILE_ARRAYS)
def test_hostile_archives(case, tmp_path):
    arrays = archive_arrays()
    key, change = HOSTILE_ARRAYS[case]
    new = change(arrays[key]) if callable(change) else change
    arrays.pop(key, None) if new is None else arrays.__setitem__(key, new)
    np.savez(tmp_path / "imdb.npz", **arrays)
    with pytest.raises(LoadError, match=r"imdb\.npz"):
        datasets.load_imdb(tmp_path)


class Trap:
    """Leaves a mark when unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_archives_are_never_unpickled(tmp_path):
    mark = tmp_path / "unpickled"
    np.savez(tmp_path / "imdb.npz", **archive_arrays(), notes=np.array([Trap(mark)], dtype=object))
    with pytest.raises(LoadError, match="allow_pickle=False"):
        datasets.load_imdb(tmp_path)
    assert not mark.exists()
    with np.load(tmp_path / "imdb.npz", allow_pickle=True) as archive:
        assert archive["notes"].shape == (1,)
    assert mark.exists(), "the trap works"


def test_archives_cut_anywhere(tmp_path):
    path = tmp_path / "imdb.npz"
    np.savez_compressed(path, **archive_arrays())
    with pytest.warns(SointerWarning, match="as published"):
        assert datasets.load_imdb(tmp_path).X.shape == (6, 4)
    content = path.read_bytes()
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        with pytest.raises(LoadError, match="cannot be read as a numpy archive"):
            datasets.load_imdb(tmp_path)
    path.write_bytes(content.replace(b"\x00\x00", b"\xff\x00"))
    with pytest.raises(LoadError):
        datasets.load_imdb(tmp_path)
    path.write_bytes(re.sub(rb"(?s)(PK\x01\x02.{4}).", lambda entry: entry[1] + b"\x01", content))
    with pytest.raises(LoadError, match="encrypted"):
        datasets.load_imdb(tmp_path)
    with path.open("wb") as stream:
        np.save(stream, np.arange(3))
    with pytest.raises(LoadError, match="single array"):
        datasets.load_imdb(tmp_path)


# --- ARFF -------------------------------------------------------------------------------------------------------

LINE = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(names=st.lists(LINE, min_size=2, max_size=5, unique=True), as_sparse=st.booleans(), data=st.data())
def test_arff_with_odd_names(names, as_sparse, data, tmp_path_factory):
    numbers = st.floats(-1e6, 1e6, width=32) if not as_sparse else st.integers(0, 9)
    table = data.draw(st.lists(st.lists(numbers, min_size=len(names), max_size=len(names)), min_size=1, max_size=4))
    directory = tmp_path_factory.mktemp("odd")
    (directory / "a.arff").write_text(arff_text(names, table, kind="numeric", as_sparse=as_sparse), encoding="utf-8")
    (directory / "a.xml").write_text(mulan_xml(names[::-1]), encoding="utf-8")
    read = read_arff(directory / "a.arff")
    assert read.names == tuple(names)
    np.testing.assert_array_equal(read.values.toarray(), np.array(table, dtype=np.float32))
    assert read.label_columns(read_mulan_labels(directory / "a.xml")[:1]) == [len(names) - 1]


def test_arff_as_others_write_it(tmp_path):
    path = tmp_path / "a.arff"
    path.write_bytes(
        b"% a comment\r\n@RELATION\t'x: -C 1'\r\n@Attribute\tplain\tNUMERIC\r\n"
        b"@attribute \"it's \\\"so\\\" 100%\" real\r\n@attribute 'don\\'t'{0,1}\r\n@attribute 20% integer\r\n"
        b"% another\r\n@DATA\r\n% a third\r\n\r\n{0 1.5, 3 2}\r\n{ }\r\n{1 -1e2 ,2 1}\r\n{}"
    )
    read = read_arff(path)
    assert read.names == ("plain", 'it\'s "so" 100%', "don't", "20%")
    assert read.values.toarray().tolist() == [[1.5, 0, 0, 2], [0, 0, 0, 0], [0, -100, 1, 0], [0, 0, 0, 0]]
    assert read.label_columns(None) == [0]


HEADER = "@relation r\n@attribute a numeric\n@attribute b {0,1}\n@data\n"
HOSTILE_ARFF = {
    "empty": "",
    "no data": "@relation r\n@attribute a numeric\n",
    "no rows": HEADER,
    "no attributes": "@relation r\n@data\n1\n",
    "index beyond the last column": HEADER + "{2 1}\n",
    "huge index": HEADER + "{99999999999999999999999 1}\n",
    "index of 5000 digits": HEADER + "{" + "9" * 5000 + " 1}\n",
    "negative index": HEADER + "{-1 1}\n",
    "row not closed": HEADER + "{0 1, 1 1\n",
    "value missing": HEADER + "{0 ?}\n",
    "value missing, dense": HEADER + "?,1\n",
    "no number": HEADER + "{0 one}\n",
    "no number, dense": HEADER + "one,1\n",
    "percent sign in a bad row": HEADER + "1,2,100%d%s\n",
    "too few values": HEADER + "1\n",
    "too many values": HEADER + "1,1,1\n",
    "not finite": HEADER + "nan,1\n",
    "too large for single precision": HEADER + "1e300,1\n",
    "dense row in a sparse file": HEADER + "{0 1}\n1,1\n",
    "NUL": HEADER + "1,\0\n",
    "enormous value": HEADER + "9" * 200_000 + ",1\n",
    "text attribute": "@relation r\n@attribute a string\n@data\nx\n",
    "list of words": "@relation r\n@attribute a {no,yes}\n@data\nno\n",
    "first of the list is not 0": "@relation r\n@attribute a {1,0}\n@data\n{0 1}\n",
    "the same name twice": "@relation r\n@attribute a numeric\n@attribute 'a' numeric\n@data\n1,1\n",
    "long list never closed": "@relation r\n@attribute a {" + "0," * 20000 + "\n@data\n0\n",
    "quote never closed": "@relation r\n@attribute '" + "\\\\" * 20000 + " numeric\n@data\n0\n",
    "a web page": "<html><body>404</body></html>\n",
    "a Git LFS pointer": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 15406129\n",
    "not UTF-8": b"@relation r\n@attribute \xff\xfe numeric\n@data\n1\n",
    "binary": bytes(range(256)) * 20,
}


@pytest.mark.parametrize("case", HOSTILE_ARFF)
def test_hostile_arff(case, tmp_path):
    content = HOSTILE_ARFF[case]
    path = tmp_path / "a.arff"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(LoadError, match=r"a\.arff cannot be read as ARFF: .{3}") as caught:
        read_arff(path)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("as_sparse", [True, False])
def test_arff_cut_anywhere_loses_rows_but_never_invents_values(as_sparse, tmp_path):
    table = np.array([[1, 0, 12], [0, 0, 0], [3, 4, 5], [0, 7, 0]], dtype=float)
    text = arff_text(["a", "b", "c"], table, kind="numeric", as_sparse=as_sparse)
    path = tmp_path / "a.arff"
    outcomes = []
    for length in range(len(text)):
        path.write_text(text[:length])
        try:
            values = read_arff(path).values.toarray()
        except LoadError:
            outcomes.append("refused")
            continue
        outcomes.append("shorter")
        whole = len(values) - (0 if as_sparse or text[length - 1] == "\n" else 1)
        np.testing.assert_array_equal(values[:whole], table[:whole])
    assert set(outcomes) == {"refused", "shorter"}


@settings(max_examples=300, deadline=None)
@given(noise=st.binary(max_size=60), where=st.integers(0, 200))
def test_arff_with_noise_is_read_or_refused(noise, where, tmp_path_factory):
    content = arff_text(["a", "b"], [[1, 0], [0, 1], [1, 1]]).encode()
    path = tmp_path_factory.mktemp("noise") / "a.arff"
    path.write_bytes(content[:where] + noise + content[where:])
    try:
        read = read_arff(path)
    except LoadError:
        return
    assert read.values.shape[1] == len(read.names)
    assert np.isfinite(read.values.data).all()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "<labels>",
        "<labels></labels>",
        '<labels><label name="a"/><label name="a"/></labels>',
        "<labels><label/></labels>",
        '<!DOCTYPE x [<!ENTITY a "aaaa">]><labels><label name="&a;"/></labels>',
        '<?xml version="1.0" encoding="none-such"?><labels><label name="a"/></labels>',
    ],
)
def test_hostile_label_lists(content, tmp_path):
    path = tmp_path / "a.xml"
    path.write_text(content)
    with pytest.raises(LoadError, match=r"a\.xml"):
        read_mulan_labels(path)


def test_label_lists_may_be_nested_and_commented(tmp_path):
    path = tmp_path / "a.xml"
    path.write_text('<labels><!-- two --><label name="a"><label name="b &amp; c"/></label></labels>')
    assert read_mulan_labels(path) == ["a", "b & c"]


def test_files_that_do_not_belong_together(tmp_path):
    write_mulan(tmp_path, "emotions", small_data(), as_sparse=True)
    (tmp_path / "emotions.xml").write_text(mulan_xml(["label 0", "unheard of"]))
    with pytest.raises(LoadError, match="no attribute for 1 of the labels, such as 'unheard of'"):
        datasets.load_emotions(tmp_path)
    write_mulan(tmp_path, "emotions", small_data(), as_sparse=True)
    (tmp_path / "emotions-test.arff").write_text(arff_text(["x", "y"], [[1, 1]]))
    with pytest.raises(LoadError, match="different attributes"):
        datasets.load_emotions(tmp_path)
    write_mulan(tmp_path, "emotions", replace(small_data(), Y=small_data().Y * 2), as_sparse=False)
    with pytest.raises(LoadError, match="labels must be 0 or 1"):
        datasets.load_emotions(tmp_path)


# --- downloads --------------------------------------------------------------------------------------------------


class Server:
    """Serves what is in `pages` and counts requests; `cut` pages promise more bytes than they send."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.requests: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.lstrip("/")
                outer.requests.append(name)
                if name not in outer.pages:
                    self.send_error(404)
                    return
                body = outer.pages[name]
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if name in outer.cut else body)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def file(self, name: str, sha256: str | None = None) -> RemoteFile:
        return RemoteFile(name, f"http://127.0.0.1:{self.http.server_port}/{name}", sha256)


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    """Serves a small data set in MULAN's form."""
    served = Server()
    (tmp_path / "served").mkdir()
    write_mulan(tmp_path / "served", "small", small_data(), as_sparse=True)
    served.pages = {path.name: path.read_bytes() for path in (tmp_path / "served").iterdir()}
    yield served
    served.http.shutdown()
    served.http.server_close()


def small_source(server: Server, **hashes: str) -> MultiLabelSource:
    rows = tuple(server.file(f"small-{part}.arff", hashes.get(part)) for part in ("train", "test"))
    arff = ArffSource(rows, server.file("small.xml"))
    return MultiLabelSource("small", "http://small.example", "cited", shape=(6, 4, 3), arff=(arff,))


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


def test_download_once_and_keep(server, surroundings, capfd):
    source = small_source(server, train=hashlib.sha256(server.pages["small-train.arff"]).hexdigest())
    data = load_multilabel(source, None, download=True)
    np.testing.assert_array_equal(data.X.toarray(), small_data().X.toarray())
    np.testing.assert_array_equal(data.Y, small_data().Y)
    assert data.label_names == small_data().label_names
    assert data.train.X.shape == (4, 4)
    assert data.split_is_official
    files = ["small-test.arff", "small-train.arff", "small.xml"]
    assert kept(surroundings) == sorted([*files, *(f"{name}.sha256" for name in files)])
    record = (surroundings / "small" / "small.xml.sha256").read_text()
    assert record == f"{hashlib.sha256(server.pages['small.xml']).hexdigest()}  small.xml\n"
    assert sorted(server.requests) == files
    again = load_multilabel(source, None, download=True)
    assert (again.X != data.X).nnz == 0
    assert len(server.requests) == 3, "the second time nothing may be fetched"
    assert capfd.readouterr() == ("", "")


def test_a_kept_file_that_changes_is_noticed(server, surroundings):
    source = small_source(server)
    load_multilabel(source, None, download=True)
    path = surroundings / "small" / "small-test.arff"
    path.write_text(path.read_text().replace("{", "{ ", 1))
    with pytest.raises(LoadError, match=r"small-test\.arff is damaged or not the published file"):
        load_multilabel(source, None, download=True)


def test_a_public_file_that_changes_is_noticed(server, surroundings):
    source = small_source(server)
    load_multilabel(source, None, download=True)
    path = surroundings / "small" / "small-test.arff"
    path.unlink()
    server.pages[path.name] += b"\n"
    with pytest.raises(LoadError, match=r"small-test\.arff is damaged or not the published file"):
        load_multilabel(source, None, download=True)
    assert not path.exists()
    path.with_name(f"{path.name}.sha256").unlink()
    assert load_multilabel(source, None, download=True).X.shape == (6, 4)


def test_wrong_hash(server, surroundings):
    with pytest.raises(LoadError, match=r"small-test\.arff could not be downloaded(.|\n)*hash"):
        load_multilabel(small_source(server, test="0" * 64), None, download=True)
    assert kept(surroundings) == []


def test_missing_page(server, surroundings):
    del server.pages["small-test.arff"]
    with pytest.raises(LoadError) as caught:
        load_multilabel(small_source(server), None, download=True)
    message = str(caught.value)
    assert "404" in message
    assert "small.npz, or small.xml + small-train.arff + small-test.arff" in message
    assert server.file("small.xml").url in message
    assert "SOINTER_DATA" in message
    assert kept(surroundings) == []


def test_connection_that_breaks_off(server, surroundings):
    server.cut.add("small-train.arff")
    with pytest.raises(LoadError, match=r"small-train\.arff could not be downloaded"):
        load_multilabel(small_source(server), None, download=True)
    assert kept(surroundings) == []


def test_page_that_lacks_rows(server, surroundings):
    lines = server.pages["small-train.arff"].splitlines(keepends=True)
    server.pages["small-train.arff"] = b"".join(lines[:-1])
    with pytest.raises(LoadError, match="5 samples, 4 features, 3 labels; small as published has 6, 4, 3"):
        load_multilabel(small_source(server), None, download=True)
    assert kept(surroundings) == []


def test_page_that_is_something_else(server, surroundings):
    server.pages["small-train.arff"] = b"<html>please sign in</html>"
    with pytest.raises(LoadError, match="cannot be read as ARFF: line 1 is no declaration"):
        load_multilabel(small_source(server), None, download=True)
    assert kept(surroundings) == []


def test_no_network(server, surroundings):
    source = small_source(server)
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(LoadError, match=r"could not be downloaded(.|\n)*Without a network here, fetch elsewhere: http"):
        load_multilabel(source, None, download=True)
    with pytest.raises(LoadError, match="download=False"):
        load_multilabel(source, None, download=False)
    assert kept(surroundings) == []


def test_the_second_address_is_tried(server, surroundings):
    good = small_source(server)
    broken = ArffSource((server.file("gone.arff"),))
    data = load_multilabel(replace(good, arff=(broken, *good.arff)), None, download=True)
    assert data.X.shape == (6, 4)
    assert "gone.arff" in server.requests


def test_horses_are_downloaded(server, surroundings, tmp_path):
    pictures = np.empty((1, 328), dtype=object)
    for i in range(328):
        pictures[0, i] = np.full((32, 32, 3), i % 256, np.uint8)
    savemat(tmp_path / "horse.mat", {"imgs": pictures, "segs": np.eye(328, 1024)})
    server.pages["horse.mat"] = (tmp_path / "horse.mat").read_bytes()
    with pytest.warns(SointerWarning, match="other pixels"):
        data = load_horses(32, server.file("horse.mat"), None, download=True)
    assert data.images[255, :, 3, 4].tolist() == [255, 255, 255]
    assert data.masks[33, 1, 1] == 1
    assert data.masks[34, 2, 1] == 1, "masks are stored column by column"
    assert kept(surroundings) == ["horse.mat", "horse.mat.sha256"]
    del server.pages["horse.mat"]
    (surroundings / "weizmann_horses" / "horse.mat").unlink()
    with pytest.raises(LoadError, match=r"horse\.mat could not be downloaded(.|\n)*404"):
        load_horses(32, server.file("horse.mat"), None, download=True)


@pytest.mark.parametrize(("module", "action"), [("pooch", "download"), ("arff", "read")])
def test_missing_packages_are_named(module, action, server, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    home = tmp_path / "served" if action == "read" else None
    with pytest.raises(MissingExtraError, match=r"sointer\[datasets\]"):
        load_multilabel(small_source(server), home, download=True)


@needs_data
def test_compact_copies_need_no_extra_package(monkeypatch):
    for module in ("pooch", "arff"):
        monkeypatch.setitem(sys.modules, module, None)
    assert datasets.load_emotions(DATA).X.shape == (593, 72)


@needs_data
def test_the_page_about_data_sets_is_true(monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs" / "reference" / "datasets.md").read_text(encoding="utf-8")
    monkeypatch.setenv("SOINTER_DATA", DATA)
    blocks = re.findall(r"```py\n(.*?)```\n+```\n(.*?)```", page, re.DOTALL)
    assert blocks
    for code, printed in blocks:
        exec(compile(code, "datasets.md", "exec"), {})
        assert capsys.readouterr().out == printed
    for name in (name for name in datasets.__all__ if name.startswith("load_")):
        assert f"`{name}`" in page


# --- the split --------------------------------------------------------------------------------------------------


def test_the_random_split_never_changes():
    split = random_split(34131)
    assert (split == "train").sum() == 22754
    digest = hashlib.sha256(np.packbits(split == "train").tobytes()).hexdigest()
    assert digest == "c43bcdae0daef54c4c2cfe82e7e30f834431241ec302717b84591210f7f26b93"


def test_parts_by_name():
    data = small_data()
    X, Y = data.part("train", "test")
    assert (X != data.X).nnz == 0
    np.testing.assert_array_equal(Y, data.Y)
    np.testing.assert_array_equal(data.test.Y, data.Y[4:])
    for names in (("val",), (), ("train", "Test")):
        with pytest.raises(InputError, match=r"part\(\) takes names of parts of the split, \['test', 'train'\]"):
            data.part(*names)


def test_without_a_home_directory_data_are_found_where_they_are_said_to_be(tmp_path, monkeypatch):
    for name in ("SOINTER_DATA", "SOINTER_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user id without an entry
    with pytest.raises(LoadError, match="HOME is not set") as found:
        datasets.load_emotions()
    assert "SOINTER_CACHE" in str(found.value)
    with pytest.raises(LoadError, match=f"Looked in {re.escape(str(tmp_path))} for"):
        datasets.load_emotions(data_home=tmp_path)
