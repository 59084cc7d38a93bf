"""Every study of experiments/synthetic runs from a clean clone: the smoke setting, its page and its figures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from repo_scripts import PICTURES, ROOT, run_smoke, run_studies

SYNTHETIC = "experiments/synthetic"
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
    rows = [json.loads(line) for line in (smoke / "results" / f"{name}.jsonl").read_text().splitlines()]
    assert rows
    page = (smoke / "pages" / f"{name.replace('_', '-')}.md").read_text()
    assert page.startswith("# ")
    shown = set(PICTURES.findall(page))
    made = {path.name for path in (smoke / "images").glob("*.png")}
    assert shown <= made, "a page shows a picture that was not made"


def test_cases_that_have_a_result_are_not_run_again(smoke):
    again = run_studies(SYNTHETIC, "problems", "sensitivity", "--smoke", "--out", str(smoke))
    assert again.returncode == 0
    assert again.stdout == ""


def test_a_failing_case_is_shown_and_makes_the_command_fail(tmp_path):
    (tmp_path / "broken.py").write_text(
        "from study import Study\n"
        "def run(number):\n    assert number != 1, 'number one is broken'\n    return {'square': number**2}\n"
        "STUDY = Study('broken', lambda smoke: ({'number': n} for n in range(3)), run, lambda rows, images: '# page')\n"
    )
    command = str(ROOT / SYNTHETIC / "run.py")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        f"sys.argv = ['run.py', 'broken', '--out', {str(tmp_path)!r}]\n"
        "import importlib.util as u\n"
        f"spec = u.spec_from_file_location('studies', {command!r}); module = u.module_from_spec(spec)\n"
        "spec.loader.exec_module(module); module.NAMES = ('broken',); sys.exit(module.main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "number one is broken" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "results" / "broken.jsonl").read_text().splitlines()]
    assert [row["square"] for row in rows] == [0, 4], "the other cases are kept"


def test_wrong_arguments_are_refused():
    assert "no study is called 'colour'" in run_studies(SYNTHETIC, "colour").stderr
    assert "--smoke needs --out" in run_studies(SYNTHETIC, "accuracy", "--smoke").stderr


@pytest.mark.parametrize("name", STUDIES)
def test_the_kept_page_shows_pictures_that_exist(name):
    page = ROOT / "docs" / "results" / f"{name.replace('_', '-')}.md"
    for image in re.findall(r"\]\(\.\./images/([^)]+)\)", page.read_text()):
        assert (ROOT / "docs" / "images" / image).exists(), image
