"""Keys of rows: equal for equal rows only."""

from __future__ import annotations

import pandas as pd
import pytest

from sointer._support.containers import row_keys
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
