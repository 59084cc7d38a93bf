"""One model whose outputs are of different kinds: a class, a probability, a number and a label, end to end."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import sointer
from quick import TABLE, TAUGHT, quick_fit, short_training
from sointer.errors import SointerWarning

pytestmark = [
    pytest.mark.usefixtures("global_random_state_is_left_alone"),
    pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning"),
]

FEATURES = ["age", "income", "debt", "sleep", "noise", "more noise"]
OUTPUTS = ["colour", "chance", "amount", "warned"]
KINDS = ("categorical", "probability", "continuous", "binary")
DECIDES = {"colour": {"age"}, "chance": {"income"}, "amount": {"debt", "sleep"}, "warned": {"sleep"}}
MODEL = """
import numpy as np
import pandas as pd

def model(X):
    age, income, debt, sleep = (np.asarray(X[name]) for name in ("age", "income", "debt", "sleep"))
    return pd.DataFrame({
        "colour": np.select([age > 0.5, age < -0.5], ["red", "blue"], "green"),
        "chance": 1 / (1 + np.exp(-3 * income)),
        "amount": 1000 + 300 * debt - 200 * sleep,
        "warned": (sleep > 0).astype(int),
    })
"""
SETTINGS = {**TAUGHT, "k": "auto", "query_budget": 2500, "output_kind": {"chance": "probability"}}


def model(X):
    names: dict = {}
    exec(MODEL, names)
    return names["model"](X)


def people(n, seed):
    return pd.DataFrame(np.random.default_rng(seed).normal(size=(n, len(FEATURES))), columns=FEATURES)


@pytest.fixture(scope="module")
def explainer():
    return quick_fit(model, people(600, 0), **SETTINGS)


def test_every_output_keeps_its_kind_and_is_judged_on_its_own(explainer):
    assert explainer.output_names_ == OUTPUTS
    assert explainer.outputs_.kinds == KINDS
    assert explainer.outputs_.kind == "mixed"
    assert explainer.output_agreement_.shape == explainer.output_skill_.shape == (4,)
    assert explainer.held_out_agreement_ == pytest.approx(explainer.output_agreement_.mean())
    assert explainer.held_out_skill_ == pytest.approx(explainer.output_skill_.mean())
    assert explainer.output_skill_.min() > 0.7


@pytest.mark.parametrize("target", OUTPUTS)
def test_each_output_is_explained_by_what_decides_it(explainer, target):
    X = people(60, 1)
    explanation = explainer.explain(X, target)
    said = model(X)[target].tolist()
    assert explanation.value.tolist() == said
    assert [type(value) for value in explanation.value] == [type(value) for value in said]
    best = explainer.explain(X, target, k=len(DECIDES[target]))
    chosen = np.array(FEATURES)[best.selected]
    assert np.mean([set(row) == DECIDES[target] for row in chosen]) > 0.9
    check = best.verify()
    assert check.fidelity > 0.9
    leaves = explainer.localities(target)
    assert leaves.target == target
    assert sum(leaf.share for leaf in leaves) == pytest.approx(1.0)


def test_effects_are_in_the_unit_of_each_output(explainer):
    X = people(200, 2)
    for target, feature, unit in (("chance", "income", 0.3), ("amount", "debt", 300.0)):
        effects = explainer.explain(X, target).effects[:, FEATURES.index(feature)]
        slope, _ = np.polyfit(X[feature], effects, 1)
        assert 0.4 * unit < slope < 1.6 * unit
    warned = explainer.explain(X, "warned")
    # Of labels an effect is one on the probability of the label shown, which sleep explains either way.
    assert (warned.effects[:, FEATURES.index("sleep")] > 0).mean() > 0.9
    colour = explainer.explain(X, "colour")
    assert (colour.effects[:, FEATURES.index("age")] > 0).mean() > 0.9
    assert np.abs(colour.effects).max() <= 1.5


def test_one_target_per_sample_mixes_kinds(explainer):
    X = people(8, 3)
    targets = OUTPUTS * 2
    mixed = explainer.explain(X, targets)
    said = model(X)
    assert mixed.value.tolist() == [said[target].iloc[row] for row, target in enumerate(targets)]
    for row, target in enumerate(targets):
        alone = explainer.explain(X.iloc[[row]], target)
        for name in ("scores", "effects", "needed", "locality", "base_value"):
            assert np.array_equal(getattr(mixed, name)[row], getattr(alone, name)[0]), name
    frame = mixed.to_frame()
    assert set(frame["target"]) <= set(OUTPUTS)
    for _, line in frame.iterrows():
        assert line["value"] == said[line["target"]].iloc[line["sample"]]
    assert mixed.verify(n_draws=2).agreement.shape == (8,)
    assert set(mixed.summary()) == set(OUTPUTS)
    assert "red" in mixed.to_html() or "green" in mixed.to_html() or "blue" in mixed.to_html()


def test_what_is_expected_has_the_right_kind_too(explainer):
    X = people(100, 4)
    said = model(X)
    for target, kind in zip(OUTPUTS, KINDS, strict=True):
        value = explainer.explain(X, target, query=False).value
        if kind in ("categorical", "binary"):
            assert (value == said[target].to_numpy()).mean() > 0.8
        else:
            assert np.corrcoef(value.astype(float), said[target])[0, 1] > 0.9


def test_saved_and_loaded_it_says_the_same(explainer, tmp_path):
    explainer.save(tmp_path / "why")
    loaded = sointer.load(tmp_path / "why", black_box=model)
    assert loaded.outputs_.kinds == KINDS
    X = people(30, 5)
    for target in OUTPUTS:
        one, two = explainer.explain(X, target), loaded.explain(X, target)
        for name in ("scores", "selected", "effects", "needed", "locality", "base_value"):
            assert np.array_equal(getattr(one, name), getattr(two, name)), name
        assert one.value.tolist() == two.value.tolist()
        assert loaded.localities(target) == explainer.localities(target)
        expected = explainer.explain(X, target, query=False).value, loaded.explain(X, target, query=False).value
        assert expected[0].tolist() == expected[1].tolist()


def test_given_predictions_equal_queried_ones(explainer):
    X = people(20, 6)
    for target in OUTPUTS:
        asked, given = explainer.explain(X, target), explainer.explain(X, target, predicted=model(X))
        assert np.array_equal(asked.scores, given.scores)
        assert asked.value.tolist() == given.value.tolist()
        assert (asked.value_source, given.value_source) == ("model", "given")


@pytest.mark.usefixtures("quick_paths")
def test_every_layer_takes_them(explainer, tmp_path):
    """Metrics, plots, records and requests, for each target alone and for all of them at once."""
    for package in ("matplotlib", "fastapi", "httpx"):
        pytest.importorskip(package)
    import matplotlib.pyplot as plt
    from fastapi.testclient import TestClient

    from sointer.apps.serve import create_app
    from sointer.metrics import evaluate

    X = people(12, 8)
    said = model(X)
    for target in (*OUTPUTS, "all"):
        explanation = explainer.explain(X, target)
        record = explanation.record(explanation.verify(n_draws=3))[-1]
        assert record["value"] == said[record["target"]].iloc[-1]
        assert record["kind"] == dict(zip(OUTPUTS, KINDS, strict=True))[record["target"]]
        assert sointer.verify_record(json.loads(json.dumps(record)), explainer, X).holds
        plots = [("bar", 1), ("effects", 1), ("heatmap", None), *([] if target == "all" else [("summary", None)])]
        for kind, row in plots:
            assert explanation.plot(row, kind=kind) is not None
        plt.close("all")
    assert len(explainer.explain(X, OUTPUTS * 3).paths()) == len(X)
    frame = explainer.explain(X, "amount").to_frame()
    assert frame["value"].dtype == "float64"
    result = evaluate(explainer, X, against=["Random"])
    assert {one.target: one.n_questions for one in result.targets} == dict.fromkeys(OUTPUTS, 12)
    ours, random = result.methods
    assert ours.fidelity.mean > 0.9 > random.fidelity.mean
    client = TestClient(create_app(explainer), base_url="http://localhost")
    for predicted in ({}, {"predicted": said[:4].to_numpy(object).tolist()}):
        body = {"rows": X[:4].to_dict("records"), "target": OUTPUTS, "verify": True, **predicted}
        answer = client.post("/explain", json=body)
        assert answer.status_code == 200, answer.text
        rows = answer.json()["rows"]
        assert [row["kind"] for row in rows] == list(KINDS)
        assert [row["value"] for row in rows] == [said[name].iloc[i] for i, name in enumerate(OUTPUTS)]


def test_files_and_frames_keep_types_where_they_can(explainer, tmp_path):
    pytest.importorskip("pyarrow")
    from sointer.io.stream import stream_explain
    from sointer.io.writers import TextWriter

    X = people(6, 9)
    X.to_parquet(tmp_path / "X.parquet")
    said = model(X)
    stream_explain(explainer, tmp_path / "X.parquet", tmp_path / "two.parquet", target=["chance", "amount"])
    assert pd.read_parquet(tmp_path / "two.parquet")["value"].dtype == "float64"
    stream_explain(explainer, tmp_path / "X.parquet", tmp_path / "all.parquet", target="all")
    assert pd.read_parquet(tmp_path / "all.parquet")["value"].map(type).eq(str).all()
    stream_explain(explainer, tmp_path / "X.parquet", TextWriter(tmp_path / "all.jsonl", as_json=True), target="all")
    for line in map(json.loads, (tmp_path / "all.jsonl").read_text().splitlines()):
        assert line["value"] == said[line["target"]].iloc[line["sample"]]


def test_tables_of_polars_have_values_as_text():
    pytest.importorskip("narwhals")
    polars = pytest.importorskip("polars")
    fitted = quick_fit(
        lambda X: polars.from_pandas(model(X.to_pandas())), polars.from_pandas(people(200, 0)), **SETTINGS | {"k": 1}
    )
    X = polars.from_pandas(people(4, 1))
    said = model(X.to_pandas())
    for line in fitted.explain(X, "all").to_frame().iter_rows(named=True):
        assert line["value"] == str(said[line["target"]].iloc[line["sample"]])
    assert fitted.explain(X, "amount").to_frame()["value"].dtype == polars.Float64


def test_an_estimator_gives_probabilities_beside_labels(tmp_path):
    """Outputs of two classes are explained by their probability, those of more by their label."""
    from sklearn.ensemble import RandomForestClassifier

    X = people(400, 0)
    Y = pd.DataFrame({"risky": np.where(X["income"] > 0, "yes", "no"), "colour": model(X)["colour"]})
    forest = RandomForestClassifier(20, max_depth=4, random_state=0).fit(X, Y)
    for wanted in ({"method": "predict_proba"}, {"output_kind": {"risky": "probability"}}):
        fitted = quick_fit(forest, X, **TAUGHT, **wanted, output_names=["risky", "colour"])
        assert fitted.outputs_.kinds == ("probability", "categorical")
        assert fitted.method_ == "predict_proba"
        explanation = fitted.explain(X[:20], "risky")
        np.testing.assert_allclose(explanation.value.astype(float), forest.predict_proba(X[:20])[0][:, 1])
        assert fitted.explain(X[:20], "colour").value.tolist() == forest.predict(X[:20])[:, 1].tolist()
        assert explanation.summary()["risky"][0][0] == "income"
        assert fitted.explain(X[:20], "colour").summary()["colour"][0][0] == "age"
    fitted.save(tmp_path / "why")
    again = sointer.load(tmp_path / "why", black_box=forest).explain(X[:20], "risky")
    assert again.value.tolist() == explanation.value.tolist()
    by_default = quick_fit(forest, X)
    assert by_default.outputs_.kinds == ("binary", "categorical")  # what predict returns
    unnamed = quick_fit(forest, X, method="predict_proba")
    assert unnamed.output_names_ == ["y0=yes", "y1"]


def test_the_report_shows_all_of_them(explainer, tmp_path):
    pytest.importorskip("jinja2")
    page = explainer.report(people(20, 7), tmp_path / "why.html", paths=False).read_text()
    for name in (*OUTPUTS, "green"):
        assert name in page


def test_from_the_command_line(tmp_path, monkeypatch):
    for package in ("typer", "pyarrow"):
        pytest.importorskip(package)
    from typer.testing import CliRunner

    from sointer.apps.cli.app import build_app

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mixed_model.py").write_text(MODEL)
    people(200, 0).to_csv("X.csv", index=False)
    app, run = build_app(), CliRunner().invoke
    the_model = ["--model", "mixed_model:model", "--data", "X.csv"]
    settings = ["--query-budget=400", "--output-kind=chance=probability", "--json"]
    with short_training():
        made = run(app, ["fit", *the_model, "--out=why", *settings])
    assert made.exit_code == 0, made.output
    metadata = json.loads(made.stdout)
    assert metadata["outputs"] == OUTPUTS
    assert metadata["k"] == "auto"
    ran = run(app, ["explain", "why", *the_model, "--target=all", "--out=why.csv", "--quiet"])
    assert ran.exit_code == 0, ran.output
    table = pd.read_csv("why.csv")
    assert set(table["target"]) <= set(OUTPUTS)
    said = model(pd.read_csv("X.csv"))
    for target, kind in zip(OUTPUTS, KINDS, strict=True):
        lines = table[table["target"] == target].drop_duplicates("sample")
        wanted = said[target].iloc[lines["sample"]]
        if kind == "categorical":
            assert lines["value"].tolist() == wanted.tolist()
        else:
            np.testing.assert_allclose(lines["value"].astype(float), wanted)
    info = run(app, ["info", "why", "--json"])
    assert json.loads(info.stdout)["output_kind"] == "mixed"


def test_a_quick_fit_without_structure_takes_them_too():
    alone = quick_fit(model, people(200, 0), **SETTINGS | {"structured": False, "query_budget": 200})
    for target in OUTPUTS:
        assert alone.explain(people(5, 1), target).effects.shape == (5, 6)


def test_integers_that_are_names_of_outputs_too() -> None:
    """As of classes 1, 2 and 3, or of years."""
    explainer = quick_fit(lambda X: pd.DataFrame(X[:, :4] > 0, columns=[1, 2, 3, 2021]), TABLE)
    assert explainer.output_names_ == ["1", "2", "3", "2021"]
    with pytest.warns(SointerWarning, match=r"target=1 is the index of output '2'.*target='2' or target='1'"):
        assert explainer.explain(TABLE[:3], target=1).target.tolist() == [1, 1, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert explainer.explain(TABLE[:3], target="1").target.tolist() == [0, 0, 0]
        assert explainer.explain(TABLE[:3], target=2021).target.tolist() == [3, 3, 3]
        assert explainer.explain(TABLE[:3], target=0).target.tolist() == [0, 0, 0]
