"""Problems whose relevant features differ from sample to sample: INVASE's six, and switches that are harder to find.

Inputs are independent standard normal; features are counted from 0 here, so x0 is the x1 of the publications. Each
problem returns probabilities, 1 / (1 + e^U), or labels, 1 where the probability is above one half.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from sointer.zoo.problem import (
    BoolArray,
    FloatArray,
    Problem,
    Sampler,
    correlated,
    product,
    require_features,
    standard_normal,
    total,
)

Score: TypeAlias = Callable[[FloatArray], FloatArray]
"""From the features (rows, features) to one number per row."""
Region: TypeAlias = Callable[[FloatArray], npt.NDArray[np.int64]]
"""From the features to the number of the region that each row is in."""
OutputKind: TypeAlias = Literal["probability", "binary"]


@dataclass(frozen=True)
class Branch:
    """What an output is in one region: a function, and every feature that matters there."""

    score: Score
    features: tuple[int, ...]
    """The features of the function, and those that decide that the row is in this region."""


@dataclass(frozen=True)
class RegionalOutput:
    """An output that follows one branch in each region. With a single branch, it is the same function everywhere."""

    name: str
    branches: tuple[Branch, ...]
    region: Region | None = None
    switch: tuple[int, ...] = ()
    """The features that decide between regions."""

    def scores(self, X: FloatArray) -> FloatArray:
        """One number per row, from the branch of the row's region."""
        if self.region is None:
            return self.branches[0].score(X)
        all_scores = np.stack([branch.score(X) for branch in self.branches])
        chosen: FloatArray = all_scores[self.region(X), np.arange(len(X))]
        return chosen

    def relevant_rows(self, X: FloatArray) -> BoolArray:
        """(rows, features) True for the features that matter in the row's region."""
        by_branch = np.zeros((len(self.branches), X.shape[1]), dtype=np.bool_)
        for number, branch in enumerate(self.branches):
            by_branch[number, list(branch.features)] = True
        rows: BoolArray = by_branch[np.zeros(len(X), dtype=np.int64) if self.region is None else self.region(X)]
        return rows

    @property
    def relevant(self) -> tuple[int, ...]:
        """The features that matter in any region."""
        return tuple(sorted({feature for branch in self.branches for feature in branch.features}))


def regional_problem(
    name: str,
    n_features: int,
    outputs: Sequence[RegionalOutput],
    output_kind: OutputKind | Literal["continuous"],
    *,
    targets: Sequence[int] | None = None,
    sampler: Sampler = standard_normal,
    categorical: tuple[int, ...] = (),
) -> Problem:
    """A problem with these outputs; their truth is planted for all of them, or for `targets` only.

    With `output_kind` "probability", "binary" or "continuous", a score U is returned as the probability 1 / (1 + e^U),
    as the label [U < 0] (probability above one half), or as the number itself.
    """
    if output_kind not in ("probability", "binary", "continuous"):
        raise ValueError(f'output_kind must be "probability" or "binary", got {output_kind!r}')
    require_features(name, n_features, 1 + max(feature for output in outputs for feature in output.relevant))
    chosen = tuple(range(len(outputs))) if targets is None else tuple(targets)
    has_regions = any(outputs[target].region is not None for target in chosen)
    return Problem(
        name=name,
        n_features=n_features,
        n_outputs=len(outputs),
        targets=chosen,
        relevant={target: outputs[target].relevant for target in chosen},
        output_names=tuple(output.name for output in outputs),
        output_kind=output_kind,
        black_box=partial(_predict, outputs=tuple(outputs), output_kind=output_kind),
        sampler=sampler,
        row_relevance=partial(_relevance, outputs=tuple(outputs)) if has_regions else None,
        switches={target: outputs[target].switch for target in chosen if outputs[target].switch},
        categorical=categorical,
    )


def certain(condition: BoolArray) -> FloatArray:
    """The score of an output that is 1 where the condition holds and 0 elsewhere."""
    return np.where(condition, -np.inf, np.inf)


def _predict(X: FloatArray, outputs: tuple[RegionalOutput, ...], output_kind: str) -> npt.NDArray[Any]:
    scores = np.column_stack([output.scores(X) for output in outputs])
    if output_kind == "probability":
        return np.asarray(expit(-scores))
    return (scores < 0).astype(np.int64) if output_kind == "binary" else scores


def _relevance(X: FloatArray, target: int, outputs: tuple[RegionalOutput, ...]) -> BoolArray:
    return outputs[target].relevant_rows(X)


Switch: TypeAlias = Literal["axis", "oblique", "parity", "nested", "category"]
N_CATEGORIES = 4
_FIRST, _SECOND = 10, 9  # the features that switches look at: x10 and, where there are two, x9


# --- INVASE's functions ----------------------------------------------------------------------------------


