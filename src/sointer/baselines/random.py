"""Random: the least that any explainer must beat."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.base import Subject
from sointer.baselines.baseline import Answers, Baseline
from sointer.explanation import Source


class Random(Baseline):
    """Chooses at random among the features that differ from their reference; asks nothing to explain.

    `expected` is the usual value of the target. Parameters are those of SOInter.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.baselines import Random
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 3] > 0])
    >>> explainer = Random(model, k=1, random_state=0).fit(X)
    >>> explainer.explain(X[:3], target=1).selected.ravel().tolist(), explainer.n_explain_queries_
    ([0, 1, 1], 0)
    """

    def _learn(self, subject: Subject, answers: Answers) -> None:
        codes = answers.outputs.encode(answers.raw)
        if answers.outputs.kind == "continuous":
            self.usual_ = codes.mean(axis=0)
        else:
            self.usual_ = np.array([np.bincount(column).argmax() for column in codes.T])

    def _scores(self, source: Source, targets: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[Any]]:
        scores = np.empty((len(targets), source.groups.n_units), dtype=np.float32)
        for i, (rng, target) in enumerate(zip(self._row_generators(source), targets.tolist(), strict=True)):
            lots = np.random.default_rng([target, int(rng.integers(2**63))])
            scores[i] = lots.random(source.groups.n_units, dtype=np.float32)
        return scores, self.usual_[targets]
