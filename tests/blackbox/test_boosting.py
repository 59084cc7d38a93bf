"""xgboost, lightgbm and catboost as they are: estimators and Boosters, categories, missing values, several outputs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from quick import TAUGHT, quick_fit
from sointer import SOInter
from sointer.blackbox.adapters import as_black_box
from sointer.errors import BlackBoxError, InputError

xgb = pytest.importorskip("xgboost")
lgb = pytest.importorskip("lightgbm")
cb = pytest.importorskip("catboost")

TWO = "binary:logistic"


@pytest.fixture(scope="module")
def X() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    made = pd.DataFrame(rng.normal(size=(600, 4)), columns=list("abcd"))
    made["g"] = pd.Categorical(rng.choice(["u", "v", "w"], 600))
    made.loc[rng.random(600) < 0.2, "b"] = np.nan
    return made


@pytest.fixture(scope="module")
def Y(X: pd.DataFrame) -> np.ndarray:
    return np.column_stack([X["a"] > 0, X["g"] == "u", X["b"].isna()]).astype(int)


def train(name: str, X: pd.DataFrame, Y: np.ndarray) -> object:
    trained = {"nthread": 1, "objective": TWO}
    lgb_settings = {"objective": "binary", "verbose": -1, "num_threads": 1}
    makers = {
        "xgb estimator": lambda: xgb.XGBClassifier(n_estimators=15, n_jobs=1, enable_categorical=True).fit(X, Y),
        "xgb Booster": lambda: xgb.train(trained, xgb.DMatrix(X, label=Y, enable_categorical=True), num_boost_round=15),
        "lgb estimator": lambda: lgb.LGBMClassifier(n_estimators=15, verbose=-1, n_jobs=1).fit(X, Y[:, 0]),
        "lgb Booster": lambda: lgb.train(lgb_settings, lgb.Dataset(X, label=Y[:, 0]), num_boost_round=15),
        "catboost": lambda: cb.CatBoostClassifier(
            iterations=30,
            loss_function="Logloss",
            verbose=0,
            thread_count=1,
            cat_features=["g"],
            allow_writing_files=False,
        ).fit(X, Y[:, 0]),
    }
    return makers[name]()


@pytest.mark.parametrize("name", ["xgb estimator", "xgb Booster", "lgb estimator", "lgb Booster", "catboost"])
def test_what_decides_is_found(name: str, X: pd.DataFrame, Y: np.ndarray) -> None:
    model = train(name, X, Y)
    explainer = quick_fit(model, X, **TAUGHT)
    assert set(explainer.outputs_.kinds) == {"probability"}
    truth = {"y0": "a", "y1": "g", "y2": "b"}
    for target in range(explainer.n_outputs_):
        (found,) = explainer.explain(X[:40], target=target).summary(1).values()
        assert found[0][0] == truth[f"y{target}"], name


def test_one_tree_for_several_outputs(X: pd.DataFrame, Y: np.ndarray) -> None:
    numbers, two = X[["a", "c"]], np.column_stack([X["a"] * 2, X["c"] * 3])
    forest = xgb.XGBRegressor(n_estimators=15, n_jobs=1, multi_strategy="multi_output_tree").fit(numbers, two)
    explainer = quick_fit(forest, numbers, **TAUGHT)
    for target, name in enumerate(["a", "c"]):
        (found,) = explainer.explain(numbers[:30], target=target).summary(1).values()
        assert found[0][0] == name


def test_a_booster_gets_its_names_for_arrays(X: pd.DataFrame, Y: np.ndarray) -> None:
    numbers = X[["a", "c"]]
    booster = xgb.train({"nthread": 1, "objective": TWO}, xgb.DMatrix(numbers, label=Y[:, 0]), num_boost_round=5)
    box = as_black_box(booster)
    np.testing.assert_array_equal(box(numbers.to_numpy()), box(numbers))
    np.testing.assert_array_equal(box(torch.tensor(numbers.to_numpy())), box(numbers))
    with pytest.raises((InputError, BlackBoxError), match="trained on 2 features"):
        box(numbers.to_numpy()[:, :1])
    with pytest.raises(InputError, match="method='predict'"):
        as_black_box(booster, method="predict")


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (
            lambda y: {"out": y, "aux": y},
            r"a dict with the keys 'out', 'aux'.*lambda X: model\(X\)\['out'\]",
        ),
        (lambda y: (y, y), r"a tuple of 2 arrays of shapes \(16, 8, 8\).*model\(X\)\[0\]"),
    ],
)
def test_a_module_with_several_heads_is_told_how_to_wrap(returned, words: str) -> None:
    class Heads(torch.nn.Module):
        def forward(self, x):
            return returned((x[:, 0] > 0.5).float())

    images = np.random.default_rng(0).random((40, 1, 8, 8))
    with pytest.raises(BlackBoxError, match=words):
        SOInter(Heads(), random_state=0).fit(images)