def squares(X: FloatArray, first: int) -> FloatArray:
    """The sum of the squares of four features, minus 4."""
    return np.asarray((X[:, first : first + 4] ** 2).sum(axis=1) - 4)


def additive(X: FloatArray, first: int, scale: float) -> FloatArray:
    """-scale sin(0.2 a) + |b| + c + e^(-d) - 2.4 of four features a, b, c, d."""
    a, b, c, d = (X[:, first + i] for i in range(4))
    return np.asarray(-scale * np.sin(0.2 * a) + np.abs(b) + c + np.exp(-d) - 2.4)


SYN1 = Branch(product(0, 1), (0, 1))
SYN2 = Branch(partial(squares, first=2), (2, 3, 4, 5))
SYN3 = Branch(partial(additive, first=6, scale=10), (6, 7, 8, 9))
_SUM = Branch(total(4, 7), (4, 7))
_SWITCHED = {4: (SYN1, SYN2), 5: (SYN1, SYN3), 6: (SYN2, SYN3)}


def syn(number: int, n_features: int = 11, output_kind: OutputKind = "probability") -> Problem:
    """One of INVASE's Syn1 to Syn6, as in its published code, as a model with this one output.

    Syn1 is U = x0 x1; Syn2 is x2^2 + ... + x5^2 - 4; Syn3 is `-10 sin(0.2 x6) + |x7| + x8 + e^(-x9) - 2.4`. Syn4, Syn5
    and Syn6 are Syn1, Syn1 and Syn2 where x10 < 0, and Syn2, Syn3 and Syn3 elsewhere; relevant are x10 and the
    features of the function that applies.

    Parameters
    ----------
    number : int
        1 to 6.
    n_features : int
        At least as many as the function uses; the others are noise. INVASE uses 11 and 100.
    output_kind : "probability" or "binary"
        What the model returns.

    Returns
    -------
    Problem

    Raises
    ------
    ValueError
        If there is no such number.

    Examples
    --------
    >>> problem = syn(4)
    >>> X = np.zeros((2, 11))
    >>> X[:, 10] = [-1, 1]
    >>> [np.flatnonzero(row).tolist() for row in problem.relevant_rows(X, target=0)]
    [[0, 1, 10], [2, 3, 4, 5, 10]]
    """
    if number not in range(1, 7):
        raise ValueError(f"number must be 1 to 6, got {number!r}")
    return regional_problem(f"syn{number}", n_features, [_syn_output(number)], output_kind)


def syn_model(n_features: int = 11, output_kind: OutputKind = "probability") -> Problem:
    """One model with seven outputs: Syn1, Syn2 and Syn3, the switch [x10 < 0], and Syn4, Syn5 and Syn6.

    Parameters
    ----------
    n_features : int
        At least 11.
    output_kind : "probability" or "binary"
        What the model returns.

    Returns
    -------
    Problem
    """
    outputs = [*_SYN, *_SWITCHES["axis"][1], *map(_syn_output, (4, 5, 6))]
    return regional_problem("syn_model", n_features, outputs, output_kind)


def _syn_output(number: int) -> RegionalOutput:
    if number <= 3:
        return _SYN[number - 1]
    return _switched(f"syn{number}", _SWITCHED[number], partial(not_negative, score=total(_FIRST)))


# --- harder switches -------------------------------------------------------------------------------------


def switching(
    switch: Switch, n_features: int = 12, output_kind: OutputKind = "probability", *, hidden: bool = False
) -> Problem:
    """A model whose last output is one of its branches, chosen by a switch that is harder to find than one threshold.

    Outputs are the branches, the conditions of the switch unless they are hidden, and the target.

    Parameters
    ----------
    switch : str
        "axis": Syn1 where x10 < 0, else Syn2. "oblique": Syn1 where x9 + x10 < 0, else Syn2. "parity": Syn1 where
        x9 x10 < 0, else Syn2. "nested": Syn1 where x10 < 0; elsewhere Syn2 where x9 < 0, else Syn3 (x9 does not matter
        where x10 < 0). "category": Syn1, Syn2, Syn3 or the sum x4 + x7 by the category 0, 1, 2 or 3 in column x10;
        `problem.frame(X)` marks that column as categorical.
    n_features : int
        At least 11.
    output_kind : "probability" or "binary"
        What the model returns.
    hidden : bool
        Leave the conditions of the switch out of the outputs.

    Returns
    -------
    Problem

    Raises
    ------
    ValueError
        If there is no such switch.
    """
    if switch not in _SWITCHES:
        raise ValueError(f"switch must be one of {', '.join(map(repr, _SWITCHES))}, got {switch!r}")
    branches, conditions, target = _SWITCHES[switch]
    outputs = [*branches, *(() if hidden else conditions), target]
    is_category = switch == "category"
    return regional_problem(
        f"switch_{switch}{'_hidden' * hidden}",
        n_features,
        outputs,
        output_kind,
        targets=[len(outputs) - 1],
        sampler=_with_category if is_category else standard_normal,
        categorical=(_FIRST,) if is_category else (),
    )


