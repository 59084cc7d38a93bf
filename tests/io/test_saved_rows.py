"""What saved explainers hold of the training data: what is kept, nothing that was left out, for their owner alone."""

from __future__ import annotations

import json
import re
import stat

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from safetensors.numpy import load_file

import sointer
from quick import SENTENCES, quick_explainer, quick_fit, weather
from sointer.apps.serve.server import warm_up
from sointer.errors import InputError
from sointer.masking.conditional import place_of

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(400, 4))
TABLE[:, 3] = np.arange(400) + 1_000_000  # whose is it?
WORDS = sp.csr_array(np.where(RNG.random((400, 300)) < 0.05, RNG.random((400, 300)), 0.0))
FRAME = pd.DataFrame({"a": TABLE[:, 0], "colour": np.where(TABLE[:, 1] > 0, "red", "blue"), "b": TABLE[:, 2]})


def table_model(X):
    return np.column_stack([X[:, 0] > 0, X[:, 0] * X[:, 1] > 0]).astype(int)


def words_model(X):
    dense = np.asarray(X[:, :3].todense() if hasattr(X[:, :3], "todense") else X[:, :3])
    return (dense[:, :2] > 0).astype(int)


def frame_model(X):
    return np.column_stack([X["colour"] == "red", X["a"] > 0]).astype(int)


KINDS = {
    "marginal": (TABLE, table_model, {"removal": "marginal"}),
    "conditional": (TABLE, table_model, {"removal": "conditional"}),
    "frame": (FRAME, frame_model, {}),
    "words": (WORDS, words_model, {}),
}


@pytest.fixture(scope="module")
def explainers():
    return {name: quick_fit(model, X, query_budget=600, **more) for name, (X, model, more) in KINDS.items()}


def rows_in(folder):
    """Every row of numbers in the weights that is as wide as the data, dense."""
    (path,) = folder.glob("weights-*")
    tensors = load_file(path)
    n_columns = len(tensors["shift"])
    shapes = {name: json.loads((folder / "explainer.json").read_text())[name]["shape"] for name in ("background",)}
    found = [tensor for tensor in tensors.values() if tensor.ndim == 2 and tensor.shape[1] == n_columns]
    if shapes["background"] is not None:
        parts = [tensors[f"background.{part}"] for part in ("data", "indices", "indptr")]
        found.append(sp.csr_array(tuple(parts), shape=shapes["background"]).toarray())
    return np.concatenate([np.asarray(part, dtype=np.float64) for part in found])


def n_training_rows(folder, explainer, data):
    encoded = explainer.input_format_.encode(data, caller="test")
    dense = encoded.toarray() if sp.issparse(encoded) else encoded
    known = {row.tobytes() for row in np.ascontiguousarray(dense) if row.any()}
    return len({row.tobytes() for row in np.ascontiguousarray(rows_in(folder))} & known)


@pytest.mark.parametrize("kind", KINDS)
def test_training_rows_are_there_only_if_kept(kind, explainers, tmp_path):
    explainer, data = explainers[kind], KINDS[kind][0]
    for rows in ("keep", "synthetic", "none"):
        explainer.save(tmp_path / rows, rows=rows)
    assert n_training_rows(tmp_path / "keep", explainer, data) > 100
    assert n_training_rows(tmp_path / "synthetic", explainer, data) == 0
    assert n_training_rows(tmp_path / "none", explainer, data) == 0


def many_outputs(X):
    """More than the network for gradients is taught, so that references are needed to explain."""
    return (X[:, [0, 1, 2] * 10] + np.linspace(-1, 1, 30) > 0).astype(int)


def apart_from_rows(folder, explainer, data):
    """How far each row of the training data, encoded in any way, is from the nearest row of any tensor: the least."""
    (path,) = folder.glob("weights-*")
    tensors = load_file(path)
    encoded = explainer.input_format_.encode(data, caller="test").astype(np.float64)
    x = torch.as_tensor((encoded - explainer.shift_).astype(np.float32))
    energy = explainer.energy_
    found = {}
    for own in (encoded, x.numpy(), energy.encoding(x).numpy(), energy.project(x).numpy()):
        for name, tensor in tensors.items():
            if tensor.ndim == 2 and tensor.shape[1] == own.shape[1] > 1 and len(tensor):
                apart = np.abs(tensor[:, None].astype(np.float64) - own[None]).max(axis=2).min()
                found[name] = min(apart, found.get(name, np.inf))
    return found


