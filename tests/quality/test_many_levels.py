"""A category with thousands of levels, of which a hidden property decides: one column per level is enough."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sointer import SOInter

pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")


def shops(n_levels: int, n_rows: int):
    """Rows with a shop each, some shops rare; and a model that looks up whether a shop is to be trusted."""
    rng = np.random.default_rng(0)
    names = np.array([f"shop {i:05d}" for i in range(n_levels)], dtype=object)
    is_good = dict(zip(names, rng.random(n_levels) < 0.5, strict=True))
    drawn = rng.choice(n_levels, n_rows, p=rng.dirichlet(np.full(n_levels, 2.0)))
    X = pd.DataFrame({"shop": names[drawn], **{f"x{i}": rng.normal(size=n_rows) for i in range(6)}})

    def model(X):
        good = X["shop"].map(is_good).to_numpy(bool)
        sold = np.where(good, X["x0"] > 0, X["x1"] > 0)
        return pd.DataFrame({"trusted": good, "sold": sold, "warm": X["x2"] + X["x3"] > 0}).astype(int)

    return X, model


@pytest.mark.slow
@pytest.mark.parametrize(("n_levels", "n_rows"), [(300, 3000), (2000, 20_000)])
def test_the_level_is_found_where_its_property_decides(n_levels, n_rows):
    X, model = shops(n_levels, n_rows)
    train, held_out = X[:-500], X[-500:]
    held_out = held_out[held_out["shop"].isin(set(train["shop"]))]
    explainer = SOInter(model, query_budget=5000, random_state=0, verbose=False).fit(train)
    good = model(held_out)["trusted"] == 1
    truth = {
        "trusted": [{"shop"}] * len(held_out),
        "sold": [{"shop", "x0" if own else "x1"} for own in good],
        "warm": [{"x2", "x3"}] * len(held_out),
    }
    for target, wanted in truth.items():
        explanation = explainer.explain(held_out, target)
        names = np.array(explanation.feature_names)
        found = [set(names[row]) for row in explanation.needed_mask]
        assert np.mean([one == own for one, own in zip(found, wanted, strict=True)]) > 0.95, target
        assert explanation.verify().fidelity > 0.95