def _switched(
    name: str, branches: tuple[Branch, ...], region: Region, switches: tuple[tuple[int, ...], ...] = ((_FIRST,),)
) -> RegionalOutput:
    """An output that is one of the branches; `switches` are the deciding features, of all regions or of each."""
    deciding = switches if len(switches) > 1 else switches * len(branches)
    with_switch = tuple(
        Branch(branch.score, tuple(sorted({*branch.features, *features})))
        for branch, features in zip(branches, deciding, strict=True)
    )
    return RegionalOutput(name, with_switch, region, tuple(sorted({f for features in switches for f in features})))


def not_negative(X: FloatArray, score: Score) -> npt.NDArray[np.int64]:
    """Region 0 where the score is below 0, else region 1."""
    return (score(X) >= 0).astype(np.int64)


def _nested(X: FloatArray) -> npt.NDArray[np.int64]:
    return np.where(X[:, _FIRST] < 0, 0, np.where(X[:, _SECOND] < 0, 1, 2))


def _category(X: FloatArray) -> npt.NDArray[np.int64]:
    return np.clip(np.rint(X[:, _FIRST]), 0, N_CATEGORIES - 1).astype(np.int64)


def _negative(X: FloatArray, score: Score) -> FloatArray:
    return certain(score(X) < 0)


def _is_category(X: FloatArray, number: int) -> FloatArray:
    return certain(_category(X) == number)


def _with_category(n_rows: int, n_features: int, rng: np.random.Generator) -> FloatArray:
    inputs = rng.standard_normal((n_rows, n_features))
    inputs[:, _FIRST] = rng.integers(N_CATEGORIES, size=n_rows)
    return inputs


def _plain(name: str, score: Score, features: tuple[int, ...]) -> RegionalOutput:
    return RegionalOutput(name, (Branch(score, features),))


_Switch: TypeAlias = tuple[tuple[RegionalOutput, ...], tuple[RegionalOutput, ...], RegionalOutput]


def _two_way(score: Score, features: tuple[int, ...]) -> _Switch:
    """Syn1 where the score is below 0, else Syn2."""
    condition = _plain("switch", partial(_negative, score=score), features)
    return _SYN[:2], (condition,), _switched("target", (SYN1, SYN2), partial(not_negative, score=score), (features,))


_SYN = tuple(RegionalOutput(f"syn{number}", (branch,)) for number, branch in enumerate((SYN1, SYN2, SYN3), start=1))
_SWITCHES: Mapping[str, _Switch] = {
    "axis": _two_way(total(_FIRST), (_FIRST,)),
    "oblique": _two_way(total(_SECOND, _FIRST), (_SECOND, _FIRST)),
    "parity": _two_way(product(_SECOND, _FIRST), (_SECOND, _FIRST)),
    "nested": (
        _SYN,
        (
            _plain("outer", partial(_negative, score=total(_FIRST)), (_FIRST,)),
            _plain("inner", partial(_negative, score=total(_SECOND)), (_SECOND,)),
        ),
        _switched("target", (SYN1, SYN2, SYN3), _nested, ((_FIRST,), (_SECOND, _FIRST), (_SECOND, _FIRST))),
    ),
    "category": (
        (*_SYN, RegionalOutput("sum", (_SUM,))),
        tuple(
            _plain(f"category_{number}", partial(_is_category, number=number), (_FIRST,))
            for number in range(N_CATEGORIES)
        ),
        _switched("target", (SYN1, SYN2, SYN3, _SUM), _category),
    ),
}
"""For each switch: the outputs that are branches, those that are its conditions, and the target."""


# --- the table -------------------------------------------------------------------------------------------


def _correlated_syn_model(n_features: int = 11, output_kind: OutputKind = "probability", rho: float = 0.9) -> Problem:
    return correlated(syn_model(n_features, output_kind), rho)


INSTANCEWISE_PROBLEMS: Mapping[str, Callable[..., Problem]] = {
    **{f"syn{number}": partial(syn, number) for number in range(1, 7)},
    "syn_model": syn_model,
    **{f"switch_{name}": partial(switching, name) for name in _SWITCHES},  # type: ignore[arg-type]
    **{f"switch_{name}_hidden": partial(switching, name, hidden=True) for name in _SWITCHES},  # type: ignore[arg-type]
    "syn_model_correlated": _correlated_syn_model,
}
"""Every problem of this module by its name: a function of the number of features and of the kind of its outputs."""
