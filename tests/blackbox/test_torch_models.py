"""Modules of torch, TorchScript and keras, and what their forward may return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sointer import BlackBox
from sointer.blackbox.adapters import as_black_box
from sointer.errors import BlackBoxError
from tests.support.quick import TABLE, quick_fit

X = TABLE[:6]


class Returns(nn.Module):
    """A module with dropout, in the form that is asked for."""

    def __init__(self, form: str = "tensor") -> None:
        super().__init__()
        self.layer, self.dropout, self.form = nn.Linear(5, 2), nn.Dropout(0.5), form

    def forward(self, x: torch.Tensor) -> Any:
        y = torch.sigmoid(self.dropout(self.layer(x)))
        forms = {
            "tensor": y,
            "heads": {"rain": y[:, 0], "wind": y[:, 1:]},
            "dict": {"logits": y, "hidden": x},
            "tuple": (y, x),
        }
        return forms[self.form]


def test_heads_of_one_number_each_become_outputs_with_their_names() -> None:
    module = Returns("heads").eval()
    explainer = quick_fit(module, TABLE)
    assert explainer.output_names_ == ["rain", "wind"]
    value = explainer.explain(X, target="wind").value
    with torch.no_grad():
        said = module(torch.tensor(X, dtype=torch.float32))["wind"].squeeze(1).numpy()
    np.testing.assert_allclose(np.asarray(value, dtype=float), said, rtol=1e-5)


@pytest.mark.parametrize(("form", "how"), [("dict", r"model\(X\)\['logits'\]"), ("tuple", r"model\(X\)\[0\]")])
def test_other_forms_are_refused_with_what_to_write(form: str, how: str) -> None:
    with pytest.raises(BlackBoxError, match=f"Wrap the model so that it returns the one to explain.*{how}"):
        quick_fit(BlackBox(as_black_box(Returns(form)).predict, query_budget=2000), TABLE)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_torchscript_is_evaluated_without_dropout_and_left_as_it_was() -> None:
    plain = nn.Sequential(nn.Linear(5, 2), nn.Dropout(0.5), nn.Sigmoid())
    script = torch.jit.script(plain)
    script.train()
    box = as_black_box(script)
    with torch.no_grad():
        said = plain.eval()(torch.tensor(X, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(np.asarray(box(X)), said, rtol=1e-6)
    assert script.training
    traced = torch.jit.trace(plain, torch.zeros(2, 5))
    np.testing.assert_allclose(np.asarray(as_black_box(traced)(X)), said, rtol=1e-6)


def test_exported_modules_are_called_as_they_are() -> None:
    plain = nn.Sequential(nn.Linear(5, 2), nn.Dropout(0.5), nn.Sigmoid()).eval()
    rows = torch.tensor(X, dtype=torch.float32)
    exported = torch.export.export(plain, (rows,), dynamic_shapes=({0: torch.export.Dim("n")},)).module()
    np.testing.assert_allclose(np.asarray(as_black_box(exported)(X)), plain(rows).detach().numpy(), rtol=1e-6)


def test_masks_with_an_axis_for_their_channel_are_masks() -> None:
    module = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.Sigmoid())
    box = as_black_box(module)
    assert np.asarray(box(np.zeros((3, 1, 4, 6)))).shape == (3, 24)
    assert box.output_shape == (4, 6)


def test_keras_on_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras", reason="keras is not installed")
    if keras.backend.backend() != "torch":
        pytest.skip("keras computes with another library here")
    given = keras.layers.Input((5,))
    heads = {name: keras.layers.Dense(1, activation="sigmoid")(given) for name in ("rain", "wind")}
    model = keras.Model(given, heads)
    explainer = quick_fit(model, TABLE)
    assert explainer.output_names_ == ["rain", "wind"]
    said = model.predict(X, verbose=0)["rain"][:, 0]
    np.testing.assert_allclose(np.asarray(explainer.explain(X, target="rain").value, dtype=float), said, rtol=1e-5)
