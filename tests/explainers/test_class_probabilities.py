"""Of more than two classes: labels are explained, and the probabilities of all classes teach the energy."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from joblib import parallel_config
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier

from quick import QUICK
from sointer import EnergyConfig, SOInter, TrainingConfig
from sointer.blackbox.adapters import as_black_box
from sointer.data.outputs import Outputs
from sointer.energy.likelihood import Likelihood
from sointer.energy.networks import VectorEnergy
from sointer.energy.space import OutputSpace
from sointer.errors import InterruptedFitWarning, MethodWarning, SointerWarning
from sointer.io.explainers import load

X = np.random.default_rng(0).normal(size=(400, 4))
SETTINGS: dict[str, Any] = {
    "query_budget": 1000,
    "random_state": 0,
    "energy": EnergyConfig(hidden=(64,)),
    "training": TrainingConfig(n_epochs=20),
}


class Softmax(BaseEstimator):
    """Which class is most probable depends on the first feature, how probable it is on the second as well."""

    classes_ = np.array(["high", "low", "other"])

    def __init__(self, stops_after: int | None = None) -> None:
        self.stops_after = stops_after
        self.is_fitted_, self.n_rows, self.n_calls = True, {"predict": 0, "predict_proba": 0}, 0

    def fit(self, X: Any, y: Any = None) -> Softmax:
        return self

    def _probabilities(self, X: np.ndarray) -> np.ndarray:
        other = 0.45 / (1 + np.exp(-4 * X[:, 1]))  # never more than "high" or "low"
        first = np.where(X[:, 0] > 0, 0.95, 0.05)
        return np.column_stack([first * (1 - other), (1 - first) * (1 - other), other])

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        self.n_rows["predict_proba"] += len(X)
        self.n_calls += 1
        if self.stops_after is not None and self.n_calls > self.stops_after:
            raise KeyboardInterrupt
        return self._probabilities(X)

    def predict(self, X: np.ndarray) -> np.ndarray:
        self.n_rows["predict"] += len(X)
        return self.classes_[self._probabilities(X).argmax(axis=1)]


class Wilful(Softmax):
    """Predicts what is not most probable where the third feature is high."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.where(X[:, 2] > 1, "other", super().predict(X))


def learned(explainer: SOInter, rows: np.ndarray) -> np.ndarray:
    """Probabilities of labels by the energy."""
    x = torch.from_numpy((rows - explainer.shift_).astype(np.float32))
    with torch.no_grad():
        return Likelihood().log_marginals(explainer.energy_, x).exp().numpy()


def test_probabilities_teach_what_labels_do_not_say() -> None:
    model = Softmax()
    settings = SETTINGS | {"query_budget": 1500, "energy": EnergyConfig()}
    taught = SOInter(model, **settings).fit(X)
    by_labels = SOInter(model.predict, **settings).fit(X)
    assert (taught.outputs_.kind, by_labels.outputs_.kind, taught.method_) == ("binary", "binary", "predict")
    known = model._probabilities(X)[:, :2]
    known /= known.sum(axis=1, keepdims=True)  # "other" is never predicted, so it is no label
    errors = [np.abs(learned(one, X) - known).mean() for one in (taught, by_labels)]
    assert errors[0] < 0.02 < 0.04 < errors[1]


class Three(Softmax):
    """The same with a third class that is sometimes most probable."""

    def _probabilities(self, X: np.ndarray) -> np.ndarray:
        logits = np.column_stack([2 * X[:, 0], -2 * X[:, 0], X[:, 1]])
        return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def taught() -> SOInter:
    return SOInter(Three(), **SETTINGS).fit(X)


def test_probabilities_of_three_classes_are_learned_as_they_are(taught: SOInter) -> None:
    by_labels = clone(taught).set_params(model=Three().predict).fit(X)
    errors = [np.abs(learned(one, X) - Three()._probabilities(X)).mean() for one in (taught, by_labels)]
    assert errors[0] < 0.01 < 0.05 < errors[1]
    assert taught.held_out_agreement_ >= by_labels.held_out_agreement_
    assert taught.outputs_.kind == "categorical"
    explanation = taught.explain(X[:9])
    assert explanation.value.tolist() == Three().predict(X[:9]).tolist()
    np.testing.assert_array_equal(taught.explain(X[:9], predicted=Three().predict(X[:9])).effects, explanation.effects)


def test_no_row_is_asked_about_twice_and_none_more_than_before() -> None:
    model = Three()
    explainer = SOInter(model, **QUICK).fit(X)
    assert explainer.n_queries_ <= QUICK["query_budget"]
    assert model.n_rows == {"predict": 64, "predict_proba": 64 + explainer.n_queries_}
    explainer.explain(X[:10])
    assert model.n_rows == {"predict": 74, "predict_proba": 64 + explainer.n_queries_}


@pytest.mark.parametrize("kind", ["forest", "multi-output", "words"])
def test_a_box_gives_labels_and_probabilities_of_all_outputs(kind: str) -> None:
    Y = np.column_stack([X[:, 0] > 0, np.digitize(X[:, 1], [-0.5, 0.5]), np.digitize(X[:, 2], [-1, 0, 1])])
    words = np.array(["no", "some", "many", "all"])
    Y = words[Y] if kind == "words" else Y
    model: Any = RandomForestClassifier(8, max_depth=3, random_state=0)
    model = (model if kind == "forest" else MultiOutputClassifier(LogisticRegression())).fit(X, Y)
    box = as_black_box(model)
    box.prepare(X)
    labels, soft = box.query(X[:50])
    assert (labels.tolist(), box.n_outputs, box.n_queries) == (model.predict(X[:50]).tolist(), 3, 50)
    assert labels.dtype.kind == box(X[:50]).dtype.kind
    assert soft is not None
    np.testing.assert_array_equal(soft.table, np.column_stack(model.predict_proba(X[:50])).astype(np.float32))
    assert [own.tolist() for own in soft.classes] == [np.unique(column).tolist() for column in Y.T]
    outputs = Outputs.infer(labels)
    codes = outputs.label_probabilities(soft.classes, soft.table)
    assert codes is not None
    space = OutputSpace.of(outputs)
    np.testing.assert_array_equal(space.most_likely(torch.from_numpy(codes).log()).numpy(), outputs.encode(labels))


