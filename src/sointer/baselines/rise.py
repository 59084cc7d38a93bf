"""RISE by swaps: which kept pixels go with the prediction, over random mixtures with other images."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sointer.baselines.by_swaps import BySwaps
from sointer.baselines.row_by_row import N_SAMPLES, Row
from sointer.interpreter.image import PixelUnits
from sointer.training.image_swaps import several_scales

MIN_VARIANCE = 0.02


class Rise(BySwaps):
    """RISE (Petsiuk et al. 2018) with pixels of training images in place of black ones.

    Every sample is mixed with n_samples training images under random masks of several scales. A pixel's score is how
    much more often the prediction stays where that pixel was kept, over the mixtures with images of another prediction:
    its regression coefficient. One set of mixtures serves all targets of a sample.

    Parameters
    ----------
    n_samples : int, optional
        Queries per explained sample, 1000 by default.
    signed : bool, optional
        Whether pixels that speak against the prediction rank last (default, but for numbers) or by the size of their
        weight.
    Other parameters are those of SOInter, with n_jobs as in `RowByRow`; removal="auto" is "marginal".

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.baselines import Rise
    >>> images = np.random.default_rng(0).random((80, 1, 6, 6))
    >>> model = lambda images: images[:, 0] > 0.5
    >>> explainer = Rise(model, k=1, random_state=0, n_samples=300).fit(images)
    >>> explainer.explain(images[:2], target=(2, 3)).pixels.tolist(), explainer.n_explain_queries_
    ([[[2, 3]], [[2, 3]]], 602)
    """

    def _weights(self, rows: Iterator[Row]) -> Iterator[NDArray[np.float64]]:
        image = self.input_format_.image
        assert image is not None
        n = self.n_samples or N_SAMPLES
        for row in rows:
            references = row.rng.integers(len(self.reference_rows_), size=n)
            units = PixelUnits.of(row.groups.take(np.zeros(n, dtype=np.int64)), n)
            keep = several_scales(units, image.size, n, row.rng)
            differs = self._differs(row)
            differs[:, ~differs.any(axis=0)] = 1.0  # no counterexample: all mixtures count
            values = np.concatenate([row.values(points) for points in self._mixed(row, keep, references)])
            yield coefficients(keep, values, differs[references])


def coefficients(
    keep: NDArray[np.bool_], values: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How values (n, targets) depend on each unit's presence (n, units), by weighted regression: (targets, units)."""
    present = keep.astype(np.float64)
    total = np.maximum(weights.sum(axis=0), 1e-12)
    mean_value = (weights * values).sum(axis=0) / total
    mean_present = weights.T @ present / total[:, None]
    covariance = (weights * (values - mean_value)).T @ present / total[:, None]
    return np.asarray(covariance / np.maximum(mean_present * (1 - mean_present), MIN_VARIANCE))
