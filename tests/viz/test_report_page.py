"""The report's page in a real browser: searching, choosing, keys, links, colours, printing, hostile names."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from browsing import requested

pytest.importorskip("jinja2")

from sointer.paths import Localities, Locality
from sointer.viz.report.content import (
    Card,
    EffectSummary,
    PathSummary,
    ReportContent,
    TargetPaths,
)
from sointer.viz.report.page import TEMPLATES, render_report
from sointer.viz.report.samples import PartialEffect

HOSTILE = "<script>alert(1)</script>"
N_TARGETS, N_SAMPLES, N_UNITS, K = 6, 40, 30, 4
TARGETS = ["games", "physics", HOSTILE, "web & more", "50 % + x", "constant"]


def content(**changes: Any) -> ReportContent:
    """Six outputs of 40 samples; "games" is 1 in a quarter of them, and every seventh explanation failed."""
    rng = np.random.default_rng(0)
    codes = (rng.random((N_TARGETS, N_SAMPLES)) < 0.25).astype(int)
    codes[0] = np.arange(N_SAMPLES) % 4 == 0
    codes[5] = 0
    selected = np.array([[rng.permutation(N_UNITS)[:K] for _ in range(N_SAMPLES)] for _ in range(N_TARGETS)])
    selected[:, 3, 2:] = -1
    agreement = np.where(np.arange(N_SAMPLES) % 7 == 1, 0.4, 1.0) * np.ones((N_TARGETS, 1))
    agreement[:, 2] = 0.8
    agreement[1] = np.nan
    units = [HOSTILE, *(f"word{i}" for i in range(1, N_UNITS))]
    strength = rng.random((N_TARGETS, N_TARGETS))
    way = PathSummary(0, 15, 0.5, 0.1, 0.2, [(1, 0.3), (2, -0.05)])
    values: dict[str, Any] = {
        "title": f"Why? {HOSTILE}",
        "lead": f"What decides {HOSTILE}",
        "cards": [Card("confirmed", "90%", "of all", f"meaning {HOSTILE}")],
        "notes": [HOSTILE],
        "warnings": [f"Careful: {HOSTILE}"],
        "samples": [HOSTILE, *(f"s{i}" for i in range(1, N_SAMPLES))],
        "targets": TARGETS,
        "units": units,
        "unit_noun": "feature",
        "kind": "binary",
        "values": ["no", f"yes {HOSTILE}"],
        "codes": codes,
        "numbers": None,
        "selected": selected,
        "scores": np.sort(rng.random(selected.shape), axis=2)[:, :, ::-1],
        "agreement": agreement,
        "difference": 1 - agreement,
        "n_draws": 10,
        "tolerance": 0.1,
        "unit_values": [{unit: f"{HOSTILE}{unit}" for unit in range(N_UNITS)} for _ in range(N_SAMPLES)],
        "outputs": TARGETS,
        "interactions": (strength + strength.T) * (1 - np.eye(N_TARGETS)),
        "paths": {0: TargetPaths([way], 12, "")},
    }
    return ReportContent(**{**values, **changes})


def localities(places: tuple[Locality, ...], *, decided: bool = True) -> Localities:
    return Localities("any", decided, places, ())


def known() -> dict[str, Any]:
    """What a report on a table shows besides: every second feature is not needed, and every third one pushes down."""
    rng = np.random.default_rng(1)
    shape = (N_TARGETS, N_SAMPLES, K)
    effects = rng.random(shape) * np.where(np.arange(K) % 3 == 2, -1, 1)
    base = np.full(shape[:2], 0.25)
    places = (
        Locality(0, (f"{HOSTILE} > 1",), 0.7, (HOSTILE, "word3"), (0.5, 0.125)),
        Locality(1, ("word2 <= 1",), 0.3, ("word5",), (0.25,)),
    )
    return {
        "needed": np.broadcast_to(np.arange(K) % 2 == 0, shape),
        "effects": EffectSummary(effects, base, base + effects.sum(axis=2) + 0.5),
        "n_more": np.where(np.arange(N_SAMPLES) == 9, 3, 0) * np.ones((N_TARGETS, 1), dtype=int),
        "localities": [localities(places)] * (N_TARGETS - 1) + [localities(places[:1], decided=False)],
        "locality": np.array([np.arange(N_SAMPLES) % 2] * (N_TARGETS - 1) + [np.zeros(N_SAMPLES, dtype=int)]),
        "quality": [(0.95, 0.9)] * (N_TARGETS - 1) + [(1.0, np.nan)],
    }


class Page:
    """A report in the browser, with hands and eyes."""

    def __init__(self, driver: Any, some: ReportContent, path: Path, link: str = "") -> None:
        self.driver, self.content, self.path = driver, some, path
        driver.get_log("browser")  # what earlier pages said is forgotten
        requested(driver)
        path.write_text(render_report(some), encoding="utf-8")
        driver.get(path.as_uri() + link)
        assert driver.find_element("tag name", "body").get_attribute("data-ready") == "yes"

    def find(self, name: str) -> Any:
        return self.driver.find_element("id", name)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def state(self, key: str) -> str:
        return str(self.driver.find_element("tag name", "body").get_attribute(f"data-{key}"))

    def until(self, key: str, value: str) -> None:
        """Wait for what the browser does in its own time."""
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.driver, 20).until(lambda _: self.state(key) == value)

    @property
    def link(self) -> str:
        return str(self.driver.execute_script("return location.hash"))

    def go(self, link: str) -> None:
        """Follow a link of the page and wait until it is shown."""
        script = """const [link, done] = arguments;
            addEventListener("hashchange", () => setTimeout(done), {once: true});
            location.hash = link;"""
        self.driver.execute_async_script(script, link)

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def shown(self) -> list[tuple[str, str]]:
        """Names and values of the features on display."""
        return [
            tuple(li.find_element("class name", part).get_attribute("textContent") for part in ("name", "value"))
            for li in self.all("#record .bars li:not(.head):not(.rest)")
        ]

    def wanted(self, target: int, sample: int) -> list[tuple[str, str]]:
        units = [int(unit) for unit in self.content.selected[target, sample] if unit >= 0]
        return [(self.content.units[unit], f"= {self.content.unit_values[sample][unit]}") for unit in units]


@pytest.fixture
def page(driver: Any, tmp_path: Path) -> Iterator[Page]:
    made = Page(driver, content(), tmp_path / "report.html")
    yield made
    assert driver.get_log("browser") == []


def test_it_opens_with_the_overview_and_asks_for_nothing_else(page: Page) -> None:
    assert page.state("view") == "overview"
    assert page.find("overview-name").text == f"What decides {HOSTILE}"
    assert [row.text for row in page.all("#outputs th")] == TARGETS
    assert len(page.all("#map-figure rect")) == N_TARGETS**2
    page.go("target=games")
    page.press("n")
    assert requested(page.driver) == [page.path.as_uri()]


def test_search_finds_outputs_features_and_samples_by_keyboard_alone(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page.press("/")
    assert page.driver.switch_to.active_element.get_attribute("id") == "search"
    page.press(*"phys", Keys.ENTER)
    assert page.state("view") == "target"
    assert page.find("target-name").text == "physics"
    page.press("/", *"word12", Keys.ENTER)
    assert page.state("view") == "feature"
    assert page.find("feature-name").text == "word12"
    page.press("/", *"s1")
    found = [option.text for option in page.all("#results [role=option]")]
    assert found[:3] == ["s1", "s10", "s11"]
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.ENTER)
    assert (page.state("view"), page.state("target"), page.state("sample")) == ("target", "physics", "s10")
    page.press("/", *"nowhere to be found")
    assert page.find("results").text == "Nothing has this in its name."
    page.press(Keys.ESCAPE)
    assert not page.find("results").is_displayed()


def test_every_target_and_sample_shows_what_was_selected_for_it(page: Page) -> None:
    for target, sample in ((0, 0), (2, 3), (4, 39), (5, 17)):
        name = quote(page.content.samples[sample], safe="")
        page.go(f"target={quote(TARGETS[target], safe='')}&sample={name}")
        assert page.find("target-name").text == TARGETS[target]
        assert page.shown() == page.wanted(target, sample)
        code = page.content.codes[target, sample]
        who, said = page.content.samples[sample], page.content.values[code]
        answer = f"Sample {who}: the model predicts that {TARGETS[target]} is {said}."
        assert page.driver.find_element("css selector", "#record .answer").text == answer
    lengths = [float(bar.value_of_css_property("width")[:-2]) for bar in page.all("#record .bar")]
    scores = page.content.scores[5, 17]
    np.testing.assert_allclose(np.array(lengths) / max(lengths), scores / scores.max(), atol=0.01)
    colours = {bar.value_of_css_property("background-color") for bar in page.all("#record .bar")}
    assert len(colours) == 1, "relevance has no sign"
    assert page.all("#record .push, #record .up, #record .down, #record .where") == [], "no effect is known"
    assert not page.find("localities-card").is_displayed()


def test_effects_are_coloured_by_sign_and_what_is_not_needed_is_hollow(driver: Any, tmp_path: Path) -> None:
    page = Page(driver, content(**known()), tmp_path / "report.html", "#target=games&sample=s9")
    summary = page.content.effects
    assert summary is not None
    effects = summary.effects[0, 9]
    texts = [node.text for node in page.all("#record .bars li:not(.rest) .effect")]
    assert [float(text.replace("−", "-")) for text in texts] == pytest.approx(effects, rel=0.01)
    sides = [node.get_attribute("class") for node in page.all("#record li:not(.rest) .push i")]
    assert sides == ["down" if effect < 0 else "up" for effect in effects]
    up, down = (page.all(f"#record .effect.{side}")[0].value_of_css_property("color") for side in ("up", "down"))
    assert up != down
    assert page.driver.find_element("css selector", "#record .rest .effect").text == "+0.5"
    lines = page.all("#record .bars li:not(.head):not(.rest)")
    assert [line.get_attribute("class") == "idle" for line in lines] == [False, True, False, True]
    clear = "rgba(0, 0, 0, 0)"
    backgrounds = [line.find_element("class name", "bar").value_of_css_property("background-color") for line in lines]
    assert [background == clear for background in backgrounds] == [False, True, False, True]
    shown_text = page.find("record").text
    assert "pushes the probability that games is no up or down by" in shown_text
    assert (
        f"The probability that games is no is 0.25 on average; all effects lead to {summary.total[0, 9]:.3g}."
        in shown_text
    )
    assert "Hollow: not needed (2)" in shown_text
    assert "3 more are needed that are not listed." in shown_text
    assert "Locality: word2 <= 1 (30 % of samples)." in shown_text
    assert driver.get_log("browser") == []


def test_counts_leave_out_what_is_not_needed(driver: Any, tmp_path: Path) -> None:
    page = Page(driver, content(**known()), tmp_path / "report.html", "#feature=word3")
    counts = (page.content.counted == 3).any(axis=2).sum(axis=1)
    shown = {line.find_element("class name", "name").text: line for line in page.all("#uses section")}
    assert set(shown) == {TARGETS[i] for i in np.flatnonzero(counts)}
    for name, line in shown.items():
        assert int(line.find_element("class name", "value").text) == counts[TARGETS.index(name)]


def test_localities_are_a_map_and_outputs_have_their_own_quality(driver: Any, tmp_path: Path) -> None:
    page = Page(driver, content(**known()), tmp_path / "report.html", "#target=games")
    assert page.find("localities-name").text == "Which features matter where"
    rows = [[cell.text for cell in row.find_elements("css selector", "th, td")] for row in page.all(".localities tr")]
    assert rows == [
        ["where", "samples", HOSTILE, "word3", "word5"],
        [f"{HOSTILE} > 1", "70 %", "0.5", "0.125", ""],
        ["word2 <= 1", "30 %", "", "", "0.25"],
    ]
    assert (
        "The explainer predicts 95 % of its held-out outputs correctly (skill 90 %)."
        in page.find("target-summary").text
    )
    page.go("target=constant")
    assert "Many features contribute a little" in page.find("localities").text
    page.go("overview")
    cells = [row.find_elements("tag name", "td")[2].text for row in page.all("#outputs tr")]
    assert cells == ["90 %"] * 5 + ["–"]
    assert driver.get_log("browser") == []


def test_a_locality_has_one_share_on_all_of_the_page(driver: Any, tmp_path: Path) -> None:
    places = (
        Locality(0, ("word2 > 1",), 0.695, ("word1",), (0.5,)),
        Locality(1, ("word2 <= 1",), 0.305, ("word5",), (0.25,)),
    )
    some = content(**known() | {"localities": [localities(places)] * N_TARGETS})
    page = Page(driver, some, tmp_path / "report.html", "#target=games&sample=s5")
    assert "(30 % of samples)" in page.find("record").text
    assert "30 %" in page.find("localities").text


def test_cards_say_how_much_of_the_localities_they_leave_out(driver: Any, tmp_path: Path) -> None:
    six = tuple(f"word{unit}" for unit in range(3, 9))
    places = tuple(Locality(i, (f"word2 = {i}",), 0.2, six, (0.5,) * 6) for i in range(5))
    for n, left_out in ((4, 0), (5, 1)):
        some = content(**known() | {"localities": [localities(places[:n])] * N_TARGETS})
        lines = Page(driver, some, tmp_path / f"{n}.html").all("#deciding > section")[0].text.split("\n")
        assert sum(line.endswith("and 1 more") for line in lines) == 4 + left_out, "features, then localities"
        assert ("and 1 more" in lines) == bool(left_out)
        assert "false" not in lines


def test_the_first_screen_shows_what_decides_which_way_and_where(driver: Any, tmp_path: Path) -> None:
    sizes = np.random.default_rng(3).permutation(N_UNITS) / N_UNITS
    partial = {
        unit: PartialEffect(np.arange(5.0), np.linspace(-1, 1, 5), (), size, 1.0) for unit, size in enumerate(sizes)
    }
    page = Page(driver, content(**known(), partial=[partial] * (N_TARGETS - 1) + [{}]), tmp_path / "report.html")
    cards = page.all("#deciding > section")
    assert [card.find_element("tag name", "h4").text for card in cards] == TARGETS
    games = cards[0]
    counts = np.bincount(page.content.counted[0].ravel()[page.content.counted[0].ravel() >= 0], minlength=N_UNITS)
    most_needed = np.argsort(-counts, kind="stable")[:10]
    best = [page.content.units[unit] for unit in most_needed[np.argsort(-sizes[most_needed])][:5]]
    widths = [bar.size["width"] for bar in games.find_elements("css selector", ".needs .bar")]
    assert widths == sorted(widths, reverse=True), "the longest bar comes first"
    assert f"no: 75 % · yes {HOSTILE}: 25 %" in games.text, "values in their own order"
    assert games.find_element("css selector", ".regions .head").text.split("\n") == ["samples", "where", "decided by"]
    assert "In percent: samples that need the feature." in cards[5].text
    assert "In percent" not in games.text
    assert "and at least 5 more" in games.text
    assert [name.text for name in games.find_elements("css selector", ".needs .name")] == best
    assert len(games.find_elements("css selector", ".needs svg circle.up, .needs svg circle.down")) == 5 * 5
    assert "larger values raise games" in games.find_elements("css selector", ".needs li")[0].get_attribute("title")
    assert [line.text for line in games.find_elements("css selector", ".regions .region")] == [
        f"{HOSTILE} > 1",
        "word2 <= 1",
    ]
    top = games.find_element("css selector", ".needs").location["y"]
    assert top < page.find("notes").location["y"], "what decides comes before what the page cannot say"
    assert driver.get_log("browser") == []


def test_of_two_labels_the_page_says_which_is_up(driver: Any, tmp_path: Path) -> None:
    partial = {unit: PartialEffect(np.arange(5.0), np.linspace(-1, 1, 5), (), 0.5, 1.0) for unit in range(N_UNITS)}
    upper = ["halt", None, *["halt"] * (N_TARGETS - 2)]
    some = content(**known(), partial=[partial] * (N_TARGETS - 1) + [{}], upper=upper)
    page = Page(driver, some, tmp_path / "report.html")
    cards = page.all("#deciding > section")
    assert ["Up: more probably halt." in card.text for card in cards] == [True, False, True, True, True, False]
    moved = cards[0].find_element("css selector", ".needs li").get_attribute("title")
    assert "moves the probability that games is halt by 0.5" in moved
    assert "larger values raise the probability that games is halt" in moved
    page.go("feature=word3")
    assert "Up: more probably halt." in page.find("uses").text
    assert driver.get_log("browser") == []


def test_the_page_of_a_feature_shows_missing_values_dates_and_how_many_values_there_are(
    driver: Any, tmp_path: Path
) -> None:
    effects, missing = np.linspace(-0.2, -0.1, 5), np.array([0.4, 0.5])
    names = tuple(f"shop number {i}" for i in range(12))
    partial = [
        {1: PartialEffect(np.arange(5.0), effects, (), 0.3, 0.0, missing, 0.45)},
        {1: PartialEffect(86400 * np.arange(5.0), effects, (), 0.3, 0.9, ends=("2020-03-01", "2020-03-05"))},
        {1: PartialEffect(np.arange(12), np.linspace(-1, 1, 12), names, 0.3, n_values=40)},
        {},
        {},
        {},
    ]
    page = Page(driver, content(**known(), partial=partial), tmp_path / "report.html", "#feature=word1")
    uses = {use.find_element("tag name", "h3").text: use for use in page.all("#uses > section")}
    gap, day, shop = (uses[name] for name in TARGETS[:3])
    assert len(gap.find_elements("css selector", "circle.up.missing")) == 2
    assert "where it is missing, that raises games by 0.45 on average" in gap.text
    assert [text.text for text in gap.find_elements("css selector", "svg text")][:3] == ["+0.5", "0", "−0.5"]
    assert "missing" in [text.text for text in gap.find_elements("css selector", "svg text")]
    assert {"2020-03-01", "2020-03-05"} <= {text.text for text in day.find_elements("css selector", "svg text")}
    labels = [text.text for text in shop.find_elements("css selector", "svg text")]
    assert set(names) <= set(labels)
    assert labels[-1] == "word1 (the 12 most frequent of 40 values)"
    assert "Each dot is a sample" in page.find("feature-summary").text
    for picture in page.all("#uses svg"):
        box = picture.rect
        for text in picture.find_elements("css selector", "text"):
            assert text.rect["y"] + text.rect["height"] <= box["y"] + box["height"] + 1, text.text
    page.go("feature=word2")
    assert "Each dot" not in page.find("feature-summary").text, "there is none"
    page.go("overview")
    games = page.all("#deciding > section")[0]
    assert len(games.find_elements("css selector", ".needs circle.missing")) in (0, 2)
    assert driver.get_log("browser") == []


def test_shares_of_values_add_up_whatever_is_left_out(driver: Any, tmp_path: Path) -> None:
    codes = np.tile([0, 1, 2, 3], (N_TARGETS, N_SAMPLES // 4))
    codes[1] = np.arange(N_SAMPLES) % 8
    some = content(codes=codes, values=list("abcdefgh"), kind="categorical")
    page = Page(driver, some, tmp_path / "report.html")
    rates = [cell.text for cell in page.all("#outputs .rate")]
    assert rates[0] == "a: 25 % · b: 25 % · c: 25 % · d: 25 %", "no value of four is left out"
    assert rates[1].endswith("others: 62 %") or rates[1].endswith("others: 63 %")
    for rate in rates:
        assert sum(float(part.split(": ")[1].rstrip(" %")) for part in rate.split(" · ")) == pytest.approx(100)


def test_values_that_need_nothing_say_so(driver: Any, tmp_path: Path) -> None:
    selected = content().selected.copy()
    selected[0, content().codes[0] == 0] = -1
    page = Page(driver, content(selected=selected), tmp_path / "report.html", "#target=games")
    cards = {card.find_element("tag name", "h3").text: card.text for card in page.all("#values > section")}
    assert "No feature is needed" in cards["Why no?"]
    assert "No feature is needed" not in cards[f"Why yes {HOSTILE}?"]


def test_many_outputs_are_shown_some_at_a_time(driver: Any, tmp_path: Path) -> None:
    names, base = [f"t{i}" for i in range(30)], content()
    many = {name: np.repeat(getattr(base, name)[:1], 30, axis=0) for name in ("codes", "selected", "scores")}
    many |= {name: np.repeat(getattr(base, name)[:1], 30, axis=0) for name in ("agreement", "difference")}
    some = content(targets=names, outputs=names, interactions=None, paths={}, **many)
    page = Page(driver, some, tmp_path / "report.html")
    assert len(page.all("#deciding > section")) == 12
    page.find("more-outputs").click()
    page.find("more-outputs").click()
    assert len(page.all("#deciding > section")) == 30
    assert not page.find("more-outputs").is_displayed()
    shares = page.all("#outputs .rate")[0].text
    assert sum(float(part.split(": ")[1].rstrip(" %")) for part in shares.split(" · ")) == pytest.approx(100)


def test_samples_are_picked_by_click_and_by_keys_and_stop_at_the_ends(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page.go("target=games&sample=s5")
    page.find("sample-7").click()
    assert page.link == "#target=games&sample=s7"
    assert page.shown() == page.wanted(0, 7)
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)
    assert page.state("sample") == "s8"
    page.press(Keys.PAGE_DOWN, "n", "p", "p")
    assert page.state("sample") == "s17"
    page.press(Keys.END, Keys.ARROW_DOWN)
    assert page.state("sample") == "s39"
    page.press(Keys.HOME)
    assert page.state("sample") == HOSTILE
    marked = page.all('#list [aria-selected="true"]')
    assert [option.get_attribute("data-sample") for option in marked] == ["0"]
    assert page.find("list").get_attribute("aria-activedescendant") == "sample-0"


def test_samples_can_be_filtered_by_value_and_failure(page: Page) -> None:
    from selenium.webdriver.support.select import Select

    page.go("target=games&sample=s5")
    Select(page.find("filter")).select_by_value("1")
    listed = [int(option.get_attribute("data-sample")) for option in page.all("#list li")]
    assert listed == list(range(0, N_SAMPLES, 4))
    assert page.state("sample") == HOSTILE, "the sample shown is one of those listed"
    Select(page.find("filter")).select_by_value("refuted")
    listed = [int(option.get_attribute("data-sample")) for option in page.all("#list li")]
    assert listed == list(range(1, N_SAMPLES, 7))
    assert page.driver.find_element("css selector", "#record .check").text.startswith("✗ Refuted")
    Select(page.find("filter")).select_by_value("unsure")
    assert [option.get_attribute("data-sample") for option in page.all("#list li")] == ["2"]
    assert page.driver.find_element("css selector", "#record .check").text.startswith("≈ Unsure")
    page.go("target=physics&sample=s5")
    assert len(page.all("#list li")) == N_SAMPLES, "another target begins with all samples"
    assert page.driver.find_element("css selector", "#record .check").text.startswith("○ The model was not queried")
    assert page.find("failing").text.startswith("Not known")


def test_links_lead_from_target_to_feature_and_back(page: Page) -> None:
    page.go("target=games")
    first = page.all("#values .name")[0]
    name = first.text
    first.click()
    assert (page.state("view"), page.find("feature-name").text) == ("feature", name)
    unit = page.content.units.index(name)
    uses = {
        li.find_element("class name", "name").text: li.find_element("class name", "value").text
        for li in page.all("#uses section")
    }
    wanted = (page.content.selected == unit).any(axis=2).sum(axis=1)
    assert uses == {TARGETS[i]: str(wanted[i]) for i in range(N_TARGETS) if wanted[i]}
    page.all("#uses a")[0].click()
    assert page.state("view") == "target"
    page.driver.back()
    page.until("view", "feature")


def test_a_deep_link_opens_where_it_points_and_a_wrong_one_says_so(driver: Any, tmp_path: Path) -> None:
    page = Page(driver, content(), tmp_path / "report.html", "#target=50%20%25%20%2B%20x&sample=s3")
    assert (page.state("target"), page.state("sample")) == ("50 % + x", "s3")
    assert page.shown() == page.wanted(4, 3)
    page.go("target=nothing")
    assert page.find("notice").text == "This report has no output named “nothing”."
    assert page.state("view") == "overview"
    assert driver.get_log("browser") == []


def test_it_is_dark_where_the_system_is_and_the_button_changes_it(page: Page) -> None:
    def brightness() -> int:
        colour = page.driver.find_element("tag name", "body").value_of_css_property("background-color")
        return sum(int(part) for part in re.findall(r"\d+", colour)[:3])

    assert brightness() > 700
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        assert brightness() < 120
        page.find("theme").click()
        assert brightness() > 700
        page.driver.refresh()
        assert brightness() > 700, "what was chosen is remembered"
        page.find("theme").click()
        assert brightness() < 120
    finally:
        page.driver.execute_script("localStorage.clear()")
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_printed_it_has_the_overview_and_the_target_on_display(page: Page) -> None:
    page.go("target=games&sample=s5")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert page.find("overview-view").is_displayed()
        assert page.find("target-view").is_displayed()
        assert page.find("record").is_displayed()
        assert not page.find("list").is_displayed()
        assert not page.find("search").is_displayed()
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    pdf = base64.b64decode(page.driver.print_page())
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 2
    streams = [zlib.decompress(found) for found in re.findall(rb"stream\r?\n(x\x9c.*?)\r?\nendstream", pdf, re.DOTALL)]
    assert sum(stream.count(b"Tj") + stream.count(b"TJ") for stream in streams) > 100, "text is drawn"


def test_hostile_names_are_shown_as_text_and_never_run(page: Page) -> None:
    from selenium.common.exceptions import NoAlertPresentException

    page.press("/", *"<script")
    assert [option.text for option in page.all("#results [role=option]")] == [HOSTILE] * 3
    page.go(f"target={quote(HOSTILE)}&sample={quote(HOSTILE)}")
    assert page.find("target-name").text == HOSTILE
    page.go(f"feature={quote(HOSTILE)}")
    assert page.find("feature-name").text == HOSTILE
    with pytest.raises(NoAlertPresentException):
        _ = page.driver.switch_to.alert.text
    assert page.driver.title == f"Why? {HOSTILE}"
    assert page.driver.execute_script("return document.scripts.length") == 2


def test_words_are_marked_where_they_stand_in_the_text(driver: Any, tmp_path: Path) -> None:
    text = f"😀 New\nYork, new york! Newyork {HOSTILE} c++ (c++) Äpfel"
    units = ["new york", "äpfel", "york", "c++", *(f"w{i}" for i in range(N_UNITS - 4))]
    selected = np.tile([0, 1, 3, 10], (N_TARGETS, N_SAMPLES, 1))
    patterns = {0: "(?i)new\\syork", 1: "Äpfel", 3: r"c\+\+"}
    spans = {unit: [match.span() for match in re.finditer(pattern, text)] for unit, pattern in patterns.items()}
    of_texts = {"unit_noun": "word", "texts": [text] * N_SAMPLES, "spans": [spans] * N_SAMPLES, "paths": {}}
    some = content(units=units, selected=selected, **of_texts)
    page = Page(driver, some, tmp_path / "report.html", "#target=games")
    colours = {mark.value_of_css_property("background-color").rsplit(",", 1)[0] for mark in page.all("#record mark")}
    assert len(colours) == 1, "no effect is known"
    marks = [mark.text for mark in page.all("#record mark")]
    assert marks == ["New\nYork", "new york", "c++", "c++", "Äpfel"]
    assert page.driver.find_element("css selector", "#record .document").get_attribute("textContent") == text
    assert "Of texts, what words do through other outputs is not known." in page.find("paths").text
    assert driver.get_log("browser") == []


def test_mostly_zero_rows_show_all_that_they_have(driver: Any, tmp_path: Path) -> None:
    present = [np.unique(content().selected[:, i].clip(0)) for i in range(N_SAMPLES)]
    page = Page(driver, content(present=present), tmp_path / "report.html", "#target=games&sample=s3")
    chips = page.all("#record .chip")
    assert [chip.text for chip in chips] == [page.content.units[unit] for unit in present[3]]
    assert {chip.text for chip in page.all("#record .chip.selected")} == {name for name, _ in page.wanted(0, 3)}
    assert driver.get_log("browser") == []


def test_numbers_and_probabilities_are_told_as_numbers(driver: Any, tmp_path: Path) -> None:
    numbers = np.linspace(0.0, 1.0, N_TARGETS * N_SAMPLES).reshape(N_TARGETS, N_SAMPLES)
    link = "#target=games&sample=s9"
    page = Page(driver, content(kind="probability", values=["0", "1"], numbers=numbers), tmp_path / "p.html", link)
    assert page.driver.find_element("css selector", "#record .answer").text.endswith(
        f"is 0 (probability {numbers[0, 9]:.3g})."
    )
    verdict = "✓ Confirmed: shown nothing else, the model's probability stays on its side of 0.5."
    assert page.driver.find_element("css selector", "#record .check").text == verdict
    assert "the model's probability did not stay on its side of 0.5" in page.find("failing").text
    assert f"physics: {numbers[1, 9]:.3g}" in [chip.text for chip in page.all("#others .chip")]
    effects = known()
    some = content(kind="continuous", values=["low", "high"], numbers=numbers, **effects)
    page = Page(driver, some, tmp_path / "e.html", link)
    page.go("overview")
    assert "from 0 to 0.163, half of them below 0.0837" in page.all("#deciding > section")[0].text
    assert "from these alone, off by 0.095 sd" in page.all("#deciding > section")[0].text
    page.go(link[1:])
    total = effects["effects"].total[0, 9]
    shown_text = f"games is 0.25 on average; all effects lead to {total:.3g}; the model predicts {numbers[0, 9]:.3g}."
    assert shown_text in page.find("record").text
    page = Page(driver, content(kind="continuous", values=["low", "high"], numbers=numbers), tmp_path / "c.html", link)
    assert page.driver.find_element("css selector", "#record .answer").text.endswith(f"is {numbers[0, 9]:.3g}.")
    years = content(kind="continuous", values=["low", "high"], numbers=np.full((N_TARGETS, N_SAMPLES), 2021.0))
    page = Page(driver, years, tmp_path / "y.html", link)
    assert page.driver.find_element("css selector", "#record .answer").text.endswith("games is 2,021.")
    kinds = ["probability", "binary", "continuous", *["binary"] * 3]
    agreement = np.ones((N_TARGETS, N_SAMPLES))
    some = content(kind="mixed", kinds=kinds, numbers=numbers, agreement=agreement, difference=1 - agreement)
    page = Page(driver, some, tmp_path / "m.html", link)
    assert page.driver.find_element("css selector", "#record .check").text == verdict
    page.go("target=physics&sample=s9")
    same = "✓ Confirmed: shown nothing else, the model predicts the same."
    assert page.driver.find_element("css selector", "#record .check").text == same
    page.go(f"target={HOSTILE}&sample=s9")
    assert "moves by 0 standard deviations" in page.driver.find_element("css selector", "#record .check").text
    assert driver.get_log("browser") == []


def test_paths_say_what_they_measure_and_name_no_output_that_carries_nothing(driver: Any, tmp_path: Path) -> None:
    paths = {0: TargetPaths([PathSummary(0, 15, 0.5, 0.1, 0.5, [(1, 0.004)])], 12, "")}
    page = Page(driver, content(paths=paths), tmp_path / "report.html", "#target=games")
    assert (
        "How much less probable the value gets without a feature, averaged over 12 samples" in page.find("paths").text
    )
    assert [cell.text for cell in page.all("#paths tbody td")] == ["0.50 ± 0.10", "0.50", "–"]
    numbers = np.random.default_rng(0).normal(size=(N_TARGETS, N_SAMPLES))
    some = content(paths=paths, kind="continuous", numbers=numbers, values=["below the median", "above the median"])
    page = Page(driver, some, tmp_path / "numbers.html", "#target=games")
    assert (
        "How far the number moves towards the other side of the median, as a share of its range, without a feature"
        in page.find("paths").text
    )
    some = content(paths=paths, kind="probability", numbers=np.abs(np.tanh(numbers)), values=["0", "1"])
    page = Page(driver, some, tmp_path / "probabilities.html", "#target=games")
    assert "How far the probability moves towards the other side of 0.5 without a feature" in page.find("paths").text
    assert "less than 0.001" not in page.find("record").text


def test_probabilities_are_said_as_probabilities(driver: Any, tmp_path: Path) -> None:
    effects, base = np.zeros((N_TARGETS, N_SAMPLES, K)), np.full((N_TARGETS, N_SAMPLES), 5e-8)
    shown = EffectSummary(effects, base, np.full((N_TARGETS, N_SAMPLES), 1.01))
    page = Page(driver, content(**known() | {"effects": shown}), tmp_path / "report.html", "#target=games&sample=s9")
    assert "games is no is less than 0.001 on average; all effects lead to about 1." in page.find("record").text


def test_without_couplings_there_is_no_map_and_one_output_is_enough(driver: Any, tmp_path: Path) -> None:
    few = {name: getattr(content(), name)[:1] for name in ("codes", "selected", "scores", "agreement", "difference")}
    some = content(targets=["only"], outputs=["only"], interactions=None, paths={}, **few)
    page = Page(driver, some, tmp_path / "report.html", "#target=only")
    assert page.all("#map-view") == []
    assert "every output on its own" in page.find("paths").text
    assert driver.get_log("browser") == []


def test_outputs_at_the_left_are_one_tab_stop_and_arrows_move_between_them(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    stops = page.all('nav a:not([tabindex="-1"])')
    assert [link.text for link in stops] == ["Overview", "games"]
    page.driver.execute_script("arguments[0].focus()", stops[1])
    page.press(Keys.ARROW_DOWN, Keys.ENTER)
    assert page.find("target-name").text == "physics"
    outline = page.driver.switch_to.active_element.value_of_css_property("outline-style")
    assert (page.driver.switch_to.active_element.text, outline) == ("physics", "solid")
    assert [link.text for link in page.all('nav a[aria-current="page"]')] == ["physics"]


def test_outputs_can_be_sorted(page: Page) -> None:
    page.all("#outputs-table thead button")[0].click()
    listed = [row.text for row in page.all("#outputs th")]
    assert listed == sorted(TARGETS, key=str.lower)
    page.all("#outputs-table thead button")[0].click()
    assert [row.text for row in page.all("#outputs th")] == listed[::-1]


def test_one_explanation_can_be_drawn_on_any_page_from_a_plain_record(driver: Any, tmp_path: Path) -> None:
    script = (TEMPLATES / "explanation.js").read_text(encoding="utf-8")
    record = {
        "sample": HOSTILE,
        "target": "games",
        "value": "1",
        "features": [{"name": HOSTILE, "value": 3.5, "score": 2.0}, {"name": "b", "value": None, "score": 1.0}],
        "confirmed": False,
        "agreement": 0.3,
    }
    path = tmp_path / "any.html"
    path.write_text(f'<meta charset="utf-8"><div id="here"></div><script>{script}</script>', encoding="utf-8")
    driver.get_log("browser")
    driver.get(path.as_uri())
    driver.execute_script("sointerExplanation.render(document.getElementById('here'), arguments[0])", record)
    lines = driver.find_element("id", "here").text.split("\n")
    assert lines[0] == f"Sample {HOSTILE}: the model predicts that games is 1."
    assert lines[1] == "✗ Refuted: shown nothing else, the model predicts something else in 70 % of draws."
    values = [node.text for node in driver.find_elements("class name", "value")]
    assert values == ["= 3.5", ""]
    assert driver.get_log("browser") == []


def test_short_values_stay_on_one_line_and_what_is_next_to_nothing_is_zero(driver: Any, tmp_path: Path) -> None:
    facts = known()
    effects = facts["effects"]
    facts["effects"] = EffectSummary(effects.effects, effects.base, effects.base + effects.effects.sum(axis=2) - 4e-6)
    facts["unit_values"] = [{unit: "52.8" if unit % 2 else "x" * 60 for unit in range(N_UNITS)}] * N_SAMPLES
    page = Page(driver, content(**facts), tmp_path / "report.html")
    metrics = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page.go("target=games&sample=s5")
        values = page.all("#record .bars .value")
        assert {value.text for value in values} == {"= 52.8", "= " + "x" * 60}
        assert max(value.size["height"] for value in values if value.text == "= 52.8") < 30
        assert page.find("record").find_elements("css selector", ".rest .effect")[0].text == "0"
        assert page.driver.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_it_fits_a_telephone(driver: Any, tmp_path: Path) -> None:
    page = Page(driver, content(**known()), tmp_path / "report.html")
    metrics = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        for link in ("map", "target=games&sample=s5", "feature=word3"):
            page.go(link)
            assert page.driver.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
