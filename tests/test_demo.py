"""The demo end to end, smaller; its numbers, its files, and its page in a real browser."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from sointer.apps.demo import DemoResult, K, compare, make_folder, run_demo
from sointer.errors import InputError
from sointer.viz.report.demo import format_table, render_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium or chrome on this machine")


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory, told: list[str]) -> DemoResult:
    n_threads = torch.get_num_threads()
    done = run_demo(tmp_path_factory.mktemp("demo") / "new" / "folder", quick=True, tell=told.append)
    assert torch.get_num_threads() == n_threads
    return done


def test_it_writes_a_picture_and_a_page(result: DemoResult) -> None:
    assert result.figure.read_bytes().startswith(b"\x89PNG")
    assert result.figure.stat().st_size < 300_000
    assert result.page.stat().st_size < 1_000_000


def test_it_tells_of_every_stage(result: DemoResult, told: list[str]) -> None:
    text = "\n".join(told)
    for stage in ("Training the model", "Fitting SOInter (", "Fitting SOInter-1", "Drawing"):
        assert stage in text


def test_soi_is_clearly_better_than_random_under_both_removals(result: DemoResult) -> None:
    ours, alone, random = result.content.methods
    assert [ours.name, alone.name, random.name] == ["SOInter", "SOInter-1", "Random pixels"]
    for removal in ours.fidelity:
        assert 0.3 < random.fidelity[removal] < 0.9
        assert random.fidelity[removal] + 0.05 < ours.fidelity[removal] <= 1.0
    assert random.n_queries == 0
    assert 0 < ours.n_queries <= 1500
    assert ours.fit_seconds > 0
    assert ours.explain_ms > 0


def test_every_example_has_k_distinct_pixels_for_each_segment(result: DemoResult) -> None:
    assert [example.title for example in result.content.examples[:10]] == [f"a {digit}" for digit in range(10)]
    for example in result.content.examples:
        assert np.shape(example.pixels) == (8, 8)
        assert len(example.selected) == 7
        for pixels in example.selected:
            assert len(set(pixels)) == K
            assert set(pixels) <= set(range(64))
        assert all(0 <= share <= 1 for share in example.kept)


def test_the_table_holds_the_measured_numbers(result: DemoResult) -> None:
    lines = result.table().splitlines()
    assert max(map(len, lines)) <= 105
    for method in result.content.methods:
        [line] = [line for line in lines if line.startswith(f"{method.name} ") and "%" in line]
        for value in method.fidelity.values():
            assert f"{100 * value:.1f}%" in line


@pytest.mark.parametrize(("shift", "verdict"), [(0.1, "higher"), (-0.1, "lower"), (0.0, "no clear difference")])
def test_verdicts_follow_from_the_numbers(shift: float, verdict: str) -> None:
    rng = np.random.default_rng(0)
    theirs = {removal: rng.uniform(0.4, 0.6, (7, 50)) for removal in ("marginal", "mean")}
    noise = {removal: rng.normal(0, 0.01, (7, 50)) for removal in theirs}
    ours = {removal: theirs[removal] + shift + noise[removal] - noise[removal].mean() for removal in theirs}
    sentence = compare("A", ours, "B", theirs)
    assert sentence.count(verdict) == 2
    assert f"{100 * shift:+.2f} points" in sentence.replace("-0.00 ", "+0.00 ")


def test_findings_are_in_the_table_and_the_page(result: DemoResult) -> None:
    finding = "SOInter is on a par with <b>nothing</b>."
    content = dataclasses.replace(result.content, findings=[finding])
    assert finding in format_table(content)
    assert html.escape(finding) in render_page(content)


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(InputError, match="cannot write to"):
        make_folder(tmp_path / "taken")


# --- the page --------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_from_outside(result: DemoResult) -> None:
    page = result.page.read_text(encoding="utf-8")
    urls = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert urls <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<link|@import|url\(|<iframe|\bsrc=\"(?!data:)", page)


HOSTILE = "</script><script>document.title='owned'</script><!--"


@pytest.fixture
def hostile_page(result: DemoResult, tmp_path: Path) -> Path:
    names = [HOSTILE, *result.content.segment_names[1:]]
    examples = [dataclasses.replace(result.content.examples[0], title=HOSTILE), *result.content.examples[1:]]
    path = tmp_path / "hostile.html"
    page = render_page(dataclasses.replace(result.content, segment_names=names, examples=examples))
    path.write_text(page, encoding="utf-8")
    return path


def test_names_cannot_break_out_of_the_page(hostile_page: Path) -> None:
    page = hostile_page.read_text(encoding="utf-8")
    assert HOSTILE not in page
    [data] = re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert "<" not in data
    assert json.loads(data)["names"][0] == HOSTILE


def browse(page: Path, tmp_path: Path) -> str:
    """The page's DOM after its script has run; fails on anything the console reports."""
    assert CHROMIUM is not None
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync --disable-extensions"
    flags += " --disable-background-networking --disable-component-update --enable-logging=stderr --dump-dom"
    done = subprocess.run(
        [
            CHROMIUM,
            *flags.split(),
            "--virtual-time-budget=3000",
            f"--user-data-dir={tmp_path / 'browser'}",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    reported = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert reported == []
    return done.stdout


def drawing(dom: str) -> str:
    [svg] = re.findall(r'<svg id="image".*?</svg>', dom, re.DOTALL)
    return svg


@needs_browser
def test_the_script_draws_64_pixels_and_outlines_k(result: DemoResult, tmp_path: Path) -> None:
    dom = browse(result.page, tmp_path)
    assert drawing(dom).count('class="blank"') == 64
    assert drawing(dom).count('class="chosen"') == K
    assert re.findall(r'class="rank"[^>]*>(\d+)<', drawing(dom)) == [str(rank + 1) for rank in range(K)]
    assert dom.count('role="radio"') == len(result.content.examples) + 7
    first = result.content.examples[0]
    column, row = first.selected[0][0] % 8, first.selected[0][0] // 8
    assert f'class="chosen" x="{column + 0.055}" y="{row + 0.055}"' in drawing(dom)


@needs_browser
def test_clicks_and_keys_choose_digits_and_segments(result: DemoResult, tmp_path: Path) -> None:
    actions = """<script>
      document.querySelectorAll('#thumbs button')[3].click();
      const segment = document.querySelectorAll('.segment')[5];
      segment.dispatchEvent(new MouseEvent('click', {bubbles: true}));
      segment.focus();
      segment.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));
    </script>"""
    path = tmp_path / "acted.html"
    path.write_text(result.page.read_text(encoding="utf-8").replace("</body>", actions + "</body>"), encoding="utf-8")
    dom = browse(path, tmp_path)
    [answer] = re.findall(r'<p id="answer"[^>]*>(.*?)</p>', dom)
    example = result.content.examples[3]
    state = "on" if example.lit[6] else "off"
    assert re.sub("<.*?>", "", answer) == f"For this image (a 3) the model says that segment g (middle) is {state}."
    chosen = re.findall(r'class="chosen" x="([\d.]+)" y="([\d.]+)"', drawing(dom))
    assert [8 * int(float(y)) + int(float(x)) for x, y in chosen] == list(example.selected[6])
    assert len(re.findall(r'<(?:button|polygon)[^>]*aria-checked="true"', dom)) == 2


@needs_browser
def test_hostile_names_are_shown_as_text(hostile_page: Path, tmp_path: Path) -> None:
    dom = browse(hostile_page, tmp_path)
    assert "<title>Which pixels decide each segment?</title>" in dom
    assert drawing(dom).count('class="chosen"') == K
