"""Synthetic problems with planted truth: the paper's two energies, and outputs that depend on other outputs.

In a "mediated" problem the features reach the target only through other outputs. Those outputs are the
intermediate labels that an explainer aware of the structure can learn from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sointer.zoo.problem import BoolArray, FloatArray, Problem, RowRelevance, Sampler

IntArray: TypeAlias = npt.NDArray[np.int64]
EnergyFunction: TypeAlias = Callable[[npt.NDArray[Any], npt.NDArray[Any]], FloatArray]

# Cut points that split each score into equally likely classes when the inputs are standard normal.
_SUM_OF_TWO_TERTILE = 0.6091403883479712
_PRODUCT_OF_TWO_TERTILE = 0.18682434416073945
_NORMAL_QUARTILE = 0.6744897501960817


# --- the paper's energies -------------------------------------------------------------------------------


def energy_e1(X: npt.NDArray[Any], Y: npt.NDArray[Any]) -> FloatArray:
    """The paper's E1 of inputs (at least 4 features) and 2 binary outputs, both on the last axis."""
    x1, x2, x3, x4 = (X[..., i] for i in range(4))
    y1, y2 = (Y[..., j] for j in range(2))
    energy: FloatArray = (x1 * y1 + x4) * (1 - y2) + (x2 * (1 - y1) + x3) * y2
    return energy


def energy_e2(X: npt.NDArray[Any], Y: npt.NDArray[Any]) -> FloatArray:
    """The paper's E2 of inputs (at least 4 features) and 4 binary outputs, both on the last axis."""
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
    """
    return _energy_minimiser("e1", energy_e1, n_features, n_outputs=2, relevant=(0, 1, 2, 3))


def paper_e2(n_features: int = 20) -> Problem:
    """The exact minimiser of the paper's E2, the first one in lexicographic order of y where several tie.

    Every y with y2 = y4 has energy 0, whatever y1 and y3; every y with y2 = 1, y4 = 0 and y1, y3 not both 0
    has energy x3. Only y = 1011, of energy sin(x1) + |x4|, can be minimal alone. The rule leaves three
    answers: 0000 where no energy is negative, 0110 where x3 is least and 1011 where sin(x1) + |x4| is.
    The term in x2 is always positive, so it only forbids y1 = y3 = 0 and x2 never changes the minimiser,
    though the paper counts it as relevant.
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
    _require_features(name, n_features, at_least=4)
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
    candidates = np.array(list(product((0, 1), repeat=n_outputs)), dtype=np.int64)
    energies = energy(X[:, np.newaxis, :], candidates[np.newaxis, :, :])
    minimisers: IntArray = candidates[np.argmin(energies, axis=1)]
    return minimisers


# --- binary targets that are functions of other outputs --------------------------------------------------


def mediated_xor(n_features: int = 20, n_unrelated: int = 2) -> Problem:
    """y0 = [x0 + x1 > 0], y1 = [x2 * x3 > 0], unrelated outputs, and the target y0 xor y1."""
    return _mediated("mediated_xor", _sum_and_product, _xor, 2, 4, n_features, n_unrelated)


def partly_mediated(n_features: int = 20) -> Problem:
    """The smallest case, two outputs: y0 = [x0 * x1 > 0], and the target y0 xor [x2 > 0], which x2 reaches directly."""
    _require_features("partly_mediated", n_features, at_least=3)
    return _single_target("partly_mediated", n_features, 3, ("y0", "target"), "binary", _partly_mediated_outputs)


def mediated_and(n_features: int = 20, n_unrelated: int = 2) -> Problem:
    """y0 = [x0 + x1 > 0], y1 = [x2 * x3 > 0], unrelated outputs, and the target y0 and y1."""
    return _mediated("mediated_and", _sum_and_product, _and, 2, 4, n_features, n_unrelated)


def mediated_majority(n_features: int = 20, n_unrelated: int = 2) -> Problem:
    """y0 = [x0 + x1 > 0], y1 = [x2 - x3 > 0], y2 = [x4 + x5 > 0], unrelated outputs, and their majority."""
    return _mediated("mediated_majority", _three_pairs, _majority, 3, 6, n_features, n_unrelated)


