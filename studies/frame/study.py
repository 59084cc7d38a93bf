"""The frame of a study: cases that are run once each, results kept line by line, a page and figures made from them."""

from __future__ import annotations

import json
import os
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sointer
from studies.frame.method import is_older, mark

Case = dict[str, Any]
"""What is varied, as plain JSON values; `run` takes them as keywords."""
Row = dict[str, Any]
"""A case, what was found, `seconds` and the versions it was found with."""


class LeftOut(Exception):
    """A case cannot be run here, for want of data; that is no failure."""


@dataclass(frozen=True)
class Selection:
    """Which cases of a study are meant."""

    shard: int = 0
    n_shards: int = 1
    smoke: bool = False
    only: tuple[str, ...] = ()
    """Values, written as text, all of which a case must hold."""
    seed: int | None = None
    """Only cases of this seed; where a study has none, those of its first seed, with this one instead."""
    repeated: str = "none"
    """Which cases that have a result are run again: "none", "all", or those of "older" versions of the method."""

    def cases(self, study: Study) -> Iterator[Case]:
        """Those of the shard that are selected; cases that differ in the method alone are of the same shard."""
        cases = list(study.cases(self.smoke))
        if self.seed is not None and cases and "seed" in cases[0]:
            first = self.seed if any(case["seed"] == self.seed for case in cases) else cases[0]["seed"]
            cases = [{**case, "seed": self.seed} for case in cases if case["seed"] == first]
        for case in cases:
            group = zlib.crc32(_key({name: value for name, value in case.items() if name != "method"}).encode())
            if group % self.n_shards == self.shard and set(self.only) <= {str(value) for value in case.values()}:
                yield case


@dataclass(frozen=True)
class Study:
    """One question, answered by many independent runs."""

    name: str
    """Results are kept in studies/results/<family>/<name>.jsonl; the page is docs/results/<name>.md with figures
    <name>-*.png.

    Studies of a family that has one page (see `studies.families`) each write a section of it.
    """
    cases: Callable[[bool], Iterable[Case]]
    """All cases, the most telling ones first; given True, a handful that take seconds in all (the smoke setting)."""
    run: Callable[..., dict[str, Any]]
    """One case, given as keywords, to plain JSON values."""
    page: Callable[[list[Row], Path], str]
    """Draw <name>-*.png into a folder and return the page, Markdown, which shows them as ../images/<file>."""

    def todo(self, folder: Path, selection: Selection, method: str | None = None) -> list[Case]:
        """The selected cases that have no result yet in this folder; or of those that have one, which to repeat."""
        rows = {_key(_case_of(row)): row for row in read(folder, self.name)}
        if selection.repeated == "none":
            return [case for case in selection.cases(self) if _key(case) not in rows]
        found = [case for case in selection.cases(self) if _key(case) in rows]
        if selection.repeated == "all":
            return found
        return [case for case in found if is_older(f"{folder.name}/{self.name}", rows[_key(case)], method)]

    def record(self, results: Path, case: Case, method: str | None = None) -> Row:
        """Run a case and add its line to the results, with the version of the method for this kind of data."""
        started = time.perf_counter()
        found = self.run(**case)
        row = {
            **case,
            **found,
            "case": list(case),
            "seconds": round(time.perf_counter() - started, 2),
            "sointer": sointer.__version__,
            **mark({**case, **found}, method),
            "torch": torch.__version__.split("+")[0],
            "numpy": np.__version__,
        }
        results.parent.mkdir(parents=True, exist_ok=True)
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return row


def _key(case: Case) -> str:
    return json.dumps(case, sort_keys=True)


def _case_of(row: Row) -> Case:
    return {name: row[name] for name in row["case"]}


def read(folder: Path, name: str) -> list[Row]:
    """All results of a study, from the files of all shards; of a case that was repeated, the last."""
    return [json.loads(line) for line in _lines(folder, name)]


def gather(folder: Path, name: str) -> None:
    """Put what shards and repeated cases gave into one file, a line for each case."""
    lines, files = _lines(folder, name), _files_of(folder, name)
    if len(files) > 1 or sum(len(file.read_text().splitlines()) for file in files) > len(lines):
        (folder / f"{name}.jsonl").write_text("".join(line + "\n" for line in lines))
        for file in files:
            if file.name != f"{name}.jsonl":
                file.unlink()


def _lines(folder: Path, name: str) -> list[str]:
    found: dict[str, str] = {}  # in the order of the first results
    for file in _files_of(folder, name):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            found[_key(_case_of(row)) if "case" in row else line] = line
    return list(found.values())


def _files_of(folder: Path, name: str) -> list[Path]:
    """Those of shards last: what they hold is newer."""
    return [*folder.glob(f"{name}.jsonl"), *sorted(folder.glob(f"{name}-shard*.jsonl"))]


def work(study: Study, folder: Path, selection: Selection, method: str | None = None) -> int:
    """Run what is left to run; the number of cases that failed. A failure is shown and the next case is tried.

    Rows name the version of the method for `method`, a kind of data.
    """
    shard = f"-shard{selection.shard}" if selection.n_shards > 1 else ""
    n_failed = 0
    for case in study.todo(folder, selection, method):
        try:
            row = study.record(folder / f"{study.name}{shard}.jsonl", case, method)
        except LeftOut as reason:
            print(f"{study.name} {case} is left out: {reason}", flush=True)
        except Exception:
            n_failed += 1
            print(f"{study.name} {case} FAILED\n{traceback.format_exc()}", flush=True)
        else:
            print(f"{study.name} {case} {row['seconds']:.0f} s", flush=True)
    return n_failed


def model_cache() -> Path:
    """Where trained models are kept, so that each is trained once: SOINTER_CACHE, or ~/.cache/sointer."""
    return Path(os.environ.get("SOINTER_CACHE", Path.home() / ".cache" / "sointer")) / "models"
