"""The frame of all studies: which cases are run, which results are kept, which pages are written."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from studies import families
from studies.faults.fuzzing import last_lines
from studies.frame import command
from studies.frame import method as versions
from studies.frame.condense import condensed
from studies.frame.study import Selection, Study, gather, read, work

SEEDS = (3, 4)


def squares(smoke: bool):
    for seed in SEEDS:
        for name in ("even", "odd"):
            for method in ("ours", "theirs"):
                yield {"name": name, "method": method, "seed": seed}


def run(name: str, method: str, seed: int) -> dict:
    if (name, method, seed) == ("odd", "theirs", 4):
        raise ValueError("cannot be squared")
    return {"square": seed**2}


STUDY = Study("squares", squares, run, lambda rows, images: f"# {len(rows)} squares\n")


def test_each_case_is_run_once_and_a_failing_one_is_tried_again(tmp_path, capsys):
    assert work(STUDY, tmp_path, Selection()) == 1
    assert "cannot be squared" in capsys.readouterr().out
    rows = read(tmp_path, "squares")
    assert [row["square"] for row in rows] == [9, 9, 9, 9, 16, 16, 16]
    assert work(STUDY, tmp_path, Selection()) == 1
    assert len(read(tmp_path, "squares")) == 7


def test_shards_share_all_cases_and_keep_methods_together(tmp_path):
    parts = [list(Selection(shard, 2).cases(STUDY)) for shard in range(2)]
    assert sorted(map(json.dumps, parts[0] + parts[1])) == sorted(map(json.dumps, squares(False)))
    for part in parts:
        assert all({**case, "method": "theirs"} in part for case in part)
    for shard in range(2):
        work(STUDY, tmp_path, Selection(shard, 2))
    assert {file.name for file in tmp_path.iterdir()} == {"squares-shard0.jsonl", "squares-shard1.jsonl"}
    assert len(read(tmp_path, "squares")) == 7


def test_cases_are_chosen_by_values_and_by_seed():
    assert [case["seed"] for case in Selection(only=("even", "ours")).cases(STUDY)] == [3, 4]
    assert list(Selection(only=("even", "ours"), seed=4).cases(STUDY)) == [
        {"name": "even", "method": "ours", "seed": 4}
    ]
    assert {case["seed"] for case in Selection(seed=9).cases(STUDY)} == {9}
    assert len(list(Selection(seed=9).cases(STUDY))) == 4


def test_results_are_replaced_one_by_one(tmp_path):
    """What is repeated and fails, or was cut off, leaves the old result."""
    for shard in range(2):
        work(STUDY, tmp_path, Selection(shard, 2))

    def cubes(name: str, method: str, seed: int) -> dict:
        if method == "theirs":
            raise ValueError("cannot be cubed")
        return {"square": seed**3}

    repeated = [Selection(shard, 2, only=("even",), seed=3, repeated="all") for shard in range(2)]
    assert sum(work(replace(STUDY, run=cubes), tmp_path, one) for one in repeated) == 1
    found = {(row["name"], row["method"], row["seed"]): row["square"] for row in read(tmp_path, "squares")}
    assert len(found) == 7
    assert found.pop(("even", "ours", 3)) == 27
    assert set(found.values()) == {9, 16}
    gather(tmp_path, "squares")
    assert [file.name for file in tmp_path.iterdir()] == ["squares.jsonl"]
    assert len((tmp_path / "squares.jsonl").read_text().splitlines()) == 7
    assert sorted(row["square"] for row in read(tmp_path, "squares")) == [9, 9, 9, 16, 16, 16, 27]


def test_what_older_versions_gave_is_repeated(tmp_path, monkeypatch):
    ours = replace(STUDY, cases=lambda smoke: [{**case, "method": "SOInter"} for case in squares(smoke)][::2])
    monkeypatch.setattr(versions, "recorded", lambda: {"versions": {"tables": 4}})
    work(ours, tmp_path, Selection(seed=3), "tables")
    older = Selection(repeated="older")
    assert ours.todo(tmp_path, older, "tables") == []
    monkeypatch.setattr(versions, "recorded", lambda: {"versions": {"tables": 5}})
    assert ours.todo(tmp_path, older, None) == []  # does not depend on the method
    assert [case["seed"] for case in ours.todo(tmp_path, older, "tables")] == [3, 3]
    for shard in range(2):
        work(ours, tmp_path, replace(older, shard=shard, n_shards=2), "tables")
    assert [row["made_by"] for row in read(tmp_path, "squares")] == ["tables 5", "tables 5"]
    gather(tmp_path, "squares")
    assert [row["made_by"] for row in read(tmp_path, "squares")] == ["tables 5", "tables 5"]


@pytest.fixture
def one_family(monkeypatch):
    """The only study there is, in a family of its own."""
    family = families.Family("Squares.", ("squares",), None)
    monkeypatch.setattr(command, "FAMILIES", {"numbers": family})
    monkeypatch.setattr(command, "load_study", lambda family, name: STUDY)
    return family


def test_run_list_and_pages(one_family, tmp_path, capsys):
    where = ("--out", str(tmp_path))
    assert command.main(["run", "numbers/squares", "--case", "ours", *where]) == 0
    assert len((tmp_path / "results" / "numbers" / "squares.jsonl").read_text().splitlines()) == 4
    assert (tmp_path / "pages" / "squares.md").read_text() == "# 4 squares\n"
    capsys.readouterr()
    assert command.main(["list", "numbers", *where]) == 0
    assert capsys.readouterr().out.count("'method': 'theirs'") == 4
    assert command.main(["run", "numbers", "--case", "ours", "--seed", "3", "--again", *where]) == 0
    assert capsys.readouterr().out.count(" 0 s") == 2
    assert command.main(["run", "numbers", *where]) == 1, "a case fails"
    assert command.main(["pages", *where]) == 0
    assert (tmp_path / "pages" / "squares.md").read_text() == "# 7 squares\n"
    assert command.main(["list", *where]) == 0
    assert "numbers/squares" in (shown := capsys.readouterr().out)
    assert "7 results" in shown


def test_one_page_for_a_family(one_family, tmp_path, monkeypatch):
    class Page:
        opening = staticmethod(lambda found: f"# Numbers of {', '.join(found)}\n")

    monkeypatch.setitem(command.FAMILIES, "numbers", replace(one_family, page="all-numbers"))
    monkeypatch.setattr(command, "load_page", lambda family: Page)
    command.main(["run", "numbers", "--case", "ours", "--out", str(tmp_path)])
    assert (tmp_path / "pages" / "all-numbers.md").read_text() == "# Numbers of squares\n\n# 4 squares\n"


def test_long_tables_become_files_and_what_was_missed_stays(tmp_path):
    head = "| bar | reached? |\n| --- | --- |\n"
    long = head + "".join(f"| **{i}** | {'**no**' if i == 7 else 'yes'} |\n" for i in range(18))
    (tmp_path / "page-3.csv").write_text("old")
    made = condensed(f"# Page\n\n{long}\n{head}| a | yes |\n", "page", tmp_path)
    assert made.count("| yes |") == 1, "a short table stays"
    assert "| **7** | **no** |" in made
    assert "[Only rows not reached; all 18 rows (CSV)](page-1.csv)" in made
    assert [file.name for file in tmp_path.iterdir()] == ["page-1.csv"]
    assert (tmp_path / "page-1.csv").read_text().split() == [
        "bar,reached?",
        *(f"{i},{'no' if i == 7 else 'yes'}" for i in range(18)),
    ]


def test_of_subsections_that_are_alike_the_first_stays(tmp_path):
    one = "### {}\n\nWords.\n\n| m | x |\n| --- | --- |\n| a | {} |\n\n"
    page = (
        "# Page\n\n## First\n\n"
        + one.format("A", 1)
        + one.format("B", 2)
        + "## Second\n\n"
        + one.format("C", 3)
        + "## End\n\nx\n"
    )
    made = condensed(page, "page", tmp_path)
    assert re.findall("(?m)^#+ .*", made) == ["# Page", "## First", "### A", "## End"]
    assert "[The same table for all 3 (CSV)](page-all-1.csv)" in made
    assert (tmp_path / "page-all-1.csv").read_text().split() == [",m,x", "A,a,1", "B,a,2", "C,a,3"]


def test_content_is_put_between_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- faults: made by make faults -->\nold\n<!-- end of faults -->\nafter\n")
    command.insert(page, "faults", "new")
    assert page.read_text() == "before\n<!-- faults: made by make faults -->\nnew\n<!-- end of faults -->\nafter\n"


@pytest.mark.parametrize("family", families.FAMILIES)
def test_every_study_that_is_named_exists_and_every_result_belongs_to_one(family):
    folder = Path(families.__file__).parent
    own = families.FAMILIES[family]
    assert all((folder / family / f"{name}.py").exists() for name in own.studies)
    kept = {file.stem.split("-shard")[0] for file in (folder / "results" / family).glob("*.jsonl")}
    assert kept <= set(own.studies)
    assert own.page is None or (folder / family / "page.py").exists()


def test_results_name_no_directory_of_the_machine_that_made_them() -> None:
    results = Path(__file__).parents[2] / "studies" / "results"
    found = [path.name for path in results.rglob("*.jsonl") if re.search(r'File \\"(/|[A-Z]:)', path.read_text())]
    assert found == []
    try:
        json.loads("{")
    except ValueError:
        trace = last_lines()
    assert "json/decoder.py" in trace
    assert 'File "/' not in trace
    assert str(Path.home()) not in trace
