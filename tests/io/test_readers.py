"""Files as other programs write them: separators, encodings, line breaks in values, and the index of a DataFrame."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from quick import TABLE, labels, quick_fit
from sointer.errors import InputError
from sointer.io import readers
from sointer.io.readers import open_source, read_table
from sointer.io.stream import stream_explain
from sointer.io.writers import TextWriter

CITIES = pd.DataFrame({"sun": [0.5, 1.25, -2.0], "city": ["Köln", "Paris", "Tromsø"]})


@pytest.mark.parametrize("options", [{"sep": ";"}, {"sep": ";", "decimal": ","}, {"sep": "\t"}, {"sep": "|"}])
@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_another_separator_is_named(name: str, options: dict[str, str], tmp_path: Path) -> None:
    CITIES.to_csv(tmp_path / name, index=False, **options)
    with pytest.raises(InputError, match=r"columns separated by .*expected commas.*to_parquet"):
        open_source(tmp_path / name)


def test_separators_within_values_are_no_separators(tmp_path: Path) -> None:
    texts = pd.DataFrame({"text": ["a; b", "c; d; e"]})
    texts.to_csv(tmp_path / "one.csv", index=False)
    assert read_table(tmp_path / "one.csv", "text").tolist() == ["a; b", "c; d; e"]
    pd.DataFrame({"a;b": ["1;2"], "c": [3]}).to_csv(tmp_path / "two.csv", index=False)
    assert read_table(tmp_path / "two.csv").shape == (1, 2)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_is_named(encoding: str, tmp_path: Path) -> None:
    CITIES.replace("Tromsø", "Oslo").to_csv(tmp_path / "rows.csv", index=False, encoding=encoding)
    for dtypes in ({}, {"city": "str"}):
        with pytest.raises(InputError, match=rf"not UTF-8.*encoding='{encoding}'"):
            read_table(tmp_path / "rows.csv", ["sun", "city"], dtypes=dtypes)


def test_a_column_that_is_not_needed_may_have_any_encoding(tmp_path: Path) -> None:
    CITIES.to_csv(tmp_path / "rows.csv", index=False, encoding="latin-1")
    assert read_table(tmp_path / "rows.csv", ["sun"])["sun"].tolist() == [0.5, 1.25, -2.0]


def test_a_wrong_value_is_found_by_the_number_of_its_sample(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n2\nhigh\n")
    with pytest.raises(InputError, match=r"row 2: X has 'high' in column 'a'"):
        read_table(tmp_path / "rows.csv", dtypes={"a": "float64"})


def test_line_breaks_in_values_of_files_larger_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BLOCK_BYTES", 1000)
    texts = pd.DataFrame({"n": range(300), "text": [f'first "{i}"\nsecond, {i}' for i in range(300)]})
    texts.to_csv(tmp_path / "rows.csv", index=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / "rows.csv"), texts, check_dtype=False)


def test_the_index_of_a_dataframe_is_no_feature_but_may_name_rows(tmp_path: Path) -> None:
    table = pd.DataFrame(TABLE, columns=list("abcde"))
    table[table["a"] > 0].to_parquet(tmp_path / "filtered.parquet")
    opened = open_source(tmp_path / "filtered.parquet")
    assert opened.columns == list("abcde")
    assert read_table(tmp_path / "filtered.parquet", opened.columns).shape == ((table["a"] > 0).sum(), 5)

    named = table.set_axis([f"p{i}" for i in range(len(table))]).rename_axis("patient")
    named.to_parquet(tmp_path / "named.parquet")
    opened = open_source(tmp_path / "named.parquet")
    assert opened.index == ("patient",)
    explainer = quick_fit(labels, table)
    out = TextWriter(tmp_path / "why.csv")
    stream_explain(explainer, tmp_path / "named.parquet", out, target=0, k=1, id_column="patient")
    assert pd.read_csv(tmp_path / "why.csv")["id"].tolist() == named.index.tolist()


@pytest.mark.parametrize("kind", ["csv", "nullable.parquet", "plain.parquet"])
def test_ids_are_written_as_they_are_and_missing_ones_left_out(kind: str, tmp_path: Path) -> None:
    table = pd.DataFrame(TABLE, columns=list("abcde"))
    ids = [None, *(2**53 + 1 + i for i in range(len(table) - 1))]
    path, out = tmp_path / f"rows.{kind}", tmp_path / "why.parquet"
    frame = table.assign(id=pd.array(ids, dtype="Int64"))
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind.startswith("nullable"):
        frame.to_parquet(path)
    else:  # as programs other than pandas write it
        pq.write_table(pa.table({**{name: table[name].to_numpy() for name in table}, "id": pa.array(ids)}), path)
    explainer = quick_fit(labels, table)
    stream_explain(explainer, path, out, target=0, k=1, id_column="id", records=tmp_path / "r.jsonl", query=False)
    assert pq.read_table(out)["id"].to_pylist() == [None, *map(str, ids[1:])]
    records = pd.read_json(tmp_path / "r.jsonl", lines=True, dtype=False)["sample"]
    assert [record["id"] for record in records[:2]] == [None, str(2**53 + 1)]
    assert np.unique([record["number"] for record in records]).tolist() == list(range(len(table)))


@pytest.mark.parametrize("metadata", [b"{not JSON", b'{"index_columns": ["\xff"]}'])
def test_damaged_pandas_metadata_are_refused(metadata: bytes, tmp_path: Path) -> None:
    table = pa.table({"a": [1.0, 2.0]}).replace_schema_metadata({b"pandas": metadata})
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="metadata are damaged"):
        open_source(tmp_path / "rows.parquet")
