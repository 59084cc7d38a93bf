"""The command: a newcomer's path with a CSV file and a scikit-learn model, what is printed where, and exit codes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import forking
import sointer
from quick import LAYOUT, TABLE, few_hide_and_seek_epochs, quick_fit, short_training

pytest.importorskip("typer")
pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from typer.testing import CliRunner, Result

from sointer.apps.cli.app import build_app
from sointer.io import storage

APP = build_app()
FEATURES = [f"f{i}" for i in range(6)]
TRUTH = {"warm": {"f0"}, "wet": {"f1"}, "odd": {"f0", "f1"}}
MODEL = """
import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeClassifier

print("this goes to stderr")
_X = pd.read_csv("X.csv")[[f"f{i}" for i in range(6)]]
_warm, _wet = _X["f0"] > 0, _X["f1"] > 0
_Y = np.column_stack([_warm, _wet, _warm ^ _wet]).astype(int)
tree = DecisionTreeClassifier(random_state=0).fit(_X, _Y)  # of several outputs; it knows the names of its features


def predict(X):
    return pd.DataFrame(tree.predict(X), columns=["warm", "wet", "odd"])


def slow(X):
    import time

    time.sleep(0.3)
    return predict(X)


def broken(X):
    raise RuntimeError("no\\nluck")
