"""Print the lowest versions that pyproject.toml allows, one `name==version` a line, for `make test-lowest`.

    python tools/lowest_versions.py pandas plot cli    # of the package itself and of some extras

torch is left out: constraints.txt says which build is used. So is what another version of Python needs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from packaging.requirements import Requirement

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib  # type: ignore[no-redef]


def lowest_versions(project: dict, extras: list[str], python: Mapping[str, str] | None = None) -> dict[str, str]:
    """The lower bound of every requirement by name; where several extras name one, the highest.

    `python` are markers such as {"python_version": "3.10"}; default: those of this interpreter.
    """
    found: dict[str, str] = {}
    for text in [*project["dependencies"], *(r for e in extras for r in project["optional-dependencies"][e])]:
        requirement = Requirement(text)
        name, marker = requirement.name, requirement.marker
        if name == "torch" or not (marker is None or marker.evaluate(None if python is None else dict(python))):
            continue
        for version in [one.version for one in requirement.specifier if one.operator == ">="]:
            if name not in found or parts(version) > parts(found[name]):
                found[name] = version
    return found


def parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    text = Path(__file__).resolve().parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8")
    for name, version in lowest_versions(tomllib.loads(text)["project"], sys.argv[1:]).items():
        print(f"{name}=={version}")
