"""Problems whose outputs are equations in features and other outputs: direct and mediated effects are known.

An output is *held* by replacing its equation with given values. What a feature still does to the target while all
other outputs are held, it does directly; what it no longer does while one output is held, it did through that one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sointer.errors import InputError
from sointer.zoo.problem import (
    Column,
    Equation,
    Equations,
    FloatArray,
    Problem,
    difference,
    equations_problem,
    product,
    shuffled,
    sign,
    total,
    xor_feature,
)
from sointer.zoo.synthetic import ALL_PROBLEMS


class TruePaths(NamedTuple):
    """What each selected feature of each row does to the target, by the equations."""

    total: FloatArray  # (rows, selected)
    direct: FloatArray  # (rows, selected)
    through: FloatArray  # (rows, selected, outputs before the target)


@dataclass(frozen=True)
class Structural:
    """A problem together with the equations that its model solves, the last one for the target.

    Examples
    --------
    >>> from sointer.zoo import structural
    >>> known = structural("mixed_xor")
    >>> X, references = known.problem.sample(5, 0), known.problem.sample(50, 1)
    >>> selected = np.tile([0, 1, 2], (5, 1))
    >>> known.true_paths(X, selected, references).through.shape  # rows, selected features, other outputs
    (5, 3, 2)
    """

    problem: Problem
    """Its model solves the equations."""
    equations: Equations
    """They take features in the order before any shuffling."""

    @property
    def target(self) -> int:
        """The last output."""
        return self.problem.n_outputs - 1

    def shuffled(self, random_state: int) -> Structural:
        """Put the features into another order.

        Parameters
        ----------
        random_state : int
            Seed of the order.

        Returns
        -------
        Structural
        """
        return replace(self, problem=shuffled(self.problem, random_state))

    def solve(self, X: npt.ArrayLike, held: Mapping[int, Column] | None = None) -> npt.NDArray[Any]:
        """Compute all outputs.

        Parameters
        ----------
        X : array (rows, features)
        held : dict of int to array, optional
            By index, outputs that are fixed at given values (rows,).

        Returns
        -------
        array (rows, outputs)
        """
        inputs = np.asarray(X, dtype=np.float64)
        if self.problem.order is not None:
            inputs = inputs[:, np.argsort(self.problem.order)]
        return self.equations(inputs, held)

    def true_paths(
        self,
        X: FloatArray,
        selected: npt.NDArray[np.int64],
        references: FloatArray,
        *,
        center: float = 0.0,
        encode: Callable[[Column], Column] | None = None,
    ) -> TruePaths:
        """Effects of the selected features, the others (and each of them in turn) taken from every reference row.

        For labels, an effect is the change in how often the target keeps its unmasked value. For numbers, it is the
        change of the mean, upwards if the unmasked value is at `center` or above, else downwards.

        Parameters
        ----------
        X : array (rows, features)
        selected : array (rows, selected)
            Indices of the selected features of each row.
        references : array (rows, features)
            Values of masked features.
        center : float
            `explanation.paths()` takes the median over the training outputs, `explainer.outputs_.center`.
        encode : callable, optional
            Applied to numbers; `explanation.paths()` takes `explainer.outputs_.quantiles[target].encode`.

        Returns
        -------
        TruePaths
        """
        unmasked = self.solve(X)
        clamps: list[list[int]] = [[], list(range(self.target)), *([i] for i in range(self.target))]
        keep = np.zeros(X.shape, dtype=bool)
        np.put_along_axis(keep, selected, True, axis=1)
        support = np.zeros((len(X), 1 + selected.shape[1], len(clamps)))
        for place in range(1 + selected.shape[1]):
            kept = keep.copy()
            if place:
                kept[np.arange(len(X)), selected[:, place - 1]] = False
            for reference in references:
                masked = np.where(kept, X, reference)
                for number, clamp in enumerate(clamps):
                    value = self.solve(masked, {i: unmasked[:, i] for i in clamp})[:, self.target]
                    support[:, place, number] += self._support(value, unmasked[:, self.target], center, encode)
        effect = (support[:, :1] - support[:, 1:]) / len(references)
        return TruePaths(effect[:, :, 0], effect[:, :, 1], effect[:, :, :1] - effect[:, :, 2:])

    def _support(
        self, value: Column, unmasked: Column, center: float, encode: Callable[[Column], Column] | None
    ) -> FloatArray:
        if self.problem.output_kind != "continuous":
            return np.asarray(value == unmasked, dtype=np.float64)
        number = value if encode is None else encode(value)
        return np.where(unmasked < center, -number, number)


# --- problems --------------------------------------------------------------------------------------------


def structural(name: str, n_features: int = 20) -> Structural:
    """A problem with known equations by its name.

    Those of `ALL_PROBLEMS` whose target is reached through other outputs only, such as "mediated_xor", and, with
    [.] for 1 where a condition holds and 0 elsewhere:

    - "direct_alone": the target [x0 + x1 > 0] beside outputs of other features; every effect is direct;
    - "direct_shared": features shared, still all direct: y0 = [x0 + x1 > 0], y1 = [x0 x2 > 0], target [x0 - x1 > 0];
    - "mixed_xor": y0 = [x0 + x1 > 0], y1 = [x3 > 0] unrelated, target y0 xor [x2 > 0], which x2 reaches directly;
    - "mixed_sum": y0 = [x2 x3 > 0], y1 = [x4 > 0] unrelated, target [x0 + x1 + 1.5 (2 y0 - 1) > 0];
    - "mixed_both_ways": y0 = [x0 + x1 > 0], y1 = [x3 > 0] unrelated, target [x0 + x2 + 2 y0 - 1 > 0];
    - "mixed_continuous": numbers y0 = x0 x1, y1 = x4 unrelated, target y0 + x2 + x3;
    - "copied_outputs": y0 and its copy y1 cannot be distinguished; y2 = [x3 > 0], target y0 xor [x2 > 0].

    Parameters
    ----------
    name : str
        A key of `STRUCTURAL_PROBLEMS`.
    n_features : int
        At least those that the equations name.

    Returns
    -------
    Structural

    Raises
    ------
    InputError
        If there is no such problem.
    """
    if name not in STRUCTURAL_PROBLEMS:
        raise InputError(f"name must be one of {', '.join(map(repr, STRUCTURAL_PROBLEMS))}, got {name!r}.")
    if name in _MEDIATED:
        problem = ALL_PROBLEMS[name](n_features)
    else:
        n_relevant, *equations = _EQUATIONS[name]
        names = (*(f"y{i}" for i in range(len(equations) - 1)), "target")
        kind = "continuous" if name == "mixed_continuous" else "binary"
        problem = equations_problem(name, n_features, n_relevant, names, equations, kind)
    assert isinstance(problem.black_box, Equations)
    return Structural(problem, problem.black_box)


def _positive(*features: int) -> Equation:
    return sign(total(*features))


_RULES = ("xor", "and", "majority", "chain_2", "chain_3", "categorical", "continuous")
_MEDIATED = tuple(f"mediated_{rule}" for rule in _RULES)
_EQUATIONS: Mapping[str, tuple[Any, ...]] = {
    "direct_alone": (2, sign(product(2, 3)), _positive(4), _positive(0, 1)),
    "direct_shared": (2, _positive(0, 1), sign(product(0, 2)), sign(difference(0, 1))),
    "mixed_xor": (3, _positive(0, 1), _positive(3), xor_feature(0, 2)),
    "mixed_sum": (
        4,
        sign(product(2, 3)),
        _positive(4),
        lambda X, Y: (X[:, 0] + X[:, 1] + 1.5 * (2 * Y[0] - 1) > 0).astype(np.int64),
    ),
    "mixed_both_ways": (
        3,
        _positive(0, 1),
        _positive(3),
        lambda X, Y: (X[:, 0] + X[:, 2] + 2 * Y[0] - 1 > 0).astype(np.int64),
    ),
    "mixed_continuous": (4, product(0, 1), total(4), lambda X, Y: Y[0] + X[:, 2] + X[:, 3]),
    "copied_outputs": (3, _positive(0, 1), lambda X, Y: Y[0], _positive(3), xor_feature(0, 2)),
}
"""How many features are relevant, and the equations of all outputs, the target's last."""

STRUCTURAL_PROBLEMS: Mapping[str, Callable[[int], Structural]] = {
    name: partial(structural, name) for name in (*_MEDIATED, *_EQUATIONS)
}
"""Every problem with known equations by its name: a function of the number of features."""
