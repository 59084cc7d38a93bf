"""Every public name is documented as numpydoc says: Parameters, Returns, Raises and Examples, wherever they belong."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import BaseEstimator

API = Path(__file__).parents[2] / "docs" / "reference" / "api"
PACKAGES = ("sointer", "sointer.metrics", "sointer.explainers.baselines", "sointer.zoo", "sointer.viz.plots")
WITH_EXAMPLES = ("sointer", "sointer.metrics")
SECTION = re.compile(r"^([A-Z][A-Za-z ]+)\n-+$", re.MULTILINE)
RESULT = ("Returns", "Yields")
# Overriding what scikit-learn documents, or raised for whoever writes a class of their own.
NOT_FOR_USERS = {"AssertionError", "NotImplementedError", "AttributeError", "StopIteration", "KeyboardInterrupt"}


def sections(documented: Any) -> dict[str, str]:
    """What stands under each heading of a docstring."""
    parts = SECTION.split(inspect.getdoc(documented) or "")
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def listed(section: str) -> list[str]:
    """The names that a section explains, in order: "a, b : int" explains two."""
    heads = [line.split(" : ")[0] for line in section.strip("\n").splitlines() if line and not line.startswith(" ")]
    return [name.strip().lstrip("*") for head in heads for name in head.split(",")]


def arguments(function: Callable[..., Any]) -> list[str]:
    names = inspect.signature(function).parameters
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def returns_something(function: Callable[..., Any]) -> bool:
    return inspect.signature(function).return_annotation not in (None, "None", "Never", "NoReturn", "Self")


@functools.cache
def tree_of(documented: Any) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(documented))).body[0]


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What a function does itself, not what the functions in it do."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            yield child
            yield from own_nodes(child)


def raised(function: Callable[..., Any]) -> list[str]:
    """Names of the exceptions that a function raises itself; not those it passes on."""
    nodes = [node.exc for node in own_nodes(tree_of(function)) if isinstance(node, ast.Raise) and node.exc is not None]
    called = [node.func if isinstance(node, ast.Call) else node for node in nodes]
    names = [node.id if isinstance(node, ast.Name) else getattr(node, "attr", "") for node in called]
    return [name for name in names if re.match("[A-Z]", name) and name not in NOT_FOR_USERS]


def field_docs(kind: type) -> set[str]:
    """Names that are explained as attributes, or by a string below them, in a class and in those it extends."""
    found: set[str] = set()
    for base in kind.__mro__:
        if base.__module__.startswith("sointer"):
            found |= set(listed(sections(base).get("Attributes", "")))
            body = tree_of(base).body
            pairs = itertools.pairwise(body)
            found |= {
                first.target.id
                for first, second in pairs
                if isinstance(first, ast.AnnAssign)
                and isinstance(second, ast.Expr)
                and isinstance(second.value, ast.Constant)
            }
    return found


def is_record(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and not issubclass(kind, BaseEstimator)


def faults_of_function(function: Callable[..., Any]) -> list[str]:
    has, faults = sections(function), []
    names = arguments(function)
    if names != listed(has.get("Parameters", "")):
        faults.append(f"Parameters {listed(has.get('Parameters', ''))}, expected {names}")
    if returns_something(function) and not any(name in has for name in RESULT):
        faults.append("no Returns")
    if raised(function) and "Raises" not in has:
        faults.append(f"no Raises, of {sorted(set(raised(function)))}")
    return faults


def faults_of_class(kind: type) -> list[str]:
    has = sections(kind)
    explained = listed(has.get("Parameters", ""))
    if kind in NOT_CONSTRUCTED and not is_record(kind):
        return []
    if is_record(kind):
        # What users only receive is explained field by field, in the class or where the field is.
        known = {*explained, *field_docs(kind)}
        missing = [f.name for f in dataclasses.fields(kind) if not f.name.startswith("_") and f.name not in known]
        return [f"nothing about {missing}"] if missing else []
    if issubclass(kind, BaseException) or kind.__init__ is object.__init__:
        return []
    names = arguments(kind)
    if dataclasses.is_dataclass(kind):  # whose arguments have names, in the order in which classes extend each other
        names, explained = sorted(names), sorted(explained)
    return [] if names == explained else [f"Parameters {explained}, expected {names}"]


def methods(kind: type, hidden: set[str]) -> Iterator[tuple[str, Callable[..., Any]]]:
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    for name in dir(kind):
        if name.startswith("_") or name in hidden or name in fields:
            continue
        found = inspect.unwrap(getattr(kind, name)) if callable(getattr(kind, name)) else None
        ours = str(getattr(found, "__module__", "")).startswith("sointer")
        if inspect.isroutine(found) and ours and found not in HIDDEN:
            yield name, found


NOT_CONSTRUCTED: set[type] = set()
"""Classes that the reference shows without arguments."""


def documented() -> dict[str, tuple[Any, set[str]]]:
    """Every public class and function by its name, with the methods that the reference leaves out."""
    found: dict[str, tuple[Any, set[str]]] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        public = getattr(module, "__all__", None)
        for name in public or [name for name in vars(module) if not name.startswith("_")]:
            thing = getattr(module, name)
            if callable(thing) and str(thing.__module__).startswith("sointer" if public else package):
                found[f"{package}.{name}"] = thing, set()
    for page in sorted(API.glob("*.rst")):
        for block in re.split(r"\n(?=\.\. auto)", page.read_text(encoding="utf-8")):
            head = re.search(r"\.\. auto(?:class|function):: (sointer[\w.]+)", block)
            if head:
                package, _, name = head[1].rpartition(".")
                thing = getattr(importlib.import_module(package), name)
                hidden = re.search(r":exclude-members: (.*)", block)
                known = [key for key, (other, _) in found.items() if other is thing]
                if f"{head[0]}()" in block:
                    NOT_CONSTRUCTED.add(thing)
                for key in known or [head[1]]:
                    found[key] = thing, set(hidden[1].split(", ")) if hidden else set()
    return found


PUBLIC = documented()
HIDDEN = {
    vars(base).get(name) for kind, hidden in PUBLIC.values() if hidden for base in kind.__mro__ for name in hidden
}
"""What the reference leaves out of one class is left out of those that inherit it, too."""


@pytest.mark.parametrize("name", PUBLIC)
def test_parameters_returns_and_raises(name):
    thing, hidden = PUBLIC[name]
    if not inspect.isclass(thing):
        assert faults_of_function(thing) == []
        return
    faults = {"class": faults_of_class(thing)}
    faults |= {method: faults_of_function(function) for method, function in methods(thing, hidden)}
    assert {where: what for where, what in faults.items() if what} == {}


@pytest.mark.parametrize("name", [name for name in PUBLIC if name.rpartition(".")[0] in WITH_EXAMPLES])
def test_examples(name):
    assert ">>> " in sections(PUBLIC[name][0]).get("Examples", "")


def test_every_property_says_what_it_is():
    kinds = {name: (thing, hidden) for name, (thing, hidden) in PUBLIC.items() if inspect.isclass(thing)}
    properties = {
        f"{name}.{key}": found
        for name, (kind, hidden) in kinds.items()
        for key, found in inspect.getmembers(
            kind, lambda found: isinstance(found, property | functools.cached_property)
        )
        if not key.startswith("_") and key not in hidden
    }
    assert len(properties) > 50
    assert [name for name, found in properties.items() if not inspect.getdoc(found)] == []
