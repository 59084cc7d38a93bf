"""Run the studies behind docs/results, and make their figures and pages; from the root of the repository:

    python -m studies list                                      # all studies
    python -m studies list horses                               # the cases that are left to run
    python -m studies run horses/planted --case flood           # one study, only cases that hold this value
    python -m studies run synthetic tables/structure            # a whole family, and one study of another
    python -m studies run tables --older                        # what older versions of the method gave, once more
    python -m studies run horses --smoke --out DIR              # a handful of quick cases, to see that all of it works
    python -m studies pages                                     # only figures and pages, from the results there are
    python -m studies method --unchanged                        # after a change to its code: see frame/method.py

Every result is a line of studies/results/<family>/<study>.jsonl. Cases that have a result are not run again but with
--again, or with --older: those of older versions of the method. A new result takes the place of the old one at its end.
With --shard 0/2 and --shard 1/2 two processes share the work; `pages` then gathers what both have found. Trained models
are kept in SOINTER_CACHE (~/.cache/sointer).
"""

from __future__ import annotations

import argparse
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from sointer.errors import SointerWarning
from studies import paper_page
from studies.families import FAMILIES, load_page, load_study
from studies.frame.condense import condensed
from studies.frame.method import KINDS, freshness, record, with_freshness
from studies.frame.numbers import refreshed
from studies.frame.study import Row, Selection, gather, read, work

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@dataclass(frozen=True)
class Place:
    """Where results are kept, and pages and figures are written."""

    results: Path = ROOT / "studies" / "results"
    pages: Path = DOCS / "results"
    images: Path = DOCS / "images"

    @classmethod
    def of(cls, out: Path | None) -> Place:
        return cls() if out is None else cls(out / "results", out / "pages", out / "images")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and do what it says; the exit code."""
    parser = command_line()
    given = parser.parse_args(arguments)
    if given.command == "method":
        record(given.changed or ())
        return 0
    try:
        chosen = chosen_studies(given.names)
        repeated = "all" if given.again else "older" if given.older else "none"
        selection = Selection(*shard_of(given.shard), given.smoke, tuple(given.case), given.seed, repeated)
    except ValueError as error:
        parser.error(str(error))
    if given.command == "run" and given.smoke and given.out is None:
        parser.error("--smoke needs --out, so that its results do not mix with real ones")
    if given.command == "run" and not given.names:
        parser.error(f"name a family or family/study to run; the families are {', '.join(FAMILIES)}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", SointerWarning)
    place = Place.of(given.out)
    if given.command == "list" and not given.names:
        list_families(place)
        return 0
    if given.command == "list":
        for family, name in chosen:
            for case in load_study(family, name).todo(place.results / family, selection, FAMILIES[family].method):
                print(f"{family}/{name}", case)
        return 0
    n_failed = 0
    if given.command == "run":
        for family, name in chosen:
            study, folder = load_study(family, name), place.results / family
            n_failed += work(study, folder, selection, FAMILIES[family].method)
    if selection.n_shards == 1:
        for family, name in chosen:
            gather(place.results / family, name)
        write_pages(chosen, place)
        if place == Place():
            (place.pages / "paper.md").write_text(paper_page.page(place.results), "utf-8")
            for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
                page.write_text(refreshed(page.read_text("utf-8")), "utf-8")
    return 1 if n_failed else 0


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m studies", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    helps = {
        "run": "run the cases that have no result yet, then make figures and pages",
        "list": "show all studies, or of those that are named the cases that are left to run",
        "pages": "make figures and pages from the results there are",
    }
    for command, words in helps.items():
        one = commands.add_parser(command, help=words, description=words)
        one.add_argument("names", nargs="*", metavar="FAMILY[/STUDY]", help=f"families: {', '.join(FAMILIES)}")
        one.add_argument("--out", type=Path, metavar="DIR", help="use this folder's results, pages and images instead")
        one.set_defaults(shard="0/1", smoke=False, case=[], seed=None, again=False, older=False)
        if command == "pages":
            continue
        one.add_argument("--case", action="append", metavar="VALUE", help="only cases that hold it; may be repeated")
        one.add_argument(
            "--seed", type=int, help="only cases of this seed; those of the first seed with this one, if there are none"
        )
        one.add_argument("--shard", metavar="I/N", help="the i-th of n parts, counted from 0, into a file of its own")
        one.add_argument("--smoke", action="store_true", help="a handful of quick cases of each")
        repeated = one.add_mutually_exclusive_group()
        repeated.add_argument("--again", action="store_true", help="only cases that have a result, which is replaced")
        repeated.add_argument("--older", action="store_true", help="of these, those of older versions of the method")
    method = commands.add_parser("method", help="say what a change to the method's code means for the results")
    said = method.add_mutually_exclusive_group(required=True)
    said.add_argument("--changed", nargs="+", choices=KINDS, help="results of these kinds of data differ")
    said.add_argument("--unchanged", action="store_true", help="results are the same, bit for bit")
    return parser


def chosen_studies(names: Sequence[str]) -> list[tuple[str, str]]:
    """(family, study) of all that is named, all if nothing is.

    Raises
    ------
    ValueError
        No family or study has that name.
    """
    chosen = []
    for name in names or FAMILIES:
        family, _, study = name.partition("/")
        if family not in FAMILIES:
            raise ValueError(f"no family is called {family!r}; there are {', '.join(FAMILIES)}")
        known = FAMILIES[family].studies
        if study and study not in known:
            raise ValueError(f"no study of {family} is called {study!r}; there are {', '.join(known)}")
        chosen += [(family, one) for one in ([study] if study else known)]
    return list(dict.fromkeys(chosen))


def shard_of(text: str) -> tuple[int, int]:
    """The i and n of "i/n"."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not int(found[1]) < int(found[2]):
        raise ValueError(f"--shard takes i/n with i from 0 to n - 1, such as 0/2 and 1/2; got {text!r}")
    return int(found[1]), int(found[2])


