"""The page of pixels: what is packed into it, and what it does in a real browser."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quick import quick_fit

pytest.importorskip("jinja2")

from sointer.errors import InputError
from sointer.explainers.baselines.base import Random
from sointer.viz.plots.canvas import SELECTED
from sointer.viz.report.pixel_page import PixelPageContent, render_pixel_page

HEIGHT, WIDTH, K = 5, 7, 4
HOSTILE = "<script>alert(1)</script>"


def content(**changes: Any) -> PixelPageContent:
    """Three images with labels "off" and "on"; every target has its own K pixels, the last of them sometimes none."""
    rng = np.random.default_rng(0)
    n_pixels = HEIGHT * WIDTH
    selected = np.array([[rng.permutation(n_pixels)[:K] for _ in range(n_pixels)] for _ in range(3)])
    selected[:, ::5, -1] = -1
    values: dict[str, Any] = {
        "images": rng.integers(0, 256, (3, 3, HEIGHT, WIDTH)),
        "outputs": np.array(["off", "on"])[rng.integers(0, 2, (3, HEIGHT, WIDTH))],
        "selected": selected,
        "confirmed": rng.random((3, n_pixels)) < 0.5,
        "names": ["first", HOSTILE, "third"],
        "title": f"Why? {HOSTILE}",
    }
    return PixelPageContent(**{**values, **changes})


def packed(shown: PixelPageContent) -> Any:
    [data] = re.findall(r'id="data">(.*?)</script>', render_pixel_page(shown), re.DOTALL)
    assert "<" not in data
    return json.loads(data)


def unpacked(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=dtype)


# --- what is in it ---------------------------------------------------------------------------------------


def test_everything_can_be_unpacked_again() -> None:
    shown = content()
    data = packed(shown)
    for i in range(3):
        selected = unpacked(data["selected"][i], "<u2").reshape(HEIGHT * WIDTH, K).astype(int)
        np.testing.assert_array_equal(np.where(selected == data["nothing"], -1, selected), shown.selected[i])
        rgb = unpacked(data["images"][i], "u1").reshape(HEIGHT, WIDTH, 3)
        np.testing.assert_array_equal(rgb, shown.images[i].transpose(1, 2, 0))
        codes = unpacked(data["outputs"][i], "u1").reshape(HEIGHT, WIDTH)
        np.testing.assert_array_equal(np.array(data["labels"])[codes], shown.outputs[i])
        assert shown.confirmed is not None
        np.testing.assert_array_equal(unpacked(data["confirmed"][i], "u1"), shown.confirmed[i])
    assert data["values"] is None
    assert len(data["colours"]) == 2


def test_probabilities_are_steps_from_0_to_1_and_keep_their_values() -> None:
    outputs = np.linspace(0.2, 0.7, 3 * HEIGHT * WIDTH).reshape(3, HEIGHT, WIDTH)
    data = packed(content(outputs=outputs))
    assert data["labels"] == ["0", "1"]
    np.testing.assert_allclose(unpacked(data["values"][1], "<f4"), outputs[1].ravel(), rtol=1e-6)
    codes = unpacked(data["outputs"][1], "u1")
    np.testing.assert_allclose(codes / 255, outputs[1].ravel(), atol=0.5 / 255 + 1e-9)
    assert len(data["colours"]) == 256


def test_other_numbers_are_steps_between_their_smallest_and_largest() -> None:
    outputs = np.linspace(-3.0, 5.0, 3 * HEIGHT * WIDTH).reshape(3, HEIGHT, WIDTH)
    data = packed(content(outputs=outputs))
    assert data["labels"] == ["-3", "5"]
    codes = np.concatenate([unpacked(text, "u1") for text in data["outputs"]])
    assert (codes[0], codes[-1]) == (0, 255)


@pytest.mark.parametrize(
    ("outputs", "labels"),
    [
        (np.tile([0, 1, 2, 2, 1, 0, 7], (3, HEIGHT, 1)), ["0", "1", "2", "7"]),
        (np.tile([0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0], (3, HEIGHT, 1)), ["0", "1"]),
        (np.tile([True, False, True, True, True, True, True], (3, HEIGHT, 1)), ["False", "True"]),
        (np.full((3, HEIGHT, WIDTH), "all"), ["all"]),
    ],
)
def test_a_few_different_values_are_labels(outputs: np.ndarray, labels: list[str]) -> None:
    assert packed(content(outputs=outputs))["labels"] == labels


def test_twenty_images_with_fifty_pixels_for_each_of_1024_targets_stay_below_5_megabytes() -> None:
    rng = np.random.default_rng(0)
    shown = PixelPageContent(
        images=rng.random((20, 3, 32, 32)),
        outputs=rng.integers(0, 2, (20, 32, 32)),
        selected=rng.integers(0, 1024, (20, 1024, 50)),
        names=[f"image {i}" for i in range(20)],
        title="large",
        confirmed=rng.random((20, 1024)) < 0.5,
    )
    assert len(render_pixel_page(shown).encode()) < 5_000_000


def test_the_page_needs_nothing_from_outside_and_says_so_to_the_browser() -> None:
    page = render_pixel_page(content())
    assert not re.search(r"https?://|<link|@import|url\(|<iframe|\bsrc=", page)
    assert "default-src 'none'" in page


def test_what_users_give_is_escaped() -> None:
    page = render_pixel_page(content())
    assert HOSTILE not in page
    assert page.count("&lt;script&gt;alert(1)") == 2, "in the title of the window and of the page"


def test_more_labels_than_a_byte_can_name_are_refused() -> None:
    labels = np.arange(20 * 20).reshape(1, 20, 20).astype(str)
    with pytest.raises(InputError, match="more than 256 labels"):
        content(images=np.zeros((1, 1, 20, 20)), outputs=labels)


def test_images_with_more_pixels_than_two_bytes_can_name_are_refused() -> None:
    with pytest.raises(InputError, match=r"65536 pixels or groups.*at most 65535"):
        PixelPageContent(
            np.zeros((1, 1, 256, 256)),
            np.zeros((1, 256, 256)),
            np.zeros((1, 4, 1), dtype=int),
            ["a"],
            "large",
            stride=128,
        )


# --- written by an explainer ---------------------------------------------------------------------------------


def bright(images: np.ndarray) -> np.ndarray:
    return images.mean(axis=1) > 0.5


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(0).random((20, 1, 4, 6))


@pytest.fixture(scope="module")
def explainer(images: np.ndarray) -> Random:
    return Random(bright, k=3, removal="zero", random_state=0).fit(images)


def written(path: Path) -> Any:
    [data] = re.findall(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(data)


def test_a_report_on_masks_shows_what_explain_says_of_every_pixel(
    explainer: Random, images: np.ndarray, tmp_path: Path
) -> None:
    data = written(explainer.report(images[:3], tmp_path / "r.html", verify=True, sample_names=["a", "b", HOSTILE]))
    assert data["names"] == ["a", "b", HOSTILE]
    for i in range(3):
        selected = unpacked(data["selected"][i], "<u2").reshape(24, 3)
        targets = [(row, column) for row in range(4) for column in range(6)]
        repeated = np.repeat(images[i : i + 1], 24, axis=0)
        explanation = explainer.explain(repeated, np.array(targets))
        np.testing.assert_array_equal(selected, explanation.selected)
        np.testing.assert_array_equal(unpacked(data["confirmed"][i], "u1"), explanation.verify().confirmed)


def test_what_is_confirmed_is_what_is_shown(images: np.ndarray, tmp_path: Path) -> None:
    """With k="auto" the page shows needed pixels only: the model must be asked about these, in three verdicts."""
    explainer = quick_fit(bright, images, k="auto", query_budget=100)
    data = written(explainer.report(images[:2], tmp_path / "r.html", verify=True))
    targets = np.array([(row, column) for row in range(4) for column in range(6)] * 2)
    explanation = explainer.explain(np.repeat(images[:2], 24, axis=0), targets)
    selected = np.stack([unpacked(one, "<u2").reshape(24, -1) for one in data["selected"]]).reshape(48, -1)
    assert (selected != data["nothing"]).sum(axis=1).tolist() == explanation.n_selected.tolist()
    verification = explanation.verify()
    assert verification.unsure.any()
    for name in ("confirmed", "unsure"):
        said = np.concatenate([unpacked(one, "u1") for one in data[name]])
        np.testing.assert_array_equal(said, getattr(verification, name), name)


@pytest.mark.parametrize(("verify", "n_asked"), [(True, 48), (48, 48), (47, 0), (False, 0)], ids=str)
def test_a_report_on_masks_asks_about_all_pixels_or_none(
    explainer: Random, images: np.ndarray, tmp_path: Path, verify: Any, n_asked: int
) -> None:
    assert explainer.black_box_ is not None
    before = explainer.black_box_.n_queries
    data = written(explainer.report(images[:5], tmp_path / "r.html", verify=verify, n_samples=2))
    assert explainer.black_box_.n_queries - before == 2 + n_asked
    assert len(data["names"]) == 2
    assert (data["confirmed"] is None) == (n_asked == 0)


def test_a_report_on_masks_has_no_targets_to_choose(explainer: Random, images: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="every pixel is a target"):
        explainer.report(images[:2], tmp_path / "r.html", targets=[(0, 0)])


# --- what it does ----------------------------------------------------------------------------------------


class Page:
    """A page in the browser, with hands and eyes."""

    def __init__(self, driver: Any, shown: PixelPageContent, path: Path) -> None:
        self.driver, self.content = driver, shown
        driver.get_log("browser")  # what earlier pages said is forgotten
        path.write_text(render_pixel_page(shown), encoding="utf-8")
        driver.get(path.as_uri())

    def find(self, name: str) -> Any:
        return self.driver.find_element("id", name)

    def state(self, key: str) -> str:
        return str(self.find("stage").get_attribute(f"data-{key}"))

    @property
    def target(self) -> tuple[int, int]:
        return int(self.state("row")), int(self.state("column"))

    @property
    def lit(self) -> list[int]:
        return [int(pixel) for pixel in self.state("lit").split()]

    def selected(self, image: int, row: int, column: int) -> list[int]:
        """What must be lit, from the arrays themselves; for pages with stride 1 and no groups."""
        return [int(pixel) for pixel in self.content.selected[image, row * WIDTH + column] if pixel >= 0]

    def point(self, canvas: str, row: int, column: int, *, click: bool = False) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        height, width = self.content.size
        node = self.find(canvas)
        x, y = node.size["width"] * ((column + 0.5) / width - 0.5), node.size["height"] * ((row + 0.5) / height - 0.5)
        moved = ActionChains(self.driver, duration=0).move_to_element_with_offset(node, round(x), round(y))
        (moved.click() if click else moved).perform()

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def colours(self, canvas: str) -> np.ndarray:
        """Red, green and blue drawn in the middle of every pixel: (height * width, 3)."""
        height, width = self.content.size
        script = """const [name, rows, columns] = arguments, canvas = document.getElementById(name);
            const copy = document.createElement("canvas");
            [copy.width, copy.height] = [canvas.width, canvas.height];
            const context = copy.getContext("2d", {willReadFrequently: true}), found = [];
            context.drawImage(canvas, 0, 0);
            for (let y = 0; y < rows; y++) for (let x = 0; x < columns; x++) found.push([...context.getImageData(
                Math.floor((x + 0.5) * copy.width / columns), Math.floor((y + 0.5) * copy.height / rows), 1, 1).data]);
            return found;"""
        return np.array(self.driver.execute_script(script, canvas, height, width))[:, :3]


@pytest.fixture
def page(driver: Any, tmp_path: Path) -> Iterator[Page]:
    yield Page(driver, content(), tmp_path / "page.html")
    assert driver.get_log("browser") == []


def test_a_click_on_the_mask_lights_the_pixels_that_made_it_so(page: Page) -> None:
    for row, column, n_lit in ((1, 5, K), (4, 0, K), (1, 3, K - 1)):
        page.point("mask", row, column, click=True)
        assert page.target == (row, column)
        assert len(page.lit) == n_lit
        assert page.lit == page.selected(0, row, column)
        answer = str(page.content.outputs[0, row, column])
        assert page.find("answer").text == f"The model predicts that pixel ({row}, {column}) is {answer}."
        assert page.content.confirmed is not None
        confirmed = page.content.confirmed[0, row * WIDTH + column]
        assert page.state("confirmed") == ("yes" if confirmed else "no")
        assert page.find("check").text.startswith("✓ Confirmed" if confirmed else "✗ Refuted")


def test_a_target_among_its_own_reasons_is_said_to_be(driver: Any, tmp_path: Path) -> None:
    """Its frame is red, so of the pixels that are said to be green, one cannot be seen to be."""
    selected = np.asarray(content().selected).copy()
    selected[0, WIDTH + 5], selected[0, WIDTH + 4] = [WIDTH + 5, *range(K - 1)], range(K)
    page = Page(driver, content(selected=selected), tmp_path / "page.html")
    page.point("mask", 1, 5, click=True)
    assert page.find("because").text == f"Decided mostly by the {K} pixels in green, one of them the pixel itself."
    page.point("mask", 1, 4, click=True)
    assert page.find("because").text == f"Decided mostly by the {K} pixels in green."


def test_a_pixel_that_more_draws_would_decide_is_not_called_refuted(driver: Any, tmp_path: Path) -> None:
    every = np.ones((3, HEIGHT * WIDTH), dtype=bool)
    page = Page(driver, content(confirmed=~every, unsure=every), tmp_path / "page.html")
    assert page.find("check").text.startswith("≈ Unsure: shown nothing else, the model predicts the same in some draws")
    assert page.find("shown").text == f"{len(page.lit)} of {len(page.lit)}"


def test_pointing_shows_a_pixel_and_going_away_returns_to_the_one_held(page: Page) -> None:
    page.point("mask", 2, 2, click=True)
    page.point("image", 0, 6)
    assert page.target == (0, 6)
    assert page.lit == page.selected(0, 0, 6)
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(page.driver, duration=0).move_to_element(page.driver.find_element("tag name", "h1")).perform()
    assert page.target == (2, 2)
    page.point("image", 3, 1, click=True)
    assert page.target == (3, 1)


def test_arrow_keys_move_the_target_and_stop_at_the_edge(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page.point("mask", 1, 1, click=True)
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert page.target == (2, 3)
    assert page.lit == page.selected(0, 2, 3)
    page.press(Keys.ARROW_LEFT)
    assert page.target == (2, 2)
    page.press(*[Keys.ARROW_UP] * 4)
    assert page.target == (0, 2)
    page.press(*[Keys.ARROW_RIGHT] * WIDTH)
    assert page.target == (0, WIDTH - 1)


def test_n_and_p_and_the_strip_change_the_image_and_keep_the_target(page: Page) -> None:
    page.point("mask", 3, 4, click=True)
    for key, image in (("n", 1), ("n", 2), ("n", 0), ("p", 2)):
        page.press(key)
        assert page.state("image") == str(image)
        assert page.lit == page.selected(image, 3, 4)
    page.driver.find_elements("css selector", "#strip button")[1].click()
    assert page.state("image") == "1"
    current = page.driver.find_elements("css selector", '#strip button[aria-current="true"]')
    assert [button.text for button in current] == [HOSTILE]
    assert page.find("name").text == HOSTILE


def test_the_slider_shows_the_best_first_and_its_arrow_keys_leave_the_target_alone(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page.point("mask", 1, 1, click=True)
    best = page.selected(0, 1, 1)
    assert len(best) == K
    slider = page.find("k")
    slider.send_keys(Keys.ARROW_LEFT)
    assert page.target == (1, 1)
    assert page.lit == best[:3]
    assert "(checked with all 4)" in page.find("check").text
    slider.send_keys(Keys.HOME)
    assert page.lit == best[:1]
    assert page.find("because").text == "Decided mostly by the 1 pixel in green."
    assert page.find("shown").text == "1 of 4"


def test_better_pixels_are_drawn_stronger_and_others_stay_as_they_are(driver: Any, tmp_path: Path) -> None:
    black = np.zeros((3, 3, HEIGHT, WIDTH))
    black[0, :, 0, 0] = 1.0
    page = Page(driver, content(images=black), tmp_path / "page.html")
    page.point("mask", 1, 1, click=True)
    units, target = page.selected(0, 1, 1), WIDTH + 1
    assert target not in units
    rest = [pixel for pixel in range(1, HEIGHT * WIDTH) if pixel not in units]
    drawn = page.colours("image")
    greens = drawn[units, 1].tolist()
    assert greens == sorted(set(greens), reverse=True)
    assert SELECTED[1] > greens[0] > greens[-1] > 40
    assert (drawn[rest] == 0).all()
    page.find("alone").click()
    drawn = page.colours("image")
    assert (drawn[units] == 0).all(), "selected pixels are seen as they are"
    assert (drawn[rest] > 40).all()
    assert driver.get_log("browser") == []


def test_a_target_for_which_nothing_was_selected_says_so(driver: Any, tmp_path: Path) -> None:
    nothing = np.full((3, HEIGHT * WIDTH, K), -1)
    page = Page(driver, content(selected=nothing, confirmed=None), tmp_path / "page.html")
    assert page.lit == []
    assert page.find("because").text == "No pixel was chosen for it."
    assert page.state("confirmed") == "unknown"
    assert page.find("check").text == ""
    assert driver.get_log("browser") == []


def test_with_a_stride_the_nearest_target_is_shown_and_keys_go_from_target_to_target(
    driver: Any, tmp_path: Path
) -> None:
    from selenium.webdriver.common.keys import Keys

    shown = content()
    selected = np.arange(3 * 12 * 2).reshape(3, 12, 2) % 35  # targets in rows 0, 2, 4 and columns 0, 2, 4, 6
    page = Page(driver, dataclasses.replace(shown, stride=2, selected=selected, confirmed=None), tmp_path / "page.html")
    page.point("mask", 2, 4, click=True)
    assert page.target == (2, 4)
    assert page.lit == selected[0, 1 * 4 + 2].tolist()
    page.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert page.target == (4, 6)
    assert page.lit == selected[0, 2 * 4 + 3].tolist()
    page.point("mask", 1, 1, click=True)
    row, column = page.target
    assert max(abs(row - 1), abs(column - 1)) == 1
    assert (row % 2, column % 2) == (0, 0)


def test_selected_groups_light_all_their_pixels(driver: Any, tmp_path: Path) -> None:
    units = np.tile(np.arange(HEIGHT * WIDTH) // WIDTH, (3, 1))  # every row of the image is one group
    selected = np.tile([[3, 0]], (3, HEIGHT * WIDTH, 1))
    shown = content(units=units, selected=selected, confirmed=None)
    page = Page(driver, shown, tmp_path / "page.html")
    assert page.lit == [*range(3 * WIDTH, 4 * WIDTH), *range(WIDTH)]
    assert page.find("because").text == "Decided mostly by the 2 groups in green."
    assert driver.get_log("browser") == []


def test_the_button_makes_it_dark(page: Page) -> None:
    def paper() -> str:
        return str(page.driver.find_element("tag name", "body").value_of_css_property("background-color"))

    light = paper()
    page.find("theme").click()
    dark = paper()
    page.find("theme").click()
    page.driver.execute_script("localStorage.clear()")
    assert paper() == light != dark


def test_a_title_with_a_script_is_shown_as_text_and_never_runs(page: Page) -> None:
    from selenium.common.exceptions import NoAlertPresentException

    with pytest.raises(NoAlertPresentException):
        _ = page.driver.switch_to.alert.text
    assert page.driver.title == f"Why? {HOSTILE}"
    assert page.driver.find_element("tag name", "h1").text == f"Why? {HOSTILE}"
    assert page.driver.execute_script("return document.scripts.length") == 2


def test_numbers_are_told_as_numbers(driver: Any, tmp_path: Path) -> None:
    outputs = np.linspace(0.0, 1.0, 3 * HEIGHT * WIDTH).reshape(3, HEIGHT, WIDTH)
    page = Page(driver, content(outputs=outputs), tmp_path / "page.html")
    page.point("mask", 4, 6, click=True)
    assert page.state("answer") == f"{outputs[0, 4, 6]:.3g}"
    assert page.find("legend").text == "0 to 1"
    assert driver.get_log("browser") == []
