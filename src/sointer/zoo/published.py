"""Instance-wise problems of other publications: L2X's four, LSPIN's two groups and OpenXAI's clusters.

Features are counted from 0. Where a publication says which group a row was drawn from, a model can only read it off
the features; each docstring names the feature that decides it here, so that the relevant set of every row is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from sointer.zoo.instancewise import Branch, OutputKind, RegionalOutput, additive, regional_problem, squares
from sointer.zoo.problem import FloatArray, Problem, product, standard_normal

L2XName = Literal["xor", "orange_skin", "additive", "switch"]
_L2X_SWITCH = 9
_LSPIN_SWITCH = 2
N_CLUSTERS = 4
CLUSTER_DISTANCE = 5.0
_N_WEIGHTS = 20


# --- L2X -------------------------------------------------------------------------------------------------


def _negative(X: FloatArray, feature: int) -> npt.NDArray[np.int64]:
    """Region 1 where the feature is negative, else region 0."""
    return (X[:, feature] < 0).astype(np.int64)


def _two_sided(n_rows: int, n_features: int, rng: np.random.Generator) -> FloatArray:
    inputs = rng.standard_normal((n_rows, n_features))
    inputs[:, _L2X_SWITCH] += np.where(rng.random(n_rows) < 0.5, 3.0, -3.0)
    return inputs


def l2x(name: L2XName, n_features: int = 10, output_kind: OutputKind = "probability") -> Problem:
    """One of the four problems of L2X (Chen et al. 2018), with P = 1 / (1 + e^U).

    Parameters
    ----------
    name : str
        "xor": U = x0 x1. "orange_skin": x0^2 + ... + x3^2 - 4. "additive": -100 sin(0.2 x0) + `|x1|` + x2 +
        e^(-x3) - 2.4. "switch": orange skin on x0 to x3 where x9 >= 0, else additive on x4 to x7, with x9 from
        N(3, 1) or N(-3, 1).
    n_features : int
        At least 10, as published.
    output_kind : "probability" or "binary"
        What the model returns.

    Returns
    -------
    Problem

    Raises
    ------
    ValueError
        If there is no such problem.
    """
    switch = (_L2X_SWITCH,)
    orange_skin = partial(squares, first=0)
    outputs = {
        "xor": RegionalOutput("y", (Branch(product(0, 1), (0, 1)),)),
        "orange_skin": RegionalOutput("y", (Branch(orange_skin, (0, 1, 2, 3)),)),
        "additive": RegionalOutput("y", (Branch(partial(additive, first=0, scale=100), (0, 1, 2, 3)),)),
        "switch": RegionalOutput(
            "y",
            (
                Branch(orange_skin, (0, 1, 2, 3, *switch)),
                Branch(partial(additive, first=4, scale=100), (4, 5, 6, 7, *switch)),
            ),
            partial(_negative, feature=_L2X_SWITCH),
            switch,
        ),
    }
    if name not in outputs:
        raise ValueError(f"name must be one of {', '.join(map(repr, outputs))}, got {name!r}")
    sampler = _two_sided if name == "switch" else standard_normal
    return regional_problem(f"l2x_{name}", n_features, [outputs[name]], output_kind, sampler=sampler)


# --- LSPIN -----------------------------------------------------------------------------------------------


def _first_group(X: FloatArray) -> FloatArray:
    return np.asarray(-2 * X[:, 0] + X[:, 1] - 0.5 * X[:, 2])


def _second_group(X: FloatArray) -> FloatArray:
    return np.asarray(-0.5 * X[:, 2] + X[:, 3] - 2 * X[:, 4])


def _two_groups(n_rows: int, n_features: int, rng: np.random.Generator) -> FloatArray:
    inputs = rng.standard_normal((n_rows, n_features))
    centres = np.where(rng.random(n_rows) < 0.5, 1.0, -1.0)
    inputs[:, :5] = centres[:, None] + 0.5 * inputs[:, :5]
    return inputs


def lspin(n_features: int = 10) -> Problem:
    """Regression on two groups of rows with different relevant features, after LSPIN (Yang et al. 2022).

    x0 to x4 are drawn around 1 or around -1. Where x2 >= 0 the number is -2 x0 + x1 - 0.5 x2, else -0.5 x2 + x3 - 2 x4:
    x2 is relevant in both groups and separates them. The other features are noise.

    Parameters
    ----------
    n_features : int
        At least 5.

    Returns
    -------
    Problem
    """
    branches = (Branch(_first_group, (0, 1, 2)), Branch(_second_group, (2, 3, 4)))
    output = RegionalOutput("y", branches, partial(_negative, feature=_LSPIN_SWITCH), (_LSPIN_SWITCH,))
    return regional_problem("lspin", n_features, [output], "continuous", sampler=_two_groups)


# --- OpenXAI ---------------------------------------------------------------------------------------------


def _linear(X: FloatArray, weights: FloatArray) -> FloatArray:
    return np.asarray(-(X[:, : len(weights)] @ weights))


def _nearest_centre(X: FloatArray) -> npt.NDArray[np.int64]:
    """The number of the cluster whose centre is nearest along feature 20."""
    return np.clip(np.rint(X[:, _N_WEIGHTS] / CLUSTER_DISTANCE), 0, N_CLUSTERS - 1).astype(np.int64)


def _clusters(n_rows: int, n_features: int, rng: np.random.Generator) -> FloatArray:
    inputs = rng.standard_normal((n_rows, n_features))
    inputs[:, _N_WEIGHTS] += CLUSTER_DISTANCE * rng.integers(N_CLUSTERS, size=n_rows)
    return inputs


def clusters(n_features: int = 21, output_kind: OutputKind = "probability", *, random_state: int = 0) -> Problem:
    """Four clusters with their own logistic regressions, after OpenXAI's synthetic data (Agarwal et al. 2022).

    For each cluster, weights of x0 to x19 are 0.1 to 1 in size and of either sign (published: uniform between -1 and
    1, which makes a few too small to matter), and each is kept with probability one half.
    Centres are 5 apart along x20, which separates the clusters; relevant are x20 and the features whose weights
    were kept. Published versions spread centres over all features, so that every feature decides a little.

    Parameters
    ----------
    n_features : int
        At least 21.
    output_kind : "probability" or "binary"
        What the model returns.
    random_state : int
        Draws weights and masks.

    Returns
    -------
    Problem
    """
    rng = np.random.default_rng(random_state)
    branches = []
    for _ in range(N_CLUSTERS):
        kept = rng.random(_N_WEIGHTS) < 0.5
        weights = np.where(kept, rng.uniform(0.1, 1, _N_WEIGHTS) * rng.choice([-1, 1], _N_WEIGHTS), 0.0)
        branches.append(Branch(partial(_linear, weights=weights), (*np.flatnonzero(kept).tolist(), _N_WEIGHTS)))
    output = RegionalOutput("y", tuple(branches), _nearest_centre, (_N_WEIGHTS,))
    return regional_problem("clusters", n_features, [output], output_kind, sampler=_clusters)


PUBLISHED_PROBLEMS: Mapping[str, Callable[..., Problem]] = {
    "l2x_xor": partial(l2x, "xor"),
    "l2x_orange_skin": partial(l2x, "orange_skin"),
    "l2x_additive": partial(l2x, "additive"),
    "l2x_switch": partial(l2x, "switch"),
    "lspin": lspin,
    "clusters": clusters,
}
"""Every problem of this module by its name: a function of the number of features."""
