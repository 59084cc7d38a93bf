"""Every number in README.md, and every marked number in the guides, is what the stored results say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from studies.frame.numbers import MARK, refreshed, traced, value_of

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKED = [page for page in PAGES if MARK.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", MARKED, ids=lambda page: page.name)
def test_marked_numbers_are_what_the_results_say(page):
    wrong = [
        f"{text} should be {now}: {source}" for text, now, source in traced(page.read_text("utf-8")) if text != now
    ]
    assert not wrong, "\n".join(
        [*wrong, "python -m studies pages writes them anew; read the sentences around them, too"]
    )


def test_no_number_of_the_readme_goes_without_a_source():
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", (ROOT / "README.md").read_text("utf-8"), flags=re.DOTALL)
    text = MARK.sub("", text).replace("Python 3.10", "").replace("Apache-2.0", "")
    assert re.findall(r"[^\s]*\d\.\d+[^\s]*|\d+ ?%[^\s]*|\d+ ?×", text) == []
    assert len(re.sub(r"<!--.*?-->", "", (ROOT / "README.md").read_text("utf-8")).split()) <= 600


def test_marks_are_read_and_written(tmp_path):
    (tmp_path / "f").mkdir()
    rows = [
        {"m": "a", "x": 0.5, "t": {"y": [0, 0.25]}},
        {"m": "a", "x": 0.7, "t": {"y": [0, 0.35]}},
        {"m": "b", "x": 9},
    ]
    (tmp_path / "f" / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert value_of("f/s; x; m=a", tmp_path) == pytest.approx(0.6)
    assert value_of("f/s; t.y[1]; m=a; max", tmp_path) == pytest.approx(0.35)
    text = "It is 0.1<!-- f/s; x; m=a -->, or 3 %<!-- f/s; t.y[1]; m=a; min -->."
    assert refreshed(text, tmp_path) == "It is 0.6<!-- f/s; x; m=a -->, or 25 %<!-- f/s; t.y[1]; m=a; min -->."
    assert [pair[:2] for pair in traced(text, tmp_path)] == [("0.1", "0.6"), ("3", "25")]
    with pytest.raises(ValueError, match="no row of f/s"):
        value_of("f/s; x; m=c", tmp_path)