@pytest.mark.parametrize("more", [{}, {"structured": False}, {"removal": "conditional"}, {"many": True}])
@pytest.mark.parametrize("rows", ["synthetic", "none"])
def test_rows_cannot_be_computed_back_from_any_tensor(rows, more, tmp_path):
    """What the first layer makes of a row, or its encoding, determines it."""
    data = TABLE[:, :3] + 1e-3 * RNG.normal(size=(400, 3))
    settings = {name: value for name, value in more.items() if name != "many"}
    explainer = quick_fit(many_outputs if "many" in more else table_model, data, query_budget=600, **settings)
    explainer.save(tmp_path / "keep")
    kept = apart_from_rows(tmp_path / "keep", explainer, data)
    assert max(kept["interpreter.effects.projections"], kept["interpreter.effects.encodings"]) < 1e-5  # so it is tested
    explainer.save(tmp_path / rows, rows=rows)
    assert min(apart_from_rows(tmp_path / rows, explainer, data).values()) > 1e-4
    sointer.load(tmp_path / rows).save(tmp_path / "again", rows=rows)
    assert min(apart_from_rows(tmp_path / "again", explainer, data).values()) > 1e-4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", ["synthetic", "none"])
def test_explanations_stay_what_they_are(kind, rows, explainers, tmp_path):
    explainer, (data, model, _) = explainers[kind], KINDS[kind]
    explainer.save(tmp_path, rows=rows)
    loaded = sointer.load(tmp_path, black_box=model)
    batch = data.iloc[:50] if kind == "frame" else data[:50]
    before, after = explainer.explain(batch, 1), loaded.explain(batch, 1)
    assert np.array_equal(before.selected, after.selected)
    assert np.array_equal(before.scores, after.scores)
    assert np.array_equal(before.needed, after.needed)
    if before.effects is not None:
        assert np.array_equal(before.effects, after.effects)
        assert np.array_equal(before.base_value, after.base_value)
    loaded.save(tmp_path / "again")
    assert np.array_equal(sointer.load(tmp_path / "again", model).explain(batch, 1).scores, after.scores)


@pytest.mark.usefixtures("quick_paths")
def test_with_synthetic_rows_all_works(explainers, tmp_path):
    explainer = explainers["marginal"]
    explainer.save(tmp_path, rows="synthetic")
    loaded = sointer.load(tmp_path, black_box=table_model)
    known = explainer.explain(TABLE[:80], 1).verify().agreement.mean()
    assert abs(loaded.explain(TABLE[:80], 1).verify().agreement.mean() - known) < 0.1
    assert loaded.explain(TABLE[:5], 1).paths() is not None
    assert (loaded.distance(TABLE[:, [0, 1, 2, 3]] * 100) > 1).all()


@pytest.mark.parametrize("kind", ["marginal", "conditional"])
def test_without_rows_what_needs_them_says_so(kind, explainers, tmp_path):
    explainers[kind].save(tmp_path, rows="none")
    loaded = sointer.load(tmp_path, black_box=table_model)
    explanation = loaded.explain(TABLE[:5] * 100, 1)
    assert not explanation.far.any()
    for need in (explanation.verify, explanation.paths, lambda: loaded.explain(TABLE[:5], 1, refine=20)):
        with pytest.raises(InputError, match=r"rows='none'.*rows='synthetic'"):
            need()


