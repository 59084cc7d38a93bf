"""Verification: whether the model predicts the same from the selected features alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from sointer.data.values import ValueSource

LEVEL = 0.7
"""Share of draws in which a confirmed explanation holds, at the least."""
DOUBT = 0.05
"""How often a bound of that share may be wrong."""
CONFIRMED, REFUTED, UNSURE = "confirmed", "refuted", "unsure"


@dataclass(frozen=True)
class Verification:
    """Whether the model predicts the values explained when only the selected features are kept.

    If removal is random, only a few draws were queried, so there are three verdicts: a row is confirmed if, with 95 %
    confidence, the target keeps its value in at least `level` of all draws, refuted if it does not, and otherwise
    unsure.
    """

    agreement: NDArray[np.float64]
    """(rows,) share of draws in which the target kept its value; for a region, averaged over its pixels."""
    difference: NDArray[np.float64]
    """(rows,) mean change of the target: labels 0 or 1, probabilities `|p - q|`, numbers in standard deviations."""
    n_queries: int
    n_draws: int | None = None
    """Number of draws; None if nothing is random and one query decides."""
    level: float = LEVEL
    value_source: ValueSource = "model"
    """Where the values explained come from, as in `Explanation`."""
    removal: str | None = None
    """The removal used."""
    random_state: int = 0

    @property
    def fidelity(self) -> float:
        """Mean agreement over the rows."""
        return float(self.agreement.mean())

    @property
    def interval(self) -> NDArray[np.float64]:
        """(rows, 2) Clopper-Pearson bounds of the agreement in all possible draws; each is wrong in at most 5 % of
        cases.

        If nothing is random, both are the agreement itself.
        """
        if self.n_draws is None:
            return np.stack([self.agreement, self.agreement], axis=1)
        agreed, n = self.agreement * self.n_draws, self.n_draws
        low = betaincinv(np.maximum(agreed, 1e-9), n - agreed + 1, DOUBT)
        high = betaincinv(agreed + 1, np.maximum(n - agreed, 1e-9), 1 - DOUBT)
        return np.stack([np.where(agreed > 0, low, 0.0), np.where(agreed < n, high, 1.0)], axis=1)

    @property
    def confirmed(self) -> NDArray[np.bool_]:
        """(rows,) True where the target keeps its value, with 95 % confidence if removal is random."""
        return np.asarray(self.agreement == 1.0 if self.n_draws is None else self.interval[:, 0] >= self.level)

    @property
    def refuted(self) -> NDArray[np.bool_]:
        """(rows,) True where it does not: the model relied on more than was selected, or on something else."""
        return np.asarray(self.agreement < 1.0 if self.n_draws is None else self.interval[:, 1] < self.level)

    @property
    def unsure(self) -> NDArray[np.bool_]:
        """(rows,) True where there were too few draws to decide."""
        return ~(self.confirmed | self.refuted)

    @property
    def verdict(self) -> NDArray[np.object_]:
        """(rows,) "confirmed", "refuted" or "unsure"."""
        return np.where(self.confirmed, CONFIRMED, np.where(self.refuted, REFUTED, UNSURE)).astype(object)

    def _repr_html_(self) -> str:
        from sointer.viz.plots.notebook import html_verification

        return html_verification(self)

    def __repr__(self) -> str:
        expected = " of expected values" if self.value_source == "expected" else ""
        unsure = f"unsure of {int(self.unsure.sum())}, " if self.unsure.any() else ""
        return (
            f"Verification(fidelity={self.fidelity:.3f}, confirmed {int(self.confirmed.sum())} of "
            f"{len(self.agreement)} rows{expected}, {unsure}n_queries={self.n_queries})"
        )
