"""LIME and Shapley values (KernelSHAP, sampling): changed copies of a row, weighed by packages `lime` and `shap`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sointer._support.containers import is_sparse
from sointer.data.texts import stacked
from sointer.explainers.baselines.row_by_row import N_DRAWS, N_SAMPLES, FeatureTable, Row, RowByRow, TwoProtocols

N_SAMPLES_PAPER = 5000
KERNEL_WIDTH = 100.0  # nearly flat; lime's text explainer takes 25, which did mostly worse on Bibtex, E1 and E2


class Lime(TwoProtocols):
    """LIME (Ribeiro et al. 2016), with the `lime` package.

    protocol="tuned" removes random subsets of the features that differ from their reference, as lime's text
    explainer removes words, and lets lime's own ridge regression weigh them. protocol="package" is
    LimeTabularExplainer with its defaults, 5000 samples per row: dense data are cut into quartiles, CSR data
    get normal noise on their non-zero values.

    Parameters
    ----------
    model, k, removal, feature_names, output_names, output_kind, method, tolerance, groups : as in `SOInter`
    batch_size, random_state, verbose : as in `SOInter`
    n_samples : int, optional
        With protocol="tuned", maximum number of rows queried per explained row, 1000 by default.
    signed : bool, optional
        With protocol="tuned", count what speaks against the prediction as less than nothing; False counts the size of
        weights only. By default sizes for numbers, and where removal is random; signs elsewhere.
    n_jobs : int, optional
        Processes that explain rows side by side, as joblib counts them; each works with a copy of the model.
    protocol : {"tuned", "package"}, default "tuned"
        Only features that differ from their reference are removed, in the way `removal` says; or the package's
        defaults, and the size of weights.

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

    package = "lime"

    @staticmethod
    def _unit_weights(row: Row, n_samples: int) -> NDArray[np.float64]:
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
            _, found, _, _ = base.explain_instance_with_data(
                masks, values, distances, i, n_units, feature_selection="none"
            )
            for unit, weight in found:
                weights[i, row.units[unit]] = weight
        return weights

    def _package_weights(self, table: FeatureTable) -> Callable[[Row], NDArray[np.float64]]:
        explainer = tabular_explainer(table, self.background_.rows)

        def weights(row: Row) -> NDArray[np.float64]:
            seed = int(row.rng.integers(2**32))
            for part in (explainer, explainer.base, explainer.discretizer):
                if part is not None:
                    part.random_state = np.random.RandomState(seed)
            return tabular_weights(explainer, table, row, self.n_samples or N_SAMPLES_PAPER)

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


N_BACKGROUND = 100  # as many as shap takes without a warning


