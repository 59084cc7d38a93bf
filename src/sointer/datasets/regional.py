"""Outputs that follow a different function in each region of the inputs, and problems made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from sointer.datasets.problem import BoolArray, FloatArray, Problem, Sampler, standard_normal

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
        """The features that matter in some region."""
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
    needed = 1 + max(feature for output in outputs for feature in output.relevant)
    if n_features < needed:
        raise ValueError(f"{name} needs at least {needed} features, got n_features={n_features}")
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
