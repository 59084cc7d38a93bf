"""Rows that are read in parts are explained as if they had been given at once, and nothing is lost on the way."""

from __future__ import annotations

import json
import weakref

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline

import sointer
from quick import TAUGHT, quick_fit
from sointer.errors import InputError, LoadError, SointerWarning
from sointer.explainers.baselines.base import Random
from sointer.io import readers as csv_files
from sointer.io import writers as writer
from sointer.io.parquet import write_sparse_parquet
from sointer.io.readers import read_chunks, read_table
from sointer.io.stream import stream_explain

pytestmark = pytest.mark.usefixtures("global_random_state_is_left_alone")

N, WORDS = 70, [f"word {i}" for i in range(30)]


def signs(X) -> np.ndarray:
    return (np.asarray(X)[:, :3] > 0).astype(int)


@pytest.fixture(scope="module")
def table():
    return pd.DataFrame(np.random.default_rng(1).normal(size=(N, 5)), columns=list("abcde"))


@pytest.fixture(scope="module")
def explainer(table):
    return quick_fit(signs, table, k=3, output_names=["sun", "rain", "wind"])


@pytest.fixture(scope="module")
def counts():
    rows = sparse.csr_array(sparse.random(N, len(WORDS), density=0.2, random_state=np.random.default_rng(2)))
    rows.data = np.ceil(rows.data * 3)
    return sparse.csr_array(rows)


@pytest.fixture(scope="module")
def reader(counts):
    """An explainer of sparse rows."""
    return quick_fit(lambda X: (X[:, :2].toarray() > 0).astype(int), counts, feature_names=WORDS, k=2)


def assert_same_records(path, frame) -> None:
    """The file holds what `to_frame()` gives, up to the width of the numbers."""
    found = pd.read_parquet(path)
    of_feature = ["feature_value"] if "feature_value" in frame else []  # not of images
    plain = ["sample", "target", "value", "value_source", "rank", "feature", *of_feature, "score"]
    assert list(found.columns)[: len(plain)] == plain
    assert set(found.columns) - set(plain) in (
        {"needed", "effect", "locality"},
        {"needed", "effect"},
        {"effect"},
        set(),
    )
    if of_feature and frame["feature_value"].dtype == object:  # files hold values of several types as text
        frame = frame.assign(feature_value=[None if value is None else str(value) for value in frame["feature_value"]])
    pd.testing.assert_frame_equal(found, frame.reset_index(drop=True), check_dtype=False)


def sources(table, folder):
    """The same rows in every form: columns in another order, beside others, in several parts."""
    mixed = table[["d", "a", "c", "b", "e"]].assign(id=np.arange(N), note="x")
    mixed.to_parquet(folder / "rows.parquet", row_group_size=16)
    (folder / "many").mkdir()
    for i in range(0, N, 25):
        mixed[i : i + 25].to_parquet(folder / "many" / f"part-{i:03}.parquet")
    (folder / "many" / "_metadata.parquet").write_bytes(b"not a part of the data")
    mixed.to_csv(folder / "rows.csv", index=False)
    mixed.to_csv(folder / "rows.csv.gz", index=False)
    mixed.to_csv(folder / "rows.tsv", index=False, sep="\t")
    np.save(folder / "rows.npy", table.to_numpy())
    np.savez(folder / "stored.npz", X=table.to_numpy(), y=np.zeros(3))
    np.savez_compressed(folder / "packed.npz", table.to_numpy())
    np.savez(folder / "fortran.npz", np.asfortranarray(table.to_numpy()))
    yield from (folder / name for name in ("rows.parquet", "many", "rows.csv", "rows.csv.gz", "rows.tsv", "rows.npy"))
    yield from (folder / name for name in ("stored.npz", "packed.npz", "fortran.npz"))
    yield mixed
    yield table.to_numpy()
    yield iter([mixed[:3], mixed[3:3], table[3:60].to_numpy(), mixed[60:]])


