"""explain(X, target="all"): all outputs of every sample in one pass, the same as one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from quick import few_steps
from sointer import SOInter
from sointer.config import EnergyConfig, TrainingConfig
from sointer.errors import InputError
from sointer.explainers.baselines import KernelShap, Random

PARTS = ("selected", "scores", "value", "needed", "effects", "base_value", "locality", "distance", "mask")
WEIGHTS = np.random.default_rng(1).normal(size=(8, 5)) * (np.random.default_rng(2).random((8, 5)) < 0.4)


def labels(X):
    return (np.asarray(X @ WEIGHTS) > 0).astype(int)


def probabilities(X):
    return 1 / (1 + np.exp(-np.asarray(X) @ WEIGHTS))


def classes(X):
    return np.digitize(np.asarray(X) @ WEIGHTS, [-0.7, 0.7])


def words(X):
    return np.asarray(X[:, :6].sum(axis=1) > 1).astype(int).reshape(-1, 1) * [1, 0] + np.asarray(
        X[:, 3:40].sum(axis=1) > 2
    ).astype(int).reshape(-1, 1) * [0, 1]


def X_of(n=300):
    return np.random.default_rng(0).normal(size=(n, 8))


QUICK = {
    "random_state": 0,
    "query_budget": 300,
    "energy": EnergyConfig(hidden=(16,)),
    "training": TrainingConfig(n_epochs=2),
}
SETTINGS = {
    "labels": lambda: SOInter(labels, k=3, **QUICK).fit(X_of()),
    "probabilities": lambda: SOInter(probabilities, **QUICK).fit(X_of()),
    "classes": lambda: SOInter(classes, k=2, groups=[[0, 1]], **QUICK).fit(X_of()),
    "separate": lambda: SOInter(labels, k=2, structured=False, **QUICK).fit(X_of()),
    "Random": lambda: Random(labels, k=2, random_state=0).fit(X_of()),
    "KernelShap": lambda: KernelShap(labels, k=2, n_samples=40, random_state=0).fit(X_of()),
}
pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")


@pytest.mark.parametrize("query", [True, False])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_same_as_one_target_after_the_other(name, query):
    if not query and name == "KernelShap":
        pytest.skip("it always queries")
    explainer = _fitted(name)
    rows = X_of(300)[:280]  # more than one chunk of the networks
    rows = rows[: {"KernelShap": 6, "separate": 40}.get(name)]
    every = explainer.explain(rows, "all", query=query)
    n_outputs = explainer.n_outputs_
    assert every.sample.tolist() == np.repeat(np.arange(len(rows)), n_outputs).tolist()
    assert every.target.tolist() == list(range(n_outputs)) * len(rows)
    for target in range(n_outputs):
        one = explainer.explain(rows, target, query=query)
        for part in PARTS:
            alone, among_all = getattr(one, part), getattr(every, part)
            if alone is None:
                assert among_all is None
                continue
            own = among_all[every.target == target]
            if part == "selected" and own.shape != alone.shape:  # k="auto": as wide as the widest
                assert (own[:, alone.shape[1] :] == -1).all()
                own = own[:, : alone.shape[1]]
            np.testing.assert_array_equal(own, alone, err_msg=part)


_made = {}


def _fitted(name):
    if name not in _made:
        _made[name] = SETTINGS[name]()
    return _made[name]


def test_the_model_is_queried_once_for_each_sample():
    explainer = _fitted("labels")
    before = explainer.n_explain_queries_
    explainer.explain(X_of()[:20], "all")
    assert explainer.n_explain_queries_ == before + 20


def test_frames_verify_paths_and_pages_are_about_the_right_samples(tmp_path, quick_paths):
    pandas = pytest.importorskip("pandas")
    explainer, rows = _fitted("labels"), X_of()[:6]
    every = explainer.explain(pandas.DataFrame(rows, index=list("abcdef"), columns=[f"x{i}" for i in range(8)]), "all")
    frame = every.to_frame()
    assert frame.index.tolist() == [list("abcdef")[sample] for sample in frame["sample"]]
    truth = labels(rows)
    wanted = truth[frame["sample"], [explainer.output_names_.index(name) for name in frame["target"]]]
    assert frame["value"].astype(int).tolist() == wanted.tolist()
    # One at a time, with the same draws, the model agrees on the same rows.
    agreement = every.source.agreement(every.unit_mask, every.target, rows=np.arange(len(every)), n_draws=4, seed=0)
    for target in range(5):
        one = explainer.explain(rows, target)
        own = one.source.agreement(one.unit_mask, one.target, rows=np.arange(6), n_draws=4, seed=0)
        np.testing.assert_array_equal(agreement[every.target == target], own)
    few = explainer.explain(rows[:2], "all")
    paths, alone = few.paths(n_draws=2), explainer.explain(rows[:2], 3).paths(n_draws=2)
    np.testing.assert_array_equal(paths.total[few.target == 3], alone.total)
    np.testing.assert_array_equal(paths.direct[few.target == 3], alone.direct)
    assert ">f<" in every.to_html()


def test_sparse_rows():
    X = sparse.random(300, 300, density=0.05, format="csr", random_state=0)
    X.data[:] = 1
    with few_steps():
        explainer = SOInter(words, k=4, **QUICK).fit(X)
    every = explainer.explain(X[:40], "all")
    for target in range(2):
        one = explainer.explain(X[:40], target)
        for part in ("selected", "scores", "effects", "value"):
            np.testing.assert_array_equal(getattr(every, part)[every.target == target], getattr(one, part))


def test_all_pixels_are_refused():
    images = np.random.default_rng(0).random((30, 1, 6, 6))
    explainer = Random(lambda images: np.asarray(images)[:, 0] > 0.5, k=1, random_state=0).fit(images)
    with pytest.raises(InputError, match="all 36 pixels"):
        explainer.explain(images[:2], "all")
