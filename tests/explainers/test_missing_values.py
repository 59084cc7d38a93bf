"""What depends on whether a feature is missing is found, end to end; models that take no missing values are refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier

import sointer
from quick import TAUGHT, quick_fit
from sointer import BlackBox, SOInter
from sointer.errors import InputError
from sointer.explainers.baselines import KernelShap

COLUMNS = ["a", "b", "switch", "gone", "e", "f"]


@pytest.fixture(scope="module")
def data() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 6))
    X[rng.random(X.shape) < 0.2] = np.nan
    return pd.DataFrame(X, columns=COLUMNS)


def model(X: pd.DataFrame) -> pd.DataFrame:
    """`chosen` looks at a or b as `switch` is missing or not; `absent` only at whether `gone` is."""
    chosen = np.where(X["switch"].isna(), X["a"] > 0, X["b"] > 0)
    return pd.DataFrame({"chosen": chosen, "absent": X["gone"].isna(), "e": X["e"].fillna(0) > 0.3})


@pytest.fixture(scope="module", params=["auto", "conditional", "nan"])
def explainer(request: pytest.FixtureRequest, data: pd.DataFrame) -> SOInter:
    return SOInter(model, removal=request.param, **TAUGHT | {"k": "auto", "query_budget": 2500}).fit(data)


def test_the_feature_whose_absence_decides_is_found(explainer: SOInter, data: pd.DataFrame) -> None:
    rows = data[:100]
    found = explainer.explain(rows, target="absent")
    can_differ = np.ones(100, dtype=bool) if explainer.removal_.is_random else rows["gone"].notna().to_numpy()
    assert (found.mask[can_differ] == (np.array(COLUMNS) == "gone")).mean() > 0.98
    assert found.verify().fidelity > 0.95


def test_a_switch_by_absence_is_a_locality(explainer: SOInter, data: pd.DataFrame) -> None:
    rows = data[:100].reset_index(drop=True)
    found = explainer.explain(rows, target="chosen")
    missing = rows["switch"].isna().to_numpy()
    a, b = found.mask[:, 0], found.mask[:, 1]
    can_a, can_b = (np.ones(100, bool) if explainer.removal_.is_random else rows[c].notna().to_numpy() for c in "ab")
    assert (a == (missing & can_a)).mean() > 0.9
    assert (b == (~missing & can_b)).mean() > 0.9
    assert "switch = missing" in repr(explainer.localities("chosen"))


def test_saved_and_loaded_explains_the_same(explainer: SOInter, data: pd.DataFrame, tmp_path) -> None:
    explainer.save(tmp_path / "why")
    again = sointer.load(tmp_path / "why", model)
    before, after = (one.explain(data[:50], target="chosen") for one in (explainer, again))
    np.testing.assert_array_equal(before.selected, after.selected)
    np.testing.assert_array_equal(before.scores, after.scores)


def test_boosting_that_splits_on_absence() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1500, 5))
    X[rng.random(1500) < 0.4, 2] = np.nan
    X[rng.random(1500) < 0.3, 4] = np.nan
    Y = np.column_stack([np.isnan(X[:, 2]), X[:, 0] > 0]).astype(int)
    boosted = MultiOutputClassifier(HistGradientBoostingClassifier(max_iter=30)).fit(X, Y)
    fitted = quick_fit(boosted, X, **TAUGHT)
    assert (fitted.explain(X[:100], target=0).selected[:, 0] == 2).all()
    assert (fitted.explain(X[:100], target=1).selected[:, 0] == 0).all()


@pytest.mark.parametrize("removal", ["auto", "nan"])
def test_a_model_that_refuses_missing_values_is_not_queried(data: pd.DataFrame, removal: str) -> None:
    whole = data.fillna(0.0)
    box = BlackBox(LogisticRegression().fit(whole, whole["a"] > 0).predict)
    given = whole if removal == "nan" else data
    what = "removal='nan' makes features missing" if removal == "nan" else "X has missing values"
    with pytest.raises(InputError, match=rf"fit: {what} .*does not take them: ValueError.*NaN"):
        SOInter(box, removal=removal, random_state=0).fit(given)
    assert box.n_queries == 0


def test_a_model_that_returns_nan_for_nan_is_refused(data: pd.DataFrame) -> None:
    with pytest.raises(InputError, match=r"X has missing values .*NaN or infinite values.*impute them"):
        SOInter(lambda X: X[["a"]].to_numpy() * 2, random_state=0).fit(data)


def test_a_model_that_fails_anyway_says_so_itself(data: pd.DataFrame) -> None:
    def broken(X: pd.DataFrame) -> np.ndarray:
        raise RuntimeError("no connection")

    with pytest.raises(sointer.errors.BlackBoxError, match="no connection"):
        SOInter(broken, random_state=0).fit(data)


def test_baselines_take_missing_values(data: pd.DataFrame) -> None:
    shap = KernelShap(model, k=1, random_state=0, n_samples=200).fit(data)
    found = shap.explain(data[:10], target="absent")
    assert (found.selected[:, 0] == COLUMNS.index("gone")).all()
    with pytest.raises(InputError, match="protocol='tuned'"):
        KernelShap(model, k=1, random_state=0, protocol="package").fit(data).explain(data[:1], target="absent")
