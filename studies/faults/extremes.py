"""Are numbers of any size either refused before the first query, or explained with numbers that are finite?"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sointer import SOInter, TrainingConfig
from sointer.errors import InputError
from studies.faults.counting import count_table, total
from studies.frame.markdown import sections
from studies.frame.study import Case, Row, Study

N_PARTS, PER_PART = 5, 10
COUNTED = ("data sets", "refused", "refused late", "explained", "not finite", "other errors")


def cases(smoke: bool) -> Iterator[Case]:
    for part in range(1 if smoke else N_PARTS):
        yield {"part": part, "n": 2 if smoke else PER_PART}


def extreme(rng: np.random.Generator) -> Any:
    """Normal numbers in units of any size, with single numbers of any other size among them."""
    data = rng.normal(size=(150, 4))
    for column in rng.choice(4, size=int(rng.integers(1, 4)), replace=False):
        with np.errstate(over="ignore"):
            data[:, column] *= 10.0 ** rng.uniform(-60, 60) if rng.random() < 0.5 else 10.0 ** rng.uniform(-36, 37)
            if rng.random() < 0.5:
                data[rng.integers(150), column] = rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-300, 300)
    return data


def run(part: int, n: int) -> dict[str, Any]:
    found = Counter[str]()
    for number in range(n):
        data, n_queried = extreme(np.random.default_rng([part, number])), 0
        middle = np.median(data, axis=0)

        def model(X: Any, middle: Any = middle) -> Any:
            nonlocal n_queried
            n_queried += len(X)
            return (middle[:2] < X[:, :2]).astype(int)

        found["data sets"] += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                quick = {"query_budget": 200, "training": TrainingConfig(n_epochs=1)}
                made = SOInter(model, k=2, random_state=0, verbose=False, **quick).fit(data)
                explanation = made.explain(data[:20], 0, query=False)
                found["explained"] += 1
                found["not finite"] += not np.isfinite(explanation.scores).all()
            except InputError:
                found["refused"] += 1
                found["refused late"] += n_queried > 0
            except Exception:
                found["other errors"] += 1
    return {name: found[name] for name in COUNTED}


def verdict(rows: list[Row]) -> tuple[str, str]:
    found = total(rows, COUNTED)
    return f"{found['data sets']} data sets with numbers between 1e-300 and 1e300", (
        f"{found['refused']} refused before the first query, {found['refused late']} later; {found['explained']} "
        f"explained, {found['not finite']} with a score that is not finite; {found['other errors']} other errors"
    )


def page(rows: list[Row], images: Path) -> str:
    return sections(
        "## Numbers of any size",
        "Columns in units between 1e-60 and 1e60, with single numbers up to 1e300, are fitted and explained.",
        count_table(total(rows, COUNTED), COUNTED),
    )


STUDY = Study("extremes", cases, run, page)
