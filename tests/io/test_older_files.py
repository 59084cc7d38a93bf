"""Explainers that earlier versions saved: they load and explain as they did then, or are refused with what to do.

`tools/save_explainers.py` wrote the files of a format with the last version that had it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import sointer
from sointer import SequenceExplainer
from sointer.errors import LoadError
from sointer.zoo import PlantedChain

SAVED = Path(__file__).parent / "saved"
READABLE = sorted(path for path in SAVED.glob("format5/*") if path.name != "sequences")


def as_given(kind: str, plain: object) -> object:
    """What was explained, in the container that it had."""
    if kind == "frame":
        return pd.DataFrame({4 if name == "4" else name: values for name, values in plain.items()})
    if kind == "texts":
        return plain
    return sp.csr_array(np.array(plain)) if kind == "sparse" else np.array(plain)


@pytest.mark.parametrize("path", READABLE, ids=lambda path: path.name)
def test_explanations_are_those_of_the_version_that_saved(path):
    expected = json.loads((path / "expected.json").read_text())
    found = sointer.load(path).explain(as_given(path.name, expected["X"]), 0, query=False)
    np.testing.assert_array_equal(found.selected, expected["selected"])
    np.testing.assert_allclose(found.scores, expected["scores"], rtol=1e-3, atol=1e-5)
    assert [str(value) for value in found.value] == expected["value"]


def test_sequences():
    path = SAVED / "format5" / "sequences"
    expected = json.loads((path / "expected.json").read_text())
    found = SequenceExplainer.load(path, PlantedChain("carry", n_words=6, seed=3)).explain(expected["X"])
    np.testing.assert_array_equal(found.selected, expected["selected"])
    np.testing.assert_allclose(found.scores, expected["scores"], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("version", [3, 4])
def test_formats_too_old_are_refused_with_what_to_do(version):
    with pytest.raises(
        LoadError, match=f"format {version}, .* Install the version that saved it, or fit and save again"
    ):
        sointer.load(SAVED / f"format{version}" / "table")


def test_every_kind_has_a_file():
    assert len(READABLE) == 6