"""
WORDS = ["why", "X.csv", "no.parquet", "odd", "all", "-", "0", "-1", "none", "no_module:f", "m.onnx", "m.pkl", ""]
OPTIONS = ["--data", "-d", "--out", "-o", "--target", "-t", "--model", "-m", "--k", "--json", "-q", "-v", "--force"]
OPTIONS += ["--text", "--drop", "--header", "--rows", "--refine", "--verify", "--against", "--at-least", "--seed"]
FIT = ["fit", "--model", "newcomers_model:tree", "--data", "X.csv", "--k", "2", "--query-budget", "600"]


def command(*arguments: str, before: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own; `before` is Python that is executed first in it."""
    head = [sys.executable, "-m", "sointer"]
    if before is not None:
        head = [sys.executable, "-c", f"import sys; {before}; from sointer.apps.cli import main; main()"]
    encoding = os.environ.get("PYTHONIOENCODING")
    return subprocess.run(
        [*head, *arguments], capture_output=True, text=True, encoding=encoding, timeout=600, check=False
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with X.csv, newcomers_model.py and the explainer why/, fitted by the command.

    In this process, as below: `test_ctrl_c_is_exit_code_130` runs the same command in one of its own.
    """
    folder = tmp_path_factory.mktemp("project")
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 6)), columns=FEATURES)
    X.insert(0, "id", range(400))
    X["truth"] = "not a feature"
    X.to_csv(folder / "X.csv", index=False)
    (folder / "newcomers_model.py").write_text(MODEL)
    with pytest.MonkeyPatch.context() as patch, short_training(20):
        patch.chdir(folder)
        done = run(*FIT, "--output-names", "warm,wet,odd", "--out", "why")
    assert done.exit_code == 0, done.stderr
    (folder / "fit.out").write_text(done.stdout)
    (folder / "fit.err").write_text(done.stderr)
    return folder


@pytest.fixture
def here(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(project)
    return project


def run(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(APP, list(arguments))


def one_line(result: Result) -> str:
    """The one line that an expected error prints."""
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    line = [line for line in result.stderr.splitlines() if line != "this goes to stderr"][-1]
    assert line.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert "should not happen" not in line
    return line


# --- the newcomer's path ---------------------------------------------------------------------------------


def test_fit_says_what_it_did_and_what_to_do_next(project: Path) -> None:
    result, aside = (project / "fit.out").read_text(), (project / "fit.err").read_text()
    assert result.startswith("wrote why: explains 3 outputs, by 2 of 6 features\n")
    n_queries = int(re.search(r"queried the model with (\d+) rows", result)[1])
    assert 500 < n_queries <= 600  # what was kept for checks may not be needed
    assert "400 rows of 6 columns in X.csv; not used: id, truth" in aside
    assert "sointer explain why --data FILE --target 'warm'" in aside
    assert "\r" not in aside  # no progress bars without a terminal
    assert "%|" not in aside


@pytest.mark.usefixtures("quick_paths")
def test_the_path_of_a_newcomer(here: Path) -> None:
    result = run("info", "why")
    assert result.exit_code == 0
    assert "3 of 3 outputs (binary): warm, wet, odd" in result.stdout
    assert "2 of 6 features: f0, f1, f2, f3, f4, f5" in result.stdout

    explained = run("explain", "why", "--data", "X.csv", "--target", "odd", "--out", "odd.parquet")
    assert explained.exit_code == 0, explained.stderr
    assert "explained 400 rows" in explained.stdout
    records = pd.read_parquet("odd.parquet")
    assert list(records.columns) == LAYOUT
    assert set(records["feature"]) == TRUTH["odd"]
    own = sointer.load("why").explain(pd.read_csv("X.csv")[FEATURES], "odd").to_frame()
    assert records["feature"].tolist() == own["feature"].tolist()
    np.testing.assert_array_equal(records["score"], own["score"])

    assert run("explain", "why", "--data", "X.csv", "--target", "all", "--out", "all.csv").exit_code == 0
    everything = pd.read_csv("all.csv")
    assert len(everything) == 400 * 3 * 2
    pd.testing.assert_frame_equal(
        everything[everything["target"] == "odd"].reset_index(drop=True), records, check_dtype=False, atol=1e-4
    )

    (here / "ids.csv").write_text((here / "X.csv").read_text().replace("\n", "\nid-").removesuffix("id-"))
    options = ["--rows", "20", "--model", "newcomers_model:tree", "--id", "id", "--out", "w.html"]
    page = run("report", "why", "--data", "ids.csv", *options)
    assert page.exit_code == 0, page.stderr
    assert page.stdout.startswith("wrote w.html (")
    assert "wet" in (here / "w.html").read_text(encoding="utf-8")
    assert len(set(re.findall(r'"(id-\d+)"', (here / "w.html").read_text(encoding="utf-8")))) == 20


def test_evaluate_as_table_and_json(here: Path) -> None:
    ask = ["evaluate", "why", "--model", "newcomers_model:tree", "--data", "X.csv", "--rows", "10"]
    with few_hide_and_seek_epochs():
        result = run(*ask, "--samples", "100")
    assert result.exit_code == 0, result.stderr
    for method, package in {"SOInter": "sointer", "Random": "sointer", "Lime": "lime", "KernelShap": "shap"}.items():
        is_shown = re.search(rf"^{method} +[01]\.\d+", result.stdout, re.MULTILINE) is not None
        assert is_shown == (importlib.util.find_spec(package) is not None)
        assert is_shown == (f"{method} is left out, for {package} is not installed" not in result.stderr)
    assert re.search(r"^keep/delete +k=1 +k=2", result.stdout, re.MULTILINE)
    assert re.search(r"^GlobalList +[01]\.\d\d/[01]\.\d\d", result.stdout, re.MULTILINE)
    assert "Invase is left out" in result.stderr
    result = run(*ask, "--against", "Random", "--json", "--target", "odd", "--ks", "1,2")
    metadata = json.loads(result.stdout)
    ours, chance = metadata["methods"]
    assert metadata["ks"] == [1, 2]
    assert len(ours["keep"]) == len(ours["delete"]) == 2
    assert ours["fidelity"]["mean"] > 0.95 > chance["fidelity"]["mean"]
    assert [target["target"] for target in metadata["targets"]] == ["odd"]
    assert run(*ask, "--against", "none", "--k", "1", "--target", "odd", "--at-least", "0.99").exit_code == 3
    assert run(*ask, "--against", "none", "--target", "warm", "--at-least", "0.5").exit_code == 0
    result = run(*ask, "--against", "none", "--target", "odd", "--k", "auto", "--json")
    assert json.loads(result.stdout)["k"] == "auto"


def test_standard_output_carries_the_records_only(here: Path) -> None:
    result = run("explain", "why", "--data", "X.csv", "-t", "wet", "-k", "1", "--out", "-", "--chunk-rows", "100")
    header, *lines = result.stdout.splitlines()
    named = "sample target value value_source rank feature feature_value score needed effect locality"
    assert header == ",".join(f'"{name}"' for name in named.split())
    assert len(lines) == 400
    assert [int(line.split(",")[0]) for line in lines] == list(range(400))
    assert sum(line.split(",")[5] == '"f1"' for line in lines) > 380
    result = run("explain", "why", "--data", "X.csv", "-t", "wet", "-k", "1", "--out", "-", "--json")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(records) == 400
    assert records[7]["sample"] == 7


def test_by_default_and_without_the_model_those_that_matter_are_selected(here: Path) -> None:
    result = run("explain", "why", "--data", "X.csv", "-t", "wet", "--k", "auto", "--out", "-", "--quiet")
    assert result.exit_code == 0, result.output
    opened = sointer.load("why")
    frame = opened.explain(pd.read_csv("X.csv")[FEATURES], "wet", k="auto").to_frame()
    assert len(result.stdout.splitlines()) == len(frame) + 1
    model = [argument for argument in FIT if argument not in ("--k", "2")]
    with short_training():
        made = run(*model, "--query-budget", "100", "--out", "automatic", "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["k"] == "auto"
    assert "those that matter of 6 features" in run("info", "automatic").stdout


def test_json_of_info_is_json_and_nothing_else(here: Path) -> None:
    metadata = json.loads(run("info", "why", "--json").stdout)
    assert (metadata["features"], metadata["outputs"], metadata["k"]) == (FEATURES, ["warm", "wet", "odd"], 2)
    assert 500 < metadata["n_queries"] <= 600


def test_with_the_model_at_hand_its_answers_are_explained_and_checked(here: Path) -> None:
    result = run(
        *("explain", "why", "--data", "X.csv", "-t", "odd", "--model", "newcomers_model:predict"),
        *("--refine", "10", "--verify", "50", "--out", "asked.parquet", "--records", "asked.jsonl", "--json"),
    )
    assert result.exit_code == 0, result.stderr
    metadata = json.loads(result.stdout)
    assert metadata["n_queries"] > 400
    assert metadata["fidelity"] > 0.95
    assert "expected" not in result.stderr
    records = [json.loads(line) for line in Path("asked.jsonl").read_text().splitlines()]
    assert len(records) == 400
    assert sum(one["verification"] is not None for one in records) == 50
    loaded = sointer.load("why", black_box=importlib.import_module("newcomers_model").predict)
    check = sointer.verify_record(records[3], loaded, pd.read_csv("X.csv")[FEATURES])
    assert check.holds, check
    assert check.same_model
    again = ["explain", "why", "--data", "X.csv", "-t", "odd", "--out", "new.parquet", "--records"]
    assert "--force" in run(*again, "asked.jsonl").stderr
    assert "ends in .jsonl" in run(*again, "asked.txt").stderr


def test_the_value_is_what_the_model_predicts(here: Path) -> None:
    rows = pd.read_csv("X.csv")[FEATURES]
    ask = ["explain", "why", "--data", "X.csv", "-t", "odd", "-t", "wet", "-k", "1", "--force", "--out", "v.csv"]
    result = run(*ask, "--model", "newcomers_model:tree", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["n_queries"] == 400  # once per row, for both targets
    assert "expected" not in result.stderr
    records = pd.read_csv("v.csv")
    assert set(records["value_source"]) == {"model"}
    model = sointer.load("why", black_box=importlib.import_module("newcomers_model").tree).black_box_
    expected = model(rows)
    for place, name in ((2, "odd"), (1, "wet")):
        assert records[records["target"] == name]["value"].tolist() == expected[:, place].tolist()
    for more in ([], ["--model", "newcomers_model:tree", "--no-query"]):
        result = run(*ask, *more, "--json")
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["n_queries"] == 0
        assert "values are expected ones: the model was not queried" in result.stderr
        assert ("--model" if not more else "--no-query") in result.stderr
        assert set(pd.read_csv("v.csv")["value_source"]) == {"expected"}
    assert run(*ask, "--quiet").stderr == ""


def test_verbose_tells_the_stages_beside_json(here: Path) -> None:
    with short_training():
        loud = run(*FIT[:-1], "300", "--target", "2", "--out", "loud", "--json", "-v")
    result = json.loads(loud.stdout)  # although the module prints when it is imported
    assert (result["explainer"], result["n_features"]) == ("loud", 6)
    assert 250 < result["n_queries"] <= 300
    assert result["warnings"] == [
        line.removeprefix("warning: ") for line in loud.stderr.splitlines() if "warning" in line
    ]
    assert re.search(r"querying the model: \d+ rows in .* s, queried \d+/300", loud.stderr)
    assert re.search(r"learning: .*agrees \d", loud.stderr)
    quiet = run("explain", "loud", "--data", "X.csv", "--out", "quiet.jsonl", "--json", "-q")
    assert quiet.stderr == ""  # and one target was fitted, so none need be named
    assert json.loads(quiet.stdout)["n_records"] == 800


# --- what goes wrong -------------------------------------------------------------------------------------


def test_nothing_is_overwritten_unless_forced(here: Path) -> None:
    (here / "taken.csv").write_text("mine")
    ask = ["explain", "why", "--data", "X.csv", "-t", "odd", "--out", "taken.csv"]
    assert "--force" in one_line(run(*ask))
    assert "exists" in one_line(run(*FIT, "--out", "why"))
    assert "exists" in one_line(run("report", "why", "--data", "X.csv", "--out", "taken.csv"))
    assert (here / "taken.csv").read_text() == "mine"
    assert run(*ask, "--force").exit_code == 0
    assert (here / "taken.csv").read_text() != "mine"


def test_a_place_that_cannot_be_written_to_is_refused_before_the_work(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the fit, its queries would be lost."""
    (here / "sealed").mkdir(exist_ok=True)
    monkeypatch.setattr("os.access", lambda path, _: Path(path).name != "sealed")
    monkeypatch.setattr("sointer.SOInter.fit", lambda *_, **__: pytest.fail("it was fitted"))
    assert "sealed may not be written to" in one_line(run(*FIT, "--out", "sealed/why"))
    assert "X.csv is a file" in one_line(run(*FIT, "--out", "X.csv", "--force"))
    assert "X.csv is a file" in one_line(run(*FIT, "--out", "X.csv/why"))
    assert "holds no saved explainer" in one_line(run(*FIT, "--out", ".", "--force"))
    for ask in (["explain", "why", "-t", "odd", "--out", "sealed/x.csv"], ["report", "why", "--out", "sealed/x.html"]):
        assert "sealed may not be written to" in one_line(run(*ask, "--data", "X.csv"))


def test_a_full_disk_says_what_was_not_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(path: Path, *arguments: object, **options: Any) -> None:
        if path.parent.name == "lost":
            raise OSError(28, "No space left on device")
        real_put(path, *arguments, **options)

    real_put: Any = storage.put
    monkeypatch.setattr(storage, "put", put)
    with short_training(1):
        line = one_line(run(*FIT, "--out", "lost", "--checkpoint", "kept"))
    assert "could not be written to lost ([Errno 28] No space left on device)" in line
    assert "run the same again, which takes it from kept" in line
    monkeypatch.setattr(storage, "put", real_put)
    with short_training(1):
        assert run(*FIT, "--out", "lost", "--checkpoint", "kept").exit_code == 0


@pytest.mark.parametrize("out", ["full.csv", "full.parquet", "full.html"])
def test_a_full_disk_leaves_the_file_that_was_there(here: Path, out: str) -> None:
    pytest.importorskip("resource")
    (here / out).write_text("before")
    what = ["report"] if out.endswith("html") else ["explain", "-t", "odd"]
    done = command(
        *[*what, "why", "--data", "X.csv", "--out", out, "--force"],
        before="import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))",
    )
    assert done.returncode == 1
    assert "no room to write" in done.stderr.splitlines()[-1]
    assert "choose another place" in done.stderr.splitlines()[-1]
    assert (here / out).read_text() == "before"
    assert not [path for path in here.iterdir() if path.name.startswith(f".{out}")]


def test_a_report_needs_a_name_for_each_row(here: Path) -> None:
    pd.read_csv("X.csv").assign(pair=lambda X: X["id"] // 2, gap=lambda X: X["id"].where(X["id"] > 3)).to_csv(
        "ids.csv", index=False
    )
    ask = ["report", "why", "--data", "ids.csv", "--out", "ids.html", "--id"]
    assert "--id pair: 200 names for 400 rows; 2 are called '0'" in one_line(run(*ask, "pair"))
    assert "--id gap: 4 of 400 rows have none" in one_line(run(*ask, "gap"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["explain", "why", "--data", "X.csv", "-t", "odd", "--model", "newcomers_model:np", "--out", "x.csv"],
            "error: model is an object of type module",
        ),
        (["explain", "nowhere", "--data", "X.csv", "-t", "odd", "--out", "x.csv"], "nowhere is not a saved explainer"),
        (["explain", "why", "--data", "X.csv", "-t", "od", "--out", "x.csv"], "Did you mean 'odd'?"),
        (["explain", "why", "--data", "X.csv", "-t", "7", "--out", "x.csv"], "from 0 to 2"),
        (
            ["explain", "why", "--data", "X.csv", "--out", "x.csv"],
            "--target is missing; give one of 'warm', 'wet', 'odd', or all",
        ),
        (["explain", "why", "--data", "no.csv", "-t", "odd", "--out", "x.csv"], "no.csv does not exist"),
        (["explain", "why", "--data", "X.txt", "-t", "odd", "--out", "x.csv"], "unsupported file type"),
        (["explain", "why", "--data", "few.csv", "-t", "odd", "--out", "x.csv"], "lacks 4 of the 6"),
        (["explain", "why", "--data", "X.csv", "-t", "odd", "--out", "x.xls"], ".parquet, .csv or .jsonl"),
        (["explain", "why", "--data", "X.csv", "-t", "odd", "--out", "no/x.csv"], "there is no folder"),
        (["explain", "why", "--data", "X.csv", "-t", "odd", "--out", "x.csv", "-k", "70"], "k must be from 1 to 6"),
        (
            ["explain", "why", "--data", "X.csv", "-t", "odd", "--out", "x.csv", "-k", "two"],
            "--k must be a whole number",
        ),
        (["explain", "why", "--data", "X.csv", "-t", "odd", "--out", "x.csv", "--refine", "5"], "--model"),
        (["explain", "why", "--data", "X.csv", "-t", "odd", "--out", "x.csv", "--method", "predict"], "no --model"),
        (["explain", "why", "--data", "X.csv", "-t", "odd", "--out", "x.csv", "--text", "truth"], "leave out --text"),
        (["fit", "--model", "newcomers_model:tree", "--data", "few.csv", "--out", "x"], "lacks 4 of the columns"),
        (["fit", "--model", "newcomers_model:predict", "--data", "X.csv", "--drop", "idd", "--out", "x"], "mean 'id'?"),
        (
            ["fit", "--model", "newcomers_model:predict", "--data", "X.csv", "--text", "f", "--out", "x"],
            "no column 'f'",
        ),
        (["fit", "--model", "newcomers_model:broken", "--data", "few.csv", "--out", "x"], "RuntimeError: no luck"),
        (["fit", "--model", "newcomers_model:tree", "--data", "X.csv", "--removal", "all", "--out", "x"], "'marginal'"),
        (
            ["fit", "--model", "newcomers_model:predict", "--data", "ids.csv", "--out", "x"],
            "an id or free text, not a category. Drop it (command line: --drop who)",
        ),
        (["fit", *FIT[1:5], "--output-names", "@no", "--out", "x"], "--output-names: cannot read no"),
        (["fit", *FIT[1:5], "--output-names", "a,b", "--out", "x"], "must hold 3 names, got 2"),
        (["fit", *FIT[1:5], "--target", "odd", "--out", "x"], "unknown output: 'odd'"),
        (["evaluate", "why", *FIT[1:5], "--against", "Shap"], "no method 'Shap'"),
        (["evaluate", "why", *FIT[1:5], "--ks", "1;2"], "--ks must be whole numbers"),
        (["evaluate", "why", *FIT[1:5], "--k", "many"], "--k must be a whole number or auto"),
    ],
)
def test_errors_are_one_line_that_says_what_to_do(here: Path, arguments: list[str], expected: str) -> None:
    table = pd.read_csv("X.csv")
    table[["f0", "f1", "id"]].to_csv("few.csv", index=False)
    table.assign(who=[f"customer {i}" for i in range(len(table))]).to_csv("ids.csv", index=False)
    assert expected in one_line(run(*arguments))
    assert not (here / "x.csv").exists()
    assert not (here / "x").exists()


