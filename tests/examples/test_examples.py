"""Every example runs as a stranger would run it: copied into an empty folder, in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import forking

EXAMPLES = Path(__file__).parents[2] / "examples"
PROMISED = {
    "tables.py": (("What decides loan:", "of customers: the selected features alone are enough"), ("tables.html",)),
    "regression.py": (("100% of samples, everywhere: wall_area", "cooling: Verification("), ("regression.png",)),
    "texts.py": (("a late goal won the match", "open texts.html"), ("texts.html", "texts.png")),
    "images.py": (("queries for all 576 pixels", "NearestPixels"), ("images.html", "images.png")),
    "sequences.py": (("of held-out labels predicted correctly", "because of", "direct ("), ("sequences.html",)),
    "remote.py": (("The fit stopped: The server", "taken from the journal: "), ("remote-fit",)),
    "baselines.py": (("keep/delete", "TreeShap"), ()),
    "command_line.sh": (("keep/delete", "rainbow"), ("why.csv", "rainbow.html")),
}
"""What each prints, and the files it writes."""
QUICK = ("regression.py",)


def run(name: str, folder: Path) -> str:
    pytest.importorskip("matplotlib")
    for package in {"baselines.py": ("lime", "shap"), "remote.py": ("httpx",)}.get(name, ()):
        pytest.importorskip(package)
    shutil.copy(EXAMPLES / name, folder)
    program = ["bash"] if name.endswith(".sh") else [sys.executable]
    # `python` and `sointer` of the script are those of this environment.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    if name in QUICK:  # without the seconds that a new interpreter takes for its imports
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MPLBACKEND", "Agg")
            forked = forking.run(["-c", (folder / name).read_text(encoding="utf-8")], cwd=folder)
        assert forked.returncode == 0, forked.stdout + forked.stderr
        return forked.stdout
    done = subprocess.run(
        [*program, name], cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PROMISED]
)
def test_it_runs_prints_and_writes_what_it_says(name, tmp_path):
    printed = run(name, tmp_path)
    words, files = PROMISED[name]
    assert [word for word in words if word not in printed] == [], printed
    assert [file for file in files if not (tmp_path / file).exists()] == []
    if name == "remote.py":
        found = re.search(r"queried now: ([\d,]+); taken from the journal: ([\d,]+)\n.* predicted: ([\d,]+)", printed)
        now, before, of_server = (int(number.replace(",", "")) for number in found.groups())
        assert min(now, before) > 0, "the power fails in the middle"
        assert now + before == of_server, "nothing is queried twice"
    for fidelity in re.findall(r"(?<!TreeShap's )Verification\(fidelity=([\d.]+)", printed):
        assert float(fidelity) >= 0.95, "an example that does not hold teaches nothing"


def test_every_example_is_run_and_listed():
    names = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sh")}
    assert names == set(PROMISED)
    page = (EXAMPLES.parent / "docs" / "tutorials" / "scripts.md").read_text()
    assert {name for name in names if f"examples/{name}" not in page} == set()
