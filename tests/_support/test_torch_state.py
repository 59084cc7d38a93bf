"""Where networks are computed, tested without another device: see `tests.support.elsewhere`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sointer.explainers.fitting
import sointer.io.explainers
import sointer.io.sequences
from sointer import BlackBox, SequenceExplainer, SOInter, load
from sointer._support.torch_state import KINDS, computing_on, device_of, on_host, resolve_device
from sointer.errors import InputError
from tests.support import quick
from tests.support.elsewhere import ELSEWHERE, Elsewhere, elsewhere

MODULES = (sointer.explainers.fitting, sointer.io.explainers, sointer.io.sequences)
"""Imported, so that `elsewhere` finds them."""


def two_probabilities(X: Any) -> Any:
    return np.column_stack([1 / (1 + np.exp(-X[:, 0] - X[:, 1])), 1 / (1 + np.exp(X[:, 2]))])


def numbers_and_labels(X: Any) -> Any:
    three = np.where(X[:, 2] > 0.5, "high", np.where(X[:, 2] < -0.5, "low", "middle"))
    return np.column_stack([X[:, 0] + X[:, 1] ** 2, three.astype(object)]).astype(object)


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "table": (quick.labels, quick.TABLE, {}),
    "mixed": (numbers_and_labels, quick.TABLE, {}),
    "probabilities": (two_probabilities, quick.TABLE, {}),
    "alone": (quick.labels, quick.TABLE, {"structured": False}),
    "frame": (quick.frame_labels, quick.FRAME, {}),
    "wide": (quick.labels, quick.WIDE, {}),
    "sparse": (quick.first_words, quick.SPARSE, {}),
    "texts": (quick.text_pipeline(), quick.TEXTS[:40], {"query_budget": 60}),
    "images": (quick.masks, quick.IMAGES, {}),
}


def looks_as_its_owner_left_it(model: Any) -> Any:
    """The model, which fails if torch makes its tensors on another device."""

    def predict(X: Any) -> Any:
        assert torch.zeros(1).device.type == "cpu"
        assert torch.as_tensor(np.zeros(1)).device.type == "cpu"
        return getattr(model, "predict", model)(X)

    return predict


@pytest.mark.parametrize("case", CASES)
def test_fit_and_explain_stay_on_their_device(case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model, X, settings = CASES[case]
    model = looks_as_its_owner_left_it(model)
    here = quick.quick_fit(model, X, **settings)
    with elsewhere(monkeypatch) as device:
        there = quick.quick_fit(BlackBox(model, caller_thread=True), X, device=device, **settings)
        for network in (there.energy_, there.interpreter_):
            assert all(isinstance(p, Elsewhere) for p in network.parameters())
            assert device_of(network) == ELSEWHERE
        same(here, there, X)
        there.save(tmp_path / "there")
        if case != "images":  # torch makes convolutions without memory first, on a device of the same name
            again = load(tmp_path / "there", model, device=device)
            assert all(isinstance(p, Elsewhere) for p in again.energy_.parameters())
            same(here, again, X)
    saved = load(tmp_path / "there", model)
    assert device_of(saved.energy_).type == "cpu"
    assert saved.device == "cpu"
    same(here, saved, X)


def same(here: SOInter, there: SOInter, X: Any) -> None:
    """Everything that networks compute, on both devices."""
    ours, theirs = (explainer.explain(X[:6], target=0, refine=4) for explainer in (here, there))
    for name in ("scores", "effects", "needed"):
        if (own := getattr(ours, name, None)) is not None:
            np.testing.assert_allclose(getattr(theirs, name), own, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(theirs.value, ours.value)
    expected = [explainer.explain(X[:6], target=0, query=False).value for explainer in (here, there)]
    assert np.array_equal(*expected) or np.allclose(*(np.asarray(part, float) for part in expected), atol=1e-4)
    np.testing.assert_allclose(there.output_interactions_, here.output_interactions_, atol=1e-4)
    if "locality" in here.known_columns:
        assert str(there.localities(0)) == str(here.localities(0))
    there.explain(X[:2], "all" if here.input_format_.image is None else (0, 0), k="auto")


@pytest.mark.slow
def test_paths_are_followed_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = quick.quick_fit(quick.labels, quick.TABLE).explain(quick.TABLE[:4], target=0)
    with elsewhere(monkeypatch) as device:
        theirs = quick.quick_fit(quick.labels, quick.TABLE, device=device).explain(quick.TABLE[:4], target=0)
        np.testing.assert_allclose(theirs.paths(n_draws=2).direct, ours.paths(n_draws=2).direct, atol=1e-4)


def test_the_paper_stays_on_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from sointer import EnergyConfig, TrainingConfig

    settings: dict[str, Any] = {
        "preset": "paper", "energy": EnergyConfig(hidden=(8,)),
        "training": TrainingConfig(n_rounds=2, n_pretraining_steps=3),
    }  # fmt: skip
    here = quick.quick_fit(quick.labels, quick.TABLE, **settings)
    with elsewhere(monkeypatch) as device:
        there = quick.quick_fit(quick.labels, quick.TABLE, device=device, **settings)
        ours, theirs = (explainer.explain(quick.TABLE[:6], target=0) for explainer in (here, there))
    np.testing.assert_allclose(theirs.scores, ours.scores, rtol=1e-3, atol=1e-5)


def test_sequences_stay_on_their_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def prices(batch: Any) -> Any:
        assert torch.zeros(1).device.type == "cpu"
        return [["price" if i and s[i - 1] == "$" else "-" for i in range(len(s))] for s in batch]

    X = [["pay", "$", "5", "now"], ["at", "5", "pm"], ["$", "7"], ["to", "7", "of", "us"]] * 10
    settings: dict[str, Any] = {"query_budget": 300, "random_state": 0, "window": 1}
    monkeypatch.setattr("sointer.training.sequences.MIN_STEPS", 40)  # every step is slow elsewhere
    here = SequenceExplainer(prices, **settings).fit(X)
    with elsewhere(monkeypatch) as device:
        there = SequenceExplainer(prices, device=device, **settings).fit(X)
        there.save(tmp_path / "there")
        for explainer in (there, SequenceExplainer.load(tmp_path / "there", prices, device=device)):
            assert all(isinstance(p, Elsewhere) for p in explainer.energy_.parameters())
            ours, theirs = (one.explain(X[:4], target=1) for one in (here, explainer))
            np.testing.assert_allclose(theirs.scores, ours.scores, rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(theirs.paths().total, ours.paths().total, atol=1e-4)
    saved = SequenceExplainer.load(tmp_path / "there", prices)
    np.testing.assert_array_equal(saved.explain(X[:4], target=1).selected, here.explain(X[:4], target=1).selected)


# --- the device elsewhere is as strict as it says ----------------------------------------------------------


def test_the_device_elsewhere_refuses_what_others_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    with elsewhere(monkeypatch):
        there = torch.zeros(3, device=ELSEWHERE)
        with pytest.raises(AssertionError, match="mixes devices"):
            there + torch.ones(3)
        with pytest.raises((TypeError, RuntimeError)):
            there.numpy()
        with pytest.raises(AssertionError, match="double"):
            there.double()
        with pytest.raises(AssertionError, match="draws"):
            there.normal_()
        np.testing.assert_array_equal((there + 1).cpu().numpy(), np.ones(3))


def test_tensors_are_made_on_the_device_but_for_doubles_and_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    with elsewhere(monkeypatch), computing_on(ELSEWHERE):
        for made in (torch.zeros(2), torch.tensor([1.0]), torch.as_tensor(np.ones(2, np.float32)), torch.arange(3)):
            assert isinstance(made, Elsewhere)
        drawn = torch.rand(4, generator=torch.Generator().manual_seed(0))
        assert isinstance(drawn, Elsewhere)
        np.testing.assert_array_equal(drawn.numpy(), torch.rand(4, generator=seeded()).cpu().numpy())
        assert torch.zeros(2, dtype=torch.float64).device.type == "cpu"
        assert drawn.double().device.type == "cpu"
        with on_host():
            assert torch.zeros(2).device.type == "cpu"
    assert torch.zeros(2).device.type == "cpu"


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


# --- names of devices --------------------------------------------------------------------------------------


@pytest.fixture
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.mark.usefixtures("no_devices")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps"])
def test_a_device_that_is_not_there_is_refused_before_any_query(device: str, tmp_path: Path) -> None:
    box = BlackBox(quick.labels)
    with pytest.raises(InputError, match=f"device='{device}' is not there: torch finds none but the CPU. Give"):
        SOInter(box, device=device).fit(quick.TABLE)
    assert box.n_queries == 0
    tagger = BlackBox(lambda batch: [["-"] * len(s) for s in batch])
    with pytest.raises(InputError, match="is not there"):
        SequenceExplainer(tagger, device=device).fit([["a", "b"]] * 20)
    assert tagger.n_queries == 0
    quick.quick_explainer("table").save(tmp_path / "why")
    with pytest.raises(InputError, match="is not there"):
        load(tmp_path / "why", device=device)


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:x", "cpu:3", "", None, 0, torch.device("meta")])
def test_wrong_devices_are_refused(device: Any) -> None:
    with pytest.raises(InputError, match='device must be "auto", "cpu", "cuda", "mps"'):
        resolve_device(device)


def test_auto_takes_the_best_that_is_there(no_devices: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_device("auto") == resolve_device("cpu") == resolve_device(torch.device("cpu"))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_device("auto") == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("auto") == torch.device(KINDS[0])
    assert resolve_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(InputError, match="'cuda:2' is not there: torch finds 2 of kind 'cuda' and 1 of kind 'mps'"):
        resolve_device("cuda:2")
