"""Spark: a saved explainer inside `mapInPandas`, as in docs/how-to/scaling-out.md. Runs where pyspark and Java are."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sointer import SOInter
from sointer.config import TrainingConfig
from sointer.errors import SointerWarning

pyspark_sql = pytest.importorskip("pyspark.sql")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "scaling-out.md"


@pytest.fixture(scope="module")
def spark():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)  # the executors must find sointer
        yield from session()


def session():
    builder = pyspark_sql.SparkSession.builder.master("local[2]")
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "512m")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    started = builder.getOrCreate()
    yield started
    started.stop()


def test_the_example_of_the_page_gives_what_explain_gives(spark, tmp_path) -> None:
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 4)), columns=list("abcd"))
    settings = {"output_names": ["sun", "games"], "training": TrainingConfig(n_rounds=2, n_epochs=1), "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        explainer = SOInter(lambda X: (X[["a", "b"]] > 0).astype(int), k=2, query_budget=100, **settings).fit(table)
    explainer.save(tmp_path / "explainer")
    rows = spark.createDataFrame(table.assign(id=np.arange(100, 150), note="x")).repartition(3)
    blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "mapInPandas" in block)
    names = {"rows": rows, "folder": str(tmp_path / "explainer"), "out": str(tmp_path / "why"), "spark": spark}
    exec(compile(code, str(PAGE), "exec"), names)
    found = pd.read_parquet(tmp_path / "why").sort_values(["sample", "rank"])
    whole = explainer.explain(table, "games").to_frame().assign(sample=lambda frame: frame["sample"] + 100)
    pd.testing.assert_frame_equal(found.reset_index(drop=True), whole, check_dtype=False)
