"""Sequences on the command line, on the server, and on both pages, in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("jinja2")
pytest.importorskip("typer")

from fastapi.testclient import TestClient
from typer.testing import CliRunner, Result

import sointer
from browsing import requested
from model_server import serve
from quick import SENTENCES, quick_explainer
from sointer import SOInter
from sointer.apps.cli.app import build_app
from sointer.apps.serve import create_app
from sointer.errors import InputError
from sointer.metrics.evaluation import evaluate_sequences

pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
HOSTILE = "<script>alert(1)</script>"
SENTENCE = ["sun", "rain", "warm", HOSTILE]
MODEL = """
def weather(batch):
    return [["after rain" if before == "rain" else "dry" for before in ["", *words[:-1]]] for words in batch]


def cut(batch):
    return [labels[:2] for labels in weather(batch)]
"""


@pytest.fixture(scope="module")
def fitted() -> SOInter:
    return quick_explainer("sequences")


# --- the command line ------------------------------------------------------------------------------------


@pytest.fixture
def folder(fitted: SOInter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "tagging.py").write_text(MODEL)
    lines = [json.dumps({"tokens": one}) for one in SENTENCES[:8]]
    (tmp_path / "X.jsonl").write_text("\n".join([*lines, "", json.dumps({"text": "sun  rain warm"})]) + "\n")
    fitted.save(tmp_path / "why")
    return tmp_path


def run(*arguments: Any, code: int = 0) -> Result:
    result = CliRunner().invoke(build_app(), [str(one) for one in arguments])
    assert result.exit_code == code, result.output
    return result


def test_fit_info_explain_evaluate_and_report(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sointer.training.sequences.MIN_STEPS", 30)
    what = ("--model", "tagging:weather", "--data", "X.jsonl", "--query-budget", 200, "--checkpoint", "kept")
    done = run("fit", *what, "--out", "mine", "--json", "--quiet")
    assert json.loads(done.stdout)["labels"] == ["after rain", "dry"]
    assert (folder / "kept" / "explainer" / "sequences.json").exists()
    assert "sequences" in run("info", "mine").stdout
    assert "after rain, dry" in run("info", "why").stdout
    assert json.loads(run("info", "why", "--json").stdout)["takes"] == "sequences"

    options = ("--data", "X.jsonl", "--model", "tagging:weather")
    run("explain", "why", *options, "--out", "all.jsonl", "--verify", 3)
    records = [json.loads(line) for line in (folder / "all.jsonl").read_text().splitlines()]
    last = [one for one in records if one["sample"] == 8 and one["position"] == 2]
    assert [(one["token"], one["value"], one["selected"], one["at"]) for one in last] == [
        ("warm", "after rain", "rain", 1)
    ]
    assert {one["value_source"] for one in records} == {"model"}
    some = run("explain", "why", *options, "--target", 3, "--target", -1, "--out", "some.csv", "--chunk-rows", 3)
    assert "have no token [3" not in some.output  # all have a last one
    short = run("explain", "why", *options, "--target", 3, "--out", "-")
    n_short = sum(len(one) < 4 for one in SENTENCES[:8]) + 1
    assert f"{n_short} of 9 sequences have no token [3]; they were left out" in short.stderr
    assert short.stdout.startswith('"sample","position"') or short.stdout.startswith("sample,position")
    run("explain", "why", *options, "--out", "why.parquet")

    found = json.loads(run("evaluate", "why", *options, "--rows", 5, "--json").stdout)
    assert [one["name"] for one in found["methods"]] == ["SequenceExplainer", "NearestTokens", "Random"]
    assert found["methods"][0]["keep"] >= 0.9
    run("evaluate", "why", *options, "--rows", 3, "--at-least", 1.0, code=0 if found["fidelity"] == 1 else 3)
    run("report", "why", *options, "--out", "page.html")
    assert "after rain" in (folder / "page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("explain", "why", "--data", "bad.jsonl", "--out", "-"), "bad.jsonl, line 2 is not JSON"),
        (("explain", "why", "--data", "both.jsonl", "--out", "-"), "line 1 has neither tokens nor text"),
        (("explain", "why", "--data", "numbers.jsonl", "--out", "-"), "line 1 holds [1, 2] as tokens"),
        (("explain", "why", "--data", "blank.jsonl", "--out", "-"), "line 1 holds [] as text"),
        (("explain", "why", "--data", "nothing.jsonl", "--out", "-"), "has no sequences"),
        (("explain", "why", "--data", "X.jsonl", "--target", "games", "--out", "-"), "expected the number of a token"),
        (("explain", "why", "--data", "X.jsonl", "--target", "99", "--out", "-"), "no sequence with a token [99]"),
        (("explain", "why", "--data", "X.jsonl", "--id", "name", "--out", "-"), "--id is not for sequences"),
        (("explain", "why", "--data", "X.csv", "--out", "-"), "expected a .jsonl file"),
        (("explain", "why", "--data", "X.jsonl", "--model", "tagging:cut", "--out", "-"), "2 labels for the"),
        (("report", "why", "--data", "X.jsonl", "--target", "1", "--out", "p.html"), "every label can be chosen"),
        (
            ("evaluate", "why", "--data", "X.jsonl", "--model", "tagging:weather", "--ks", "1"),
            "--ks is not for sequences",
        ),
        (("fit", "--model", "tagging:weather", "--data", "X.jsonl", "--out", "o", "--drop", "a"), "--drop and --text"),
        (
            ("fit", "--model", "tagging:weather", "--data", "X.jsonl", "--out", "o", "--removal", "zero"),
            "removal cannot",
        ),
    ],
)
def test_what_cannot_be_is_one_line(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    (folder / "bad.jsonl").write_text('{"tokens": ["a"]}\n{"tokens": ["a"\n')
    (folder / "both.jsonl").write_text('{"words": ["a"]}\n')
    (folder / "numbers.jsonl").write_text('{"tokens": [1, 2]}\n')
    (folder / "blank.jsonl").write_text('{"text": "  "}\n')
    (folder / "nothing.jsonl").write_text("\n")
    (folder / "X.csv").write_text("a,b\n1,2\n")
    result = run(*arguments, code=1)
    assert message in result.stderr
    assert result.stderr.strip().splitlines()[-1].startswith("error: ")


def test_records_are_written_and_can_be_checked(folder: Path, fitted: SOInter) -> None:
    options = ("--data", "X.jsonl", "--model", "tagging:weather", "--out", "why.csv")
    done = run("explain", "why", *options, "-t", 2, "--verify", 3, "--records", "kept.jsonl", "--chunk-rows", 2)
    assert "one for each explanation, to check it later, in kept.jsonl" in done.output
    assert "the model predicts the same from the selected tokens" in done.output
    records = [json.loads(line) for line in (folder / "kept.jsonl").read_text().splitlines()]
    lines = [*SENTENCES[:8], ["sun", "rain", "warm"]]
    assert [one["sample"]["number"] for one in records] == [i for i, tokens in enumerate(lines) if len(tokens) > 2]
    assert [one["verification"] is not None for one in records] == [one["sample"]["number"] < 3 for one in records]
    assert {one["target"] for one in records} == {"token 2"}
    for record in records:
        check = sointer.verify_record(record, fitted, lines)
        assert check.holds, check
    assert (
        "--records and --out are both"
        in run("explain", "why", *options[:-1], "a.jsonl", "--records", "a.jsonl", code=1).stderr
    )


def test_a_table_explainer_does_not_take_sequences(folder: Path) -> None:
    quick_explainer("table").save(folder / "table")
    assert (
        ".jsonl files hold sequences, but the explainer was fitted on rows"
        in run("explain", "table", "--data", "X.jsonl", "-t", "0", "--out", "-", code=1).stderr
    )


# --- the server ------------------------------------------------------------------------------------------


def test_the_server_explains_token_lists(fitted: SOInter) -> None:
    with TestClient(create_app(fitted), base_url="http://localhost") as client:
        assert client.get("/info").json()["takes"] == "sequences"
        body = {"rows": [SENTENCE, ["rain"]], "target": [[1, 2], "all"], "paths": True, "verify": True}
        rows = client.post("/explain", json=body).json()["rows"]
        assert rows[0]["labels"] == ["dry", "dry", "after rain", "dry"]
        assert [[one["position"] for one in row["targets"]] for row in rows] == [[1, 2], [0]]
        [reason] = rows[0]["targets"][1]["selected"]
        assert (reason["token"], reason["at"], reason["label"]) == ("rain", 1, "dry")
        assert rows[0]["targets"][1]["verdict"] == "confirmed"
        assert rows[0]["value_source"] == "model"
        given = client.post("/explain", json={"rows": [["sun"]], "predicted": [["after rain"]]}).json()["rows"][0]
        assert (given["value_source"], given["labels"]) == ("given", ["after rain"])
        assert client.get("/openapi.json").status_code == 200


def test_the_server_gives_and_keeps_records(fitted: SOInter, tmp_path: Path) -> None:
    with TestClient(create_app(fitted, records=tmp_path / "kept.jsonl"), base_url="http://localhost") as client:
        body = {"rows": [SENTENCE, ["rain"]], "target": [2, 0], "format": "records", "ids": ["a", "b"], "verify": True}
        records = client.post("/explain", json=body).json()["records"]
        assert [(one["sample"]["id"], one["target"], one["value"]) for one in records] == [
            ("a", "token 2", "after rain"),
            ("b", "token 0", "dry"),
        ]
        assert records[0]["verification"]["verdict"] == "confirmed"
        assert sointer.verify_record(records[0], fitted, [SENTENCE]).holds
        assert client.post("/explain", json={"rows": [["sun", "rain"]]}).json()["rows"][0]["labels"] == ["dry", "dry"]
        kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
        assert kept[:2] == records
        assert [one["target"] for one in kept[2:]] == ["token 0", "token 1"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "lacks"),
        ({"rows": "sun rain"}, "expected a list of 1 to"),
        ({"rows": []}, "0 rows"),
        ({"rows": ["sun rain"]}, "expected a list of tokens"),
        ({"rows": [[]]}, "is empty"),
        ({"rows": [["sun", 1]]}, "holds 1 at position 1"),
        ({"rows": [["sun"] * 10_001]}, "10,001 tokens, expected at most"),
        ({"rows": [["sun"] * 600] * 2}, "1,200 labels, expected at most 1,000"),
        ({"rows": [["x" * 1001]]}, "1,001 letters"),
        ({"rows": [["sun"]], "target": 1}, "target 1 is not in sequence 0"),
        ({"rows": [["sun"]], "target": "rain"}, "target must be"),
        ({"rows": [["sun"]], "target": [0, 0]}, "target is a list of 2"),
        ({"rows": [["sun"]], "k": 0}, "k must be"),
        ({"rows": [["sun"]], "verify": "yes"}, "verify must be true or false"),
        ({"rows": [["sun"]], "predicted": [["dry", "dry"]]}, "2 labels for the 1 tokens"),
        ({"rows": [["sun"]], "predicted": [[0.5]]}, "but fit learned labels"),
        ({"rows": [["sun"]], "format": "table"}, "format must be"),
        ({"rows": [["sun"]], "format": "records", "paths": True}, "records do not hold paths"),
        ({"rows": [["sun"]], "ids": ["a", "b"]}, "ids must be a list with a name for each row (1)"),
    ],
)
def test_the_server_refuses_in_one_sentence(fitted: SOInter, body: dict[str, Any], message: str) -> None:
    with TestClient(create_app(fitted), base_url="http://localhost") as client:
        reply = client.post("/explain", json=body)
        assert reply.status_code == 422, reply.text
        assert message in reply.json()["error"]
        assert "POST /explain" in client.post("/v2/models/explainer/infer", json={"inputs": []}).json()["error"]


def test_evaluation_prefers_the_tokens_that_decide(fitted: SOInter) -> None:
    assert fitted.sequences_ is not None
    found = evaluate_sequences(fitted.sequences_, SENTENCES, n_rows=20)
    own, near, random = found.methods
    assert own.keep > max(near.keep, random.keep) + 0.05  # the token itself, which is nearest, decides nothing here
    assert own.delete > max(near.delete, random.delete)
    assert "keep" in found.table()


# --- pages -----------------------------------------------------------------------------------------------


def chosen(driver: Any) -> list[str]:
    """The tokens that are marked."""
    return [one.get_attribute("textContent") for one in driver.find_elements("css selector", ".token.chosen .word")]


def labels_of(card: Any) -> list[Any]:
    return list(card.find_elements("css selector", ".token"))


def test_a_click_or_the_keys_on_a_label_show_what_decided_it(driver: Any, fitted: SOInter, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    path = fitted.report(
        [SENTENCE, ["rain", "wet"]], tmp_path / "page.html", title=HOSTILE, sample_names=[HOSTILE, "b"]
    )
    driver.get_log("browser")
    requested(driver)
    driver.get(path.as_uri())
    cards = driver.find_elements("css selector", "section.card")
    first = labels_of(cards[0])
    assert [one.get_attribute("role") for one in first] == ["radio"] * 4
    assert [one.text.split("\n") for one in first] == list(
        map(list, zip(SENTENCE, ["dry", "dry", "after rain", "dry"], strict=True))
    )
    first[2].click()
    assert first[2].get_attribute("aria-checked") == "true"
    assert first[2].get_attribute("aria-label") == "warm, token 2: after rain"
    assert chosen(cards[0]) == ["rain"]
    panel = cards[0].find_element("css selector", ".because")
    assert panel.text.startswith("warm (token 2) is after rain because of:\nrain\ntoken 1, dry")
    assert "Confirmed" in panel.text
    # The keys: arrows move and choose, Home and End go to the ends, one stop for Tab.
    first[2].send_keys(Keys.ARROW_LEFT)
    assert driver.switch_to.active_element == first[1]
    assert panel.text.startswith("rain (token 1) is dry")
    first[1].send_keys(Keys.END)
    assert [one.get_attribute("tabindex") for one in first] == ["-1", "-1", "-1", "0"]
    first[3].send_keys(Keys.HOME)
    first[0].send_keys(Keys.ARROW_LEFT)  # around
    assert driver.switch_to.active_element == first[3]
    first[3].send_keys(Keys.TAB)
    second = labels_of(cards[1])
    assert driver.switch_to.active_element == second[0]
    second[0].send_keys(Keys.ENTER)
    assert second[0].get_attribute("aria-checked") == "true"
    assert driver.find_element("css selector", "h1").text == HOSTILE
    assert driver.get_log("browser") == []
    assert requested(driver) == [path.as_uri()]


def test_a_label_whose_reasons_were_not_found_is_not_given_any(driver: Any, fitted: SOInter, tmp_path: Path) -> None:
    """The model is said to have predicted what it never does here."""
    given = [["dry", "dry", "after rain", "after rain"], ["dry", "dry"]]
    sentences = [SENTENCE, ["sun", "warm"]]
    why = fitted.explain(sentences, predicted=given)
    assert (why.keeps < 0.5).tolist() == [False, False, False, True, False, False]
    lines = str(why).splitlines()
    assert "is after rain because of:" in lines[2]
    assert "because of" not in lines[3]
    assert re.search(
        r"is after rain for (reasons not found \(the marked tokens keep it in \d+%\)|unknown reasons):", lines[3]
    )
    path = fitted.report(sentences, tmp_path / "page.html", predicted=given)
    text = path.read_text()
    assert "Of the 2 that are not dry, 1 are confirmed, 0 unsure, 1 refuted." in text
    driver.get(path.as_uri())
    first = labels_of(driver.find_elements("css selector", "section.card")[0])
    first[3].click()
    assert "because of" not in driver.find_element("css selector", ".because").text
    assert "found" in driver.find_element("css selector", ".because").text
    never = [["dry", "dry", "dry", "after rain"], ["dry", "dry"]]
    text = fitted.report(sentences, tmp_path / "page.html", predicted=never).read_text()
    assert "None is confirmed that is after rain." in text


def test_what_does_not_fit_on_a_page_is_said(fitted: SOInter, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="first sequence has 5,001 tokens, expected at most 5,000 on a page"):
        fitted.report([["sun"] * 5001], tmp_path / "page.html")
    with pytest.raises(InputError, match="targets is for tables"):
        fitted.report([["sun"]], tmp_path / "page.html", targets=[0])
    page = fitted.report([["sun", "rain"]] * 3, tmp_path / "page.html", n_samples=2, verify=3, paths=False).read_text()
    assert "The first 2 of 3 sequences are shown" in page
    assert "The model was not queried to confirm" in page  # three queries are less than one label takes
    assert "directly or through other labels is not shown, for paths=False was given" in page
    page = fitted.report([["sun", "rain"] * 50], tmp_path / "page.html", verify=False).read_text()
    assert "In sequences of more than 64 tokens, labels are explained by the tokens around them" in page
    assert page.count('"through"') >= 50  # the label of every "sun" but the first has a reason, and paths are said
    page = fitted.report([["sun", "rain"]] * 3, tmp_path / "page.html", verify=20).read_text()
    assert "Of 2 labels checked (of 6 labels in all)" in page


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_fits_a_telephone_and_can_be_read_in_both_themes(
    driver: Any, fitted: SOInter, tmp_path: Path, theme: str
) -> None:
    long = ["Donaudampfschifffahrtsgesellschaft" * 4, *["rain", "warm"] * 30]
    path = fitted.report([long], tmp_path / "page.html", verify=False)
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        driver.get(path.as_uri())
        driver.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        driver.find_elements("css selector", ".token")[2].click()
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 390
        style = "const s = getComputedStyle(document.querySelector(arguments[0])); return [s.color, s.backgroundColor]"
        ink, paper = driver.execute_script(style, "body")
        bright = [sum(map(float, text.strip("rgba()").split(",")[:3])) for text in (ink, paper)]
        assert (bright[0] < 200 < 600 < bright[1]) if theme == "light" else (bright[1] < 200 < 600 < bright[0])
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_servers_page_shows_what_decided_a_label(driver: Any, fitted: SOInter) -> None:
    from selenium.webdriver.support.ui import Select, WebDriverWait

    def done(turn: Any) -> None:
        driver.execute_script("document.body.dataset.state = ''")
        turn()
        WebDriverWait(driver, 30).until(lambda d: d.execute_script("return document.body.dataset.state") == "done")

    with serve(create_app(fitted, examples=[SENTENCE, ["sun dry", "wet"]])) as url:
        driver.get_log("browser")
        driver.get(url)
        assert driver.find_element("id", "row").get_attribute("value") == " ".join(SENTENCE)
        driver.find_element("id", "verify").click()
        done(driver.find_element("id", "ask").click)
        labels_of(driver.find_element("id", "record"))[2].click()
        assert chosen(driver) == ["rain"]
        assert "Confirmed" in driver.find_element("css selector", ".because").text
        assert '"paths":true' in driver.find_element("id", "command").get_attribute("textContent")
        done(lambda: Select(driver.find_element("id", "example")).select_by_index(1))
        assert driver.find_element("id", "row").get_attribute("value") == '["sun dry","wet"]'
        assert [one.text.split("\n")[0] for one in labels_of(driver.find_element("id", "record"))] == ["sun dry", "wet"]
        driver.execute_script("document.getElementById('row').value = '  '")
        done(driver.find_element("id", "ask").click)
        assert "no tokens yet" in driver.find_element("id", "error").text
        assert driver.get_log("browser") == []


def test_tables_plots_and_notebooks_mark_the_tokens(fitted: SOInter, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    import matplotlib.pyplot as plt

    why = fitted.explain([SENTENCE])
    axes = why.plot(2)
    assert [patch.get_gid() for patch in axes.patches if patch.get_gid()] == ["rain"]
    assert {"after rain", "warm"} <= {text.get_text() for text in axes.texts}
    assert "warm (token 2) after rain" in axes.get_title()
    long = fitted.explain([["rain", "warm"] * 200], target=201).plot()
    assert "lines" in long.get_title()
    plt.close("all")
    page = why.to_html(tmp_path / "why.html")
    assert HOSTILE not in page
    assert (tmp_path / "why.html").read_text() == page
    assert np.isfinite(why.first(2).keeps).all()
    assert "fitted" in fitted._repr_html_()
    with pytest.raises(InputError, match="row is 9"):
        why.plot(9)
