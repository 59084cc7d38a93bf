"""The command that runs the studies of a folder and makes their figures and pages."""

from __future__ import annotations

import argparse
import importlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from sointer.errors import SointerWarning
from studies.frame.study import Row, Study, files_of, read, work


@dataclass(frozen=True)
class OnePage:
    """All studies of a folder on one page: an opening, then the section of every study that has results."""

    name: str
    opening: Callable[[dict[str, list[Row]]], str]
    """The beginning of the page, from the results of all studies, by their names."""
    closing: Callable[[dict[str, list[Row]]], str] = lambda found: ""
    """The end of the page, likewise."""


def run_studies(
    description: str | None,
    names: Sequence[str],
    folder: Path,
    *,
    one_page: OnePage | None = None,
    n_threads: int | None = None,
) -> int:
    """Read the command line and do what it says; the exit code."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "studies", nargs="*", metavar="study", help=f"which of {', '.join(names)}; all if none is named"
    )
    parser.add_argument("--smoke", action="store_true", help="a handful of quick cases of each; needs --out")
    parser.add_argument("--out", type=Path, help="write results, pages and images there instead of into the repository")
    parser.add_argument("--again", action="store_true", help="forget the results there are")
    parser.add_argument("--shard", default="0/1", help="i/n: the i-th of n parts, into a file of its own")
    parser.add_argument("--case", action="append", default=[], help="only cases that hold this value; may be repeated")
    parser.add_argument("--list", action="store_true", help="run nothing, only show the cases that are left to run")
    parser.add_argument("--pages", action="store_true", help="run nothing, only make figures and pages")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.studies) - set(names))
    if unknown:
        parser.error(f"no study is called {unknown[0]!r}; there are {', '.join(names)}")
    if arguments.smoke and arguments.out is None:
        parser.error("--smoke needs --out, so that its results do not mix with real ones")
    if n_threads is not None:
        torch.set_num_threads(n_threads)
    warnings.simplefilter("ignore", SointerWarning)
    shard, n_shards = (int(part) for part in arguments.shard.split("/"))
    docs = next(parent for parent in folder.parents if (parent / "docs").is_dir()) / "docs"
    kept = arguments.out / "results" if arguments.out else folder.parent / "results" / folder.name
    pages = arguments.out / "pages" if arguments.out else docs / "results"
    images = arguments.out / "images" if arguments.out else docs / "images"
    chosen = arguments.studies or names
    studies: dict[str, Study] = {
        name: importlib.import_module(f"studies.{folder.name}.{name}").STUDY for name in (names if one_page else chosen)
    }
    n_failed = 0
    for name in chosen:
        results = kept / (f"{name}.jsonl" if n_shards == 1 else f"{name}-shard{shard}.jsonl")
        which = {"smoke": arguments.smoke, "shard": shard, "n_shards": n_shards, "only": arguments.case}
        if arguments.list:
            for case in studies[name].todo(results, **which):
                print(name, case)
            continue
        if arguments.again:
            for file in [results] if n_shards > 1 else files_of(kept, name):
                file.unlink(missing_ok=True)
        if not arguments.pages:
            n_failed += work(studies[name], results, **which)
        if n_shards == 1 and one_page is None:
            write_page({name: studies[name]}, kept, pages, images)
    if n_shards == 1 and one_page is not None and not arguments.list:
        write_page(studies, kept, pages, images, one_page)
    return 1 if n_failed else 0


def write_page(
    studies: dict[str, Study], results: Path, pages: Path, images: Path, one_page: OnePage | None = None
) -> None:
    """A page for every study that has results, or one for all of them."""
    found = {name: rows for name in studies if (rows := read(results, name))}
    if not found:
        return
    pages.mkdir(parents=True, exist_ok=True)
    images.mkdir(parents=True, exist_ok=True)
    written = {name.replace("_", "-"): studies[name].page(rows, images) for name, rows in found.items()}
    if one_page is not None:
        written = {one_page.name: "\n".join([one_page.opening(found), *written.values()]) + one_page.closing(found)}
    for name, text in written.items():
        (pages / f"{name}.md").write_text(text)
