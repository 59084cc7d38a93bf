"""How well held-out outputs are predicted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sointer.config import POOR_SKILL
from sointer.data.outputs import Outputs

MIN_UNUSUAL = 5


class Quality(NamedTuple):
    """Of predictions on held-out answers."""

    loss: float
    agreement: NDArray[np.float64]
    """(outputs,) share of answers predicted correctly; of numbers, within the tolerance."""
    skill: NDArray[np.float64]
    """(outputs,) share of the error of always guessing the usual value that is avoided; NaN if all answers are alike.

    Of graded outputs this is the coefficient of determination, R squared."""
    poor: list[int]
    """Outputs of which little was learned."""

    def mean_skill(self) -> float:
        """Over outputs that vary; 1 if none does."""
        known = self.skill[~np.isnan(self.skill)]
        return float(known.mean()) if len(known) else 1.0


def quality_of(loss: float, found: Tensor, codes: Tensor, outputs: Outputs) -> Quality:
    """Compare codes that the energy expects (rows, outputs) with those of the black box.

    Agreement alone flatters: where a label is set on 1 % of rows, guessing "no" agrees on 99 %. Numbers count in their
    own unit, outliers as the outermost quantiles.
    """
    a, b = found.double().numpy(), codes.double().numpy()
    agreement, skill = np.empty(a.shape[1]), np.empty(a.shape[1])
    poor = []
    for j, kind in enumerate(outputs.kinds):
        own, said, curve, graded = a[:, j], b[:, j], outputs.quantiles[j], bool(outputs.graded[j])
        if curve is not None:
            own, said = curve.decode(own), curve.decode(said)
            agreement[j] = (np.abs(own - said) <= float(outputs.tolerance or 0.0) * curve.deviation).mean()
        else:
            agreement[j] = ((own > 0.5) == (said > 0.5)).mean() if kind == "probability" else (own == said).mean()
        usual = said.mean() if graded else np.bincount(said.astype(np.int64)).argmax()
        by_guessing, error = _error(said, usual, graded), _error(said, own, graded)
        skill[j] = 1 - error / by_guessing if by_guessing > 0 else np.nan
        if (said != usual).sum() >= MIN_UNUSUAL and error > (1 - POOR_SKILL) * by_guessing:
            poor.append(j)
    return Quality(loss, agreement, skill, poor)


def quality_of_labels(loss: float, found: Tensor, codes: Tensor) -> Quality:
    """The same where all outputs are labels (rows, outputs)."""
    usual = codes.mode(dim=0).values
    by_guessing, error = ((guess != codes).double().mean(dim=0).numpy() for guess in (usual, found))
    with np.errstate(divide="ignore", invalid="ignore"):
        skill = np.where(by_guessing > 0, 1 - error / by_guessing, np.nan)
    return Quality(loss, 1 - error, skill, [])


def _error(said: NDArray[np.float64], guess: Any, graded: bool) -> float:
    return float(((said - guess) ** 2).mean() if graded else (said != guess).mean())
