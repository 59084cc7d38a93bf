"""X is encoded once per call, whatever is done with it, and no row of it is copied for each of its targets."""

from __future__ import annotations

import json
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest

from quick import quick_fit
from sointer import SOInter, TrainingConfig
from sointer.data.inputs import InputFormat
from sointer.metrics import evaluate

N_OUTPUTS = 4
pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")


def model(X):
    return (np.asarray(X)[:, :N_OUTPUTS] > 0).astype(int)


def segment(images):
    return (np.asarray(images)[:, 0] > 0.5).astype(int)


@contextmanager
def encodings(monkeypatch):
    """How many samples were encoded by each call, in the block."""
    found = []

    def counted(encode):
        def encode_and_count(self, X, *rest):
            Z = encode(self, X, *rest)
            found.append(Z.shape[0])
            return Z

        return encode_and_count

    with monkeypatch.context() as patch:
        for name in ("_numbers", "_encode_images"):
            patch.setattr(InputFormat, name, counted(getattr(InputFormat, name)))
        yield found


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).normal(size=(200, 6))


@pytest.fixture(scope="module")
def explainer(X):
    return SOInter(model, k=2, random_state=0, query_budget=300, training=TrainingConfig(n_epochs=2)).fit(X)


def test_fit_encodes_once(X, monkeypatch):
    with encodings(monkeypatch) as found:
        training = TrainingConfig(n_rounds=1, n_pretraining_steps=10)
        quick_fit(model, X, preset="paper", query_budget=60, training=training)
    assert found == [200]


@pytest.mark.parametrize("target", [1, "all"])
def test_explain_encodes_once_and_verify_never(explainer, X, monkeypatch, target):
    with encodings(monkeypatch) as found:
        explanation = explainer.explain(X[:30], target)
        explanation.verify(n_draws=2)
    assert found == [30]
    assert explanation.source.data.shape == (30, 6)


@pytest.mark.usefixtures("quick_paths")
def test_report_and_score_encode_once(explainer, X, monkeypatch, tmp_path):
    with encodings(monkeypatch) as found:
        explainer.report(X[:20], tmp_path / "page.html", paths=1)
        explainer.score(X[:10])
    assert found == [20, 10]


def test_evaluate_encodes_X_once(explainer, X, monkeypatch):
    with encodings(monkeypatch) as found:
        evaluate(explainer, X, n_rows=8, against=["Random"])
    assert found == [200, 8]  # then the samples with a tenth of their features removed, as the model sees them


def test_streams_encode_each_chunk_once(explainer, X, monkeypatch, tmp_path):
    pytest.importorskip("pyarrow")
    from sointer.io.stream import stream_explain

    with encodings(monkeypatch) as found:
        done = stream_explain(explainer, X[:50], tmp_path / "why.parquet", target="all", chunk_rows=20)
    assert found == [20, 20, 10]
    assert done.n_records == 50 * N_OUTPUTS * 2


def test_image_report_encodes_once_and_never_copies_an_image(monkeypatch, tmp_path):
    images = np.random.default_rng(0).random((40, 1, 8, 8))
    explainer = SOInter(segment, k=3, random_state=0, query_budget=200, training=TrainingConfig(n_epochs=2)).fit(images)
    seen, scores = [], type(explainer._scorer).scores

    def watched(self, source, targets):
        seen.append((source.n_samples, len(targets)))
        return scores(self, source, targets)

    monkeypatch.setattr(type(explainer._scorer), "scores", watched)
    with encodings(monkeypatch) as found:
        explainer.report(images[:3], tmp_path / "page.html", verify=False)
    assert found == [3]
    assert seen == [(3, 3 * 64)]


def test_a_request_is_encoded_once(explainer, X, monkeypatch):
    pytest.importorskip("fastapi")
    from model_server import serve
    from sointer.apps.serve import create_app

    body = json.dumps({"rows": X[:5].tolist(), "target": 1}).encode()
    with serve(create_app(explainer)) as url, encodings(monkeypatch) as found:
        request = urllib.request.Request(f"{url}/explain", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            assert len(json.load(response)["rows"]) == 5
    assert found == [5]
