"""Problems whose outputs are equations in features and other outputs: how much of an effect goes which way is known.

An output is *held* by replacing its equation with given values. What a feature still does to the target while all
other outputs are held, it does directly; what it no longer does while one output is held, it did through that one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sointer.zoo import synthetic
from sointer.zoo.problem import FloatArray, Problem

Column: TypeAlias = npt.NDArray[Any]
Equation: TypeAlias = Callable[[FloatArray, Sequence[Column]], Column]
"""From the features (rows, features) and the outputs before it, to one output (rows,)."""


class TruePaths(NamedTuple):
    """What each selected feature of each row does to the target, by the equations."""

    total: FloatArray  # (rows, selected)
    direct: FloatArray  # (rows, selected)
    through: FloatArray  # (rows, selected, outputs before the target)


@dataclass(frozen=True)
class Structural:
    """A problem together with the equations that its black box solves, the last one for the target."""

    problem: Problem
    equations: tuple[Equation, ...]

    @property
    def target(self) -> int:
        return len(self.equations) - 1

    def shuffled(self, random_state: int) -> Structural:
        """The same with its features in another order."""
        return replace(self, problem=synthetic.shuffled(self.problem, random_state))

    def solve(self, X: npt.ArrayLike, held: Mapping[int, Column] | None = None) -> npt.NDArray[Any]:
        """All outputs, some of them held at given values: (rows, outputs)."""
        inputs = np.asarray(X, dtype=np.float64)
        if self.problem.order is not None:
            inputs = inputs[:, np.argsort(self.problem.order)]
        return _solve(inputs, self.equations, held or {})

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

        Labels: the change in how often the target is what it is for the whole row. Numbers: the change of its
        mean, upwards if its value for the whole row is at `center` or above, else downwards. `explanation.paths()`
        takes the median over the training answers, `explainer.outputs_.center`, for that, and numbers as quantiles:
        `encode` is then `explainer.outputs_.quantiles[target].encode`.
        """
        whole = self.solve(X)
        clamps: list[list[int]] = [[], list(range(self.target)), *([i] for i in range(self.target))]
        keep = np.zeros(X.shape, dtype=bool)
        np.put_along_axis(keep, selected, True, axis=1)
        support = np.zeros((len(X), 1 + selected.shape[1], len(clamps)))
        for place in range(1 + selected.shape[1]):
            kept = keep.copy()
            if place:
                kept[np.arange(len(X)), selected[:, place - 1]] = False
            for reference in references:
                reduced = np.where(kept, X, reference)
                for number, clamp in enumerate(clamps):
                    answer = self.solve(reduced, {i: whole[:, i] for i in clamp})[:, self.target]
                    support[:, place, number] += self._support(answer, whole[:, self.target], center, encode)
        effect = (support[:, :1] - support[:, 1:]) / len(references)
        return TruePaths(effect[:, :, 0], effect[:, :, 1], effect[:, :, :1] - effect[:, :, 2:])

    def _support(
        self, answer: Column, value: Column, center: float, encode: Callable[[Column], Column] | None
    ) -> FloatArray:
        if self.problem.output_kind != "continuous":
            return np.asarray(answer == value, dtype=np.float64)
        number = answer if encode is None else encode(answer)
        return np.where(value < center, -number, number)


def _solve(X: FloatArray, equations: Sequence[Equation], held: Mapping[int, Column]) -> npt.NDArray[Any]:
    outputs: list[Column] = []
    for number, equation in enumerate(equations):
        outputs.append(held[number] if number in held else equation(X, outputs))
    return np.column_stack(outputs)


# --- equations -------------------------------------------------------------------------------------------


def _positive(score: Callable[[FloatArray], FloatArray]) -> Equation:
    return lambda X, Y: (score(X) > 0).astype(np.int64)


def _feature(j: int) -> Equation:
    return _positive(lambda X: X[:, j])


def _xor(i: int, j: int) -> Equation:
    return lambda X, Y: np.asarray(Y[i] ^ Y[j])


def _by_class(score: Callable[[FloatArray], FloatArray], cuts: Sequence[float], names: Sequence[str]) -> Equation:
    return lambda X, Y: np.asarray(np.array(names)[np.digitize(score(X), cuts)])


def _class_sum(X: FloatArray, Y: Sequence[Column]) -> Column:
    code = [np.argmax(Y[i][:, None] == np.array(names), axis=1) for i, names in enumerate((_BY_SUM, _BY_PRODUCT))]
    return np.asarray(np.array(["a", "b", "c"])[(code[0] + code[1]) % 3])


_BY_SUM, _BY_PRODUCT, _QUARTERS = ("low", "mid", "high"), ("negative", "small", "positive"), ("q1", "q2", "q3", "q4")
_TERTILE_OF_SUM, _TERTILE_OF_PRODUCT, _QUARTILE = 0.6091403883479712, 0.18682434416073945, 0.6744897501960817
_sum = _positive(lambda X: X[:, 0] + X[:, 1])
_product = _positive(lambda X: X[:, 2] * X[:, 3])
_unrelated = (_feature(4), _positive(lambda X: X[:, 5] + X[:, 6]))


def _chain(length: int) -> tuple[Equation, ...]:
    links = [(_feature(1 + j), _xor(2 * j - 2, 2 * j - 1)) for j in range(1, length + 1)]
    return (_sum, *(equation for link in links for equation in link))


