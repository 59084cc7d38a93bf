"""Every study of studies/synthetic runs from a clean clone: the smoke setting, its page and its figures."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from repo_scripts import PICTURES, ROOT, run_smoke, run_studies
from studies.frame.command import main

SYNTHETIC = "synthetic"
STUDIES = (
    "accuracy",
    "problems",
    "mediated",
    "paths",
    "leakage",
    "removal",
    "sensitivity",
    "explaining_time",
)

for package in ("matplotlib", "lime", "shap"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory) -> Path:
    """All studies in their smoke setting, run once, as `make reproduce-synthetic` runs them in full."""
    folder = tmp_path_factory.mktemp("studies")
    return run_smoke(SYNTHETIC, folder, folder / "cache")


@pytest.mark.parametrize("name", STUDIES)
def test_the_smoke_setting_makes_results_page_and_figures(name, smoke):
    rows = [json.loads(line) for line in (smoke / "results" / SYNTHETIC / f"{name}.jsonl").read_text().splitlines()]
    assert rows
    page = (smoke / "pages" / f"{name.replace('_', '-')}.md").read_text()
    assert page.startswith("# ")
    shown = set(PICTURES.findall(page))
    made = {path.name for path in (smoke / "images").glob("*.png")}
    assert shown <= made, "a page shows a picture that was not made"


def test_one_of_the_studies_makes_results_page_and_figure(tmp_path):
    """What the smoke setting of every family does in make test-slow."""
    name = "synthetic/explaining_time"
    run_smoke(name, tmp_path, tmp_path / "cache", fresh=False)
    kept = (tmp_path / "results" / "synthetic" / "explaining_time.jsonl").read_text()
    page = (tmp_path / "pages" / "explaining-time.md").read_text()
    assert json.loads(kept.splitlines()[0])["case"]
    assert "SOInter" in page
    assert "nan" not in page
    assert [name for name in PICTURES.findall(page) if not (tmp_path / "images" / name).exists()] == []
    again = run_studies("run", name, "--smoke", "--out", str(tmp_path), fresh=False)
    assert again.returncode == 0
    assert (tmp_path / "results" / "synthetic" / "explaining_time.jsonl").read_text() == kept, "nothing is run twice"


def test_cases_that_have_a_result_are_not_run_again(smoke):
    again = run_studies("run", "synthetic/problems", "synthetic/sensitivity", "--smoke", "--out", str(smoke))
    assert again.returncode == 0
    assert again.stdout == ""


def test_a_failing_case_is_shown_and_makes_the_command_fail(tmp_path):
    (tmp_path / "broken.py").write_text(
        "from pathlib import Path\n"
        "from studies.frame.study import Selection, Study, work\n"
        "def run(number):\n    assert number != 1, 'number one is broken'\n    return {'square': number**2}\n"
        "STUDY = Study('broken', lambda smoke: ({'number': n} for n in range(3)), run, lambda rows, images: '# page')\n"
        f"raise SystemExit(work(STUDY, Path({str(tmp_path)!r}), Selection()))\n"
    )
    command = [sys.executable, str(tmp_path / "broken.py")]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert "number one is broken" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "broken.jsonl").read_text().splitlines()]
    assert [row["square"] for row in rows] == [0, 4], "the other cases are kept"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run colour", "no family is called 'colour'"),
        ("pages synthetic/colour", "no study of synthetic is called 'colour'"),
        ("run synthetic/accuracy --smoke", "--smoke needs --out"),
        ("list synthetic --shard 2/2", "such as 0/2 and 1/2; got '2/2'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", STUDIES)
def test_the_kept_page_shows_pictures_that_exist(name):
    page = ROOT / "docs" / "results" / f"{name.replace('_', '-')}.md"
    for image in re.findall(r"\]\(\.\./images/([^)]+)\)", page.read_text()):
        assert (ROOT / "docs" / "images" / image).exists(), image
