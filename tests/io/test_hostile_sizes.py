"""Saved explainers whose sizes and checksums agree, and that are meant to fill the memory or never to end loading."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import time
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from safetensors.torch import save as serialise

import sointer
from repo_scripts import run_apart, study_modules
from sealing import seal
from sointer import EnergyConfig, SOInter, TrainingConfig
from sointer.apps.cli import main
from sointer.errors import InputError, LoadError, SointerError, SointerWarning
from sointer.io.explainers import STORAGE
from sointer.masking.conditional import row_hashes

TABLE = np.random.default_rng(0).normal(size=(60, 4))
FREE = 2**28


@pytest.fixture(scope="module")
def explainer():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        settings = {"k": 2, "query_budget": 100, "random_state": 0, "training": TrainingConfig(n_epochs=1)}
        return SOInter(lambda X: (X[:, :2] > 0).astype(int), **settings).fit(TABLE)


@pytest.fixture
def memory():
    """Whoever asks for more than this beyond what is in use gets a MemoryError."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

    def allow(n_bytes):
        resource.setrlimit(resource.RLIMIT_AS, (used + n_bytes, limits[1]))

    yield allow
    resource.setrlimit(resource.RLIMIT_AS, limits)


def write(folder, metadata, tensors):
    """As an attacker does: with the checksums that belong to what is written."""
    content = serialise(tensors)
    digest = hashlib.sha256(content).hexdigest()
    for old in folder.glob("weights-*"):
        old.unlink()
    name = f"weights-{digest[:16]}.safetensors"
    (folder / name).write_bytes(content)
    metadata = json.loads(json.dumps(metadata)) | {"weights": {"file": name, "sha256": digest, "bytes": len(content)}}
    seal(folder / "explainer.json", metadata)
    return sum(path.stat().st_size for path in folder.iterdir())


def one_output(metadata, tensors, n_classes):
    metadata["outputs"] |= {"names": ["y"], "kinds": ["categorical"], "classes": [list(range(n_classes))]}
    metadata["outputs"] |= {"seen": [None], "quantiles": [None]}
    metadata |= {"targets": [0], "output_agreement": [1.0], "output_skill": [1.0]}
    tensors["training_codes"] = torch.zeros((2, 1), dtype=torch.int64)


def many_outputs(metadata, tensors, n):
    metadata["outputs"] |= {"names": [f"y{i}" for i in range(n)], "kinds": ["binary"] * n, "classes": [[0, 1]] * n}
    metadata["outputs"] |= {"seen": [None] * n, "quantiles": [None] * n}
    metadata |= {"targets": [0], "output_agreement": [1.0] * n, "output_skill": [1.0] * n}
    tensors["training_codes"] = torch.zeros((2, n), dtype=torch.int64)


def many_layers(metadata, tensors, n):
    metadata["config"][0]["hidden"] = [1] * n


def much_history(metadata, tensors, n):
    metadata["history"] = [{}] * n


def much_history_of_strings(metadata, tensors, n):
    metadata["history"] = [f"{i % 2000}" for i in range(n)]


def many_localities(metadata, tensors, n):
    tensors["interpreter.localities.condition"] = torch.full((n,), -1, dtype=torch.long)


def many_rows(metadata, tensors, n):
    tensors["background.rows"] = torch.zeros((n, 4), dtype=torch.float64)


@pytest.mark.parametrize(
    ("change", "n"),
    [
        (one_output, 24_000),
        (many_outputs, 20_000),
        (many_layers, 60_000),
        (much_history, 4_000_000),
        (much_history_of_strings, 2_000_000),
        (many_localities, 100),
        (many_rows, 100_000),
    ],
)
def test_what_cannot_be_a_fitted_explainer_is_refused_at_once(change, n, explainer, tmp_path, memory):
    explainer.save(tmp_path)
    metadata, tensors = STORAGE.read(tmp_path)
    change(metadata, tensors, n)
    size = write(tmp_path, metadata, tensors)
    started = time.process_time()
    memory(FREE + 4 * size)
    with pytest.raises(LoadError) as caught:
        sointer.load(tmp_path)
    assert "Memory" not in str(caught.value)
    assert len(str(caught.value)) < 1500
    assert time.process_time() - started < 5


def test_a_long_header_is_not_parsed(explainer, tmp_path, memory):
    explainer.save(tmp_path)
    metadata, tensors = STORAGE.read(tmp_path)
    size = write(tmp_path, metadata, tensors | {f"x.{i}": torch.zeros(0) for i in range(60_000)})
    memory(FREE + 4 * size)
    with pytest.raises(LoadError):
        sointer.load(tmp_path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["held_out_agreement"], "<script>"),
        (["held_out_skill"], [1]),
        (["output_agreement"], ["x", "y"]),
        (["output_skill"], [1.0]),
        (["n_queries"], -1),
        (["history"], "x"),
        (["outputs", "names"], ["y", "\ud800"]),
        (["input_format", "feature_names"], ["a", "b", "c", "\udfff"]),
    ],
)
def test_metadata_that_nothing_was_made_from_are_checked_too(place, value, explainer, tmp_path):
    explainer.save(tmp_path)
    metadata, tensors = STORAGE.read(tmp_path)
    *parents, last = place
    holder = metadata
    for parent in parents:
        holder = holder[parent]
    holder[last] = value
    write(tmp_path, metadata, tensors)
    with pytest.raises(LoadError):
        sointer.load(tmp_path)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 3.3e38])
