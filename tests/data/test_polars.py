"""Frames of polars and tables of pyarrow: the model gets the same kind, with the same dtypes."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

pl = pytest.importorskip("polars")
pytest.importorskip("narwhals")
import polars.testing  # noqa: E402
import pyarrow as pa  # noqa: E402

import sointer  # noqa: E402
from quick import TAUGHT, quick_fit  # noqa: E402
from sointer import SOInter  # noqa: E402
from sointer.data.inputs import InputFormat  # noqa: E402
from sointer.errors import InputError  # noqa: E402
from sointer.io.stream import stream_explain  # noqa: E402


def frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "number": [1.5, None, 3.0],
            "whole": pl.Series([1, 2, 3], dtype=pl.Int16),
            "gaps": pl.Series([1, None, 3], dtype=pl.UInt8),
            "flag": [True, None, False],
            "text": ["a", None, "b"],
            "category": pl.Series(["u", "v", None], dtype=pl.Categorical),
            "enum": pl.Series(["x", "z", "x"], dtype=pl.Enum(["x", "y", "z"])),
            "day": [datetime.date(2020, 1, 1), None, datetime.date(2021, 2, 3)],
            "when": pl.Series(
                [datetime.datetime(2020, 1, 1, 12), None, datetime.datetime(2021, 1, 1)]
            ).dt.replace_time_zone("Europe/Oslo"),
            "lasted": [datetime.timedelta(hours=3), datetime.timedelta(days=-1), None],
        }
    )


def test_every_dtype_comes_back() -> None:
    given = frame()
    form = InputFormat.from_json(json.loads(json.dumps(InputFormat.infer(given).to_json())))
    Z = form.encode(given)
    assert np.isfinite(Z).all()
    polars.testing.assert_frame_equal(form.decode(Z), given)


def test_a_table_of_pyarrow_comes_back() -> None:
    text = pa.array(["u", None], pa.large_string())
    given = pa.table({"a": [1.0, 2.0], "b": text, "c": [1, 2]})
    form = InputFormat.infer(given)
    assert form.decode(form.encode(given)).equals(given)


@pytest.fixture(scope="module")
def data() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {"age": rng.integers(18, 80, 500), "job": rng.choice(["clerk", "nurse"], 500), "x": rng.normal(size=500)}
    )


def model(X: pl.DataFrame) -> pl.DataFrame:
    assert isinstance(X, pl.DataFrame), type(X)
    assert X.schema == {"age": pl.Int64, "job": pl.String, "x": pl.Float64}
    return X.select(old=pl.col("age") > 50, nurse=pl.col("job") == "nurse")


@pytest.fixture(scope="module")
def explainer(data: pl.DataFrame) -> SOInter:
    return quick_fit(model, data, **TAUGHT | {"k": "auto"})


def test_a_model_of_polars_is_explained(explainer: SOInter, data: pl.DataFrame, tmp_path) -> None:
    assert explainer.output_names_ == ["old", "nurse"]
    found = explainer.explain(data[:40], target="nurse")
    assert (found.mask == np.array([False, True, False])).all()
    assert found.verify().fidelity == 1.0
    explainer.save(tmp_path / "why")
    again = sointer.load(tmp_path / "why", model).explain(data[:40], target="nurse")
    np.testing.assert_array_equal(again.selected, found.selected)


def test_what_comes_out_is_a_frame_of_polars(explainer: SOInter, data: pl.DataFrame) -> None:
    found = explainer.explain(data[:3], target="old").to_frame()
    assert isinstance(found, pl.DataFrame)
    assert found["feature"].to_list() == ["age"] * 3


def test_pandas_may_follow_polars(explainer: SOInter, data: pl.DataFrame) -> None:
    native, other = (
        explainer.explain(X, target="old") for X in (data[:20], pd.DataFrame(data[:20].to_dict(as_series=False)))
    )
    np.testing.assert_array_equal(native.scores, other.scores)


def test_streaming_from_polars(explainer: SOInter, data: pl.DataFrame, tmp_path) -> None:
    done = stream_explain(explainer, data[:50].with_columns(extra=pl.lit(1)), tmp_path / "why.parquet", target="old")
    assert done.n_rows == 50


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (pl.LazyFrame({"a": [1.0]}), r"polars LazyFrame.*X\.collect\(\)"),
        (pl.DataFrame({"a": [[1, 2]]}), "'a' of dtype large_list.*Make a column of each of its places"),
        (pl.DataFrame({"a": [{"b": 1}]}), "'a' of dtype struct.*Make a column of each of its fields"),
        (pl.DataFrame({"a": [datetime.time(3)]}), "'a' of dtype time64.*such as seconds since midnight"),
        (pl.DataFrame({"a": [Decimal("1.5")]}), r"'a' of dtype decimal.*in pandas with astype\('float64'\)"),
        (pl.DataFrame({"a": [None]}), "'a' of dtype null.*drop it"),
        (pa.record_batch({"a": [1.0], "b": ["x"]}), r"pyarrow RecordBatch.*Give pyarrow.Table.from_batches\(\[X\]\)"),
        (pl.DataFrame({"a": [1.0]}).clear(), "empty"),
        (pl.Series([1.0, 2.0]), "polars Series|1 dimension"),
    ],
)
def test_what_cannot_be_explained_is_refused(X: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        SOInter(lambda X: np.zeros((len(X), 1)), random_state=0).fit(X)


def test_a_row_whose_dtypes_are_unknown_for_lack_of_values() -> None:
    nothing = pl.DataFrame({name: [None] for name in frame().columns})  # as made of one record with None
    as_in_fit = nothing.cast(dict(frame().schema))
    form = InputFormat.infer(pl.concat([frame(), as_in_fit]))
    np.testing.assert_array_equal(form.encode(nothing), form.encode(as_in_fit))
    polars.testing.assert_frame_equal(form.decode(form.encode(nothing)), as_in_fit, categorical_as_str=True)
    with pytest.raises(InputError, match=r"missing|NaN"):  # where fit saw none
        InputFormat.infer(frame().fill_null(strategy="forward").fill_null(strategy="backward")).encode(nothing)
