"""Records of explanations: what they say, that they are stable, and that verify_record notices what changed."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sointer
from quick import FRAME, IMAGES, SENTENCES, SPARSE, TABLE, TAUGHT, TEXTS, labels, quick_explainer, quick_fit
from repo_scripts import run_apart
from sointer.errors import InputError, LoadError
from sointer.explainers.baselines import Random
from sointer.explainers.records import record_digest
from sointer.io.stream import stream_explain

DATA = {"table": TABLE, "frame": FRAME, "sparse": SPARSE, "images": IMAGES, "texts": TEXTS, "groups": TABLE}
SCHEMA = Path(__file__).parents[2] / "docs" / "_static" / "record.schema.json"
WHEN = "2026-01-31T12:00:00+01:00"


@pytest.fixture(scope="module")
def validate():
    jsonschema = pytest.importorskip("jsonschema")
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate


@pytest.mark.parametrize("kind", DATA)
def test_a_record_fits_the_schema_and_holds_after_saving(kind, validate, tmp_path):
    explainer, X = quick_explainer(kind), DATA[kind]
    explanation = explainer.explain(X[:5], explainer.targets_[0])
    records = explanation.record(explanation.verify(), created=WHEN)
    for record in json.loads(json.dumps(records, allow_nan=False)):
        validate(record)
        assert record["sha256"] == record_digest(record)
    again = explainer.explain(X[:5], explainer.targets_[0])
    assert again.record(again.verify(), created=WHEN) == records
    explainer.save(tmp_path / "why")
    loaded = sointer.load(tmp_path / "why", black_box=explainer.model)
    check = sointer.verify_record(records[3], loaded, X)
    assert check.holds, check
    assert [check.intact, check.same_explainer, check.same_model, check.same_value, check.same_selection] == [True] * 5


@pytest.mark.parametrize("kind", ["texts", "sparse", "frame"])
def test_explanations_that_need_nothing_have_records_and_frames(kind):
    explainer = quick_explainer(kind)
    made = explainer.explain(DATA[kind][:2], explainer.targets_[0])
    nothing = replace(made, selected=np.full_like(made.selected, -1))
    assert [record["selected"] for record in nothing.record(created=WHEN)] == [[], []]
    frame = nothing.to_frame()
    assert len(frame) == 0
    assert "feature_value" in frame


def test_a_missing_value_is_said_to_be_missing_and_large_effects_are_plain_numbers():
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"income": rng.normal(3000, 800, 500), "rent": rng.normal(size=500)})
    people.loc[rng.random(500) < 0.3, "income"] = np.nan
    explainer = quick_fit(lambda Z: Z[["income"]].fillna(-5000) + 0.1 * Z[["rent"]].to_numpy(), people, **TAUGHT)
    for record in explainer.explain(people[:40], 0, k=1).record(created=WHEN):
        (one,) = record["selected"]
        assert f"decided by {one['unit']} " + ("missing" if one["value"] is None else "= ") in record["text"]
        assert "e+" not in record["text"]


def test_what_a_record_says_is_what_the_explanation_says():
    explainer = quick_explainer("frame")
    X = FRAME[:4].set_axis(["anna", "bo", "carl", "dora"])
    explanation = explainer.explain(X, "warm", k=3)
    verdict = explanation.verify(n_draws=7, random_state=3)
    record = explanation.record(verdict, created=WHEN)[2]
    frame = explanation.to_frame().loc["carl"]
    assert [one["unit"] for one in record["selected"]] == frame["feature"].tolist()
    assert [str(one["value"]) for one in record["selected"]] == frame["feature_value"].astype(str).tolist()
    np.testing.assert_allclose([one["effect"] for one in record["selected"]], frame["effect"], rtol=1e-6)
    np.testing.assert_allclose([one["relevance"] for one in record["selected"]], frame["score"], rtol=1e-6)
    assert [one["needed"] for one in record["selected"]] == frame["needed"].tolist()
    effects = record["effects"]
    total = effects["base_value"] + effects["of_others"] + sum(one["effect"] for one in record["selected"])
    assert total == pytest.approx(explanation.base_value[2] + explanation.effects[2].sum(), abs=1e-5)
    assert record["created"] == "2026-01-31T11:00:00Z"
    assert record["sample"]["id"] == "carl"
    assert record["sample"]["number"] == 2
    assert record["value"] == frame["value"].iloc[0]
    assert record["value_source"] == "model"
    assert record["settings"] == {"k": 3, "refine": 0, "removal": "marginal"}
    assert record["queries"] == {"of_the_call": 4, "rows_of_the_call": 4}
    assert record["explainer"]["queries_of_fit"] == explainer.n_queries_
    assert record["verification"]["verdict"] == verdict.verdict[2]
    assert record["verification"]["n_draws"] == 7
    assert record["text"].startswith(f"warm = {record['value']} (the model predicts), decided by colour = ")
    named = explanation.record(ids=[7, 8, 9, 10])[1]
    assert named["sample"]["id"] == "8"
    assert named["verification"] is None


def test_alone_or_among_others_the_same_is_said():
    explainer = quick_explainer("table")
    many, alone = explainer.explain(TABLE[:40], 1).record()[23], explainer.explain(TABLE[23:24], 1).record()[0]
    for name in ("explainer", "model", "settings", "value", "selected", "effects", "locality"):
        assert many[name] == alone[name], name
    assert many["sample"]["sha256"] == alone["sample"]["sha256"]


@pytest.mark.parametrize("kind", ["table", "frame"])
def test_the_sample_is_found_whoever_read_the_file(kind):
    """Readers of CSV files differ in the last digits: pandas before version 3 by up to 2e-13."""
    explainer, X = quick_explainer(kind), DATA[kind][:60]
    numbers = X.copy() if kind == "table" else X["size"].to_numpy()
    rng = np.random.default_rng(0)
    for error in (1e-15, 2e-13):
        moved = numbers * (1 + rng.uniform(-error, error, numbers.shape))
        read = moved if kind == "table" else X.assign(size=moved)
        for place, record in enumerate(explainer.explain(X, 0).record()):
            check = sointer.verify_record(record, explainer, read)
            assert check.holds, (place, check)
    other = numbers * (1 + 1e-6)
    with pytest.raises(InputError, match="none of which is that of the record"):
        sointer.verify_record(record, explainer, other if kind == "table" else X.assign(size=other))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record["selected"].reverse(), "selected: "),
        (lambda record: record["selected"][0].update(effect=0.5), "effect of x"),
        (lambda record: record["selected"][0].update(value=99.0), "value of x"),
        (lambda record: record.update(value=1 - record["value"]), "value: "),
        (lambda record: record["explainer"].update(sha256="0" * 64), "the explainer is another one"),
        (lambda record: record["sample"].update(id="somebody else"), "the record was changed"),
    ],
)
def test_whatever_was_changed_in_a_record_is_noticed(change, words):
    explainer = quick_explainer("table")
    record = explainer.explain(TABLE[:3], 1).record()[0]
    assert sointer.verify_record(record, explainer, TABLE[:3]).holds
    change(record)
    check = sointer.verify_record(record, explainer, TABLE[:3])
    assert not check.holds
    assert not check.intact
    assert any(words in one for one in check.differences), check.differences


def test_another_model_and_another_explainer_are_noticed(tmp_path):
    explainer = quick_explainer("table")
    record = explainer.explain(TABLE[:3], 1).record()[0]
    explainer.save(tmp_path / "why")
    turned = sointer.load(tmp_path / "why", black_box=lambda X: 1 - labels(X))
    check = sointer.verify_record(record, turned, TABLE)
    assert (check.intact, check.same_explainer, check.same_model, check.same_value) == (True, True, False, False)
    other = quick_fit(labels, TABLE, random_state=1)
    check = sointer.verify_record(record, other, TABLE)
    assert (check.intact, check.same_explainer, check.same_model, check.same_value) == (True, False, True, True)


def test_saved_without_rows_the_model_is_recognised_by_the_sample_alone(tmp_path):
    explainer = quick_explainer("table")
    explainer.save(tmp_path / "why", rows="none")
    known = json.loads((tmp_path / "why" / "explainer.json").read_text())["probe"]
    assert known["outputs"] is None
    assert known["n"] == 16
    loaded = sointer.load(tmp_path / "why", black_box=labels)
    record = loaded.explain(TABLE[:3], 1).record()[0]
    assert record["model"]["probe"] == explainer.explain(TABLE[:3], 1).record()[0]["model"]["probe"]
    check = sointer.verify_record(record, loaded, TABLE)
    assert check.holds
    assert check.same_model is None


def test_values_that_were_given_or_expected():
    explainer = quick_explainer("table")
    given = explainer.explain(TABLE[:3], 1, predicted=1 - labels(TABLE[:3])).record()[0]
    assert given["value_source"] == "given"
    assert sointer.verify_record(given, explainer, TABLE[:3], predicted=1 - labels(TABLE[:3])).holds
    assert not sointer.verify_record(given, explainer, TABLE[:3]).same_value, "the model does not predict that"
    expected = explainer.explain(TABLE[:3], 1, query=False).record()[0]
    assert expected["value_source"] == "expected"
    assert "not predicted" in expected["text"]
    assert sointer.verify_record(expected, explainer, TABLE[:3]).holds


def test_baselines_have_records_too(validate):
    explanation = Random(labels, k=2, random_state=0).fit(TABLE).explain(TABLE[:2], 0)
    record = explanation.record()[0]
    validate(record)
    assert record["explainer"]["class"] == "Random"
    assert record["explainer"]["sha256"] is None


def test_wrong_use():
    explainer = quick_explainer("table")
    explanation = explainer.explain(TABLE[:3], 1)
    with pytest.raises(InputError, match="the verification is about 2 rows, the explanation has 3"):
        explanation.record(explanation.verify(rows=[0, 1]))
    with pytest.raises(InputError, match="a time without a time zone"):
        explanation.record(created="2026-01-31T12:00:00")
    with pytest.raises(InputError, match="created must be a time"):
        explanation.record(created="yesterday")
    with pytest.raises(InputError, match="ids holds 1 ids, expected one for each of 3 samples"):
        explanation.record(ids=["a"])
    with pytest.raises(InputError, match="none of which is that of the record"):
        sointer.verify_record(explanation.record()[0], explainer, TABLE[50:60])
    with pytest.raises(InputError, match="expected a record of format 1"):
        sointer.verify_record({"record": 2}, explainer, TABLE)


def test_damaged_probes_are_refused(tmp_path):
    from sointer.io.storage import EXPLAINER

    quick_explainer("table").save(tmp_path / "why")
    metadata, tensors = EXPLAINER.read(tmp_path / "why")
    for change in ({"n": 15}, {"outputs": [[0]]}, {"texts": ["a"]}, {"n": 10**9}, {"outputs": 3}):
        changed = {**metadata, "probe": metadata["probe"] | change}
        EXPLAINER.write(
            tmp_path / "why", {k: v for k, v in changed.items() if k not in ("weights", "sointer")}, tensors
        )
        with pytest.raises(LoadError, match="does not hold a whole explainer"):
            sointer.load(tmp_path / "why")


def test_streams_write_them(validate, tmp_path):
    explainer = quick_fit(labels, pd.DataFrame(TABLE, columns=list("abcde")), **TAUGHT)
    days = pd.DataFrame(TABLE, columns=list("abcde")).assign(day=[f"d{i}" for i in range(len(TABLE))])
    days.to_csv(tmp_path / "days.csv", index=False)
    done = stream_explain(
        explainer,
        tmp_path / "days.csv",
        tmp_path / "why.parquet",
        target=[0, 1],
        chunk_rows=50,
        id_column="day",
        verify=60,
        records=tmp_path / "records.jsonl",
    )
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    for record in records:
        validate(record)
    assert len(records) == 2 * len(TABLE)
    assert [one["sample"]["id"] for one in records[::2]] == days["day"].tolist()
    assert [one["sample"]["number"] for one in records[1::2]] == list(range(len(TABLE)))
    judged = [one["verification"] for one in records]
    assert all(one is not None for one in judged[:120])
    assert not any(judged[120:])
    assert done.fidelity == pytest.approx(np.mean([one["agreement"] for one in judged[:120]]))
    assert len({one["created"] for one in records}) == 1
    assert sointer.verify_record(records[77], explainer, days.drop(columns="day")).holds


def test_what_was_explained_before_a_stop_is_kept(tmp_path):
    frame, calls = pd.DataFrame(TABLE, columns=list("abcde")), []
    explainer = quick_fit(labels, frame)

    def fails(X):
        calls.append(len(X))
        if len(calls) > 1:
            raise KeyboardInterrupt
        return labels(X)

    with pytest.raises(KeyboardInterrupt):
        stream_explain(
            explainer,
            frame,
            tmp_path / "why.parquet",
            target=0,
            chunk_rows=50,
            predicted=fails,
            records=tmp_path / "records.jsonl",
        )
    assert len((tmp_path / "records.jsonl.partial").read_text().splitlines()) == 50
    assert not (tmp_path / "records.jsonl").exists()


# --- sequences -------------------------------------------------------------------------------------------


def test_records_of_sequences_fit_the_schema_and_hold_after_saving(validate, tmp_path):
    explainer = quick_explainer("sequences")
    why = explainer.explain(SENTENCES[:4], target=(0, 1))
    records = why.record(why.verify(), created=WHEN, ids=["a", "b", "c", "d"])
    for record in json.loads(json.dumps(records, allow_nan=False)):
        validate(record)
        assert record["sha256"] == record_digest(record)
    again = explainer.explain(SENTENCES[:4], target=(0, 1))
    assert again.record(again.verify(), created=WHEN, ids=["a", "b", "c", "d"]) == records
    explainer.save(tmp_path / "why")
    loaded = sointer.load(tmp_path / "why", black_box=explainer.model)
    for behind in (loaded, loaded.sequences_):
        check = sointer.verify_record(records[5], behind, SENTENCES)
        assert check.holds, check
        assert [check.intact, check.same_explainer, check.same_value, check.same_selection] == [True] * 4
        assert check.same_model is None  # saved explainers hold no sequence


def test_a_record_of_a_probability_says_what_was_confirmed():
    X = np.random.default_rng(0).normal(size=(200, 4))
    explainer = quick_fit(lambda rows: 1 / (1 + np.exp(-3 * rows[:, :2])), X, k=1)
    explanation = explainer.explain(X[:3], 0)
    verification = explanation.verify()
    for record, verdict in zip(explanation.record(verification), verification.verdict, strict=True):
        assert record["kind"] == "probability"
        said = f"From these alone, the model's probability staying on its side of 0.5 is {verdict}."
        assert record["text"].endswith(said)


def test_what_a_record_of_a_token_says():
    explainer = quick_explainer("sequences")
    tokens = ["sun", "rain", "warm"]
    why = explainer.explain([["sun"], tokens], target=[0, 2], k=1)
    verification = why.verify(n_draws=9, random_state=3)
    record = why.record(verification, ids=["x", "y"])[1]
    assert record["sample"]["number"] == 1
    assert record["sample"]["id"] == "y"
    assert [record["target"], record["kind"], record["value"]] == ["token 2", "categorical", "after rain"]
    assert record["settings"] == {"k": 1, "refine": 0, "removal": "same place"}
    assert record["queries"] == {"of_the_call": 2, "rows_of_the_call": 2}
    [chosen] = record["selected"]
    assert [chosen["unit"], chosen["value"], chosen["needed"]] == ["token 1", "rain", True]
    assert chosen["relevance"] == pytest.approx(why.scores[1, 1], rel=1e-6)
    assert record["verification"]["verdict"] == verification.verdict[1]
    assert [record["verification"][name] for name in ("n_draws", "random_state", "removal")] == [9, 3, "same place"]
    assert record["text"] == (
        "token 2 (warm) = after rain (the model predicts), decided by token 1 = rain. "
        "From these alone, the model's prediction is confirmed."
    )
    assert record["model"]["probe"]["n"] == 16
    assert record["explainer"]["class"] == "SequenceExplainer"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record["selected"][0].update(unit="token 2"), "selected: token 2 in the record, token 1 now"),
        (lambda record: record["selected"][0].update(relevance=0.001), "relevance of token 1"),
        (lambda record: record.update(value="dry"), "value: 'dry' in the record, 'after rain' now"),
        (lambda record: record.update(target="token 1"), "value: 'after rain' in the record, 'dry' now"),
        (lambda record: record["explainer"].update(sha256="0" * 64), "the explainer is another one"),
    ],
)
def test_whatever_was_changed_in_a_record_of_a_token_is_noticed(change, words):
    explainer, X = quick_explainer("sequences"), [["sun", "rain", "warm"]]
    record = explainer.explain(X, target=2, k=1).record()[0]
    assert sointer.verify_record(record, explainer, X).holds
    change(record)
    check = sointer.verify_record(record, explainer, X)
    assert not check.intact
    assert any(words in one for one in check.differences), check.differences


def test_given_and_expected_labels_and_wrong_use_of_records_of_sequences():
    explainer, X = quick_explainer("sequences"), [["sun", "rain", "warm"]]
    expected = explainer.explain(X, target=2, query=False).record()[0]
    assert expected["value_source"] == "expected"
    assert expected["queries"]["of_the_call"] == 0
    assert sointer.verify_record(expected, explainer, X).holds
    given = explainer.explain(X, target=2, predicted=[["dry", "dry", "dry"]]).record()[0]
    assert sointer.verify_record(given, explainer, X, predicted=[["dry", "dry", "dry"]]).holds
    assert "value: 'dry'" in str(sointer.verify_record(given, explainer, X).differences)
    with pytest.raises(InputError, match="none of which is that of the record"):
        sointer.verify_record(given, explainer, [["sun rain", "warm"]])
    with pytest.raises(InputError, match="expected a token of a sequence"):
        sointer.verify_record({**given, "target": "warm"}, explainer, X)
    why = explainer.explain(X)
    with pytest.raises(InputError, match="ids holds 2 ids"):
        why.record(ids=["a", "b"])
    with pytest.raises(InputError, match="about 3 targets, the explanation has 1"):
        why.first(1).record(why.verify())


@pytest.mark.parametrize("kind", ["table", "sequences"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record.pop("value_source"), "value_source is missing"),
        (lambda record: record.update(settings=7), "settings.k is missing or of another type"),
        (lambda record: record["settings"].pop("k"), "settings.k is missing"),
        (lambda record: record.update(selected=["x"]), "selected.unit is missing"),
        (lambda record: record.update(selected=None), "selected is missing"),
        (lambda record: record["sample"].update(sha256=[]), "sample.sha256 is missing or of another type"),
        (lambda record: record.update(target="token " + "9" * 5000), "record is about|target"),
    ],
)
def test_what_is_no_record_is_refused(kind, change, words):
    explainer, X = quick_explainer(kind), [["sun", "rain", "warm"]] if kind == "sequences" else TABLE[:1]
    [record] = explainer.explain(X, 0, k=1).record()
    change(record)
    with pytest.raises(InputError, match=words):
        sointer.verify_record(record, explainer, X)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")
def test_records_of_all_sorts():
    """A small version of `make faults`."""
    found = run_apart("faults", "fuzz_records", part=0, n=150, kinds=("table", "sequences"))
    assert found["crashes"] == found["hangs"] == found["memory"] == found["executions"] == 0, found["worst"]
    assert found["refused"] > 50