class KernelShap(TwoProtocols):
    """KernelSHAP (Lundberg & Lee 2017), with the `shap` package.

    protocol="tuned" plays the game whose players are the features that differ from their reference, with
    `removal` standing in for the absent ones; where removal is random, coalitions are averaged over the same
    draws. protocol="package" is KernelExplainer with 100 rows of the data as background and its defaults, which
    queries (2048 + 2 x features) x 100 rows.

    Parameters
    ----------
    model, k, removal, feature_names, output_names, output_kind, method, tolerance, groups : as in `SOInter`
    batch_size, random_state, verbose : as in `SOInter`
    n_samples : int, optional
        With protocol="tuned", maximum number of rows queried per explained row, 1000 by default.
    signed : bool, optional
        With protocol="tuned", count what speaks against the prediction as less than nothing; False counts the size of
        weights only. By default sizes for numbers, and where removal is random; signs elsewhere.
    n_jobs : int, optional
        Processes that explain rows side by side, as joblib counts them; each works with a copy of the model.
    protocol : {"tuned", "package"}, default "tuned"
        Only features that differ from their reference are removed, in the way `removal` says; or the package's
        defaults, and the size of weights.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.explainers.baselines import KernelShap
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> model = lambda X: np.column_stack([X[:, 0] > 0, X[:, 3] > 0])
    >>> explainer = KernelShap(model, k=1, random_state=0).fit(X)
    >>> explainer.explain(X[:3], target=1).selected.ravel().tolist(), explainer.n_explain_queries_
    ([3, 3, 3], 2979)
    """

    package = "shap"

    @staticmethod
    def _unit_weights(row: Row, n_samples: int) -> NDArray[np.float64]:
        """Shapley values of the units that differ, from at most n_samples rows: (targets, units)."""
        weights = np.zeros((len(row.targets), row.source.groups.n_units))
        n_players = len(row.units)
        if n_players == 0:
            return weights
        n_all = 2 ** min(n_players, 30) - 2
        n_draws, n_draws_of_all = row.n_draws(n_samples), (n_samples - 1) // (n_all + 1)
        if row.source.removal.is_random and n_draws_of_all >= N_DRAWS // 2:
            n_draws = n_draws_of_all  # all coalitions can be queried, and what is left goes into more draws
        n_coalitions = max(1, min((n_samples - 1) // n_draws - 1, n_all))
        draw = int(row.rng.integers(2**63))

        def worth(players: NDArray[Any]) -> NDArray[np.float64]:
            keep = players > 0.5
            if keep.all():
                return np.repeat(row.value[None, :], len(keep), axis=0)
            same_draws = replace(row, rng=np.random.default_rng(draw))  # shap calls more than once
            return np.asarray(np.mean([row.values(points) for points in same_draws.copies(keep, n_draws)], axis=0))

        found = _shap_values(
            worth,
            np.zeros((1, n_players)),
            np.ones(n_players),
            row.rng,
            nsamples=n_coalitions,
            # With too few coalitions for least squares, the features that a lasso picks first.
            l1_reg=0 if n_coalitions >= 2 * n_players else f"num_features({max(1, n_coalitions // 4)})",
        )
        weights[:, row.units] = found.T
        return weights

    def _package_weights(self, table: FeatureTable) -> Callable[[Row], NDArray[np.float64]]:
        chosen = np.random.default_rng(self.seed_).permutation(self.background_.rows.shape[0])[:N_BACKGROUND]
        background = table.from_columns(self.background_.rows[np.sort(chosen)])
        return lambda row: background_weights(table, background, row, self.n_samples or "auto")


def background_weights(table: FeatureTable, background: Any, row: Row, n_samples: Any) -> NDArray[np.float64]:
    """Values that shap gives to all features with its defaults: (targets, features)."""
    features = table.from_columns(row.columns)

    def values(points: Any) -> NDArray[np.float64]:
        return row.values(table.to_columns(points.tocsr() if is_sparse(points) else points))

    return np.asarray(_shap_values(values, background, features, row.rng, nsamples=n_samples).T)


def _shap_values(function: Any, background: Any, x: Any, rng: np.random.Generator, **settings: Any) -> NDArray[Any]:
    """KernelExplainer's values of one row: (features, outputs).

    It solves for every output, also for those that never changed, which is most of its time with many outputs.
    So it runs once with one output to query, and once with the same seed and those that changed to solve.
    """
    seed = int(rng.integers(2**32))
    returned: list[NDArray[np.float64]] = []

    def query(points: Any) -> NDArray[np.float64]:
        returned.append(function(points))
        return returned[-1][:, :1]

    first = _kernel_explainer(query, background, x, seed, settings)
    n_outputs = returned[0].shape[1]
    if n_outputs == 1:
        return first
    varying = np.flatnonzero(np.ptp(np.concatenate(returned), axis=0) > 0)
    values = np.zeros((len(first), n_outputs))
    if len(varying):
        known = iter(returned)
        values[:, varying] = _kernel_explainer(lambda _: next(known)[:, varying], background, x, seed, settings)
    return values


def _kernel_explainer(function: Any, background: Any, x: Any, seed: int, settings: dict[str, Any]) -> NDArray[Any]:
    from shap import KernelExplainer

    with warnings.catch_warnings(), _global_seed(seed):
        warnings.filterwarnings("ignore", message="Linear regression equation is singular")
        warnings.filterwarnings("ignore", message="Regressors in active set degenerate")
        values = np.asarray(KernelExplainer(function, background).shap_values(x, silent=True, **settings))
    return values.reshape(-1, values.shape[-1])


@contextmanager
def _global_seed(seed: int) -> Iterator[None]:
    """Seed the draws that shap makes from numpy's global generator, which is put back afterwards."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


class ShapleySampling(RowByRow):
    """Shapley values by sampling orders of the features (Castro et al. 2009; Strumbelj & Kononenko 2010).

    Each walk starts with everything removed, by its own draw, and puts the features that differ back one by one. A
    feature that never changes the target gets exactly zero, whatever the budget, so with random removal and the same
    budget this finds relevant sets better than regressions do. If a row has more features than n_samples, a step
    restores several features, which share the change.

    Parameters
    ----------
    model, k, removal, feature_names, output_names, output_kind, method, tolerance, groups : as in `SOInter`
    batch_size, random_state, verbose : as in `SOInter`
    n_samples : int, optional
        Maximum number of queries per explained row, 1000 by default.
    signed : bool, optional
        Count what speaks against the prediction as less than nothing; False counts the size of weights only. By
        default sizes for numbers, and where removal is random; signs elsewhere.
    n_jobs : int, optional
        Processes that explain rows side by side, as joblib counts them; each works with a copy of the model.

    Examples
    --------
    >>> import numpy as np
    >>> from sointer.explainers.baselines import ShapleySampling
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
    values = row.values(stacked(points)).reshape(n_walks, n_steps, -1)
    for step_of_unit, walked in zip(walks, values, strict=True):
        changes = np.diff(np.vstack([walked, row.value]), axis=0) / np.bincount(step_of_unit)[:, None]
        weights[:, row.units] += (changes if signed else np.abs(changes))[step_of_unit].T / n_walks
    return weights
