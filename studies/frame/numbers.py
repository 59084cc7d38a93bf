"""Numbers in README and guides that come from stored results, marked where they stand.

A comment behind a number, which readers do not see, says where it comes from:

    0.97<!-- horses/planted; r_precision; segmenter=flood; method=SOInter -->

The study, a field of its rows (`targets.syn4.given.exact`, `keep[1]`), values that rows must have, and, if wanted,
`min`, `max` or `sum` in place of the mean. A number with a percent sign is a hundred times the field. `python -m
studies pages` writes such numbers anew; a test fails where one is not what the results say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from studies.frame.study import Row, read

RESULTS = Path(__file__).resolve().parents[1] / "results"
MARK = re.compile(r"(?P<number>\d[\d,]*(?:\.\d+)?)(?P<unit> ?%| ?×)?<!-- (?P<source>[a-z_]+/[a-z_]+; [^>]*?) -->")
SUMMARIES: dict[str, Callable[[Any], Any]] = {"min": np.min, "max": np.max, "sum": np.sum, "mean": np.mean}


def field_of(row: Row, path: str) -> float:
    """A number in a row: names between dots, places in lists between brackets."""
    value: Any = row
    for name in re.findall(r"[^.\[\]]+", path):
        value = value[int(name)] if isinstance(value, list) else value[name]
    return float(value)


def value_of(source: str, results: Path = RESULTS) -> float:
    """What a mark stands for.

    Raises
    ------
    ValueError
        No row has the values asked for.
    """
    study, path, *rest = [part.strip() for part in source.split(";")]
    family, name = study.split("/")
    wanted = dict(part.split("=", 1) for part in rest if "=" in part)
    summary = next((SUMMARIES[part] for part in rest if part in SUMMARIES), np.mean)
    rows = [row for row in read(results / family, name) if all(str(row.get(k)) == v for k, v in wanted.items())]
    if not rows:
        raise ValueError(f"no row of {study} has {wanted}")
    return float(summary([field_of(row, path) for row in rows]))


def shown_as(value: float, like: str, unit: str | None) -> str:
    """A value with as many digits as the number that stands in the text."""
    digits = len(like.partition(".")[2])
    text = f"{100 * value if unit and '%' in unit else value:,.{digits}f}"
    return text if "," in like or len(like.partition(".")[0]) < 4 else text.replace(",", "")


def traced(text: str, results: Path = RESULTS) -> Iterator[tuple[str, str, str]]:
    """(number as it stands, as the results say, its source) of every mark."""
    for found in MARK.finditer(text):
        value = value_of(found["source"], results)
        yield found["number"], shown_as(value, found["number"], found["unit"]), found["source"]


def refreshed(text: str, results: Path = RESULTS) -> str:
    """The text with every marked number as the results say."""

    def anew(found: re.Match[str]) -> str:
        number = shown_as(value_of(found["source"], results), found["number"], found["unit"])
        return f"{number}{found['unit'] or ''}<!-- {found['source']} -->"

    return MARK.sub(anew, text)
