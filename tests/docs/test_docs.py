"""Every Python example in README.md and docs/ runs as printed, each page in one go; docstring examples too."""

from __future__ import annotations

import doctest
import importlib
import io
import pkgutil
import re
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import sointer
from browsing import browser, requested

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, DOCS / "index.md", *sorted(DOCS.glob("[!_]*/*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
RUN_ELSEWHERE = {"README.md", "first-explanation.md"}  # below, and by test_tutorial.py
WITH_EXAMPLES = [p for p in PAGES if BLOCK.search(p.read_text(encoding="utf-8")) and p.name not in RUN_ELSEWHERE]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix().removeprefix("docs/")


def run_blocks(page: Path) -> str:
    code = "\n".join(BLOCK.findall(page.read_text(encoding="utf-8")))
    printed = io.StringIO()
    with redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code, str(page), "exec"), {"__name__": "example"})
    return printed.getvalue()


def test_the_readme_prints_what_it_says():
    text = README.read_text(encoding="utf-8")
    promised = re.search(r"```\n(\[.*?Verification.*?)\n```", text, re.DOTALL).group(1)
    assert run_blocks(README).strip() == promised
    lines = [line for line in BLOCK.search(text).group(1).splitlines() if line.strip()]
    assert len(lines) <= 10, "the example is sold as ten lines"


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name_of)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some examples write files
    assert run_blocks(page)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_pictures_exist(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name} points to {link}"


def test_the_places_that_contributors_are_sent_to_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("| where would you put") : text.index("One word per concept")]
    places = [place for place in re.findall(r"`([a-z_/]+\.py)`", table)]
    assert len(places) >= 10
    assert [place for place in places if not (Path(sointer.__file__).parent / place).exists()] == []


def test_pages_that_the_code_cites_exist():
    sources = [
        *ROOT.glob("src/**/*.py"),
        *ROOT.glob("studies/**/*.py"),
        *ROOT.glob("examples/*"),
        ROOT / "CONTRIBUTING.md",
    ]
    cited = {page for path in sources for page in re.findall(r"docs/[\w/-]+\.md", path.read_text(encoding="utf-8"))}
    assert len(cited) >= 5
    assert sorted(page for page in cited if not (ROOT / page).exists()) == []


def test_every_page_is_of_one_kind():
    kinds = ("tutorials", "how-to", "concepts", "reference", "results")
    assert [page.name for page in DOCS.glob("*.md")] == ["index.md"], "pages belong into one of the folders"
    assert all((DOCS / kind / "index.md").exists() for kind in kinds)
    assert {page.parent.name for page in PAGES if page not in (README, DOCS / "index.md")} == set(kinds)


def test_the_reference_has_every_public_name():
    pages = [*DOCS.glob("reference/api/*.rst"), DOCS / "reference" / "configuration.md"]
    reference = "".join(page.read_text(encoding="utf-8") for page in pages)
    names = [name for name in sointer.__all__ if name != "__version__"]
    packages = ("explainers.baselines", "metrics", "zoo")
    for package in packages:
        if f"automodule:: sointer.{package}\n" not in reference:
            public = importlib.import_module(f"sointer.{package}").__all__
            names += [f"{package}.{name}" for name in public if not name.isupper()]
    missing = [name for name in names if not re.search(rf":: sointer\.{re.escape(name)}(\(\))?\n", reference)]
    assert not missing, f"docs/reference/api does not mention {missing}"


TRAIN_IN_FULL = ("sointer.explainers.sointer", "sointer.explainers.sequences", "sointer.explainers.baselines.invase")
TRAIN_IN_FULL += ("sointer.explainers.baselines.trained", "sointer.metrics.evaluation")


def modules() -> list[Any]:
    names = [info.name for info in pkgutil.walk_packages(sointer.__path__, "sointer.")]
    return [pytest.param(name, marks=pytest.mark.slow) if name in TRAIN_IN_FULL else name for name in names]


@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_reads_well_offline(tmp_path):
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = sorted(path for path in tmp_path.rglob("*.html") if path.name not in ("genindex.html", "search.html"))
    expected = ["index", "tutorials/first-explanation", "concepts/trust", "results/mediated", "reference/api/explainer"]
    names = {path.relative_to(tmp_path).as_posix() for path in pages}
    assert {f"{name}.html" for name in expected} <= names
    with browser(390, 800) as phone:
        phone.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        )
        for page in pages:
            phone.get(page.as_uri())
            wide = phone.execute_script("return document.documentElement.scrollWidth")
            assert wide <= 390, f"{page.name} is {wide} pixels wide on a phone"
            assert phone.get_log("browser") == [], page.name
            assert all(url.startswith(("file:", "data:")) for url in requested(phone)), page.name
