"""Missing values as values of their own: encoded beside numbers, as a level of categories, and given back."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

from sointer.data.inputs import InputFormat
from sointer.errors import InputError, LoadError
from sointer.masking.build import make_removal


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "income": [1.5, np.nan, 3.0, 4.5],
            "children": pd.array([1, 2, None, 4], dtype="Int64"),
            "owner": pd.array([True, None, False, True], dtype="boolean"),
            "job": ["nurse", None, "clerk", "nurse"],
            "town": pd.Categorical(["Oslo", None, "Bergen", "Oslo"], categories=["Oslo", "Bergen", "Moss"]),
            "since": pd.to_datetime(["2020-01-01", None, "2021-05-06", "2019-02-03"]),
            "note": pd.Series(["a", pd.NA, "b", "a"], dtype="string"),
            "odd": pd.Series(["x", float("nan"), 3, "x"], dtype=object),
            "whole": [1, 2, 3, 4],
        }
    )


def test_every_kind_of_column_comes_back_as_it_was() -> None:
    given = frame()
    form = InputFormat.from_json(json.loads(json.dumps(InputFormat.infer(given).to_json())))
    Z = form.encode(given)
    assert np.isfinite(Z).all()
    pd.testing.assert_frame_equal(form.decode(Z), given)


def test_a_number_has_a_column_for_absence_only_where_it_is_missing() -> None:
    form = InputFormat.infer(np.array([[1.0, 2.0], [np.nan, 3.0], [5.0, 4.0]]))
    assert form.column_feature.tolist() == [0, 0, 1]
    Z = form.encode(np.array([[np.nan, 7.0], [9.0, 8.0]]))
    assert Z.tolist() == [[3.0, 1.0, 7.0], [9.0, 0.0, 8.0]], "the mean of what is there, and that it is missing"
    np.testing.assert_array_equal(form.decode(Z), [[np.nan, 7.0], [9.0, 8.0]])
    assert not InputFormat.infer(np.ones((2, 2))).fills


def test_tensors_keep_missing_values() -> None:
    X = torch.tensor([[1.0, float("nan")], [2.0, 3.0]])
    form = InputFormat.infer(X)
    assert torch.equal(torch.isnan(form.decode(form.encode(X))), torch.isnan(X))


def test_missing_values_where_fit_saw_none_are_refused() -> None:
    form = InputFormat.infer(np.array([[1.0, 2.0], [np.nan, 3.0]]))
    with pytest.raises(InputError, match=r"explain: X has 1 NaN.*rows 0 and columns 'x1'.*that had NaN in fit"):
        form.encode(np.array([[1.0, np.nan]]))
    with pytest.raises(InputError, match=r"1 infinite.*columns 'x0'"):
        form.encode(np.array([[np.inf, 1.0]]))
    whole = InputFormat.infer(pd.DataFrame({"a": ["u", "v"]}))
    with pytest.raises(InputError, match=r"1 missing value in column 'a' \(rows 1\), but fit saw none there"):
        whole.encode(pd.DataFrame({"a": ["u", None]}))


def test_a_column_that_is_always_missing_can_be_encoded() -> None:
    given = pd.DataFrame({"a": [np.nan, np.nan], "b": pd.Series([None, None], dtype=object), "c": [1.0, 2.0]})
    form = InputFormat.infer(given)
    pd.testing.assert_frame_equal(form.decode(form.encode(given)), given)


@pytest.mark.parametrize("name", ["marginal", "conditional"])
def test_draws_are_missing_as_often_as_the_data(name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    X[rng.random(1000) < 0.3, 1] = np.nan
    form = InputFormat.infer(X)
    Z = form.encode(X)
    removal = make_removal(name, Z, form, rng)
    drawn = form.decode(removal.apply(Z, np.zeros(Z.shape, dtype=bool), rng))
    assert abs(np.isnan(drawn[:, 1]).mean() - 0.3) < 0.05
    assert np.isfinite(drawn[:, [0, 2]]).all()


def test_near_rows_are_alike_in_what_is_missing() -> None:
    rng = np.random.default_rng(0)
    missing = rng.random(1000) < 0.5
    X = np.column_stack([np.where(missing, np.nan, rng.normal(size=1000)), np.where(missing, 10.0, -10.0)])
    form = InputFormat.infer(X)
    Z = form.encode(X)
    keep = np.tile(form.column_feature == 0, (len(Z), 1))
    drawn = form.decode(make_removal("conditional", Z, form, rng).apply(Z, keep, rng))
    assert (drawn[missing, 1] == 10.0).all()
    assert (drawn[~missing, 1] == -10.0).mean() > 0.99


def test_mean_and_zero_are_there_and_nan_is_not() -> None:
    given = frame()
    form = InputFormat.infer(given, may_miss=True)
    Z = form.encode(given)
    nothing = np.zeros((1, form.n_columns), dtype=bool)
    rng = np.random.default_rng(0)
    mean = form.decode(make_removal("mean", Z, form).apply(Z[:1], nothing, rng))
    assert mean["income"][0] == 3.0
    assert not mean.isna().any(axis=None)
    absent = form.decode(make_removal("nan", Z, form).apply(Z[:1], nothing, rng))
    assert absent.isna().all(axis=None)
    assert {c: str(absent[c].dtype) for c in ("children", "town", "since")} == {
        c: str(given[c].dtype) for c in ("children", "town", "since")
    }


def test_nan_is_refused_where_a_feature_can_never_be_missing() -> None:
    given = frame()
    form = InputFormat.infer(given)
    with pytest.raises(InputError, match=r"removal='nan' makes features missing, but 'whole' cannot be"):
        make_removal("nan", form.encode(given), form)


def test_a_reference_may_be_missing() -> None:
    X = np.array([[1.0, 2.0], [np.nan, 3.0], [2.0, 2.0]])
    form = InputFormat.infer(X)
    removal = make_removal([np.nan, 5.0], form.encode(X), form)
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(form.decode(removal.references(1, rng)), [[np.nan, 5.0]])
    with pytest.raises(InputError, match="removal: X has 1 NaN"):
        make_removal([0.0, np.nan], form.encode(X), form)


def test_damaged_formats_are_refused() -> None:
    saved = InputFormat.infer(np.array([[1.0, np.nan], [2.0, 1.0]])).to_json()
    with pytest.raises(LoadError, match="3 fills for 2 features"):
        InputFormat.from_json({**saved, "fills": [None, 1.0, 2.0]})
