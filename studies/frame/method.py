"""Which version of the method made a result, and whether the method has changed since.

`method.json`, beside this file, holds a version of the method for every kind of data and a digest of every module that
the method consists of. When a module changes, a test fails until somebody has said what that means for the results:

    python -m studies method --changed tables texts    # results differ: count up these versions
    python -m studies method --unchanged               # results are the same, only the code differs

After that, pages say of which version their rows are (`python -m studies pages`).
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import tokenize
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORD = Path(__file__).with_name("method.json")
FOLDERS = ("energy", "interpreter", "training")
KINDS = ("tables", "graded", "texts", "images", "sequences", "paper")
"""What has a method of its own: kinds of data, "graded" outputs of tables, and preset="paper", for all."""
GRADED = ("continuous", "probability", "probabilities")
"""How the kinds and problems end whose rows are about numbers or probabilities; those of tables/tables all are."""
NAMES = {"paper": 'preset="paper"', "graded": "the method for probabilities and numbers of tables"}
OWN = {
    "images": ("energy/image", "interpreter/image", "training/image"),
    "texts": ("energy/texts", "energy/sparse", "interpreter/text", "training/texts", "training/sparse_rows"),
    "sequences": ("energy/chain", "interpreter/sequence", "training/sequence_queries", "training/sequences"),
    "paper": ("energy/paper", "interpreter/paper", "training/paper"),
}
"""Modules, by the beginning of their names, that one kind alone uses. All others are of tables and texts."""
UNMARKED: dict[str, int | dict[int, int]] = {
    "tables/tables": {102: 3, 103: 2, 104: 2, 105: 2, 106: 2},
    "tables/structure": 1,
    "instancewise/instancewise": {102: 3, 103: 1},
    "horses/planted": 1,
    "horses/segmenters": 2,
    "horses/large": 2,
    "text_detector/text_detector": 2,
}
"""Versions of rows from before rows were marked, by study, and where these differ by seed; 0, earlier than version 1,
where a study is not named."""


def kinds_of(module: str) -> tuple[str, ...]:
    """The kinds of data whose results a module can change."""
    own = tuple(kind for kind, names in OWN.items() if module.startswith(names))
    return own or ("tables", "graded", "texts")


def source_digest(source: str) -> str:
    """Of the code alone: comments, docstrings and white space do not count."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines[node.lineno - 1 : node.end_lineno] = [""] * len(lines[node.lineno - 1 : node.end_lineno])
    return hashlib.sha256("".join("".join(lines).split()).encode()).hexdigest()[:16]


def digests(root: Path = ROOT) -> dict[str, str]:
    """Of every module of the method."""
    files = [file for folder in FOLDERS for file in sorted((root / "src" / "sointer" / folder).glob("*.py"))]
    return {f"{file.parent.name}/{file.stem}": source_digest(file.read_text("utf-8")) for file in files}


def recorded() -> dict[str, Any]:
    """What `method.json` holds: "versions" by kind, "modules" with their digests."""
    found: dict[str, Any] = json.loads(RECORD.read_text())
    return found


def changed_modules(now: dict[str, str], before: dict[str, str]) -> list[str]:
    """Modules that were added, removed or rewritten."""
    return sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))


def complaint(changed: Sequence[str]) -> str:
    """What to do about modules that have changed."""
    kinds = sorted({kind for module in changed for kind in kinds_of(module)})
    return (
        f"the method has changed in {', '.join(changed)}, which makes results of {', '.join(kinds)}. If they differ, "
        f"count up these versions: python -m studies method --changed {' '.join(kinds)}. If they are "
        "the same bit for bit, say so: python -m studies method --unchanged. Then: python -m studies pages"
    )


def record(changed: Iterable[str] = ()) -> None:
    """Keep the digests of today's modules, and count up the versions of these kinds."""
    versions = recorded()["versions"]
    for kind in changed:
        versions[kind] += 1
    RECORD.write_text(json.dumps({"versions": versions, "modules": digests()}, indent=1) + "\n")


def is_ours(row: dict[str, Any]) -> bool:
    """Whether a row was made by one of our explainers; rows of other methods do not depend on ours."""
    return str(row.get("method", "SOInter")).startswith(("SOInter", "SequenceExplainer"))


def kind_of_row(row: dict[str, Any], kind: str) -> str:
    if "paper preset" in str(row.get("method")):
        return "paper"
    is_graded = "table" in row or any(str(row.get(field)).endswith(GRADED) for field in ("kind", "problem"))
    return "graded" if kind == "tables" and is_graded else kind


def mark(row: dict[str, Any], kind: str | None) -> dict[str, Any]:
    """The field that says which version of the method made a row, such as {"made_by": "tables 3"}."""
    if kind is None or not is_ours(row):
        return {}
    own = kind_of_row(row, kind)
    return {"made_by": f"{own} {recorded()['versions'][own]}"}


def version_of(study: str, row: dict[str, Any]) -> int:
    """The version of the method that made a row of ours."""
    if "made_by" in row:
        return int(row["made_by"].split()[1])
    known = UNMARKED.get(study, 0)
    return known.get(row["seed"], 0) if isinstance(known, dict) else known


def is_older(study: str, row: dict[str, Any], kind: str | None) -> bool:
    """Whether a row is ours, and of a version of the method that has changed since."""
    if kind is None or not is_ours(row):
        return False
    return version_of(study, row) < int(recorded()["versions"][kind_of_row(row, kind)])


def freshness(study: str, rows: Iterable[dict[str, Any]], kind: str | None) -> str:
    """One line for a page: of which version of the method its rows are, and whether it has changed since.

    Parameters
    ----------
    study
        Family and name, such as "tables/structure".
    rows
        Its results.
    kind
        What its family's rows are made by; None if they do not depend on the method.
    """
    if kind is None:
        return ""
    versions = recorded()["versions"]
    made: Counter[tuple[str, int]] = Counter()
    for row in rows:
        if is_ours(row):
            own = kind_of_row(row, kind)
            made[own, version_of(study, row)] += 1
    parts = []
    for own in sorted({own for own, _ in made}, key=KINDS.index):
        counts = {version: n for (kind, version), n in sorted(made.items()) if kind == own}
        name = NAMES.get(own, f"the method for {own}")
        numbered = " and ".join(str(version) for version in counts if version)
        which = " and ".join(
            part
            for part in (
                "an early version" * (0 in counts),
                f"version{'s' * (' ' in numbered)} {numbered}" if numbered else "",
            )
            if part
        )
        old = sum(n for version, n in counts.items() if version < versions[own])
        share = f"; {old} of {sum(counts.values())} rows are older" if versions[own] in counts else ""
        now = "current" if not old else f"**current: {versions[own]}{share}**"
        parts.append(f"{which} of {name} ({now})")
    return f"*Measured with {', and '.join(parts)}.*" if parts else ""


def with_freshness(page: str, note: str) -> str:
    """A page with the note below its first heading."""
    if not note:
        return page
    head, _, rest = page.partition("\n")
    return f"{head}\n\n{note}\n{rest}"
