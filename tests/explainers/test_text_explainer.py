"""Explainers of texts through functions of strings: planted words, hard inputs, what is kept and shown."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sointer
from quick import few_steps
from sointer import EnergyConfig, SOInter, TrainingConfig
from sointer.blackbox.box import BlackBox
from sointer.errors import CheckpointError, FarInputWarning, InputError, SointerError
from sointer.explainers.baselines import KernelShap, Lime, ShapleySampling
from sointer.metrics import evaluate
from sointer.zoo import PlantedTexts

PROBLEM = PlantedTexts(60, random_state=5)
TEXTS = PROBLEM.sample(500, random_state=50)
NEW = PROBLEM.sample(60, random_state=51)
QUICK = {
    "query_budget": 200,
    "random_state": 0,
    "energy": EnergyConfig(hidden=(8,)),
    "training": TrainingConfig(n_epochs=1, n_rounds=1),
}


@pytest.fixture(scope="module")
def explainer() -> SOInter:
    names, config = list(PROBLEM.output_names), EnergyConfig(hidden=(32,))
    return SOInter(PROBLEM, query_budget=5000, output_names=names, energy=config, random_state=0).fit(TEXTS)


def quick(model, texts=TEXTS[:200], **settings) -> SOInter:
    with warnings.catch_warnings(), few_steps():
        warnings.simplefilter("ignore")
        return SOInter(model, **(QUICK | settings)).fit(texts)


def words_of(explanation, row) -> frozenset[str]:
    return frozenset(explanation.feature_names[unit] for unit in explanation.selected[row] if unit >= 0)


@pytest.mark.parametrize("target", PROBLEM.output_names)
def test_the_smallest_sufficient_words_are_found(explainer, target) -> None:
    number = PROBLEM.output_names.index(target)
    yes = [text for text, label in zip(NEW, PROBLEM(NEW)[:, number], strict=True) if label]
    explanation = explainer.explain(yes, target)
    found = [words_of(explanation, row) in PROBLEM.smallest(text, number) for row, text in enumerate(yes)]
    assert np.mean(found) >= 0.9
    assert explanation.verify().fidelity >= 0.9


def test_what_the_model_gets_are_the_texts_with_words_deleted() -> None:
    sent: list[str] = []

    def predict(texts):
        assert isinstance(texts, list)
        sent.extend(texts)
        return PROBLEM(texts)

    explainer = quick(predict, k=2)
    assert "" in sent
    assert set(sent) & set(TEXTS)
    assert any(text not in TEXTS and text != "" for text in sent)
    n_fit, check = len(sent), explainer.explain(NEW[:5], 0)
    n_explained = len(sent)
    assert sent[n_fit:n_explained] == NEW[:5]
    check.verify()
    for text, row in zip(sent[n_explained:], range(5), strict=False):
        assert {word.strip(",.").lower() for word in text.split()} - {""} <= words_of(check, row) | {""}


def test_a_long_text_an_empty_one_and_one_in_another_script(explainer) -> None:
    trigger = PROBLEM.triggers[0]
    filler = [word for word in PROBLEM.words if word not in PROBLEM.triggers]
    long = " ".join([filler[i % len(filler)] for i in range(4_999)] + [trigger])
    with pytest.warns(FarInputWarning):
        explanation = explainer.explain([long, "", "Ωμέγα καὶ ἄλφα", trigger], "any")
    assert explanation.value.tolist() == [1, 0, 0, 1]
    assert [words_of(explanation, row) for row in range(4)] == [{trigger}, set(), set(), {trigger}]
    assert explanation.verify().fidelity == 1


def test_saved_and_loaded_with_and_without_the_model(explainer, tmp_path) -> None:
    explainer.save(tmp_path / "why")
    assert not any(text.encode() in file.read_bytes() for file in (tmp_path / "why").iterdir() for text in TEXTS[:50])
    before = explainer.explain(NEW, "order")
    after = sointer.load(tmp_path / "why", PROBLEM).explain(NEW, "order")
    np.testing.assert_array_equal(before.selected, after.selected)
    np.testing.assert_array_equal(before.effects, after.effects)
    alone = sointer.load(tmp_path / "why").explain(NEW, "order", predicted=PROBLEM(NEW))
    np.testing.assert_array_equal(before.selected, alone.selected)
    content = json.loads((tmp_path / "why" / "explainer.json").read_text())
    content["input_format"]["by"] = "letters"
    (tmp_path / "why" / "explainer.json").write_text(json.dumps(content))
    with pytest.raises(sointer.errors.LoadError):
        sointer.load(tmp_path / "why")


def test_long_texts_are_saved_without_the_probe(tmp_path) -> None:
    """Of millions of characters, it made the file so large that it could not be loaded."""
    fitted = quick(lambda texts: [["rain" in text] for text in texts], ["rain sun " * 40_000, *TEXTS[:50]])
    fitted.save(tmp_path / "why")
    probe = sointer.load(tmp_path / "why").probe_
    assert probe.rows is None
    assert probe.summary == fitted.probe_.summary


def test_a_text_is_explained_alike_whatever_is_around_it(explainer) -> None:
    whole, alone = explainer.explain(NEW, "count"), explainer.explain(NEW[7:8], "count")
    assert words_of(whole, 7) == words_of(alone, 0)
    np.testing.assert_array_equal(whole.effects[7], alone.effects[0])


def test_marks_stand_at_the_offsets_of_words(explainer, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    t = PROBLEM.triggers[0]
    text = f"🙂 {t.upper()}, x{t} <b>{t}</b>"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explanation = explainer.explain([text], "any", k=1)
    spans = [(a, b) for a, b, unit in explanation.source.spans(0) if unit == explanation.selected[0, 0]]
    assert [text[a:b].lower() for a, b in spans] == [t, t]
    page = explanation.to_html()
    assert page.count("<mark") == 2
    assert f"x{t} &lt;b&gt;<mark" in page
    axes = explanation.plot(row=0)
    assert [patch.get_gid() for patch in axes.patches] == [t, t]
    report = explainer.report([text, "", *NEW[:8]], tmp_path / "page.html", verify=20).read_text(encoding="utf-8")
    data = json.loads(report.split('id="data"', 1)[1].split(">", 1)[1].split("</script>", 1)[0])
    assert [list(span) for span in spans] in data["spans"][0].values()


def test_the_server_says_where_words_stand(explainer) -> None:
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    from sointer.apps.serve import create_app

    text = f"Oh {PROBLEM.triggers[0]}! {PROBLEM.triggers[0]}"
    with TestClient(create_app(explainer), base_url="http://127.0.0.1") as client:
        reply = client.post("/explain", json={"rows": [text, ""], "target": "any", "verify": True}).json()
    first, second = reply["rows"]
    assert [text[a:b] for a, b in first["features"][0]["spans"]] == [PROBLEM.triggers[0]] * 2
    assert first["agreement"] == 1
    assert second["features"] == []


def test_the_command_line_takes_a_function_of_strings(tmp_path, monkeypatch) -> None:
    from typer.testing import CliRunner

    from sointer.apps.cli.app import build_app

    (tmp_path / "strings_model.py").write_text(
        "def predict(texts):\n    return [{'warm': 'sun' in t, 'wet': 'rain' in t} for t in texts]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["sun", "rain", "wind", "snow"], 3)) for _ in range(200)]
    pd.DataFrame({"id": range(200), "said": texts}).to_csv("texts.csv", index=False)
    arguments = ["fit", "--text", "said", "--model", "strings_model:predict", "--data", "texts.csv", "--out", "why"]
    with few_steps(800):
        done = CliRunner().invoke(build_app(), [*arguments, "--query-budget", "600"])
    assert done.exit_code == 0
    assert "those that matter of 5 words" in done.output
    assert "next: sointer explain why --data FILE --text 'said' --target 'warm'" in done.output
    reported = CliRunner().invoke(build_app(), ["info", "why"]).output
    assert "of 5 words:" in reported
    assert " texts in fit" in reported
    arguments = ["explain", "why", "--text", "said", "--data", "texts.csv", "-t", "wet", "--out", "why.csv"]
    done = CliRunner().invoke(build_app(), [*arguments, "--model", "strings_model:predict", "--verify", "7"])
    assert done.exit_code == 0
    assert "explained 200 texts" in done.output
    assert "on the first 7 texts, the model predicts the same from the selected words" in done.output
    found = pd.read_csv(Path("why.csv"))
    assert set(found[found["value"].astype(str).isin(("1", "True"))]["feature"]) == {"rain"}


def test_what_cannot_be_explained_is_refused_in_one_sentence() -> None:
    def not_the_empty(texts):
        if "" in texts:
            raise ValueError("give me words")
        return PROBLEM(texts)

    with pytest.raises(InputError, match=r"fails on the empty text.*give me words.*removal='\[MASK\]'"):
        quick(BlackBox(not_the_empty, retries=0), batch_size=None)
    found_only = BlackBox(
        lambda texts: [[word for word in text.split() if word == "rain"] for text in texts], retries=0
    )
    with pytest.raises(InputError, match=r"the same outputs for every text.*not only the labels that were found"):
        SOInter(found_only, query_budget=300).fit(["rain today", "no rain", "rain rain"] * 30)
    assert quick(not_the_empty, k=1, removal="[MASK]").explain(NEW[:2], 0).verify().n_queries == 2
    with pytest.raises(InputError, match=r"different values, such as .*, too many for classes.*that returns labels"):
        quick(lambda texts: [text[::-1] for text in texts])
    with pytest.raises(InputError, match=r"too many for classes.*set output_kind='continuous'"):
        quick(lambda texts: [str(hash(text) / 7) for text in texts])
    with pytest.raises(InputError, match=r"1 of 501 documents .* None, at 500"):
        quick(PROBLEM, [*TEXTS, None])
    with pytest.raises(InputError, match="of texts, expected 'delete'"):
        quick(PROBLEM, removal="marginal")
    with pytest.raises(InputError, match="not for texts"):
        SOInter(PROBLEM, preset="paper").fit(TEXTS)


@pytest.mark.parametrize("groups", ["sentences", "occurrences", str.split, {"two": list(PROBLEM.triggers[:2])}])
def test_other_units(groups, tmp_path) -> None:
    explainer = quick(PROBLEM, k=1, groups=groups)
    explanation = explainer.explain(NEW[:8], "y0")
    assert (explanation.n_selected == 1).all()
    explainer.save(tmp_path / "why")
    loaded = sointer.load(tmp_path / "why", PROBLEM, splitter=groups if callable(groups) else None)
    np.testing.assert_array_equal(loaded.explain(NEW[:8], "y0").selected, explanation.selected)
    assert loaded.groups == groups or loaded.groups.keys() == groups.keys()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda text: 1 / 0, "groups= failed: ZeroDivisionError"),
        (lambda: [], r"groups= failed: TypeError.*called as \(text\) -> pieces"),
        (lambda text: (1 / 0 for _ in text), "groups= failed: ZeroDivisionError"),
        (lambda text: None, "into None, expected a list of its parts"),
        (lambda text: text, "into the string .*, expected a list of its parts"),
        (lambda text: [3], "into pieces such as 3, expected strings"),
        (lambda text: [(0, "1")], "into pieces such as .0, '1'., expected strings"),
        (lambda text: ["Xx"], "into 'Xx', which does not stand in the text"),
    ],
)
def test_a_function_that_does_not_split_texts_is_refused(function, message) -> None:
    with pytest.raises(SointerError, match=message):
        quick(PROBLEM, groups=function)


def test_the_model_gets_strings_of_python() -> None:
    kinds = set()

    def model(texts: list[str]) -> list[list[bool]]:
        kinds.update(map(type, texts))
        return [["rain" in text] for text in texts]

    texts = np.array(["rain today", "no rain", "sun and wind"] * 20)
    explainer = SOInter(model, query_budget=200, random_state=0).fit(texts)
    explainer.explain(texts[:2], 0).verify()
    assert kinds == {str}


def test_order_is_read_only_if_it_counts(explainer) -> None:
    assert len(explainer.interpreter_.rank) > 0
    assert len(quick(lambda texts: [["a" in text.split(), len(text) > 50] for text in texts]).interpreter_.rank) == 0


def test_series_keep_their_labels_and_numbers_are_explained() -> None:
    explainer = quick(lambda texts: PROBLEM(texts) * 8.0 + np.array([[len(text)] for text in texts]), k=2)
    frame = explainer.explain(pd.Series(NEW[:2], index=["a", "b"]), 0).to_frame()
    assert set(frame.index) == {"a", "b"}


@pytest.mark.parametrize("baseline", [Lime, KernelShap, ShapleySampling])
def test_baselines_delete_words_too(baseline) -> None:
    yes = [text for text, label in zip(NEW, PROBLEM(NEW)[:, 3], strict=True) if label][:3]
    explanation = baseline(PROBLEM, k=2, random_state=0).fit(TEXTS[:50]).explain(yes, 3)
    for row, text in enumerate(yes):
        assert words_of(explanation, row) in PROBLEM.smallest(text, 3)


def test_all_targets_of_texts_are_explained_as_one_after_the_other(explainer) -> None:
    found = explainer.explain(NEW[:6], target="all")
    names = [explainer.output_names_[target] for target in explainer.targets_]
    for place, name in enumerate(names):
        alone = explainer.explain(NEW[:6], target=name)
        rows = slice(place, None, len(names))
        np.testing.assert_array_equal(found.scores[rows], alone.scores)
        np.testing.assert_array_equal(found.selected[rows][:, : alone.selected.shape[1]], alone.selected)
        for sample in range(6):
            row = sample * len(names) + place
            assert found.source.spans(row) == alone.source.spans(sample)


def test_paths_of_words_are_refused_with_what_helps(explainer) -> None:
    with pytest.raises(InputError, match="counts of words as a scipy CSR matrix") as caught:
        explainer.explain(NEW[:2], target="any").paths()
    assert "structured=True" not in str(caught.value)


def test_evaluation_compares_with_what_can_delete_words(explainer) -> None:
    found = evaluate(explainer, NEW, targets=["any"], n_rows=10, n_samples=50)
    names = [method.name for method in found.methods]
    assert names[0] == "SOInter"
    assert {"Random", "GlobalList"} <= set(names)
    assert not {"TreeShap", "HideAndSeek", "Invase"} & set(names)
    assert found.methods[0].fidelity.mean >= 0.9
    with pytest.raises(InputError, match="for tables only"):
        evaluate(explainer, NEW, against=["HideAndSeek"])


def test_texts_in_another_order_are_another_fit(tmp_path) -> None:
    texts = ["sun and rain", "rain", "wind and sun", "dew"] * 10

    def predict(X):
        return [[text.startswith("sun"), "rain" in text] for text in X]

    def fit(texts: list[str]) -> None:
        with warnings.catch_warnings(), few_steps():
            warnings.simplefilter("ignore")
            SOInter(predict, k=1, **QUICK).fit(texts, checkpoint=tmp_path / "fit")

    fit(texts)
    fit(texts)
    with pytest.raises(CheckpointError, match=r"another fit: data differ\."):
        fit([*texts[:-4], "sun rain and", *texts[-3:]])


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_a_column_of_texts_with_missing_ones_is_refused_as_such(explainer, missing) -> None:
    column = pd.Series([*NEW[:3], missing], dtype=object)
    message = "1 of 4 documents are not strings: .*, at 3. Drop them, or give '' for an empty text"
    with pytest.raises(InputError, match=message):
        explainer.explain(column, "any")
    with pytest.raises(InputError, match=message):
        SOInter(PROBLEM).fit(column)
    with pytest.raises(InputError, match="expected a table of samples and features"):
        explainer.explain(pd.Series(["a", 1.5, 2]), "any")


def test_emoji_decide_like_words() -> None:
    rng = np.random.default_rng(0)
    words = ["so", "good", "💩", "👍🏽", "day", "the", "❤️"]
    texts = [" ".join(rng.choice(words, size=5)) for _ in range(200)]

    def model(batch: list[str]) -> list[dict[str, bool]]:
        return [{"bad": "💩" in text, "love": "❤️" in text and "good" in text} for text in batch]

    explainer = SOInter(model, query_budget=1000, random_state=0, energy=EnergyConfig(hidden=(32,))).fit(texts)
    assert words_of(explainer.explain(["the 💩 day 👍🏽 so"], "bad"), 0) == {"💩"}
    assert words_of(explainer.explain(["so good ❤️ 👍🏽 day"], "love"), 0) == {"good", "❤️"}