def test_a_mistake_of_ours_is_told_from_an_expected_error(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object) -> str:
        raise NameError("name 'x' is not defined")

    monkeypatch.setattr("sointer.apps.cli.info.as_text", mistaken)
    result = run("info", "why")
    assert result.exit_code == 1
    assert "error: NameError: name 'x' is not defined (this should not happen" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in run("info", "why", "-v").stderr


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["fit", "explain", "evaluate", "report", "info"]),
    st.lists(
        st.sampled_from([*WORDS, *OPTIONS]) | st.text(max_size=12),
        max_size=9,
    ),
)
def test_no_arguments_give_a_traceback(here: Path, name: str, arguments: list[str]) -> None:
    result = run(name, *arguments)
    assert result.exit_code in (0, 1, 2, 3), result.output
    assert "should not happen" not in result.stderr
    assert result.exception is None or isinstance(result.exception, SystemExit)


# --- as a process ----------------------------------------------------------------------------------------


def test_version_and_help_are_quick_to_say() -> None:
    done = command("--version", before="import sys")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"sointer {sointer.__version__}\n", "")
    done = command("--help", before="sys.modules['torch'] = None")  # torch takes seconds to import
    assert done.returncode == 0
    assert "sointer fit --model model:predict --data X.csv --out why/" in done.stdout
    assert "Exit codes: 0 done;" in done.stdout


