"""Tables with texts: planted reasons, what is kept and shown, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sointer
from quick import few_steps
from sealing import seal
from sointer import EnergyConfig, SOInter, TrainingConfig
from sointer.errors import FarInputWarning, InputError, LoadError, TextColumnWarning
from sointer.explainers.baselines import Lime, Random, ShapleySampling
from sointer.metrics import evaluate, leakage
from tickets import OUTPUTS, desk, smallest, tickets

pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
TICKETS, NEW = tickets(1000, 0), tickets(300, 1)
QUICK = {
    "query_budget": 200,
    "random_state": 0,
    "text_columns": ["text"],
    "energy": EnergyConfig(hidden=(8,)),
    "training": TrainingConfig(n_epochs=1, n_rounds=1),
}


@pytest.fixture(scope="module")
def explainer() -> SOInter:
    return SOInter(desk, query_budget=8000, text_columns=["text"], random_state=0).fit(TICKETS)


def quick(model, X=TICKETS[:200], **settings) -> SOInter:
    with few_steps():
        return SOInter(model, **(QUICK | settings)).fit(X)


def yes(target: str, n: int = 60) -> pd.DataFrame:
    return NEW[desk(NEW)[target].to_numpy() == 1][:n]


def units_of(explanation, row: int) -> set[str]:
    return {explanation.feature_names[unit] for unit in explanation.selected[row] if unit >= 0}


@pytest.mark.parametrize("target", OUTPUTS)
def test_the_smallest_sufficient_sets_are_found(explainer, target) -> None:
    X = yes(target)
    explanation = explainer.explain(X, target)
    found = [units_of(explanation, row) in smallest(X.iloc[row], target) for row in range(len(X))]
    assert len(found) >= 15
    assert np.mean(found) >= 0.9
    assert explanation.verify().confirmed.mean() >= 0.9


def test_what_is_selected_keeps_a_no_as_well(explainer) -> None:
    """An urgent ticket is one of many: with everything removed, the model predicts yes in a third of draws."""
    X = NEW[desk(NEW)["urgent"].to_numpy() == 0][:40]
    explanation = explainer.explain(X, "urgent")
    assert np.mean([units_of(explanation, row) == {"age"} for row in range(len(X))]) >= 0.9
    assert explanation.verify().confirmed.all()


def test_the_energy_is_judged_by_what_the_model_saw(explainer) -> None:
    """Columns drawn from other rows decide what the model predicts; that they are not known is no error."""
    assert explainer.held_out_skill_ > 0.95


def test_what_the_model_gets() -> None:
    seen: list[pd.DataFrame] = []

    def model(X: pd.DataFrame) -> pd.DataFrame:
        seen.append(X)
        return desk(X)

    quick(model)
    asked = pd.concat(seen)
    assert (asked.dtypes == TICKETS.dtypes).all()
    assert list(asked) == list(TICKETS)
    assert set(asked["plan"]) == {"free", "pro", "team"}
    assert set(asked["age"]) <= set(TICKETS["age"][:200])
    assert "" in set(asked["text"])
    whole = asked.merge(TICKETS[:200].drop_duplicates(), how="inner")
    assert 40 < len(whole) < len(asked) / 2  # the others have words deleted, or values of other rows


def test_values_are_shown_as_people_expect(explainer) -> None:
    X = yes("escalate", 5)
    explanation = explainer.explain(X, "escalate")
    frame = explanation.to_frame()
    assert set(frame.loc[frame["feature"] == "plan", "feature_value"]) == {"pro"}
    assert set(frame.loc[frame["feature"] == "text: refund", "feature_value"]) == {1}
    assert set(frame.index) == set(X.index)
    page = explanation.to_html()
    assert "plan = pro" in page
    assert ">refund</mark>" in page.lower()
    axes = explanation.plot(row=0)
    drawn = " ".join(text.get_text() for text in axes.texts)
    assert "also selected: plan = pro" in drawn
    assert {patch.get_gid() for patch in axes.patches} == units_of(explanation, 0) - {"plan", "age"}
    labels = [label.get_text() for label in explanation.plot(row=0, kind="effects").get_yticklabels()]
    assert "plan = pro" in labels
    assert "text: refund" in labels


def test_saved_and_loaded(explainer, tmp_path: Path) -> None:
    X = NEW[:20]
    before = explainer.explain(X, "all")
    explainer.save(tmp_path / "why")
    loaded = sointer.load(tmp_path / "why", desk)
    after = loaded.explain(X, "all")
    np.testing.assert_array_equal(after.scores, before.scores)
    np.testing.assert_array_equal(after.selected, before.selected)
    np.testing.assert_array_equal(after.verify().agreement, before.verify().agreement)
    assert loaded.text_columns == ["text"]
    assert loaded._digest() == explainer._digest()
    np.testing.assert_array_equal(loaded.distance(X), explainer.distance(X))


@pytest.mark.parametrize("rows", ["synthetic", "none"])
def test_saved_without_training_rows(explainer, tmp_path: Path, rows) -> None:
    explainer.save(tmp_path / rows, rows=rows)
    loaded = sointer.load(tmp_path / rows, desk)
    explanation = loaded.explain(yes("refund", 5), "refund")
    np.testing.assert_array_equal(explanation.selected, explainer.explain(yes("refund", 5), "refund").selected)
    if rows == "none":
        with pytest.raises(InputError, match="rows='none'"):
            explanation.verify()
    else:
        assert explanation.verify().confirmed.all()
        kept = loaded.background_.rows.values
        same = {tuple(row) for row in kept} & {tuple(row) for row in explainer.background_.rows.values}
        assert len(same) < 0.05 * len(kept)


DAMAGE = [
    lambda data: data["input_format"].update(parts=[]),
    lambda data: data["input_format"].update(table=None),
    lambda data: data["input_format"]["edges"][0].reverse(),
    lambda data: data["input_format"]["edges"].pop(),
    lambda data: data["input_format"]["columns"].pop(),
    lambda data: data["input_format"]["columns"][1].update(label="years"),
    lambda data: data["input_format"]["columns"][0].pop("is_text"),
    lambda data: data["input_format"]["parts"][0]["feature_names"].pop(0),
    lambda data: data["removal"].update(type="text"),
    lambda data: data["removal"].update(n_columns=3),
    lambda data: data["background"].update(shape=[10**9, 3]),
    lambda data: data["probe"].update(texts=["[]"] * data["probe"]["n"]),
    lambda data: data["probe"].update(texts=["a text"] * data["probe"]["n"]),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_refused(explainer, tmp_path: Path, damage) -> None:
    explainer.save(tmp_path / "why")
    file = tmp_path / "why" / "explainer.json"
    data = json.loads(file.read_text())
    damage(data)
    seal(file, data)
    with pytest.raises(LoadError):
        sointer.load(tmp_path / "why", desk)


def test_records(explainer, tmp_path: Path) -> None:
    X = yes("escalate", 3)
    explanation = explainer.explain(X, "escalate")
    record = json.loads(json.dumps(explanation.record(explanation.verify())[1]))
    assert {one["unit"]: one["value"] for one in record["selected"]}["plan"] == "pro"
    assert "plan" in record["text"]
    explainer.save(tmp_path / "why")
    loaded = sointer.load(tmp_path / "why", desk)
    check = sointer.verify_record(record, loaded, X)
    assert check.holds
    assert check.same_model
    with pytest.raises(InputError, match="none of which is that of the record"):
        sointer.verify_record(record, loaded, X.assign(age=X["age"] + 1))


def test_samples_unlike_the_training_data_are_marked(explainer) -> None:
    assert explainer.distance(NEW).max() < 2
    assert (explainer.distance(NEW[:5].assign(age=900)) > 10).all()
    with pytest.warns(FarInputWarning):
        explainer.explain(NEW[:5].assign(age=900), "urgent")


def test_the_report(explainer, tmp_path: Path) -> None:
    page = explainer.report(NEW[:30], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "is deleted if it is a word, and else takes the value of another sample" in page
    assert "text: refund" in page


def test_what_there_is_not(explainer) -> None:
    explanation = explainer.explain(NEW[:3], "urgent")
    with pytest.raises(InputError, match="paths between the words of texts are not distinguished"):
        explanation.paths()
    with pytest.raises(InputError, match="leakage cannot be measured for tables with text columns"):
        leakage(explanation)
    with pytest.raises(InputError, match="Columns beside texts are always drawn from other rows"):
        explanation.verify(removal="mean")


def test_evaluation_and_baselines(explainer) -> None:
    scores = {one.name: one for one in evaluate(explainer, NEW, n_rows=10, n_samples=40, against=["Random"]).methods}
    assert scores["SOInter"].fidelity.mean > scores["Random"].fidelity.mean
    for method in (Lime, ShapleySampling):
        baseline = method(desk, k=2, n_samples=200, random_state=0).fit(TICKETS[:200])
        explanation = baseline.explain(yes("refund", 4), "refund")
        found = [units_of(explanation, row) == {"text: refund", "plan"} for row in range(4)]
        assert np.mean(found) >= 0.5, method
    assert Random(desk, k=2, random_state=0).fit(TICKETS[:200]).explain(NEW[:2], "urgent").selected.shape == (2, 2)


def test_refining(explainer) -> None:
    assert explainer.explain(yes("escalate", 4), "escalate", k=3, refine=20).verify().confirmed.all()


def test_text_columns_are_found_and_said() -> None:
    with pytest.warns(TextColumnWarning, match=r"column 'text' read as text.*text_columns=\['text'\]"):
        found = quick(desk, text_columns=None)
    assert found.input_format_.text_labels == ["text"]
    with pytest.raises(InputError, match=r"an id or free text.*text_columns=\['text'\]"):
        quick(desk, text_columns=[])


def test_wrong_settings_are_refused_before_any_query() -> None:
    box = sointer.BlackBox(desk)
    for settings, message in (
        ({"feature_names": list("abcd")}, "feature_names cannot be given with text columns"),
        ({"removal": "mean"}, "Columns beside texts are always drawn from other rows"),
        ({"preset": "paper", "energy": None, "training": None}, "preset='paper' is not for texts"),
        ({"groups": "letters"}, "groups='letters': of texts, expected 'sentences'"),
    ):
        with pytest.raises(InputError, match=message):
            quick(box, **settings)
    with pytest.raises(InputError, match=r"'text' has 1 missing texts"):
        quick(box, TICKETS[:200].assign(text=[None, *TICKETS["text"][1:200]]))
    with pytest.raises(InputError, match=r"text_columns=.'text'. is for DataFrames, but X is a numpy array"):
        quick(box, np.zeros((20, 2)))
    assert box.n_queries == 0


def test_missing_numbers_reach_the_model_or_are_refused() -> None:
    X = TICKETS[:200].assign(age=TICKETS["age"][:200].where(TICKETS["age"][:200] > 25))
    seen = []

    def takes(X: pd.DataFrame) -> pd.DataFrame:
        seen.append(X["age"].isna().any())
        return desk(X)

    quick(takes, X)
    assert any(seen)

    def refuses(X: pd.DataFrame) -> pd.DataFrame:
        if X["age"].isna().any():
            raise ValueError("no NaN please")
        return desk(X)

    with pytest.raises(InputError, match=r"X has missing values.*the model does not take them.*no NaN please"):
        quick(refuses, X)


def test_several_texts_groups_and_frames_of_texts_alone() -> None:
    X = TICKETS[:200].assign(subject=TICKETS["text"][200:400].to_numpy())
    both = quick(
        lambda X: desk(X).assign(late=X["subject"].str.contains("late").astype(int)),
        X,
        text_columns=["subject", "text"],
    )
    explanation = both.explain(X[:3], "late")
    document = explanation.source.texts[0]
    assert document == f"{X['text'][0]}\n{X['subject'][0]}"
    assert explanation.verify().n_queries > 0
    grouped = quick(desk, groups={"who": ["age", "plan"], "haste": ["text: urgent", "text: asap"]})
    assert {"who", "haste"} <= set(grouped.explain(NEW[:2], "urgent").feature_names)
    alone = quick(lambda X: X["text"].str.contains("refund").astype(int).to_frame("said"), X[["text"]])
    assert alone.explain(X[["text"]][:3]).verify().n_draws is None


def test_the_same_seed_gives_the_same_bits_and_a_checkpoint_resumes(tmp_path: Path) -> None:
    first, second = quick(desk), quick(desk)
    np.testing.assert_array_equal(first.explain(NEW[:5], "all").scores, second.explain(NEW[:5], "all").scores)
    with few_steps():
        SOInter(desk, **QUICK).fit(TICKETS[:200], checkpoint=tmp_path / "kept")
        again = SOInter(desk, **QUICK).fit(TICKETS[:200], checkpoint=tmp_path / "kept")
    assert again.n_queries_ == 0
    np.testing.assert_array_equal(again.explain(NEW[:5], "all").scores, first.explain(NEW[:5], "all").scores)
