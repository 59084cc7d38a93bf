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
    >>> from sointer.zoo import mixed_xor
    >>> structural = mixed_xor()
    >>> X, references = structural.problem.sample(5, 0), structural.problem.sample(50, 1)
    >>> selected = np.tile([0, 1, 2], (5, 1))
    >>> structural.true_paths(X, selected, references).through.shape  # rows, selected features, other outputs
    (5, 3, 2)
    """

    problem: Problem
    equations: Equations

    @property
    def target(self) -> int:
        """The last output."""
        return self.problem.n_outputs - 1

    def shuffled(self, random_state: int) -> Structural:
        """The same with its features in another order."""
        return replace(self, problem=shuffled(self.problem, random_state))

    def solve(self, X: npt.ArrayLike, held: Mapping[int, Column] | None = None) -> npt.NDArray[Any]:
        """All outputs, those in `held` fixed at given values: (rows, outputs)."""
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
        X, references : array (rows, features)
        selected : array (rows, selected)
            Indices of the selected features of each row.
        center : float
            `explanation.paths()` takes the median over the training outputs, `explainer.outputs_.center`.
        encode : callable, optional
            Applied to numbers; `explanation.paths()` takes `explainer.outputs_.quantiles[target].encode`.
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

_KNOWN = ("xor", "and", "majority", "chain_2", "chain_3", "categorical", "continuous")
"""Problems of `ALL_PROBLEMS` whose target is reached through other outputs only."""


def _known(name: str, n_features: int) -> Structural:
    return _structural(ALL_PROBLEMS[name](n_features))


def _structural(problem: Problem) -> Structural:
    assert isinstance(problem.black_box, Equations)
    return Structural(problem, problem.black_box)


def _new(name: str, n_features: int, n_relevant: int, *equations: Equation, kind: str = "binary") -> Structural:
    """A problem made from its equations: relevant features first, the target last."""
    names = (*(f"y{i}" for i in range(len(equations) - 1)), "target")
    return _structural(equations_problem(name, n_features, n_relevant, names, equations, kind))


def _positive(*features: int) -> Equation:
    return sign(total(*features))


def direct_alone(n_features: int = 20) -> Structural:
    """The target [x0 + x1 > 0] beside outputs of other features: every effect is direct.

    Parameters
    ----------
    n_features : int
        At least those that the equations name.
    """
    return _new("direct_alone", n_features, 2, sign(product(2, 3)), _positive(4), _positive(0, 1))


def direct_shared(n_features: int = 20) -> Structural:
    """Features shared, still all direct: y0 = [x0 + x1 > 0], y1 = [x0 * x2 > 0], the target [x0 - x1 > 0].

    Parameters
    ----------
    n_features : int
        At least those that the equations name.
    """
    return _new("direct_shared", n_features, 2, _positive(0, 1), sign(product(0, 2)), sign(difference(0, 1)))


def mixed_xor(n_features: int = 20) -> Structural:
    """y0 = [x0 + x1 > 0], y1 = [x3 > 0] unrelated, the target y0 xor [x2 > 0], which x2 reaches directly.

    Parameters
    ----------
    n_features : int
        At least those that the equations name.
    """
    return _new("mixed_xor", n_features, 3, _positive(0, 1), _positive(3), xor_feature(0, 2))


def mixed_sum(n_features: int = 20) -> Structural:
    """y0 = [x2 * x3 > 0], y1 = [x4 > 0] unrelated, the target [x0 + x1 + 1.5 (2 y0 - 1) > 0].

    Parameters
    ----------
    n_features : int
        At least those that the equations name.
    """
    target: Equation = lambda X, Y: (X[:, 0] + X[:, 1] + 1.5 * (2 * Y[0] - 1) > 0).astype(np.int64)  # noqa: E731
    return _new("mixed_sum", n_features, 4, sign(product(2, 3)), _positive(4), target)


def mixed_both_ways(n_features: int = 20) -> Structural:
    """x0 acts both ways: y0 = [x0 + x1 > 0], y1 = [x3 > 0] unrelated, the target [x0 + x2 + 2 y0 - 1 > 0].

    Parameters
    ----------
    n_features : int
        At least those that the equations name.
    """
    target: Equation = lambda X, Y: (X[:, 0] + X[:, 2] + 2 * Y[0] - 1 > 0).astype(np.int64)  # noqa: E731
    return _new("mixed_both_ways", n_features, 3, _positive(0, 1), _positive(3), target)


def mixed_continuous(n_features: int = 20) -> Structural:
    """Numbers: y0 = x0 * x1, y1 = x4 unrelated, the target y0 + x2 + x3.

    Parameters
    ----------
    n_features : int
        At least those that the equations name.
    """
    target: Equation = lambda X, Y: Y[0] + X[:, 2] + X[:, 3]  # noqa: E731
    return _new("mixed_continuous", n_features, 4, product(0, 1), total(4), target, kind="continuous")


def copied_outputs(n_features: int = 20) -> Structural:
    """Indistinguishable from outside: y1 copies y0 = [x0 + x1 > 0], y2 = [x3 > 0], the target y0 xor [x2 > 0].

    Parameters
    ----------
    n_features : int
        At least those that the equations name.
    """
    copied: Equation = lambda X, Y: Y[0]  # noqa: E731
    return _new("copied_outputs", n_features, 3, _positive(0, 1), copied, _positive(3), xor_feature(0, 2))


STRUCTURAL_PROBLEMS: Mapping[str, Callable[[int], Structural]] = {
    **{f"mediated_{name}": partial(_known, f"mediated_{name}") for name in _KNOWN},
    "direct_alone": direct_alone,
    "direct_shared": direct_shared,
    "mixed_xor": mixed_xor,
    "mixed_sum": mixed_sum,
    "mixed_both_ways": mixed_both_ways,
    "mixed_continuous": mixed_continuous,
    "copied_outputs": copied_outputs,
}
"""Every problem with known equations by its name: a function of the number of features."""
