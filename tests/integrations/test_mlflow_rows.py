"""What MLflow models hold of the training data."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from quick import quick_fit
from sointer import SOInter, TrainingConfig
from sointer.errors import InputError, SointerWarning

pytest.importorskip("mlflow")

from sointer.integrations.mlflow import Predictor, load_model, save_model

X = np.random.default_rng(0).normal(size=(100, 3))


def test_rows_are_left_out_where_that_is_wanted(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SointerWarning)
        settings = {"k": 2, "random_state": 0, "query_budget": 150, "training": TrainingConfig(n_epochs=1)}
        explainer = SOInter(lambda X: (X[:, :2] > 0).astype(int), **settings).fit(X)
    known = {row.tobytes() for row in X}
    n_found = {}
    for rows in ("keep", "none"):
        save_model(explainer, tmp_path / rows, rows=rows)
        (path,) = (tmp_path / rows).rglob("weights-*")
        n_found[rows] = sum(row.tobytes() in known for row in load_file(path)["background.rows"])
    assert n_found == {"keep": 100, "none": 0}
    loaded = load_model(str(tmp_path / "none"))
    expected = explainer.explain(X[:9], 0, query=False)
    assert np.array_equal(loaded.explain(X[:9], 0).scores, expected.scores)


def test_dates_without_a_time_zone_are_not_taken_for_those_of_one():
    dates = pd.date_range("2024-01-01", periods=60, tz="Europe/Oslo")
    rows = pd.DataFrame({"since": dates, "size": np.arange(60.0)})
    predictor = Predictor(quick_fit(lambda X: X["since"].dt.month.to_numpy() > 1, rows))
    zoned = predictor.predict(rows[:1].astype({"since": str}))
    assert len(zoned) == len(predictor.predict(rows[:1]))
    with pytest.raises(InputError, match="dates without a time zone in column 'since'"):
        predictor.predict(pd.DataFrame({"since": ["2024-01-05T10:00:00"], "size": [1.0]}))