_KNOWN: Mapping[str, tuple[Equation, ...]] = {
    "mediated_xor": (_sum, _product, *_unrelated, _xor(0, 1)),
    "mediated_and": (_sum, _product, *_unrelated, lambda X, Y: Y[0] & Y[1]),
    "mediated_majority": (
        _sum,
        _positive(lambda X: X[:, 2] - X[:, 3]),
        _positive(lambda X: X[:, 4] + X[:, 5]),
        _feature(6),
        _positive(lambda X: X[:, 7] + X[:, 8]),
        lambda X, Y: (Y[0] + Y[1] + Y[2] >= 2).astype(np.int64),
    ),
    "mediated_chain_2": _chain(2),
    "mediated_chain_3": _chain(3),
    "mediated_categorical": (
        _by_class(lambda X: X[:, 0] + X[:, 1], [-_TERTILE_OF_SUM, _TERTILE_OF_SUM], _BY_SUM),
        _by_class(lambda X: X[:, 2] * X[:, 3], [-_TERTILE_OF_PRODUCT, _TERTILE_OF_PRODUCT], _BY_PRODUCT),
        _by_class(lambda X: X[:, 4], [-_QUARTILE, 0.0, _QUARTILE], _QUARTERS),
        _class_sum,
    ),
    "mediated_continuous": (
        lambda X, Y: X[:, 0] + X[:, 1],
        lambda X, Y: X[:, 2] * X[:, 3],
        lambda X, Y: X[:, 4],
        lambda X, Y: X[:, 5] + X[:, 6],
        lambda X, Y: np.tanh(Y[0]) + Y[0] * Y[1] / 2,
    ),
}
"""Problems of this package whose target is reached through other outputs only."""


def _new(name: str, equations: tuple[Equation, ...], n_relevant: int, n_features: int, kind: str) -> Structural:
    """A problem made from its equations: relevant features first, the target last."""
    target = len(equations) - 1
    problem = Problem(
        name=name,
        n_features=n_features,
        n_outputs=target + 1,
        targets=(target,),
        relevant={target: tuple(range(n_relevant))},
        output_names=(*(f"y{i}" for i in range(target)), "target"),
        output_kind=kind,
        black_box=partial(_solve, equations=equations, held={}),
    )
    return Structural(problem, equations)


def _known(name: str, n_features: int) -> Structural:
    return Structural(synthetic.ALL_PROBLEMS[name](n_features), _KNOWN[name])


def direct_alone(n_features: int = 20) -> Structural:
    """The target [x0 + x1 > 0] beside outputs of other features: every effect is direct."""
    return _new("direct_alone", (_product, _feature(4), _sum), 2, n_features, "binary")


def direct_shared(n_features: int = 20) -> Structural:
    """Features shared, still all direct: y0 = [x0 + x1 > 0], y1 = [x0 * x2 > 0], the target [x0 - x1 > 0]."""
    equations = (
        _sum,
        _positive(lambda X: X[:, 0] * X[:, 2]),
        _positive(lambda X: X[:, 0] - X[:, 1]),
    )
    return _new("direct_shared", equations, 2, n_features, "binary")


def mixed_xor(n_features: int = 20) -> Structural:
    """y0 = [x0 + x1 > 0], y1 = [x3 > 0] unrelated, the target y0 xor [x2 > 0], which x2 reaches directly."""
    target: Equation = lambda X, Y: Y[0] ^ (X[:, 2] > 0)  # noqa: E731
    return _new("mixed_xor", (_sum, _feature(3), target), 3, n_features, "binary")


def mixed_sum(n_features: int = 20) -> Structural:
    """y0 = [x2 * x3 > 0], y1 = [x4 > 0] unrelated, the target [x0 + x1 + 1.5 (2 y0 - 1) > 0]."""
    target: Equation = lambda X, Y: (X[:, 0] + X[:, 1] + 1.5 * (2 * Y[0] - 1) > 0).astype(np.int64)  # noqa: E731
    return _new("mixed_sum", (_product, _feature(4), target), 4, n_features, "binary")


def mixed_both_ways(n_features: int = 20) -> Structural:
    """x0 acts both ways: y0 = [x0 + x1 > 0], y1 = [x3 > 0] unrelated, the target [x0 + x2 + 2 y0 - 1 > 0]."""
    target: Equation = lambda X, Y: (X[:, 0] + X[:, 2] + 2 * Y[0] - 1 > 0).astype(np.int64)  # noqa: E731
    return _new("mixed_both_ways", (_sum, _feature(3), target), 3, n_features, "binary")


def mixed_continuous(n_features: int = 20) -> Structural:
    """Numbers: y0 = x0 * x1, y1 = x4 unrelated, the target y0 + x2 + x3."""
    equations: tuple[Equation, ...] = (
        lambda X, Y: X[:, 0] * X[:, 1],
        lambda X, Y: X[:, 4],
        lambda X, Y: Y[0] + X[:, 2] + X[:, 3],
    )
    return _new("mixed_continuous", equations, 4, n_features, "continuous")


def copied_outputs(n_features: int = 20) -> Structural:
    """Not to be told apart from outside: y1 copies y0 = [x0 + x1 > 0], y2 = [x3 > 0], the target y0 xor [x2 > 0]."""
    target: Equation = lambda X, Y: Y[0] ^ (X[:, 2] > 0)  # noqa: E731
    return _new("copied_outputs", (_sum, lambda X, Y: Y[0], _feature(3), target), 3, n_features, "binary")


STRUCTURAL_PROBLEMS: Mapping[str, Callable[[int], Structural]] = {
    **{name: partial(_known, name) for name in _KNOWN},
    "direct_alone": direct_alone,
    "direct_shared": direct_shared,
    "mixed_xor": mixed_xor,
    "mixed_sum": mixed_sum,
    "mixed_both_ways": mixed_both_ways,
    "mixed_continuous": mixed_continuous,
    "copied_outputs": copied_outputs,
}
"""Every problem with known equations by its name: a function of the number of features."""
