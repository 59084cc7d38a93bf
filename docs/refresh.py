"""Run the examples of a page and put what they print now into the blocks below them.

python docs/refresh.py docs/tutorials/first-explanation.md docs/concepts/trust.md
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

EXAMPLE = re.compile(r"```python(?: (\S+))?\n(.*?)```(\n\n```\n.*?```)?", re.DOTALL)


def refresh(page: Path) -> None:
    """Rewrites the page; a block that is named as a file is saved under that name, as a reader does."""
    names: dict[str, object] = {"__name__": "example"}

    def run(example: re.Match[str]) -> str:
        file, code, shown = example.groups()
        if file:
            Path(file).write_text(code, encoding="utf-8")
            return example[0]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(page), "exec"), names)
        return f"```python\n{code}```\n\n```\n{printed.getvalue()}```" if shown else example[0]

    page = page.resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        page.write_text(EXAMPLE.sub(run, page.read_text(encoding="utf-8")), encoding="utf-8")
        os.chdir(page.parent)


if __name__ == "__main__":
    for path in [Path(argument).resolve() for argument in sys.argv[1:]]:
        refresh(path)
