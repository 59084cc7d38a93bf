"""Which outputs depend on each other, in an order that puts those together that do."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

MOST_ON_MAP, MOST_PAIRS, MOST_PARTNERS = 40, 30, 5


def coupling_map(interactions: npt.NDArray[Any]) -> dict[str, Any] | None:
    """The outputs to draw, in order, how strongly each pair is coupled, and the strongest pairs; None if none is."""
    strength = np.asarray(interactions, dtype=np.float64)
    if len(strength) < 2 or not strength.max() > 0:
        return None
    strongest = np.argsort(-strength.max(axis=1), kind="stable")[:MOST_ON_MAP]
    shown = np.sort(strongest)
    order = shown[_alike_together(strength[np.ix_(shown, shown)])]
    first, second = np.triu_indices(len(strength), 1)
    best = np.argsort(-strength[first, second], kind="stable")[:MOST_PAIRS]
    pairs = [[int(first[i]), int(second[i]), _short(strength[first[i], second[i]])] for i in best]
    return {
        "outputs": order.tolist(),
        "strength": [[_short(value) for value in row] for row in strength[np.ix_(order, order)]],
        "pairs": [pair for pair in pairs if pair[2] > 0],
        "strongest": _short(strength.max()),
    }


def partners(interactions: npt.NDArray[Any], output: int) -> list[list[float]]:
    """The outputs that one is coupled with most, and how strongly."""
    strength = np.asarray(interactions, dtype=np.float64)[output]
    best = np.argsort(-strength, kind="stable")[:MOST_PARTNERS]
    return [[int(other), _short(strength[other])] for other in best if strength[other] > 0 and other != output]


def _alike_together(strength: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    if len(strength) < 3:
        return np.arange(len(strength))
    apart = strength.max() - (strength + strength.T) / 2
    np.fill_diagonal(apart, 0.0)
    return np.asarray(leaves_list(linkage(squareform(apart, checks=False), "average", optimal_ordering=True)))


def _short(value: float) -> float:
    return float(f"{value:.3g}")
