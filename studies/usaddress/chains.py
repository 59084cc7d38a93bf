"""Planted chains: are the tokens selected for a label exactly those that it was passed on by?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from sointer import SequenceExplainer
from sointer.zoo import CHAIN_KINDS, PlantedChain
from studies.frame.markdown import mean, number, pick, prose, sections, table
from studies.frame.study import Case, Row, Study

SEEDS = (11, 12)
QUERIES = (5_000, 20_000)
BARS = {5_000: 0.97, 20_000: 0.99}
MAX_LINKS = 4


def cases(smoke: bool) -> Iterator[Case]:
    if smoke:
        yield {"kind": "carry", "queries": 500, "seed": 0, "n_explained": 3}
        return
    for seed, queries, kind in product(SEEDS, QUERIES, CHAIN_KINDS):
        yield {"kind": kind, "queries": queries, "seed": seed, "n_explained": 60}


def run(kind: Any, queries: int, seed: int, n_explained: int) -> dict[str, Any]:
    chain, length = PlantedChain(kind, seed=seed), 9
    started = time.process_time()
    explainer = SequenceExplainer(chain, query_budget=queries, random_state=seed, verbose=False)
    explainer.fit(chain.sequences(2800, (4, 10), seed=seed + 100))
    seconds = time.process_time() - started
    why = explainer.explain(chain.sequences(n_explained, length, seed=seed + 200))
    links: dict[int, list[int]] = {}
    nearest = 0
    for i in range(len(why)):
        truth = chain.truth(why.sequences[why.sample[i]], int(why.position[i]))
        of_links = links.setdefault(len(truth) - 1, [0, 0])
        of_links[0] += 1
        of_links[1] += set(why.selected[i][why.selected[i] >= 0].tolist()) == truth
        near = np.argsort(np.abs(np.arange(length) - why.position[i]), kind="stable")[: len(truth)]
        nearest += set(near.tolist()) == truth
    return {
        "window": explainer.window_,
        "fit_seconds": round(seconds, 1),
        "by_links": {str(n): found for n, found in sorted(links.items())},
        "nearest": round(nearest / len(why), 4),
    }


def exact(row: Row, most: int = MAX_LINKS) -> float:
    """Share of labels over at most so many links whose tokens are found exactly."""
    counted = [found for links, found in row["by_links"].items() if int(links) <= most]
    return sum(right for _, right in counted) / sum(n for n, _ in counted)


def page(rows: list[Row], images: Path) -> str:
    head = ["chain", "queries", "seeds", "exact", "worst seed", "bar", "nearest tokens, size given", "CPU s of a fit"]
    lines = []
    for kind, queries in product(CHAIN_KINDS, sorted({row["queries"] for row in rows})):
        if found := pick(rows, kind=kind, queries=queries):
            shares = [exact(row) for row in found]
            lines.append(
                [kind, f"{queries:,}", str(len(found)), number(mean(shares), 3), number(min(shares), 3),
                 number(BARS.get(queries)), number(mean(row["nearest"] for row in found)),
                 f"{mean(row['fit_seconds'] for row in found):.0f}"]
            )  # fmt: skip
    return sections(
        "## Planted chains",
        prose(
            "Words have their own label or take it from a neighbouring word (*carry*: the one before; *xor*: their "
            "bit xor the one before; *both*: from either side), 120 words, sequences of 4 to 10 in fit and 9 when "
            f"explaining. Labels are passed on over at most {MAX_LINKS} links. *Exact*, no size given: exactly the "
            "tokens that passed the label on are selected."
        ),
        table(head, lines),
    )


STUDY = Study("chains", cases, run, page)