@pytest.mark.parametrize("kind", KINDS)
def test_without_rows_reports_and_the_server_leave_out_what_needs_them(kind, explainers, tmp_path):
    pytest.importorskip("jinja2")
    testing = pytest.importorskip("starlette.testclient")
    from sointer.apps.serve import create_app

    data, model, _ = KINDS[kind]
    explainers[kind].save(tmp_path / "why", rows="none")
    for black_box in (None, model):
        loaded = sointer.load(tmp_path / "why", black_box=black_box)
        batch = data.iloc[:20] if kind == "frame" else data[:20]
        page = loaded.report(batch, tmp_path / "why.html").read_text()
        assert "was saved without training rows" in page
        with testing.TestClient(create_app(loaded), base_url="http://localhost") as client:
            start = json.loads(re.search(r'"typical": ?({.*?})', client.get("/").text)[1])
            reply = client.post("/explain", json={"rows": [start], "target": 1})
            assert reply.status_code == 200, reply.text


def test_categories_stay_categories(explainers, tmp_path):
    explainers["frame"].save(tmp_path, rows="synthetic")
    background = sointer.load(tmp_path).background_.rows
    one_hot = background[:, 1:3]
    assert set(np.unique(one_hot)) == {0.0, 1.0}
    assert (one_hot.sum(axis=1) == 1).all()


def test_numbers_beside_missing_ones_are_drawn_too(tmp_path):
    data = RNG.normal(size=(400, 3))
    data[::7, 2] = np.nan
    explainer = quick_fit(lambda X: (np.nan_to_num(np.asarray(X))[:, [0, 2]] > 0).astype(int), data, query_budget=300)
    explainer.save(tmp_path, rows="synthetic")
    rows = explainer.input_format_.decode(sointer.load(tmp_path).background_.rows)
    assert np.isnan(rows[:, 2]).mean() == pytest.approx(np.isnan(data[:, 2]).mean(), abs=0.03)
    (weights,) = tmp_path.glob("weights-*")
    kept = np.concatenate([tensor.ravel().astype(np.float64) for tensor in load_file(weights).values()])
    assert np.isin(data[np.isfinite(data[:, 2]), 2], kept).mean() < 0.02


def test_only_the_owner_can_read_the_files(explainers, tmp_path):
    explainers["marginal"].save(tmp_path / "why")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "why").iterdir()} == {0o600}


def test_wrong_ways_are_refused_before_anything_is_written(explainers, tmp_path):
    with pytest.raises(InputError, match="rows must be one of 'keep', 'synthetic', 'none', got 'all'"):
        explainers["marginal"].save(tmp_path / "why", rows="all")
    assert not (tmp_path / "why").exists()


# --- sequences -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", ["keep", "synthetic", "none"])
def test_tokens_of_sequences(rows, tmp_path):
    fitted = quick_explainer("sequences")
    fitted.save(tmp_path / "why", rows=rows)
    loaded = sointer.load(tmp_path / "why", weather)
    why = loaded.explain(SENTENCES[:9])
    assert why.to_frame().equals(fitted.explain(SENTENCES[:9]).to_frame())
    content = b"".join(path.read_bytes() for path in (tmp_path / "why").iterdir())
    assert [word in content for word in (b'"snow"', b'"cold"')] == [rows != "none"] * 2
    # The first tokens in the order of the data, beside the second ones, are the sequences.
    first = [tokens[0] for tokens in SENTENCES if len(tokens) > 2]
    kept = loaded.sequences_.replacement_
    shown = [kept.tokens[number] for number in kept.pools[place_of(0, 3)]] if rows != "none" else []
    assert (shown == first) == (rows == "keep")
    assert sorted(shown) == (sorted(first) if rows != "none" else [])
    if rows == "none":
        for call in (why.verify, why.paths):
            with pytest.raises(InputError, match="saved with rows='none': it holds no tokens"):
                call()
        own = sointer.load(tmp_path / "why", weather, removal=lambda tokens, position, rng: "wind")
        assert 0 < own.explain(SENTENCES[:9]).verify().fidelity <= 1
    else:
        assert why.verify().fidelity == pytest.approx(fitted.explain(SENTENCES[:9]).verify().fidelity, abs=0.2)


def test_a_server_of_sequences_without_tokens_starts(tmp_path):
    quick_explainer("sequences").save(tmp_path / "why", rows="none")
    warm_up(sointer.load(tmp_path / "why"))
    with pytest.raises(InputError, match="rows must be one of 'keep', 'synthetic', 'none'"):
        quick_explainer("sequences").save(tmp_path / "other", rows="some")
