"""The study of texts runs from a clean clone, without any data set, and measures what it says."""

from __future__ import annotations

import json

import pytest

from repo_scripts import PICTURES, ROOT, run_smoke
from studies.families import load_study
from studies.frame.study import Selection, read

for package in ("matplotlib", "lime"):
    pytest.importorskip(package)


@pytest.mark.slow
def test_the_smoke_setting_makes_results_page_and_figure(tmp_path):
    run_smoke("text", tmp_path, tmp_path / "cache")
    lines = (tmp_path / "results" / "text" / "text.jsonl").read_text().splitlines()
    rows = {row["method"]: row for row in map(json.loads, lines)}
    assert set(rows) == {"Random", "SOInter", "Lime, tuned, 50 samples"}
    faithful = {
        method: row["test"]["k"]["3"]["60"]["macro"]["relative_post_hoc"] for method, row in rows.items()
    }  # two words decide each tag
    assert min(faithful["SOInter"], faithful["Lime, tuned, 50 samples"]) > 0.9 > faithful["Random"]
    assert rows["SOInter"]["test"]["queries_per_document"] == 0
    page = (tmp_path / "pages" / "text.md").read_text()
    assert "### Generated, ClassifierChain, test split, the same 60 documents" in page
    assert PICTURES.findall(page) == ["text-queries.png"]
    assert (tmp_path / "images" / "text-queries.png").exists()
    lines = (tmp_path / "results" / "text" / "strings.jsonl").read_text().splitlines()
    found = {row["method"]: sum(one["given"] for one in row["outputs"].values()) for row in map(json.loads, lines)}
    assert found["SOInter"] >= found["Lime"] - 1 > found["Random"] + 5
    assert "| latin | SOInter | 1 |" in (tmp_path / "pages" / "strings.md").read_text()


@pytest.mark.parametrize("name", ["text", "strings"])
def test_full_cases_hold_all_kept_results(name):
    cases = [json.dumps(case, sort_keys=True) for case in Selection().cases(load_study("text", name))]
    kept = read(ROOT / "studies" / "results" / "text", name)
    assert len(set(cases)) == len(cases)
    assert {json.dumps({name: row[name] for name in row["case"]}, sort_keys=True) for row in kept} <= set(cases)
