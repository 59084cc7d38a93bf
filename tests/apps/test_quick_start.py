"""Help, info and mistakes in arguments take no time: torch and scikit-learn are not loaded for them."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import sointer
from quick import quick_fit
from sointer import Patches, Superpixels
from sointer.apps.cli.info import as_text, describe
from sointer.io.storage import EXPLAINER

HEAVY = ("torch", "sklearn", "scipy", "pandas")
MAX_CPU_SECONDS = 2.0
"""Generous: it takes 0.2 s, and took 5 s when torch was loaded first."""
RUN = """
import resource, sys
from sointer.apps.cli import main
try:
    main()
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    loaded = [name for name in %r if name in sys.modules]
    print("LOADED", *loaded, file=sys.stderr)
    print("CPU", used.ru_utime + used.ru_stime, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A saved explainer and data."""
    where = tmp_path_factory.mktemp("quick")
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=["age", "debt", "job"])
    quick_fit(lambda X: X[["age", "debt"]].to_numpy() > 0, X, output_names=["old", "poor"]).save(where / "why")
    X.to_csv(where / "rows.csv", index=False)
    return where


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("--help", 0, "Exit codes"),
        ("info why", 0, "age"),
        ("info why --json", 0, "held_out_agreement"),
        ("info nowhere", 1, "is not a saved explainer"),
        ("explain why --data rows.csv --target oldd --out x.csv", 1, "Did you mean 'old'"),
        ("explain why --data rows.csv --target 7 --out x.csv", 1, "from 0 to 1"),
        ("explain why --data rowz.csv --target old --out x.csv", 1, "rowz.csv does not exist"),
        ("explain why --data rows.xlsx --target old --out x.csv", 1, "unsupported file type"),
        ("explain why --data rows.csv --target old --out x.xlsx", 1, "ends in .parquet, .csv or .jsonl"),
        ("explain why --data rows.csv --target old --out x.csv --model nomodule:f", 1, "no module nomodule"),
        ("explain why --data rows.csv --targett old --out x.csv", 2, "No such option"),
        ("fit --model nomodule:f --data rows.csv --out new", 1, "no module nomodule"),
        ("report why --data rows.csv --target poorr --out x.html", 1, "Did you mean 'poor'"),
        ("serve nowhere", 1, "is not a saved explainer"),
        ("serve why --model nomodule:f", 1, "no module nomodule"),
        ("serve why --records nowhere/r.jsonl", 1, "nowhere"),
        ("explain why --data rows.csv --target old --out x.csv --records x.txt", 1, "ends in .jsonl"),
        ("evaluate why --data rowz.csv --model nomodule:f", 1, "rowz.csv does not exist"),
    ],
)
def test_nothing_heavy_is_loaded(place, arguments, code, words) -> None:
    command = [sys.executable, "-c", RUN % (HEAVY,), *arguments.split()]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    assert words in done.stdout + done.stderr
    lines = dict(line.partition(" ")[::2] for line in done.stderr.splitlines() if line.startswith(("LOADED", "CPU")))
    assert lines["LOADED"] == ""
    assert float(lines["CPU"]) < MAX_CPU_SECONDS


@pytest.mark.parametrize("groups", [None, Patches(2), Superpixels(6)])
def test_info_says_what_an_explainer_of_images_has_learned(tmp_path, groups) -> None:
    images = np.random.default_rng(0).random((40, 1, 6, 6))
    explainer = quick_fit(lambda images: images[:, 0] > 0.5, images, groups=groups)
    explainer.save(tmp_path / "why")
    found = describe(EXPLAINER.peek(tmp_path / "why"), tmp_path / "why")
    assert (found["takes"], found["features"], found["outputs"], found["targets"]) == ("images", 36, [6, 6], None)
    assert found["groups"] == (None if groups is None else explainer.groups_.unit_names)
    assert found["output_quality"] is None
    assert "masks of 6 x 6 pixels (binary)" in as_text(found, verbose=False)


def test_info_says_the_same_as_the_loaded_explainer(place) -> None:
    path, explainer = place / "why", sointer.load(place / "why")
    found = describe(EXPLAINER.peek(path, whole=True), path)
    for name in ("k", "preset", "structured", "random_state", "n_queries_", "held_out_agreement_", "history_"):
        assert found[name.rstrip("_")] == getattr(explainer, name)
    assert found["features"] == explainer.input_format_.feature_names
    assert (found["outputs"], found["output_kind"]) == (explainer.output_names_, explainer.outputs_.kind)
    assert found["removal"] == explainer.removal_.name
    assert [one["agreement"] for one in found["output_quality"]] == explainer.output_agreement_.tolist()
    localities = [explainer.localities(target).to_json() for target in explainer.targets_]
    assert found["localities"] == json.loads(json.dumps(localities))


def test_info_notices_damaged_weights(place, tmp_path) -> None:
    import shutil

    from sointer.errors import LoadError

    shutil.copytree(place / "why", tmp_path / "why")
    (weights,) = (tmp_path / "why").glob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(LoadError, match="checksum differs"):
        EXPLAINER.peek(tmp_path / "why", whole=True)
