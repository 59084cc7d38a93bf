"""Keys of rows: equal for equal rows only."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sointer._support.containers import distinct_rows, row_keys
from sointer.errors import InputError


def test_dates_durations_and_missing_values_are_told_apart() -> None:
    start = pd.Timestamp("2024-05-31 12:00")
    moments = [start, start, start + pd.Timedelta(1, "ns"), pd.NaT]
    X = pd.DataFrame({"when": moments, "text": "a"})
    for frame in (X, X.assign(when=X["when"] - start), X.assign(when=X["when"].dt.tz_localize("Europe/Berlin"))):
        keys = row_keys(frame)
        assert keys[0] == keys[1]
        assert len(set(keys)) == 3
    numbers = row_keys(pd.DataFrame({"n": pd.array([1, None, 1], dtype="Int64")}))
    assert numbers[0] == numbers[2] != numbers[1]


def test_other_objects_are_refused() -> None:
    with pytest.raises(InputError, match="cannot tell apart values such as"):
        row_keys(pd.DataFrame({"a": [object()]}))


def one_by_one(table: np.ndarray) -> tuple[list[int], list[int]]:
    known: dict[bytes, int] = {}
    which = [known.setdefault(row.tobytes(), len(known)) for row in table]
    return [which.index(place) for place in range(len(known))], which


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8, np.bool_, np.uint16])
@pytest.mark.parametrize("shape", [(1, 1), (500, 3), (500, 2, 5), (4, 0)])
def test_distinct_rows_are_those_that_differ_in_any_bit(dtype: type, shape: tuple[int, ...]) -> None:
    table = np.random.default_rng(0).integers(-1, 2, size=shape).astype(dtype)
    for X in (table, np.asfortranarray(table), table[::-1]):
        first, which = distinct_rows(X)
        assert (first.tolist(), which.tolist()) == one_by_one(X)
    assert distinct_rows(np.array([[0.0], [-0.0], [np.nan], [np.nan]]))[1].tolist() == [0, 1, 2, 2]


def test_rows_whose_weighted_bits_add_up_alike_are_still_told_apart() -> None:
    a, b = np.random.default_rng(0).integers(2**64, size=2, dtype=np.uint64) | np.uint64(1)
    table = np.array([[b, 0], [0, a], [b, 0]], dtype=np.uint64)
    assert len(np.unique(table @ np.array([a, b]))) == 1, "the rows are made so that the sums cannot tell them apart"
    assert [found.tolist() for found in distinct_rows(table)] == [[0, 1], [0, 1, 0]]
