"""Files made to do harm: one clear error, quickly, nothing executed and nothing large allocated."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import resource
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import sointer
from quick import quick_explainer, quick_fit
from repo_scripts import run_apart
from sealing import seal
from sointer import Patches
from sointer._support.files import strict_json
from sointer.errors import LoadError

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(60, 4))
WORDS = sp.csr_array(np.where(RNG.random((60, 300)) < 0.05, 1.0, 0.0))
IMAGES = RNG.random((20, 1, 4, 4))
HUGE = 2**40
ROOM = 2**29  # bytes that loading may take, at most


def two_outputs(batch):
    dense = batch.toarray() if sp.issparse(batch) else np.asarray(batch)
    return (dense[:, :2] > 0).astype(int)


def fitted(data, model=two_outputs, **changes):
    return quick_fit(model, data, **changes)


@pytest.fixture(scope="module")
def explainers():
    masks = fitted(IMAGES, lambda batch: (batch[:, 0] > 0.5).astype(int), groups=Patches(2))
    numbers = fitted(TABLE, lambda batch: np.asarray(batch)[:, :2] * 3.5)
    return {"table": fitted(TABLE), "words": fitted(WORDS), "images": masks, "numbers": numbers}


@pytest.fixture
def little_memory():
    """Whoever asks for more memory than files of this size may need gets a MemoryError, and the test fails."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


def refused(saved, words):
    started = time.monotonic()
    with pytest.raises(LoadError, match=words) as caught:
        sointer.load(saved)
    assert "Memory" not in str(caught.value), "it was allocated, or tried to be"
    assert len(str(caught.value)) < 1500
    assert time.monotonic() - started < 60, "a hang, even on a busy machine"


def read_metadata(saved):
    return json.loads((saved / "explainer.json").read_text())


# --- metadata that fit their checksum ---------------------------------------------------------------------------


def put(place, value):
    """A change of the metadata: the value at that place."""

    def change(metadata):
        *outer, last = place
        for key in outer:
            metadata = metadata[key]
        metadata[last] = value

    return change


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("table", put(["config", 0, "hidden"], [HUGE]), "not of the size"),
        ("table", put(["config", 0, "hidden"], [150] * 2000), "up to 64 positive"),
        ("table", put(["config", 0, "coupling_units"], HUGE), "not of the size"),
        ("table", put(["config", 0, "exact_limit"], 2**62), "up to 65536"),
        ("words", put(["config", 1, "n_path_steps"], HUGE), "up to 256"),
        ("table", put(["input_format", "image"], [HUGE, HUGE, HUGE]), "shape of images"),
        ("table", put(["input_format", "feature_names"], ["a"] * 4), "not names"),
        ("table", put(["input_format", "dtype"], "object"), "dtype"),
        ("table", put(["input_format", "device"], "../x"), "device"),
        ("table", put(["groups", "unit_of_feature"], [0, 1, 2, HUGE]), "unit is none"),
        ("table", put(["groups", "column_feature"], [0, 1, 2, -1]), "feature is none"),
        ("table", put(["groups"], {"superpixels": {"n_segments": HUGE}, "image": {}}), "whole explainer"),
        ("table", put(["outputs", "shape"], [HUGE, HUGE]), "masks of other size"),
        ("table", put(["outputs", "classes"], [[0, 1], list(range(10**5))]), "too many labels|two classes"),
        ("table", put(["outputs", "kinds"], ["binary", "continuous"]), "numbers have no classes"),
        ("table", put(["outputs", "kinds"], ["binary"]), "another size"),
        ("table", put(["outputs", "kinds"], ["binary", "complex"]), "kind of outputs is not known"),
        ("table", put(["outputs", "quantiles"], []), "quantiles of another size"),
        ("numbers", put(["outputs", "quantiles"], [None, None]), "numbers, and they alone"),
        ("numbers", put(["outputs", "quantiles", 0, "values"], [3.0, 2.0]), "whole explainer|rising"),
        ("numbers", put(["outputs", "quantiles", 0, "levels"], [0.5] * 65), "whole explainer|rising"),
        ("numbers", put(["outputs", "quantiles", 0, "deviation"], -1.0), "whole explainer|rising"),
        ("numbers", put(["outputs", "quantiles", 1], {"values": [], "levels": [], "deviation": 1.0}),
         "whole explainer|rising"),
        ("numbers", put(["outputs", "tolerance"], -1.0), "tolerance"),
        ("table", put(["removal", "shape"], [HUGE, HUGE]), "background"),
        ("table", put(["targets"], [0, 7]), "targets"),
        ("table", put(["parameters", "energy"], {"__class__": "x"}), "parameters that are not known"),
        ("table", put(["parameters", "preset"], "default; import os"), "whole explainer|not known"),
        ("words", put(["background", "shape"], [60, HUGE]), "background rows of another size"),
        ("words", put(["background", "shape"], [HUGE, 300]), "another number"),
        ("images", put(["input_format", "image"], [1, HUGE, HUGE]), "shape of images"),
        ("images", put(["groups", "image", "height"], HUGE), "other images"),
        ("images", put(["groups"], {"superpixels": {"n_segments": HUGE, "compactness": 1.0},
                                    "image": {"channels": 1, "height": 4, "width": 4}, "pixel_range": "unit"}),
         "too many superpixels"),
        ("images", put(["groups"], {"superpixels": {"n_segments": 4, "compactness": 1e-300},
                                    "image": {"channels": 1, "height": 4, "width": 4}, "pixel_range": "unit"}),
         "compactness"),
        ("images", put(["config", 0, "hidden"], [2**20]), "not of the size"),
    ],
)  # fmt: skip
def test_metadata_that_ask_for_too_much(kind, change, words, explainers, tmp_path, little_memory):
    explainers[kind].save(tmp_path / "why")
    metadata = read_metadata(tmp_path / "why")
    change(metadata)
    seal(tmp_path / "why" / "explainer.json", metadata)
    refused(tmp_path / "why", words)


