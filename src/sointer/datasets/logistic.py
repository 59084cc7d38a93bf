"""Logistic regressions with known coefficients: which way every feature pushes every output is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from sointer.datasets.problem import FloatArray, Problem
from sointer.datasets.regional import OutputKind

N_OUTPUTS = 4


@dataclass(frozen=True, eq=False)
class LogisticProblem(Problem):
    """A model whose outputs are logistic regressions, with the true contribution of every feature."""

    coefficients: FloatArray = field(kw_only=True, repr=False)
    """(outputs, features), before any shuffling."""
    intercepts: FloatArray = field(kw_only=True, repr=False)
    means: FloatArray = field(kw_only=True, repr=False)
    """The mean of each feature, before any shuffling."""

    def contributions(
        self, X: npt.ArrayLike, target: int, scale: Literal["logit", "probability"] = "logit"
    ) -> FloatArray:
        """What each feature adds to the target in each row, compared with its mean: (rows, features).

        Parameters
        ----------
        X : array, (rows, features)
            In the order of this problem's features.
        target : int
            Which output.
        scale : "logit" or "probability"
            The change w (x - mean) of the logit, or how much the probability would drop if this feature alone were at
            its mean. Both have the same sign.
        """
        if scale not in ("logit", "probability"):
            raise ValueError(f'scale must be "logit" or "probability", got {scale!r}')
        inputs = self._as_inputs(X)
        order = np.arange(self.n_features) if self.order is None else np.asarray(self.order)
        weights = self.coefficients[target, order]
        change: FloatArray = weights * (inputs - self.means[order])
        if scale == "logit":
            return change
        logit = (inputs @ weights + self.intercepts[target])[:, None]
        return np.asarray(expit(logit) - expit(logit - change))


def logistic_regressions(
    n_features: int = 12,
    output_kind: OutputKind = "probability",
    *,
    n_relevant: int = 6,
    random_state: int = 0,
) -> LogisticProblem:
    """Four outputs P_j = sigmoid(w_j . x + b_j) on standard normal inputs, with `n_relevant` coefficients each.

    Coefficients are 0.5 to 2 in size, of either sign; outputs share features and often disagree about their sign.

    Parameters
    ----------
    n_features : int
        At least `n_relevant`.
    output_kind : "probability" or "binary"
        What the model returns.
    n_relevant : int
        How many features each output depends on.
    random_state : int
        Draws the coefficients.
    """
    if output_kind not in ("probability", "binary"):
        raise ValueError(f'output_kind must be "probability" or "binary", got {output_kind!r}')
    if not 1 <= n_relevant <= n_features:
        raise ValueError(f"n_relevant must be between 1 and n_features={n_features}, got {n_relevant}")
    rng = np.random.default_rng(random_state)
    coefficients = np.zeros((N_OUTPUTS, n_features))
    for row in coefficients:
        chosen = rng.permutation(n_features)[:n_relevant]
        row[chosen] = rng.uniform(0.5, 2.0, n_relevant) * rng.choice([-1.0, 1.0], n_relevant)
    intercepts = rng.uniform(-0.5, 0.5, N_OUTPUTS)
    targets = tuple(range(N_OUTPUTS))
    return LogisticProblem(
        name="logistic_regressions",
        n_features=n_features,
        n_outputs=N_OUTPUTS,
        targets=targets,
        relevant={target: tuple(np.flatnonzero(coefficients[target]).tolist()) for target in targets},
        output_names=tuple(f"p{target}" for target in targets),
        output_kind=output_kind,
        black_box=partial(_predict, coefficients=coefficients, intercepts=intercepts, output_kind=output_kind),
        coefficients=coefficients,
        intercepts=intercepts,
        means=np.zeros(n_features),
    )


def _predict(X: FloatArray, coefficients: FloatArray, intercepts: FloatArray, output_kind: str) -> npt.NDArray[Any]:
    # Sums of rows, not a matrix product, whose last bits depend on how many rows there are.
    logits = (X[:, None, :] * coefficients).sum(axis=2) + intercepts
    return np.asarray(expit(logits)) if output_kind == "probability" else (logits > 0).astype(np.int64)