def test_every_source_is_explained_as_if_given_at_once(explainer, table, tmp_path) -> None:
    whole = explainer.explain(table, "rain").to_frame()
    assert whole["sample"].max() == N - 1
    for source in sources(table, tmp_path):
        result = stream_explain(explainer, source, tmp_path / "why.parquet", target="rain", chunk_rows=9)
        assert (result.n_rows, result.n_records, result.n_queries) == (N, len(whole), N), source
        assert_same_records(result.path, whole)
    assert not list(tmp_path.glob(".*")), "drafts are left behind"


def test_a_part_is_let_go_before_the_next_but_one(explainer, table, tmp_path) -> None:
    alive: list[weakref.ref] = []
    most = 0

    def parts():
        nonlocal most
        for _ in range(12):
            part = table.to_numpy().copy()
            alive.append(weakref.ref(part))
            most = max(most, sum(one() is not None for one in alive))
            yield part

    result = stream_explain(explainer, parts(), tmp_path / "why.parquet", target=0)
    assert result.n_rows == 12 * N
    assert most <= 3


def test_several_targets_are_all_explained_for_every_row(explainer, table, tmp_path) -> None:
    each = {name: explainer.explain(table, name).to_frame() for name in ("wind", "sun", "rain")}
    for target, names in (("all", ["sun", "rain", "wind"]), ([2, "sun"], ["wind", "sun"]), (np.array([1]), ["rain"])):
        stream_explain(explainer, table, tmp_path / "why.parquet", target=target, chunk_rows=16)
        frame = pd.concat([each[name] for name in names], ignore_index=True)
        order = {name: i for i, name in enumerate(names)}
        frame = frame.assign(place=frame["target"].map(order)).sort_values(["sample", "place", "rank"])
        assert_same_records(tmp_path / "why.parquet", frame.drop(columns="place"))


@pytest.mark.parametrize("write", ["parquet", "npz", "packed", "iterable"])
def test_sparse_rows_stay_sparse_and_are_explained_the_same(reader, counts, tmp_path, write) -> None:
    shuffled = np.random.default_rng(0).permutation(len(WORDS))
    source = tmp_path / {"parquet": "rows.parquet"}.get(write, "rows.npz")
    if write == "parquet":  # other words beside those of fit, and all in another order
        wide = sparse.hstack([counts[:, shuffled], sparse.csr_array(np.ones((N, 2)))]).tocsr()
        names = [*(WORDS[i] for i in shuffled), "new", "newer"]
        write_sparse_parquet((wide[i : i + 32] for i in range(0, N, 32)), source, feature_names=names)
    elif write == "iterable":
        source = (counts[i : i + 11] for i in range(0, N, 11))
    else:
        sparse.save_npz(source, counts, compressed=write == "packed")
    result = stream_explain(reader, source, tmp_path / "why.parquet", target=1, chunk_rows=13)
    assert_same_records(result.path, reader.explain(counts, 1).to_frame())
    if write != "iterable":
        chunks = list(read_chunks(source, chunk_rows=13))
        assert all(sparse.issparse(chunk) for chunk in chunks)
        assert sum(chunk.shape[0] for chunk in chunks) == N


def test_sparse_parquet_is_read_back_as_it_was(tmp_path) -> None:
    matrix = sparse.csr_array(np.array([[0, 2, 0], [0, 0, 0], [1, 0, 3]], dtype=np.float32))
    path = write_sparse_parquet(matrix, tmp_path / "new" / "rows.parquet")
    again = read_table(path)
    assert again.dtype == np.float32
    np.testing.assert_array_equal(again.toarray(), matrix.toarray())
    lists = pq.read_table(path).to_pylist()
    assert lists == [
        {"indices": [1], "values": [2.0]},
        {"indices": [], "values": []},
        {"indices": [0, 2], "values": [1.0, 3.0]},
    ]


