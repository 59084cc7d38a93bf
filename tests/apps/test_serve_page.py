"""The server's page in a real browser: pick, paste, choose, see; hostile names stay text."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("jinja2")

import numpy as np
import pandas as pd

from browsing import requested
from model_server import serve
from quick import SPARSE, TABLE, TEXTS
from quick import labels as model
from quick import quick_explainer as fitted
from quick import quick_fit as fit
from sointer.apps.serve import create_app
from tickets import desk, tickets

pytestmark = pytest.mark.filterwarnings("ignore::sointer.errors.SointerWarning")
HOSTILE = "<script>alert(1)</script>"
NAMES = [HOSTILE, "b", "c & d", '"e"', "f'</script>"]
EXAMPLES = pd.DataFrame(TABLE[:6], columns=NAMES, index=[HOSTILE, *"pqrst"])


@pytest.fixture(scope="module")
def hostile() -> Any:
    def named(X: Any) -> Any:
        return pd.DataFrame(model(X.to_numpy()), columns=[HOSTILE, "y1", "y 2"])

    return fit(named, pd.DataFrame(TABLE, columns=NAMES))


class Page:
    """The page in the browser, with hands and eyes."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver, self.url = driver, url
        driver.get_log("browser")
        requested(driver)
        driver.get(url)
        self.wait(lambda: driver.execute_script("return document.body.dataset.ready") == "yes")

    def wait(self, holds: Any) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 30).until(lambda _: holds())

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        return [one.get_attribute("textContent") for one in self.driver.find_elements("css selector", selector)]

    def choose(self, selector: str, text: str) -> None:
        from selenium.webdriver.support.ui import Select

        Select(self.find(selector)).select_by_visible_text(text)

    def paste(self, text: str) -> None:
        script = "document.getElementById('row').value = arguments[0]"
        self.driver.execute_script(script, text)

    def explain(self) -> None:
        self.driver.execute_script("document.body.dataset.state = ''")
        self.find("#ask").click()
        self.done()

    def done(self) -> None:
        self.wait(lambda: self.driver.execute_script("return document.body.dataset.state") == "done")

    def features(self) -> list[str]:
        return self.texts("#record .bars .name")

    def error(self) -> str:
        return str(self.find("#error").text)

    def assert_clean(self, *, refused: bool = False) -> None:
        """Nothing in the console (but what the server refused), nothing requested from anyone else."""
        said = [entry["message"] for entry in self.driver.get_log("browser")]
        assert not [line for line in said if not (refused and "422" in line)], said
        assert {address[: len(self.url)] for address in requested(self.driver)} == {self.url}


def names_of(explanation: Any) -> list[str]:
    return [explanation.feature_names[unit] for unit in explanation.selected[0] if unit >= 0]


def test_pick_a_sample_and_a_target(driver, hostile):
    with serve(create_app(hostile, examples=EXAMPLES)) as url:
        page = Page(driver, url)
        assert page.texts("#target option") == [HOSTILE, "y1", "y 2"]
        assert page.texts("#example option") == [HOSTILE, *"pqrst"]
        page.explain()
        first = hostile.explain(EXAMPLES.iloc[:1], 0)
        assert page.features() == names_of(first)
        assert first.effects is not None
        wanted = first.effects[0, first.selected[0]]
        shown = [float(text.replace("−", "-")) for text in page.texts("#record li:not(.rest) .effect")]
        assert shown == pytest.approx(wanted, rel=0.01)
        assert page.texts("#record .head .push") == [
            f"pushes the probability that {HOSTILE} is {first.value[0]} up or down by"
        ]
        needed = first.needed[0, first.selected[0]]
        assert len(page.texts("#record .idle")) == (~needed).sum()
        assert HOSTILE in page.find("#record .answer").text
        page.choose("#example", "q")
        page.done()
        page.driver.execute_script("document.body.dataset.state = ''")
        page.choose("#target", "y 2")  # sends again by itself after the first request
        page.explain()
        assert page.features() == names_of(hostile.explain(EXAMPLES.iloc[2:3], "y 2"))
        assert "Sample q: the model predicts that y 2 is " in page.find("#record .answer").text
        page.find("#verify").click()
        page.explain()
        assert "onfirmed" in page.find("#record .check").text
        assert "not queried" not in page.find("#record .check").text
        assert "curl " in page.texts("#command")[0]
        page.find("#theme").click()
        assert page.find("html").get_attribute("data-theme") in ("light", "dark")
        assert not page.find("#far").is_displayed()
        page.paste("99,99,99,99,99")
        page.explain()
        assert page.find("#far").is_displayed()
        page.assert_clean()


def test_paste_a_row_in_many_ways(driver, hostile):
    row = TABLE[8].tolist()
    expected = names_of(hostile.explain(pd.DataFrame([row], columns=NAMES), "y1", k=3))
    with serve(create_app(hostile)) as url:
        page = Page(driver, url)
        page.choose("#target", "y1")
        page.find("#k").clear()
        page.find("#k").send_keys("3")
        lines = [",".join(map(str, row)), "\t".join(map(str, row)), ";".join(map(str, row)), str(row)]
        for text in [*lines, "\t".join(NAMES) + "\n" + "\t".join(map(str, row))]:
            page.paste(text)
            page.explain()
            assert page.error() == ""
            assert page.features() == expected, text
        page.paste("{1, 2")
        page.explain()
        assert "looks like JSON" in page.error()
        assert page.features() == []
        page.paste("1,2")
        page.explain()
        assert "expected 5" in page.error()
        page.paste("")
        page.explain()
        assert "paste one" in page.error()
        page.paste("1,2,3,4,oops")
        page.explain()
        assert "oops" in page.error()
        page.assert_clean(refused=True)