def test_weights_beyond_all_numbers_never_give_scores(number, explainer, tmp_path):
    explainer.save(tmp_path)
    metadata, tensors = STORAGE.read(tmp_path)
    for name in [name for name in tensors if name.startswith("energy.") and tensors[name].is_floating_point()]:
        tensors[name] = torch.full_like(tensors[name], number)
    write(tmp_path, metadata, tensors)
    with pytest.raises(SointerError, match="finite"):
        sointer.load(tmp_path).explain(TABLE[:3], 0)


@pytest.mark.parametrize("change", [{"history": [{"x": {}}]}, {"sointer": None}, {"n_queries": "many"}])
def test_what_cannot_be_described_is_a_damaged_explainer(change, explainer, tmp_path, capsys, monkeypatch):
    explainer.save(tmp_path)
    metadata, tensors = STORAGE.read(tmp_path)
    write(tmp_path, {name: value for name, value in (metadata | change).items() if value is not None}, tensors)
    monkeypatch.setattr("sys.argv", ["sointer", "info", str(tmp_path), "--verbose"])
    with suppress(SystemExit):
        main()
    said = capsys.readouterr().err
    assert "this should not happen" not in said


def test_names_that_are_no_text_are_not_saved(explainer, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        odd = SOInter(explainer.model, feature_names=["a", "b", "c", "\ud800"], query_budget=100, random_state=0)
        odd.set_params(training=TrainingConfig(n_epochs=1)).fit(TABLE)
    with pytest.raises(InputError, match="not valid text"):
        odd.save(tmp_path / "odd")
    assert not (tmp_path / "odd").exists()


def test_hashes_of_sparse_rows_are_those_of_dense_ones():
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((700, 30)) < 0.2, rng.normal(size=(700, 30)), 0.0)
    rows[3], rows[5, 2] = 0.0, -0.0
    assert np.array_equal(row_hashes(rows), row_hashes(sp.csr_array(rows)))


@pytest.mark.slow
@pytest.mark.parametrize("kinds", ["tables and images", "texts and sequences"])
def test_sizes_that_agree(kinds):
    """A small version of `make faults`; most must agree so well that they are loaded, or nothing was tried."""
    found = run_apart("faults", "fuzz_sizes", part=3, n=40, kinds=kinds)
    assert found["refused"] + found["accepted"] == 40
    assert found["accepted"] > 10


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork") or not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.parametrize("kinds", ["tables and images", "texts and sequences"])
def test_tensors_that_hold_nothing(kinds):
    """A small version of `make faults`."""
    found = run_apart("faults", "fuzz_empty", part=1, n=60, kinds=kinds)
    assert found["refused"] + found["accepted"] == 60, found
    assert found["accepted"]


@pytest.mark.slow
@pytest.mark.parametrize("kinds", ["tables and images", "texts and sequences"])
def test_explainers_with_other_sizes_are_of_every_kind(kinds, tmp_path):
    """What the study of sizes makes is refused for its size, not because something else does not fit."""
    faults = study_modules("faults", "consistent", "fuzz_load", "fuzz_sizes", "mutations")
    never = {("images", "more layers"), ("images", "wider layers")}  # they have settings of their own
    for kind, saved in faults.fuzz_load.saved_explainers(tmp_path / "saved", kinds).items():
        if kind in ("labels", "numbers", "frame", "paper", "alone", "superpixels"):
            continue  # as tables and images are
        growths, rng = faults.fuzz_sizes.OF_WORDS.get(kind, faults.consistent.GROWTHS), np.random.default_rng(0)
        for name, growth in growths.items():
            if name == "more tensors" or (kind, name) in never:
                continue
            fits = False
            for _ in range(9):
                faults.mutations.fresh_copy(saved, tmp_path / "grown")
                faults.consistent.make_consistent(tmp_path / "grown", rng, {name: growth})
                with suppress(LoadError):
                    sointer.load(tmp_path / "grown")
                    fits = True
                    break
            assert fits, f"{kind}: {name}: none of nine fits together"


def test_explainers_with_fewer_layers_fit_together(tmp_path):
    """What the study of sizes makes has no tensors left of layers that it has no more."""
    faults = study_modules("faults", "consistent")
    deep = {"energy": EnergyConfig(hidden=(8, 8, 8)), "training": TrainingConfig(n_epochs=1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        made = SOInter(lambda X: X[:, :2] > 0, query_budget=100, random_state=0, **deep).fit(TABLE)
    made.save(tmp_path / "deep")
    n_before = len(STORAGE.read(tmp_path / "deep")[1])

    def fewer_layers(metadata, tensors, rng):
        metadata["config"][0]["hidden"] = [8]

    faults.consistent.make_consistent(tmp_path / "deep", np.random.default_rng(0), {"fewer layers": fewer_layers})
    assert sointer.load(tmp_path / "deep").config_.energy.hidden == (8,)
    assert len(STORAGE.read(tmp_path / "deep")[1]) < n_before