def instancewise_switch(n_features: int = 20, n_unrelated: int = 2) -> Problem:
    """A target whose relevant features differ from row to row.

    y0 = [x0 > 0], y1 = [x1 * x2 > 0], y2 = [x3 + x4 > 0], unrelated outputs, and the target: y1 where y0 = 1
    (relevant there: x0, x1, x2) and y2 elsewhere (relevant there: x0, x3, x4).
    """
    return _mediated("switch", _switch_scores, _switch, 3, 5, n_features, n_unrelated, row_relevance=_switch_relevance)


def mediated_chain(length: int, n_features: int = 20) -> Problem:
    """A target at the end of a chain of outputs, 1 to 4 links long.

    c0 = [x0 + x1 > 0]; link j has the side output s_j = [x_(1+j) > 0] and c_j = c_(j-1) xor s_j. The outputs
    are c0, s1, c1, s2, c2 and so on; the target is the last.
    """
    if length not in (1, 2, 3, 4):
        raise ValueError(f"length must be 1, 2, 3 or 4, got {length}")
    name = f"mediated_chain_{length}"
    n_relevant = 2 + length
    _require_features(name, n_features, at_least=n_relevant)
    links = tuple(output for j in range(1, length + 1) for output in (f"s{j}", f"c{j}"))
    return _single_target(
        name, n_features, n_relevant, ("c0", *links), "binary", partial(_chain_outputs, length=length)
    )


def _mediated(
    name: str,
    scores: Callable[[FloatArray], FloatArray],
    combine: Callable[[IntArray], IntArray],
    n_mediators: int,
    n_relevant: int,
    n_features: int,
    n_unrelated: int,
    row_relevance: RowRelevance | None = None,
) -> Problem:
    """Mediators are the signs of the scores; the target, the last output, combines the mediators alone."""
    _require_features(name, n_features, at_least=n_relevant + (n_unrelated > 0))
    return _single_target(
        name,
        n_features,
        n_relevant,
        _mediated_names(n_mediators, n_unrelated),
        "binary",
        partial(_mediated_outputs, scores=scores, combine=combine, first_free=n_relevant, n_unrelated=n_unrelated),
        row_relevance,
    )


def _mediated_outputs(
    X: FloatArray,
    scores: Callable[[FloatArray], FloatArray],
    combine: Callable[[IntArray], IntArray],
    first_free: int,
    n_unrelated: int,
) -> IntArray:
    mediators = (scores(X) > 0).astype(np.int64)
    unrelated = (_unrelated_scores(X, first_free, n_unrelated) > 0).astype(np.int64)
    return np.column_stack([mediators, unrelated, combine(mediators)])


def _sum_and_product(X: FloatArray) -> FloatArray:
    return np.column_stack([X[:, 0] + X[:, 1], X[:, 2] * X[:, 3]])


def _three_pairs(X: FloatArray) -> FloatArray:
    return np.column_stack([X[:, 0] + X[:, 1], X[:, 2] - X[:, 3], X[:, 4] + X[:, 5]])


def _switch_scores(X: FloatArray) -> FloatArray:
    return np.column_stack([X[:, 0], X[:, 1] * X[:, 2], X[:, 3] + X[:, 4]])


def _xor(mediators: IntArray) -> IntArray:
    return mediators[:, 0] ^ mediators[:, 1]


def _and(mediators: IntArray) -> IntArray:
    return mediators[:, 0] & mediators[:, 1]


def _majority(mediators: IntArray) -> IntArray:
    at_least_two: IntArray = (mediators.sum(axis=1) >= 2).astype(np.int64)
    return at_least_two


def _switch(mediators: IntArray) -> IntArray:
    return np.where(mediators[:, 0] == 1, mediators[:, 1], mediators[:, 2])


def _switch_relevance(X: FloatArray, target: int) -> BoolArray:
    mask = np.zeros(X.shape, dtype=np.bool_)
    mask[:, 0] = True
    switched_on = X[:, :1] > 0
    mask[:, 1:3] = switched_on
    mask[:, 3:5] = ~switched_on
    return mask


def _partly_mediated_outputs(X: FloatArray) -> IntArray:
    mediator = (X[:, 0] * X[:, 1] > 0).astype(np.int64)
    return np.column_stack([mediator, mediator ^ (X[:, 2] > 0)])


