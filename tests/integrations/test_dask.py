"""dask and joblib: the same explanations as on one machine, on a real cluster, one of whose workers is killed."""

from __future__ import annotations

import os
import signal
import time

import dask.array as da
import dask.dataframe as dd
import joblib
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline

import forking
from quick import quick_fit
from sointer import SOInter
from sointer.errors import InputError
from sointer.explainers.baselines.base import Random
from sointer.explainers.baselines.lime_and_shap import KernelShap, ShapleySampling
from sointer.integrations.dask import explain

N = 90


def signs(X) -> np.ndarray:
    return (np.asarray(X)[:, :3] > 0).astype(int)


@pytest.fixture(scope="module")
def client():
    with (
        forking.dask_workers(),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def table():
    return pd.DataFrame(np.random.default_rng(1).normal(size=(N, 5)), columns=list("abcde"))


@pytest.fixture(scope="module")
def explainer(table):
    """Its model goes to the workers."""

    def model(X):
        return (np.asarray(X)[:, :3] > 0).astype(int)

    return quick_fit(model, table, k=3, output_names=["sun", "rain", "wind"])


@pytest.fixture(scope="module")
def homebound(table):
    """Its model cannot be pickled: it must stay at home."""
    lock = joblib.parallel.threading.Lock()

    def model(X):
        with lock:
            return signs(X)

    return quick_fit(model, table, k=3, output_names=["sun", "rain", "wind"])


def assert_same_records(lazy, frame) -> None:
    found = lazy.compute()
    assert {name: str(kind) for name, kind in found.dtypes.items()} == {n: str(k) for n, k in lazy.dtypes.items()}
    assert found["sample"].dtype.kind == "i"
    pd.testing.assert_frame_equal(
        found.reset_index(drop=True), frame.reset_index(drop=True), check_dtype=False, check_index_type=False
    )


def collections(table):
    """The same rows in every form; those of unknown length too."""
    mixed = table[["d", "a", "c", "b", "e"]].assign(note="x").set_index(pd.Index(np.arange(N) + 500))
    frame = dd.from_pandas(mixed, npartitions=4)
    yield frame
    yield frame[frame["a"] > -99]  # an empty or shorter partition is known only when it is computed
    yield da.from_array(table.to_numpy(), chunks=(31, 2))
    yield dd.from_pandas(table, npartitions=3).to_dask_array()  # chunks of unknown size


def test_collections_are_explained_as_if_given_at_once(client, explainer, table) -> None:
    whole = explainer.explain(table, "rain").to_frame()
    for X in collections(table):
        lazy = explain(explainer, X, "rain")
        assert isinstance(lazy, dd.DataFrame)
        assert lazy.npartitions == (X.npartitions if isinstance(X, dd.DataFrame) else len(X.chunks[0]))
        assert_same_records(lazy, whole)


def test_values_are_what_the_model_predicts_by_default(client, explainer, homebound, table) -> None:
    X = dd.from_pandas(table, npartitions=3)
    found = explain(explainer, X, ["sun", "rain"]).compute()
    assert set(found["value_source"]) == {"model"}
    for place, name in enumerate(["sun", "rain"]):
        own = found[found["target"] == name].drop_duplicates("sample")
        assert own["value"].tolist() == signs(table)[:, place].tolist()
    said = X.map_partitions(lambda part: pd.DataFrame(1 - (part.to_numpy()[:, :3] > 0)), meta={0: int, 1: int, 2: int})
    for one in (explainer, homebound):  # without the model
        before = one.black_box_.n_queries
        assert_same_records(explain(one, X, 1, query=False), one.explain(table, 1, query=False).to_frame())
        given = explain(one, X, 1, predicted=said)
        assert_same_records(given, one.explain(table, 1, predicted=1 - signs(table)).to_frame())
        assert set(given.compute()["value_source"]) == {"given"}
        assert one.black_box_.n_queries == before
    with pytest.raises(InputError, match=r"cannot be pickled .* predicted=.* query=False"):
        explain(homebound, X, 1)
    explainer.black_box_.reset_budget(10_000)
    try:
        with pytest.raises(InputError, match=r"query budget.*reset_budget\(None\)"):
            explain(explainer, X, 1)
    finally:
        explainer.black_box_.reset_budget(None)
    with pytest.raises(InputError, match="query must be True"):
        explain(explainer, X, 1, query="no")


def test_partitions_without_rows_do_no_harm(client, explainer, table) -> None:
    frame = dd.from_pandas(table, npartitions=5).map_partitions(lambda part: part[part.index >= 40])
    chosen = table[table.index >= 40].reset_index(drop=True)
    assert_same_records(explain(explainer, frame, 0), explainer.explain(chosen, 0).to_frame())


def test_nothing_is_computed_before_compute(client, explainer, table, tmp_path) -> None:
    def touch(part):
        (tmp_path / f"{len(list(tmp_path.iterdir()))}-{os.getpid()}").touch()
        return part

    X = dd.from_pandas(table, npartitions=3).map_partitions(touch, meta=table[:0])
    lazy = explain(explainer, X, 0)
    assert not list(tmp_path.iterdir())
    lazy.partitions[0].compute()
    assert len(list(tmp_path.iterdir())) == 1, "the first partition needs no other"


def test_several_targets_and_what_the_model_said(client, explainer, table) -> None:
    said = 1 - signs(table)
    X = dd.from_pandas(table, npartitions=2)
    predicted = X.map_partitions(lambda part: 1 - signs(part), meta=np.zeros((0, 3), dtype=int))
    found = explain(explainer, X, "all", predicted=predicted).compute()
    for target in ("sun", "rain", "wind"):
        whole = explainer.explain(table, target, predicted=said).to_frame()
        of_target = found[found["target"] == target].reset_index(drop=True)
        pd.testing.assert_frame_equal(of_target, whole, check_dtype=False)
    assert (np.diff(found["sample"]) >= 0).all()


def test_sparse_blocks_and_texts(client, table, tmp_path) -> None:
    counts = sparse.csr_array(np.maximum(0, np.ceil(table.to_numpy())))
    reader = quick_fit(lambda X: (X[:, :2].toarray() > 0).astype(int), counts)
    blocks = da.from_array(counts.toarray(), chunks=(40, 5)).map_blocks(sparse.csr_array)
    assert_same_records(explain(reader, blocks, 1), reader.explain(counts, 1).to_frame())

    texts = ["a goal and a match", "the bank gave a loan", "a song", "a goal for the bank"] * 8
    labels = np.array([[1, 0], [0, 1], [0, 0], [1, 1]] * 8)
    pipeline = make_pipeline(CountVectorizer(), MultiOutputClassifier(LogisticRegression())).fit(texts, labels)
    of_texts = quick_fit(pipeline, texts, k=1)
    frame = dd.from_pandas(pd.DataFrame({"id": 1, "text": texts}), npartitions=3)
    for X in (frame, frame["text"]):
        assert_same_records(explain(of_texts, X, 0), of_texts.explain(texts, 0).to_frame())


def test_written_and_read_again(client, explainer, table, tmp_path) -> None:
    explain(explainer, dd.from_pandas(table, npartitions=3), "sun").to_parquet(tmp_path / "why")
    found = pd.read_parquet(tmp_path / "why").reset_index(drop=True)
    pd.testing.assert_frame_equal(found, explainer.explain(table, "sun").to_frame(), check_dtype=False)


def test_nothing_is_lost_when_a_worker_is_killed_half_way(client, explainer, table, tmp_path) -> None:
    n_parts = 12

    def slow(part):
        (tmp_path / str(time.time_ns())).touch()
        time.sleep(0.15)
        return part

    X = dd.from_pandas(table, npartitions=n_parts).map_partitions(slow, meta=table[:0])
    client.wait_for_workers(2, timeout=60)
    victim = next(iter(client.run(os.getpid).values()))
    future = client.compute(explain(explainer, X, "rain"))
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < n_parts // 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not future.done(), "the work was over before anyone could be killed"
    os.kill(victim, signal.SIGKILL)
    found = future.result(timeout=120).reset_index(drop=True)
    assert len(list(tmp_path.iterdir())) > n_parts, "no part had to be made again"
    pd.testing.assert_frame_equal(found, explainer.explain(table, "rain").to_frame(), check_dtype=False)
    client.wait_for_workers(2, timeout=60)
    assert victim not in client.run(os.getpid).values()


def test_what_needs_the_model_or_cannot_be_is_refused_at_once(explainer, table) -> None:
    X = dd.from_pandas(table, npartitions=2)
    with pytest.raises(InputError, match=r"fit: X is a dask DataFrame.*X.sample"):
        SOInter(signs).fit(X)
    for one in (explainer, Random(signs, k="auto", random_state=0).fit(table)):
        with pytest.raises(InputError, match=r"explain: X is a dask.*sointer\.integrations\.dask\.explain\(explainer"):
            one.explain(X, 0)
    wrong = [
        ({"refine": 2}, "refine= queries the model"),
        ({"target": "snow"}, "unknown output"),
        ({"target": [0] * N}, "names an output twice"),
        ({"X": X[["a", "b"]]}, "lacks 3 of the 5 features"),
        ({"predicted": signs(table)}, "expected a dask collection"),
        ({"predicted": da.zeros((N, 3), chunks=(10, 3))}, "9 partitions, but X has 2"),
    ]
    for change, complaint in wrong:
        with pytest.raises(InputError, match=complaint):
            explain(explainer, **{"X": X, "target": 0, **change})
    with pytest.raises(InputError, match="ShapleySampling queries the model"):
        explain(ShapleySampling(signs, k=2).fit(table), X, 0)
    by_chance = Random(signs, k=2, random_state=0).fit(table)
    assert len(explain(by_chance, X, 0).compute()) == 2 * N
    with pytest.raises(InputError, match="k='auto' queries the model"):
        explain(by_chance, X, 0, k="auto")
    assert_same_records(explain(explainer, X, 0, k="auto"), explainer.explain(table, 0, k="auto").to_frame())


# --- joblib ---------------------------------------------------------------------------------------------------


def test_rows_are_explained_the_same_on_dask(client, table) -> None:
    here, there = (KernelShap(signs, k=2, n_samples=40, random_state=0, verbose=False).fit(table) for _ in range(2))
    with joblib.parallel_config(backend="dask"):
        spread = there.explain(table[:9], 1)
    np.testing.assert_array_equal(spread.scores, here.explain(table[:9], 1).scores)
    assert there.n_explain_queries_ == here.n_explain_queries_ > 9
