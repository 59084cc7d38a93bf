"""Synthetic problems with planted truth: the paper's two energies, and outputs that depend on other outputs.

In a "mediated" problem the features reach the target only through other outputs. Those outputs are the
intermediate labels that an explainer aware of the structure can learn from.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sointer.zoo.problem import (
    BoolArray,
    Column,
    Equation,
    FloatArray,
    Problem,
    RowRelevance,
    classes,
    correlated,
    difference,
    equations_problem,
    product,
    require_features,
    sign,
    total,
    with_decoys,
    xor,
    xor_feature,
)

IntArray: TypeAlias = npt.NDArray[np.int64]
EnergyFunction: TypeAlias = Callable[[npt.NDArray[Any], npt.NDArray[Any]], FloatArray]

# Cuts that split each score into equally likely classes when the inputs are standard normal.
_SUM_TERTILE = 0.6091403883479712
_PRODUCT_TERTILE = 0.18682434416073945
_NORMAL_QUARTILE = 0.6744897501960817
_BY_SUM, _BY_PRODUCT = ("low", "mid", "high"), ("negative", "small", "positive")


# --- the paper's energies -------------------------------------------------------------------------------


def energy_e1(X: npt.NDArray[Any], Y: npt.NDArray[Any]) -> FloatArray:
    """The paper's energy E1.

    Parameters
    ----------
    X : array (..., features)
        At least 4 features.
    Y : array (..., 2)
        Binary outputs.

    Returns
    -------
    array (...,)
    """
    x1, x2, x3, x4 = (X[..., i] for i in range(4))
    y1, y2 = (Y[..., j] for j in range(2))
    energy: FloatArray = (x1 * y1 + x4) * (1 - y2) + (x2 * (1 - y1) + x3) * y2
    return energy


def energy_e2(X: npt.NDArray[Any], Y: npt.NDArray[Any]) -> FloatArray:
    """The paper's energy E2.

    Parameters
    ----------
    X : array (..., features)
        At least 4 features.
    Y : array (..., 4)
        Binary outputs.

    Returns
    -------
    array (...,)
    """
    x1, x2, x3, x4 = (X[..., i] for i in range(4))
    y1, y2, y3, y4 = (Y[..., j] for j in range(4))
    fourth_alone = (np.sin(x1) * y1 * y3 + np.abs(x4)) * (1 - y2) * y4
    second_alone = (np.exp(x2 / 10 - 1) * (1 - y1) * (1 - y3) + x3) * y2 * (1 - y4)
    energy: FloatArray = fourth_alone + second_alone
    return energy


def paper_e1(n_features: int = 20) -> Problem:
    """The exact minimiser of the paper's E1; both outputs depend on the first four features.

    Ties have probability zero on drawn inputs. They do occur where features are set to zero (x1 = 0 frees y1
    when y2 = 0) and go to the first minimiser in lexicographic order of y.

    Parameters
    ----------
    n_features : int
        At least 4.

    Returns
    -------
    Problem
    """
    return _energy_minimiser("e1", energy_e1, n_features, n_outputs=2, relevant=(0, 1, 2, 3))


def paper_e2(n_features: int = 20) -> Problem:
    """The exact minimiser of the paper's E2, the first one in lexicographic order of y where several tie.

    Every y with y2 = y4 has energy 0, whatever y1 and y3; every y with y2 = 1, y4 = 0 and y1, y3 not both 0
    has energy x3. Only y = 1011, of energy `sin(x1) + |x4|`, can be minimal alone. The rule leaves three
    outputs: 0000 where no energy is negative, 0110 where x3 is least and 1011 where `sin(x1) + |x4|` is.
    The term in x2 is always positive, so it only forbids y1 = y3 = 0 and x2 never changes the minimiser,
    though the paper counts it as relevant.

    Parameters
    ----------
    n_features : int
        At least 4.

    Returns
    -------
    Problem
    """
    return _energy_minimiser("e2", energy_e2, n_features, n_outputs=4, relevant=(0, 2, 3), paper_relevant=(0, 1, 2, 3))


def _energy_minimiser(
    name: str,
    energy: EnergyFunction,
    n_features: int,
    n_outputs: int,
    relevant: tuple[int, ...],
    paper_relevant: tuple[int, ...] | None = None,
) -> Problem:
    require_features(name, n_features, at_least=4)
    targets = tuple(range(n_outputs))
    return Problem(
        name=name,
        n_features=n_features,
        n_outputs=n_outputs,
        targets=targets,
        relevant=dict.fromkeys(targets, relevant),
        output_names=tuple(f"y{j + 1}" for j in targets),
        output_kind="binary",
        paper_relevant=None if paper_relevant is None else dict.fromkeys(targets, paper_relevant),
        black_box=partial(_first_minimiser, energy=energy, n_outputs=n_outputs),
    )


def _first_minimiser(X: FloatArray, energy: EnergyFunction, n_outputs: int) -> IntArray:
    """For each row, the first binary output vector, in lexicographic order, of least energy."""
    candidates = np.array(list(itertools.product((0, 1), repeat=n_outputs)), dtype=np.int64)
    energies = energy(X[:, np.newaxis, :], candidates[np.newaxis, :, :])
    minimisers: IntArray = candidates[np.argmin(energies, axis=1)]
    return minimisers


# --- targets that are functions of other outputs ---------------------------------------------------------


def mediated_xor(n_features: int = 20, n_unrelated: int = 2) -> Problem:
    """y0 = [x0 + x1 > 0], y1 = [x2 * x3 > 0], unrelated outputs, and the target y0 xor y1.

    Parameters
    ----------
    n_features : int
        At least 5; those that are not named are noise.
    n_unrelated : int
        Outputs of other features.

    Returns
    -------
    Problem
    """
    return _mediated("mediated_xor", (total(0, 1), product(2, 3)), xor(0, 1), 4, n_features, n_unrelated)


def mediated_and(n_features: int = 20, n_unrelated: int = 2) -> Problem:
    """y0 = [x0 + x1 > 0], y1 = [x2 * x3 > 0], unrelated outputs, and the target y0 and y1.

    Parameters
    ----------
    n_features, n_unrelated : as in `mediated_xor`

    Returns
    -------
    Problem
    """
    return _mediated("mediated_and", (total(0, 1), product(2, 3)), _and, 4, n_features, n_unrelated)


def mediated_majority(n_features: int = 20, n_unrelated: int = 2) -> Problem:
    """y0 = [x0 + x1 > 0], y1 = [x2 - x3 > 0], y2 = [x4 + x5 > 0], unrelated outputs, and their majority.

    Parameters
    ----------
    n_features : int
        At least 7; those that are not named are noise.
    n_unrelated : int
        Outputs of other features.

    Returns
    -------
    Problem
    """
    scores = (total(0, 1), difference(2, 3), total(4, 5))
    return _mediated("mediated_majority", scores, _majority, 6, n_features, n_unrelated)


def mediated_continuous(n_features: int = 20, n_unrelated: int = 2) -> Problem:
    """Regression: y0 = x0 + x1, y1 = x2 * x3, unrelated outputs, and the target tanh(y0) + y0 * y1 / 2.

    Parameters
    ----------
    n_features, n_unrelated : as in `mediated_xor`

    Returns
    -------
    Problem
    """
    scores = (total(0, 1), product(2, 3))
    return _mediated("mediated_continuous", scores, _tanh, 4, n_features, n_unrelated, "continuous")


def mediated_categorical(n_features: int = 20) -> Problem:
    """Class labels: y0 by tertile of x0 + x1, y1 by tertile of x2 * x3, one unrelated by quartile of x4.

    With the classes of y0 and y1 numbered from 0, the target is the class (y0 + y1) mod 3 of "a", "b", "c".

    Parameters
    ----------
    n_features : int
        At least 5; those that are not named are noise.

    Returns
    -------
    Problem
    """
    equations = (
        classes(total(0, 1), (-_SUM_TERTILE, _SUM_TERTILE), _BY_SUM),
        classes(product(2, 3), (-_PRODUCT_TERTILE, _PRODUCT_TERTILE), _BY_PRODUCT),
        classes(total(4), (-_NORMAL_QUARTILE, 0.0, _NORMAL_QUARTILE), ("q1", "q2", "q3", "q4")),
        _class_sum,
    )
    names = ("y0", "y1", "unrelated_0", "target")
    return equations_problem("mediated_categorical", n_features, 4, names, equations, "categorical", min_features=5)


def instancewise_switch(n_features: int = 20, n_unrelated: int = 2) -> Problem:
    """A target whose relevant features differ from row to row.

    y0 = [x0 > 0], y1 = [x1 * x2 > 0], y2 = [x3 + x4 > 0], unrelated outputs, and the target: y1 where y0 = 1
    (relevant there: x0, x1, x2) and y2 elsewhere (relevant there: x0, x3, x4).

    Parameters
    ----------
    n_features : int
        At least 6; those that are not named are noise.
    n_unrelated : int
        Outputs of other features.

    Returns
    -------
    Problem
    """
    scores = (total(0), product(1, 2), total(3, 4))
    return _mediated("switch", scores, _switch, 5, n_features, n_unrelated, row_relevance=_switch_relevance)


def partly_mediated(n_features: int = 20) -> Problem:
    """The smallest case, two outputs: y0 = [x0 * x1 > 0], and the target y0 xor [x2 > 0], which x2 reaches directly.

    Parameters
    ----------
    n_features : int
        At least 3; those that are not named are noise.

    Returns
    -------
    Problem
    """
    equations = (sign(product(0, 1)), xor_feature(0, 2))
    return equations_problem("partly_mediated", n_features, 3, ("y0", "target"), equations)


def mediated_chain(length: int, n_features: int = 20) -> Problem:
    """A target at the end of a chain of outputs.

    c0 = [x0 + x1 > 0]; link j has the side output s_j = [x_(1+j) > 0] and c_j = c_(j-1) xor s_j. The outputs
    are c0, s1, c1, s2, c2 and so on; the target is the last.

    Parameters
    ----------
    length : int
        Number of links, 1 to 4.
    n_features : int
        At least 2 + length.

    Returns
    -------
    Problem

    Raises
    ------
    ValueError
        If there is no such length.
    """
    if length not in (1, 2, 3, 4):
        raise ValueError(f"length must be 1, 2, 3 or 4, got {length}")
    names, equations = ["c0"], [sign(total(0, 1))]
    for j in range(1, length + 1):
        names += [f"s{j}", f"c{j}"]
        equations += [sign(total(1 + j)), xor(2 * j - 2, 2 * j - 1)]
    return equations_problem(f"mediated_chain_{length}", n_features, 2 + length, names, equations)


def _mediated(
    name: str,
    scores: Sequence[Callable[..., FloatArray]],
    target: Equation,
    n_relevant: int,
    n_features: int,
    n_unrelated: int,
    output_kind: Literal["binary", "continuous"] = "binary",
    row_relevance: RowRelevance | None = None,
) -> Problem:
    """Mediators are the scores or their signs; the target, the last output, is a function of the mediators alone.

    Unrelated outputs are made of one, two, one, two ... features, taken in a cycle from those that are not relevant.
    """
    least = n_relevant + (n_unrelated > 0)
    require_features(name, n_features, least)
    free = cycle(range(n_relevant, n_features))
    unrelated = [total(*islice(free, 1 + j % 2)) for j in range(n_unrelated)]
    equations = [sign(score) if output_kind == "binary" else score for score in (*scores, *unrelated)]
    names = [*(f"y{j}" for j in range(len(scores))), *(f"unrelated_{j}" for j in range(n_unrelated)), "target"]
    return equations_problem(
        name, n_features, n_relevant, names, [*equations, target], output_kind, row_relevance=row_relevance
    )


def _and(X: FloatArray, Y: Sequence[Column]) -> Column:
    return np.asarray(Y[0] & Y[1])


def _majority(X: FloatArray, Y: Sequence[Column]) -> Column:
    return (Y[0] + Y[1] + Y[2] >= 2).astype(np.int64)


def _tanh(X: FloatArray, Y: Sequence[Column]) -> Column:
    return np.asarray(np.tanh(Y[0]) + Y[0] * Y[1] / 2)


def _class_sum(X: FloatArray, Y: Sequence[Column]) -> Column:
    codes = [np.argmax(Y[i][:, None] == np.array(names), axis=1) for i, names in enumerate((_BY_SUM, _BY_PRODUCT))]
    return np.asarray(np.array(["a", "b", "c"])[(codes[0] + codes[1]) % 3])


def _switch(X: FloatArray, Y: Sequence[Column]) -> Column:
    return np.where(Y[0] == 1, Y[1], Y[2])


def _switch_relevance(X: FloatArray, target: int) -> BoolArray:
    mask = np.zeros(X.shape, dtype=np.bool_)
    mask[:, 0] = True
    switched_on = X[:, :1] > 0
    mask[:, 1:3] = switched_on
    mask[:, 3:5] = ~switched_on
    return mask


# --- the table -------------------------------------------------------------------------------------------


def _changed(n_features: int = 20, *, make: Callable[[int], Problem], change: Callable[[Problem], Problem]) -> Problem:
    return change(make(n_features))


ALL_PROBLEMS: Mapping[str, Callable[[int], Problem]] = {
    "e1": paper_e1,
    "e2": paper_e2,
    "mediated_xor": mediated_xor,
    "partly_mediated": partly_mediated,
    "mediated_and": mediated_and,
    "mediated_majority": mediated_majority,
    **{f"mediated_chain_{length}": partial(mediated_chain, length) for length in (1, 2, 3, 4)},
    "mediated_categorical": mediated_categorical,
    "mediated_continuous": mediated_continuous,
    "e1_correlated": partial(_changed, make=paper_e1, change=correlated),
    "mediated_xor_correlated": partial(_changed, make=mediated_xor, change=correlated),
    "e1_decoys": partial(_changed, make=paper_e1, change=with_decoys),
    "mediated_xor_decoys": partial(_changed, make=mediated_xor, change=with_decoys),
    "switch": instancewise_switch,
}
"""Every problem by its name: a function of the number of features."""