def test_workers_and_the_cache_give_the_same() -> None:
    plain = as_black_box(Three())
    plain.prepare(X)
    expected = plain.query(X)
    for options in ({"n_jobs": 2, "batch_size": 50}, {"cache": True}):
        box = as_black_box(Three(), **options)
        box.prepare(X)
        with parallel_config(backend="threading"):
            labels, soft = box.query(X)
        assert soft is not None
        assert expected[1] is not None
        np.testing.assert_array_equal(labels, expected[0])
        np.testing.assert_array_equal(soft.table, expected[1].table)
    assert (box.n_queries, box.n_cache_hits) == (len(X), 0)
    np.testing.assert_array_equal(box.query(X)[0], box(X))
    assert (box.n_queries, box.n_cache_hits) == (len(X), 2 * len(X))
    box.clear_cache()
    box.query(X)
    assert box.n_queries == 2 * len(X)


def test_where_predict_says_otherwise_labels_alone_teach() -> None:
    model = Wilful()
    with pytest.warns(MethodWarning, match="disagree: for .* samples.*What predict returns is explained"):
        explainer = SOInter(model, **QUICK).fit(X)
    assert model.n_rows["predict_proba"] == 64
    assert model.n_rows["predict"] == 64 + explainer.n_queries_
    assert set(explainer.outputs_.all_labels) == {"high", "low", "other"}
    with warnings.catch_warnings():
        warnings.simplefilter("error", SointerWarning)
        box = as_black_box(Wilful(), method="predict")
        box.prepare(X)
    assert box.query(X[:5])[1] is None


def test_asked_for_labels_probabilities_still_teach() -> None:
    found = [SOInter(Three(), **QUICK, **more).fit(X).explain(X[:5]) for more in ({}, {"method": "predict"})]
    np.testing.assert_array_equal(found[0].effects, found[1].effects)


def test_a_fit_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    expected = SOInter(Three(), batch_size=30, **QUICK).fit(X)
    with pytest.raises(KeyboardInterrupt):
        SOInter(Three(stops_after=4), batch_size=30, **QUICK).fit(X, checkpoint=tmp_path / "kept")
    resumed = SOInter(Three(), batch_size=30, **QUICK).fit(X, checkpoint=tmp_path / "kept")
    assert 0 < resumed.n_queries_replayed_ < expected.n_queries_
    assert resumed.n_queries_ + resumed.n_queries_replayed_ == expected.n_queries_
    np.testing.assert_array_equal(resumed.explain(X[:6]).effects, expected.explain(X[:6]).effects)


def test_an_interrupted_fit_is_usable() -> None:
    model = Three(stops_after=9)
    with pytest.warns(InterruptedFitWarning, match="usable"):
        explainer = SOInter(model, batch_size=30, **QUICK).fit(X)
    assert explainer.explain(X[:6]).value.tolist() == model.predict(X[:6]).tolist()


def test_a_loaded_explainer_explains_and_its_clone_fits_the_same(tmp_path: Path) -> None:
    fitted = SOInter(Three(), **QUICK).fit(X)
    fitted.save(tmp_path / "kept")
    loaded = load(tmp_path / "kept", Three())
    expected = fitted.explain(X[:6])
    for one in (loaded, clone(loaded).fit(X)):
        assert one.method_ == "predict"
        explanation = one.explain(X[:6])
        assert explanation.value.tolist() == expected.value.tolist()
        np.testing.assert_array_equal(explanation.effects, expected.effects)


def test_classes_never_seen_are_left_out_of_probabilities() -> None:
    outputs = Outputs.infer(np.array([["a", "x"], ["c", "y"], ["a", "z"]]))
    table = np.array([[0.2, 0.5, 0.3, 0.1, 0.2, 0.7], [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]])
    found = outputs.label_probabilities([np.array(["a", "b", "c"]), np.array(["z", "y", "x"])], table)
    np.testing.assert_allclose(found, [[0.4, 0.6, 0.7, 0.2, 0.1], [0, 0, 0, 0, 1]], rtol=1e-6)
    assert Outputs.infer(np.array([[0.5], [0.1]])).label_probabilities([np.arange(2)], table[:, :2]) is None


def test_the_loss_of_certain_probabilities_is_that_of_labels() -> None:
    space = OutputSpace((3, 2))
    energy = VectorEnergy(4, space, hidden=(5,), coupling_units=3)
    codes = torch.tensor([[0, 1], [2, 0], [1, 1]])
    x, likelihood = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), Likelihood(is_joint=False)
    by_labels = likelihood.loss(energy, x, codes)
    torch.testing.assert_close(likelihood.loss(energy, x, codes, space.one_hot(codes)), by_labels)
    mixed = 0.5 * (space.one_hot(codes) + space.one_hot(codes.flip(0)))
    expected = 0.5 * (by_labels + likelihood.loss(energy, x, codes.flip(0)))
    torch.testing.assert_close(likelihood.loss(energy, x, codes, mixed), expected)