def list_families(place: Place) -> None:
    for name, family in FAMILIES.items():
        print(f"{name}\n{textwrap.indent(textwrap.fill(family.about, 110), '  ')}")
        for study in family.studies:
            print(f"    {f'{name}/{study}':32}{len(read(place.results / name, study)):>6} results")


def write_pages(chosen: Sequence[tuple[str, str]], place: Place) -> None:
    """The pages of these studies, as far as there are results."""
    import studies.frame.drawing  # noqa: F401  the style of all figures, whichever are drawn first

    for folder in (place.pages, place.images):
        folder.mkdir(parents=True, exist_ok=True)
    for family in dict.fromkeys(family for family, _ in chosen):
        page = FAMILIES[family].page
        if page is None:
            for name, rows in results_of(family, [name for own, name in chosen if own == family], place):
                text = page_of_study(family, name, rows, place.images)
                write_page(place.pages, name.replace("_", "-"), text)
        elif found := dict(results_of(family, FAMILIES[family].studies, place)):
            write_page(place.pages, page, page_of_family(family, found, place.images))
            if place == Place():
                for file, mark, content in getattr(load_page(family), "inserts", lambda found: ())(found):
                    insert(DOCS / file, mark, content)


def write_page(folder: Path, name: str, text: str) -> None:
    """A page, and its long tables beside it."""
    (folder / f"{name}.md").write_text(condensed(text, name, folder), "utf-8")


def results_of(family: str, names: Sequence[str], place: Place) -> Iterator[tuple[str, list[Row]]]:
    """(study, rows) of each that has results."""
    for name in names:
        if rows := read(place.results / family, name):
            yield name, rows


def page_of_study(family: str, name: str, rows: list[Row], images: Path) -> str:
    """Its page or section, with a line that says which version of the method was measured."""
    page = load_study(family, name).page(rows, images)
    return with_freshness(page, freshness(f"{family}/{name}", rows, FAMILIES[family].method)) if page else ""


def page_of_family(family: str, found: dict[str, list[Row]], images: Path) -> str:
    """An opening, the section of every study that has results, a closing."""
    module = load_page(family)
    sections = [page_of_study(family, name, rows, images) for name, rows in found.items()]
    closing = getattr(module, "closing", lambda found: "")
    return "\n".join([module.opening(found), *filter(None, sections)]) + str(closing(found))


def insert(page: Path, mark: str, content: str) -> None:
    """Put content between two marks, comments, of a page."""
    begin, end = f"<!-- {mark}: made by make faults -->", f"<!-- end of {mark} -->"
    text = page.read_text()
    if begin in text:
        before, rest = text.split(begin)
        page.write_text(f"{before}{begin}\n{content}\n{end}{rest.split(end)[1]}")
