"""The values of features, for people and in tables and files, with the ids of rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from quick import TAUGHT, quick_fit
from sointer import SOInter
from sointer.errors import InputError
from sointer.io.stream import stream_explain
from sointer.io.writers import TextWriter
from sointer.masking.unit_values import format_value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (4452, "4,452"),
        (4452.0, "4,452"),
        (0.123456, "0.1235"),
        (-55061.6, "-55,062"),
        (1e20, "1e+20"),
        (True, "True"),
        (np.int8(7), "7"),
        (float("nan"), "missing"),
        (None, "missing"),
        (pd.NA, "missing"),
        (pd.NaT, "missing"),
        (pd.Timestamp("2020-01-02"), "2020-01-02"),
        (pd.Timestamp("2020-01-02 03:04"), "2020-01-02 03:04:00"),
        (pd.Timedelta("2 days"), "2 days"),
        (pd.Timedelta("0 days 03:09:20.5"), "3:09:20.500000"),
        ("x" * 100, "x" * 59 + "…"),
    ],
)
def test_values_for_people(value: object, words: str) -> None:
    assert format_value(value) == words


@pytest.fixture(scope="module")
def data() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"debt": rng.integers(0, 9000, 300), "job": rng.choice(["clerk", "nurse"], 300)})
    made["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 300), unit="D")
    made["income"] = rng.normal(50_000, 9000, 300)
    made.loc[1, "income"] = np.nan
    return made.set_index(pd.Index([f"person {i}" for i in range(300)]))


@pytest.fixture(scope="module")
def explainer(data: pd.DataFrame) -> SOInter:
    settings = TAUGHT | {"k": "auto", "query_budget": 400, "output_names": ["loan"]}
    return quick_fit(lambda X: X[["debt"]].to_numpy() < 4000, data, **settings)


def test_tables_have_values_in_their_own_type(explainer: SOInter, data: pd.DataFrame) -> None:
    table = explainer.explain(data[:3], k=4).to_frame()
    for label, line in table.iterrows():
        own = data.loc[label, line["feature"]]
        assert line["feature_value"] is None if pd.isna(own) else line["feature_value"] == own
    kinds = {line["feature"]: type(line["feature_value"]) for _, line in table[:4].iterrows()}
    assert kinds == {"debt": int, "job": str, "since": pd.Timestamp, "income": float}


def test_numbers_alone_stay_numbers() -> None:
    X = np.random.default_rng(0).integers(0, 9, size=(200, 3))
    table = quick_fit(lambda X: X[:, :1] > 4, X, **TAUGHT | {"k": 1}).explain(X[:5]).to_frame()
    assert table["feature_value"].dtype == np.int64
    assert table["feature_value"].tolist() == X[:5, 0].tolist()


def test_plots_and_cards_show_values(explainer: SOInter, data: pd.DataFrame) -> None:
    found = explainer.explain(data[:2], k=4)
    words = f"debt = {data['debt'].iloc[0]:,}"
    assert words in [label.get_text() for label in found.plot(0).get_yticklabels()]
    assert words in found._repr_html_()
    assert "income = missing" in found._repr_html_()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_name_the_rows_by_an_id(explainer: SOInter, data: pd.DataFrame, tmp_path, suffix: str) -> None:
    rows = data[:40].assign(number=[f"{i:04}" for i in range(40)])
    source = tmp_path / f"rows.{suffix}"
    rows.to_csv(source, index=False) if suffix == "csv" else rows.to_parquet(source, index=False)
    out = tmp_path / "why.csv"
    stream_explain(explainer, source, TextWriter(out), id_column="number", k=1, chunk_rows=16)
    found = pd.read_csv(out, dtype=str)
    assert found["id"].tolist() == rows["number"].tolist()
    assert found["feature_value"].tolist() == rows["debt"].astype(str).tolist()
    with pytest.raises(InputError, match="'nummer'"):
        stream_explain(explainer, source, TextWriter(out), id_column="nummer")


def test_rows_without_names_have_no_id(tmp_path) -> None:
    X = np.random.default_rng(0).normal(size=(100, 2))
    explainer = quick_fit(lambda X: X[:, :1] > 0, X)
    with pytest.raises(InputError, match="no named columns"):
        stream_explain(explainer, X, tmp_path / "why.parquet", id_column="id")