def _chain_outputs(X: FloatArray, length: int) -> IntArray:
    chained = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
    outputs = [chained]
    for j in range(1, length + 1):
        side = (X[:, 1 + j] > 0).astype(np.int64)
        chained = chained ^ side
        outputs += [side, chained]
    return np.column_stack(outputs)


# --- categorical and continuous targets that are functions of other outputs ------------------------------


def mediated_categorical(n_features: int = 20) -> Problem:
    """Class labels: y0 by tertile of x0 + x1, y1 by tertile of x2 * x3, one unrelated by quartile of x4.

    With the classes of y0 and y1 numbered from 0, the target is the class (y0 + y1) mod 3 of "a", "b", "c".
    """
    name = "mediated_categorical"
    _require_features(name, n_features, at_least=5)
    return _single_target(name, n_features, 4, _mediated_names(2, 1), "categorical", _categorical_outputs)


def mediated_continuous(n_features: int = 20, n_unrelated: int = 2) -> Problem:
    """Regression: y0 = x0 + x1, y1 = x2 * x3, unrelated outputs, and the target tanh(y0) + y0 * y1 / 2."""
    name = "mediated_continuous"
    _require_features(name, n_features, at_least=4 + (n_unrelated > 0))
    return _single_target(
        name,
        n_features,
        4,
        _mediated_names(2, n_unrelated),
        "continuous",
        partial(_continuous_outputs, n_unrelated=n_unrelated),
    )


def _categorical_outputs(X: FloatArray) -> npt.NDArray[np.str_]:
    by_sum = np.digitize(X[:, 0] + X[:, 1], [-_SUM_OF_TWO_TERTILE, _SUM_OF_TWO_TERTILE])
    by_product = np.digitize(X[:, 2] * X[:, 3], [-_PRODUCT_OF_TWO_TERTILE, _PRODUCT_OF_TWO_TERTILE])
    unrelated = np.digitize(X[:, 4], [-_NORMAL_QUARTILE, 0.0, _NORMAL_QUARTILE])
    return np.column_stack(
        [
            np.array(["low", "mid", "high"])[by_sum],
            np.array(["negative", "small", "positive"])[by_product],
            np.array(["q1", "q2", "q3", "q4"])[unrelated],
            np.array(["a", "b", "c"])[(by_sum + by_product) % 3],
        ]
    )


def _continuous_outputs(X: FloatArray, n_unrelated: int) -> FloatArray:
    mediators = _sum_and_product(X)
    target = np.tanh(mediators[:, 0]) + mediators[:, 0] * mediators[:, 1] / 2
    return np.column_stack([mediators, _unrelated_scores(X, first_free=4, n_unrelated=n_unrelated), target])


# --- the same black boxes on harder inputs ---------------------------------------------------------------


def correlated(problem: Problem, rho: float = 0.7, kind: Literal["equal", "ar1"] = "equal") -> Problem:
    """The same black box on Gaussian inputs of unit variance that are correlated among all features.

    "equal" gives every pair of features the correlation rho; "ar1" gives features i and j rho ** |i - j|.
    Replaces the way the inputs of the problem were drawn.
    """
    if not 0 <= rho < 1:
        raise ValueError(f"rho must be at least 0 and below 1, got {rho}")
    if kind not in ("equal", "ar1"):
        raise ValueError(f'kind must be "equal" or "ar1", got {kind!r}')
    if problem.categorical:
        raise ValueError(f"{problem.name} has categorical features, which cannot be drawn as correlated numbers")
    draw = _equicorrelated if kind == "equal" else _autoregressive
    return replace(problem, name=f"{problem.name}_correlated", sampler=partial(draw, rho=rho))


def with_decoys(problem: Problem, n_decoys: int = 4, rho: float = 0.9) -> Problem:
    """The same black box with the last features drawn as noisy copies, of correlation rho, of relevant ones.

    The copied features are the relevant ones in order, again from the first if there are more decoys.
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
    sampler = partial(_with_copies, sampler=problem.sampler, originals=originals, rho=rho)
    return replace(problem, name=f"{problem.name}_decoys", sampler=sampler)


def shuffled(problem: Problem, random_state: int) -> Problem:
    """The same problem with its features in another order, so that no explainer is right by preferring low indices.

    Column j of the new problem is feature `order[j]` of the old one.
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