@pytest.mark.parametrize(
    "text",
    [
        lambda text: text.replace("{", '{"format": 3, ', 1),
        lambda text: text.replace('"k": 2', '"k": NaN'),
        lambda text: text.replace('"k": 2', '"k": 1e999'),
        lambda text: text.replace('"k": 2', '"k": ' + "9" * 100_000),
        lambda text: '{"format": ' + "[" * 200_000,
        lambda text: text + "{}",
        lambda text: text.encode("utf-16").decode("latin-1"),
    ],
    ids=["a key twice", "NaN", "infinity", "a long number", "nested", "two of them", "another encoding"],
)
def test_texts_that_are_not_plain_json(text, explainers, tmp_path):
    explainers["table"].save(tmp_path / "why")
    content = (tmp_path / "why" / "explainer.json").read_text()
    (tmp_path / "why" / "explainer.json").write_text(text(content))
    refused(tmp_path / "why", "cannot be read|not what was saved")


def test_numbers_that_are_none_are_found():
    assert strict_json(b'{"a": [1, 2.5, -1e3]}') == ({"a": [1, 2.5, -1e3]}, True)
    assert strict_json(b'{"a": -Infinity}')[1] is False
    assert strict_json(b'{"a": 1e400}')[1] is False
    with pytest.raises(ValueError, match="twice"):
        strict_json(b'{"b": {"a": 1, "a": 1}}')


# --- weights that fit their checksum -------------------------------------------------------------------------


def reseal(saved, content):
    for old in saved.glob("weights-*"):
        old.unlink()
    digest = hashlib.sha256(content).hexdigest()
    name = f"weights-{digest[:16]}.safetensors"
    (saved / name).write_bytes(content)
    metadata = read_metadata(saved)
    metadata["weights"] = {"file": name, "sha256": digest, "bytes": len(content)}
    seal(saved / "explainer.json", metadata)


def with_tensors(saved, change):
    from safetensors.torch import load, save

    (weights,) = saved.glob("weights-*")
    tensors = load(weights.read_bytes())
    change(tensors)
    reseal(saved, save(tensors))


