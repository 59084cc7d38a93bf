"""BlackBox: every reply is checked, every row is counted."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.tree import DecisionTreeClassifier

from sointer._support.torch_state import ForkSafeLock
from sointer.blackbox.adapters import as_black_box
from sointer.blackbox.box import BlackBox
from sointer.data.outputs import Outputs
from sointer.errors import BlackBoxError, InputError, QueryBudgetExceeded


class Recorder:
    """Doubles its input and remembers what it was sent."""

    def __init__(self) -> None:
        self.batches: list[object] = []

    def __call__(self, X: np.ndarray) -> np.ndarray:
        self.batches.append(X)
        return 2 * np.asarray(X)

    @property
    def n_rows(self) -> int:
        return sum(len(batch) for batch in self.batches)


X = np.arange(20.0).reshape(10, 2)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.integers(1, 12))
def test_batches_cover_every_row_once_in_order(n: int, batch_size: int) -> None:
    model = Recorder()
    rows = np.random.default_rng(0).normal(size=(n, 3))
    box = BlackBox(model, batch_size=batch_size)
    np.testing.assert_array_equal(box(rows), 2 * rows)
    assert box.n_queries == model.n_rows == n
    assert max(len(batch) for batch in model.batches) <= batch_size
    assert len(model.batches) == -(-n // batch_size)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9), max_size=8), st.integers(0, 25), st.integers(1, 4))
def test_budget_is_exact(calls: list[int], budget: int, batch_size: int) -> None:
    model = Recorder()
    box = BlackBox(model, query_budget=budget, batch_size=batch_size)
    used = 0
    for n in calls:
        if used + n <= budget:
            box(np.ones((n, 2)))
            used += n
        else:
            with pytest.raises(QueryBudgetExceeded, match=rf"{budget} rows.*{used} used, {n} more requested"):
                box(np.ones((n, 2)))
        assert box.n_queries == model.n_rows == used
        assert box.remaining == budget - used


def test_budget_blocks_nest_and_end() -> None:
    box = BlackBox(Recorder(), query_budget=10)
    box(X[:2])
    with box.budget(5):
        assert box.remaining == 5
        box(X[:3])
        with box.budget(100):
            assert box.remaining == 2
            with pytest.raises(QueryBudgetExceeded, match=r"budget of 5 rows .* 3 used, 3 more requested"):
                box(X[:3])
        with box.budget(None):
            assert box.remaining == 2
        with box.budget(0), pytest.raises(QueryBudgetExceeded):
            box(X[:1])
    assert box.remaining == 5
    box.reset_budget(None)
    assert box.remaining is None
    with box.budget(1):
        assert box.remaining == 1
    box.reset_budget(3)
    assert (box.remaining, box.n_queries, box.query_budget) == (3, 5, 3)
    with pytest.raises(RuntimeError, match="inside"), box.budget(1):
        raise RuntimeError("inside")
    assert box.remaining == 3


def test_a_failed_batch_counts_and_the_unsent_ones_do_not() -> None:
    def fails_second(batch: np.ndarray) -> np.ndarray:
        if batch[0, 0] > 0:
            raise ZeroDivisionError("by design")
        return batch

    box = BlackBox(fails_second, batch_size=2, query_budget=10)
    with pytest.raises(
        BlackBoxError, match=r"Your function failed.*ZeroDivisionError: by design.*shape \(2, 2\)"
    ) as info:
        box(X)
    assert isinstance(info.value.__cause__, ZeroDivisionError)
    assert box.n_queries == 4
    assert box.remaining == 6


def test_keyboard_interrupt_passes_and_nothing_stays_reserved() -> None:
    def stop(batch: np.ndarray) -> np.ndarray:
        raise KeyboardInterrupt

    box = BlackBox(stop, batch_size=2, query_budget=10)
    with pytest.raises(KeyboardInterrupt):
        box(X)
    assert box.remaining == 8


def test_a_model_that_writes_into_its_input_cannot_reach_ours() -> None:
    def spoils(batch: np.ndarray) -> np.ndarray:
        batch[:] = 0
        return batch

    mine = X.copy()
    BlackBox(spoils)(mine)
    np.testing.assert_array_equal(mine, X)
    buffer = np.zeros((10, 2))
    box = BlackBox(lambda batch: np.copyto(buffer, batch) or buffer)
    first = box(X)
    box(X + 1)
    np.testing.assert_array_equal(first, X)


REPLIES = [
    (lambda X: X.tolist(), X),
    (lambda X: pd.DataFrame(X), X),
    (lambda X: sparse.csr_matrix(X), X),
    (lambda X: torch.tensor(X, requires_grad=True), X),
    (lambda X: torch.tensor(X).bfloat16(), X),
    (lambda X: X > 5, X > 5),
    (lambda X: X[:, 0], X[:, :1]),
    (lambda X: pd.Series(X[:, 0]), X[:, :1]),
    (lambda X: np.where(X > 5, "yes", "no"), np.where(X > 5, "yes", "no")),
    (lambda X: np.where(X > 5, "yes", "no").astype(object), np.where(X > 5, "yes", "no")),
    (lambda X: X.astype(object), X),
]


@pytest.mark.parametrize(("predict", "expected"), REPLIES)
def test_all_reply_containers_become_one_table(predict: object, expected: np.ndarray) -> None:
    reply = BlackBox(predict, batch_size=3)(X)  # type: ignore[arg-type]
    assert type(reply) is np.ndarray
    assert reply.dtype.kind == np.asarray(expected).dtype.kind
    np.testing.assert_array_equal(reply, expected)


def test_numbers_beside_strings_stay_numbers() -> None:
    for predict in (
        lambda X: [["a", 1] for _ in X],
        lambda X: pd.DataFrame({"p": ["a"] * len(X), "q": [1] * len(X)}),
    ):
        reply = BlackBox(predict)(X)
        assert reply[0].tolist() == ["a", 1]
        assert type(reply[0, 1]) is int
    by_batch = BlackBox(lambda X: [["a"] if X[0, 0] == 0 else [1]], batch_size=1)(X[:2])
    assert by_batch.tolist() == [["a"], [1]]


@pytest.mark.parametrize("dtypes", [{}, {"vip": "boolean", "level": "Int64", "cost": "Float64"}])
def test_labels_beside_numbers_stay_labels_in_a_frame(dtypes: dict[str, str]) -> None:
    frame = pd.DataFrame({"vip": X[:, 0] > 4, "level": np.arange(10) % 4, "cost": X[:, 1] / 2}).astype(dtypes)
    reply = BlackBox(lambda rows: frame)(X)
    assert [type(value) for value in reply[0]] == [bool, int, float]
    assert reply.tolist() == frame.to_numpy(object).tolist()
    assert Outputs.infer(np.tile(reply, (4, 1))).kinds == ("binary", "categorical", "continuous")
    # Columns of one type are an array of that type, as before.
    assert BlackBox(lambda rows: frame[["level"]].astype(int))(X).dtype == np.int64


def test_longer_strings_in_later_batches_are_not_cut() -> None:
    box = BlackBox(lambda X: np.array([["a" * (1 + int(X[0, 0]))]]), batch_size=1)
    assert box(X[:3]).ravel().tolist() == ["a", "aaa", "aaaaa"]


WRONG = [
    (lambda X: X[:-1], r"9 rows .* for 10 rows of input, expected shape \(10, n_outputs\)"),
    (lambda X: X[0], r"shape \(2,\)"),
    (lambda X: X[:, :0], "0 outputs"),
    (lambda X: X * np.nan, "20 NaN .*row 0, output 0"),
    (lambda X: np.where(X > 3, np.inf, X), "NaN or infinite"),
    (lambda X: np.where(X > 3, np.inf, X).astype(np.float32), "NaN or infinite"),
    (lambda X: np.where(X > 3, np.nan, X).astype(np.float16), "NaN or infinite"),
    (lambda X: [[1, 2]] + [[1]] * 9, "different lengths"),
    (lambda X: [X[:, :1], X[:, :2]], r"list of 2 arrays of shapes \(10, 1\), \(10, 2\).*model\(X\)\[0\].*column_stack"),
    (lambda X: (X[:, :2], X[:, 1]), r"tuple of 2 arrays of shapes \(10, 2\), \(10,\).*model\(X\)\[0\].*column_stack"),
    (lambda X: None, "None"),
    (lambda X: {"a": 1}, "a dict with the keys 'a'"),
    (lambda X: 3.0, "type float"),
    (lambda X: np.array([[object()]] * 10), "type object"),
    (lambda X: np.array([[None]] * 10), "None"),
    (lambda X: [["a", float("nan")]] * 10, "NaN"),
    (lambda X: X + 1j, "complex"),
    (lambda X: X.astype("datetime64[s]"), "datetime64"),
    (lambda X: [np.ones((10, 2))] * 3, r"numpy.column_stack\(\[one\[:, 1\] for one in outputs\]\)"),
    (lambda X: [np.ones(10)] * 3, r"one per output.*numpy.column_stack\(outputs\)"),
    (lambda X: np.ones((10, 4, 4)), r"reshape\(len\(outputs\), -1\)"),
    (lambda X: np.ma.masked_array(X, X > 3), "masked"),
    (lambda X: (y for y in X), "generator"),
    (lambda X: [in_itself()] * 10, "different lengths"),
]


def in_itself() -> list[object]:
    """A list that holds itself; looking for text in it never ended."""
    made: list[object] = []
    made.append(made)
    return made


@pytest.mark.parametrize(("predict", "words"), WRONG)
def test_a_wrong_reply_is_described(predict: object, words: str) -> None:
    with pytest.raises(BlackBoxError, match=f"(?s)Your function returned an invalid result.*{words}"):
        BlackBox(predict)(X)  # type: ignore[arg-type]


def test_the_number_of_outputs_must_not_change() -> None:
    box = BlackBox(lambda X: np.ones((len(X), 2 if len(X) == 10 else 3)))
    box(X)
    with pytest.raises(BlackBoxError, match=r"3 outputs .*expected shape \(1, 2\)"):
        box(X[:1])
    flat = BlackBox(lambda X: X if len(X) > 1 else X[0])
    flat(X)
    with pytest.raises(BlackBoxError, match="not a flat list"):
        flat(X[:1])
    # Two rows and two outputs: a flat reply of two must not pass for two rows of one output.
    two = BlackBox(lambda X: X if len(X) > 2 else X[0])
    two(X)
    with pytest.raises(BlackBoxError, match=r"expected shape \(2, 2\)"):
        two(X[:2])


def test_named_outputs_are_matched_by_name_and_others_refused() -> None:
    """A model that builds its table from the rows at hand, as get_dummies does, may order its columns otherwise."""

    def by_first_row(X: np.ndarray) -> pd.DataFrame:
        names = ["low", "high"] if X[0, 0] < 8 else ["high", "low"] if X[0, 0] < 16 else ["high", "other"]
        return pd.DataFrame({name: X[:, 0] > 9 if name == "high" else X[:, 0] <= 9 for name in names})

    box = BlackBox(by_first_row, batch_size=4)
    np.testing.assert_array_equal(box(X[:8]), np.column_stack([X[:8, 0] <= 9, X[:8, 0] > 9]))
    assert box.output_names == ["low", "high"]
    with pytest.raises(BlackBoxError, match="the outputs 'other' in place of 'low', expected those of earlier calls"):
        box(X[8:])


def test_rows_sorted_by_an_index_that_counts_them_are_refused() -> None:
    shuffled = pd.DataFrame(X, columns=["a", "b"]).sample(frac=1, random_state=0)
    with pytest.raises(BlackBoxError, match="another order than those of X"):
        BlackBox(lambda rows: rows.sort_index()[["a"]] > 4)(shuffled)
    made = BlackBox(lambda rows: pd.DataFrame({"y": rows["a"].to_numpy() > 4}))(shuffled)  # a table of its own
    np.testing.assert_array_equal(made[:, 0], shuffled["a"] > 4)


@pytest.mark.parametrize("as_series", [False, True])
def test_outputs_in_another_order_than_the_rows_are_refused(as_series: bool) -> None:
    frame = pd.DataFrame(X[::-1].copy(), columns=["a", "b"])

    def sorts(rows: pd.DataFrame) -> object:
        ordered = rows.sort_values("a")
        return ordered["a"] > 4 if as_series else pd.DataFrame({"y": ordered["a"] > 4})

    with pytest.raises(BlackBoxError, match=r"another order than those of X.*9 comes first.*Return outputs.loc"):
        BlackBox(sorts)(frame)
    back = BlackBox(lambda rows: pd.DataFrame({"y": rows.sort_values("a")["a"] > 4}).loc[rows.index])
    np.testing.assert_array_equal(back(frame)[:, 0], frame["a"] > 4)
    own = BlackBox(lambda rows: (rows["a"] > 4).set_axis(range(7, 17)))  # labels that say nothing about X
    np.testing.assert_array_equal(own(frame)[:, 0], frame["a"] > 4)
    shuffled = frame.sample(frac=1, random_state=0)
    new = BlackBox(lambda rows: pd.DataFrame({"y": (rows["a"] > 4).to_numpy()}))  # a table of its own
    np.testing.assert_array_equal(new(shuffled)[:, 0], shuffled["a"] > 4)


def test_output_names() -> None:
    framed = BlackBox(lambda X: pd.DataFrame(X, columns=["a", "b"]))
    assert framed.output_names is None
    framed(X)
    assert framed.output_names == ["a", "b"]
    assert framed.n_outputs == 2
    given_names = BlackBox(lambda X: pd.DataFrame(X, columns=["a", "b"]), output_names=["p", "q"])
    given_names(X)
    assert given_names.output_names == ["p", "q"]
    with pytest.raises(InputError, match="3 names, but the model returned 2"):
        BlackBox(lambda X: X, output_names=["a", "b", "c"])(X)
    with pytest.raises(InputError, match="'a'"):
        BlackBox(lambda X: X, output_names=["a", "a"])


def test_no_rows() -> None:
    box = BlackBox(Recorder())
    with pytest.raises(InputError, match="0 rows"):
        box(X[:0])
    box(X)
    assert box(X[:0]).shape == (0, 2)
    assert box.n_queries == 10


CONTAINERS = [
    lambda X: X,
    lambda X: X.astype(np.float32),
    lambda X: sparse.csr_matrix(X),
    lambda X: torch.tensor(X),
    lambda X: pd.DataFrame(X),
    lambda X: pd.DataFrame({"n": X[:, 0], "s": [str(v) for v in X[:, 1]]}),
]


@pytest.mark.parametrize("make", CONTAINERS)
def test_cache_asks_each_row_once(make: object) -> None:
    rows = np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0], [1.0, 0.0]])
    made = make(rows)  # type: ignore[operator]
    sums: list[int] = []

    def predict(batch: object) -> np.ndarray:
        dense = batch.toarray() if sparse.issparse(batch) else np.asarray(batch)  # type: ignore[attr-defined]
        sums.append(len(dense))
        return dense.astype(float) @ [1.0, 10.0]

    box = BlackBox(predict, cache=True, query_budget=3)
    expected = rows @ [[1.0], [10.0]]
    np.testing.assert_array_equal(box(made), expected)
    assert (box.n_queries, box.n_cache_hits, box.remaining) == (3, 1, 0)
    np.testing.assert_array_equal(box(made), expected)  # the budget is spent, the cache is not
    assert (box.n_queries, box.n_cache_hits, sum(sums)) == (3, 5, 3)
    box.clear_cache()
    with pytest.raises(QueryBudgetExceeded):
        box(made)


def test_cache_tells_apart_rows_that_look_alike() -> None:
    box = BlackBox(lambda X: np.zeros(X.shape[0]), cache=True)
    box(np.array([[1, 0]], dtype=np.int64))
    box(np.array([[1, 0]], dtype=np.int32))
    box(pd.DataFrame({"a": ["1"], "b": ["x, y"]}))
    box(pd.DataFrame({"a": ["1, 'x"], "b": ["y"]}))
    box(sparse.csr_array([[1.0, 0.0]]))
    box(sparse.csr_array([[0.0, 1.0]]))
    box(sparse.csr_array([[0.0, 1.0, 0.0]]))
    assert box.n_queries == 7
    with pytest.raises(InputError, match="cache=False"):
        box(pd.DataFrame({"a": [object()]}))


def test_counting_is_thread_safe() -> None:
    box = BlackBox(lambda X: X, query_budget=500, batch_size=3)
    refused = []

    def ask(_: int) -> None:
        try:
            box(X)
        except QueryBudgetExceeded:
            refused.append(1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(80)))
    assert box.n_queries == 500
    assert len(refused) == 30
    assert box.remaining == 0


def test_clone_and_copy_keep_the_fitted_model() -> None:
    model = DecisionTreeClassifier(random_state=0).fit(X, (X > 9).astype(int))

    class Holder(BaseEstimator):
        def __init__(self, black_box: object = None) -> None:
            self.black_box = black_box

    box = as_black_box(model)
    holder = clone(Holder(box))
    assert holder.black_box is box
    np.testing.assert_array_equal(holder.black_box(X), X > 9)
    assert copy.deepcopy(holder).black_box is box
    assert copy.copy(box) is box
    inner = clone(Holder(box.predict)).black_box
    np.testing.assert_array_equal(inner(X), X > 9)
    unpickled = pickle.loads(pickle.dumps(box))
    np.testing.assert_array_equal(unpickled(X), X > 9)
    assert isinstance(unpickled._lock, ForkSafeLock)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"query_budget": -1}, "query_budget"),
    ],
)
def test_bad_options(options: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        BlackBox(lambda X: X, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="callable"):
        BlackBox(3)  # type: ignore[arg-type]
