"""The frame of a study: cases that are run once each, results kept line by line, a page and figures made from them."""

from __future__ import annotations

import json
import os
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sointer

Case = dict[str, Any]
"""What is varied, as plain JSON values; `run` takes them as keywords."""
Row = dict[str, Any]
"""A case, what was found, `seconds` and the versions it was found with."""


@dataclass(frozen=True)
class Study:
    """One question, answered by many independent runs."""

    name: str
    """Results are kept in results/<name>.jsonl, the page is docs/results/<name>.md, figures <name>-*.png.

    Studies that share one page (see `command`) each write a section of it.
    """
    cases: Callable[[bool], Iterable[Case]]
    """All cases, the most telling ones first; given True, a handful that take seconds in all (the smoke setting)."""
    run: Callable[..., dict[str, Any]]
    """One case, given as keywords, to plain JSON values."""
    page: Callable[[list[Row], Path], str]
    """Draw <name>-*.png into a folder and return the page, Markdown, which shows them as ../images/<file>."""

    def todo(
        self, results: Path, *, smoke: bool, shard: int = 0, n_shards: int = 1, only: Sequence[str] = ()
    ) -> Iterator[Case]:
        """The cases of this shard that have no result yet; those that differ in the method alone stay together.

        `only` limits them to cases that hold all of these values, written as text.
        """
        done = {_key({name: row[name] for name in row["case"]}) for row in read(results.parent, self.name)}
        for case in self.cases(smoke):
            group = zlib.crc32(_key({name: value for name, value in case.items() if name != "method"}).encode())
            wanted = set(only) <= {str(value) for value in case.values()}
            if wanted and group % n_shards == shard and _key(case) not in done:
                yield case

    def record(self, results: Path, case: Case) -> Row:
        """Run a case and add its line to the results."""
        started = time.perf_counter()
        found = self.run(**case)
        row = {
            **case,
            **found,
            "case": list(case),
            "seconds": round(time.perf_counter() - started, 2),
            "sointer": sointer.__version__,
            "torch": torch.__version__.split("+")[0],
            "numpy": np.__version__,
        }
        results.parent.mkdir(parents=True, exist_ok=True)
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return row


def _key(case: Case) -> str:
    return json.dumps(case, sort_keys=True)


def read(folder: Path, name: str) -> list[Row]:
    """All results of a study, from the files of all shards."""
    return [json.loads(line) for file in files_of(folder, name) for line in file.read_text().splitlines()]


def files_of(folder: Path, name: str) -> list[Path]:
    return sorted([*folder.glob(f"{name}.jsonl"), *folder.glob(f"{name}-shard*.jsonl")])


def work(
    study: Study, results: Path, *, smoke: bool, shard: int = 0, n_shards: int = 1, only: Sequence[str] = ()
) -> int:
    """Run what is left to run; the number of cases that failed. A failure is shown and the next case is tried."""
    n_failed = 0
    for case in list(study.todo(results, smoke=smoke, shard=shard, n_shards=n_shards, only=only)):
        try:
            row = study.record(results, case)
        except Exception:
            n_failed += 1
            print(f"{study.name} {case} FAILED\n{traceback.format_exc()}", flush=True)
        else:
            print(f"{study.name} {case} {row['seconds']:.0f} s", flush=True)
    return n_failed


def model_cache() -> Path:
    """Where trained models are kept, so that each is trained once: SOINTER_CACHE, or ~/.cache/sointer."""
    return Path(os.environ.get("SOINTER_CACHE", Path.home() / ".cache" / "sointer")) / "models"
