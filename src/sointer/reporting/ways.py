"""Direct, or through other outputs: for the targets that depend most on others, from a few samples each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import rows
from sointer.masking.rows import Queried
from sointer.paths import NoPaths, Paths
from sointer.report.report_content import TargetWays, Way

if TYPE_CHECKING:
    from sointer.explainers.base import Explainer

MOST_TARGETS, N_SAMPLES, MOST_WAYS, MOST_THROUGH = 5, 12, 6, 3


def targets_to_follow(explainer: Explainer, targets: list[int], paths: bool | int) -> list[int]:
    """Those of the targets that are coupled most with other outputs; none where outputs stand alone."""
    interactions = getattr(explainer, "output_interactions_", None)
    if paths is False or interactions is None or len(interactions) < 2:
        return []
    most = MOST_TARGETS if paths is True else int(paths)
    coupling = np.asarray(interactions)[targets].max(axis=1)
    return [targets[i] for i in np.argsort(-coupling, kind="stable")[:most] if coupling[i] > 0]


def follow(
    explainer: Explainer,
    X: Any,
    answers: NDArray[Any] | Queried | None,
    target: int,
    codes: NDArray[Any],
    k: int | Literal["auto"],
) -> TargetWays | None:
    """The ways of the most important features, averaged over a few samples, unusual values first."""
    found, counts = np.unique(codes, return_counts=True)
    usual = found[np.argmax(counts)]
    some = np.sort(np.argsort(codes == usual, kind="stable")[:N_SAMPLES])
    told = None if answers is None else answers[some]
    explanation = explainer.explain(rows(X, some), target, k=k, predicted=told, query=False)
    nothing = not (explanation.selected >= 0).any()
    if explanation.trace is None or isinstance(explanation.trace, NoPaths) or nothing:
        return None
    followed = explanation.paths()
    ways = [_way(followed, target, unit) for unit in followed.ranked(target)[:MOST_WAYS]]
    return TargetWays(ways, len(some), followed.unit, followed.warning)


def _way(followed: Paths, target: int, unit: int) -> Way:
    total, direct, through = followed.average(target, unit)
    n_samples = int((followed.selected == unit).any(axis=1).sum())
    largest = sorted(through.items(), key=lambda pair: -abs(pair[1]))[:MOST_THROUGH]
    return Way(unit, n_samples, total, direct, largest)
