"""GlobalList: one ranking for all samples, the control for explainers that claim to tell samples apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.base import Subject
from sointer.baselines.baseline import Answers, Baseline
from sointer.explanation import Explanation
from sointer.masking.rows import Source


class GlobalList(Baseline):
    """Ranks the units of each target by the mean size of another explainer's scores, the same for every sample.

    An explainer that does no better has found which features matter, but not in which samples.
    """

    def learn_from(self, explanation: Explanation) -> None:
        """Take the mean of |scores| over the samples of each target."""
        n_units = explanation.scores.shape[1]
        self.mean_scores_ = np.zeros((len(explanation.output_names), n_units), dtype=np.float32)
        for target in np.unique(explanation.target):
            of_target = explanation.scores[explanation.target == target]
            self.mean_scores_[target] = np.abs(of_target).mean(axis=0)

    def _learn(self, subject: Subject, answers: Answers) -> None:
        raise NotImplementedError("GlobalList learns from an explanation, by learn_from().")

    def _scores(self, source: Source, targets: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[Any]]:
        return self.mean_scores_[targets], np.zeros(len(targets), dtype=np.int64)
