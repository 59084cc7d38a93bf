"""The demo end to end, smaller: its numbers, its report, and the report in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from browsing import as_if_new, requested
from quick import few_path_steps, short_training

pytest.importorskip("jinja2")

from sointer.apps.demo import QUICK, TITLE, DemoResult, DemoSize, DeskSize, K, make_folder, run_demo
from sointer.errors import InputError

SMALL = DemoSize(DeskSize(2000, 1500, 8, 200, 10), 600, 10, n_train=400, n_shown=12, n_evaluated=12, n_paths=1)


@pytest.fixture(scope="module")
def stages() -> list[str]:
    return []


@pytest.fixture(scope="module", params=[SMALL, pytest.param(QUICK, marks=pytest.mark.slow)], ids=["small", "quick"])
def size(request: pytest.FixtureRequest) -> Iterator[DemoSize]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as shorter:
        if request.param is SMALL:
            shorter.enter_context(short_training(15))
            shorter.enter_context(few_path_steps(300))
        patch.setattr("sointer.apps.demo.QUICK", request.param)
        yield request.param


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory, stages: list[str], size: DemoSize) -> DemoResult:
    n_threads = torch.get_num_threads()
    done = run_demo(tmp_path_factory.mktemp("demo") / "new" / "folder", quick=True, tell=stages.append)
    assert torch.get_num_threads() == n_threads
    return done


def test_it_announces_every_stage(result: DemoResult, stages: list[str]) -> None:
    text = "\n".join(stages)
    for stage in ("a loan desk", "64 pixels", "Fitting SOInter", "Comparing it with", "Writing a report"):
        assert stage in text


def test_the_desk_is_explained_more_faithfully_than_by_kernel_shap_and_for_fewer_queries(
    result: DemoResult, size: DemoSize
) -> None:
    ours, shapley, one_list = result.desk.evaluation.methods
    assert [ours.name, one_list.name] == ["SOInter", "GlobalList"]
    assert shapley.name in ("KernelShap", "ShapleySampling")
    if shapley.name == "KernelShap":  # sampled Shapley values are as faithful, and cost as much
        assert sum(ours.keep) > sum(shapley.keep)
        assert sum(ours.delete) > sum(shapley.delete)
    assert ours.fidelity.mean > 0.9
    n = result.desk.evaluation.n_rows
    assert ours.n_fit_queries <= size.desk.query_budget
    assert ours.queries_per_row == 0, "predictions are given to all methods"
    assert shapley.queries_per_row * n > ours.n_fit_queries


def test_digits_are_explained_clearly_better_than_by_the_baselines_under_both_removals(
    result: DemoResult, size: DemoSize
) -> None:
    ours, random, global_list = result.digits.methods
    assert [ours.name, random.name, global_list.name] == ["SOInter", "Random", "GlobalList"]
    assert result.digits.k == K
    assert {result.digits.removal, result.digits.other_removal} == {"marginal", "mean"}
    for own, other in (
        (ours.fidelity.mean, random.fidelity.mean),
        (ours.fidelity_otherwise, random.fidelity_otherwise),
    ):
        assert 0.3 < other < 0.9
        assert other + 0.05 < own <= 1.0
    assert ours.fidelity.mean > global_list.fidelity.mean
    assert len(result.digits.targets) == 7
    assert result.digits.n_questions == 7 * size.n_evaluated


def test_the_result_is_also_plain_json(result: DemoResult) -> None:
    read = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert read["loan_desk"]["methods"][0]["fidelity"]["mean"] == result.desk.evaluation.fidelity
    assert read["digits"]["methods"][0]["fidelity"]["mean"] == result.digits.fidelity
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
    assert done.stdout == f"{result.desk.evaluation.table()}\n"
    assert f"Open {result.page} in a browser." in done.stderr


# --- the pages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["index.html", "loan-desk.html", "digits.html"])
def test_every_page_is_one_small_file_that_needs_nothing_from_outside(result: DemoResult, name: str) -> None:
    page = (result.page.parent / name).read_text(encoding="utf-8")
    assert len(page) < 1_000_000
    urls = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert urls <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<link|@import|url\(|<iframe|\bsrc=\"(?!data:)", page)


def test_the_first_screen_shows_why_on_a_wide_screen_and_on_a_phone(result: DemoResult, driver: Any) -> None:
    try:
        driver.get(result.page.as_uri())
        assert driver.get_log("browser") == []
        text = driver.find_element("css selector", "main").text
        for words in (
            "through high risk",
            "Mostly through weak collateral",
            "Which features matter where",
            "Shapley values",
            "keep / delete, best 5",
        ):
            assert words in text
        methods = driver.find_element("css selector", ".methods")
        assert methods.rect["y"] + methods.rect["height"] < 1000, "all of it is on the first screen"
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        )
        driver.get(result.page.as_uri())
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 390
        driver.find_element("css selector", "a[href='digits.html']").click()
        assert driver.title == TITLE
    finally:
        as_if_new(driver)


def test_a_browser_shows_every_segment_and_the_digits(result: DemoResult, driver: Any) -> None:
    page = (result.page.parent / "digits.html").as_uri()
    driver.get(page)
    assert driver.title == TITLE
    assert driver.get_log("browser") == []
    assert requested(driver) == [page]
    names = [link.text for link in driver.find_elements("css selector", "#target-links li")]
    assert [name[0] for name in sorted(names)] == list("abcdefg")
    driver.find_element("css selector", "#target-links a").click()
    text = driver.find_element("css selector", "main").text
    assert re.search(r"a \d \(test image \d+\)", text)
    assert re.search(r"row \d, col \d", text)
    assert driver.get_log("browser") == []
