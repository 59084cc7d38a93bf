"""Columns other than those that a model was trained on are refused by name, before they are explained as others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from sointer.blackbox.adapters import as_black_box
from sointer.blackbox.adapters.sklearn import trained_columns
from sointer.errors import BlackBoxError, InputError

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(80, 3)), columns=["a", "b b", "c"])
Y = (X[["a", "c"]] > 0).astype(int)
LACKS = "X lacks 1 of the 3 columns that the {} was trained on: 'c'; it has 'a', 'b b'. Add or rename them"
ORDER = r"X has its columns in another order than the {} was trained on.*Give fit .*X\[\['a', 'b b', 'c'\]\]"


def fitted(name: str) -> Any:
    if name == "sklearn":
        return RandomForestClassifier(3, random_state=0).fit(X, Y)
    if name == "xgboost":
        xgb = pytest.importorskip("xgboost")
        return xgb.train({"nthread": 1}, xgb.DMatrix(X, Y["a"]), 2)
    if name == "catboost":
        cat = pytest.importorskip("catboost")
        return cat.CatBoostClassifier(iterations=3, verbose=0, allow_writing_files=False).fit(X, Y["a"])
    lgb = pytest.importorskip("lightgbm")
    if name == "lightgbm.Booster":
        return lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, Y["a"]), 2)
    classifier = lgb.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1)
    return MultiOutputClassifier(classifier).fit(X, Y) if name == "several" else classifier.fit(X, Y["a"])


@pytest.mark.parametrize("name", ["sklearn", "xgboost", "catboost", "lightgbm", "lightgbm.Booster", "several"])
def test_what_lacks_is_named(name: str) -> None:
    model = fitted(name)
    box = as_black_box(model)
    assert len(box(X)) == len(X)
    with pytest.raises(InputError, match=LACKS.format(type(model).__name__)):
        box(X[["a", "b b"]])


@pytest.mark.parametrize("name", ["sklearn", "xgboost", "lightgbm", "lightgbm.Booster", "several"])
def test_another_order_is_refused_though_lightgbm_would_take_it(name: str) -> None:
    model = fitted(name)
    with pytest.raises(InputError, match=ORDER.format(type(model).__name__)):
        as_black_box(model)(X[["c", "b b", "a"]])


def test_other_columns_are_named() -> None:
    with pytest.raises(InputError, match=r"columns that the RandomForestClassifier was not trained on: 'id'.*X\[\['a"):
        as_black_box(fitted("sklearn"))(X.assign(id=1))


def test_names_of_ones_own_are_read_by_place_where_the_model_does() -> None:
    other = X.rename(columns={"a": "A"})
    np.testing.assert_array_equal(as_black_box(fitted("lightgbm"))(other), as_black_box(fitted("lightgbm"))(X))


def test_a_model_that_chooses_its_columns_may_get_more_in_any_order_and_fails_in_its_own_words() -> None:
    chosen = ColumnTransformer([("two", "passthrough", ["a", "c"])])
    model = make_pipeline(chosen, DecisionTreeClassifier(random_state=0)).fit(X, Y)
    box = as_black_box(model)
    np.testing.assert_array_equal(box(X[["c", "b b", "a"]].assign(id=1)), box(X))
    with pytest.raises(BlackBoxError, match="could not convert string"):
        as_black_box(model)(X[["c", "b b", "a"]].assign(a="x"))


def test_names_that_nobody_gave_are_none() -> None:
    assert trained_columns(RandomForestClassifier(2).fit(X.to_numpy(), Y)) is None
    assert trained_columns(lambda X: X) is None
    lgb = pytest.importorskip("lightgbm")
    assert trained_columns(lgb.LGBMClassifier(n_estimators=2, n_jobs=1, verbose=-1).fit(X.to_numpy(), Y["a"])) is None


def test_a_catboost_model_that_is_not_fitted() -> None:
    cat = pytest.importorskip("catboost")
    with pytest.raises(InputError, match="a CatBoostClassifier that is not fitted"):
        as_black_box(cat.CatBoostClassifier())
