"""Print the lowest versions that pyproject.toml allows, one `name==version` a line, for `make test-lowest`.

    python tools/lowest_versions.py pandas plot cli    # of the package itself and of some extras

torch is left out: constraints.txt says which build is used.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib  # type: ignore[no-redef]

BOUND = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?\s*>=\s*(?P<version>[0-9.]+)")


def lowest_versions(project: dict, extras: list[str]) -> dict[str, str]:
    """The lower bound of every requirement by name; where several extras name one, the highest."""
    found: dict[str, str] = {}
    for requirement in [*project["dependencies"], *(r for e in extras for r in project["optional-dependencies"][e])]:
        bound = BOUND.fullmatch(requirement.strip())
        if bound is None or bound["name"] == "torch":
            continue
        name, version = bound["name"], bound["version"]
        if name not in found or parts(version) > parts(found[name]):
            found[name] = version
    return found


def parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    text = Path(__file__).resolve().parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8")
    for name, version in lowest_versions(tomllib.loads(text)["project"], sys.argv[1:]).items():
        print(f"{name}=={version}")
