"""A problem whose truth is planted, how its inputs are drawn, how to make one from equations, and variations of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sointer.errors import require_extra

if TYPE_CHECKING:
    import pandas as pd

FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
RandomState: TypeAlias = int | np.random.Generator | None

BlackBoxFunction: TypeAlias = Callable[[FloatArray], npt.NDArray[Any]]
RowRelevance: TypeAlias = Callable[[FloatArray, int], BoolArray]
Column: TypeAlias = npt.NDArray[Any]
Equation: TypeAlias = Callable[[FloatArray, Sequence[Column]], Column]
"""From the features (rows, features) and the outputs before it, to one output (rows,)."""
Sampler: TypeAlias = Callable[[int, int, np.random.Generator], FloatArray]
"""From numbers of rows and features, and a generator, to inputs (rows, features)."""


def standard_normal(n_rows: int, n_features: int, rng: np.random.Generator) -> FloatArray:
    """Independent standard normal inputs, one row per sample."""
    return rng.standard_normal((n_rows, n_features))


def equicorrelated(n_rows: int, n_features: int, rng: np.random.Generator, rho: float) -> FloatArray:
    """Normal inputs of which every pair has the correlation rho."""
    own = rng.standard_normal((n_rows, n_features))
    shared = rng.standard_normal((n_rows, 1))
    return np.asarray(np.sqrt(rho) * shared + np.sqrt(1 - rho) * own)


def autoregressive(n_rows: int, n_features: int, rng: np.random.Generator, rho: float) -> FloatArray:
    """Normal inputs of which features i and j have the correlation `rho ** |i - j|`."""
    inputs = rng.standard_normal((n_rows, n_features))
    for i in range(1, n_features):
        inputs[:, i] = rho * inputs[:, i - 1] + np.sqrt(1 - rho**2) * inputs[:, i]
    return inputs


def with_copies(
    n_rows: int, n_features: int, rng: np.random.Generator, sampler: Sampler, originals: Mapping[int, int], rho: float
) -> FloatArray:
    """Inputs of another sampler, in which `originals` maps features to those that they copy with noise."""
    inputs: FloatArray = sampler(n_rows, n_features, rng).copy()
    noise = rng.standard_normal((n_rows, len(originals)))
    for column, (decoy, original) in enumerate(originals.items()):
        inputs[:, decoy] = rho * inputs[:, original] + np.sqrt(1 - rho**2) * noise[:, column]
    return inputs


@dataclass(frozen=True, eq=False)
class Problem:
    """A model with many outputs; those in `targets` have a known set of relevant features.

    Calling the problem calls its model, so it can be passed wherever a model is expected.
    """

    name: str
    """Of the problem."""
    n_features: int
    """Columns of the inputs."""
    n_outputs: int
    """Columns of the outputs."""
    targets: tuple[int, ...]
    """The outputs whose truth is planted and worth explaining."""
    relevant: Mapping[int, tuple[int, ...]]
    """For each target, the sorted indices of the features that can change it."""
    output_names: tuple[str, ...]
    """One per output."""
    output_kind: str
    """"binary" (0 and 1), "categorical" (class labels as strings), "probability" or "continuous"."""
    paper_relevant: Mapping[int, tuple[int, ...]] | None = None
    """The set that the paper claims, where it differs from the true one."""
    black_box: BlackBoxFunction = field(kw_only=True, repr=False)
    """The model, a function of arrays (rows, features)."""
    sampler: Sampler = field(default=standard_normal, kw_only=True, repr=False)
    """A function (n_rows, n_features, rng) that draws inputs."""
    row_relevance: RowRelevance | None = field(default=None, kw_only=True, repr=False)
    """Set only where the relevant features differ from row to row."""
    order: tuple[int, ...] | None = field(default=None, kw_only=True, repr=False)
    """Where the features were shuffled, the index that each column had before."""
    switches: Mapping[int, tuple[int, ...]] = field(default_factory=dict, kw_only=True, repr=False)
    """For each target whose relevant features differ from row to row, the features that decide which ones they are."""
    categorical: tuple[int, ...] = field(default=(), kw_only=True, repr=False)
    """Features whose numbers are codes of categories."""

    def sample(self, n_rows: int, random_state: RandomState = None) -> FloatArray:
        """Draw inputs.

        Parameters
        ----------
        n_rows : int
        random_state : int, optional
            The same seed gives the same rows.

        Returns
        -------
        array (n_rows, features)
        """
        return self.sampler(n_rows, self.n_features, np.random.default_rng(random_state))

    def frame(self, X: npt.ArrayLike) -> pd.DataFrame:
        """Turn inputs into a DataFrame with columns x0, x1 ..., in which categorical features are marked as such.

        Problems take such frames as well as arrays.

        Parameters
        ----------
        X : array (rows, features)

        Returns
        -------
        DataFrame
        """
        pandas = require_extra("pandas", "pandas")
        frame: pd.DataFrame = pandas.DataFrame(self._as_inputs(X), columns=[f"x{i}" for i in range(self.n_features)])
        for feature in self.categorical:
            frame[f"x{feature}"] = pandas.Categorical(frame[f"x{feature}"].astype(int))
        return frame

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Call the model.

        Parameters
        ----------
        X : array or DataFrame (rows, features)

        Returns
        -------
        array (rows, outputs)
        """
        return self.black_box(self._as_inputs(X))

    __call__ = predict

    def relevant_rows(self, X: npt.ArrayLike, target: int) -> BoolArray:
        """Mark the features that are relevant to the target, row by row.

        Parameters
        ----------
        X : array or DataFrame (rows, features)
        target : int
            One of `targets`.

        Returns
        -------
        array of bool (rows, features)

        Raises
        ------
        ValueError
            If no truth is planted for the output.
        """
        inputs = self._as_inputs(X)
        if target not in self.relevant:
            raise ValueError(f"no truth is planted for output {target}; choose one of {self.targets}")
        if self.row_relevance is not None:
            return self.row_relevance(inputs, target)
        mask = np.zeros(inputs.shape, dtype=np.bool_)
        mask[:, list(self.relevant[target])] = True
        return mask

    def _as_inputs(self, X: npt.ArrayLike) -> FloatArray:
        inputs = np.asarray(X, dtype=np.float64)
        if inputs.ndim != 2 or inputs.shape[1] != self.n_features:
            raise ValueError(f"{self.name} takes {self.n_features} features per row, not shape {inputs.shape}")
        return inputs


