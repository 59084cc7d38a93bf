"""LIME: a weighted linear regression on changed copies of a row, fitted by the `lime` package."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import is_sparse
from sointer.errors import require_extra
from sointer.explainers.baselines.row_by_row import N_SAMPLES, FeatureTable, Row, TwoProtocols

N_SAMPLES_PAPER = 5000
KERNEL_WIDTH = 100.0  # nearly flat; lime's text explainer takes 25, which did mostly worse on Bibtex, E1 and E2


class Lime(TwoProtocols):  # noqa: D101 - its __doc__ is an f-string
    __doc__ = f"""LIME (Ribeiro et al. 2016), with the `lime` package.

    protocol="tuned" removes random subsets of the features that differ from their reference, as lime's text
    explainer removes words, and lets lime's own ridge regression weigh them. protocol="package" is
    LimeTabularExplainer with its defaults, 5000 samples per row: dense data are cut into quartiles, CSR data
    get normal noise on their non-zero values.

    {TwoProtocols.__doc__}
    Examples
    --------
    >>> import numpy as np
    >>> from sointer.explainers.baselines import Lime
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 3] > 0])
    >>> explainer = Lime(model, k=1, random_state=0).fit(X)
    >>> explainer.explain(X[:3], target=1).selected.ravel().tolist(), explainer.n_explain_queries_
    ([3, 3, 3], 2973)
    """

    def _check_settings(self) -> None:
        super()._check_settings()
        require_extra("lime", "baselines")

    def _weights(self, rows: Iterator[Row]) -> Iterator[NDArray[np.float64]]:
        if self.protocol == "package":
            yield from self._tabular_weights(rows)
        else:
            yield from (mask_weights(row, self.n_samples or N_SAMPLES) for row in rows)

    def _tabular_weights(self, rows: Iterator[Row]) -> Iterator[NDArray[np.float64]]:
        table = FeatureTable(self.input_format_)
        explainer = tabular_explainer(table, self.background_.rows)
        for row in rows:
            seed = int(row.rng.integers(2**32))
            for part in (explainer, explainer.base, explainer.discretizer):
                if part is not None:
                    part.random_state = np.random.RandomState(seed)
            features = tabular_weights(explainer, table, row, self.n_samples or N_SAMPLES_PAPER)
            yield table.sum_by_unit(np.abs(features), row.source.groups.unit_of_feature)


def mask_weights(row: Row, n_samples: int) -> NDArray[np.float64]:
    """Weights of the units that differ, from copies of the row with random subsets of them removed."""
    from lime.lime_base import LimeBase

    weights = np.zeros((len(row.targets), row.source.groups.n_units))
    n_units = len(row.units)
    if n_units == 0:
        return weights
    n_draws = row.n_draws(n_samples)
    keep = random_keeps(1 + (n_samples - 1) // n_draws, n_units, row.rng)
    reduced = np.mean([row.values(points) for points in row.copies(keep[1:], n_draws)], axis=0)
    values = np.vstack([row.value, reduced])
    base = LimeBase(text_kernel, random_state=np.random.RandomState(0))
    distances = 100.0 * (1.0 - np.sqrt(keep.mean(axis=1)))  # 100 x the cosine distance to the whole row
    masks = keep.astype(np.float64)
    for i in np.flatnonzero(np.ptp(values, axis=0) > 0):  # all weights of a constant are zero
        _, found, _, _ = base.explain_instance_with_data(masks, values, distances, i, n_units, feature_selection="none")
        for unit, weight in found:
            weights[i, row.units[unit]] = weight
    return weights


def random_keeps(n: int, n_units: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Masks (n, units): the first keeps all, each other removes a number of units uniform from 1 to all."""
    order = rng.random((n, n_units)).argsort(axis=1).argsort(axis=1)
    n_removed = rng.integers(1, n_units + 1, size=(n, 1))
    n_removed[0] = 0
    return np.asarray(order >= n_removed)


def text_kernel(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much a sample at this distance counts, as in lime's text explainer."""
    return np.asarray(np.sqrt(np.exp(-(distances**2) / KERNEL_WIDTH**2)))


def tabular_explainer(table: FeatureTable, background: Any) -> Any:
    """LimeTabularExplainer with its defaults."""
    from lime.lime_tabular import LimeTabularExplainer

    return LimeTabularExplainer(
        table.from_columns(background),
        feature_names=list(table.input_format.feature_names),
        categorical_features=table.categorical.tolist(),
        random_state=0,
    )


def tabular_weights(explainer: Any, table: FeatureTable, row: Row, n_samples: int) -> NDArray[np.float64]:
    """Weights that lime gives to all features: (targets, features)."""
    varying: list[int] = []

    def values(features: Any) -> NDArray[np.float64]:
        points = row.values(table.to_columns(features))
        varying.extend(np.flatnonzero(np.ptp(points, axis=0) > 0).tolist())
        return points

    features = table.from_columns(row.columns)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*Prediction probabilties do not sum to 1")
        explanation = explainer.explain_instance(
            features if is_sparse(features) else features[0],
            values,
            labels=varying,  # lime reads it after its queries; a constant's weights are zero
            num_features=table.input_format.n_features,
            num_samples=n_samples,
        )
    weights = np.zeros((len(row.targets), table.input_format.n_features))
    for i in varying:
        for feature, weight in explanation.local_exp[i]:
            weights[i, feature] = weight
    return weights
