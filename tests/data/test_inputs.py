"""InputFormat: exact round trips, and errors that say what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from sointer._support import containers
from sointer.data.inputs import InputFormat
from sointer.errors import InputError, LoadError

shapes = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6)
elements = {
    "float64": st.floats(-1e36, 1e36),
    "float32": st.floats(-1, 1, width=32).map(lambda x: float(np.float32(x * 1e36))),
    "float16": st.floats(allow_nan=False, allow_infinity=False, width=16),
    "int64": st.integers(-(2**53), 2**53),
    "int8": st.integers(-128, 127),
    "uint16": st.integers(0, 2**16 - 1),
    "uint64": st.integers(0, 2**53),
    "bool": st.booleans(),
}


@st.composite
def tables(draw: st.DrawFn, dtypes: tuple[str, ...] = tuple(elements)) -> np.ndarray:
    dtype = draw(st.sampled_from(dtypes))
    return draw(hnp.arrays(dtype, shapes, elements=elements[dtype]))


def same_after_json(format: InputFormat) -> InputFormat:
    return InputFormat.from_json(json.loads(json.dumps(format.to_json())))


@settings(max_examples=40, deadline=None)
@given(tables())
def test_numpy_round_trip_is_exact(X: np.ndarray) -> None:
    format = same_after_json(InputFormat.infer(X))
    Z = format.encode(X)
    assert Z.dtype == np.float64
    assert Z.flags.owndata or Z.base is not X
    back = format.decode(Z)
    assert back.dtype == X.dtype
    np.testing.assert_array_equal(back, X)


@settings(max_examples=30, deadline=None)
@given(
    tables(("float64", "float32", "int64", "int8", "bool")),
    st.booleans(),
    st.sampled_from(["csr", "csc", "coo"]),
)
def test_sparse_round_trip_keeps_flavour_and_dtype(X: np.ndarray, is_matrix: bool, layout: str) -> None:
    made = (sparse.csr_matrix if is_matrix else sparse.csr_array)(X).asformat(layout)
    format = same_after_json(InputFormat.infer(made))
    Z = format.encode(made)
    assert isinstance(Z, sparse.csr_array)
    assert Z.dtype == np.float64
    for encoded in (Z, Z.toarray()):
        back = format.decode(encoded)
        assert isinstance(back, sparse.csr_matrix if is_matrix else sparse.csr_array)
        assert back.dtype == X.dtype
        np.testing.assert_array_equal(back.toarray(), X)


@settings(max_examples=30, deadline=None)
@given(tables(("float64", "float32", "float16", "int64", "int8", "bool")))
def test_torch_round_trip_keeps_dtype(X: np.ndarray) -> None:
    tensor = torch.tensor(X)
    format = same_after_json(InputFormat.infer(tensor))
    assert format.kind == "torch"
    back = format.decode(format.encode(tensor))
    assert back.dtype == tensor.dtype
    assert torch.equal(back, tensor)


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    n = draw(st.integers(1, 6))
    text = st.text("ab cé'\"", max_size=3)
    options = {
        "float64": lambda: draw(hnp.arrays("float64", n, elements=elements["float64"])),
        "float32": lambda: draw(hnp.arrays("float32", n, elements=elements["float32"])),
        "int32": lambda: draw(hnp.arrays("int32", n)),
        "bool": lambda: draw(hnp.arrays("bool", n)),
        "Int64": lambda: pd.array(draw(st.lists(st.integers(-99, 99), min_size=n, max_size=n)), dtype="Int64"),
        "boolean": lambda: pd.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype="boolean"),
        "str": lambda: pd.Series(draw(st.lists(text, min_size=n, max_size=n)), dtype="str"),
        "object": lambda: pd.Series(
            draw(st.lists(st.one_of(text, st.booleans(), st.integers(0, 2)), min_size=n, max_size=n)),
            dtype=object,
        ),
        "category": lambda: pd.Categorical(
            draw(st.lists(st.sampled_from(["u", "v"]), min_size=n, max_size=n)),
            categories=["w", "v", "u"],
            ordered=draw(st.booleans()),
        ),
        "int category": lambda: pd.Categorical(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))),
    }
    kinds = draw(st.lists(st.sampled_from(list(options)), min_size=1, max_size=5))
    return pd.DataFrame({f"c{j}": options[kind]() for j, kind in enumerate(kinds)})


@settings(max_examples=60, deadline=None)
@given(frames())
def test_frame_round_trip_is_exact(frame: pd.DataFrame) -> None:
    format = same_after_json(InputFormat.infer(frame))
    Z = format.encode(frame)
    assert Z.shape == (len(frame), format.n_columns)
    back = format.decode(Z)
    pd.testing.assert_frame_equal(back, frame)
    for column in [name for name in frame.columns if str(frame[name].dtype) == "object"]:
        assert [type(v) for v in back[column]] == [type(v) for v in frame[column]]


def test_one_hot_blocks_belong_to_their_feature() -> None:
    frame = pd.DataFrame({"size": [1.5, 2.0, 3.0], "colour": ["red", "blue", "red"], "n": [1, 2, 3]})
    format = InputFormat.infer(frame)
    assert format.feature_names == ["size", "colour", "n"]
    assert format.n_columns == 4
    assert format.column_feature.tolist() == [0, 1, 1, 2]
    assert format.is_categorical.tolist() == [False, True, False]
    np.testing.assert_array_equal(format.encode(frame), [[1.5, 0, 1, 1], [2, 1, 0, 2], [3, 0, 1, 3]])


def test_integers_stay_integers_only_when_nothing_changes() -> None:
    format = InputFormat.infer(pd.DataFrame({"a": [1, 2], "b": [True, False]}))
    whole = format.decode(np.array([[3.0, 1.0]]))
    assert whole.dtypes.astype(str).tolist() == ["int64", "bool"]
    mean = format.decode(np.array([[1.5, 0.5]]))
    assert mean.dtypes.astype(str).tolist() == ["float64", "float64"]
    assert mean.iloc[0].tolist() == [1.5, 0.5]
    small = InputFormat.infer(np.array([[1, 2]], dtype=np.int8))
    assert small.decode(np.array([[200.0, 1.0]])).tolist() == [[200.0, 1.0]]  # does not fit in int8
    tensor = InputFormat.infer(torch.tensor([[1, 2]]))
    assert tensor.decode(np.array([[1.5, 1.0]])).tolist() == [[1.5, 1.0]]


def test_encode_gives_a_copy_and_leaves_a_non_canonical_csr_alone() -> None:
    X = np.ones((2, 2))
    InputFormat.infer(X).encode(X)[0, 0] = 9
    assert X[0, 0] == 1
    messy = sparse.csr_array((np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 3])), shape=(1, 2))
    Z = InputFormat.infer(messy).encode(messy)
    assert Z.toarray().tolist() == [[4, 3]]
    assert messy.data.tolist() == [1, 2, 4]


def test_csr_is_never_densified() -> None:
    rows, columns = np.arange(200_000), np.arange(200_000) % 50_000
    large = sparse.csr_array((np.ones(200_000), (rows, columns)), shape=(200_000, 50_000))  # 80 GB if dense
    format = InputFormat.infer(large)
    assert (format.decode(format.encode(large)) != large).nnz == 0


def test_frames_are_matched_by_name() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}, index=[7, 9])
    format = InputFormat.infer(frame)
    np.testing.assert_array_equal(format.encode(frame[["b", "a"]]), frame.to_numpy())
    with pytest.raises(InputError, match="lacks 1 of the 2 features seen in fit: 'b'; it has 'a', 'z'"):
        format.encode(frame.rename(columns={"b": "z"}))
    np.testing.assert_array_equal(format.encode(frame.assign(z="id")[["z", "b", "a"]]), frame.to_numpy())
    np.testing.assert_array_equal(format.encode(frame.to_numpy()), frame.to_numpy())
    np.testing.assert_array_equal(format.encode(sparse.csr_array(frame.to_numpy())), frame.to_numpy())


def test_other_containers_are_accepted_where_it_is_safe() -> None:
    X = np.array([[1.0, 0.0], [0.0, 2.0]])
    plain = InputFormat.infer(X)
    np.testing.assert_array_equal(plain.encode(pd.DataFrame(X, columns=["p", "q"])), X)
    np.testing.assert_array_equal(plain.encode(sparse.csr_matrix(X)), X)
    np.testing.assert_array_equal(plain.encode(torch.tensor(X)), X)
    np.testing.assert_array_equal(plain.encode(X.tolist()), X)
    named = InputFormat.infer(X, feature_names=["p", "q"])
    np.testing.assert_array_equal(named.encode(pd.DataFrame(X[:, ::-1], columns=["q", "p"])), X)
    dense = InputFormat.infer(sparse.csr_array(X)).encode(X)
    assert isinstance(dense, sparse.csr_array)
    np.testing.assert_array_equal(dense.toarray(), X)
    mixed = InputFormat.infer(pd.DataFrame({"a": [1.0], "c": ["u"]}))
    with pytest.raises(InputError, match=r"'c'.*Give a DataFrame"):
        mixed.encode(np.ones((1, 2)))


def test_category_columns_accept_the_same_values_in_another_dtype() -> None:
    format = InputFormat.infer(pd.DataFrame({"c": pd.Categorical([1, 2, 1])}))
    np.testing.assert_array_equal(format.encode(pd.DataFrame({"c": [2]})), [[0, 1]])
    np.testing.assert_array_equal(format.encode(pd.DataFrame({"c": [2.0]})), [[0, 1]])


BAD = [
    (np.ones(3), r"reshape\(1, -1\)"),
    (np.ones((2, 3, 1)), "3 dimensions .*time series .n, steps, variables.*docs/how-to/sequences.md"),
    (np.ones((0, 3)), "empty"),
    (np.ones((2, 0)), "empty"),
    (np.array([["a", "b"]]), "DataFrame for strings"),
    (np.array([[1j]]), "complex128"),
    ([[1, 2], [3]], "different lengths"),
    ("text", "the string 'text'"),
    ("rows.csv", "the string 'rows.csv', expected the data themselves.*pandas.read_csv"),
    (Path("rows.npy"), "expected the data themselves"),
    ((row for row in [[1.0]]), r"type generator.*Give list\(X\)"),
    (np.zeros(3, dtype="f8,i4"), r"1 dimensions.*Give pandas.DataFrame\(X\)"),
    (np.array([["2024-01-01"]], dtype="M8[D]"), "Give a pandas DataFrame for dates and durations"),
    (None, "None"),
    (np.ma.masked_array(np.ones((1, 2)), [[True, False]]), "masked"),
    (np.array([[2**60]]), r"2\*\*53"),
    (pd.Series([1.0]), "Series"),
    (pd.DataFrame({"d": pd.period_range("2020-01", periods=1, freq="M")}), "'d' of dtype period"),
    (pd.DataFrame([[1, 2]], columns=["a", "a"]), "'a'"),
    (pd.DataFrame([[1, 2]], columns=[1, "1"]), "'1'"),
    (pd.DataFrame({"a": [(1, 2)]}), "tuple"),
]


@pytest.mark.parametrize(("X", "words"), BAD)
def test_bad_input_is_refused_in_words(X: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        InputFormat.infer(X)


def test_nan_is_located() -> None:
    X = np.ones((4, 3))
    format = InputFormat.infer(X, feature_names=["a", "b", "c"])
    X[2, 1] = np.nan
    X[3, 1] = np.inf
    for bad in (X, sparse.csr_array(X), torch.tensor(X)):
        with pytest.raises(InputError, match=r"explain: X has 2 NaN.*rows 2, 3 and columns 'b'.*Impute"):
            format.encode(bad)
    with pytest.raises(InputError, match=r"NaN.*rows 2, 3 and columns 'x1'"):
        InputFormat.infer(sparse.csr_array(X))


def test_wrong_width_and_unseen_categories_are_named() -> None:
    with pytest.raises(InputError, match="verify: X has 2 features, but 3 were expected"):
        InputFormat.infer(np.ones((1, 3))).encode(np.ones((1, 2)), caller="verify")
    format = InputFormat.infer(pd.DataFrame({"colour": ["red", "blue"], "n": [1, 2]}))
    with pytest.raises(InputError, match=r"'colour': 'green'; expected one of 'blue', 'red'"):
        format.encode(pd.DataFrame({"colour": ["green"], "n": [1]}))
    with pytest.raises(InputError, match=r"'one' in column 'n', expected numbers"):
        format.encode(pd.DataFrame({"colour": ["red"], "n": ["one"]}))
    with pytest.raises(InputError, match="with 3 columns"):
        format.decode(np.ones((1, 4)))


def test_names_are_checked_and_win_over_the_columns() -> None:
    frame = pd.DataFrame({"a": [1.0], "b": [2.0]})
    format = InputFormat.infer(frame, feature_names=["A", "B"])
    assert format.feature_names == ["A", "B"]
    assert format.decode(format.encode(frame)).columns.tolist() == ["a", "b"]
    with pytest.raises(InputError, match="2 names, got 1"):
        InputFormat.infer(frame, feature_names=["A"])
    assert InputFormat.infer(np.ones((1, 2))).feature_names == ["x0", "x1"]


@pytest.mark.parametrize(
    ("column", "threshold", "words"),
    [
        (pd.Series([2015, 2016]), 2015.5, "2015"),  # not 2016, which lies above
        (pd.Series([2015, 2016], dtype="Int64"), 2015.5, "2015"),
        (pd.Series([2015, 2016], dtype="uint16"), 2015.5, "2015"),
        (pd.Series([-3, -2]), -2.5, "-3"),
        (pd.Series([2015.0, 2016.0]), 2015.5, "2015.5"),
        (pd.Series([48_000.0, 52_000.0]), 50_000.0, "50000"),
        (pd.Series([0.25, 1 / 3]), 7 / 24, "0.2917"),
        (pd.Series([1e20, 3e20]), 2e20, "2e+20"),
    ],
)
def test_the_words_of_a_threshold_separate_what_it_separates(column: pd.Series, threshold: float, words: str) -> None:
    frame = pd.DataFrame({"year": column})
    assert InputFormat.infer(frame).threshold_words(0, threshold) == words
    low, high = column
    assert low <= float(words) < high
    if column.dtype.kind in "iuf" and column.dtype != "Int64":
        assert InputFormat.infer(frame.to_numpy()).threshold_words(0, threshold) == words


def test_labels_that_are_not_strings_survive() -> None:
    for columns in ([0, 1], pd.MultiIndex.from_tuples([("a", 1), ("a", 2)]), np.array([5, 6])):
        frame = pd.DataFrame(np.eye(2), columns=columns)
        format = same_after_json(InputFormat.infer(frame))
        pd.testing.assert_frame_equal(format.decode(format.encode(frame)), frame)


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, sparse.csr_array, sparse.csr_matrix, torch.tensor, list])
def test_rows_slices_every_container(make: object) -> None:
    X = np.arange(6.0).reshape(3, 2)
    made = make(X)  # type: ignore[operator]
    assert containers.n_rows(made) == 3
    part = containers.rows(made, np.array([2, 0, 2]))
    assert type(part) is type(made)
    assert containers.n_rows(part) == 3
    dense = part.toarray() if sparse.issparse(part) else np.asarray(part)
    np.testing.assert_array_equal(dense, X[[2, 0, 2]])


def test_broken_json_is_a_load_error() -> None:
    with pytest.raises(LoadError, match="incomplete"):
        InputFormat.from_json({"kind": "numpy"})


def test_neither_pandas_nor_torch_is_imported() -> None:
    code = (
        "import sys, numpy as np; import sointer.data.inputs as i; f = i.InputFormat.infer(np.ones((2, 2)));"
        "f.decode(f.encode(np.ones((1, 2)))); bad = {'pandas', 'torch'} & set(sys.modules);"
        "sys.exit(str(bad) if bad else 0)"
    )
    # Without the package's own table of contents, which may import torch for other reasons.
    stub = "import sys, types, importlib.util as u; s = u.find_spec('sointer'); p = types.ModuleType('sointer');"
    stub += "p.__path__ = s.submodule_search_locations; sys.modules['sointer'] = p;"
    done = subprocess.run([sys.executable, "-c", stub + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
