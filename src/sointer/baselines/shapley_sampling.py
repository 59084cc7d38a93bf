"""Shapley values by sampling: put a row together feature by feature, in random order, and see what each changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sointer.baselines.row_by_row import N_SAMPLES, Row, RowByRow


class ShapleySampling(RowByRow):
    """Shapley values by sampling orders of the features (Castro et al. 2009; Strumbelj & Kononenko 2010).

    Each walk starts from everything removed, by a draw of its own, and puts the features that differ back one by
    one. A feature that never changes the target gets exactly zero, whatever the budget, so at equal budget
    this finds relevant sets better than regressions do when removal is random. A row with more features
    than n_samples is walked in steps of several features, which share what they change.

    Parameters are those of SOInter, with n_samples (1000 unless told), signed and n_jobs as in `RowByRow`.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.baselines import ShapleySampling
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 3] > 0])
    >>> explainer = ShapleySampling(model, k=1, random_state=0).fit(X)
    >>> explainer.explain(X[:3], target=1).selected.ravel().tolist(), explainer.n_explain_queries_
    ([3, 3, 3], 2988)
    """

    def _weights(self, rows: Iterator[Row]) -> Iterator[NDArray[np.float64]]:
        for row in rows:
            yield walk_weights(row, self.n_samples or N_SAMPLES, signed=self._is_signed)


def walk_weights(row: Row, n_samples: int, *, signed: bool) -> NDArray[np.float64]:
    """What each unit that differs changes on average (if signed) or in size: (targets, units)."""
    weights = np.zeros((len(row.targets), row.source.groups.n_units))
    n_units = len(row.units)
    if n_units == 0:
        return weights
    n_steps = min(n_units, n_samples - 1)
    n_walks = (n_samples - 1) // n_steps
    joins = np.arange(n_units) * n_steps // n_units  # the step at which the unit at each place of an order joins
    walks = [joins[row.rng.permutation(n_units)] for _ in range(n_walks)]
    stops = np.arange(n_steps)[:, None]
    points = [next(row.copies(step_of_unit < stops)) for step_of_unit in walks]
    values = row.values(np.concatenate(points)).reshape(n_walks, n_steps, -1)
    for step_of_unit, walked in zip(walks, values, strict=True):
        changes = np.diff(np.vstack([walked, row.value]), axis=0) / np.bincount(step_of_unit)[:, None]
        weights[:, row.units] += (changes if signed else np.abs(changes))[step_of_unit].T / n_walks
    return weights
