"""How much longer does `explain` take than the bare forward pass of its interpreter?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sointer import SOInter
from studies.frame.apart import apart
from studies.frame.markdown import number, sections, table
from studies.frame.study import Case, Row, Study
from studies.speed.bare import in_one_batch, median_seconds, recorded, replay
from studies.speed.ours import quick_tables
from studies.speed.planted import Pairs, tags, words

BATCH, N_REPEATS, BUDGET = 4096, 9, 5000
BAR = 1.25
"""Times the bare forward pass: what is required."""


def cases(smoke: bool) -> Iterator[Case]:
    quick = {"quick": True} if smoke else {}
    for n_features in (20,) if smoke else (20, 100, 1000):
        yield {"n_features": n_features, "sparse": False} | quick
    yield {"n_features": 60 if smoke else 1836, "sparse": True} | quick


def run(n_features: int, sparse: bool, quick: bool = False) -> dict[str, Any]:
    return apart(measure, n_features=n_features, sparse=sparse, quick=quick)


def measure(n_features: int, sparse: bool, quick: bool) -> dict[str, Any]:
    """`explain` and the bare pass take turns in one process."""
    planted = Pairs.draw(n_features, 5)
    sample: Callable[[int, int], Any] = planted.sample
    if sparse:

        def sample(n: int, seed: int) -> Any:
            return words(n_features, n, seed)

    settings = quick_tables() if quick else {"query_budget": BUDGET}
    explainer = SOInter(tags if sparse else planted, k=4, random_state=0, verbose=False, **settings)
    explainer.fit(sample(2000, 0))
    rows = sample(256 if quick else BATCH, 1)
    calls = recorded(lambda: explainer.explain(rows, target=1))
    works: dict[str, Callable[[], object]] = {
        "explain": lambda: explainer.explain(rows, target=1),
        "bare": lambda: replay(calls),
    }
    together = in_one_batch(calls)
    if together is not None:
        works["bare, one batch"] = lambda: replay(together)
    found = median_seconds(works, 2 if quick else N_REPEATS)
    bare = min(seconds for name, seconds in found.items() if name != "explain")
    return {"timed": found, "n_calls": len(calls), "ratio": found["explain"] / bare}


# --- the page ----------------------------------------------------------------------------------------------


def name_of(row: Row) -> str:
    return f"{row['n_features']:,} features, {'sparse (4 % non-zero)' if row['sparse'] else 'dense'}"


def page(rows: list[Row], images: Path) -> str:
    lines = [["rows of", "`explain`, ms", "bare, ms", "bare in one batch, ms", "`explain` / faster of the two"]]
    for row in rows:
        timed = {name: 1000 * seconds for name, seconds in row["timed"].items()}
        bare = [number(timed.get(name), 1) for name in ("bare", "bare, one batch")]
        lines.append([name_of(row), number(timed["explain"], 1), *bare, number(row["ratio"], 2)])
    return sections(
        "## Next to the bare forward pass",
        f"`explain` on {BATCH:,} rows, against the interpreter's forward pass alone on the same rows, already "
        "converted to tensors: once in the chunks that `explain` uses, and once in a single batch. The median of "
        f"{N_REPEATS} alternating runs.",
        table(lines[0], lines[1:]),
    )


STUDY = Study("explain", cases, run, page)