@pytest.mark.parametrize(
    ("kind", "name", "value", "words"),
    [
        ("words", "background.indices", 10**6, "in no column"),
        ("words", "background.indices", -1, "in no column"),
        ("words", "background.indptr", 10**6, "another number|do not fit"),
        ("table", "training_codes", 77, "no class"),
        ("words", "interpreter.unit_of_column", 10**6, "other units"),
        ("table", "interpreter.effects.unit_of_encoded", 10**6, "other units"),
        ("table", "energy.encoding.column", 10**6, "columns that are none"),
        ("table", "energy.encoding.column", -1, "columns that are none"),
        ("table", "interpreter.localities.root", 10**6, "not there"),
        ("table", "interpreter.localities.root", -1, "not there"),
        ("table", "interpreter.localities.condition", 0, "no trees"),
        ("table", "interpreter.localities.condition", 10**6, "no trees|not there"),
        ("table", "interpreter.localities.left", 0, "no trees"),
        ("table", "interpreter.localities.right", 10**6, "no trees"),
        ("table", "interpreter.localities.sum_column", 10**6, "add up what is not there"),
        ("table", "interpreter.localities.sum_column", -1, "add up what is not there"),
        ("numbers", "interpreter.effects.output_units.unit", 0.0, "no positive numbers"),
        ("numbers", "interpreter.effects.output_units.unit", 1e300, "no positive numbers"),
        ("numbers", "interpreter.effects.output_units.unit", float("nan"), "not finite"),
    ],
)
def test_places_outside_of_their_tables(kind, name, value, words, explainers, tmp_path):
    explainers[kind].save(tmp_path / "why")
    with_tensors(tmp_path / "why", with_a_sum)
    sointer.load(tmp_path / "why")
    with_tensors(tmp_path / "why", lambda tensors: tensors[name].fill_(value))
    refused(tmp_path / "why", words)


def with_a_sum(tensors):
    """Where localities are saved: one weighted sum at least, of the first column."""
    if "interpreter.localities.sum_column" in tensors and not len(tensors["interpreter.localities.sum_column"]):
        for part in ("sum_column", "sum_weight"):
            none = tensors[f"interpreter.localities.{part}"]
            tensors[f"interpreter.localities.{part}"] = none.new_zeros(1, none.shape[1])


def test_tensors_of_other_sizes_or_types(explainers, tmp_path, little_memory):
    import torch

    for number, (name, value) in enumerate(
        [
            ("shift", torch.zeros(5)),
            ("shift", torch.zeros(2, 2)),
            ("shift", torch.zeros(4, dtype=torch.complex64)),
            ("removal.rows", torch.zeros(3, 9)),
            ("training_codes", torch.zeros(3)),
            ("training_codes", torch.zeros(3, 9, dtype=torch.int16)),
            ("energy.b", torch.zeros(3, dtype=torch.bfloat16)),
            ("interpreter.localities.needed", torch.zeros(2, 1, dtype=torch.bool)),
            ("interpreter.localities.condition", torch.full((10**6,), -1)),
            ("interpreter.localities.condition", torch.zeros(0, dtype=torch.long)),
            ("interpreter.localities.threshold", torch.zeros(1, 1)),
            ("interpreter.effects.projections", torch.zeros(0, 150)),
            ("interpreter.effects.projections", torch.zeros(5000, 150)),
            ("interpreter.effects.base", torch.zeros(9)),
            ("interpreter.effects.encodings", torch.zeros(1)),
            ("interpreter.effects.output_units.levels", torch.zeros(2, 1000)),
            ("interpreter.effects.output_units.is_number", torch.zeros(5, dtype=torch.bool)),
            ("interpreter.effects.network.weight", torch.zeros(1, 1, 1)),
            ("interpreter.effects.network.first.weight", torch.zeros(5000, 150)),
            ("energy.encoding.column", torch.zeros(0, dtype=torch.long)),
            ("energy.encoding.low", torch.zeros(3)),
            ("energy.more", torch.zeros(1)),
        ]
    ):
        saved = tmp_path / str(number)
        explainers["table"].save(saved)
        with_tensors(saved, lambda tensors, name=name, value=value: tensors.update({name: value}))
        refused(saved, "does not hold a whole explainer")


def test_a_circle_of_localities(explainers, tmp_path):
    """Two nodes, each below the other: whoever follows them would never arrive."""
    import torch

    explainers["table"].save(tmp_path / "why")

    def change(tensors):
        names = [name for name in tensors if name.startswith("interpreter.localities.")]
        n_nodes = len(tensors["interpreter.localities.condition"])
        for name in names:
            if len(tensors[name]) == n_nodes and "root" not in name and "is_sparse" not in name:
                rest = tensors[name][:1].clone()
                tensors[name] = torch.cat([rest] * max(2, n_nodes))
        condition = tensors["interpreter.localities.condition"]
        condition.zero_()
        for side in ("left", "right"):
            tensors[f"interpreter.localities.{side}"] = torch.arange(len(condition)).roll(1)
        tensors["interpreter.localities.root"].zero_()

    with_tensors(tmp_path / "why", change)
    refused(tmp_path / "why", "whole explainer")


