"""Dates, times and durations as exact numbers, and back in the dtype that they came in."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pandas as pd
import pytest

from sointer.data.inputs import InputFormat
from sointer.errors import InputError

DAYS = ["2020-01-01 03:04:05.123456", "2024-02-29", None, "1969-07-20 20:17:40"]


def columns() -> dict[str, pd.Series]:
    naive = pd.to_datetime(pd.Series(DAYS), format="mixed")
    durations = pd.to_timedelta(pd.Series(["1 days 02:03:04.5", "-3 hours", None, "400 days"]))
    return {
        "microseconds": naive.astype("datetime64[us]"),
        "nanoseconds": naive.astype("datetime64[ns]"),
        "seconds": naive.astype("datetime64[s]"),
        "aware": naive.dt.tz_localize("UTC").dt.tz_convert("Europe/Oslo"),
        "duration": durations,
        "arrow": naive.astype("timestamp[us][pyarrow]"),
        "arrow aware": naive.dt.tz_localize("UTC").astype("timestamp[us, tz=UTC][pyarrow]"),
        "arrow day": naive.dt.floor("D").astype("date32[day][pyarrow]"),
        "arrow duration": durations.astype("duration[ms][pyarrow]"),
        "objects": pd.Series([datetime.date(2020, 1, 1), datetime.date(1900, 2, 3), None, datetime.date(2100, 1, 1)]),
        "always there": pd.date_range("2020-01-01", periods=4, freq="37h").to_series(index=range(4)),
    }


@pytest.mark.parametrize("name", columns())
def test_times_come_back_exactly(name: str) -> None:
    given = pd.DataFrame({"n": [1.0, 2, 3, 4], "when": columns()[name]})
    form = InputFormat.from_json(json.loads(json.dumps(InputFormat.infer(given).to_json())))
    Z = form.encode(given)
    assert np.isfinite(Z).all()
    back = form.decode(Z)
    pd.testing.assert_frame_equal(back, given)


def test_numbers_grow_with_time() -> None:
    given = pd.DataFrame({"when": pd.to_datetime(["2021-01-01", "2020-01-01", "2022-01-01"])})
    assert np.argsort(InputFormat.infer(given).encode(given)[:, 0]).tolist() == [1, 0, 2]


def test_the_unit_may_differ_from_fit_where_nothing_is_lost() -> None:
    form = InputFormat.infer(pd.DataFrame({"when": pd.to_datetime(["2020-01-01", "2021-01-01"]).as_unit("s")}))
    fine = pd.DataFrame({"when": pd.to_datetime(["2020-06-01"]).as_unit("ns")})
    assert form.decode(form.encode(fine))["when"][0] == pd.Timestamp("2020-06-01")
    finer = pd.DataFrame({"when": pd.to_datetime(["2020-06-01 00:00:00.5"])})
    with pytest.raises(InputError, match=r"'when' that are finer than those of fit, which were whole seconds.*floor"):
        form.encode(finer)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            pd.to_datetime(["2020-01-01"]),
            r"dates without a time zone in column 'when', but .*UTC.*localize",
        ),
        (pd.to_datetime(["2020-01-01"]).tz_localize("Asia/Tokyo"), r"in the time zone Asia/Tokyo.*tz_convert\('UTC'\)"),
        (pd.to_timedelta(["1 days"]), "X has durations in column 'when', but dates in fit"),
        (["2020-01-01"], r"column 'when' of dtype (str|object), expected dates.*pandas.to_datetime"),
        ([3.5], "column 'when' of dtype float64, expected dates"),
    ],
)
def test_another_kind_of_time_is_refused(given: object, words: str) -> None:
    form = InputFormat.infer(pd.DataFrame({"when": pd.to_datetime(["2020-01-01", "2021-01-01"]).tz_localize("UTC")}))
    with pytest.raises(InputError, match=words):
        form.encode(pd.DataFrame({"when": given}))


def test_what_float64_cannot_count_is_refused() -> None:
    far = pd.DataFrame({"when": np.array([0, 10**17 + 1], dtype="M8[ns]")})
    with pytest.raises(InputError, match=r"'when' that are finer than a microsecond.*floor\('us'\)"):
        InputFormat.infer(far)
    near = pd.DataFrame({"when": np.array([10**18 + 1, 10**18 + 10**15], dtype="M8[ns]")})
    form = InputFormat.infer(near)
    pd.testing.assert_frame_equal(form.decode(form.encode(near)), near)


def test_a_mean_of_dates_is_a_date() -> None:
    given = pd.DataFrame({"when": pd.to_datetime(["2020-01-01", "2020-01-02", None])})
    form = InputFormat.infer(given)
    mean = form.decode(form.encode(given).mean(axis=0, keepdims=True) * [1, 0])
    assert mean["when"][0] == pd.Timestamp("2020-01-01 12:00")
