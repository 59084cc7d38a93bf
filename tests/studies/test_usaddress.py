"""The study of a tagger of addresses: tables that are the tagger, measures against sets known by hand, its page."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from repo_scripts import PICTURES, ROOT, run_smoke, study_modules

FOLDER = "usaddress"

for package in ("matplotlib", "lime", "shap", "usaddress"):
    pytest.importorskip(package)
if not (Path(os.environ.get("SOINTER_DATA", ".")) / "usaddress.jsonl.gz").exists():
    pytest.skip("usaddress.jsonl.gz is not in SOINTER_DATA", allow_module_level=True)


@pytest.fixture(scope="module")
def modules():
    return study_modules(FOLDER, "crf", "truth", "sets", "sets_page", "chains", "speed", "page")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    return run_smoke(FOLDER, folder, folder / "cache")


def test_the_smoke_setting_makes_results_page_and_figure(smoke, modules):
    rows = [json.loads(line) for line in (smoke / "results" / FOLDER / "sets.jsonl").read_text().splitlines()]
    assert [row["method"] for row in rows] == list(modules.sets_page.METHODS)
    for row in rows:
        assert all(exact <= n and within <= n for n, exact, within, _ in row["given"])
        assert ("own" in row) == (row["method"] in (modules.sets_page.OURS, modules.sets_page.CEILING))
    page = (smoke / "pages" / "usaddress.md").read_text()
    assert set(PICTURES.findall(page)) == {"usaddress.png"}
    for heading in (
        "Reached and not reached",
        "The smallest tokens",
        "Direct, or through",
        "Planted chains",
        "How long",
    ):
        assert f"## {heading}" in page
    assert "nan" not in page


def test_there_is_no_page_without_results():
    kept = list((ROOT / "studies" / "results" / FOLDER).glob("*.jsonl"))
    assert bool(kept) == (ROOT / "docs" / "results" / "usaddress.md").exists()


def test_the_tables_are_the_package(modules):
    sentences = modules.crf.load_sentences("test")[:150]
    assert modules.crf.AddressCRF()(sentences) == modules.crf.package_tagger(sentences)


def test_addresses_to_choose_settings_on_are_not_those_reported(modules):
    development, report = (modules.truth.chosen_sentences(part) for part in ("dev", "report"))
    assert (len(development), len(report)) == (50, 100)
    assert not {tuple(one) for one in development} & {tuple(one) for one in report}


def test_sets_are_judged_by_their_size_and_by_what_they_keep(modules):
    # Tokens 0, 1, 2: {1} keeps .96, {0} .94, all pairs .98, nothing .1.
    kept = np.array([0.1, 0.5, 0.96, 0.98, 0.94, 0.98, 0.98, 1.0], dtype=np.float32)
    tally = modules.sets.SetTally()
    for chosen in ([1], [0], [0, 1], [2], []):
        tally.add("x", kept, chosen)
        tally.end_address()
    # By set: targets, exact, within tolerance (no smaller set keeps .97), tokens too many.
    assert tally.result()["x"] == [[1, 1, 1, 0], [1, 0, 1, 0], [1, 0, 1, 1], [1, 0, 0, 0], [1, 0, 0, -1]]
