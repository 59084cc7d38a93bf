"""Saved explainers: nothing lost, nothing executed, and one clear error for whatever is damaged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import sointer
from quick import quick_fit
from sealing import seal
from sointer.errors import InputError, LoadError, SointerWarning

X = np.random.default_rng(0).normal(size=(80, 4))


def two_outputs(batch):
    dense = batch.toarray() if sp.issparse(batch) else np.asarray(batch, dtype=float)
    return (dense[:, :2] > 0).astype(int)


def fitted(data=X, model=two_outputs, **changes):
    return quick_fit(model, data, **changes)


@pytest.fixture(scope="module")
def explainer():
    """Fitted once; tests must not change it."""
    return fitted()


@pytest.fixture
def saved(explainer, tmp_path):
    explainer.save(tmp_path / "why")
    return tmp_path / "why"


ALONE = """
import sys
import numpy as np
import sointer

explainer = sointer.load(sys.argv[1])
explainer.explain(np.zeros((2, 4)), target=1)
print([name for name in sys.modules if name.startswith("sointer.training")])
"""


def test_loading_imports_nothing_that_trains(saved):
    command = [sys.executable, "-c", ALONE, saved]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.strip() == "[]"


FRAME = pd.DataFrame({"colour": np.where(X[:, 0] > 0, "red", "blue"), "a": X[:, 1], "n": np.arange(80)})


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        (X.astype(np.float32), {}),
        (sp.csr_matrix(np.where(X > 0, X, 0.0)), {}),
        (FRAME, {"model": lambda frame: np.column_stack([frame["colour"] == "red", frame["a"] > 0])}),
        (X, {"groups": {"both": [0, 1]}}),
        (X, {"removal": "mean"}),
        (X, {"removal": np.ones(4)}),
        (X, {"k": np.int64(3), "query_budget": np.int64(200), "random_state": np.int64(3)}),
        (X, {"k": "auto"}),
        (X, {"model": lambda batch: np.asarray(batch)[:, :2] * 3.0, "tolerance": 0.3}),
        (X, {"model": lambda batch: np.where(np.asarray(batch)[:, :2] > 0, "yes", "no")}),
    ],
    ids=["float32", "csr", "frame", "groups", "mean", "array", "numpy numbers", "auto", "numbers", "labels"],
)
def test_what_is_loaded_is_what_was_saved(data, changes, tmp_path):
    explainer = fitted(data, **changes)
    explainer.save(tmp_path / "why")
    loaded = sointer.load(tmp_path / "why", black_box=explainer.model)
    one, two = explainer.explain(data, target=1, k=2), loaded.explain(data, target=1, k=2)
    assert np.array_equal(one.scores, two.scores)
    assert np.array_equal(one.selected, two.selected)
    assert list(one.value) == list(two.value)
    for removal in (None, "mean", "marginal"):
        assert one.verify(removal=removal).fidelity == two.verify(removal=removal).fidelity
    assert loaded.k == explainer.k


def test_a_clone_of_a_loaded_explainer_fits_the_same(explainer, saved):
    loaded = sointer.load(saved, black_box=two_outputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        again = clone(loaded).fit(X)
    assert np.array_equal(again.explain(X, target=0).scores, explainer.explain(X, target=0).scores)


def test_a_removal_function_must_be_given_again(tmp_path):
    def ones(x, keep, rng):
        return np.where(keep, x, 1.0)

    fitted(removal=ones).save(tmp_path / "why")
    loaded = sointer.load(tmp_path / "why", black_box=two_outputs, removal=ones)
    assert loaded.explain(X[:5], target=0).verify().agreement.shape == (5,)
    without = sointer.load(tmp_path / "why", black_box=two_outputs)
    with pytest.raises(LoadError, match="function"):
        without.explain(X[:5], target=0).verify()


def test_a_removal_that_would_be_ignored_is_refused(saved):
    with pytest.raises(LoadError, match="leave removal out"):
        sointer.load(saved, removal=lambda x, keep, rng: x)


# --- saving -----------------------------------------------------------------------------------------------


def test_saving_again_replaces_the_explainer_and_nothing_else(saved):
    (saved / "notes.txt").write_text("mine")
    (saved / ".explainer.json-draft-a1b2c3d4").write_text("{")
    fitted(random_state=5).save(saved)
    assert (saved / "notes.txt").read_text() == "mine"
    assert len(list(saved.glob("weights-*"))) == 1
    assert sorted(p.name for p in saved.iterdir() if p.name.startswith(".")) == []
    assert sointer.load(saved).random_state == 5


def test_a_directory_of_something_else_is_left_alone(explainer, tmp_path):
    (tmp_path / "thesis.txt").write_text("irreplaceable")
    with pytest.raises(InputError, match="nothing was written"):
        explainer.save(tmp_path)
    with pytest.raises(InputError, match="is a file"):
        explainer.save(tmp_path / "thesis.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    def fit_with_names(length):
        many = sp.csr_array(np.pad(X, [(0, 0), (0, 2996)]))
        return fitted(many, feature_names=[f"{i:0{length}}" for i in range(3000)])

    fit_with_names(1800).save(tmp_path / "why")
    assert len(sointer.load(tmp_path / "why").feature_names_in_[2]) == 1800
    with pytest.raises(InputError, match=r"not saved, as it could not be loaded: .* take 2\d\.\d MB"):
        fit_with_names(4000).save(tmp_path / "why")
    assert len(sointer.load(tmp_path / "why").feature_names_in_[2]) == 1800


@pytest.mark.parametrize("fails_at", [1, 3])  # of weights and metadata; between them is that of the directory
def test_a_full_disk_leaves_the_old_explainer_whole(saved, monkeypatch, fails_at):
    other = fitted(random_state=9)
    before = sointer.load(saved).explain(X, target=0).scores
    calls = []

    def full(handle):
        calls.append(handle)
        if len(calls) == fails_at:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OSError, match=r"No space left on device; the explainer \(\d.* MB\) was not saved.*Make room"
    ) as caught:
        other.save(saved)
    assert caught.value.errno == 28
    monkeypatch.undo()
    assert np.array_equal(sointer.load(saved).explain(X, target=0).scores, before)
    assert not [p for p in saved.iterdir() if p.name.startswith(".")]


# --- damage -----------------------------------------------------------------------------------------------


def edit(saved, change):
    """Change metadata as one would who makes the checksum right again."""
    metadata = json.loads((saved / "explainer.json").read_text())
    change(metadata)
    seal(saved / "explainer.json", metadata)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda metadata: metadata.update(format=99), "format 99"),
        (lambda metadata: metadata.update(format=None), "format None"),
        (lambda metadata: metadata.pop("outputs"), "outputs"),
        (lambda metadata: metadata.update(config=[None] * 3), "whole explainer"),
        (lambda metadata: metadata["config"][0].update(hidden=[7]), "whole explainer"),
        (lambda metadata: metadata["config"][0].update(hidden=[-1]), "whole explainer"),
        (lambda metadata: metadata.update(parameters={"no_such": 1}), "whole explainer"),
        (lambda metadata: metadata["weights"].update(file="../../etc/passwd"), "save never writes"),
        (lambda metadata: metadata["weights"].update(sha256="0" * 64), "checksum"),
        (lambda metadata: metadata.pop("weights"), "weights"),
        (lambda metadata: metadata.update(groups=[]), "whole explainer"),
        (lambda metadata: metadata.update(input_format={}), "whole explainer"),
    ],
)
def test_damaged_metadata_gives_one_clear_error(saved, change, words):
    edit(saved, change)
    with pytest.raises(LoadError, match=words):
        sointer.load(saved)


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe", b"[" * 100_000])
def test_metadata_that_is_not_json(saved, content):
    (saved / "explainer.json").write_bytes(content)
    with pytest.raises(LoadError):
        sointer.load(saved)


def test_bits_that_flipped_and_files_that_ended_early(saved):
    (weights,) = saved.glob("weights-*")
    content = weights.read_bytes()
    for damaged in (content[:-1], content[:10], b"", content[:100] + bytes([content[100] ^ 1]) + content[101:]):
        weights.write_bytes(damaged)
        with pytest.raises(LoadError, match="checksum"):
            sointer.load(saved)
    weights.unlink()
    with pytest.raises(LoadError, match="cannot be read"):
        sointer.load(saved)


def test_a_digit_that_changed_in_the_metadata(saved):
    text = (saved / "explainer.json").read_text()
    (saved / "explainer.json").write_text(text.replace('"k": 2', '"k": 3'))
    with pytest.raises(LoadError, match="checksum"):
        sointer.load(saved)
    (saved / "explainer.json").write_text(json.dumps(json.loads(text)))  # other spaces say the same
    assert sointer.load(saved).k == 2


@pytest.mark.parametrize(("version", "words"), [(4, "version that saved it"), (6, "Install a newer one")])
def test_formats_that_cannot_be_read_say_what_to_install(saved, version, words):
    edit(saved, lambda metadata: metadata.update(format=version))
    with pytest.raises(LoadError, match=f"format {version}, .* reads format 5.*{words}"):
        sointer.load(saved)


def test_one_is_read_while_another_is_saved_in_its_place(explainer, saved):
    others = [explainer, fitted(random_state=3)]
    stop = threading.Event()
    failures = []

    def keep_saving():
        while not stop.is_set():
            for one in others:
                one.save(saved)

    def keep_loading():
        for _ in range(20):
            try:
                sointer.load(saved)
            except Exception as error:
                failures.append(error)

    writer, readers = threading.Thread(target=keep_saving), [threading.Thread(target=keep_loading) for _ in range(2)]
    for thread in (writer, *readers):
        thread.start()
    for thread in readers:
        thread.join()
    stop.set()
    writer.join()
    assert failures == []


def test_places_without_an_explainer(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere", shutil.__file__):
        with pytest.raises(LoadError, match="not a saved explainer"):
            sointer.load(path)


def test_nothing_is_ever_unpickled():
    for module in Path(sointer.__file__).parent.rglob("*.py"):
        assert "import pickle" not in module.read_text(encoding="utf-8"), module.name
        assert "torch.load" not in module.read_text(encoding="utf-8"), module.name
