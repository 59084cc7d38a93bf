"""docs/tutorials/first-explanation.md as a newcomer runs it, in an empty folder: the script, the commands, the page."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from browsing import browser, requested

for needed in ("typer", "jinja2", "matplotlib"):
    pytest.importorskip(needed)

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "tutorials" / "first-explanation.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(\w+)(?: (\S+))?\n(.*?)```", re.DOTALL)
DECIDE = {"sun", "cloud", "humidity", "pressure"}


def commands(page: str) -> list[str]:
    """The command lines of the page's bash blocks, those that are continued made one."""
    blocks = [code for language, _, code in BLOCK.findall(page) if language == "bash"]
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [" ".join(shlex.split(line)) for line in lines if line.startswith("sointer ")]


def run(arguments: list[str], folder: Path) -> str:
    """What a process of its own printed; it must end well, and warn of nothing."""
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which a reader has saved the tutorial's files and run its Python, and what that printed."""
    folder = tmp_path_factory.mktemp("newcomer")
    script = [code for language, name, code in BLOCK.findall(TUTORIAL) if language == "python" and not name]
    for language, name, code in BLOCK.findall(TUTORIAL):
        if language == "python" and name:
            (folder / name).write_text(code, encoding="utf-8")
    (folder / "tutorial.py").write_text("\n".join(script), encoding="utf-8")
    return folder, run([sys.executable, "tutorial.py"], folder)


@pytest.fixture(scope="module")
def printed(project: tuple[Path, str]) -> list[str]:
    """What the tutorial's commands print, one after the other, in the same folder."""
    return [run([sys.executable, "-m", *shlex.split(line)], project[0]) for line in commands(TUTORIAL)]


@pytest.mark.slow
def test_the_script_finds_what_decides_the_rainbow(project):
    folder, text = project
    first_row = re.findall(r"^ +0 +0\.8\d+ +\d +(\w+)", text, re.MULTILINE)
    assert set(first_row) == DECIDE
    assert float(re.search(r"fidelity=([\d.]+)", text)[1]) > 0.9
    through = dict(re.findall(r"^  (\w+) +[-\d.]+ +[-\d.]+  (\w+) \(", text, re.MULTILINE))
    assert through == {"sun": "warm", "cloud": "warm", "humidity": "wet", "pressure": "wet"}
    assert all((folder / name).stat().st_size > 5_000 for name in ("day-9.png", "paths.png", "why.html"))


@pytest.mark.slow
def test_the_commands_find_the_same(project, printed):
    folder, _ = project
    assert len(printed) == 4
    records = pd.read_csv(folder / "why.csv")
    assert len(records) == 4000
    by_row = records.groupby("sample")["feature"].agg(set)
    assert np.mean([features == DECIDE for features in by_row]) > 0.95
    fidelity = dict(re.findall(r"^(SOInter|Random) +([\d.]+) +[\d.]+ +[\d.]+ ", printed[2], re.MULTILINE))
    assert float(fidelity["SOInter"]) > 0.95 > 0.85 > float(fidelity["Random"])


@pytest.mark.slow
@pytest.mark.usefixtures("printed")
def test_the_pages_open_in_a_browser(project):
    folder, _ = project
    with browser() as driver:
        for name in ("why.html", "rainbow.html"):
            driver.get((folder / name).as_uri() + "#target=rainbow")
            text = driver.find_element("tag name", "main").text
            assert set(re.findall(r"\w+", text)) >= DECIDE | {"rainbow", "Confirmed"}
            assert "pollen" not in text
            assert driver.get_log("browser") == []
            assert all(url.startswith(("file:", "data:")) for url in requested(driver))
