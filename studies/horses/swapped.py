"""Insert and delete as they are kept in results: means, and differences between methods on the same pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from studies.frame.markdown import number
from studies.frame.study import Row
from studies.horses.pairs import mean_of_images, unpack

MAIN_KS = (10, 30, 100, 300)
"""Sizes that the mean of insert and delete is taken over."""


class Difference(NamedTuple):
    """Ours minus another method's, on the same pairs; below 0 the other is ahead."""

    ours: float
    theirs: float
    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        return "ahead" if self.low > 0 else "**behind**" if self.high < 0 else "level"

    def __str__(self) -> str:
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def main_ks(row: Row) -> list[int]:
    return [k for k in MAIN_KS if k in row["ks"]]


def values(row: Row, measure: str, k: int, part: Row | None = None) -> NDArray[np.float64]:
    """One number for every pair that was measured; of a part of the row, such as a transfer, if it is given.

    Measures are "insert" and "delete", and of every fill "own" (fidelity), "foreign" and "J": "J black".
    """
    if measure.startswith("J "):
        own, foreign = (values(row, f"{side} {measure[2:]}", k, part) for side in ("own", "foreign"))
        return own - foreign
    held = row if part is None else part
    return unpack(held["swaps"][measure][row["ks"].index(k)], len(held["images"])).astype(np.float64)


def share(rows: Sequence[Row], measure: str, k: int, n: int | None = None) -> float:
    """Over all pairs of all seeds; of each seed the first n, if it is given."""
    found = [values(row, measure, k)[:n] for row in rows if k in row["ks"]]
    return float(np.concatenate(found).mean()) if found else float("nan")


def fidelity_and_j(rows: Sequence[Row], fill: str, k: int) -> str:
    """Never one without the other; of an evaluator, which guesses, J alone."""
    own = "–" if fill == "evaluator" else number(share(rows, f"own {fill}", k))
    return f"{own} / {number(share(rows, f'J {fill}', k))}"


def both(rows: Sequence[Row], k: int, n: int | None = None) -> str:
    return f"{number(share(rows, 'insert', k, n))} / {number(share(rows, 'delete', k, n))}"


def single_number(rows: Sequence[Row], n: int | None = None) -> float:
    """Insert and delete, averaged over the main sizes."""
    ks = main_ks(rows[0])
    return float(np.mean([share(rows, measure, k, n) for measure in ("insert", "delete") for k in ks]))


def difference(ours: Sequence[Row], theirs: Sequence[Row], measures: Sequence[str], ks: Sequence[int]) -> Difference:
    """Averaged over measures and sizes, on the seeds that both methods have."""
    pairs = [(row, other) for row in ours for other in theirs if row["seed"] == other["seed"]]
    first, second = (
        [np.mean([values(pair[side], measure, k) for measure in measures for k in ks], axis=0) for pair in pairs]
        for side in (0, 1)
    )
    return _paired(first, second, [np.array(row["images"]) for row, _ in pairs])


def transfer_difference(
    ours: Sequence[Row], theirs: Sequence[Row], measures: Sequence[str], ks: Sequence[int]
) -> Difference:
    """The same of selections that are measured on models never queried."""
    pairs = [
        (row, other, name)
        for row in ours
        for other in theirs
        for name in (row["transfer"] if row["seed"] == other["seed"] else ())
    ]
    first, second = (
        [
            np.mean([values(pair[side], m, k, pair[side]["transfer"][pair[2]]) for m in measures for k in ks], axis=0)
            for pair in pairs
        ]
        for side in (0, 1)
    )
    return _paired(first, second, [np.array(row["transfer"][name]["images"]) for row, _, name in pairs])


def _paired(
    ours: list[NDArray[np.float64]], theirs: list[NDArray[np.float64]], images: list[NDArray[np.int64]]
) -> Difference:
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
    middle, low, high = mean_of_images(gaps, images)
    return Difference(float(np.concatenate(ours).mean()), float(np.concatenate(theirs).mean()), middle, low, high)
