"""What a report shows is what the explanations say: unpacked from its page and compared with them."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline

pytest.importorskip("jinja2")

import sointer
from quick import TAUGHT, few_path_steps, quick_fit
from sointer import SOInter
from sointer.errors import InputError
from sointer.explainers.baselines.base import Random
from sointer.paths import Localities, Locality
from sointer.viz.report.content import (
    EffectSummary,
    ReportContent,
    confirmed_share,
)
from sointer.viz.report.page import CLEAR_COUPLING, FULL_COLOUR, coupling_map, partners, render_report
from sointer.viz.report.samples import PartialEffect, points_per_effect, samples_that_fit, samples_to_verify
from sointer.viz.report.text import _percent

HOSTILE = "<script>alert(1)</script>"
NAMES = ["warm", "wet", "odd", HOSTILE]
TYPES = {"u1": "u1", "<u2": "<u2", "<u4": "<u4", "i1": "i1", "<i2": "<i2", "<f4": "<f4"}


def weather(X: Any) -> np.ndarray:
    """Two outputs, one that depends on both, and one that is seldom 1."""
    X = np.asarray(X, dtype=float)
    warm, wet = X[:, 0] > 0, X[:, 1] > 0
    return np.column_stack([warm, wet, warm ^ wet, (X[:, 2] > 1.2) & warm]).astype(int)


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(300, 6))


@pytest.fixture(scope="module")
def explainer(X: np.ndarray) -> SOInter:
    """Removal is not random, so verify() gives the same whenever it is called."""
    names = ["x0", "x1", HOSTILE, "x3", "x4", "x5"]
    changes = {"query_budget": 600, "output_names": NAMES, "feature_names": names, "removal": "zero"}
    return quick_fit(weather, X, **TAUGHT | changes)


@pytest.fixture(scope="module")
def page(explainer: SOInter, X: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "why.html"
    with few_path_steps():
        return explainer.report(X[:60], path, verify=True, paths=1, title=f"Why {HOSTILE}?")


def unpacked(path: Path) -> dict[str, Any]:
    """The page's data, with every sample's block unpacked by a reading of its own."""
    [text] = re.findall(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    assert "<" not in text
    data = json.loads(text)
    kinds = {
        "features": data["types"]["feature"],
        "words": data["types"]["word"],
        "positions": data["types"]["position"],
        "steps": "i1",
        "largest": "<f4",
        "values": data["types"]["value"],
        "agreement": "u1",
        "difference": "<f4",
        "numbers": "<f4",
        "present": data["types"]["feature"],
        "needed": "u1",
        "effectSteps": "<i2",
        "largestEffect": "<f4",
        "base": "<f4",
        "total": "<f4",
        "more": "<u2",
        "locality": "u1",
    }
    data["rows"] = [
        {
            field: None if packed is None else np.frombuffer(base64.b64decode(packed), dtype=TYPES[kinds[field]])
            for field, packed in zip(data["fields"], block, strict=True)
        }
        for block in data["blocks"]
    ]
    return data


def chosen(data: dict[str, Any], target: int, sample: int) -> list[tuple[str, str, float]]:
    """Name, value and score of what the page shows, best first."""
    row, k = data["rows"][sample], data["k"]
    none = np.iinfo(row["positions"].dtype).max
    result = []
    for i in range(target * k, (target + 1) * k):
        place = row["positions"][i]
        if place != none:
            name, value = data["features"][row["features"][place]], data["words"][row["words"][place]]
            result.append((name, value, float(row["steps"][i]) / 127 * float(row["largest"][target])))
    return result


# --- it shows what explanations say ---------------------------------------------------------------------------


def test_every_explanation_on_the_page_is_that_of_explain_and_verify(
    explainer: SOInter, X: np.ndarray, page: Path
) -> None:
    data, shown = unpacked(page), X[:60]
    assert data["targets"] == NAMES
    assert data["samples"] == [str(i) for i in range(60)]
    for target, name in enumerate(NAMES):
        explanation = explainer.explain(shown, name, predicted=weather(shown))
        agreement = explanation.verify().agreement
        for sample in range(60):
            units = [unit for unit in explanation.selected[sample] if unit >= 0]
            found = chosen(data, target, sample)
            assert [one[0] for one in found] == [explanation.feature_names[unit] for unit in units]
            assert [one[1] for one in found] == [f"{shown[sample, unit]:.4g}" for unit in units]
            scores = explanation.scores[sample, units]
            np.testing.assert_allclose([one[2] for one in found], scores, atol=np.abs(scores).max() / 250)
            row = data["rows"][sample]
            assert data["values"][row["values"][target]] == str(explanation.value[sample])
            assert explanation.value[sample] == weather(shown)[sample, target]
            assert row["agreement"][target] == 250 * agreement[sample]


def test_effects_needs_and_localities_on_the_page_are_those_of_explain(
    explainer: SOInter, X: np.ndarray, page: Path
) -> None:
    data, shown, k = unpacked(page), X[:60], 2
    for target, name in enumerate(NAMES):
        explanation = explainer.explain(shown, name, predicted=weather(shown))
        assert explanation.effects is not None
        assert explanation.base_value is not None
        assert explanation.needed is not None
        assert explanation.locality is not None
        found = explainer.localities(name)
        on_page = data["localities"][target]
        assert on_page["decided"] == found.decided
        assert [one["where"] for one in on_page["localities"]] == [leaf.where for leaf in found]
        for one, leaf in zip(on_page["localities"], found, strict=True):
            assert one["share"] == pytest.approx(leaf.share, abs=1e-4)
            assert [data["features"][feature] for feature, _ in one["features"]] == list(leaf.features)
            assert [relevance for _, relevance in one["features"]] == pytest.approx(leaf.relevance, rel=1e-2)
        agreement, skill = explainer.output_agreement_[target], explainer.output_skill_[target]
        wanted = [agreement, None if np.isnan(skill) else pytest.approx(skill, abs=1e-4)]
        assert data["quality"][target] == [pytest.approx(wanted[0], abs=1e-4), wanted[1]]
        for sample, row in enumerate(data["rows"]):
            units = explanation.selected[sample]
            there = units >= 0
            span = slice(target * k, (target + 1) * k)
            np.testing.assert_array_equal(row["needed"][span][there], explanation.needed[sample, units[there]])
            effects = explanation.effects[sample, units[there]]
            pushes = row["effectSteps"][span][there] / 32767 * row["largestEffect"][target]
            np.testing.assert_allclose(pushes, effects, atol=1e-4)
            assert row["base"][target] == pytest.approx(explanation.base_value[sample], abs=1e-5)
            reached = explanation.base_value[sample] + explanation.effects[sample].sum()
            assert row["total"][target] == pytest.approx(reached, abs=1e-4)
            assert found[row["locality"][target]].number == explanation.locality[sample]


def test_what_only_k_asked_for_is_marked_and_not_counted(explainer: SOInter, X: np.ndarray, tmp_path: Path) -> None:
    path = explainer.report(X[:40], tmp_path / "r.html", k=5, verify=False, paths=False, targets=["warm"])
    data = unpacked(path)
    explanation = explainer.explain(X[:40], "warm", k=5)
    assert explanation.needed is not None
    assert [len(chosen(data, 0, i)) for i in range(40)] == [5] * 40
    needed = {data["features"][f]: n for value in data["summaries"][0]["values"] for f, n in value["features"]}
    assert set(needed) == {
        explanation.feature_names[unit] for unit in np.flatnonzero(explanation.needed_mask.any(axis=0))
    }
    assert len(needed) < 5, "one feature decides it"
    assert "Hollow bars are of features that are not needed" in path.read_text(encoding="utf-8")


def test_sizes_that_are_left_open_show_what_each_sample_needs(
    explainer: SOInter, X: np.ndarray, tmp_path: Path
) -> None:
    path = explainer.report(X[:40], tmp_path / "r.html", k="auto", verify=False, paths=False)
    data = unpacked(path)
    for target, name in enumerate(NAMES):
        explanation = explainer.explain(X[:40], name, k="auto")
        assert [len(chosen(data, target, i)) for i in range(40)] == explanation.n_selected.tolist()
    page = path.read_text(encoding="utf-8")
    assert "those few of 6 features that decide" in page
    assert "Hollow bars" not in page


def test_sums_over_samples_are_those_of_summary_and_verify(explainer: SOInter, X: np.ndarray, page: Path) -> None:
    data, shown = unpacked(page), X[:60]
    for target, name in enumerate(NAMES):
        explanation, summary = explainer.explain(shown, name, predicted=weather(shown)), data["summaries"][target]
        confirmed = explanation.verify().confirmed
        assert summary["confirmed"][3:] == [60, confirmed.sum()]
        assert summary["confirmed"][0] == pytest.approx(confirmed.mean(), abs=1e-4)
        assert summary["confirmed"][1] <= summary["confirmed"][0] <= summary["confirmed"][2]
        assert set(summary["failures"]) == set(np.flatnonzero(~confirmed)[:30].tolist())
        counts = [value["n"] for value in summary["values"]]
        assert counts == sorted(counts), "the rarest first"
        for value in summary["values"]:
            label = int(data["values"][value["value"]])
            rows = explanation.value == label
            assert value["n"] == rows.sum()
            assert value["confirmed"][3:] == [rows.sum(), confirmed[rows].sum()]
            expected = dict(explanation.summary(10, value=label)[name])
            assert {data["features"][f]: n / value["n"] for f, n in value["features"]} == pytest.approx(expected)
            assert value["examples"], "there is something to look at"
            assert rows[value["examples"]].all()


def test_couplings_and_paths_are_those_of_the_explainer(explainer: SOInter, X: np.ndarray, page: Path) -> None:
    data = unpacked(page)
    order = data["map"]["outputs"]
    wanted = explainer.output_interactions_[np.ix_(order, order)]
    wanted = np.where(wanted >= CLEAR_COUPLING, wanted, 0)
    np.testing.assert_allclose(data["map"]["strength"], wanted, rtol=1e-2, atol=1e-6)
    [(target, found)] = data["paths"].items()
    strongest = np.argmax(explainer.output_interactions_.max(axis=1))
    assert int(target) == strongest, "the target that depends most on others is followed"
    said = weather(X[:60])[:, strongest]
    rows = samples_to_verify(said, 60, np.random.default_rng(0))
    paths = explainer.explain(X[rows], int(target), predicted=weather(X[rows])).paths()
    routes = {route.feature: route for route in paths.summary(6)[NAMES[int(target)]]}
    assert len(found["paths"]) >= 3
    for path in found["paths"]:
        route = routes[data["features"][path["feature"]]]
        assert [path["total"], path["direct"]] == pytest.approx([route.total, route.direct], abs=1e-3)
        assert path["n"] >= 10, "few samples say nothing"
        assert 0 <= path["margin"] < 1


def test_partial_effects_are_those_of_explain_and_say_which_way(explainer: SOInter, X: np.ndarray, page: Path) -> None:
    data, shown = unpacked(page), X[:60]
    for target, name in enumerate(NAMES):
        explanation = explainer.explain(shown, name, predicted=weather(shown))
        towards_one = np.where(explanation.value == 1, 1, -1)[:, None] * explanation.effects
        assert data["partial"][target], name
        for feature, found in data["partial"][target].items():
            unit = explanation.feature_names.index(data["features"][int(feature)])
            order = np.argsort(shown[:, unit], kind="stable")
            np.testing.assert_allclose(found["values"], shown[order, unit], rtol=1e-2, atol=1e-12)
            np.testing.assert_allclose(found["effects"], towards_one[order, unit], rtol=1e-2, atol=1e-12)
            assert found["size"] == pytest.approx(np.abs(towards_one[:, unit]).mean(), rel=1e-2)


def test_partial_effects_of_missing_values_dates_years_and_many_levels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n, since = 400, pd.Timestamp("2020-03-01")
    frame = pd.DataFrame(
        {
            "gap": np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
            "day": since + pd.to_timedelta(rng.permutation(n), unit="D"),
            "year": rng.integers(2018, 2026, n),
            "shop": [f"shop {i % 40}" for i in range(n)],
            "member": rng.random(n) < 0.5,
        }
    )

    def model(rows: pd.DataFrame) -> np.ndarray:
        even = rows["shop"].str.split().str[1].astype(int) % 2
        late = (rows["day"] - since).dt.days / n
        parts = [
            3 * rows["gap"].isna() - 1,
            6 * late - 3,
            rows["year"] - 2021.5,
            4 * even - 2,
            4.0 * rows["member"] - 2,
        ]
        return np.asarray(1 / (1 + np.exp(-np.column_stack(parts))))

    explainer = quick_fit(model, frame, **TAUGHT | {"k": 1, "query_budget": 1500, "output_names": list("abcde")})
    shown = frame[:100]
    data = unpacked(explainer.report(shown, tmp_path / "r.html", paths=False, verify=False))
    found = {name: data["partial"][i][str(data["features"].index(name))] for i, name in enumerate(frame)}
    explanation = explainer.explain(shown, "a", predicted=model(shown))
    effects, is_missing = explanation.effects[:, 0], shown["gap"].isna().to_numpy()
    assert found["gap"]["meanMissing"] == pytest.approx(effects[is_missing].mean(), rel=1e-2)
    assert 10 <= len(found["gap"]["missing"]) <= is_missing.sum()
    assert set(np.round(found["gap"]["missing"], 2)) <= set(np.round(effects[is_missing].astype(float), 2))
    assert (found["day"]["direction"], found["day"]["categories"]) == (1, []), "dates have an order"
    assert found["day"]["ends"] == [str(shown["day"].min().date()), str(shown["day"].max().date())]
    assert sorted(set(found["year"]["values"])) == list(range(2018, 2026)), "no year is rounded to another"
    assert (len(found["shop"]["categories"]), found["shop"]["nValues"]) == (12, 40), "it is said that there are more"
    assert found["member"]["categories"] == ["False", "True"]
    assert "nValues" not in found["member"]


def test_agreement_is_also_that_on_the_samples_of_the_report(explainer: SOInter, tmp_path: Path) -> None:
    new = np.random.default_rng(9).normal(size=(80, 6))
    text = explainer.report(new, tmp_path / "r.html", paths=False, verify=False).read_text(encoding="utf-8")
    expected = np.column_stack([explainer.explain(new, name, query=False).value for name in NAMES])
    share = float((expected == weather(new)).mean())
    assert 0.7 < share < 0.98, "not what held-out queries say"
    assert f"of held-out outputs predicted correctly; {100 * share:.0f} % for samples of this report" in text
    unknown = explainer.report(new, tmp_path / "r.html", paths=False, verify=False, predicted=weather(new))
    assert f"; {100 * share:.0f} % for samples of this report" in unknown.read_text(encoding="utf-8")


def test_nothing_is_rounded_to_100_percent() -> None:
    shares = (1.0, 0.9997, 0.9994, 0.986, 0.5, 0.004, 0.0)
    assert list(map(_percent, shares)) == ["100 %", "> 99.9 %", "99.9 %", "98.6 %", "50 %", "0.4 %", "0 %"]


def test_of_two_labels_the_upper_one_is_named_unless_it_is_obvious(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))

    def model(rows: np.ndarray) -> pd.DataFrame:
        state = np.where(rows[:, 0] > 0, "go", "halt")
        three = np.array(["low", "mid", "high"])[np.digitize(rows[:, 1], [-1, 1])]
        return pd.DataFrame({"state": state, "true": rows[:, 0] > 0, "three": three, "number": rows[:, 2] * 9.0})

    explainer = quick_fit(model, X, **TAUGHT)
    data = unpacked(explainer.report(X[:50], tmp_path / "r.html", paths=False, verify=False))
    assert data["upper"] == ["halt", None, None, None]
    assert data["partial"][0][str(data["features"].index("x0"))]["direction"] == -1


def test_a_page_is_written_under_the_name_of_a_page(explainer: SOInter, X: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"why.pdf: it is a page of HTML, expected a name that ends in .html"):
        explainer.report(X[:3], tmp_path / "why.pdf")
    assert explainer.report(X[:3], tmp_path / "why.htm", paths=False, verify=False).exists()


def test_directions_of_a_linear_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))

    def model(rows: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-np.column_stack([2 * rows[:, 0] - 2 * rows[:, 1], np.abs(3 * rows[:, 2]) - 2])))

    explainer = quick_fit(model, X, **TAUGHT | {"k": "auto", "query_budget": 2000})
    data = unpacked(explainer.report(X[:100], tmp_path / "r.html", paths=False))
    directions = [{data["features"][int(f)]: one["direction"] for f, one in of.items()} for of in data["partial"]]
    assert directions == [{"x0": 1, "x1": -1}, {"x2": 0}]


def test_numbers_are_judged_by_their_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    explainer = quick_fit(lambda rows: rows[:, :2] @ [[3.0, 1.0], [0.3, 1.0]], X, **TAUGHT)
    path = explainer.report(X[:60], tmp_path / "r.html", k=1, paths=False, verify=True)
    data = unpacked(path)
    for target, name in enumerate(["y0", "y1"]):
        check = explainer.explain(X[:60], name, k=1).verify()
        assert data["summaries"][target]["error"] == pytest.approx(check.difference.mean(), abs=1e-3)
        assert data["summaries"][target]["refuted"] == check.refuted.sum()
    assert "of numbers predicted from the selected features alone" in path.read_text(encoding="utf-8")
    assert "explanations confirmed" not in path.read_text(encoding="utf-8")


def test_what_users_give_is_escaped_and_nothing_is_fetched(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert HOSTILE not in text
    assert f"Why {HOSTILE}?".replace("<", "&lt;").replace(">", "&gt;") in text
    assert "default-src 'none'" in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|<link|@import|url\(|<iframe|\bsrc=", text)


def test_the_same_report_twice_is_the_same_file(
    explainer: SOInter, X: np.ndarray, page: Path, tmp_path: Path, global_random_state_is_left_alone: None
) -> None:
    with few_path_steps():
        again = explainer.report(X[:60], tmp_path / "again.html", verify=True, paths=1, title=f"Why {HOSTILE}?")
    assert again.read_bytes() == page.read_bytes()


# --- what it asks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verify", "n_queried"), [(False, 0), (True, 4 * 300), (100, 4 * 25), (3, 0), (None, None)], ids=str
)
def test_the_black_box_is_asked_no_more_than_allowed(
    explainer: SOInter, X: np.ndarray, tmp_path: Path, verify: Any, n_queried: int | None
) -> None:
    assert explainer.black_box_ is not None
    assert 500 < explainer.n_queries_ <= 600
    before = explainer.black_box_.n_queries
    path = explainer.report(X, tmp_path / "r.html", verify=verify, paths=False)
    used = explainer.black_box_.n_queries - before
    if n_queried is None:  # as many as fit needed, as far as they are the same for each of four targets
        n_queried = 4 * (explainer.n_queries_ // 4)
    assert used == 300 + n_queried
    data = unpacked(path)
    queried = np.array([row["agreement"] for row in data["rows"]]) != 255
    assert queried.sum() == used - 300
    page = path.read_text(encoding="utf-8")
    assert ("<small>the model was not queried</small>" in page) == (n_queried == 0)
    assert (f"queried to confirm {queried.sum():,} of 1,200 explanations" in page) == (queried.sum() < 1200)


def test_what_the_model_said_need_not_be_asked(explainer: SOInter, X: np.ndarray, tmp_path: Path) -> None:
    assert explainer.black_box_ is not None
    before = explainer.black_box_.n_queries
    opposite = 1 - weather(X[:20])
    path = explainer.report(X[:20], tmp_path / "r.html", predicted=opposite, verify=False, paths=False)
    assert explainer.black_box_.n_queries == before
    data = unpacked(path)
    shown_text = [[data["values"][code] for code in row["values"]] for row in data["rows"]]
    assert shown_text == opposite.astype(str).tolist()


def test_a_loaded_explainer_without_its_model_says_so(explainer: SOInter, X: np.ndarray, tmp_path: Path) -> None:
    explainer.save(tmp_path / "saved")
    loaded = sointer.load(tmp_path / "saved")
    path = loaded.report(X[:20], tmp_path / "r.html", paths=False)
    assert "The model was not queried" in path.read_text(encoding="utf-8")
    data = unpacked(path)
    assert all((row["agreement"] == 255).all() for row in data["rows"])
    expected = loaded.explain(X[:20], "odd").value
    assert [data["values"][row["values"][2]] for row in data["rows"]] == [str(value) for value in expected]


def test_a_budget_that_is_used_up_is_no_error(explainer: SOInter, X: np.ndarray, tmp_path: Path) -> None:
    explainer.save(tmp_path / "saved")
    box = sointer.BlackBox(weather, query_budget=30)
    loaded = sointer.load(tmp_path / "saved", black_box=box)
    queried = unpacked(loaded.report(X[:20], tmp_path / "r.html", paths=False))
    assert sum((row["agreement"] != 255).sum() for row in queried["rows"]) == 8, "ten are left, for four targets"
    assert box.remaining == 2
    page = loaded.report(X[:20], tmp_path / "r.html", paths=False).read_text(encoding="utf-8")
    assert "The model was not queried" in page


def test_half_of_the_queries_go_to_unusual_values() -> None:
    rng = np.random.default_rng(0)
    codes = np.zeros(100, dtype=int)
    codes[[3, 50, 70]] = 1
    assert len(samples_to_verify(codes, 4, rng)) == 4
    assert codes[samples_to_verify(codes, 4, rng)].sum() == 2
    assert codes[samples_to_verify(codes, 20, rng)].sum() == 3, "all there are"
    codes[:98] = 1
    assert len(samples_to_verify(codes, 50, rng)) == 50, "where few are usual or unusual, the others fill up"
    np.testing.assert_array_equal(samples_to_verify(codes, 100, rng), np.arange(100))


def test_shares_do_not_lean_towards_what_was_asked_more_often() -> None:
    """90 of 100 are usual and always confirmed, 10 are unusual and never; 10 of each kind are queried."""
    codes = np.r_[np.zeros(90), np.ones(10)][None]
    queried = np.zeros((1, 100), dtype=bool)
    queried[0, :10] = queried[0, 90:] = True
    share = confirmed_share(queried, codes == 0, codes)
    assert share is not None
    assert share.share == pytest.approx(0.9)
    assert share[3:] == (20, 10)
    assert share.low < 0.9 < share.high
    assert confirmed_share(np.zeros((1, 100), dtype=bool), codes == 0, codes) is None


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    for truth, n in ((0.5, 20), (0.9, 30), (0.98, 40)):
        held = 0
        for _ in range(400):
            confirmed = rng.random((1, n)) < truth
            share = confirmed_share(np.ones((1, n), dtype=bool), confirmed, np.zeros((1, n)))
            assert share is not None
            held += share.low <= truth <= share.high
        assert held >= 0.92 * 400


def test_samples_that_stand_or_fall_for_all_targets_are_no_independent_cases() -> None:
    confirmed = np.repeat(np.random.default_rng(0).random((1, 50)) < 0.7, 20, axis=0)
    one = confirmed_share(np.ones((1, 50), dtype=bool), confirmed[:1], np.zeros((1, 50)))
    many = confirmed_share(np.ones((20, 50), dtype=bool), confirmed, np.zeros((20, 50)))
    assert one is not None
    assert many is not None
    assert many.high - many.low > 0.9 * (one.high - one.low)


# --- all kinds of data ---------------------------------------------------------------------------------------


def test_texts_are_shown_and_words_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vocabulary = ["ball", "goal", "vote", "law", "tea", "cup", "sun", "rain"]
    texts = [" ".join(rng.choice(vocabulary, 6)) + f" {HOSTILE}" for _ in range(200)]
    texts[3] = "goal\u2028goal Goal </script> tea"
    Y = np.array([["goal" in text, "vote" in text] for text in texts]).astype(int)
    model = make_pipeline(CountVectorizer(), MultiOutputClassifier(LogisticRegression())).fit(texts, Y)
    made = Random(model, k=3, output_names=["sport", "politics"], random_state=0).fit(texts)
    path = made.report(texts[:30], tmp_path / "r.html", paths=False)
    data = unpacked(path)
    assert data["unitNoun"] == "word"
    assert data["texts"] == texts[:30]
    assert "deleted from the text" in path.read_text(encoding="utf-8")
    assert {(name, value) for name, value, _ in chosen(data, 0, 3)} == {("goal", "3"), ("script", "1"), ("tea", "1")}
    words = {data["features"][number] for number in data["rows"][3]["present"]}
    assert words == {"goal", "script", "tea"}


def test_frames_keep_their_labels_categories_and_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 60, 150),
            "city": rng.choice(["Oslo", "Rome"], 150),
            "a": rng.normal(size=150),
            "b": 1.5,
        },
        index=[f"person {i}" for i in range(150)],
    )
    frame["b"] = rng.normal(size=150)

    def model(rows: Any) -> pd.DataFrame:
        return pd.DataFrame({"old": rows["age"] > 40, "north": rows["city"] == "Oslo", "up": rows["a"] + rows["b"] > 0})

    made = Random(model, k=1, groups={"ab": ["a", "b"]}, random_state=0).fit(frame)
    path = made.report(frame[:20], tmp_path / "r.html", paths=False, targets=["north", "up"], verify=False)
    data = unpacked(path)
    assert data["targets"] == ["north", "up"]
    assert data["samples"] == [f"person {i}" for i in range(20)]
    for sample in range(20):
        row = frame.iloc[sample]
        values = {"age": str(row["age"]), "city": row["city"], "ab": f"a={row['a']:.4g}, b={row['b']:.4g}"}
        for target in range(2):
            [(name, value, _)] = chosen(data, target, sample)
            assert value == values[name]
    named = made.report(frame[:2], tmp_path / "n.html", sample_names=["x", HOSTILE], paths=False, verify=False)
    assert unpacked(named)["samples"] == ["x", HOSTILE]


@pytest.mark.parametrize("kind", ["continuous", "probability"])
def test_numbers_behind_the_answers_are_kept(X: np.ndarray, tmp_path: Path, kind: str) -> None:
    def model(rows: np.ndarray) -> np.ndarray:
        numbers = np.column_stack([rows[:, 0], 2 * rows[:, 1] - 1])
        return numbers if kind == "continuous" else 1 / (1 + np.exp(-numbers))

    made = Random(model, k=1, output_kind=kind, random_state=0).fit(X)
    data = unpacked(made.report(X[:25], tmp_path / "r.html", verify=False, paths=False))
    said = np.array([row["numbers"] for row in data["rows"]])
    np.testing.assert_allclose(said, model(X[:25]), atol=1e-4)
    codes = np.array([row["values"] for row in data["rows"]])
    high = said > (made.outputs_.center if kind == "continuous" else 0.5)
    np.testing.assert_array_equal(codes, high)
    names = ["below the median", "above the median"] if kind == "continuous" else ["0", "1"]
    assert data["values"] == names


def test_other_explainers_have_reports_too(X: np.ndarray, tmp_path: Path) -> None:
    made = Random(weather, k=2, random_state=0).fit(X)
    path = made.report(X[:80], tmp_path / "r.html", verify=True)
    data = unpacked(path)
    assert (data["map"], data["paths"]) == (None, {})
    assert data["summaries"][0]["confirmed"][0] < 0.9, "features chosen at random do not suffice"
    page = path.read_text(encoding="utf-8")
    assert re.search(
        r"confirms clearly fewer than 80 % of the explanations of values other than the most common one: .*y2", page
    )


def test_good_explanations_are_not_warned_about(page: Path) -> None:
    assert "surely confirms fewer" not in page.read_text(encoding="utf-8")


# --- how much it holds ---------------------------------------------------------------------------------------


def large(n_targets: int, n_samples: int, k: int, n_units: int, *, words: bool) -> ReportContent:
    rng = np.random.default_rng(0)
    own = [rng.choice(n_units, min(n_units, 190 if words else n_units), replace=False) for _ in range(n_samples)]
    selected = np.array([[rng.choice(own[i], k) for i in range(n_samples)] for _ in range(n_targets)])
    return ReportContent(
        title="large",
        lead="",
        cards=[],
        notes=[],
        warnings=[],
        samples=[str(i) for i in range(n_samples)],
        targets=[f"target {i}" for i in range(n_targets)],
        units=[f"some word {i}" for i in range(n_units)],
        unit_noun="feature",
        kind="binary" if words else "continuous",
        values=["0", "1"],
        codes=rng.integers(0, 2, (n_targets, n_samples)),
        numbers=None if words else rng.normal(size=(n_targets, n_samples)),
        selected=selected,
        scores=np.abs(rng.normal(size=selected.shape)),
        agreement=np.where(rng.random((n_targets, n_samples)) < 0.9, 1.0, 0.5),
        difference=np.zeros((n_targets, n_samples)),
        unit_values=[{int(u): "1" if words else f"{rng.normal():.4g}" for u in units} for units in own],
        present=own if words else None,
        outputs=[f"target {i}" for i in range(n_targets)],
        interactions=rng.random((n_targets, n_targets)),
        **({} if words else _known(rng, n_targets, n_samples, k, n_units)),
    )


def _known(rng: np.random.Generator, n_targets: int, n_samples: int, k: int, n_units: int) -> dict[str, Any]:
    """All that a report on a table can say besides."""
    each, all_of_them = (n_targets, n_samples), (n_targets, n_samples, k)
    place = Locality(0, ("x > 1",), 0.5, tuple(f"some word {unit}" for unit in range(5)), (0.25,) * 5)
    return {
        "needed": rng.random(all_of_them) < 0.5,
        "effects": EffectSummary(rng.normal(size=all_of_them), rng.normal(size=each), rng.normal(size=each)),
        "n_more": rng.integers(0, 9, each),
        "localities": [Localities("any", True, (place, place), ())] * n_targets,
        "locality": rng.integers(0, 2, each),
        "quality": [(0.9, 0.8)] * n_targets,
        "partial": [
            {
                unit: PartialEffect(rng.normal(size=n_points), rng.normal(size=n_points))
                for unit in range(min(8, n_units))
            }
            for n_points in [points_per_effect(n_targets)] * n_targets
        ],
    }


def test_159_targets_of_500_samples_take_less_than_5_megabytes() -> None:
    assert samples_that_fit(159, 10, 1836, np.full(500, 190), counts=True) >= 500
    assert len(render_report(large(159, 500, 10, 1836, words=True)).encode()) < 5_000_000


@pytest.mark.parametrize(("n_targets", "k", "n_units"), [(20, 30, 1000), (3, 10, 40), (300, 5, 60)])
def test_as_many_samples_as_are_said_to_fit_do(n_targets: int, k: int, n_units: int) -> None:
    n = min(800, samples_that_fit(n_targets, k, n_units, np.full(100, n_units), numbers=True, effects=True))
    assert n >= 100
    assert len(render_report(large(n_targets, n, k, n_units, words=False)).encode()) < 5_000_000


def test_of_many_rows_some_are_drawn_in_their_order(explainer: SOInter, X: np.ndarray, tmp_path: Path) -> None:
    path = explainer.report(X, tmp_path / "r.html", n_samples=20, verify=False, paths=False)
    rows = [int(name) for name in unpacked(path)["samples"]]
    assert len(set(rows)) == 20
    assert rows == sorted(rows)
    assert max(rows) > 100, "not just the first"
    assert "20 samples of 300" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("threshold", "is_said"), [(1.3, True), (0.1, False)])
def test_of_rare_labels_it_is_said_how_many_are_confirmed(threshold: float, is_said: bool, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(500, 4))
    explainer = quick_fit(lambda X: (X[:, :2] > threshold).astype(int), X, **TAUGHT | {"query_budget": 1500})
    page = explainer.report(X[:200], tmp_path / "r.html", paths=False).read_text("utf-8")
    assert ("where the value is not the most common one" in page) == is_said


def test_three_labels_have_pictures_of_their_own(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(500, 4))

    def sizes(X: np.ndarray) -> np.ndarray:
        return np.array(["low", "middle", "high"])[np.digitize(X[:, :1], [-0.5, 0.5])]

    explainer = quick_fit(sizes, X, **TAUGHT | {"query_budget": 1500})
    data = unpacked(explainer.report(X[:200], tmp_path / "r.html", verify=False, paths=False))
    assert data["partial"] == [{}], "there is no larger label"
    (found,) = data["byLabel"]
    explained = sizes(X[:200])[:, 0].tolist()
    assert {one["label"]: one["n"] for one in found} == {label: explained.count(label) for label in set(explained)}
    for one in found:
        own = one["partial"][str(data["features"].index("x0"))]
        inside = {"low": (-9, -0.5), "middle": (-0.5, 0.5), "high": (0.5, 9)}[one["label"]]
        assert inside[0] <= min(own["values"]) <= max(own["values"]) <= inside[1], "samples of this label alone"
        assert np.mean(own["effects"]) > 0.1, "what decides a label speaks for it"


def test_the_map_puts_coupled_outputs_side_by_side_and_lists_the_strongest_pairs() -> None:
    strength = np.full((60, 60), 0.1)
    for i, j, value in ((3, 50, 5.0), (10, 40, 4.0), (20, 21, 3.0)):
        strength[i, j] = strength[j, i] = value
    np.fill_diagonal(strength, 0.0)
    found = coupling_map(strength)
    assert found is not None
    assert found["pairs"][:3] == [[3, 50, 5.0], [10, 40, 4.0], [20, 21, 3.0]]
    assert len(found["outputs"]) == 40
    places = {output: place for place, output in enumerate(found["outputs"])}
    assert all(abs(places[i] - places[j]) == 1 for i, j in ((3, 50), (10, 40), (20, 21)))
    assert (np.array(found["strength"]) != 0).sum() == 6, "what independent outputs have as well is not shown"
    assert found["darkest"] == 5.0
    assert coupling_map(np.full((3, 3), 0.6) - 0.6 * np.eye(3))["darkest"] == FULL_COLOUR
    assert partners(strength, 3) == [[50, 5.0]]
    assert partners(strength, 4) == []
    assert coupling_map(np.full((4, 4), 0.4)) is None
    assert coupling_map(np.zeros((4, 4))) is None
    assert coupling_map(np.zeros((1, 1))) is None


# --- wrong input ---------------------------------------------------------------------------------------------

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("unknown target", {"targets": ["wram"]}, "Did you mean 'warm'"),
    ("no target", {"targets": []}, "targets is empty"),
    ("no samples", {"n_samples": 0}, "n_samples must be an int of at least 1"),
    ("verify in words", {"verify": "yes"}, "verify must be True, False or a whole number"),
    ("negative", {"paths": -1}, "paths must be True, False or a whole number"),
    ("too few names", {"sample_names": ["a"]}, "sample_names must hold 10 names, got 1"),
    ("names twice", {"sample_names": ["a"] * 10}, "sample_names must be unique"),
    ("k", {"k": 7}, "k must be"),
    ("short predictions", {"predicted": np.zeros((9, 4))}, "predicted must be what the model predicts for X, 10 rows"),
]


@pytest.mark.parametrize(("changes", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_wrong_arguments_are_refused_before_the_model_is_asked(
    explainer: SOInter, X: np.ndarray, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    assert explainer.black_box_ is not None
    before = explainer.black_box_.n_queries
    with pytest.raises(InputError, match=message):
        explainer.report(X[:10], tmp_path / "r.html", **changes)
    assert explainer.black_box_.n_queries == before
    assert not (tmp_path / "r.html").exists()


def test_places_that_cannot_be_written_are_refused_first(explainer: SOInter, X: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        explainer.report(X[:10], tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        explainer.report(X[:10], tmp_path / "nowhere" / "r.html")


def test_targets_that_fit_was_not_asked_for_are_refused(X: np.ndarray, tmp_path: Path) -> None:
    made = Random(weather, k=2, output_names=NAMES, random_state=0).fit(X, targets=["wet"])
    with pytest.raises(InputError, match=r"'odd' were not among the targets given to fit; choose among 'wet'"):
        made.report(X[:10], tmp_path / "r.html", targets=["wet", "odd"])
    assert unpacked(made.report(X[:10], tmp_path / "r.html", paths=False))["targets"] == ["wet"]


def test_a_model_without_a_name_gets_none(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    explainer = quick_fit(lambda X: X > 0, X)
    page = explainer.report(X[:5], tmp_path / "why.html", verify=False, paths=False).read_text()
    assert "lambda" not in page
    assert "3 outputs of the model, explained for 5 samples" in page
    assert explainer.explain(X[:1], 0).record()[0]["model"]["name"] is None