# --- problems made from equations; those are `partial`s of module-level functions, so that they can be pickled ----


@dataclass(frozen=True)
class Equations:
    """A model that solves equations, one for each output, in their order."""

    equations: tuple[Equation, ...]

    def __call__(self, X: FloatArray, held: Mapping[int, Column] | None = None) -> npt.NDArray[Any]:
        """All outputs, those in `held` fixed at given values: (rows, outputs)."""
        held = held or {}
        outputs: list[Column] = []
        for number, equation in enumerate(self.equations):
            outputs.append(held[number] if number in held else equation(X, outputs))
        return np.column_stack(outputs)


def equations_problem(
    name: str,
    n_features: int,
    n_relevant: int,
    output_names: Sequence[str],
    equations: Sequence[Equation],
    output_kind: str = "binary",
    *,
    min_features: int = 0,
    row_relevance: RowRelevance | None = None,
) -> Problem:
    """A problem whose target is its last output and whose relevant features come first."""
    require_features(name, n_features, max(min_features, n_relevant))
    target = len(output_names) - 1
    return Problem(
        name=name,
        n_features=n_features,
        n_outputs=len(output_names),
        targets=(target,),
        relevant={target: tuple(range(n_relevant))},
        output_names=tuple(output_names),
        output_kind=output_kind,
        black_box=Equations(tuple(equations)),
        row_relevance=row_relevance,
    )


def require_features(name: str, n_features: int, at_least: int) -> None:
    """ValueError if a problem has fewer features than it uses."""
    if n_features < at_least:
        raise ValueError(f"{name} needs at least {at_least} features, got n_features={n_features}")


# --- parts of equations; those of features alone also work as functions of X --------------------------------


def total(*features: int) -> Callable[..., FloatArray]:
    """The sum of features."""
    return partial(_combined, np.add, features)


def difference(i: int, j: int) -> Callable[..., FloatArray]:
    """x_i - x_j."""
    return partial(_combined, np.subtract, (i, j))


def product(i: int, j: int) -> Callable[..., FloatArray]:
    """x_i * x_j."""
    return partial(_combined, np.multiply, (i, j))


def sign(score: Callable[..., FloatArray]) -> Equation:
    """1 where the score is positive, else 0."""
    return partial(_sign, score)


def xor(i: int, j: int) -> Equation:
    """The exclusive or of outputs i and j."""
    return partial(_xor, i, j)


def xor_feature(i: int, feature: int) -> Equation:
    """The exclusive or of output i and the sign of a feature."""
    return partial(_xor_feature, i, feature)


def classes(score: Callable[..., FloatArray], cuts: Sequence[float], names: Sequence[str]) -> Equation:
    """The name of the interval between cuts that the score is in."""
    return partial(_classes, score, cuts, names)


def _combined(ufunc: np.ufunc, features: tuple[int, ...], X: FloatArray, Y: Sequence[Column] = ()) -> FloatArray:
    return np.asarray(reduce(ufunc, (X[:, i] for i in features)))