def header(entries):
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        header({"shift": {"dtype": "F64", "shape": [HUGE], "data_offsets": [0, 8 * HUGE]}}),
        header({"shift": {"dtype": "F64", "shape": [HUGE], "data_offsets": [0, 8]}}) + bytes(8),
        header({"shift": {"dtype": "F64", "shape": [-1], "data_offsets": [0, 8]}}) + bytes(8),
        header({"shift": {"dtype": "F64", "shape": [1], "data_offsets": [-8, 8]}}) + bytes(8),
        header([]),
        (2**63).to_bytes(8, "little") + b"{}",
        b"",
        b"\x00" * 1000,
        pickle.dumps({"shift": [1.0]}),
    ],
)
def test_headers_that_lie(content, explainers, tmp_path, little_memory):
    explainers["table"].save(tmp_path / "why")
    reseal(tmp_path / "why", content)
    refused(tmp_path / "why", "whole explainer|cannot be read|not what was saved")


# --- other things in place of files ----------------------------------------------------------------------------


def pipe(path):
    os.mkfifo(path)


def directory(path):
    path.mkdir()


def endless(path):
    path.symlink_to("/dev/zero")


def to_itself(path):
    path.symlink_to(path.name)


def hundred_gigabytes(path):
    path.touch()
    os.truncate(path, 100 * 2**30)


class Payload:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def a_pickle(path):
    path.write_bytes(pickle.dumps(Payload()))


@pytest.mark.parametrize("which", ["explainer.json", "weights-*"])
@pytest.mark.parametrize("other", [pipe, directory, endless, to_itself, hundred_gigabytes, a_pickle])
def test_other_things_in_place_of_a_file(which, other, explainers, tmp_path, monkeypatch, little_memory):
    monkeypatch.chdir(tmp_path)
    explainers["table"].save(tmp_path / "why")
    (path,) = (tmp_path / "why").glob(which)
    path.unlink()
    other(path)
    refused(tmp_path / "why", "cannot be read|not what was saved")
    assert not (tmp_path / "executed").exists()


def test_links_may_not_lead_out_of_the_directory(explainers, tmp_path):
    saved, elsewhere = tmp_path / "why", tmp_path / "elsewhere"
    explainers["table"].save(saved)
    elsewhere.mkdir()
    (weights,) = saved.glob("weights-*")
    weights.rename(elsewhere / weights.name)
    weights.symlink_to(elsewhere / weights.name)
    refused(saved, "leads out of its directory")
    (saved / "..data").mkdir()  # as mounted volumes have it
    (elsewhere / weights.name).rename(saved / "..data" / weights.name)
    weights.unlink()
    weights.symlink_to(Path("..data", weights.name))
    assert sointer.load(saved).k == 2
    (tmp_path / "by another name").symlink_to(saved)
    assert sointer.load(tmp_path / "by another name").k == 2


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("parameters", "level", "x"),
        ("parameters", "k", [2]),
        ("outputs", "kind", "x"),
        ("outputs", "kind", []),
        ("outputs", "kind", "number"),
        ("outputs", "classes", [[], "dry"]),
        ("outputs", "tolerance", -1.0),
        ("outputs", "edges", [2.0, 1.0]),
        (None, "history", {"loss": 1}),
        (None, "n_queries", -1),
        (None, "held_out", [None, 1.0]),
        (None, "tokens", [1] * 50),
    ],
)
def test_sequences_whose_metadata_make_no_sense_are_refused(part, name, value, tmp_path):
    quick_explainer("sequences").save(tmp_path / "why")
    file = tmp_path / "why" / "sequences.json"
    metadata = json.loads(file.read_text())
    (metadata[part] if part else metadata)[name] = value
    seal(file, metadata)
    with pytest.raises(LoadError):
        sointer.load(tmp_path / "why")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.slow
@pytest.mark.parametrize("kinds", ["tables and images", "texts and sequences"])
def test_damage_of_all_kinds(kinds):
    """A small version of `make faults`."""
    found = run_apart("faults", "fuzz_load", part=100, n=60, kinds=kinds)
    assert [found[name] for name in ("crashes", "hangs", "memory", "executions")] == [0, 0, 0, 0], found["worst"]
    assert found["refused"] > 30
