"""Random: the least that any explainer must beat."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.baselines.usual import UsualValue
from sointer.masking.rows import Source


class Random(UsualValue):
    """Chooses at random among the features that differ from their reference; queries only for the values.

    With query=False the value is the usual one of the target. Parameters are those of SOInter.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.baselines import Random
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 3] > 0])
    >>> explainer = Random(model, k=1, random_state=0).fit(X)
    >>> explainer.explain(X[:3], target=1, query=False).selected.ravel().tolist(), explainer.n_explain_queries_
    ([0, 1, 1], 0)
    """

    def _scores(self, source: Source, targets: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[Any]]:
        scores = np.empty((len(targets), source.groups.n_units), dtype=np.float32)
        for i, (rng, target) in enumerate(zip(self._row_generators(source), targets.tolist(), strict=True)):
            lots = np.random.default_rng([target_number(target, source), int(rng.integers(2**63))])
            scores[i] = lots.random(source.groups.n_units, dtype=np.float32)
        return scores, self._usual(source, targets)


def target_number(target: int, source: Source) -> int:
    """An output's number, or one made from the outputs of a region, whose own number depends on what else is asked."""
    if target < source.outputs.n_outputs:
        return target
    region = np.packbits(source.regions[target - source.outputs.n_outputs])
    return int.from_bytes(blake2b(region.tobytes(), digest_size=8).digest(), "little")