def _sign(score: Callable[..., FloatArray], X: FloatArray, Y: Sequence[Column]) -> Column:
    return (score(X) > 0).astype(np.int64)


def _xor(i: int, j: int, X: FloatArray, Y: Sequence[Column]) -> Column:
    return np.asarray(Y[i] ^ Y[j])


def _xor_feature(i: int, feature: int, X: FloatArray, Y: Sequence[Column]) -> Column:
    return np.asarray(Y[i] ^ (X[:, feature] > 0))


def _classes(
    score: Callable[..., FloatArray], cuts: Sequence[float], names: Sequence[str], X: FloatArray, Y: Sequence[Column]
) -> Column:
    return np.asarray(np.array(names)[np.digitize(score(X), cuts)])


# --- the same model on other inputs --------------------------------------------------------------------


def correlated(problem: Problem, rho: float = 0.7, kind: Literal["equal", "ar1"] = "equal") -> Problem:
    """The same model on Gaussian inputs of unit variance that are correlated among all features.

    Replaces the way the inputs of the problem were drawn.

    Parameters
    ----------
    problem : Problem
        Without categorical features.
    rho : float
        At least 0 and below 1.
    kind : "equal" or "ar1"
        The correlation of features i and j: rho for every pair, or `rho ** |i - j|`.

    Returns
    -------
    Problem

    Raises
    ------
    ValueError
        If an argument is wrong, or a feature is categorical.
    """
    if not 0 <= rho < 1:
        raise ValueError(f"rho must be at least 0 and below 1, got {rho}")
    if kind not in ("equal", "ar1"):
        raise ValueError(f'kind must be "equal" or "ar1", got {kind!r}')
    if problem.categorical:
        raise ValueError(f"{problem.name} has categorical features, which cannot be drawn as correlated numbers")
    draw = equicorrelated if kind == "equal" else autoregressive
    return replace(problem, name=f"{problem.name}_correlated", sampler=partial(draw, rho=rho))


def with_decoys(problem: Problem, n_decoys: int = 4, rho: float = 0.9) -> Problem:
    """The same model with the last features drawn as noisy copies, of correlation rho, of relevant ones.

    The copied features are the relevant ones in order, again from the first if there are more decoys.

    Parameters
    ----------
    problem : Problem
    n_decoys : int
        How many of the last features, none of which may be relevant.
    rho : float
        From -1 to 1.

    Returns
    -------
    Problem

    Raises
    ------
    ValueError
        If rho is wrong, or a decoy would be relevant.
    """
    if not -1 <= rho <= 1:
        raise ValueError(f"rho must be between -1 and 1, got {rho}")
    if not 1 <= n_decoys <= problem.n_features:
        raise ValueError(f"n_decoys must be between 1 and {problem.n_features}, got {n_decoys}")
    relevant = sorted({feature for features in problem.relevant.values() for feature in features})
    decoys = range(problem.n_features - n_decoys, problem.n_features)
    clash = sorted(set(decoys) & set(relevant))
    if clash:
        raise ValueError(f"features {clash} are relevant and cannot be decoys; give more features or fewer decoys")
    originals = {decoy: relevant[i % len(relevant)] for i, decoy in enumerate(decoys)}
    sampler = partial(with_copies, sampler=problem.sampler, originals=originals, rho=rho)
    return replace(problem, name=f"{problem.name}_decoys", sampler=sampler)


def shuffled(problem: Problem, random_state: int) -> Problem:
    """The same problem with its features in another order, so that no explainer is right by preferring low indices.

    Column j of the new problem is feature `order[j]` of the old one.

    Parameters
    ----------
    problem : Problem
    random_state : int
        Seed of the order.

    Returns
    -------
    Problem
    """
    order = np.random.default_rng(random_state).permutation(problem.n_features)
    place = np.argsort(order)
    row_relevance = problem.row_relevance

    def relevance(X: FloatArray, target: int) -> BoolArray:
        assert row_relevance is not None
        return np.asarray(row_relevance(X[:, place], target)[:, order])

    def moved(sets: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        return {target: tuple(sorted(place[list(features)].tolist())) for target, features in sets.items()}

    return replace(
        problem,
        relevant=moved(problem.relevant),
        paper_relevant=None if problem.paper_relevant is None else moved(problem.paper_relevant),
        black_box=lambda X: problem.black_box(X[:, place]),
        sampler=lambda n_rows, n_features, rng: problem.sampler(n_rows, n_features, rng)[:, order],
        row_relevance=None if row_relevance is None else relevance,
        order=tuple(order.tolist()),
        switches=moved(problem.switches),
        categorical=tuple(sorted(place[list(problem.categorical)].tolist())),
    )
