"""What verifying returns: whether the model predicts the same from the selected features alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sointer.data.targets import ValueSource
from sointer.masking.selection import share_bounds

LEVEL = 0.7
"""Share of draws in which a confirmed explanation holds, at the least."""
SHAPE_ALONE = "a mask can keep the answer by its shape alone: see J, by `sointer evaluate` or metrics.swaps.swap_scores"


@dataclass(frozen=True)
class Verification:
    """Whether the model predicts the values explained when only the selected features are kept.

    If removal is random, only a few draws were queried, so there are three verdicts: a row is confirmed if, with 95 %
    confidence, the target keeps its value in at least `level` of all draws, refuted if it does not, and otherwise
    unsure.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer import Verification
    >>> found = Verification(np.array([1.0, 0.2]), np.array([0.0, 0.8]), n_queries=20, n_draws=10)
    >>> found.fidelity, found.verdict.tolist()
    (0.6, ['confirmed', 'refuted'])
    """

    agreement: NDArray[np.float64]
    """(rows,) share of draws in which the target kept its value; for a region, averaged over its pixels."""
    difference: NDArray[np.float64]
    """(rows,) mean change of the target: labels 0 or 1, probabilities `|p - q|`, numbers in standard deviations."""
    n_queries: int
    """Number of masked samples sent to the model."""
    n_draws: int | None = None
    """Number of draws; None if nothing is random and one query decides."""
    level: float = LEVEL
    """The share of draws that confirms a row."""
    value_source: ValueSource = "model"
    """Where the values explained come from, as in `Explanation`."""
    removal: str | None = None
    """The removal used."""
    random_state: int = 0
    """Seed of the draws."""
    tolerance: float | None = None
    """Numbers agree if they differ by at most this many standard deviations; None unless all targets are numbers."""
    of_images: bool = False
    """Whether the samples are images."""

    @property
    def fidelity(self) -> float:
        """Mean agreement over the rows."""
        return float(self.agreement.mean())

    @property
    def interval(self) -> NDArray[np.float64]:
        """(rows, 2) Clopper-Pearson bounds of the agreement in all possible draws, each wrong in at most 5 % of cases.

        If nothing is random, both are the agreement itself.
        """
        if self.n_draws is None:
            return np.stack([self.agreement, self.agreement], axis=1)
        return share_bounds(self.agreement, self.n_draws)

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
        return np.where(self.confirmed, "confirmed", np.where(self.refuted, "refuted", "unsure")).astype(object)

    def _repr_html_(self) -> str:
        from sointer.viz.plots.notebook import html_verification

        return html_verification(self)

    def __repr__(self) -> str:
        expected = " of expected values" if self.value_source == "expected" else ""
        unsure = f"unsure of {int(self.unsure.sum())}, " if self.unsure.any() else ""
        off = "" if self.tolerance is None else f"off by {self.difference.mean():.2g} standard deviations, "
        return (
            f"Verification(fidelity={self.fidelity:.3f}, confirmed {int(self.confirmed.sum())} of "
            f"{len(self.agreement)} rows{expected}, {unsure}{off}n_queries={self.n_queries})"
            + (f"; {SHAPE_ALONE}" if self.of_images else "")
        )
