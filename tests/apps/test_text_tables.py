"""Tables with text columns through the command line and the server."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("typer")
pytest.importorskip("fastapi")
pytest.importorskip("pyarrow")

from fastapi.testclient import TestClient
from typer.testing import CliRunner

import sointer
from quick import few_steps, quick_fit
from sointer.apps.cli.app import build_app
from sointer.apps.serve import create_app
from tickets import desk, tickets

pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
TICKETS = tickets(300, 0)
MODEL = "from tickets import desk as predict\n"


@pytest.fixture(scope="module")
def explainer() -> sointer.SOInter:
    return quick_fit(desk, TICKETS, text_columns=["text"])


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(build_app(), [str(one) for one in arguments])
    return done.exit_code, done.output


def test_the_command_line(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "tickets_model.py").write_text(MODEL)
    X = TICKETS.assign(text=["", *TICKETS["text"][1:]], id=range(300))
    X.to_csv("tickets.csv", index=False)
    fit = ["fit", "--model", "tickets_model:predict", "--data", "tickets.csv", "--drop", "id", "--query-budget", 300]
    code, said = run(*fit, "--text-columns", "txt", "--out", "wrong")
    assert code != 0
    assert "tickets.csv has no column 'txt'" in " ".join(said.split())
    code, said = run(*fit, "--text-columns", "text", "--text", "text", "--out", "wrong")
    assert code != 0
    assert "leave one of them out" in " ".join(said.split())
    with few_steps():
        for out, more in (("found", []), ("named", ["--text-columns", "text"])):
            code, said = run(*fit, *more, "--out", out)
            assert code == 0, said
    assert sointer.load("found").input_format_.text_labels == ["text"]
    assert sointer.load("named")._digest() == sointer.load("found")._digest()
    explain = ["explain", "named", "--model", "tickets_model:predict", "--data", "tickets.csv", "--k", 2, "--id", "id"]
    code, said = run(*explain, "--target", "urgent", "--out", "why.csv")
    assert code == 0, said
    made = pd.read_csv("why.csv")
    here = sointer.load("named", desk).explain(X.drop(columns="id"), "urgent", k=2).to_frame()
    assert made["feature"].tolist() == here["feature"].tolist()
    assert made["feature_value"].astype(str).tolist() == here["feature_value"].astype(str).tolist()
    assert run("info", "named")[0] == 0
    assert (
        run("report", "named", "--model", "tickets_model:predict", "--data", "tickets.csv", "--out", "w.html")[0] == 0
    )


def test_the_server(explainer) -> None:
    X = TICKETS[:3]
    rows = json.loads(X.to_json(orient="records", date_format="iso", date_unit="s"))
    expected = explainer.explain(X, "urgent").to_frame()
    with TestClient(create_app(explainer), base_url="http://localhost") as client:
        assert client.get("/info").json()["text_columns"] == ["text"]
        page = client.get("/")
        assert page.status_code == 200
        assert "JSON, or the 4 values in their order" in page.text  # though each word is a feature
        assert '"nFeatures": 4' in page.text or '"nFeatures":4' in page.text
        reply = client.post("/explain", json={"rows": rows, "target": "urgent"})
        assert reply.status_code == 200, reply.text
        features = [feature for row in reply.json()["rows"] for feature in row["features"]]
        assert [feature["name"] for feature in features] == expected["feature"].tolist()
        for place, row in enumerate(reply.json()["rows"]):
            for feature in row["features"]:
                if feature["name"] in X:
                    assert "spans" not in feature
                    assert str(feature["value"]) in str(X.iloc[place][feature["name"]])
                else:
                    word = feature["name"].removeprefix("text: ")
                    (spans,) = feature["spans"].values()
                    assert {X["text"].iloc[place][slice(*span)].lower() for span in spans} == {word}
        for change, message in (
            ({"text": None}, "the text column 'text' has 1 missing texts"),
            ({"text": 5}, "the text column 'text' has 5 in row 0, expected strings"),
            ({"text": "a " * 200_000}, "a text of 400,000 characters"),
        ):
            wrong = client.post("/explain", json={"rows": [rows[0] | change], "target": "urgent"})
            assert wrong.status_code in (400, 413, 422)
            assert message in wrong.json()["error"]
        del rows[0]["text"]
        assert "lacks 1 of the 4" in client.post("/explain", json={"rows": rows, "target": "urgent"}).json()["error"]