def test_every_help_has_an_example() -> None:
    for name in ("demo", "fit", "explain", "evaluate", "report", "info", "serve"):
        result = run(name, "--help")
        assert result.exit_code == 0
        assert f"Examples:\n    sointer {name}" in result.stdout


def test_completion_can_be_shown() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "sointer", "--show-completion", "bash"],
        capture_output=True,
        text=True,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "_SOINTER_COMPLETE=complete_bash" in result.stdout


def test_wrong_usage_is_exit_code_2() -> None:
    result = run("fit", "--seed", "many")
    assert result.exit_code == 2
    assert "--seed" in result.stderr
    assert run("fit").exit_code == 2
    assert run("explode").exit_code == 2


def test_a_missing_package_names_the_extra(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command("info", "why", before="sys.modules['typer'] = None")
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert re.search(r'^error: .*pip install "sointer\[cli\]"', line)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    line = one_line(run("explain", "why", "--data", "X.csv", "-t", "odd", "--out", "m.parquet"))
    assert 'pip install "sointer[parquet]"' in line


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_names_that_the_terminal_cannot_write_are_written_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    names = ["Größe", "年齢", "\N{SLIGHTLY SMILING FACE}"]
    quick_fit(lambda X: np.asarray(X)[:, :1] > 0, TABLE[:, :3], feature_names=names).save(tmp_path / "why")
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    for more in ([], ["--json"]):
        done = command("info", str(tmp_path / "why"), *more)
        assert (done.returncode, done.stderr) == (0, "")
        assert "\\u5e74" in done.stdout
        assert done.stdout.isascii() or encoding != "ascii"


def test_whoever_stops_reading_gets_no_traceback(here: Path) -> None:
    ask = ["explain", "why", "--data", "X.csv", "-t", "all", "-k", "6", "--chunk-rows", "20", "--out", "-"]
    with forking.start(["-m", "sointer", *ask]) as process:
        assert process.stdout.readline().startswith('"sample"')
        process.stdout.close()
        result = process.stderr.read()
        process.wait(60)
    assert process.returncode == 141
    assert result == ""


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ on Windows")
def test_ctrl_c_is_exit_code_130(here: Path) -> None:
    ask = ["fit", "--model", "newcomers_model:slow", "--data", "X.csv", "--drop", "id", "--drop", "truth"]
    ask += ["--batch-size", "20", "--query-budget", "4000", "--out", "stopped"]
    with forking.start(["-m", "sointer", *ask]) as process:
        while "rows of 6 columns" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        result, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (result, errors.splitlines()[-1]) == ("", "stopped")
    assert "Traceback" not in errors
    assert not (here / "stopped").exists()


def test_the_documentation_names_only_options_that_exist() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
    shown = re.findall(r"^(?:\$ )?sointer ([a-z]+) (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for name, _ in shown} >= {"fit", "explain", "evaluate", "report", "info"}
    for name, arguments in shown:
        known = run(name, "--help").stdout
        for option in re.findall(r"--[a-z-]+", arguments):
            assert option in known, f"sointer {name} has no {option}"
