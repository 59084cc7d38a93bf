"""What comes with an installation: licences, files in the built packages, and no talk over the network."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from pathlib import Path

import pytest

from studies.faults import leaks
from tools import lowest_versions

ROOT = Path(__file__).parents[1]
ALLOWED = ("MIT", "BSD", "Apache", "ISC", "PSF", "Python Software Foundation", "MPL", "Mozilla Public License", "Zlib")
ALSO_ALLOWED = ("0BSD", "BSL-1.0", "CC0-1.0", "LLVM-exception", "HPND", "Unlicense", "Dual License")
COPYLEFT = re.compile(r"\b(A?GPL|LGPL|GNU|EUPL|SSPL|BUSL|Commons Clause|NonCommercial)", re.IGNORECASE)


def requirements(extras: set[str]) -> dict[str, importlib.metadata.Distribution]:
    """Every installed package that sointer with these extras needs, and what those need, by name."""
    requirement = pytest.importorskip("packaging.requirements").Requirement
    found: dict[str, importlib.metadata.Distribution] = {}
    todo, done = [("sointer", frozenset(extras))], set()
    while todo:
        name, wanted = todo.pop()
        if (name, wanted) in done:
            continue
        done.add((name, wanted))
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        for text in found[name].requires or []:
            needed = requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in {"", *wanted}):
                todo.append((re.sub(r"[-_.]+", "-", needed.name).lower(), frozenset(needed.extras)))
    return found


def licence_of(package: importlib.metadata.Distribution) -> str:
    """What a package says its licence is: an expression, else its classifiers, else the first line of its text."""
    metadata = package.metadata
    if metadata.get("License-Expression"):
        return str(metadata["License-Expression"])
    classified = [line.split("::")[-1].strip() for line in metadata.get_all("Classifier") or [] if "License ::" in line]
    return " AND ".join(classified) or str(metadata.get("License") or "").strip().split("\n")[0]


def is_allowed(licence: str) -> bool:
    """Whether every part of a licence, or one of its alternatives, may be used by anyone for anything."""
    if COPYLEFT.search(licence):
        return any(is_allowed(one) for one in licence.split(" OR ")) if " OR " in licence else False
    parts = [part.strip(" ()") for part in re.split(r" AND | OR | WITH ", licence)]
    return all(any(known in part for known in (*ALLOWED, *ALSO_ALLOWED)) for part in parts)


def test_everything_that_is_installed_with_it_may_be_used_by_anyone():
    packages = requirements({"all"})
    assert {"numpy", "torch", "sointer", "fastapi", "joblib"} <= set(packages), "the search must reach what others need"
    refused = {name: licence_of(package) for name, package in packages.items() if not is_allowed(licence_of(package))}
    assert not refused, f"licences to look at: {refused}"


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0-or-later", False),
        ("MIT AND AGPL-3.0", False),
        ("GNU General Public License v3 (GPLv3)", False),
        ("MIT OR GPL-2.0", True),
        ("", False),
        ("Proprietary", False),
    ],
)
def test_the_licence_check_can_fail(licence, allowed):
    assert is_allowed(licence) == allowed


GUARD = """
import sys
asked = []
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.bind"):
        asked.append((event, str(arguments)))
