"""One model with a class, a probability and a number, on data with gaps of every kind, through every layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from sointer import SOInter, load
from sointer.apps.cli.inputs import read_to_explain
from sointer.apps.serve.rows import read_rows
from tests.support.quick import TAUGHT, quick_fit

N = 240
RNG = np.random.default_rng(0)
DAY = pd.Timestamp("2024-01-01")
FRAME = pd.DataFrame(
    {
        "a": RNG.normal(size=N),
        "b": pd.array(RNG.integers(0, 5, N), dtype="Int64"),
        "c": RNG.choice(["u", "v"], N).astype(object),
        "t": DAY + pd.to_timedelta(RNG.integers(0, 99, N), unit="D"),
    }
)
for step, (name, gap) in enumerate({"a": np.nan, "b": pd.NA, "c": None, "t": pd.NaT}.items()):
    FRAME.loc[:: 5 + step, name] = gap


def numbers(X: pd.DataFrame) -> pd.DataFrame:
    c = X["c"].map({"u": 0.0, "v": 1.0}).astype(float)
    return pd.DataFrame({"a": X["a"], "b": X["b"].astype(float), "c": c, "t": (X["t"] - DAY).dt.days})


FOREST = HistGradientBoostingClassifier(max_iter=8, random_state=0)
FOREST.fit(numbers(FRAME), FRAME["a"].isna() | (FRAME["a"] > 0))


def mixed(X: pd.DataFrame) -> pd.DataFrame:
    """A class by c, a probability by a, a number by b and t; all by whether these are missing, too."""
    seen = numbers(X)
    return pd.DataFrame(
        {
            "group": X["c"].map({"u": "first", "v": "second"}).fillna("none"),
            "risk": FOREST.predict_proba(seen)[:, 1],
            "price": 100 + 20 * seen["b"].fillna(-1) + seen["t"].fillna(0) / 10,
        }
    )


@pytest.fixture(scope="module")
def explainer() -> SOInter:
    return quick_fit(mixed, FRAME, **TAUGHT, output_kind={"risk": "probability"})


def test_every_output_keeps_its_kind_and_its_value(explainer: SOInter, tmp_path: Path) -> None:
    assert explainer.outputs_.kinds == ("categorical", "probability", "continuous")
    said = mixed(FRAME[:12])
    explanation = explainer.explain(FRAME[:12], "all")
    frame = explanation.to_frame()
    first = frame[frame["rank"] == 1].pivot(index="sample", columns="target", values="value")
    assert first["group"].tolist() == said["group"].tolist()
    for name in ("risk", "price"):
        np.testing.assert_allclose(first[name].astype(float), said[name], rtol=1e-6)
    tops = frame[frame["rank"] == 1].groupby("target")["feature"].agg(lambda names: names.mode()[0])
    assert tops.to_dict() == {"group": "c", "risk": "a", "price": "b"}
    explainer.save(tmp_path / "why")
    again = load(tmp_path / "why", mixed).explain(FRAME[:12], "all")
    np.testing.assert_array_equal(again.scores, explanation.scores)
    np.testing.assert_array_equal(again.value, explanation.value)


def test_labels_are_verified_by_agreement_and_numbers_by_error(explainer: SOInter) -> None:
    group, risk, price = (explainer.explain(FRAME[:6], name, k=4).verify(n_draws=3) for name in explainer.output_names_)
    for verification in (group, risk, price):  # everything is kept, so nothing may change
        assert (verification.agreement == 1).all()
        assert np.allclose(verification.difference, 0)
        assert ("standard deviations" in repr(verification)) == (verification is price)
    moved = explainer.explain(FRAME[:6], "price", k=1).verify(n_draws=20)
    assert 0 < np.abs(moved.difference).max() < 100  # in standard deviations or in its unit, but a distance
    assert f"off by {moved.difference.mean():.2g} standard deviations" in repr(moved)
    assert explainer.explain(FRAME[:6], "all").verify(n_draws=2).tolerance is None


def test_gaps_are_the_same_in_files_and_requests(explainer: SOInter, tmp_path: Path) -> None:
    straight = explainer.explain(FRAME[:12], "all")
    FRAME[:12].assign(id=np.arange(12)).to_csv(tmp_path / "rows.csv", index=False)
    records: list[dict[str, Any]] = [
        {name: None if pd.isna(cell) else str(cell) if name == "t" else cell for name, cell in row.items()}
        for row in FRAME[:12].assign(id=np.arange(12)).to_dict("records")
    ]
    for rows in (read_to_explain(tmp_path / "rows.csv", explainer), read_rows(explainer, records, 100)):
        found = explainer.explain(rows, "all")
        np.testing.assert_array_equal(found.value, straight.value)
        np.testing.assert_array_equal(found.scores, straight.scores)


def test_the_report_shows_each_output_in_its_own_way(explainer: SOInter, tmp_path: Path) -> None:
    page = explainer.report(FRAME[:30], tmp_path / "page.html", verify=60, paths=False).read_text()
    assert "error" in page
    assert "below the median" in page  # of the number only
    assert "first" in page
    assert "NaT" not in page
