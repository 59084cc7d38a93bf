"""What an explainer asks of its networks, and what all ways to score share."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sointer.masking.rows import Source
from sointer.masking.selection import Likely, Scored

Targets = NDArray[np.int64]


class Scorer(Protocol):
    """What an explainer asks its networks."""

    def scores(self, source: Source, targets: Targets) -> Scored:
        """What is known of the units of rows."""

    def likely(self, source: Source, targets: Targets, values: NDArray[Any]) -> Likely:
        """How likely the energy holds it that reduced rows keep their target's value."""


def reduced(source: Source, rows: Targets, keep_units: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Encoded rows reduced to some of their units; where removal is random, by one draw that is always the same."""
    keep = source.groups.take(rows).to_columns(keep_units)
    return next(source.removal.draws(source.rows(rows), keep, 1, np.random.default_rng(0)))