sys.addaudithook(watch)
"""


def guarded(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    script = GUARD + textwrap.dedent(code) + "\nprint('asked', asked)\n"
    return subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300)


def test_the_network_guard_can_fail(tmp_path):
    done = guarded("import socket; socket.socket().connect_ex(('127.0.0.1', 9))", tmp_path)
    assert "socket.connect" in done.stdout


def test_nothing_talks_over_the_network(tmp_path):
    """Importing every module, fitting, explaining, verifying, saving, loading and reporting."""
    done = guarded(
        """
        import importlib, pkgutil, warnings
        import numpy as np
        import sointer
        warnings.simplefilter("ignore")
        names = [info.name for info in pkgutil.walk_packages(sointer.__path__, "sointer.")]
        for name in names:
            try:
                if not name.endswith("__main__"):
                    importlib.import_module(name)
            except sointer.errors.MissingExtraError:
                pass
        X = np.random.default_rng(0).normal(size=(200, 4))
        model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 1] > 0])
        settings = {"k": 2, "query_budget": 200, "training": sointer.TrainingConfig(n_epochs=1)}
        explainer = sointer.SOInter(model, random_state=0, **settings)
        explanation = explainer.fit(X, checkpoint="kept").explain(X[:5], target=1)
        explanation.verify()
        explainer.save("saved")
        sointer.load("saved", black_box=model).report(X[:5], "why.html", paths=False)
        print(len(names), "modules")
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "asked []" in done.stdout, done.stdout
    assert (tmp_path / "why.html").exists()


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The wheel and the sdist, built from the tree by the backend; `make test-wheel` uses `python -m build`."""
    hatchling = pytest.importorskip("hatchling.build")
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("there is no tree to build from")
    out = tmp_path_factory.mktemp("dist")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        hatchling.build_wheel(str(out))
        hatchling.build_sdist(str(out))
    return out


def test_the_wheel_holds_the_package_and_nothing_else(packages):
    with zipfile.ZipFile(next(packages.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    tree = ROOT / "src"
    files = [path for path in (tree / "sointer").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    expected = {path.relative_to(tree).as_posix() for path in files}
    inside = {name for name in names if ".dist-info/" not in name}
    assert "sointer/py.typed" in inside
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert inside == expected


def test_the_sdist_holds_no_data(packages):
    with tarfile.open(next(packages.glob("*.tar.gz"))) as sdist:
        files = {file.name.split("/", 1)[1]: file.size for file in sdist.getmembers() if file.isfile()}
    assert {"LICENSE", "pyproject.toml", "README.md", "src/sointer/py.typed", "constraints.txt"} <= set(files)
    tested = tuple(name for name in files if name.startswith("tests/io/saved/"))  # small explainers of generated data
    data = [
        name
        for name in files
        if name not in tested and Path(name).suffix in (".npz", ".npy", ".arff", ".parquet", ".safetensors", ".pt")
    ]
    assert not data
    measured = ("docs/images/", "studies/results/")  # these grow with every seed
    assert sum(size for name, size in files.items() if not name.startswith(measured)) < 6 * 2**20
    private = [name for name in files if re.search(r"(^|/)(\.env|\.netrc|\.pypirc|id_rsa|credentials)", name)]
    assert not private


@pytest.mark.parametrize("fault", ["none", "redirects"])
def test_secrets_turn_up_nowhere(fault):
    """The other faults are tried by make faults; this one repeats the token in a header of its reply."""
    found = leaks.run(fault, 0)
    assert found["n_requests_with_it"] > 0
    assert set(found["places"].values()) == {0}, found["places"]


def test_the_token_of_a_server_turns_up_nowhere():
    found = leaks.run(leaks.SERVES, 0)
    assert found["n_requests_with_it"] > 6  # good ones are answered, so the token was right
    assert set(found["places"].values()) == {0}, found["places"]


def test_lower_bounds_are_found():
    project = {
        "dependencies": ["numpy>=1.26", "torch>=2.4"],
        "optional-dependencies": {"a": ["pandas[x]>=2.0", "sointer[b]"], "b": ["pandas>=2.10", "numpy>=1.9"]},
    }
    found = lowest_versions.lowest_versions(project, ["a", "b"])
    assert found == {"numpy": "1.26", "pandas": "2.10"}


def test_lower_bounds_of_another_python_are_left_out():
    project = {
        "dependencies": [],
        "optional-dependencies": {"a": ["b>=1.24.1; python_version >= '3.11'", "b>=1.18; python_version < '3.11'"]},
    }
    for python, version in (("3.10", "1.18"), ("3.11", "1.24.1"), ("3.13", "1.24.1")):
        assert lowest_versions.lowest_versions(project, ["a"], {"python_version": python}) == {"b": version}


FLOORS = {"pyarrow": "14.0.1", "h11": "0.16", "httpcore": "1.0.9", "onnxruntime": "1.24.1"}
"""Versions before these have known holes; of onnxruntime there is none without for Python 3.10."""


@pytest.mark.parametrize(
    ("extra", "name"),
    [("parquet", "pyarrow"), ("http", "httpcore"), ("http", "h11"), ("serve", "h11"), ("onnx", "onnxruntime")],
)
def test_no_lower_bound_allows_a_version_with_a_known_hole(extra, name):
    project = lowest_versions.tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = lowest_versions.lowest_versions(project, [extra], {"python_version": "3.11"})
    assert lowest_versions.parts(bounds[name]) >= lowest_versions.parts(FLOORS[name])
    everywhere = project["dependencies"] + [
        text for texts in project["optional-dependencies"].values() for text in texts
    ]
    loose = [text for text in everywhere if re.match(rf"{name}\b", text) and ">=" not in text]
    assert not loose


def test_what_the_lowest_versions_are_tested_with():
    makefile = (ROOT / "Makefile").read_text()
    extras = set(re.search(r"LOWEST_EXTRAS := (.+)", makefile)[1].split())
    assert {"parquet", "http", "onnx", "serve"} <= extras
    core = re.search(r"CORE_TESTS := \$\(addprefix tests/,((.|\\\n)+?)\)\n", makefile)[1].replace("\\\n", " ").split()
    assert all((ROOT / "tests" / name).is_file() for name in core)
    assert {"apps/test_serve.py", "blackbox/test_hostile_servers.py"} <= set(core)


def test_one_version_everywhere():
    version = re.search(r'__version__ = "(.+)"', (ROOT / "src/sointer/_support/__init__.py").read_text()).group(1)
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f'version = "{version}"' in (ROOT / "recipe/meta.yaml").read_text()
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_conda_recipe_needs_what_the_package_needs():
    wanted = set(
        re.findall(
            r'"([a-z-]+>=[\d.]+)"',
            re.search(r"(?s)\ndependencies = \[(.*?)\]", (ROOT / "pyproject.toml").read_text())[1],
        )
    )
    given = {line.strip("- ").replace(" ", "") for line in (ROOT / "recipe/meta.yaml").read_text().splitlines()}
    assert {name.replace("torch>", "pytorch>") for name in wanted} <= given
