"""Long tables of a page become CSV files beside it; what was not reached stays."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

MAX_ROWS = (16, 10, 8, 6, 5)
MAX_CELLS = (150, 100, 100, 60, 40)
"""Tables of at most so many rows and cells stay: the first of a page, its headlines, the second ... and all others."""
N_FIRST = 6
"""Rows that stay of a page's first long table, where none is marked as missed."""
MISSED = ("**no**", "**not reached**", "**missed**")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def cells(line: str) -> list[str]:
    """Of a line of a Markdown table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def blocks(page: str) -> Iterator[list[str]]:
    """Its lines, those of each table together."""
    table: list[str] = []
    for line in page.split("\n"):
        if line.startswith("|"):
            table.append(line)
            continue
        if table:
            yield table
            table = []
        yield [line]
    if table:
        yield table


def write_csv(file: Path, rows: list[list[str]]) -> None:
    plain = [[LINK.sub(r"\1", cell).replace("**", "") for cell in row] for row in rows]
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows(plain)


def merged_subsections(page: str, name: str, folder: Path) -> str:
    """A page that shows the first of at least three subsections whose tables have the same columns.

    The tables of all of them are one file, `<name>-all-<number>.csv`, with the title of the subsection in front.
    """
    parts = re.split(r"(?m)^(?=##+ )", page)
    alike: dict[str, list[int]] = {}
    for i, part in enumerate(parts):
        heads = [block[0] for block in blocks(part) if len(block) > 2]
        if part.startswith("### ") and len(heads) == 1:
            alike.setdefault(heads[0], []).append(i)
    for number, (head, places) in enumerate((item for item in alike.items() if len(item[1]) > 2), start=1):
        rows = [["", *cells(head)]]
        for i in places:
            title = parts[i].split("\n", 1)[0].removeprefix("### ")
            rows += [[title, *cells(line)] for block in blocks(parts[i]) for line in block[2:]]
        file = folder / f"{name}-all-{number}.csv"
        write_csv(file, rows)
        parts[places[0]] = (
            f"{parts[places[0]].rstrip()}\n\n[The same table for all {len(places)} (CSV)]({file.name})\n\n"
        )
        for i in places[1:]:
            parts[i] = ""
    kept = [part for part in parts if part]
    empty = [
        i
        for i, part in enumerate(kept)
        if part.startswith("## ") and "\n" not in part.strip() and not "".join(kept[i + 1 : i + 2]).startswith("### ")
    ]
    return "".join(part for i, part in enumerate(kept) if i not in empty)


def condensed(page: str, name: str, folder: Path) -> str:
    """A page without long tables, which are written to `folder` as `<name>-<number>.csv`.

    Rows marked as missed stay, and the first rows of the first long table; the rest is a link. Of subsections that are
    alike the first stays.
    """
    for old in [*folder.glob(f"{name}-[0-9]*.csv"), *folder.glob(f"{name}-all-*.csv")]:
        old.unlink()
    page = merged_subsections(page, name, folder)
    lines: list[str] = []
    n_files = n_tables = 0
    for block in blocks(page):
        body = block[2:]
        n_tables += bool(body)
        place = min(max(n_tables - 1, 0), len(MAX_ROWS) - 1)
        if len(body) <= MAX_ROWS[place] and len(body) * len(cells(block[0])) <= MAX_CELLS[place]:
            lines += block
            continue
        n_files += 1
        file = folder / f"{name}-{n_files}.csv"
        write_csv(file, [cells(line) for line in [block[0], *body]])
        missed = [line for line in body if any(cell in MISSED for cell in cells(line))]
        kept = missed or (body[:N_FIRST] if n_files == 1 and len(body) > N_FIRST else [])
        if kept:
            lines += [*block[:2], *kept, ""]
        what = "Only rows not reached; all" if missed else f"First {len(kept)} of" if kept else "Table of"
        lines.append(f"[{what} {len(body)} rows (CSV)]({file.name})")
    return "\n".join(lines)
