"""The demo end to end, smaller: its numbers, its report, and the report in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from browsing import browser, requested
from quick import short_training

pytest.importorskip("jinja2")

from sointer.apps.demo import QUICK, TITLE, DemoResult, K, Size, make_folder, run_demo
from sointer.errors import InputError

TINY = Size(query_budget=500, n_trees=10, n_train=300, n_shown=30, n_evaluated=20, n_paths=1)


@pytest.fixture(scope="module")
def stages() -> list[str]:
    return []


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory, stages: list[str]) -> DemoResult:
    n_threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch, short_training():
        patch.setattr("sointer.apps.demo.QUICK", TINY)
        patch.setattr("sointer.training.energy.N_STEPS", 40)
        done = run_demo(tmp_path_factory.mktemp("demo") / "new" / "folder", quick=True, tell=stages.append)
    assert torch.get_num_threads() == n_threads
    return done


def test_it_announces_every_stage(result: DemoResult, stages: list[str]) -> None:
    text = "\n".join(stages)
    for stage in ("Training the model", "Fitting SOInter", "Comparing it with", "Writing a report"):
        assert stage in text


@pytest.mark.slow
def test_soi_is_clearly_better_than_the_baselines_under_both_removals(tmp_path: Path) -> None:
    result = run_demo(tmp_path, quick=True)
    ours, random, global_list = result.evaluation.methods
    assert [ours.name, random.name, global_list.name] == ["SOInter", "Random", "GlobalList"]
    assert result.evaluation.k == K
    assert {result.evaluation.removal, result.evaluation.other_removal} == {"marginal", "mean"}
    for own, other in (
        (ours.fidelity.mean, random.fidelity.mean),
        (ours.fidelity_otherwise, random.fidelity_otherwise),
    ):
        assert 0.3 < other < 0.9
        assert other + 0.05 < own <= 1.0
    assert ours.fidelity.mean > global_list.fidelity.mean
    assert 0 < ours.n_fit_queries <= QUICK.query_budget
    assert random.n_fit_queries == 0


def test_all_segments_of_the_chosen_digits_are_evaluated(result: DemoResult) -> None:
    assert len(result.evaluation.targets) == 7
    assert [method.name for method in result.evaluation.methods] == ["SOInter", "Random", "GlobalList"]
    assert result.evaluation.n_questions == 7 * TINY.n_evaluated


def test_the_result_is_also_plain_json(result: DemoResult) -> None:
    read = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert read["methods"][0]["fidelity"]["mean"] == result.evaluation.fidelity
    assert read["page"] == str(result.page)
    assert read["random_state"] == 0
    assert read["seconds"] > 0


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(InputError, match="cannot write to"):
        make_folder(tmp_path / "taken")


def test_the_command_prints_the_table_and_where_the_report_is(
    result: DemoResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from sointer.apps.cli.app import build_app

    monkeypatch.setattr("sointer.apps.demo.run_demo", lambda *_, **__: result)
    done = CliRunner().invoke(build_app(), ["demo", "--quick"])
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{result.evaluation.table()}\n"
    assert f"Open {result.page} in a browser." in done.stderr


# --- the report ------------------------------------------------------------------------------------------


def test_the_report_is_one_small_file_that_needs_nothing_from_outside(result: DemoResult) -> None:
    assert result.page.stat().st_size < 1_000_000
    page = result.page.read_text(encoding="utf-8")
    urls = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert urls <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<link|@import|url\(|<iframe|\bsrc=\"(?!data:)", page)


def test_a_browser_shows_every_segment_and_the_digits(result: DemoResult) -> None:
    with browser() as driver:
        driver.get(result.page.as_uri())
        assert driver.title == TITLE
        assert driver.get_log("browser") == []
        assert requested(driver) == [result.page.as_uri()]
        names = [link.text for link in driver.find_elements("css selector", "#target-links li")]
        assert [name[0] for name in sorted(names)] == list("abcdefg")
        driver.find_element("css selector", "#target-links a").click()
        text = driver.find_element("css selector", "main").text
        assert re.search(r"a \d \(test image \d+\)", text)
        assert re.search(r"row \d, col \d", text)
        assert driver.get_log("browser") == []
