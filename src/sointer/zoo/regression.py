"""Regression problems with several outputs and planted truth: two of Friedman's, and a small piece of mechanics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from sointer.zoo.instancewise import Branch, OutputKind, RegionalOutput, Score, regional_problem
from sointer.zoo.problem import FloatArray, Problem, product

GRAVITY = 9.81


def _uniform(
    n_rows: int, n_features: int, rng: np.random.Generator, ranges: tuple[tuple[float, float], ...]
) -> FloatArray:
    """Uniform inputs, the first ones in these ranges, the others between 0 and 1."""
    inputs = rng.random((n_rows, n_features))
    for feature, (low, high) in enumerate(ranges):
        inputs[:, feature] = low + (high - low) * inputs[:, feature]
    return inputs


def _numbers(
    name: str,
    n_features: int,
    outputs: Sequence[tuple[str, Score, tuple[int, ...]]],
    ranges: tuple[tuple[float, float], ...] = (),
) -> Problem:
    return regional_problem(
        name,
        n_features,
        [RegionalOutput(output, (Branch(score, features),)) for output, score, features in outputs],
        "continuous",
        sampler=partial(_uniform, ranges=ranges),
    )


# --- Friedman --------------------------------------------------------------------------------------------


def _wave(X: FloatArray) -> FloatArray:
    return np.asarray(10 * np.sin(np.pi * X[:, 0] * X[:, 1]))


def _bowl(X: FloatArray) -> FloatArray:
    return np.asarray(20 * (X[:, 2] - 0.5) ** 2)


def _line(X: FloatArray) -> FloatArray:
    return np.asarray(10 * X[:, 3] + 5 * X[:, 4])


def _friedman_sum(X: FloatArray) -> FloatArray:
    return _wave(X) + _bowl(X) + _line(X)


def friedman1(n_features: int = 10) -> Problem:
    """Friedman's first problem and its three terms, which are outputs of their own.

    wave = 10 sin(pi x0 x1), bowl = 20 (x2 - 0.5)^2, line = 10 x3 + 5 x4, and their sum. Inputs are uniform between
    0 and 1.

    Parameters
    ----------
    n_features : int
        At least 5.

    Returns
    -------
    Problem
    """
    terms = (("wave", _wave, (0, 1)), ("bowl", _bowl, (2,)), ("line", _line, (3, 4)))
    return _numbers("friedman1", n_features, (*terms, ("sum", _friedman_sum, (0, 1, 2, 3, 4))))


def _reactance(X: FloatArray) -> FloatArray:
    return np.asarray(X[:, 1] * X[:, 2] - 1e6 / (X[:, 1] * X[:, 3]))


def _impedance(X: FloatArray) -> FloatArray:
    return np.hypot(X[:, 0], _reactance(X))


def _phase(X: FloatArray) -> FloatArray:
    return np.arctan2(_reactance(X), X[:, 0])


def friedman2(n_features: int = 10) -> Problem:
    """Friedman's second and third problem: reactance, impedance and phase of an electric circuit.

    x0 is the resistance (0 to 100 ohms), x1 the angular frequency (40 pi to 560 pi per second), x2 the inductance
    (0 to 1 henry) and x3 the capacitance (1 to 11 microfarads). The reactance is x1 x2 - 10^6 / (x1 x3). Versions
    without the factor 10^6 make the capacitance all but irrelevant.

    Parameters
    ----------
    n_features : int
        At least 4.

    Returns
    -------
    Problem
    """
    ranges = ((0.0, 100.0), (40 * np.pi, 560 * np.pi), (0.0, 1.0), (1.0, 11.0))
    outputs = (
        ("reactance", _reactance, (1, 2, 3)),
        ("impedance", _impedance, (0, 1, 2, 3)),
        ("phase", _phase, (0, 1, 2, 3)),
    )
    return _numbers("friedman2", n_features, outputs, ranges)


# --- mechanics -------------------------------------------------------------------------------------------


_momentum = product(0, 1)


def _kinetic(X: FloatArray) -> FloatArray:
    return _momentum(X) * X[:, 1] / 2


def _potential(X: FloatArray) -> FloatArray:
    return np.asarray(GRAVITY * X[:, 0] * X[:, 2])


def _energy(X: FloatArray) -> FloatArray:
    return _kinetic(X) + _potential(X)


def _power(X: FloatArray) -> FloatArray:
    return np.asarray(_energy(X) / X[:, 3])


def mechanics(n_features: int = 10) -> Problem:
    """A moving body: momentum, kinetic and potential energy, their sum, and the power to bring it there.

    x0 is its mass (1 to 5 kg), x1 its speed (0 to 10 m/s), x2 its height (0 to 5 m), x3 the time (1 to 4 s). Kinetic
    energy is half of momentum times speed; total energy and power depend on mass, speed and height through other
    outputs only.

    Parameters
    ----------
    n_features : int
        At least 4.

    Returns
    -------
    Problem
    """
    outputs = (
        ("momentum", _momentum, (0, 1)),
        ("kinetic", _kinetic, (0, 1)),
        ("potential", _potential, (0, 2)),
        ("energy", _energy, (0, 1, 2)),
        ("power", _power, (0, 1, 2, 3)),
    )
    return _numbers("mechanics", n_features, outputs, ((1.0, 5.0), (0.0, 10.0), (0.0, 5.0), (1.0, 4.0)))


REGRESSION_PROBLEMS: Mapping[str, Callable[[int], Problem]] = {
    "friedman1": friedman1,
    "friedman2": friedman2,
    "mechanics": mechanics,
}
"""Every problem of this module by its name: a function of the number of features."""


N_OUTPUTS = 4


@dataclass(frozen=True, eq=False)
class LogisticProblem(Problem):
    """A model whose outputs are logistic regressions, with the true contribution of every feature."""

    coefficients: FloatArray = field(kw_only=True, repr=False)
    """(outputs, features), before any shuffling."""
    intercepts: FloatArray = field(kw_only=True, repr=False)
    """(outputs,)"""
    means: FloatArray = field(kw_only=True, repr=False)
    """The mean of each feature, before any shuffling."""

    def contributions(
        self, X: npt.ArrayLike, target: int, scale: Literal["logit", "probability"] = "logit"
    ) -> FloatArray:
        """Compare what each feature adds to the target in each row with what its mean would add.

        Parameters
        ----------
        X : array, (rows, features)
            In the order of this problem's features.
        target : int
            Which output.
        scale : "logit" or "probability"
            The change w (x - mean) of the logit, or how much the probability would drop if this feature alone were at
            its mean. Both have the same sign.

        Returns
        -------
        array (rows, features)

        Raises
        ------
        ValueError
            If there is no such scale.
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

    Returns
    -------
    LogisticProblem

    Raises
    ------
    ValueError
        If an argument is wrong.
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
