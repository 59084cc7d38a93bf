"""Baselines that do not look at the answer they explain: they take the target to have its usual value."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer.base import Subject
from sointer.baselines.baseline import Answers, Baseline
from sointer.masking.rows import Source


class UsualValue(Baseline):
    """Learns the most frequent label, or the mean, of every output."""

    def _learn(self, subject: Subject, answers: Answers) -> None:
        codes, graded = answers.outputs.encode(answers.raw), answers.outputs.graded
        columns = zip(codes.T, graded, strict=True)
        usual = [own.mean() if is_graded else np.bincount(own.astype(np.int64)).argmax() for own, is_graded in columns]
        self.usual_ = np.array(usual, dtype=codes.dtype)

    def _usual(self, source: Source, targets: NDArray[np.int64]) -> NDArray[Any]:
        """The encoded usual value of each row's target."""
        if (targets < len(self.usual_)).all():
            return np.asarray(self.usual_[targets])
        usual = source.outputs.decode(self.usual_[None])
        of_all_rows = np.broadcast_to(usual, (len(targets), usual.shape[1]))
        return source.outputs.encode_targets(of_all_rows, targets, source.regions)[0]
