"""Every Python example in README.md and docs/ runs as printed, each page in one go; docstring examples too."""

from __future__ import annotations

import doctest
import importlib
import io
import pkgutil
import re
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import sointer

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
WITH_EXAMPLES = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]


def run_blocks(page: Path) -> str:
    code = "\n".join(BLOCK.findall(page.read_text(encoding="utf-8")))
    printed = io.StringIO()
    with redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code, str(page), "exec"), {"__name__": "example"})
    return printed.getvalue()


def test_the_readme_prints_what_it_says():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    promised = re.search(r"```\n(\[.*?Verification.*?)\n```", text, re.DOTALL).group(1)
    assert run_blocks(ROOT / "README.md").strip() == promised
    lines = [line for line in BLOCK.search(text).group(1).splitlines() if line.strip()]
    assert len(lines) <= 10, "the example is sold as ten lines"


@pytest.mark.parametrize("page", [p for p in WITH_EXAMPLES if p.name != "README.md"], ids=lambda p: p.name)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some examples write files
    assert run_blocks(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_pictures_exist(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name} points to {link}"


def modules() -> list[str]:
    return [info.name for info in pkgutil.walk_packages(sointer.__path__, "sointer.")]


@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
