"""What a stranger sees of the architecture stays as small as it is."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "sointer"


def test_no_module_is_too_long_to_be_read_at_once() -> None:
    lines = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in PACKAGE.rglob("*.py")}
    assert {file.name: n for file, n in lines.items() if n > 400} == {}, (
        "split it where readers would look for two names"
    )


def test_few_rooms_and_modules() -> None:
    rooms = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    modules = [path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")]
    assert len(rooms) <= 14
    assert len(modules) <= 6