@pytest.mark.parametrize(
    ("indices", "values", "n_features", "complaint"),
    [
        ([[0, 7]], [[1.0, 1.0]], b"3", "feature number 7; expected 0 to 2"),
        ([[0, -1]], [[1.0, 1.0]], b"3", "feature number -1"),
        ([[0, 1]], [[1.0]], b"3", "2 indices and 1 values"),
        ([[0]], [[1.0]], None, "does not say how many features"),
    ],
)
def test_wrong_sparse_rows_are_refused(tmp_path, indices, values, n_features, complaint) -> None:
    table = pa.table({"indices": pa.array(indices, pa.list_(pa.int32())), "values": values})
    metadata = {} if n_features is None else {b"sointer.n_features": n_features}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=complaint):
        list(read_chunks(tmp_path / "rows.parquet"))


def test_what_was_finished_survives_a_failure(explainer, table, tmp_path) -> None:
    out = tmp_path / "why.parquet"
    stream_explain(explainer, table[:4], out, target=0)
    before = out.read_bytes()
    spoilt = table.copy()
    spoilt.loc[43, "c"] = np.nan
    with pytest.raises(
        InputError, match=r"NaN or infinite values.*'c'.*begins at row 40 of the source.*why.parquet.pa"
    ):
        stream_explain(explainer, spoilt, out, target=0, chunk_rows=20)
    assert out.read_bytes() == before, "a whole file must not be replaced by less"
    assert_same_records(f"{out}.partial", explainer.explain(table[:40], 0).to_frame())
    stream_explain(explainer, table, out, target=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["why.parquet"], "the partial file is out of date"


def test_what_was_finished_survives_an_interruption(explainer, table, tmp_path) -> None:
    def press_ctrl_c(done: int, n_rows: int | None) -> None:
        assert n_rows == N
        if done >= 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="Stopped at row 30 of the source"):
        stream_explain(explainer, table, tmp_path / "why.parquet", target=0, chunk_rows=10, progress=press_ctrl_c)
    assert [path.name for path in tmp_path.iterdir()] == ["why.parquet.partial"]
    assert_same_records(tmp_path / "why.parquet.partial", explainer.explain(table[:30], 0).to_frame())


def test_a_foreign_error_keeps_its_type_and_a_warning_says_how_far_it_got(explainer, table, tmp_path) -> None:
    def parts():
        yield table[:10]
        raise OSError("the disk is gone")

    with pytest.warns(SointerWarning, match="begins at row 10"), pytest.raises(OSError, match="disk is gone"):
        stream_explain(explainer, parts(), tmp_path / "why.parquet", target=0)
    with pytest.raises(OSError, match="nothing there"):
        stream_explain(explainer, _failing(), tmp_path / "none.parquet", target=0)
    assert [path.name for path in tmp_path.iterdir()] == ["why.parquet.partial"]


def _failing():
    raise OSError("nothing there")
    yield