def _equicorrelated(n_rows: int, n_features: int, rng: np.random.Generator, rho: float) -> FloatArray:
    own = rng.standard_normal((n_rows, n_features))
    shared = rng.standard_normal((n_rows, 1))
    inputs: FloatArray = np.sqrt(rho) * shared + np.sqrt(1 - rho) * own
    return inputs


def _autoregressive(n_rows: int, n_features: int, rng: np.random.Generator, rho: float) -> FloatArray:
    inputs = rng.standard_normal((n_rows, n_features))
    for i in range(1, n_features):
        inputs[:, i] = rho * inputs[:, i - 1] + np.sqrt(1 - rho**2) * inputs[:, i]
    return inputs


def _with_copies(
    n_rows: int,
    n_features: int,
    rng: np.random.Generator,
    sampler: Sampler,
    originals: Mapping[int, int],
    rho: float,
) -> FloatArray:
    inputs: FloatArray = sampler(n_rows, n_features, rng).copy()
    noise = rng.standard_normal((n_rows, len(originals)))
    for column, (decoy, original) in enumerate(originals.items()):
        inputs[:, decoy] = rho * inputs[:, original] + np.sqrt(1 - rho**2) * noise[:, column]
    return inputs


# --- shared parts ----------------------------------------------------------------------------------------


def _single_target(
    name: str,
    n_features: int,
    n_relevant: int,
    output_names: tuple[str, ...],
    output_kind: str,
    black_box: Callable[[FloatArray], npt.NDArray[Any]],
    row_relevance: RowRelevance | None = None,
) -> Problem:
    """A problem whose target is its last output and whose relevant features come first."""
    target = len(output_names) - 1
    return Problem(
        name=name,
        n_features=n_features,
        n_outputs=len(output_names),
        targets=(target,),
        relevant={target: tuple(range(n_relevant))},
        output_names=output_names,
        output_kind=output_kind,
        black_box=black_box,
        row_relevance=row_relevance,
    )


def _mediated_names(n_mediators: int, n_unrelated: int) -> tuple[str, ...]:
    mediators = (f"y{j}" for j in range(n_mediators))
    unrelated = (f"unrelated_{j}" for j in range(n_unrelated))
    return (*mediators, *unrelated, "target")


def _unrelated_scores(X: FloatArray, first_free: int, n_unrelated: int) -> FloatArray:
    """Sums of one, two, one, two ... features, taken in a cycle from the free ones (from first_free on)."""
    n_free = X.shape[1] - first_free
    scores = np.zeros((X.shape[0], n_unrelated))
    used = 0
    for j in range(n_unrelated):
        for _ in range(1 + j % 2):
            scores[:, j] += X[:, first_free + used % n_free]
            used += 1
    return scores


def _require_features(name: str, n_features: int, at_least: int) -> None:
    if n_features < at_least:
        raise ValueError(f"{name} needs at least {at_least} features, got n_features={n_features}")


# --- the table -------------------------------------------------------------------------------------------


def _correlated_e1(n_features: int = 20) -> Problem:
    return correlated(paper_e1(n_features))


def _correlated_xor(n_features: int = 20) -> Problem:
    return correlated(mediated_xor(n_features))


def _decoyed_e1(n_features: int = 20) -> Problem:
    return with_decoys(paper_e1(n_features))


def _decoyed_xor(n_features: int = 20) -> Problem:
    return with_decoys(mediated_xor(n_features))


ALL_PROBLEMS: Mapping[str, Callable[[int], Problem]] = {
    "e1": paper_e1,
    "e2": paper_e2,
    "mediated_xor": mediated_xor,
    "partly_mediated": partly_mediated,
    "mediated_and": mediated_and,
    "mediated_majority": mediated_majority,
    "mediated_chain_1": partial(mediated_chain, 1),
    "mediated_chain_2": partial(mediated_chain, 2),
    "mediated_chain_3": partial(mediated_chain, 3),
    "mediated_chain_4": partial(mediated_chain, 4),
    "mediated_categorical": mediated_categorical,
    "mediated_continuous": mediated_continuous,
    "e1_correlated": _correlated_e1,
    "mediated_xor_correlated": _correlated_xor,
    "e1_decoys": _decoyed_e1,
    "mediated_xor_decoys": _decoyed_xor,
    "switch": instancewise_switch,
}
"""Every problem by its name: a function of the number of features."""
