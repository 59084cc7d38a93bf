"""Every result and every page of results names the version of the method that made it."""

from __future__ import annotations

import json

import pytest

from studies import paper_page
from studies.families import FAMILIES
from studies.frame import method
from studies.frame.command import Place
from studies.frame.study import Selection, Study, read, work

CODE = '"""What it is."""\n\n\ndef double(x):\n    """Twice as much."""\n    return 2 * x  # exactly\n'


def test_the_method_has_not_changed_since_its_versions_were_recorded():
    changed = method.changed_modules(method.digests(), method.recorded()["modules"])
    assert not changed, method.complaint(changed)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_page_says_of_which_version_its_rows_are(family):
    own, place = FAMILIES[family], Place()
    for name in own.studies:
        if rows := read(place.results / family, name):
            page = place.pages / f"{(own.page or name).replace('_', '-')}.md"
            note = method.freshness(f"{family}/{name}", rows, own.method)
            assert note in page.read_text(encoding="utf-8"), (
                f"{page.name} does not say {note!r}; python -m studies pages {family}"
            )


def test_only_code_counts():
    digest = method.source_digest(CODE)
    assert method.source_digest(CODE.replace("  # exactly", "").replace("Twice", "Two times")) == digest
    assert method.source_digest(CODE.replace("2 * x", "3 * x")) != digest
    assert method.source_digest(CODE.replace("2 * x", '"# no comment" * x')) != digest


def test_what_changed_is_named_with_what_to_do():
    before = {"energy/chain": "a", "training/images": "b", "training/optim": "c"}
    assert method.changed_modules(before, before) == []
    changed = method.changed_modules({"energy/chain": "x", "training/images": "b", "training/new": "y"}, before)
    assert changed == ["energy/chain", "training/new", "training/optim"]
    assert "--changed graded sequences tables texts" in method.complaint(changed)
    assert "--unchanged" in method.complaint(changed)
    assert method.kinds_of("interpreter/image_scoring") == ("images",)


def test_rows_of_our_methods_are_marked_and_those_of_others_are_not(tmp_path):
    names = ("SOInter", "SOInter-1", "SOInter, paper preset", "KernelShap")
    study = Study("s", lambda smoke: [{"method": name} for name in names], lambda method: {}, lambda rows, images: "")
    work(study, tmp_path, Selection(), "tables")
    now = method.recorded()["versions"]
    made = [row.get("made_by") for row in read(tmp_path, "s")]
    assert made == [f"tables {now['tables']}", f"tables {now['tables']}", f"paper {now['paper']}", None]


def test_pages_say_when_rows_are_of_an_earlier_version(monkeypatch):
    monkeypatch.setattr(method, "recorded", lambda: {"versions": {"tables": 3, "paper": 1}})
    baseline, old, new = {"method": "Lime"}, {"method": "SOInter", "made_by": "tables 2"}, {"made_by": "tables 3"}
    assert method.freshness("a/b", [baseline, new], "tables") == (
        "*Measured with version 3 of the method for tables (current).*"
    )
    mixed = method.freshness("a/b", [old, new], "tables")
    assert "versions 2 and 3 of the method for tables (**current: 3; 1 of 2 rows are older**)" in mixed
    assert "version 2 of the method for tables (**current: 3**).*" in method.freshness("a/b", [old], "tables")
    assert "with version 2" in method.freshness("tables/tables", [{"method": "SOInter", "seed": 103}], "tables")
    assert "an early version" in method.freshness("a/b", [{"method": "SOInter"}], "tables")
    assert method.freshness("a/b", [baseline], "tables") == method.freshness("a/b", [old], None) == ""


def test_rows_about_probabilities_and_numbers_have_a_version_of_their_own(monkeypatch):
    monkeypatch.setattr(method, "recorded", lambda: {"versions": {"tables": 3, "graded": 4, "images": 1}})
    graded = [{"kind": "continuous"}, {"table": "diabetes"}, {"problem": "switch oblique probabilities"}]
    others = [{"kind": "binary"}, {"problem": "switch oblique labels"}, {"problem": "mediated_xor"}]
    assert [method.mark(row, "tables")["made_by"] for row in graded + others] == ["graded 4"] * 3 + ["tables 3"] * 3
    assert all(method.is_older("a/b", row | {"made_by": "tables 3"}, "tables") for row in graded)
    assert not any(method.is_older("a/b", row | {"made_by": "tables 3"}, "tables") for row in others)
    assert method.kind_of_row(graded[0], "images") == "images"
    rows = [others[0] | {"made_by": "tables 3"}, graded[0] | {"made_by": "graded 4"}]
    assert "version 3 of the method for tables (current), and version 4" in method.freshness("a/b", rows, "tables")


def test_a_change_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(method, "RECORD", tmp_path / "method.json")
    method.RECORD.write_text(json.dumps({"versions": {"tables": 3, "images": 2}, "modules": {}}))
    method.record(["images"])
    assert method.recorded()["versions"] == {"tables": 3, "images": 3}
    assert method.recorded()["modules"] == method.digests()


def test_the_paper_is_set_beside_what_was_measured():
    made = paper_page.page(Place().results)
    assert (Place().pages / "paper.md").read_text(encoding="utf-8") == made, "python -m studies pages"
    for part in ("Figure 1", "Appendix D", "Table 1", "Table 2", "horses", "time", "noise", "K and τ"):
        assert part in made
    for name in ("| Lime |", "| Kernel-Shap |", "| L2X |", "| SOInter-1 |", "| SOInter, as in the paper |"):
        assert name in made