def test_the_first_row_is_nobodys_and_works(driver):
    for kind, n_shown in (("table", 2), ("frame", 2), ("sparse", 2)):
        with serve(create_app(fitted(kind))) as url:
            page = Page(driver, url)
            page.explain()
            assert page.error() == ""
            assert len(page.features()) <= n_shown
            page.assert_clean()


def test_texts_are_marked(driver):
    with serve(create_app(fitted("texts"), examples=TEXTS[:3])) as url:
        page = Page(driver, url)
        page.paste(f"rain and sun {HOSTILE} wind")
        page.explain()
        assert page.features() == names_of(fitted("texts").explain([f"rain and sun {HOSTILE} wind"], 0))
        assert HOSTILE in page.find("#record .document").text
        assert page.texts("#record mark")
        page.assert_clean()


def test_words_are_marked_in_the_texts_of_a_table(driver):
    X = tickets(120, 0).assign(subject=tickets(120, 1)["text"], plan=HOSTILE)
    explainer = fit(desk, X, text_columns=["text", "subject"], k=4)
    with serve(create_app(explainer, examples=X[:3])) as url:
        page = Page(driver, url)
        page.explain()
        explanation = explainer.explain(X[:1], "refund")
        assert page.features() == names_of(explanation)
        assert page.find("#record .document").text.split("\n") == [X["text"][0], X["subject"][0]]
        spans = explanation.source.spans(0)
        chosen = set(explanation.selected[0].tolist())
        marked = [explanation.source.texts[0][start:end] for start, end, unit in spans if unit in chosen]
        assert [mark.text for mark in driver.find_elements("css selector", "#record mark")] == marked
        page.assert_clean()
    with serve(create_app(explainer)) as url:  # a typical row, with empty texts
        page = Page(driver, url)
        page.explain()
        page.assert_clean()


def test_sparse_rows_and_images(driver):
    with serve(create_app(fitted("sparse"), examples=SPARSE[:4])) as url:
        page = Page(driver, url)
        page.explain()
        assert page.features() == names_of(fitted("sparse").explain(SPARSE[:1], 0))
        assert len(page.texts("#record .chip")) == SPARSE[[0]].nnz
        page.assert_clean()
    with serve(create_app(fitted("images"))) as url:
        page = Page(driver, url)
        assert "POST /explain" in page.find("main").text
        page.assert_clean()


def test_what_is_missing_says_so_and_truth_values_are_such(driver):
    frame = pd.DataFrame({"debt": np.where(TABLE[:, 0] > 0, TABLE[:, 0], np.nan), "vip": TABLE[:, 1] > 0})
    explainer = fit(lambda X: np.column_stack([X["debt"].isna(), X["vip"]]), frame, k=2)
    with serve(create_app(explainer)) as url:
        page = Page(driver, url)
        page.paste('{"debt": null, "vip": false}')
        page.explain()
        assert set(page.texts("#record .bars .value")) == {"= missing", "= false"}
        assert "The values explained are the model's predictions." in page.texts("footer")[0]
        page.assert_clean()


def test_probabilities_have_their_label_and_verdicts_are_three(driver):
    def chances(X: Any) -> Any:
        # The third depends on everything, so that two features confirm it in some draws only.
        return np.column_stack([1 / (1 + np.exp(-3 * X[:, 0])), np.full(len(X), 0.9), X.sum(axis=1) > 1.5])

    explainer = fit(chances, TABLE, output_names=["warm", "same", "odd"], k=1)
    with serve(create_app(explainer, examples=TABLE)) as url:
        page = Page(driver, url)
        page.find("#verify").click()
        page.explain()
        assert page.texts("footer")[0].startswith("Explains 3 outputs by 5 features.")
        chance = chances(TABLE[:1])[0, 0]
        warm = f"the model predicts that warm is {int(chance > 0.5)} (probability {float(f'{chance:.3g}'):g})."
        assert page.texts("#record .answer")[0].endswith(warm)
        said = set()
        for row in range(len(TABLE)):
            explanation = explainer.explain(TABLE[row : row + 1], "odd")
            verdict = explanation.verify().verdict[0]
            if verdict in said:
                continue
            said.add(verdict)
            page.choose("#example", str(row))
            page.done()
            page.choose("#target", "odd")
            page.done()
            page.explain()
            shown = {"confirmed": "✓ Confirmed", "unsure": "≈ Unsure", "refuted": "✗ Refuted"}[verdict]
            assert page.texts("#record .check")[0].startswith(shown)
        assert said == {"confirmed", "unsure", "refuted"}
        assert driver.get_log("browser") == []


def test_on_a_telephone_the_heads_of_columns_do_not_overlap(driver, hostile):
    size = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        with serve(create_app(hostile, examples=EXAMPLES)) as url:
            page = Page(driver, url)
            page.explain()
            script = """return [...document.querySelectorAll('.bars .head span')].map((one) => {
                const range = document.createRange();
                range.selectNodeContents(one);
                const { left, right } = range.getBoundingClientRect();
                return [left, right];
            })"""
            relevance, push = driver.execute_script(script)
            assert relevance[1] <= push[0]
            assert driver.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