def test_the_file_says_what_it_holds_and_has_row_groups(explainer, table, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(writer, "GROUP_RECORDS", 60)
    path = stream_explain(explainer, table, tmp_path / "why.parquet", target=["sun", 1], k=2, chunk_rows=10).path
    metadata = pq.read_schema(path).metadata
    assert metadata[b"sointer.version"].decode() == sointer.__version__
    assert (metadata[b"sointer.k"], json.loads(metadata[b"sointer.target"])) == (b"2", ["sun", "rain"])
    assert pq.ParquetFile(path).num_row_groups == 5


def test_the_model_is_queried_once_per_row_by_default(explainer, table, tmp_path) -> None:
    before = explainer.black_box_.n_queries
    done = stream_explain(explainer, table, tmp_path / "why.parquet", target="all", chunk_rows=9)
    assert done.n_queries == explainer.black_box_.n_queries - before == N
    found = pd.read_parquet(done.path)
    assert set(found["value_source"]) == {"model"}
    for place, name in enumerate(explainer.output_names_):
        own = found[found["target"] == name].drop_duplicates("sample")
        assert own["value"].tolist() == signs(table)[:, place].tolist()
    done = stream_explain(explainer, table, tmp_path / "why.parquet", target=1, query=False)
    assert done.n_queries == 0
    assert_same_records(done.path, explainer.explain(table, 1, query=False).to_frame())
    assert set(pd.read_parquet(done.path)["value_source"]) == {"expected"}
    done = stream_explain(explainer, table, tmp_path / "why.parquet", target=1, predicted=signs, query=False)
    assert (done.n_queries, set(pd.read_parquet(done.path)["value_source"])) == (0, {"given"})
    with pytest.raises(InputError, match="query must be True"):
        stream_explain(explainer, table, tmp_path / "no.parquet", target=1, query="no")


def test_what_the_model_said_can_be_a_function_a_table_or_a_file(explainer, table, tmp_path) -> None:
    said = 1 - signs(table)  # not what the energy would guess
    whole = explainer.explain(table, 1, predicted=said).to_frame()
    assert (whole.drop_duplicates("sample")["value"] == said[:, 1]).all()
    pd.DataFrame(said, columns=explainer.output_names_).to_csv(tmp_path / "said.csv", index=False)
    for predicted in (lambda X: 1 - signs(X), said, tmp_path / "said.csv"):
        path = stream_explain(
            explainer, table, tmp_path / "why.parquet", target=1, predicted=predicted, chunk_rows=9
        ).path
        assert_same_records(path, whole)
    both = stream_explain(explainer, table, tmp_path / "both.parquet", target=[0, 1], predicted=said, chunk_rows=9)
    found = pd.read_parquet(both.path)
    assert_same_frames(found[found["target"] == "rain"], whole)
    for wrong, source in ((said[:-1], table), (said[:-1], iter([table])), (np.vstack([said, said]), iter([table]))):
        with pytest.raises(InputError, match="predicted has"):
            stream_explain(explainer, source, tmp_path / "no.parquet", target=1, predicted=wrong)


def assert_same_frames(found, frame) -> None:
    pd.testing.assert_frame_equal(found.reset_index(drop=True), frame.reset_index(drop=True), check_dtype=False)


def test_queries_of_refined_explanations_are_counted(explainer, table, tmp_path) -> None:
    result = stream_explain(explainer, table[:12], tmp_path / "why.parquet", target=0, refine=3, chunk_rows=5)
    assert 12 <= result.n_queries <= 36
    sizes = stream_explain(explainer, table[:12], tmp_path / "why.parquet", target=0, k="auto", chunk_rows=5)
    assert sizes.n_queries == 12  # for what is predicted only


def test_texts_come_from_a_column(tmp_path) -> None:
    texts = ["a goal and a match", "the bank gave a loan", "a song", "a goal for the bank"] * 8
    labels = np.array([[1, 0], [0, 1], [0, 0], [1, 1]] * 8)
    pipeline = make_pipeline(CountVectorizer(), MultiOutputClassifier(LogisticRegression())).fit(texts, labels)
    explainer = quick_fit(pipeline, texts, k=1, output_names=["sport", "money"])
    whole = explainer.explain(texts, "money").to_frame()
    out, frame = tmp_path / "why.parquet", pd.DataFrame({"id": np.arange(len(texts)), "text": texts})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame[["text"]].rename(columns={"text": "body"}).to_csv(tmp_path / "one.csv", index=False)
    for source in (
        tmp_path / "a.parquet",
        tmp_path / "a.csv",
        tmp_path / "one.csv",
        texts,
        iter([texts[:9], frame[9:]]),
    ):
        stream_explain(explainer, source, out, target="money", chunk_rows=5)
        assert_same_records(out, whole)
    renamed = frame.rename(columns={"text": "body"})
    stream_explain(explainer, renamed, out, target="money", text_column="body")
    assert_same_records(out, whole)
    with pytest.raises(
        InputError, match=r"has the columns 'id', 'body', but .* on texts. Name the column that holds them: --text on"
    ):
        stream_explain(explainer, renamed, out, target="money")
    explainer.save(tmp_path / "saved")
    stream_explain(sointer.load(tmp_path / "saved"), texts, out, target="money")
    assert set(pd.read_parquet(out)["value_source"]) <= {"expected"}


def test_images_come_from_arrays(tmp_path) -> None:
    images = np.random.default_rng(0).random((20, 1, 6, 6))
    explainer = quick_fit(lambda X: (X[:, 0] > 0.5).astype(int), images, k=2)
    np.save(tmp_path / "images.npy", images)
    np.savez_compressed(tmp_path / "images.npz", images=images)
    for target in ((1, 2), np.s_[0:2, 0:3]):
        whole = explainer.explain(images, target).to_frame()
        for name in ("images.npy", "images.npz"):
            stream_explain(explainer, tmp_path / name, tmp_path / "why.parquet", target=target, chunk_rows=7)
            assert_same_records(tmp_path / "why.parquet", whole)
    stream_explain(explainer, images, tmp_path / "why.parquet", target=[(1, 2), (3, 3)], chunk_rows=7)
    found = pd.read_parquet(tmp_path / "why.parquet")
    assert_same_frames(found[found["target"] == found["target"].iloc[0]], explainer.explain(images, (1, 2)).to_frame())
    with pytest.raises(InputError, match="all 36 pixels"):
        stream_explain(explainer, images, tmp_path / "why.parquet", target="all")


def test_kinds_of_columns_survive_csv(tmp_path) -> None:
    """Categories, booleans and whole numbers mean the same in a CSV file as in the DataFrame of fit."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=N),
            "colour": rng.choice(["red", "green", "7"], N),
            "level": pd.Categorical(rng.choice([1, 2, 3], N)),
            "on": rng.random(N) > 0.5,
            5: rng.integers(0, 9, N),
        }
    )

    def judge(X):
        return np.column_stack([(X["colour"] == "red") & X["on"], X[5] > X["level"].astype(int)]).astype(int)

    explainer = quick_fit(judge, frame, k=2)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.set_axis([str(label) for label in frame.columns], axis=1).to_parquet(tmp_path / "rows.parquet")
    whole = explainer.explain(frame, 1).to_frame()
    for name in ("rows.csv", "rows.parquet"):
        stream_explain(explainer, tmp_path / name, tmp_path / "why.parquet", target=1, chunk_rows=9)
        assert_same_records(tmp_path / "why.parquet", whole)


def test_labels_of_several_kinds_are_written_as_text(table, tmp_path) -> None:
    def model(X):
        first = np.asarray(X)[:, 0]
        return np.column_stack([np.where(first > 0, "high", "low"), np.where(first > 1, 1, 0)]).astype(object)

    explainer = Random(model, k=1, random_state=0).fit(table)
    stream_explain(explainer, table, tmp_path / "why.parquet", target="all")
    found = pd.read_parquet(tmp_path / "why.parquet")["value"]
    assert found.map(type).eq(str).all()
    assert set(found) <= {"high", "low", "0", "1"}


def test_numbers_and_probabilities_are_written_as_numbers(table, tmp_path) -> None:
    explainer = quick_fit(lambda X: np.asarray(X)[:, :2] * 3, table)
    stream_explain(explainer, table, tmp_path / "why.parquet", target=1)
    assert_same_records(tmp_path / "why.parquet", explainer.explain(table, 1).to_frame().astype({"value": float}))


def test_categories_that_look_missing_are_not_missing_in_csv(tmp_path) -> None:
    """Namibia is "NA": where fit knew it as a value, a CSV file holds it, and only empty cells are missing."""
    land = np.array(["NA", "DE", None], dtype=object)[np.arange(N) % 3]
    frame = pd.DataFrame({"land": land, "job": np.array(["clerk", None], dtype=object)[np.arange(N) % 2], "x": 1.0})
    explainer = quick_fit(lambda X: (X[["land"]] == "NA").to_numpy(), frame)
    frame.assign(key="NA", job=frame["job"].fillna("n/a")).to_csv(tmp_path / "rows.csv", index=False)
    whole = explainer.explain(frame, target=0, k=2).to_frame()
    stream_explain(explainer, tmp_path / "rows.csv", tmp_path / "why.parquet", target=0, k=2, id_column="key")
    written = pq.read_table(tmp_path / "why.parquet").to_pylist()
    assert [one["value"] for one in written] == whole["value"].tolist()
    assert [one["feature_value"] or "missing" for one in written] == whole["feature_value"].fillna("missing").tolist()
    assert {one["id"] for one in written} == {"NA"}


def test_columns_of_csv_keep_their_dtypes(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", 2000)
    whole = pd.DataFrame({"a": np.arange(1000), "b": np.arange(1000) / 4, "c": [f"t{i}" for i in range(1000)]})
    whole.to_csv(tmp_path / "rows.csv", index=False)
    chunks = list(read_chunks(tmp_path / "rows.csv", chunk_rows=50))
    assert len(chunks) > 15
    assert len({tuple(map(str, chunk.dtypes)) for chunk in chunks}) == 1
    pd.testing.assert_frame_equal(read_table(tmp_path / "rows.csv"), whole)
    late = whole.assign(a=[*range(999), 0.5])
    late["a"] = late["a"].map(lambda value: f"{value:g}")
    late.to_csv(tmp_path / "late.csv", index=False)
    with pytest.raises(InputError, match="dtypes="):
        read_table(tmp_path / "late.csv")
    assert read_table(tmp_path / "late.csv", ["a"], dtypes={"a": "float64"})["a"].iloc[-1] == 0.5
    with pytest.raises(InputError, match="dtypes may be"):
        read_table(tmp_path / "late.csv", dtypes={"a": "float128"})


def test_some_columns_are_read_in_the_given_order(table, tmp_path) -> None:
    table.to_parquet(tmp_path / "rows.parquet")
    table.to_csv(tmp_path / "rows.csv", index=False)
    for source in (tmp_path / "rows.parquet", tmp_path / "rows.csv", table):
        np.testing.assert_allclose(read_table(source, ["d", "a"]), table[["d", "a"]])
        np.testing.assert_allclose(read_table(source, "b"), table["b"])
        with pytest.raises(InputError, match="lacks 1 of the columns that are needed: 'z'"):
            read_table(source, ["a", "z"])
    with pytest.raises(InputError, match="no named columns"):
        read_table(table.to_numpy(), ["a"])


def test_stored_arrays_are_mapped_not_loaded(tmp_path) -> None:
    """Rows come from the disk: what is changed there is seen by the next part."""
    rows = np.arange(40, dtype=np.float64).reshape(20, 2)
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    chunks = read_chunks(path, chunk_rows=10)
    np.testing.assert_array_equal(next(chunks), rows[:10])
    content = path.read_bytes()
    last, changed = np.float64(39).tobytes(), np.float64(-1).tobytes()
    where = content.rindex(last)
    with path.open("r+b") as file:
        file.seek(where)
        file.write(changed)
    assert next(chunks)[-1, -1] == -1


def test_nothing_is_unpickled(tmp_path) -> None:
    objects = np.array([{"a": 1}], dtype=object)
    np.save(tmp_path / "a.npy", objects)
    np.savez(tmp_path / "stored.npz", objects)
    np.savez_compressed(tmp_path / "packed.npz", objects)
    for name in ("a.npy", "stored.npz", "packed.npz"):
        with pytest.raises(LoadError, match="cannot be read as rows of numbers"):
            read_table(tmp_path / name)


@pytest.mark.parametrize("name", ["a.parquet", "a.npy", "a.npz"])
def test_damaged_files_are_refused(tmp_path, name) -> None:
    (tmp_path / name).write_bytes(b"PAR1 nonsense PK\x03\x04 nothing")
    with pytest.raises(LoadError, match="cannot be read as"):
        read_table(tmp_path / name)


def test_wrong_requests_are_refused_before_anything_is_written(explainer, table, tmp_path) -> None:
    table.to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "empty").mkdir()
    pd.DataFrame({"a": []}).to_csv(tmp_path / "empty.csv", index=False)
    np.savez(tmp_path / "two.npz", a=table, b=table)
    before = sorted(tmp_path.rglob("*"))
    out = tmp_path / "why.parquet"
    wrong = [
        ({"source": "nowhere.parquet"}, "nowhere.parquet does not exist"),
        ({"source": "rows.feather"}, "unsupported file type"),
        ({"source": tmp_path / "empty"}, "a folder without .parquet files"),
        ({"source": table[["a", "b"]]}, "lacks 3 of the 5 features seen in fit: 'c', 'd', 'e'"),
        ({"source": tmp_path / "empty.csv"}, "lacks 4 of the 5"),
        ({"source": iter([])}, "has no rows"),
        ({"source": iter([3])}, "part 0 of the iterable"),
        ({"source": 3}, "expected a path to"),
        ({"source": table.to_numpy()[:, :2]}, "X has 2 features, but 5 were expected"),
        ({"target": "snow"}, "unknown output"),
        ({"target": None}, "target is missing"),
        ({"target": []}, "empty list"),
        ({"target": [0, "sun"]}, "names an output twice"),
        ({"k": 9}, "k must be from 1 to 5"),
        ({"chunk_rows": 0}, "chunk_rows must be an int"),
        ({"out": tmp_path / "why.csv"}, "written as Parquet"),
        ({"out": tmp_path}, "is a folder"),
        ({"source": tmp_path / "rows.parquet", "out": tmp_path / "rows.parquet"}, "the source itself"),
    ]
    for change, complaint in wrong:
        with pytest.raises(InputError, match=complaint):
            stream_explain(explainer, **{"source": table, "out": out, "target": 0, **change})
    with pytest.raises(LoadError, match="expected one, or one called 'X'"):
        stream_explain(explainer, tmp_path / "two.npz", out, target=0)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_archives_that_expand_to_much_more_are_refused_before_they_are_read(kind, tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    rows = np.zeros((20_000, 20))
    if kind == "dense":
        np.savez_compressed(path, X=rows)
    else:
        sparse.save_npz(path, sparse.csr_array(np.ones((2000, 20))), compressed=True)
    assert read_table(path).shape[1] == 20  # small enough as it is
    monkeypatch.setattr(csv_files, "MAX_EXPANDED", 2**18)
    with pytest.raises(LoadError, match=r"MB of memory, \d+ times its size"):
        read_table(path)
    np.savez(path, X=np.random.default_rng(0).normal(size=(20_000, 20)))
    assert read_table(path).shape == (20_000, 20)  # as large as its file


def test_samples_that_need_nothing_have_no_record_and_are_counted(tmp_path) -> None:
    """The first chunks have no records at all, and the header of a CSV file stands above all others once."""
    texts = ["rain and wind", "sun and wind", "wind and rain", "wind", "sun", "rain"] * 20
    reader = quick_fit(lambda batch: [{"sunny": "sun" in text} for text in batch], texts, **TAUGHT | {"k": "auto"})
    shown = ["rain and wind"] * 7 + ["sun and wind"] * 3
    needed = int((reader.explain(shown, "sunny").n_selected > 0).sum())
    assert needed == 3
    for name in ("why.csv", "why.parquet"):
        out = writer.TextWriter(tmp_path / name) if name.endswith(".csv") else tmp_path / name
        result = stream_explain(reader, shown, out, target="sunny", chunk_rows=2)
        assert (result.n_rows, result.n_records, result.n_without) == (10, 3, 7)
    frame = pd.read_csv(tmp_path / "why.csv")
    assert frame["sample"].tolist() == [7, 8, 9]
    assert frame["feature"].tolist() == ["sun"] * 3
