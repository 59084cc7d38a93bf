"""ONNX export: onnxruntime selects what torch selects, for every kind of output, energy and removal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

import onnxruntime
from scipy import sparse

from sointer import EnergyConfig, InterpreterConfig, SOInter, TrainingConfig
from sointer.errors import InputError
from sointer.interop.onnx import _graph, export

pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")

N_FEATURES, N_NEW = 6, 300
QUICK: dict[str, Any] = {
    "k": 3,
    "random_state": 0,
    "query_budget": 300,
    "energy": EnergyConfig(hidden=(16, 12)),
    "interpreter": InterpreterConfig(n_residual_steps=30, n_path_steps=8),
    "training": TrainingConfig(n_epochs=8, n_rounds=1),
}
MEAN_FIELD = EnergyConfig(hidden=(16, 12), exact_limit=2)


def rows(n: int, seed: int) -> np.ndarray:
    # Exact in float32, which is what ONNX is given.
    return np.random.default_rng(seed).normal(size=(n, N_FEATURES)).astype(np.float32).astype(np.float64)


X, NEW = rows(200, 0), rows(N_NEW, 1)


def tags(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x.toarray() if sparse.issparse(x) else x)
    warm, wet = x[:, 0] + x[:, 1] > 0, x[:, 2] * x[:, 3] > 0
    return np.column_stack([warm, wet, warm ^ wet])


def classes(x: np.ndarray) -> np.ndarray:
    return np.column_stack([np.digitize(x[:, 0], [-1, 0, 1]), np.digitize(x[:, 1], [0])])


def numbers(x: np.ndarray) -> np.ndarray:
    return np.column_stack([x[:, 0] + x[:, 1], x[:, 2] * x[:, 3], x[:, 0] - x[:, 2]])


KINDS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], dict[str, Any]]] = {
    "exact": (tags, {}),
    "a fixed reference and groups": (tags, {"removal": "mean", "groups": {"both": [0, 1]}}),
    "each output alone": (tags, {"structured": False}),
    "classes": (classes, {}),
    "classes, each alone": (classes, {"structured": False}),
    "mean field": (tags, {"energy": MEAN_FIELD}),
    "mean field of classes": (classes, {"energy": MEAN_FIELD, "removal": "zero"}),
    "numbers": (numbers, {}),
}


def fit(model: Any, **settings: Any) -> SOInter:
    return SOInter(model, **(QUICK | settings)).fit(X)


def compare(explainer: SOInter, run: Callable[..., Any], **options: Any) -> None:
    """What `run` (rows, targets) selects is what explain selects, for rows that were not seen in fit."""
    targets = np.arange(N_NEW) % explainer.n_outputs_
    explanation = explainer.explain(NEW, targets)
    scores, selected, expected = run(NEW.astype(np.float32), targets)
    np.testing.assert_allclose(scores, explanation.scores, rtol=1e-3, atol=1e-4 * np.abs(explanation.scores).max())
    np.testing.assert_array_equal(selected, explanation.selected)
    told = explainer.outputs_.label_targets(np.asarray(expected), targets)
    if explainer.outputs_.kind == "continuous":
        np.testing.assert_allclose(told.astype(float), explanation.expected.astype(float), rtol=1e-3, atol=1e-3)
    else:
        assert (told == explanation.expected).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_plain_operations_are_the_interpreter(kind: str) -> None:
    model, settings = KINDS[kind]
    explainer = fit(model, **settings)
    graph = _graph(explainer, None, None, takes_value=False)
    with torch.no_grad():
        compare(explainer, lambda x, t: [part.numpy() for part in graph(torch.from_numpy(x), torch.from_numpy(t))])


def run_of(path: Path) -> Callable[..., Any]:
    session = onnxruntime.InferenceSession(str(path))
    names = [one.name for one in session.get_inputs()]
    return lambda *given: session.run(None, dict(zip(names, given, strict=False)))


@pytest.fixture(scope="module")
def explainer() -> SOInter:
    return SOInter(tags, **QUICK, output_names=["warm", "wet", "odd"], feature_names=list("abcdef")).fit(X)


def test_onnxruntime_selects_the_same(explainer: SOInter, tmp_path: Path) -> None:
    path = export(explainer, tmp_path / "why.onnx")
    assert path == tmp_path / "why.onnx"
    run = run_of(path)
    compare(explainer, run)
    one = run(NEW[:1].astype(np.float32), np.array([2]))
    np.testing.assert_array_equal(one[1], explainer.explain(NEW[:1], 2).selected)


def test_mean_field_in_onnxruntime(tmp_path: Path) -> None:
    explainer = fit(tags, energy=MEAN_FIELD, removal="zero")
    compare(explainer, run_of(export(explainer, tmp_path / "why.onnx")))


def test_one_target_another_k_and_told_values(explainer: SOInter, tmp_path: Path) -> None:
    path = export(explainer, tmp_path / "odd.onnx", target="odd", k=2, takes_value=True)
    session = onnxruntime.InferenceSession(str(path))
    assert [one.name for one in session.get_inputs()] == ["rows", "value"]
    said = tags(NEW)
    explanation = explainer.explain(NEW, "odd", k=2, predicted=said)
    _, selected, expected = run_of(path)(NEW.astype(np.float32), said[:, 2].astype(np.int64))
    np.testing.assert_array_equal(selected, explanation.selected)
    np.testing.assert_array_equal(expected, said[:, 2])
    facts = json.loads(session.get_modelmeta().custom_metadata_map["sointer"])
    assert (facts["target"], facts["k"], facts["columns"]) == ("odd", 2, list("abcdef"))
    assert facts["outputs"] == ["warm", "wet", "odd"]


@pytest.fixture(scope="module")
def words() -> tuple[SOInter, Any]:
    """An explainer that halves its rows again and again, and rows it has not seen, some with hardly any words."""
    rng = np.random.default_rng(0)

    def model(x: Any) -> np.ndarray:
        dense = x.toarray()
        return np.column_stack([dense[:, :20].sum(1) > 0, dense[:, 10:40].sum(1) > 1])

    seen, new = ((rng.random((n, 260)) < 0.03).astype(np.float64) for n in (300, 200))
    new[:20, 5:] = 0.0
    settings = QUICK | {"energy": EnergyConfig(hidden=(24,)), "training": TrainingConfig(n_epochs=2, n_rounds=1)}
    settings["interpreter"] = InterpreterConfig(n_path_steps=16)
    explainer = SOInter(model, **settings).fit(sparse.csr_array(seen))
    assert explainer.interpreter_.eliminates, "otherwise nothing is halved, and this tests nothing"
    return explainer, sparse.csr_array(new)


def compare_words(words: tuple[SOInter, Any], run: Callable[..., Any]) -> None:
    explainer, new = words
    targets = np.arange(200) % 2
    explanation = explainer.explain(new, targets)
    _, selected, _ = run(new.toarray().astype(np.float32), targets)
    assert (selected == -1).any(), "rows with fewer words than k"
    np.testing.assert_array_equal(selected == -1, explanation.selected == -1)
    assert (selected == explanation.selected).all(axis=1).mean() > 0.98  # which of two equals is halved away may differ


def test_sparse_rows_are_halved_as_by_the_interpreter(words: tuple[SOInter, Any]) -> None:
    graph = _graph(words[0], None, None, takes_value=False)
    with torch.no_grad():
        compare_words(words, lambda x, t: [part.numpy() for part in graph(torch.from_numpy(x), torch.from_numpy(t))])


@pytest.mark.slow
def test_sparse_rows_in_onnxruntime(words: tuple[SOInter, Any], tmp_path: Path) -> None:
    compare_words(words, run_of(export(words[0], tmp_path / "words.onnx")))


def test_what_cannot_be_exported_says_so(explainer: SOInter, tmp_path: Path) -> None:
    path = tmp_path / "no.onnx"
    with pytest.raises(InputError, match="expected a fitted SOInter"):
        export("explainer", path)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="there is no folder"):
        export(explainer, tmp_path / "none" / "no.onnx")
    with pytest.raises(InputError, match="unknown output"):
        export(explainer, path, target="cold")
    with pytest.raises(InputError, match="k must be from 1 to 6"):
        export(explainer, path, k=7)
    some = SOInter(tags, **QUICK).fit(X, targets=[1])
    with pytest.raises(InputError, match="not among the targets"):
        export(some, path, target=0)
    images = np.random.default_rng(0).random((12, 1, 6, 6))
    quick = QUICK | {"query_budget": 30, "energy": None, "training": TrainingConfig(n_rounds=1, n_epochs=1)}
    quick["interpreter"] = InterpreterConfig(n_residual_steps=1)
    pixels = SOInter(lambda x: (x[:, 0] > 0.5).astype(int), **quick).fit(images)
    with pytest.raises(InputError, match="of images cannot be written as ONNX"):
        export(pixels, path)
    assert not path.exists()
