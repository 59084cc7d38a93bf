"""The command: what it prints, where, and its exit codes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sointer

pytest.importorskip("typer")
pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from sointer import cli, demo


def run(*arguments: str, before: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command; `before` is Python that is executed first in the same process."""
    head = [sys.executable, "-m", "sointer.cli"]
    if before is not None:
        head = [sys.executable, "-c", f"import sys; {before}; from sointer.cli import main; main()"]
    return subprocess.run([*head, *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"sointer {sointer.__version__}\n", "")


def test_help_has_examples() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "sointer demo --quick" in done.stdout


def test_wrong_usage_is_exit_code_2() -> None:
    done = run("demo", "--seed", "many")
    assert done.returncode == 2
    assert "--seed" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_expected_error_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    done = run("demo", "--out", str(tmp_path / "taken"))
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("error: cannot write to")


@pytest.mark.parametrize("package", ["typer", "matplotlib", "jinja2"])
def test_a_missing_package_names_the_extra(package: str, tmp_path: Path) -> None:
    done = run("demo", "--out", str(tmp_path / "out"), before=f"sys.modules[{package!r}] = None")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert 'pip install "sointer[demo]"' in line
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ on Windows")
def test_ctrl_c_is_exit_code_130(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sointer.cli", "demo", "--quick", "--out", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def heed_ctrl_c() -> None:  # tests that run in the background inherit a shell's order to ignore it
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(command, **pipes, preexec_fn=heed_ctrl_c) as process:
        assert process.stderr is not None
        assert "Training" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "stopped"
    assert "Traceback" not in errors


@pytest.mark.parametrize("quiet", [False, True])
def test_the_table_goes_to_stdout_and_the_rest_to_stderr(
    quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Result:
        seconds = 12.0
        page, figure = tmp_path / "index.html", tmp_path / "segments.png"

        def table(self) -> str:
            return "the table"

    def fake(out: Path, *, random_state: int, quick: bool, tell: demo.Tell, progress: bool | None) -> Result:
        assert (out, random_state, quick, progress) == (tmp_path, 3, True, False if quiet else None)
        tell("a stage")
        return Result()

    monkeypatch.setattr(demo, "run_demo", fake)
    cli.show_demo(tmp_path, seed=3, quick=True, quiet=quiet)
    captured = capsys.readouterr()
    assert captured.out == "the table\n"
    assert ("a stage" in captured.err) is not quiet
    assert (str(Result.page) in captured.err) is not quiet
