"""Are numbers of any size, in X and as outputs, either refused at once or explained with numbers that are finite?"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sointer import SOInter, TrainingConfig
from sointer.errors import BlackBoxError, InputError
from studies.faults.counting import count_table, total
from studies.frame.markdown import sections
from studies.frame.study import Case, Row, Study

N_PARTS, PER_PART = 5, 10
COUNTED = ("data sets", "refused", "refused late", "outputs refused", "explained", "not finite", "other errors")


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


def size_of_outputs(rng: np.random.Generator) -> float | None:
    """The unit of a model's numbers, of any size, most of which are explained; None where it returns labels."""
    unit = 10.0 ** rng.uniform(-300, 300) if rng.random() < 0.3 else 10.0 ** rng.uniform(-40, 29)
    return float(unit) if rng.random() < 0.7 else None


def run(part: int, n: int) -> dict[str, Any]:
    found = Counter[str]()
    for number in range(n):
        rng, n_queried = np.random.default_rng([part, number]), 0
        data = extreme(rng)
        middle = np.median(data, axis=0)
        unit = size_of_outputs(rng)

        def model(X: Any, middle: Any = middle, unit: float | None = unit) -> Any:
            nonlocal n_queried
            n_queried += len(X)
            above = middle < X
            return above[:, :2].astype(int) if unit is None else unit * (above @ [[2.0, 1.0], [1, 0], [0, -1], [-1, 2]])

        found["data sets"] += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                quick = {"query_budget": 200, "training": TrainingConfig(n_epochs=1)}
                made = SOInter(model, k=2, random_state=0, verbose=False, **quick).fit(data)
                explanation = made.explain(data[:20], 0, query=False)
                found["explained"] += 1
                shown = explanation.scores, explanation.effects, explanation.base_value
                found["not finite"] += not all(np.isfinite(part).all() for part in shown if part is not None)
            except InputError:
                found["refused"] += 1
                found["refused late"] += n_queried > 0
            except BlackBoxError:
                found["outputs refused"] += 1
            except Exception:
                found["other errors"] += 1
    return {name: found[name] for name in COUNTED}


def verdict(rows: list[Row]) -> tuple[str, str]:
    found = total(rows, COUNTED)
    # Results from before outputs varied have no such count.
    return f"{found['data sets']} data sets with numbers between 1e-300 and 1e300", (
        f"{found['refused'] - found['refused late']} refused before the first query, {found['refused late']} later, "
        f"{found['outputs refused']} for their outputs; {found['explained']} explained, {found['not finite']} with a "
        f"score or effect that is not finite; {found['other errors']} other errors"
    )


def page(rows: list[Row], images: Path) -> str:
    return sections(
        "## Numbers of any size",
        "Columns in units between 1e-60 and 1e60, with single numbers up to 1e300, are fitted and explained; "
        "most models return numbers, in units between 1e-300 and 1e300.",
        count_table(total(rows, COUNTED), COUNTED),
    )


STUDY = Study("extremes", cases, run, page)
